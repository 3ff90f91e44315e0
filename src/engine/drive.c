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
 * A wait, the end and a hold give up the row of ready by naming our lease.  If
 * it is not ours any more, another driver has taken the instance over, and
 * all that this one did since its last commit is undone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/drive.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/replay.h"
#include "engine/sandbox.h"
#include "engine/settings.h"
#include "engine/step.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "runtime/wakeup.h"

/* Passes lost to the environment before the instance is held. */
#define MAX_BODY_FAILURES	5

/* Above that many, subtransactions slow down the whole server. */
#define MAX_INSIDE	60

/* ------------------------------------------------------------------
 * Ends of an activation
 * ------------------------------------------------------------------
 */

static void
commit(Activation *a)
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

static char *
reason_of(const ErrorData *error)
{
	return psprintf("%s: %s%s%s%s%s", unpack_sql_state(error->sqlerrcode),
					error->message,
					error->detail ? ". " : error->hint ? "." : "",
					error->detail ? error->detail : "",
					error->hint ? " " : "", error->hint ? error->hint : "");
}

static void
wait_for(Activation *a, const char *status, const char *awaits,
		 TimestampTz wake_at)
{
	give_up_ready(a, wake_at);
	InstanceWait(a->instance->iid, status, awaits, a->began_at);
	commit(a);

	/*
	 * A message that was committed before our wait was is seen now.  One
	 * that is committed later finds the instance waiting.
	 */
	if (awaits != NULL && InboxHas(a->instance->chain, "signal", awaits))
	{
		ReadyInsert(a->instance->iid);
		WakeupReady(a->instance->run_as);
		commit(a);
	}
}

static void
hold(Activation *a, const char *reason)
{
	give_up_ready(a, 0);
	InstanceHold(a->instance->iid, reason);
	commit(a);
	ereport(LOG,
			(errmsg("durable instance \"%s\" is held", a->instance->id),
			 errdetail_internal("%s", reason)));
}

static void
end(Activation *a, const char *status, const char *event)
{
	HistoryRow	row = {.event = event, .result = a->pass.result};

	if (a->pass.error != NULL)
		row.error = FailureFromError(a->pass.error);
	ActivationRecord(a, NULL, &row);
	give_up_ready(a, 0);
	InstanceEnd(a->instance->iid, status, row.seq, a->began_at, row.at);
	WakeupEnded(a->instance->iid);
	commit(a);
}

/*
 * postpone: the environment failed, not the workflow.  Try again later, and
 * hold it when that does not help.
 */
static void
postpone(Activation *a, const ErrorData *error)
{
	int			failures = a->instance->body_failures + 1;
	TimestampTz wake_at;

	if (failures > MAX_BODY_FAILURES)
	{
		hold(a, psprintf("%s: %s", unpack_sql_state(error->sqlerrcode),
						 error->message));
		return;
	}
	wake_at = ActivationStamp(a) + (USECS_PER_SEC << (failures - 1));
	give_up_ready(a, wake_at);
	InstanceSetBodyFailures(a->instance->iid, failures);
	commit(a);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("durable instance \"%s\" will be tried again: %s",
					a->instance->id, error->message)));
}

/* ------------------------------------------------------------------
 * What the body waits for.  True: there is more to do now.
 * ------------------------------------------------------------------
 */

static bool
unblock_activity(Activation *a, Command *command)
{
	if (!StepIsDue(command))
	{
		wait_for(a, "waiting_for_activity", NULL, command->wake_at);
		return false;
	}
	if (a->tx->inside && a->tx->count >= MAX_INSIDE)
	{
		if (!ReadyRelease(a->instance->iid, a->lease))
			ActivationLost(a);
		commit(a);
		ereport(NOTICE,
				(errmsg("instance \"%s\" has more steps than fit into one transaction",
						a->instance->id),
				 errhint("Commit and call durable_run() again, or CALL durable_work().")));
		return false;
	}
	if (a->dirty)
		commit(a);
	StepRun(a, command);
	return true;
}

static bool
unblock_timer(Activation *a, Command *command)
{
	TimestampTz wake_at = command->wake_at;

	if (wake_at <= GetCurrentTimestamp())
	{
		HistoryRow	row = {.event = "TimerExpired", .wake_at = wake_at};

		ActivationRecord(a, command, &row);
		return true;
	}
	if (!command->recorded)
	{
		HistoryRow	row = {.event = "TimerStarted", .wake_at = wake_at};

		ActivationRecord(a, command, &row);
	}
	wait_for(a, "waiting_for_timer", NULL, wake_at);
	return false;
}

static bool
unblock_signal(Activation *a, Command *command)
{
	TimestampTz wake_at = command->wake_at;
	HistoryRow	row = {0};

	row.result = InboxTake(a->instance->chain, "signal", command->name,
						   CurrentMemoryContext);
	if (row.result != NULL)
		row.event = "SignalReceived";
	else if (wake_at != 0 && wake_at <= GetCurrentTimestamp())
		row.event = "SignalTimedOut";
	if (row.event != NULL)
	{
		ActivationRecord(a, command, &row);
		return true;
	}
	if (!command->recorded)
	{
		row.event = "SignalAwaited";
		row.wake_at = wake_at;
		ActivationRecord(a, command, &row);
	}
	wait_for(a, "waiting_for_event", command->name, wake_at);
	return false;
}

static bool
unblock(Activation *a, Command *command)
{
	switch (command->kind)
	{
		case COMMAND_ACTIVITY:
			return unblock_activity(a, command);
		case COMMAND_TIMER:
			return unblock_timer(a, command);
		case COMMAND_SIGNAL:
			return unblock_signal(a, command);
	}
	elog(ERROR, "unexpected command");
}

