/*-------------------------------------------------------------------------
 *
 * timeout.h
 *	  Interrupting an activity that takes too long.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_TIMEOUT_H
#define DURABLE_TIMEOUT_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* How long an activity may take, in ms; 0: as long as it wants. */
typedef struct TimeLimits
{
	int64		start_to_close; /* one attempt */
	int64		schedule_to_close;	/* all attempts */
	int64		heartbeat;		/* between two signs of life */
} TimeLimits;

extern int64 TimeoutRead(const Interval *interval, const char *parameter);
extern void TimeoutArm(const TimeLimits *limits, TimestampTz first_at);
extern void TimeoutHeartbeat(void);
extern void TimeoutDisarm(void);
extern bool TimeoutIsDue(void);
extern const char *TimeoutHit(void);

#endif							/* DURABLE_TIMEOUT_H */
