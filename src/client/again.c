/*-------------------------------------------------------------------------
 *
 * again.c
 *	  From the history of a run: go on with one that failed, or start another
 *	  one from the middle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "engine/child.h"
#include "engine/json.h"
#include "engine/start.h"
#include "engine/step.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_retry);
PG_FUNCTION_INFO_V1(durable_fork);

/* For whom subscriptions are made again, from the history of a run. */
typedef struct Subscriber
{
	const InstanceRow *instance;
	int			through;		/* the last position that counts */
} Subscriber;

static void
subscribe(const Subscriber *who, const char *type, const char *mode,
		  Jsonb *filter)
{
	const InstanceRow *instance = who->instance;

	if (!SubscriptionInsert(instance->chain, type, mode, filter,
							instance->run_as))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("events of type \"%s\" have subscribers in the other mode", type),
				 errdetail("Instance \"%s\" had subscribed in mode %s.",
						   instance->id, mode)));
}

/*
 * subscribe_by: by a step, or by waiting without having subscribed.
 */
static void
subscribe_by(const HistoryRow *row, void *arg)
{
	const Subscriber *who = arg;

	if (row->position == 0 || row->position > who->through)
		return;
	if (strcmp(row->event, "ActivityCompleted") == 0 &&
		strcmp(row->name, SUBSCRIBE_ACTIVITY) == 0)
		subscribe(who, JsonGetText(row->args, "type"),
				  JsonGetText(row->args, "mode"), JsonGet(row->args, "filter"));
	else if (strcmp(row->event, "EventAwaited") == 0 &&
			 !SubscriptionExists(who->instance->chain, row->name))
		subscribe(who, row->name, "broadcast", NULL);
}

/*
 * subscribe_again: what a run had subscribed to up to a position, and before
 * that the runs that it continued, of which there may be very many.
 */
static void
subscribe_again(const InstanceRow *instance, const InstanceRow *run,
				int through)
{
	Subscriber	who = {.instance = instance, .through = PG_INT32_MAX};
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "durable history of a run",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	InstanceRow *first = InstanceLoad(run->chain);
	int			number = first ? first->run : run->run;

	for (; number < run->run; number++)
	{
		InstanceRow *before;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(cxt);
		before = InstanceFindRun(run->id, number);
		if (before != NULL)
			HistoryScan(before->iid, cxt, subscribe_by, &who);
	}
	MemoryContextReset(cxt);
	who.through = through;
	HistoryScan(run->iid, cxt, subscribe_by, &who);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

/*
 * durable_retry: let an instance that failed go on from the step whose error
 * ended it.
 */
Datum
durable_retry(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *definition = ClientDefinition(fcinfo, 1);
	InstanceRow *instance;
	Outcome		outcome;
	HistoryRow	row = {.event = "WorkflowRetried"};
	int			position;

	ClientEnterToWrite("durable_retry");
	/* a child that has ended meanwhile must be seen */
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("durable_retry() needs isolation level READ COMMITTED"),
				 errhint("Begin the transaction with that level.")));
	instance = ClientFindInstance(id);
	if (!instance->ended || strcmp(instance->status, "failed") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" has not failed: it is %s", id,
						instance->status),
				 errhint("Only what has failed can be retried.")));
	InstanceOutcome(instance->iid, &outcome);
	if (JsonGetText(outcome.data, "compensation") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" cannot be retried: its steps were undone", id),
				 errhint("Start it anew, for example with on_conflict => 'restart_failed'.")));
	row.seq = HistoryNextSeq(instance->iid);
	row.at = GetCurrentTimestamp();
	row.data = outcome.data;
	position = JsonGetInt(outcome.data, "position");
	/* the body failed, not a step: it is what was mended */
	if (definition == NULL && position == 0)
		definition = "current";
	/* what it waits for may be over: a deadline must not end it again at once */
	if (!InstanceReopen(instance->iid, outcome.seq, 0, definition))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" is being retried by another session", id)));
	HistoryAppend(instance->iid, &row);
	/* its end has ended its subscriptions */
	subscribe_again(instance, instance, position != 0 ? position : PG_INT32_MAX);
	/* what comes after the step is not there any more, its children neither */
	ChildrenTellAgain(instance->iid, position != 0 ? position : PG_INT32_MAX);
	ReadyInsert(instance->iid);
	WakeupReady(instance->run_as);
	PG_RETURN_VOID();
}

