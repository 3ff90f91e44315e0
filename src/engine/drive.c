/*-------------------------------------------------------------------------
 *
 * drive.c
 *	  One activation: an instance is run until it waits or ends.
 *
 * A turn is a pass over the body and what it asks for.  An activity is run
 * after its pass, in a transaction of its own together with its history row;
 * the next pass comes before the commit, so that the end of the workflow, or
 * its next wait, is in the same commit.
 *
 * An error ends the turn: the transaction is aborted, and what the driver was
 * doing (the phase) tells what the error means.
 *
 * What ends an activation is in settle.c, what a body waits for in unblock.c,
 * what reaches it from outside in deliver.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "engine/compensate.h"
#include "engine/deliver.h"
#include "engine/drive.h"
#include "engine/failure.h"
#include "engine/internal.h"
#include "engine/json.h"
#include "engine/pin.h"
#include "engine/replay.h"
#include "engine/sandbox.h"
#include "engine/settings.h"
#include "engine/settle.h"
#include "engine/step.h"
#include "engine/unblock.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "runtime/wakeup.h"

/* ------------------------------------------------------------------
 * What the pass has come to.  True: there is more to do now.
 * ------------------------------------------------------------------
 */

/*
 * end_by_return: what came in meanwhile still has its effect on the state.
 */
static bool
end_by_return(Activation *a)
{
	HistoryRow	row = {.event = "WorkflowCompleted", .result = a->pass.result};

	UnblockFlush(a, NULL);
	if (!DeliverMessages(a, NULL))
		return false;
	SettleEnd(a, "completed", &row);
	return false;
}

/*
 * end_by_error: the body raised one.  What is not the workflow's fault does not
 * fail it; an activity's error that it let pass does, whatever it is.
 */
static bool
end_by_error(Activation *a)
{
	Pass	   *pass = &a->pass;
	ErrorData  *error = pass->error;
	bool		own = !(pass->raised && FailureIs(pass->raised->error, error));
	HistoryRow	row = {.event = "WorkflowFailed"};
	JsonbParseState *data;

	/* a cancel with force met the body, not an activity */
	if (own && ErrorIsCancel(error) && DeliverHasRequest(a))
	{
		a->look = true;
		return true;
	}
	if (own && ErrorIsEnvironment(error))
	{
		SettlePostpone(a, error);
		return false;
	}
	if (own && ErrorIsGap(error))
	{
		SettleHoldToMend(a, SettleReason(error));
		return false;
	}
	UnblockFlush(a, NULL);
	row.error = FailureFromError(error);
	if (a->cancel_after >= 0 &&
		error->sqlerrcode == ERRCODE_DURABLE_CANCELLED)
	{
		row.event = "WorkflowCancelled";
		return CompensateOrEnd(a, "cancelled", &row);
	}
	/* from where durable_retry() goes on */
	JsonObjectBegin(&data);
	JsonObjectAddNumber(&data, "position", own ? 0 : pass->raised->position);
	row.data = JsonObjectEnd(&data);
	return CompensateOrEnd(a, "failed", &row);
}

/*
 * time_out: the run has lasted too long.  The body has no say.
 */
static bool
time_out(Activation *a)
{
	HistoryRow	row = {.event = "WorkflowTimedOut"};

	ActivationForget(a);
	row.error = FailureMake("WF003", "the workflow timed out", NULL);
	return CompensateOrEnd(a, "timed_out", &row);
}

/*
 * is_late: is its time over?
 */
static bool
is_late(const Activation *a)
{
	return a->instance->deadline != 0 &&
		a->instance->deadline <= GetCurrentTimestamp();
}

/*
 * end_stubborn: the body catches its cancel in a loop.
 */
static bool
end_stubborn(Activation *a)
{
	HistoryRow	row = {.event = "WorkflowCancelled"};

	UnblockFlush(a, NULL);
	row.error = FailureMake("WF002", "the workflow was cancelled",
							"Its body caught that in a loop.");
	return CompensateOrEnd(a, "cancelled", &row);
}

static bool
go_on(Activation *a)
{
	Command    *command = a->pass.blocked_on;

	/* steps in place may have taken the time */
	if (is_late(a))
		return time_out(a);
	switch (DeliverRequests(a, command))
	{
		case DELIVERED:
			return true;
		case DELIVERY_ENDS:
			return false;
		case NOTHING_DELIVERED:
			break;
	}
	if (!DeliverMessages(a, command))
		return false;
	return UnblockCommand(a, command);
}

static bool
act_on_outcome(Activation *a)
{
	Pass	   *pass = &a->pass;

	switch (pass->outcome)
	{
		case PASS_BLOCKED:
			return go_on(a);
		case PASS_VERDICT:
			SettleHoldToMend(a, pass->reason);
			return false;
		case PASS_RAISED:
			return end_by_error(a);
		case PASS_RETURNED:
			return end_by_return(a);
		case PASS_CONTINUED:
			/* what was added last is to be carried over, too */
			UnblockFlush(a, NULL);
			SettleContinue(a);
			return false;
		case PASS_CANCELLED:
			return end_stubborn(a);
		case PASS_OPEN:
			break;
	}
	elog(ERROR, "a pass came to no outcome");
}

