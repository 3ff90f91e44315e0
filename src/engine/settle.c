/*-------------------------------------------------------------------------
 *
 * settle.c
 *	  How an activation ends: the instance waits, is held, or has ended.
 *
 * Each way gives up the row of ready by naming our lease.  If it is not ours
 * any more, another driver has taken the instance over, and all that this one
 * did since its last commit is undone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "engine/child.h"
#include "engine/compensate.h"
#include "engine/definition.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/pin.h"
#include "engine/remote.h"
#include "engine/restart.h"
#include "engine/settle.h"
#include "engine/settings.h"
#include "engine/start.h"
#include "runtime/wakeup.h"

/* Passes lost to the environment before the instance is held. */
#define MAX_BODY_FAILURES	5

/* How soon "later" is: a client's transaction is mostly short. */
#define LATER	(200 * INT64CONST(1000))

/*
 * SettleCommit: what was done so far is so for good.
 */
void
SettleCommit(Activation *a)
{
	a->phase = PHASE_COMMIT;
	TransactionCommit(a->tx);
	a->phase = PHASE_ENGINE;
	ActivationCommitted(a);
}

/*
 * give_up_ready: the instance is not to be run for now.
 *
 * wake_at is when it is, 0 for never; its timer goes first (see queue.c).
 */
static void
give_up_ready(Activation *a, TimestampTz wake_at)
{
	InstanceRow *instance = a->instance;

	if (wake_at != 0)
	{
		TimerSet(instance->iid, instance->run_as, wake_at);
		WakeupTimer(wake_at);
	}
	else if (instance->wake_at != 0)
		TimerClear(instance->iid);
	if (!ReadyDelete(instance->iid, a->lease))
		ActivationLost(a);
}

/*
 * store_state: for those who ask from outside.
 */
static void
store_state(Activation *a)
{
	JsonbParseState *queries;
	ListCell   *lc;

	if (!a->pass.has_state)
		return;
	JsonObjectBegin(&queries);
	foreach(lc, a->pass.handlers)
	{
		Handler    *handler = lfirst(lc);

		if (handler->kind == HANDLER_QUERY)
			JsonObjectAddText(&queries, handler->name, handler->function);
	}
	StateStore(a->instance->iid, a->pass.state, JsonObjectEnd(&queries));
}

/*
 * and_handled: signals that have a handler are received at every wait.
 */
static List *
and_handled(Activation *a, List *awaits)
{
	ListCell   *lc;

	foreach(lc, a->pass.handlers)
	{
		Handler    *handler = lfirst(lc);

		if (handler->kind == HANDLER_SIGNAL)
			awaits = lappend(awaits, psprintf("signal:%s", handler->name));
	}
	return awaits;
}

/*
 * look_again: a message that was committed before our commit is seen now.  One
 * that is committed later finds the instance waiting.
 */
static void
look_again(Activation *a)
{
	InstanceRow *instance = a->instance;

	if (MessagesHas(instance->iid) ||
		(a->subscribed && MessagesHasCompeting(instance->iid)))
	{
		ReadyInsert(instance->iid);
		WakeupReady(instance->run_as);
		SettleCommit(a);
	}
}

/*
 * SettleWait: until a message of the list comes, or it is time.
 */
void
SettleWait(Activation *a, const char *status, List *awaits, Jsonb *filter,
		   TimestampTz wake_at)
{
	InstanceRow *instance = a->instance;

	if (instance->deadline != 0 && a->closing == NULL &&
		(wake_at == 0 || instance->deadline < wake_at))
		wake_at = instance->deadline;
	store_state(a);
	give_up_ready(a, wake_at);
	InstanceWait(instance->iid, status, and_handled(a, awaits), filter,
				 a->began_at);
	SettleCommit(a);
	look_again(a);
}

static void
hold(Activation *a, const char *reason, bool mend)
{
	give_up_ready(a, 0);
	InstanceHold(a->instance->iid, reason, mend);
	SettleCommit(a);
	ereport(LOG,
			(errmsg("durable instance \"%s\" is held", a->instance->id),
			 errdetail_internal("%s", reason)));
	/*
	 * It may be that nobody will mend it: it is to be terminated.  If that is
	 * what failed, the next sweep is soon enough.
	 */
	if (!a->instance->suspended)
		look_again(a);
}

/*
 * SettleHold: until somebody has seen to it.
 */
void
SettleHold(Activation *a, const char *reason)
{
	hold(a, reason, false);
}

/*
 * SettleHoldToMend: the same when it is the workflow's code that has to be
 * seen to: it goes on with what that is then.
 */
void
SettleHoldToMend(Activation *a, const char *reason)
{
	hold(a, reason, true);
}

/*
 * SettleReason: an error as the reason of a hold.
 */
char *
SettleReason(const ErrorData *error)
{
	return psprintf("%s: %s%s%s%s%s", unpack_sql_state(error->sqlerrcode),
					error->message,
					error->detail ? ". " : error->hint ? "." : "",
					error->detail ? error->detail : "",
					error->hint ? " " : "", error->hint ? error->hint : "");
}

/*
 * SettleHoldForError: hold, with the error as the reason.
 */
void
SettleHoldForError(Activation *a, const ErrorData *error)
{
	SettleHold(a, SettleReason(error));
}

/*
 * SettlePostpone: the environment failed, not the workflow.  Try again later,
 * and hold it when that does not help.
 */