/* What a fork needs of the history it is made from. */
typedef struct Original
{
	int			through;
	Jsonb	   *input;
	Jsonb	   *settings;
	int			last_position;
	Bitmapset  *open_children;	/* their positions */
	int			cancel_after;	/* as in Activation; -1: no cancel */
	int			before_cancel;	/* the last position that it had no effect on */
} Original;

/*
 * look_at_cancel: a copy is not cancelled, so it cannot have what came of that.
 */
static void
look_at_cancel(const HistoryRow *row, Original *original)
{
	int			position = JsonGetInt(row->data, "position");

	if (strcmp(row->event, "WorkflowCancelRequested") == 0)
	{
		int			in = JsonGetInt(row->data, "in");

		original->cancel_after = JsonGetInt(row->data, "after");
		original->before_cancel = in != 0 ? in - 1 : original->cancel_after;
	}
	else if (strcmp(row->event, "WorkflowRetried") == 0 && position != 0 &&
			 original->cancel_after >= position)
		original->cancel_after = -1;
}

static void
look_at_row(const HistoryRow *row, void *arg)
{
	Original   *original = arg;

	if (row->seq == 1)
	{
		original->input = row->args;
		original->settings = row->data;
	}
	original->last_position = Max(original->last_position, row->position);
	if (row->position == 0)
		look_at_cancel(row, original);
	if (row->position == 0 || row->position > original->through)
		return;
	if (strcmp(row->event, "ChildStarted") == 0 ||
		strcmp(row->event, "ActivityScheduled") == 0)
		original->open_children = bms_add_member(original->open_children,
												 row->position);
	else
		original->open_children = bms_del_member(original->open_children,
												 row->position);
}

/*
 * durable_fork: a new instance with the history of another up to a position.
 */
Datum
durable_fork(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *new_id = ArgNameOrNull(fcinfo, 2, "new_id");
	char	   *definition = ClientDefinition(fcinfo, 3);
	InstanceRow *instance;
	Original	original = {.cancel_after = -1};
	StartRequest request = {0};
	HistoryRow	row = {.event = "WorkflowForked"};
	JsonbParseState *data;

	ArgNotNull(fcinfo, 1, "at_position");
	original.through = PG_GETARG_INT32(1);
	ClientEnterToWrite("durable_fork");
	instance = ClientFindInstance(id);
	if (instance->run_as != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("instance \"%s\" runs as role \"%s\"", id,
						instance->run_as_name),
				 errhint("Fork it as that role.")));
	HistoryScan(instance->iid, CurrentMemoryContext, look_at_row, &original);
	if (original.through < 0 || original.through > original.last_position)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("instance \"%s\" has no position %d", id,
						original.through),
				 errdetail("Its last one is %d.", original.last_position)));
	if (original.cancel_after >= 0 && original.through > original.before_cancel)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" was cancelled behind position %d", id,
						original.before_cancel),
				 errhint("Fork at that position or an earlier one.")));
	if (!bms_is_empty(original.open_children))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("what was begun at position %d has not ended",
						bms_next_member(original.open_children, -1)),
				 errhint("Fork at an earlier position.")));

	request.workflow = instance->workflow;
	request.input = original.input;
	request.id = new_id;
	request.priority = instance->priority;
	request.tags = instance->tags;
	request.settings = original.settings;
	if (definition == NULL || strcmp(definition, "pinned") == 0)
		request.version = instance->version;
	StartInstance(&request);
	(void) HistoryCopy(instance->iid, request.iid, original.through);
	subscribe_again(InstanceLoad(request.iid), instance, original.through);
	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "from", id);
	JsonObjectAddNumber(&data, "run", instance->run);
	JsonObjectAddNumber(&data, "through", original.through);
	JsonObjectAddNumber(&data, "seed", instance->seed);
	row.data = JsonObjectEnd(&data);
	row.seq = HistoryNextSeq(request.iid);
	row.at = GetCurrentTimestamp();
	HistoryAppend(request.iid, &row);
	PG_RETURN_TEXT_P(cstring_to_text(request.id));
}
