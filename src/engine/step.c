/*-------------------------------------------------------------------------
 *
 * step.c
 *	  Activities: one attempt, and what is recorded of it.
 *
 * The attempt and its history row are in one transaction.  An error is left
 * to the driver, which aborts the transaction and calls StepFail in another.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/portal.h"

#include "arguments.h"
#include "engine/compensate.h"
#include "engine/deliver.h"
#include "engine/failure.h"
#include "engine/internal.h"
#include "engine/json.h"
#include "engine/retry.h"
#include "engine/sandbox.h"
#include "engine/settings.h"
#include "engine/sqlstep.h"
#include "engine/step.h"
#include "engine/unblock.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "runtime/wakeup.h"
#include "runtime/work.h"

PG_FUNCTION_INFO_V1(durable_attempt);
PG_FUNCTION_INFO_V1(durable_idempotency_key);
PG_FUNCTION_INFO_V1(durable_heartbeat);
PG_FUNCTION_INFO_V1(durable_heartbeat_details);
PG_FUNCTION_INFO_V1(durable_progress);
PG_FUNCTION_INFO_V1(durable_fail);

/* Deadlocks and serialization failures that cost no attempt. */
#define MAX_CONFLICTS	3

/* Microseconds after the first of them; then twice that. */
#define CONFLICT_PAUSE	10000L

#define TIMED_OUT_MESSAGE	"activity \"%s\" timed out"
#define TIMED_OUT_DETAIL	"It took longer than its %s timeout."

/* What durable_fail() said in the attempt that runs. */
static char *fail_message = NULL;

/* The call is being put together: no further attempt would fare better. */
static bool binding = false;

/* ------------------------------------------------------------------
 * Names
 * ------------------------------------------------------------------
 */

static void
make_activity_table(Activation *a)
{
	HASHCTL		info = {0};

	info.keysize = sizeof(((ActivityEntry *) NULL)->name);
	info.entrysize = sizeof(ActivityEntry);
	info.hcxt = a->cxt;
	a->activities = hash_create("durable activities", 8, &info,
								HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/*
 * known: what the name meant when it was looked up last, or NULL.
 */
static ActivityEntry *
known(Activation *a, const char *name)
{
	if (a->activities == NULL)
		return NULL;
	return hash_search(a->activities, name, HASH_FIND, NULL);
}

/*
 * resolve: find what a name means, registered or in search_path.
 *
 * The entry is made when all is known: finding out can fail.
 */
static ActivityEntry *
resolve(Activation *a, const char *name)
{
	ActivityEntry *entry;
	uint64		generation = FunctionGeneration;
	DurableFunction *function = NULL;
	ActivityRow *row = NULL;
	MemoryContext old = MemoryContextSwitchTo(a->cxt);

	if (a->activities == NULL)
		make_activity_table(a);
	if (strcmp(name, SQL_ACTIVITY) != 0)
	{
		row = ActivityFind(a->instance->workflow_owner, a->instance->run_as,
						   name);
		if (row == NULL || row->queue == NULL)
		{
			function = FunctionDescribe(FunctionResolve(row ? row->function : name,
														"activity"),
										"activity");
			/* a superuser may have registered anybody's */
			if (row != NULL && !superuser_arg(row->owner) &&
				!FunctionIsOf(function->oid, row->owner))
				FunctionRefuseOwner(function, row->owner);
			FunctionCheckExecute(function);
		}
	}
	entry = hash_search(a->activities, name, HASH_ENTER, NULL);
	entry->generation = generation;
	entry->function = function;
	entry->retry = row ? row->retry : NULL;
	entry->compensate = row ? row->compensate : NULL;
	entry->compensate_attempted = row && row->compensate_attempted;
	entry->queue = row ? row->queue : NULL;
	entry->served_by = row ? row->served_by : InvalidOid;
	entry->served_by_name = row ? row->served_by_name : NULL;
	entry->schedule_to_start = row ? row->schedule_to_start : 0;
	memset(&entry->limits, 0, sizeof(TimeLimits));
	if (row != NULL)
	{
		entry->limits.start_to_close = row->start_to_close;
		entry->limits.schedule_to_close = row->schedule_to_close;
		entry->limits.heartbeat = row->heartbeat;
	}
	MemoryContextSwitchTo(old);
	return entry;
}

/*
 * StepResolve: what the name of an activity means, as the instance sees it.
 *
 * An error means that something is missing, and holds the instance.
 */
const ActivityEntry *
StepResolve(Activation *a, const char *name)
{
	ActivityEntry *entry = known(a, name);
	Phase		phase = a->phase;
	int			level;

	if (entry != NULL && entry->generation == FunctionGeneration)
		return entry;
	level = SettingsEnter(a->settings);
	a->phase = PHASE_RESOLVE;
	entry = resolve(a, name);
	a->phase = phase;
	SettingsLeave(level);
	return entry;
}

/*
 * StepLimits: those of the call, else those of the registration (NULL: none).
 */
void
StepLimits(const ActivityEntry *entry, const Command *command,
		   TimeLimits *limits)
{
	*limits = command->limits;
	if (entry == NULL)
		return;
	if (limits->start_to_close == 0)
		limits->start_to_close = entry->limits.start_to_close;
	if (limits->schedule_to_close == 0)
		limits->schedule_to_close = entry->limits.schedule_to_close;
	limits->heartbeat = entry->limits.heartbeat;
}

/* ------------------------------------------------------------------
 * One attempt
 * ------------------------------------------------------------------
 */

/*
 * bind_undo: the arguments of a compensation, which knows the step that it
 * undoes.
 *
 * What the step's own parameters are called is of interest only if it got
 * its arguments by position.
 */
static void
bind_undo(Activation *a, Command *command, const DurableFunction *fn)
{
	const Command *undoes = command->undoes;
	DurableFunction *step = NULL;

	if (undoes == NULL)
		return;
	if (!OidIsValid(undoes->function) && undoes->args != NULL &&
		!JB_ROOT_IS_OBJECT(undoes->args))
		step = StepResolve(a, undoes->name)->function;
	command->args = ActivationKeep(a, CompensationArguments(undoes, fn, step));
}

/*
 * refuse_late: it has caught the interrupt and gone on, or had done all but
 * just not in time.
 */
static void
refuse_late(const Command *command)
{
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_TIMED_OUT),
			 errmsg(TIMED_OUT_MESSAGE, command->name),
			 errdetail(TIMED_OUT_DETAIL, TimeoutHit())));
}