void
SettlePostpone(Activation *a, const ErrorData *error)
{
	int			failures = a->instance->body_failures + 1;
	TimestampTz wake_at;

	if (failures > MAX_BODY_FAILURES)
	{
		SettleHold(a, psprintf("%s: %s", unpack_sql_state(error->sqlerrcode),
							   error->message));
		return;
	}
	wake_at = ActivationStamp(a) + (USECS_PER_SEC << (failures - 1));
	give_up_ready(a, wake_at);
	InstanceSetBodyFailures(a->instance->iid, failures);
	SettleCommit(a);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("durable instance \"%s\" will be tried again: %s",
					a->instance->id, error->message)));
}

/*
 * SettleLater: look again soon.  What it waits for, it still does.
 */
void
SettleLater(Activation *a)
{
	give_up_ready(a, GetCurrentTimestamp() + LATER);
	SettleCommit(a);
}

/*
 * SettleStop: it was paused, or its workflow, or everything: let go, and let
 * resuming bring it back.
 */
void
SettleStop(Activation *a)
{
	InstanceRow *instance = a->instance;

	store_state(a);
	if (instance->parked && !instance->suspended)
		ControlPark(instance->iid);
	/* its timer stays: deadlines are kept */
	if (!ReadyDelete(instance->iid, a->lease))
		ActivationLost(a);
	/* what it spawned since it was paused */
	if (instance->suspended)
		InstancePauseBeside(instance->iid);
	SettleCommit(a);

	/* resumed while we did that: nobody else would see it */
	if (instance->suspended)
		ReadyInsert(instance->iid);
	else
		ControlUnparkOne(instance->iid);
	WakeupReady(instance->run_as);
	SettleCommit(a);
}

/*
 * drop_pins: what the run needed, unless others do.  Looked at after our end
 * was committed: the last of several that end at once sees that it is.
 */
static void
drop_pins(Activation *a, List *pins)
{
	if (pins == NIL)
		return;
	PinDropUnused(pins);
	SettleCommit(a);
}

/*
 * SettleEnd: the run is over.  The row says how.
 */
void
SettleEnd(Activation *a, const char *status, HistoryRow *row)
{
	InstanceRow *instance = a->instance;
	List	   *pins = instance->pinned ? PinRelease(instance->iid) : NIL;

	/* in the order of locks, and a client may still have been faster */
	RemoteWithdraw(a);
	ChildrenClose(a);
	ActivationRecord(a, NULL, row);
	store_state(a);
	give_up_ready(a, 0);
	InstanceEnd(instance->iid, status, row->seq, a->began_at, row->at);
	ChildTellParent(instance, status, row->result, row->error,
					RemoteWasAttempted(a));
	if (a->subscribed)
		SubscriptionDelete(instance->chain);
	/* one that was made to end leaves nothing behind */
	RestartOrDrop(instance->iid, strcmp(status, "completed") == 0);
	WakeupEnded(instance->chain);
	SettleCommit(a);
	drop_pins(a, pins);
}

/*
 * SettleEndByRequest: the same without the body having a say.
 */
void
SettleEndByRequest(Activation *a, const char *status, const char *event,
				   const char *sqlstate, const char *message,
				   const char *detail)
{
	HistoryRow	row = {.event = event};

	row.error = FailureMake(sqlstate, message, detail);
	SettleEnd(a, status, &row);
}

/*
 * SettleContinue: this run is over, and the next one of the id begins, in one
 * transaction.  Messages and subscriptions are the chain's and need no move.
 */
void
SettleContinue(Activation *a)
{
	InstanceRow *instance = a->instance;
	InstanceRow *next = palloc(sizeof(InstanceRow));
	HistoryRow	row = {.event = "WorkflowContinuedAsNew"};
	HistoryRow	carried = {.event = "CompensationsCarried", .seq = 2};
	WorkflowRow *workflow;
	List	   *pins = instance->pinned ? PinRelease(instance->iid) : NIL;
	int			level = SettingsEnter(a->settings);

	a->phase = PHASE_RESOLVE;
	a->running = NULL;
	workflow = StartFindWorkflow(instance->workflow);
	DefinitionCheckSame(workflow, instance->version);
	workflow = DefinitionRefresh(workflow);
	row.args = StartFreezeInput(workflow, a->pass.result);
	a->phase = PHASE_ENGINE;
	SettingsLeave(level);

	ActivationRecord(a, NULL, &row);
	store_state(a);
	give_up_ready(a, 0);
	InstanceEnd(instance->iid, "continued_as_new", row.seq, a->began_at, row.at);
	*next = *instance;
	next->run++;
	next->version = workflow->version;
	next->iid = StorageNextNumber("iid_seq");
	next->seed = StartNewSeed();
	if (!InstanceInsert(next, row.args, a->settings_json, 0))
		elog(ERROR, "run %d of instance \"%s\" exists already", next->run,
			 next->id);
	carried.data = CompensationsToCarry(a);
	carried.at = row.at;
	if (carried.data != NULL)
		HistoryAppend(next->iid, &carried);
	/* a pause that came while this run went on is the next one's */
	if (InstanceLoad(instance->iid)->suspended)
	{
		ReadyWithdraw(next->iid);
		(void) InstancePause(next->iid);
	}
	WakeupReady(next->run_as);
	SettleCommit(a);
	drop_pins(a, pins);
}
