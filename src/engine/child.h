/*-------------------------------------------------------------------------
 *
 * child.h
 *	  Instances that an instance has started, and what becomes of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CHILD_H
#define DURABLE_CHILD_H

#include "engine/replay.h"

/* The workflows that run an activity, or a part of durable_map(). */
#define INTERNAL_PREFIX		"durable:"
#define ACTIVITY_WORKFLOW	INTERNAL_PREFIX "activity"
#define MAP_WORKFLOW		INTERNAL_PREFIX "map"

extern void ChildStart(Activation *a, Command *command);
extern int	ChildResults(Activation *a);
extern bool ChildIs(const Command *command);
extern bool ChildIsOpen(const Command *command);
extern void ChildrenCancel(Activation *a);
extern void ChildrenClose(Activation *a);
extern void ChildrenTellAgain(int64 parent, int before);
extern void ChildrenTerminate(int64 parent);
extern void ChildTellParent(const InstanceRow *child, const char *status,
							Jsonb *result, Jsonb *error, bool attempted);

#endif							/* DURABLE_CHILD_H */
