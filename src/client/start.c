/*-------------------------------------------------------------------------
 *
 * start.c
 *	  durable_start and durable_signal_start.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "engine/activity.h"
#include "engine/json.h"
#include "engine/start.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_start);
PG_FUNCTION_INFO_V1(durable_signal_start);

static OnConflict
read_on_conflict(FunctionCallInfo fcinfo, int i)
{
	char	   *text = ArgText(fcinfo, i, "on_conflict");

	if (strcmp(text, "error") == 0)
		return CONFLICT_ERROR;
	if (strcmp(text, "existing") == 0)
		return CONFLICT_EXISTING;
	if (strcmp(text, "restart_failed") == 0)
		return CONFLICT_RESTART_FAILED;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for on_conflict: \"%s\"", text),
			 errhint("It can be error, existing or restart_failed.")));
	return CONFLICT_ERROR;		/* keep compiler quiet */
}

static TimestampTz
read_start_at(FunctionCallInfo fcinfo, int i)
{
	TimestampTz start_at;

	if (PG_ARGISNULL(i))
		return 0;
	start_at = PG_GETARG_TIMESTAMPTZ(i);
	if (TIMESTAMP_NOT_FINITE(start_at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("start_at must not be infinite")));
	/* the zero of timestamps means that there is none */
	return start_at == 0 ? 1 : start_at;
}

static Jsonb *
read_tags(FunctionCallInfo fcinfo, int i)
{
	Jsonb	   *tags = ArgJsonb(fcinfo, i, "tags");

	if (!JB_ROOT_IS_OBJECT(tags))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tags must be a JSON object, not %s",
						JsonTypeName(tags)),
				 errhint("For example: {\"customer\": \"42\"}.")));
	return tags;
}

/*
 * durable_start: start an instance, which runs when this transaction has
 * committed.
 */
Datum
durable_start(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		"workflow", "input", "id", "on_conflict", "start_at", "priority",
		"tags", "timeout", NULL
	};
	StartRequest request = {0};

	/* what a body may not leave out either */
	request.workflow = ArgText(fcinfo, 0, "workflow");
	request.input = ArgJsonb(fcinfo, 1, "input");
	if (CurrentContext == CONTEXT_BODY)
		return ActivityInBody(fcinfo, "durable_start", names);
	ClientEnterToWrite("durable_start");
	request.id = ArgNameOrNull(fcinfo, 2, "id");
	request.on_conflict = read_on_conflict(fcinfo, 3);
	request.start_at = read_start_at(fcinfo, 4);
	ArgNotNull(fcinfo, 5, "priority");
	request.priority = PG_GETARG_INT32(5);
	request.tags = read_tags(fcinfo, 6);
	request.timeout = PG_ARGISNULL(7) ? NULL : PG_GETARG_INTERVAL_P(7);
	StartCheckTimeout(request.timeout);
	StartInstance(&request);
	PG_RETURN_TEXT_P(cstring_to_text(request.id));
}

/*
 * durable_signal_start: signal the running instance of an id; if there is
 * none, start one and signal it.
 */
Datum
durable_signal_start(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		"workflow", "input", "id", "name", "payload", NULL
	};
	StartRequest request = {0};
	char	   *name;
	Jsonb	   *payload;

	request.workflow = ArgText(fcinfo, 0, "workflow");
	request.input = ArgJsonb(fcinfo, 1, "input");
	request.id = ArgName(fcinfo, 2, "id");
	name = ArgName(fcinfo, 3, "name");
	payload = ArgJsonb(fcinfo, 4, "payload");
	if (CurrentContext == CONTEXT_BODY)
		return ActivityInBody(fcinfo, "durable_signal_start", names);
	ClientEnterToWrite("durable_signal_start");
	request.on_conflict = CONFLICT_RESTART;
	request.tags = JsonEmpty();
	StartInstance(&request);
	if (request.is_new)
		(void) InboxInsert(request.chain, "signal", name, payload);
	else
	{
		/* who may start an instance may not signal those of others */
		InstanceRow *instance = ClientFindInstance(request.id);

		InboxInsertRestart(request.chain, name, payload, request.restart);
		WakeupMessageTo(request.chain, instance->run_as);
	}
	PG_RETURN_TEXT_P(cstring_to_text(request.id));
}
