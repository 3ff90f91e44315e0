/*-------------------------------------------------------------------------
 *
 * rehearse.c
 *	  Would a function do for a history?  A pass over it of which nothing
 *	  comes, and histories as JSON, to be taken elsewhere.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "engine/failure.h"
#include "engine/json.h"
#include "engine/rehearse.h"
#include "engine/sandbox.h"
#include "engine/settings.h"
#include "engine/settle.h"

/* What durable_export() writes and durable_check() reads. */
#define EXPORT_FORMAT	1

/* ------------------------------------------------------------------
 * Histories as JSON
 * ------------------------------------------------------------------
 */

static void
add_time(JsonbParseState **state, const char *key, TimestampTz time)
{
	if (time != 0)
		JsonObjectAdd(state, key, DatumToJsonb(TimestampTzGetDatum(time), false,
											   TIMESTAMPTZOID));
}

static void
add_number(JsonbParseState **state, const char *key, int64 number)
{
	if (number != 0)
		JsonObjectAddNumber(state, key, number);
}

/* The events of an export, while it is put together. */
typedef struct Events
{
	Jsonb	  **array;
	int			count;
	int			size;
} Events;

static void
export_row(const HistoryRow *row, void *arg)
{
	Events	   *events = arg;
	JsonbParseState *state;

	if (events->count == events->size)
	{
		events->size *= 2;
		events->array = repalloc_huge(events->array,
									  sizeof(Jsonb *) * events->size);
	}
	JsonObjectBegin(&state);
	JsonObjectAddNumber(&state, "seq", row->seq);
	JsonObjectAddText(&state, "event", row->event);
	add_number(&state, "position", row->position);
	JsonObjectAddText(&state, "name", row->name);
	JsonObjectAddText(&state, "step_id", row->step_id);
	JsonObjectAdd(&state, "args", row->args);
	JsonObjectAdd(&state, "result", row->result);
	JsonObjectAdd(&state, "error", row->error);
	JsonObjectAdd(&state, "data", row->data);
	add_number(&state, "attempt", row->attempt);
	add_time(&state, "wake_at", row->wake_at);
	add_time(&state, "started_at", row->started_at);
	add_time(&state, "at", row->at);
	events->array[events->count++] = JsonObjectEnd(&state);
}

/*
 * RehearseExport: all that a rehearsal needs of an instance.
 */
Jsonb *
RehearseExport(const InstanceRow *instance)
{
	Events		events = {.size = 16};
	MemoryContext cxt = CurrentMemoryContext;
	JsonbParseState *state;

	events.array = MemoryContextAlloc(cxt, sizeof(Jsonb *) * events.size);
	HistoryScan(instance->iid, cxt, export_row, &events);
	JsonObjectBegin(&state);
	JsonObjectAddNumber(&state, "format", EXPORT_FORMAT);
	JsonObjectAddText(&state, "id", instance->id);
	JsonObjectAddNumber(&state, "run", instance->run);
	JsonObjectAddText(&state, "workflow", instance->workflow);
	JsonObjectAddNumber(&state, "version", instance->version);
	JsonObjectAddText(&state, "hash", instance->hash);
	JsonObjectAddText(&state, "status", instance->status);
	JsonObjectAddText(&state, "sandbox", instance->sandbox);
	JsonObjectAddNumber(&state, "seed", instance->seed);
	JsonObjectAdd(&state, "events", JsonArray(events.array, events.count));
	return JsonObjectEnd(&state);
}

static void
refuse_export(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("history is not what durable_export() makes"),
			 errdetail_internal("%s", detail)));
}

static TimestampTz
read_time(Jsonb *event, const char *key)
{
	char	   *text = JsonGetText(event, key);

	if (text == NULL)
		return 0;
	return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in,
												   CStringGetDatum(text),
												   ObjectIdGetDatum(InvalidOid),
												   Int32GetDatum(-1)));
}

/*
 * read_number: one that fits its column.
 */
static int
read_number(Jsonb *event, const char *key)
{
	int64		number = JsonGetInt(event, key);

	if (number < PG_INT32_MIN || number > PG_INT32_MAX)
		refuse_export(psprintf("The %s of an event is out of range.", key));
	return (int) number;
}