static Jsonb *
invoke(Activation *a, Command *command)
{
	const ActivityEntry *entry = NULL;
	DurableFunction *function;
	TimeLimits	limits;
	Jsonb	   *result;

	a->phase = PHASE_RESOLVE;
	if (OidIsValid(command->function))
		function = FunctionDescribe(command->function, "activity");
	else
	{
		entry = StepResolve(a, command->name);
		function = entry->function;
	}
	StepLimits(entry, command, &limits);
	if (command->kind == COMMAND_UNDO)
		bind_undo(a, command, function);
	a->phase = PHASE_ACTIVITY;
	ContextSet(CONTEXT_ACTIVITY);
	TimeoutArm(&limits, command->first_at);
	if (function == NULL)
		result = SqlStepRun(command->args, &binding);
	else
	{
		DurableArguments *args;

		binding = true;
		args = ArgumentsBind(function, command->args);
		binding = false;
		result = FunctionInvoke(function, args, false);
	}
	TransactionFireDeferred(a->tx);
	TimeoutDisarm();
	if (TimeoutHit() != NULL)
		refuse_late(command);
	ContextSet(CONTEXT_ENGINE);
	return result;
}

/*
 * StepEvent: that of an activity, or of a compensation.
 */
const char *
StepEvent(const Command *command, const char *activity,
		  const char *compensation)
{
	return command->kind == COMMAND_UNDO ? compensation : activity;
}

/*
 * StepCompensation: what undoes the step, or NULL: the call's own compensation,
 * or that of the activity as it was registered when the step was begun.
 */
const char *
StepCompensation(Activation *a, const Command *command)
{
	ActivityEntry *entry = known(a, command->name);

	if (command->kind != COMMAND_ACTIVITY)
		return NULL;
	if (command->compensate != NULL || OidIsValid(command->function))
		return command->compensate;
	return entry != NULL ? entry->compensate : NULL;
}

/*
 * compensation_of: what is recorded with a step that can be undone.
 */
static Jsonb *
compensation_of(Activation *a, const Command *command)
{
	const char *compensate = StepCompensation(a, command);
	JsonbParseState *data;

	if (compensate == NULL)
		return NULL;
	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "compensate", compensate);
	return JsonObjectEnd(&data);
}