/*
 * end_by_error: the body raised one.  What is not the workflow's fault does not
 * fail it; an activity's error that it let pass does, whatever it is.
 */
static void
end_by_error(Activation *a)
{
	Pass	   *pass = &a->pass;
	ErrorData  *error = pass->error;
	bool		own = !(pass->raised && FailureIs(pass->raised->error, error));

	if (own && ErrorIsEnvironment(error))
		postpone(a, error);
	else if (own && ErrorIsGap(error))
		hold(a, reason_of(error));
	else
		end(a, "failed", "WorkflowFailed");
}

static bool
act_on_outcome(Activation *a)
{
	Pass	   *pass = &a->pass;

	switch (pass->outcome)
	{
		case PASS_BLOCKED:
			return unblock(a, pass->blocked_on);
		case PASS_VERDICT:
			hold(a, pass->reason);
			return false;
		case PASS_RAISED:
			end_by_error(a);
			return false;
		case PASS_RETURNED:
			end(a, "completed", "WorkflowCompleted");
			return false;
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
 * describe_workflow: the function and its arguments, as they are now.
 */
static void
describe_workflow(Activation *a)
{
	MemoryContext old = MemoryContextSwitchTo(a->cxt);
	uint64		generation = FunctionGeneration;
	int			level = SettingsEnter(a->settings);

	a->phase = PHASE_RESOLVE;
	a->running = NULL;
	if (a->instance->function == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("workflow \"%s\" is not registered",
						a->instance->workflow)));
	a->function = FunctionDescribe(FunctionResolve(a->instance->function,
												   "workflow"),
								   "workflow");
	a->function->whole = a->instance->whole;
	FunctionCheckOwner(a->function, a->instance->workflow_owner);
	FunctionCheckExecute(a->function);
	/* CHECKs of domains are user's code that no pass rolls back */
	XactReadOnly = true;
	a->arguments = ArgumentsBind(a->function, a->input);
	XactReadOnly = false;
	a->function_generation = generation;
	a->phase = PHASE_ENGINE;
	SettingsLeave(level);
	MemoryContextSwitchTo(old);
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
	hold(a, psprintf("WF005: role %u was \"%s\" when the instance was started and is \"%s\" now",
					 instance->run_as, instance->run_as_name,
					 name ? name : "none"));
	return false;
}

static bool
load(Activation *a, int64 iid)
{
	MemoryContext old = MemoryContextSwitchTo(a->cxt);

	a->instance = InstanceLoad(iid);
	MemoryContextSwitchTo(old);
	if (a->instance == NULL || a->instance->ended || a->instance->suspended)
	{
		(void) ReadyDelete(iid, a->lease);
		commit(a);
		return false;
	}
	a->sandbox = SandboxModeFromText(a->instance->sandbox);
	ActivationReadHistory(a);
	return role_is_same(a);
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
	if (a->arguments == NULL || a->function_generation != FunctionGeneration)
	{
		/* a step that dropped the workflow is done all the same */
		if (a->dirty)
			commit(a);
		describe_workflow(a);
	}
	if (a->dirty && PassIsLinear(a))
		commit(a);
	PassRun(a);
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
	commit(a);
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
		request.args = JsonCopy(failed->args);
		request.retry = failed->retry ? JsonCopy(failed->retry) : NULL;
	}
	ActivationReadHistory(a);
	if (failed == NULL)
		return NULL;

	if (known.position <= a->ncommands)
		failed = a->commands[known.position - 1];
	else
		failed = ActivationIssue(a, &request);
	failed->first_at = known.first_at;
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
	if (a->desperate)
	{
		hold(a, psprintf("%s: the failure of a step could not be recorded",
						 unpack_sql_state(error->sqlerrcode)));
		return false;
	}

	if (a->dirty)
		failed = reload(a, failed);

	if (phase == PHASE_RESOLVE && !ErrorIsEnvironment(error))
	{
		hold(a, reason_of(error));
		return false;
	}
	if ((phase == PHASE_ACTIVITY || phase == PHASE_COMMIT) && failed != NULL)
	{
		(void) StepFail(a, failed, error);
		return true;
	}
	postpone(a, error);
	return false;
}

static Activation *
create_activation(Transactions *tx, int64 lease)
{
	MemoryContext cxt = AllocSetContextCreate(tx->cxt, "durable activation",
											  ALLOCSET_DEFAULT_SIZES);
	Activation *a = MemoryContextAllocZero(cxt, sizeof(Activation));

	a->cxt = cxt;
	a->history_cxt = AllocSetContextCreate(cxt, "durable history",
										   ALLOCSET_DEFAULT_SIZES);
	a->pass_cxt = AllocSetContextCreate(cxt, "durable pass",
										ALLOCSET_DEFAULT_SIZES);
	a->step_cxt = AllocSetContextCreate(cxt, "durable step",
										ALLOCSET_DEFAULT_SIZES);
	a->work_cxt = AllocSetContextCreate(cxt, "durable turn",
										ALLOCSET_DEFAULT_SIZES);
	a->tx = tx;
	a->lease = lease;
	a->began_at = GetCurrentTimestamp();
	a->log_through = -1;
	return a;
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
	Activation *a = create_activation(tx, lease);
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

			ContextSet(CONTEXT_ENGINE);
			MemoryContextSwitchTo(a->work_cxt);
			error = CopyErrorData();
			FlushErrorState();
			TransactionAbort(tx);
			/*
			 * An error of recover() gets one more try, a cancel none: unless
			 * of a worker, where it is the activity that was cancelled.
			 */
			if (a->desperate || (ErrorIsCancel(error) && !IsDurableWorker))
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
