/*-------------------------------------------------------------------------
 *
 * waiting.h
 *	  Waiting for something that a commit of another session brings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WAITING_H
#define DURABLE_WAITING_H

#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* Has it come?  Asked with a new snapshot each time. */
typedef bool (*WaitingDone) (int64 number, const char *id);

extern TimestampTz WaitingUntil(FunctionCallInfo fcinfo, int i);
extern void WaitingCheck(void);
extern void WaitingCheckProcedure(FunctionCallInfo fcinfo,
								  const char *procedure, const char *hint);
extern void WaitingWithSnapshot(int64 number, WaitingDone done,
								const char *id, TimestampTz until);
extern void WaitingWithoutSnapshot(int64 number, WaitingDone done,
								   const char *id, TimestampTz until);
extern Datum WaitingResult(FunctionCallInfo fcinfo, Jsonb *result);

#endif							/* DURABLE_WAITING_H */