/*
 * StepComplete: write the history row of what was done.
 */
void
StepComplete(Activation *a, Command *command, Jsonb *result,
			 TimestampTz started_at)
{
	HistoryRow	row = {.result = result, .started_at = started_at};

	row.event = StepEvent(command, "ActivityCompleted", "CompensationCompleted");
	row.data = compensation_of(a, command);
	ActivationRecord(a, command, &row);
	/* it has come further than the crash it was there at */
	if (a->instance->suspect)
		SuspectClear(a->instance->iid);
	a->instance->suspect = false;
}

/*
 * StepRun: run the activity and write its history row, without a commit.
 */
void
StepRun(Activation *a, Command *command)
{
	MemoryContext old = CurrentMemoryContext;
	TimestampTz started_at = ActivationStamp(a);
	Jsonb	   *result;
	int			level;

	MemoryContextReset(a->step_cxt);
	MemoryContextSwitchTo(a->step_cxt);
	CurrentActivation = a;
	a->running = command;
	fail_message = NULL;
	binding = false;
	command->beating = false;
	if (command->first_at == 0)
		command->first_at = started_at;

	if (IsDurableWorker)
		pgstat_report_activity(STATE_RUNNING,
							   psprintf("workflow %s, instance %s, step %s",
										a->instance->workflow, a->instance->id,
										command->step_id));
	level = SettingsEnter(a->settings);
	result = invoke(a, command);
	SettingsLeave(level);

	a->phase = PHASE_ENGINE;
	if (!LeaseConfirm(a->lease))
		ActivationLost(a);
	StepComplete(a, command, result, started_at);
	a->unconfirmed = command;
	MemoryContextSwitchTo(old);
}

static void
commit_in_place(Activation *a)
{
	a->phase = PHASE_COMMIT;
	TransactionCommitInPlace();
	a->phase = PHASE_ENGINE;
	ActivationCommitted(a);
}

/*
 * StepRunInPlace: the same in a linear pass, with the commit; the body goes
 * on afterwards.
 */
void
StepRunInPlace(Activation *a, Command *command)
{
	MemoryContext old = CurrentMemoryContext;

	a->log_through = Max(a->log_through, command->position - 1);
	/* the commit would run loop queries to their end outside of the sandbox */
	HoldPinnedPortals();
	PassDisarm(a);
	/* what others are to see is there before the step begins */
	UnblockFlush(a, command);
	if (a->dirty)
		commit_in_place(a);
	StepRun(a, command);
	commit_in_place(a);
	MemoryContextSwitchTo(old);
	PassArm(a);
}

/*
 * StepIsDue: may it be tried now?
 */
bool
StepIsDue(const Command *command)
{
	return command->wake_at == 0 || command->wake_at <= GetCurrentTimestamp();
}

/*
 * StepKey: the same in every attempt, and in no other step.
 *
 * One that was spawned has another run when its parent was retried.
 */
char *
StepKey(const InstanceRow *instance, const Command *command)
{
	return psprintf("%s/%d/%d%s", instance->id,
					InternalIs(instance->workflow) ? 1 : instance->run,
					command->position,
					command->kind == COMMAND_UNDO ? "/undo" : "");
}

/* ------------------------------------------------------------------
 * A failed attempt
 * ------------------------------------------------------------------
 */

static bool
has_said_fail(const ErrorData *error)
{
	return fail_message != NULL && error->message != NULL &&
		strcmp(fail_message, error->message) == 0;
}

static void
policy_for(Activation *a, Command *command, RetryPolicy *policy)
{
	ActivityEntry *entry = known(a, command->name);

	RetryDefaults(policy);
	RetryApply(policy, a->instance->activity_retry);
	RetryApply(policy, entry ? entry->retry : NULL);
	RetryApply(policy, command->retry);
}

/*
 * log_attempt: the server logs no error that is caught.
 */
static void
log_attempt(Activation *a, const Command *command, const HistoryRow *row)
{
	char	   *sqlstate = JsonGetText(row->error, "sqlstate");

	ereport(LOG,
			(errcode(sqlstate ? ErrorCodeFromText(sqlstate) : 0),
			 errmsg("attempt %d of step \"%s\" of durable instance \"%s\" failed: %s",
					row->attempt, command->step_id, a->instance->id,
					JsonGetText(row->error, "message")),
			 row->wake_at != 0 ?
			 errdetail("It will be tried again at %s.",
					   timestamptz_to_str(row->wake_at)) :
			 errdetail("It will not be tried again."),
			 errhidestmt(true)));
}