/* ------------------------------------------------------------------
 * Begin
 * ------------------------------------------------------------------
 */

/*
 * describe_workflow: the function and its arguments, as they are to be now.
 * False: the instance is held.
 */
static bool
describe_workflow(Activation *a)
{
	MemoryContext old = MemoryContextSwitchTo(a->cxt);
	uint64		generation = FunctionGeneration;
	int			level = SettingsEnter(a->settings);
	bool		found = true;

	a->phase = PHASE_RESOLVE;
	a->running = NULL;
	if (InternalIs(a->instance->workflow))
		InternalDescribe(a);
	else if ((found = PinChooseWorkflow(a)))
	{
		/* CHECKs of domains are user's code that no pass rolls back */
		XactReadOnly = true;
		a->arguments = ArgumentsBind(a->function, a->input);
		XactReadOnly = false;
	}
	a->function_generation = generation;
	a->phase = PHASE_ENGINE;
	SettingsLeave(level);
	MemoryContextSwitchTo(old);
	return found;
}

/*
 * role_is_same: does the role's OID still mean the role it meant at the start?
 * After a restore into another cluster it may not.
 */
static bool
role_is_same(Activation *a)
{
	InstanceRow *instance = a->instance;
	char	   *name = GetUserNameFromId(instance->run_as, true);

	if (name != NULL && strcmp(name, instance->run_as_name) == 0)
		return true;
	SettleHold(a, psprintf("WF005: role %u was \"%s\" when the instance was started and is \"%s\" now",
					 instance->run_as, instance->run_as_name,
					 name ? name : "none"));
	return false;
}

/*
 * is_to_rest: it is suspended.  One that is to be terminated is not run, but
 * does not rest either.
 */
static bool
is_to_rest(Activation *a)
{
	Jsonb	   *request;
	const char *kind = NULL;

	if (!a->instance->suspended && !a->instance->parked)
		return false;
	if (a->instance->requested)
		kind = InboxControl(a->instance->chain, &request);
	return kind == NULL || strcmp(kind, "terminate") != 0;
}

static bool
load(Activation *a, int64 iid)
{
	MemoryContext old = MemoryContextSwitchTo(a->cxt);
	uint64		generation;

	ControlWatch();
	generation = ControlGeneration;
	a->instance = InstanceLoad(iid);
	MemoryContextSwitchTo(old);
	if (a->instance == NULL || a->instance->ended)
	{
		(void) ReadyDelete(iid, a->lease);
		SettleCommit(a);
		return false;
	}
	if (is_to_rest(a))
	{
		SettleStop(a);
		return false;
	}
	a->control_seen = generation;
	a->look = a->instance->requested;
	a->sandbox = SandboxModeFromText(a->instance->sandbox);
	ActivationReadHistory(a);
	return !DeliverInsteadOfPass(a) && role_is_same(a);
}

/*
 * turn: one pass and what it asks for.
 */
static bool
turn(Activation *a, int64 iid)
{
	CHECK_FOR_INTERRUPTS();
	if (a->instance == NULL && !load(a, iid))
		return false;
	if (a->closing != NULL)
		return CompensateNext(a);
	if (is_late(a))
		return time_out(a);
	AcceptInvalidationMessages();
	if (a->arguments == NULL || a->function_generation != FunctionGeneration)
	{
		/* a step that dropped the workflow is done all the same */
		if (a->dirty)
			SettleCommit(a);
		if (!describe_workflow(a))
			return false;
		/* others wait for a copy that we have made */
		if (a->dirty)
			SettleCommit(a);
	}
	if (a->dirty && PassIsLinear(a))
		SettleCommit(a);
	/* the commit has let in news: a linear pass could not be taken back */
	if (PassIsLinear(a) && a->function_generation != FunctionGeneration &&
		!FunctionIsSame(a->function))
		return true;
	PassRun(a);
	/* replaced before it was called: this was another body's pass */
	if (a->function_generation != FunctionGeneration && !a->pass.linear &&
		!FunctionIsSame(a->function))
		return true;
	return act_on_outcome(a);
}

/* ------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------
 */

/*
 * abandon: whatever happens to the instance is another driver's affair.
 *
 * If the row of ready is ours all the same, the other one only finished its
 * step: then the instance can be taken by anyone, who will see that.  If
 * nobody's, the other one may have begun to wait without knowing of steps that
 * we committed: whoever takes it will see these.
 */
static void
abandon(Activation *a, int64 iid)
{
	if (!ReadyRelease(iid, a->lease))
		ReadyInsert(iid);
	SettleCommit(a);
	ereport(LOG,
			(errmsg("durable instance \"%s\" was taken over by another driver",
					a->instance->id)));
}

/*
 * is_fence_error: has another driver written our next row?  User's code can
 * raise an error that looks the same.
 */
