/*-------------------------------------------------------------------------
 *
 * timeout.c
 *	  Interrupting an activity that takes too long.
 *
 * The interrupt is that of a cancel, so it ends whatever the activity does;
 * which limit was hit is remembered, and tells it from a real cancel.  One
 * that the activity catches is repeated.  It never reaches what comes after
 * the activity: when that has come to its end, an interrupt of ours that was
 * not acted upon is taken back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"

#include "durable.h"
#include "engine/timeout.h"

/* Milliseconds after which an interrupt that was caught is repeated. */
#define AGAIN		1000

/* So many milliseconds after any time are still a time. */
#define MAX_LIMIT	INT64CONST(1000000000000000)

static bool registered = false;
static TimeoutId limit_timeout;
static TimeoutId heartbeat_timeout;

static bool armed = false;		/* an attempt runs */
static const char *limit_kind = NULL;	/* which one is shorter */
static int64 heartbeat_ms = 0;
static volatile sig_atomic_t limit_hit = false;
static volatile sig_atomic_t heartbeat_hit = false;

static void
interrupt(void)
{
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

static void
on_limit(void)
{
	limit_hit = true;
	interrupt();
}

static void
on_heartbeat(void)
{
	heartbeat_hit = true;
	interrupt();
}

/*
 * TimeoutRead: an interval in ms; NULL is none.
 */
int64
TimeoutRead(const Interval *interval, const char *parameter)
{
	double		ms;

	if (interval == NULL)
		return 0;
	ms = interval->time / 1000.0 +
		(interval->day + interval->month * (double) DAYS_PER_MONTH) * SECS_PER_DAY * 1000.0;
	if (ms < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least a millisecond", parameter)));
	return ms > MAX_LIMIT ? MAX_LIMIT : (int64) ms;
}

/*
 * remaining: of the time for all attempts; at least one ms, so that the
 * attempt is begun and interrupted.
 */
static int64
remaining(int64 limit, TimestampTz first_at)
{
	int64		spent = (GetCurrentTimestamp() - first_at) / 1000;

	return Max(limit - spent, 1);
}

/*
 * arm: the server's timeouts know an int of milliseconds, which is more than
 * a function can be expected to run.
 */
static void
arm(TimeoutId timeout, int64 milliseconds)
{
	int			delay = Min(milliseconds, INT_MAX);

	enable_timeout_every(timeout,
						 TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay),
						 AGAIN);
}

/*
 * TimeoutArm: an attempt begins.
 */
void
TimeoutArm(const TimeLimits *limits, TimestampTz first_at)
{
	int64		limit = limits->start_to_close;

	limit_hit = heartbeat_hit = false;
	armed = true;
	limit_kind = "start_to_close";
	if (limits->schedule_to_close != 0)
	{
		int64		all = remaining(limits->schedule_to_close, first_at);

		if (limit == 0 || all < limit)
		{
			limit = all;
			limit_kind = "schedule_to_close";
		}
	}
	heartbeat_ms = limits->heartbeat;
	if (limit == 0 && heartbeat_ms == 0)
		return;
	if (!registered)
	{
		limit_timeout = RegisterTimeout(USER_TIMEOUT, on_limit);
		heartbeat_timeout = RegisterTimeout(USER_TIMEOUT, on_heartbeat);
		registered = true;
	}
	if (limit != 0)
		arm(limit_timeout, limit);
	TimeoutHeartbeat();
}

/*
 * TimeoutHeartbeat: the activity is alive.
 */
void
TimeoutHeartbeat(void)
{
	if (heartbeat_ms != 0)
		arm(heartbeat_timeout, heartbeat_ms);
}

/*
 * TimeoutDisarm: the attempt is over, in whatever way.
 */
void
TimeoutDisarm(void)
{
	heartbeat_ms = 0;
	armed = false;
	if (!registered)
		return;
	disable_timeout(limit_timeout, false);
	disable_timeout(heartbeat_timeout, false);
	if (limit_hit || heartbeat_hit)
		QueryCancelPending = false;
}

/*
 * TimeoutIsDue: has the attempt that runs hit a limit?
 */
bool
TimeoutIsDue(void)
{
	return armed && (limit_hit || heartbeat_hit);
}

/*
 * TimeoutHit: the limit that the last attempt hit, or NULL.
 */
const char *
TimeoutHit(void)
{
	if (limit_hit)
		return limit_kind;
	return heartbeat_hit ? "heartbeat" : NULL;
}