/*
 * timeout_error: in place of the cancel that it looks like.
 */
static ErrorData *
timeout_error(const Command *command, const ErrorData *cancel)
{
	ErrorData  *error = palloc(sizeof(ErrorData));

	*error = *cancel;
	error->sqlerrcode = ERRCODE_DURABLE_TIMED_OUT;
	error->message = psprintf(TIMED_OUT_MESSAGE, command->name);
	error->detail = psprintf(TIMED_OUT_DETAIL, TimeoutHit());
	error->hint = NULL;
	error->funcname = NULL;
	return error;
}

/*
 * is_in_time: is the next attempt before the time for all of them is over?
 */
static bool
is_in_time(Activation *a, const Command *command, TimestampTz next_at)
{
	TimeLimits	limits;

	StepLimits(known(a, command->name), command, &limits);
	return limits.schedule_to_close == 0 ||
		next_at <= command->first_at + limits.schedule_to_close * 1000;
}

/*
 * StepLeft: what an attempt that came to nothing left: its last details, for
 * the next one, and perhaps an effect that nobody knows of.
 */
Jsonb *
StepLeft(const Command *command)
{
	JsonbParseState *data;

	if (command->heartbeat == NULL && !command->attempted)
		return NULL;
	JsonObjectBegin(&data);
	JsonObjectAdd(&data, "heartbeat", command->heartbeat);
	if (command->attempted)
		JsonObjectAddNumber(&data, "attempted", 1);
	return JsonObjectEnd(&data);
}

/*
 * StepInterrupted: this process ends in the middle of an attempt.  Its details
 * are for the next one, which anybody can begin when we have let go.
 *
 * To be called in a transaction of its own, while the instance is ours.
 */
void
StepInterrupted(Activation *a)
{
	Command    *command = a->running;
	HistoryRow	row = {.started_at = command ? command->first_at : 0};

	if (command == NULL || command->state != COMMAND_ISSUED ||
		!command->beating)
		return;
	row.event = StepEvent(command, "ActivityInterrupted", "CompensationInterrupted");
	row.seq = HistoryNextSeq(a->instance->iid);
	row.position = command->position;
	row.name = command->name;
	row.step_id = command->step_id;
	if (!command->recorded)
		row.args = command->args;
	row.data = StepLeft(command);
	row.at = ActivationStamp(a);
	HistoryAppend(a->instance->iid, &row);
}

/*
 * StepFail: record a failed attempt, and when to try again, if at all.
 *
 * False: nothing was recorded, because the attempt lost to another
 * transaction and is simply to be repeated.
 */
bool
StepFail(Activation *a, Command *command, const ErrorData *error)
{
	if (ErrorIsConflict(error) && !has_said_fail(error) &&
		a->conflicts < MAX_CONFLICTS)
	{
		/* let the winner go first: we would take its lock again at once */
		pg_usleep(CONFLICT_PAUSE << a->conflicts);
		a->conflicts++;
		return false;
	}
	a->conflicts = 0;

	if (TimeoutHit() != NULL && ErrorIsCancel(error))
		error = timeout_error(command, error);
	StepRecordFailure(a, command, FailureFromActivity(error),
					  unpack_sql_state(error->sqlerrcode),
					  !has_said_fail(error) && !binding);
	return true;
}

/*
 * StepRecordFailure: the same when it is known what the failure is.
 */
void
StepRecordFailure(Activation *a, Command *command, Jsonb *failure,
				  const char *sqlstate, bool retryable)
{
	HistoryRow	row = {0};
	RetryPolicy policy;

	row.error = failure;
	row.data = StepLeft(command);
	row.attempt = command->attempts + 1;
	row.started_at = command->first_at;
	row.at = ActivationStamp(a);
	policy_for(a, command, &policy);
	if (retryable && RetryIsFor(&policy, sqlstate) &&
		RetryNext(&policy, row.attempt - command->attempts_before,
				  command->first_at, row.at, &row.wake_at) &&
		is_in_time(a, command, row.wake_at))
		row.event = StepEvent(command, "ActivityRetryScheduled",
							 "CompensationRetryScheduled");
	else
	{
		row.event = StepEvent(command, "ActivityFailed", "CompensationFailed");
		row.wake_at = 0;
	}
	/* the next attempt is when somebody has seen to it */
	if (command->kind == COMMAND_UNDO && row.wake_at == 0 &&
		a->instance->hold_on_undo_failure)
	{
		row.event = "CompensationRetryScheduled";
		row.wake_at = row.at;
		a->stuck = true;
	}
	ActivationRecord(a, command, &row);
	if (durable_log_failed_attempts)
		log_attempt(a, command, &row);
}

