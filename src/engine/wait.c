/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Primitives that wait: for a time, for a signal.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "arguments.h"
#include "engine/json.h"
#include "engine/replay.h"

PG_FUNCTION_INFO_V1(durable_sleep);
PG_FUNCTION_INFO_V1(durable_sleep_until);
PG_FUNCTION_INFO_V1(durable_wait_signal);

static TimestampTz
check_finite(TimestampTz time, const char *parameter)
{
	if (TIMESTAMP_NOT_FINITE(time))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be infinite", parameter)));
	return time;
}

/*
 * from_now: the clock's time after an interval.  Asked for again on each
 * pass, but only the first answer counts: it is recorded.
 */
static TimestampTz
from_now(Datum interval, const char *parameter)
{
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());

	return check_finite(DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
														  now, interval)),
				  parameter);
}

static Jsonb *
one_argument(const char *key, Datum value, Oid type)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAdd(&state, key, DatumToJsonb(value, false, type));
	return JsonObjectEnd(&state);
}

static void
sleep_until(Activation *a, TimestampTz wake_at, Jsonb *args)
{
	CommandRequest request = {
		.kind = COMMAND_TIMER, .name = "sleep", .args = args,
		.wake_at = wake_at
	};

	(void) ReplayFinished(a, ReplayCommand(a, &request));
}

/*
 * durable_sleep: go on after that time.
 */
Datum
durable_sleep(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_sleep");
	Datum		duration;

	ArgNotNull(fcinfo, 0, "duration");
	duration = PG_GETARG_DATUM(0);
	sleep_until(a, from_now(duration, "duration"),
		  one_argument("for", duration, INTERVALOID));
	PG_RETURN_VOID();
}

/*
 * durable_sleep_until: go on at that time.
 */
Datum
durable_sleep_until(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_sleep_until");
	TimestampTz wake_at;

	ArgNotNull(fcinfo, 0, "wake_at");
	wake_at = check_finite(PG_GETARG_TIMESTAMPTZ(0), "wake_at");
	sleep_until(a, wake_at,
		  one_argument("until", TimestampTzGetDatum(wake_at), TIMESTAMPTZOID));
	PG_RETURN_VOID();
}

/*
 * durable_wait_signal: the payload of the next signal of that name, NULL when
 * none comes in time.
 */
Datum
durable_wait_signal(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_wait_signal");
	CommandRequest request = {.kind = COMMAND_SIGNAL};
	Command    *command;

	request.name = ArgName(fcinfo, 0, "name");
	if (!PG_ARGISNULL(1))
		request.wake_at = from_now(PG_GETARG_DATUM(1), "timeout");
	command = ReplayFinished(a, ReplayCommand(a, &request));
	if (command->state == COMMAND_TIMED_OUT)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(command->result);
}
