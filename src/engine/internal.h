/*-------------------------------------------------------------------------
 *
 * internal.h
 *	  Workflows of our own: an activity beside a body, a part of a map.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_INTERNAL_H
#define DURABLE_INTERNAL_H

#include "engine/replay.h"

extern bool InternalIs(const char *workflow);
extern void InternalDescribe(Activation *a);

#endif							/* DURABLE_INTERNAL_H */
