/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Primitives that wait: for a time, a signal, an event.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "arguments.h"
#include "engine/activity.h"
#include "engine/json.h"
#include "engine/replay.h"
#include "engine/step.h"
#include "engine/wait.h"

PG_FUNCTION_INFO_V1(durable_sleep);
PG_FUNCTION_INFO_V1(durable_sleep_until);
PG_FUNCTION_INFO_V1(durable_wait_signal);
PG_FUNCTION_INFO_V1(durable_subscribe);
PG_FUNCTION_INFO_V1(durable_wait_event);

/*
 * WaitCheckFinite: nobody waits for ever by mistake.
 */
TimestampTz
WaitCheckFinite(TimestampTz time, const char *parameter)
{
	if (TIMESTAMP_NOT_FINITE(time))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be infinite", parameter)));
	return time;
}

/*
 * WaitFromNow: the clock's time after an interval.  Asked for again on each
 * pass, but only the first answer counts: it is recorded.
 */
TimestampTz
WaitFromNow(Datum interval, const char *parameter)
{
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());

	return WaitCheckFinite(DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
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
	sleep_until(a, WaitFromNow(duration, "duration"),
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
	wake_at = WaitCheckFinite(PG_GETARG_TIMESTAMPTZ(0), "wake_at");
	/* the zero of timestamps means that there is none */
	sleep_until(a, wake_at == 0 ? 1 : wake_at,
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
		request.wake_at = WaitFromNow(PG_GETARG_DATUM(1), "timeout");
	command = ReplayFinished(a, ReplayCommand(a, &request));
	if (command->result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(command->result);
}

static void
check_mode(const char *mode)
{
	if (strcmp(mode, "broadcast") != 0 && strcmp(mode, "competing") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for mode: \"%s\"", mode),
				 errhint("It can be broadcast or competing.")));
}

/*
 * durable_subscribe: get events of a type from now on.
 */
Datum
durable_subscribe(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {"type", "mode", "filter", NULL};
	char	   *type = ArgName(fcinfo, 0, "type");
	char	   *mode = ArgText(fcinfo, 1, "mode");
	Jsonb	   *filter = ArgJsonbOrNull(fcinfo, 2);
	Activation *a = CurrentActivation;

	check_mode(mode);
	if (CurrentContext != CONTEXT_ACTIVITY ||
		!OidIsValid(a->running->function))
		return ActivityInBody(fcinfo, SUBSCRIBE_ACTIVITY, names);

	if (!SubscriptionInsert(a->instance->chain, type, mode, filter,
							a->instance->run_as))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("events of type \"%s\" have subscribers in the other mode", type),
				 errdetail("All subscribers of a type and a role are of one mode: broadcast or competing.")));
	a->subscribed = true;
	PG_RETURN_VOID();
}

/*
 * durable_wait_event: the next event of a type, NULL when none comes in time.
 */
Datum
durable_wait_event(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_wait_event");
	CommandRequest request = {.kind = COMMAND_EVENT};
	Command    *command;
	JsonbParseState *args;

	request.name = ArgName(fcinfo, 0, "type");
	if (!PG_ARGISNULL(1))
		request.wake_at = WaitFromNow(PG_GETARG_DATUM(1), "timeout");
	if (!PG_ARGISNULL(2))
	{
		JsonObjectBegin(&args);
		JsonObjectAdd(&args, "filter", PG_GETARG_JSONB_P(2));
		request.args = JsonObjectEnd(&args);
	}
	command = ReplayFinished(a, ReplayCommand(a, &request));
	if (command->result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(command->result);
}