static bool
is_fence_error(const ErrorData *error, Phase phase)
{
	return (phase == PHASE_ENGINE || phase == PHASE_COMMIT) &&
		HistoryIsFenceError(error);
}

/*
 * reload: rows of the history are gone with the transaction: read it again,
 * and find there, or make anew, the step whose attempt failed.
 */
static Command *
reload(Activation *a, Command *failed)
{
	Command		known;
	CommandRequest request = {.kind = COMMAND_ACTIVITY};

	if (failed != NULL)
	{
		known = *failed;
		request.name = pstrdup(failed->name);
		request.step_id = pstrdup(failed->step_id);
		request.args = failed->args ? JsonCopy(failed->args) : NULL;
		request.retry = failed->retry ? JsonCopy(failed->retry) : NULL;
		known.heartbeat = failed->heartbeat ? JsonCopy(failed->heartbeat) : NULL;
	}
	ActivationReadHistory(a);
	if (failed == NULL)
		return NULL;

	if (known.kind == COMMAND_UNDO)
		failed = CompensationFind(a, known.position);
	else if (known.position <= a->ncommands)
		failed = a->commands[known.position - 1];
	else
		failed = ActivationIssue(a, &request);
	failed->first_at = known.first_at;
	failed->limits = known.limits;
	failed->heartbeat = ActivationKeep(a, known.heartbeat);
	return failed;
}

/*
 * recover: the transaction is aborted; what to make of the error?
 */
static bool
recover(Activation *a, int64 iid)
{
	ErrorData  *error = a->error;
	Phase		phase = a->phase;
	Command    *failed = phase == PHASE_ACTIVITY ? a->running : a->unconfirmed;

	a->phase = PHASE_ENGINE;
	CHECK_FOR_INTERRUPTS();
	if (a->instance == NULL)
		ReThrowError(error);
	/* what failed may have dropped the lock that shows us alive */
	if (a->lost || is_fence_error(error, phase) || !LeaseConfirm(a->lease))
	{
		abandon(a, iid);
		return false;
	}
	if (a->later)
	{
		SettleLater(a);
		return false;
	}
	if (a->desperate)
	{
		SettleHold(a, psprintf("%s: the failure of a step could not be recorded",
						 unpack_sql_state(error->sqlerrcode)));
		return false;
	}

	if (a->dirty)
		failed = reload(a, failed);

	if (phase == PHASE_RESOLVE && !ErrorIsEnvironment(error))
	{
		/* the body's input for its next run does not fit */
		if (a->pass.outcome == PASS_CONTINUED)
			SettleHoldToMend(a, SettleReason(error));
		else
			SettleHoldForError(a, error);
		return false;
	}
	/* a cancel that interrupts is not the activity's failure, or what undoes it */
	if (phase == PHASE_ACTIVITY &&
		((a->closing == NULL && error->sqlerrcode == ERRCODE_DURABLE_CANCELLED) ||
		 (ErrorIsCancel(error) && TimeoutHit() == NULL)) &&
		DeliverHasRequest(a))
	{
		a->interrupted = true;
		return true;
	}
	if ((phase == PHASE_ACTIVITY || phase == PHASE_COMMIT) && failed != NULL)
	{
		(void) StepFail(a, failed, error);
		return true;
	}
	SettlePostpone(a, error);
	return false;
}

/*
 * DriveInstance: run an instance that we have a lease on, until it waits or
 * ends.
 *
 * Errors that come out of here are the session's, not the instance's.
 */
void
DriveInstance(Transactions *tx, int64 iid, int64 lease)
{
	MemoryContext outer = tx->cxt;
	Activation *a = ActivationCreate(tx, lease);
	volatile bool more = true;

	tx->cxt = a->work_cxt;
	while (more)
	{
		MemoryContextSwitchTo(a->work_cxt);
		PG_TRY();
		{
			if (a->error != NULL)
			{
				more = recover(a, iid);
				a->error = NULL;
				a->desperate = false;
			}
			else
			{
				MemoryContextReset(a->work_cxt);
				more = turn(a, iid);
			}
		}
		PG_CATCH();
		{
			ErrorData  *error;

			TimeoutDisarm();
			ContextSet(CONTEXT_ENGINE);
			MemoryContextSwitchTo(a->work_cxt);
			error = CopyErrorData();
			FlushErrorState();
			TransactionAbort(tx);
			/*
			 * An error of recover() gets one more try, a cancel none: unless
			 * of a worker, where it is the activity that was cancelled.
			 */
			if (a->desperate || (ErrorIsCancel(error) && !IsDurableWorker &&
								 !(a->phase == PHASE_ACTIVITY && TimeoutHit() != NULL)))
				ReThrowError(error);
			a->desperate = a->error != NULL;
			a->error = error;
			more = true;
		}
		PG_END_TRY();
	}
	CurrentActivation = NULL;
	tx->cxt = outer;
	MemoryContextSwitchTo(outer);
	MemoryContextDelete(a->cxt);
}