static void
import_row(Activation *a, Jsonb *event, int seq)
{
	HistoryRow	row = {0};
	const char *flaw;

	if (!JB_ROOT_IS_OBJECT(event))
		refuse_export("An event is no object.");
	row.seq = read_number(event, "seq");
	row.event = JsonGetText(event, "event");
	if (row.seq != seq || row.event == NULL)
		refuse_export(psprintf("Event %d is not there.", seq));
	row.position = read_number(event, "position");
	row.name = JsonGetText(event, "name");
	row.step_id = JsonGetText(event, "step_id");
	row.args = JsonGet(event, "args");
	row.result = JsonGet(event, "result");
	row.error = JsonGet(event, "error");
	row.data = JsonGet(event, "data");
	row.attempt = read_number(event, "attempt");
	row.wake_at = read_time(event, "wake_at");
	row.started_at = read_time(event, "started_at");
	row.at = read_time(event, "at");
	if (row.at == 0 || TIMESTAMP_NOT_FINITE(row.at))
		refuse_export(psprintf("Event %d has no time.", seq));
	if ((flaw = ActivationFlaw(a, &row)) != NULL)
		refuse_export(psprintf("Event %d (%s) %s.", seq, row.event, flaw));
	if (seq == 1 && (row.args == NULL || row.data == NULL ||
					 !JB_ROOT_IS_OBJECT(row.data)))
		refuse_export("The first event has no input or no settings.");
	ActivationReadRow(&row, a);
}

static void
import_rows(Activation *a, Jsonb *events)
{
	int			count;

	if (events == NULL || !JB_ROOT_IS_ARRAY(events) ||
		JB_ROOT_IS_SCALAR(events) || JB_ROOT_COUNT(events) == 0)
		refuse_export("It has no events.");
	count = JB_ROOT_COUNT(events);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		import_row(a, JsonbValueToJsonb(getIthJsonbValueFromContainer(&events->root, i)),
				   i + 1);
	}
}

static Activation *
create(Transactions *tx, InstanceRow *instance)
{
	Activation *a = ActivationCreate(tx, 0);

	a->instance = instance;
	a->sandbox = SandboxModeFromText(instance->sandbox);
	a->rehearsal = true;
	return a;
}

/*
 * RehearseImport: an instance from what RehearseExport made, anywhere.
 */
Activation *
RehearseImport(Transactions *tx, Jsonb *export)
{
	InstanceRow *instance = palloc0(sizeof(InstanceRow));
	Activation *a;
	MemoryContext old;

	if (!JB_ROOT_IS_OBJECT(export) ||
		JsonGetInt(export, "format") != EXPORT_FORMAT)
		refuse_export(psprintf("It must be an object with \"format\": %d.",
							   EXPORT_FORMAT));
	instance->id = JsonGetText(export, "id");
	instance->workflow = JsonGetText(export, "workflow");
	instance->status = JsonGetText(export, "status");
	if (instance->id == NULL || instance->workflow == NULL ||
		instance->status == NULL)
		refuse_export("It does not say of which instance it is.");
	instance->run = read_number(export, "run");
	instance->seed = JsonGetInt(export, "seed");
	instance->sandbox = JsonGetText(export, "sandbox");
	a = create(tx, instance);
	ActivationForgetHistory(a);
	old = MemoryContextSwitchTo(a->history_cxt);
	import_rows(a, JsonGet(export, "events"));
	a->settings = SettingsOfOthers(a->settings);
	MemoryContextSwitchTo(old);
	return a;
}

/*
 * RehearseLoad: an instance from the tables.
 */
Activation *
RehearseLoad(Transactions *tx, InstanceRow *instance)
{
	Activation *a = create(tx, instance);

	ActivationReadHistory(a);
	return a;
}

/* ------------------------------------------------------------------
 * The pass
 * ------------------------------------------------------------------
 */

static void
judge(Rehearsal *rehearsal, const char *verdict, int position,
	  const char *reason)
{
	rehearsal->verdict = verdict;
	rehearsal->position = position;
	rehearsal->reason = pstrdup(reason);
}

/*
 * judge_end: is this how it has ended, too?
 */