/* ------------------------------------------------------------------
 * Inside an activity
 * ------------------------------------------------------------------
 */

static Command *
running_activity(const char *function)
{
	if (CurrentContext != CONTEXT_ACTIVITY)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("%s() can only be called in an activity that durable runs",
						function),
				 errhint("Call the activity from a workflow with durable_call().")));
	return CurrentActivation->running;
}

/*
 * durable_attempt: which attempt this is, from 1.
 */
Datum
durable_attempt(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(running_activity("durable_attempt")->attempts + 1);
}

/*
 * durable_idempotency_key: the same in every attempt of this step, and in no
 * other step.
 */
Datum
durable_idempotency_key(PG_FUNCTION_ARGS)
{
	Command    *command = running_activity("durable_idempotency_key");

	PG_RETURN_TEXT_P(cstring_to_text(StepKey(CurrentActivation->instance,
											 command)));
}

/*
 * durable_heartbeat: the activity is alive, and has come that far; WF002 if a
 * cancel was requested.
 */
Datum
durable_heartbeat(PG_FUNCTION_ARGS)
{
	Command    *command = running_activity("durable_heartbeat");
	Activation *a = CurrentActivation;

	TimeoutHeartbeat();
	if (!PG_ARGISNULL(0))
	{
		Jsonb	   *details = ActivationKeep(a, PG_GETARG_JSONB_P(0));

		/* there may be many of them in one attempt */
		if (command->beating)
			pfree(command->heartbeat);
		command->heartbeat = details;
		command->beating = true;
	}
	AcceptInvalidationMessages();
	if ((a->look || a->control_seen != ControlGeneration) &&
		command->kind != COMMAND_UNDO && !command->shielded &&
		DeliverHasRequest(a))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_CANCELLED),
				 errmsg("the workflow was cancelled")));
	PG_RETURN_VOID();
}

/*
 * durable_heartbeat_details: what the last heartbeat said, in this attempt or
 * the one before.
 */
Datum
durable_heartbeat_details(PG_FUNCTION_ARGS)
{
	Command    *command = running_activity("durable_heartbeat_details");

	if (command->heartbeat == NULL)
		PG_RETURN_NULL();
	/* a copy: the next heartbeat replaces it */
	PG_RETURN_JSONB_P(JsonCopy(command->heartbeat));
}

/*
 * durable_progress: how far it is, to be seen at once in durable.progress.
 */
Datum
durable_progress(PG_FUNCTION_ARGS)
{
	Command    *command = running_activity("durable_progress");

	ArgNotNull(fcinfo, 0, "done");
	WorkShowProgress(command->position, PG_GETARG_INT64(0),
					 PG_ARGISNULL(1) ? -1 : PG_GETARG_INT64(1),
					 PG_ARGISNULL(2) ? "" : ArgText(fcinfo, 2, "message"));
	PG_RETURN_VOID();
}

/*
 * durable_fail: fail, and do not try again.
 */
Datum
durable_fail(PG_FUNCTION_ARGS)
{
	char	   *message = ArgText(fcinfo, 0, "message");
	char	   *sqlstate = ArgText(fcinfo, 1, "sqlstate");
	char	   *detail = PG_ARGISNULL(2) ? NULL : ArgText(fcinfo, 2, "detail");
	int			code = ErrorCodeFromText(sqlstate);

	(void) running_activity("durable_fail");
	if (code == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid SQLSTATE: \"%s\"", sqlstate),
				 errhint("A SQLSTATE has five digits or upper-case letters and does not begin with 00.")));

	fail_message = MemoryContextStrdup(CurrentActivation->step_cxt, message);
	ereport(ERROR,
			(errcode(code),
			 errmsg_internal("%s", fail_message),
			 detail ? errdetail_internal("%s", detail) : 0));
	PG_RETURN_VOID();
}
