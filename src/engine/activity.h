/*-------------------------------------------------------------------------
 *
 * activity.h
 *	  Functions of ours that are steps when a body calls them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ACTIVITY_H
#define DURABLE_ACTIVITY_H

#include "fmgr.h"

#include "engine/replay.h"

extern Datum ActivityInBody(FunctionCallInfo fcinfo, const char *name,
							const char *const *parameters);

#endif							/* DURABLE_ACTIVITY_H */