static void
judge_end(Activation *a, Rehearsal *rehearsal)
{
	const End  *end = &a->end;
	Pass	   *pass = &a->pass;
	int			position = pass->position;
	bool		returned = pass->outcome == PASS_RETURNED;

	if (strcmp(end->event, "WorkflowCompleted") == 0 && !returned)
		judge(rehearsal, "differs", position, "the instance has completed");
	else if (strcmp(end->event, "WorkflowCompleted") == 0 &&
			 ((pass->result == NULL) != (end->result == NULL) ||
			  (pass->result != NULL && !JsonEqual(pass->result, end->result))))
		judge(rehearsal, "differs", position,
			  "the instance has completed with another result");
	else if (strcmp(end->event, "WorkflowFailed") == 0 &&
			 (pass->outcome != PASS_RAISED ||
			  !FailureIs(end->error, pass->error)))
		judge(rehearsal, "differs", position,
			  "the instance has failed with another error");
	else if (strcmp(end->event, "WorkflowContinuedAsNew") == 0 &&
			 pass->outcome != PASS_CONTINUED)
		judge(rehearsal, "differs", position,
			  "the instance has continued as new");
	else
		judge(rehearsal, "ok", position, "it has ended");
}

/*
 * judge_pass: of an instance that is under way.
 */
static void
judge_pass(Activation *a, Rehearsal *rehearsal)
{
	Pass	   *pass = &a->pass;

	switch (pass->outcome)
	{
		case PASS_BLOCKED:
			judge(rehearsal, "ok", pass->blocked_on->position,
				  psprintf(pass->blocked_on->recorded ?
						   "it waits for %s" : "it goes on with %s",
						   ReplayDescribe(pass->blocked_on)));
			break;
		case PASS_RETURNED:
			judge(rehearsal, "ok", pass->position, "it completes");
			break;
		case PASS_CONTINUED:
			judge(rehearsal, "ok", pass->position, "it continues as new");
			break;
		case PASS_CANCELLED:
			judge(rehearsal, "ok", pass->position, "it is cancelled");
			break;
		case PASS_RAISED:
			/* a recorded error that the body lets pass, or its cancel */
			if ((pass->raised && FailureIs(pass->raised->error, pass->error)) ||
				(a->cancel_after >= 0 &&
				 pass->error->sqlerrcode == ERRCODE_DURABLE_CANCELLED))
				judge(rehearsal, "ok", pass->position,
					  psprintf("it ends with %s", SettleReason(pass->error)));
			else
				judge(rehearsal, "fails", pass->position,
					  SettleReason(pass->error));
			break;
		case PASS_VERDICT:
		case PASS_OPEN:
			break;
	}
}

static void
run(Activation *a, DurableFunction *candidate, Rehearsal *rehearsal)
{
	MemoryContext cxt = CurrentMemoryContext;
	int			level = SettingsEnter(a->settings);

	a->function = candidate;
	MemoryContextSwitchTo(a->cxt);
	a->arguments = ArgumentsBind(candidate, a->input);
	MemoryContextSwitchTo(cxt);
	SettingsLeave(level);
	PassRun(a);
	MemoryContextSwitchTo(cxt);
	if (a->pass.outcome == PASS_VERDICT)
		judge(rehearsal, "diverges", a->pass.position + 1, a->pass.reason);
	else if (a->end.event != NULL)
		judge_end(a, rehearsal);
	else
		judge_pass(a, rehearsal);
}

/*
 * RehearseRun: what becomes of the instance if the candidate is its body.
 *
 * An error that is nobody's but the candidate's is the answer.
 */
void
RehearseRun(Activation *a, DurableFunction *candidate, Rehearsal *rehearsal)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Activation *volatile outer = CurrentActivation;
	DurableContext context = CurrentContext;
	ErrorData  *volatile error = NULL;

	if (a->closing != NULL && a->end.event == NULL)
	{
		judge(rehearsal, "ok", 0, "it is being undone: its body is not run any more");
		return;
	}
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		ContextSet(CONTEXT_ENGINE);
		run(a, candidate, rehearsal);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	ContextSet(context);
	CurrentActivation = outer;
	if (error != NULL && (ErrorIsCancel(error) || ErrorIsEnvironment(error)))
		ReThrowError(error);
	if (error != NULL)
		judge(rehearsal, "fails", 0, SettleReason(error));
}
