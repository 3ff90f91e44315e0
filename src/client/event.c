/*-------------------------------------------------------------------------
 *
 * event.c
 *	  durable_publish: events for all who have subscribed to their type.
 *
 * An event is kept as CloudEvents has it in JSON: id, source, type, time,
 * subject, extensions, data.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "engine/activity.h"
#include "engine/binding.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/start.h"
#include "engine/transaction.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_publish);

/*
 * add_extensions: attributes of the publisher's own, which must not pretend to
 * be others.
 */
static void
add_extensions(JsonbParseState **state, Jsonb *attributes)
{
	static const char *const known[] = {
		"specversion", "id", "source", "type", "time", "subject", "data", NULL
	};
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;

	if (!JB_ROOT_IS_OBJECT(attributes))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attributes must be a JSON object, not %s",
						JsonTypeName(attributes))));
	for (int i = 0; known[i] != NULL; i++)
	{
		if (JsonGet(attributes, known[i]) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("attribute \"%s\" has a parameter of its own", known[i])));
	}
	it = JsonbIteratorInit(&attributes->root);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY || token == WJB_VALUE)
			pushJsonbValue(state, token, &value);
	}
}

static TimestampTz
read_time(FunctionCallInfo fcinfo, int i)
{
	TimestampTz time;

	if (PG_ARGISNULL(i))
		return GetCurrentTimestamp();
	time = PG_GETARG_TIMESTAMPTZ(i);
	if (TIMESTAMP_NOT_FINITE(time))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("event_time must not be infinite")));
	return time;
}

static char *
time_as_text(TimestampTz time)
{
	JsonbValue	value;
	Jsonb	   *json = DatumToJsonb(TimestampTzGetDatum(time), false,
									TIMESTAMPTZOID);

	(void) JsonbExtractScalar(&json->root, &value);
	return pnstrdup(value.val.string.val, value.val.string.len);
}

static Jsonb *
make_event(FunctionCallInfo fcinfo, const char *type, const char *source,
		   const char *id)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAddText(&state, "specversion", "1.0");
	JsonObjectAddText(&state, "id", id);
	JsonObjectAddText(&state, "source", source);
	JsonObjectAddText(&state, "type", type);
	JsonObjectAddText(&state, "time",
					  time_as_text(read_time(fcinfo, 5)));
	JsonObjectAddText(&state, "subject", ArgNameOrNull(fcinfo, 4, "subject"));
	if (!PG_ARGISNULL(6))
		add_extensions(&state, PG_GETARG_JSONB_P(6));
	JsonObjectAdd(&state, "data", ArgJsonb(fcinfo, 1, "data"));
	return JsonObjectEnd(&state);
}

/*
 * leave_for_one: in the inbox that competing subscribers share.
 */
static void
leave_for_one(const char *type, Jsonb *event)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAddNumber(&state, "publisher", GetUserId());
	JsonObjectAdd(&state, "event", event);
	(void) InboxInsert(0, "event", type, JsonObjectEnd(&state));
	WakeupMessage(0);
}

static void
start(void *arg)
{
	StartInstance(arg);
}

/*
 * start_workflow: as who registered it, with the event as its input.
 *
 * If it cannot be started, that is not the publisher's affair: neither that
 * it may not run the function, nor that there is none.
 */
static void
start_workflow(const char *name, Jsonb *event)
{
	StartRequest request = {
		.workflow = name, .input = event, .as_owner = true
	};
	ErrorData  *error;

	request.tags = JsonEmpty();
	error = TransactionTry(start, &request);
	if (error == NULL)
		return;
	if (ErrorIsEnvironment(error))
		ReThrowError(error);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("durable workflow \"%s\" was not started by an event: %s",
					name, error->message)));
}

static void
start_workflows(const char *type, Jsonb *event)
{
	char	  **names;
	int			count = EventStarts(type, event, GetUserId(), &names);

	for (int i = 0; i < count; i++)
		start_workflow(names[i], event);
}

/*
 * durable_publish: the id of the event, NULL if one of that id was published
 * before.
 */
Datum
durable_publish(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		"type", "data", "source", "event_id", "subject", "event_time",
		"attributes", NULL
	};
	char	   *type = ArgName(fcinfo, 0, "type");
	char	   *source = ArgName(fcinfo, 2, "source");
	char	   *id = ArgNameOrNull(fcinfo, 3, "event_id");
	Jsonb	   *event;
	int64	   *chains;
	int			count;

	if (CurrentContext == CONTEXT_BODY)
		return ActivityInBody(fcinfo, "durable_publish", names);
	ClientEnterToWrite("durable_publish");
	if (id != NULL && !EventUseId(GetUserId(), source, id))
		PG_RETURN_NULL();
	if (id == NULL)
		id = DatumGetCString(DirectFunctionCall1(uuid_out,
												 DirectFunctionCall1(gen_random_uuid, (Datum) 0)));
	event = make_event(fcinfo, type, source, id);
	count = EventFanOut(type, event, GetUserId(), &chains);
	for (int i = 0; i < count; i++)
		WakeupMessage(chains[i]);
	if (EventIsCompetedFor(type, event, GetUserId()))
		leave_for_one(type, event);
	start_workflows(type, event);
	PG_RETURN_TEXT_P(cstring_to_text(id));
}
