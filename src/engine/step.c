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

/* An activity's name, and what it means; kept while no function changes. */
typedef struct ActivityEntry
{
	char		name[DURABLE_MAX_NAME + 16];
	uint64		generation;
	DurableFunction *function;	/* NULL: SQL_ACTIVITY */
	Jsonb	   *retry;			/* of its registration, NULL: none */
	char	   *compensate;		/* likewise */
	TimeLimits	limits;			/* likewise */
	char	   *queue;			/* NULL: it has a function */
	Oid			served_by;
	int64		schedule_to_start;
} ActivityEntry;

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
	MemoryContext old;

	if (a->activities == NULL)
		make_activity_table(a);
	entry = hash_search(a->activities, name, HASH_FIND, NULL);
	if (entry != NULL && entry->generation == generation)
		return entry;

	old = MemoryContextSwitchTo(a->cxt);
	if (strcmp(name, SQL_ACTIVITY) != 0)
	{
		row = ActivityFind(a->instance->workflow_owner, a->instance->run_as,
						   name);
		if (row == NULL || row->queue == NULL)
		{
			function = FunctionDescribe(FunctionResolve(row ? row->function : name,
														"activity"),
										"activity");
			if (row != NULL)
				FunctionCheckOwner(function, row->owner);
			FunctionCheckExecute(function);
		}
	}
	entry = hash_search(a->activities, name, HASH_ENTER, NULL);
	entry->generation = generation;
	entry->function = function;
	entry->retry = row ? row->retry : NULL;
	entry->compensate = row ? row->compensate : NULL;
	entry->queue = row ? row->queue : NULL;
	entry->served_by = row ? row->served_by : InvalidOid;
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
 * StepCompensation: what undoes an activity by its registration, or NULL.
 */
const char *
StepCompensation(Activation *a, const char *activity)
{
	return resolve(a, activity)->compensate;
}

/* ------------------------------------------------------------------
 * One attempt
 * ------------------------------------------------------------------
 */

/*
 * undo_arguments: of a compensation, which knows the step that it undoes.
 */
static Jsonb *
undo_arguments(Activation *a, Command *command, const DurableFunction *fn)
{
	DurableFunction *step = NULL;

	if (command->undoes == NULL)
		return command->args;
	if (command->undoes != NULL && !OidIsValid(command->undoes->function))
		step = resolve(a, command->undoes->name)->function;
	return CompensationArguments(command, fn, step);
}

/*
 * arm_timeouts: those of the call, else those of the registration.
 */
static void
arm_timeouts(const ActivityEntry *entry, const Command *command)
{
	TimeLimits	limits = command->limits;

	if (entry != NULL)
	{
		if (limits.start_to_close == 0)
			limits.start_to_close = entry->limits.start_to_close;
		if (limits.schedule_to_close == 0)
			limits.schedule_to_close = entry->limits.schedule_to_close;
		limits.heartbeat = entry->limits.heartbeat;
	}
	TimeoutArm(&limits, command->first_at);
}

static Jsonb *
invoke(Activation *a, Command *command)
{
	ActivityEntry *entry = NULL;
	DurableFunction *function;
	Jsonb	   *result;

	a->phase = PHASE_RESOLVE;
	if (OidIsValid(command->function))
		function = FunctionDescribe(command->function, "activity");
	else
	{
		entry = resolve(a, command->name);
		function = entry->function;
	}

	if (entry != NULL && entry->queue != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("activity \"%s\" of queue \"%s\" cannot be a compensation",
						command->name, entry->queue),
				 errhint("Compensate with a function.")));
	a->phase = PHASE_ACTIVITY;
	ContextSet(CONTEXT_ACTIVITY);
	arm_timeouts(entry, command);
	if (function == NULL)
		result = SqlStepRun(command->args, &binding);
	else
	{
		DurableArguments *args;

		binding = true;
		if (command->kind == COMMAND_UNDO)
			command->args = ActivationKeep(a, undo_arguments(a, command, function));
		args = ArgumentsBind(function, command->args);
		binding = false;
		result = FunctionInvoke(function, args, false);
	}
	TransactionFireDeferred(a->tx);
	TimeoutDisarm();
	ContextSet(CONTEXT_ENGINE);
	return result;
}

static const char *
event_of(const Command *command, const char *activity,
		 const char *compensation)
{
	return command->kind == COMMAND_UNDO ? compensation : activity;
}

/*
 * compensation_of: what is recorded with a step that can be undone: the call's
 * own compensation, or that of the registered activity.
 */
static Jsonb *
compensation_of(Activation *a, const Command *command)
{
	const char *compensate = command->compensate;
	JsonbParseState *data;

	if (compensate == NULL && command->kind == COMMAND_ACTIVITY &&
		!OidIsValid(command->function))
		compensate = StepCompensation(a, command->name);
	if (compensate == NULL || command->kind != COMMAND_ACTIVITY)
		return NULL;
	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "compensate", compensate);
	return JsonObjectEnd(&data);
}

/*
 * StepRun: run the activity and write its history row, without a commit.
 */
void
StepRun(Activation *a, Command *command)
{
	MemoryContext old = CurrentMemoryContext;
	HistoryRow	row = {0};
	int			level;

	MemoryContextReset(a->step_cxt);
	MemoryContextSwitchTo(a->step_cxt);
	CurrentActivation = a;
	a->running = command;
	fail_message = NULL;
	binding = false;
	row.started_at = ActivationStamp(a);
	if (command->first_at == 0)
		command->first_at = row.started_at;

	if (IsDurableWorker)
		pgstat_report_activity(STATE_RUNNING,
							   psprintf("workflow %s, instance %s, step %s",
										a->instance->workflow, a->instance->id,
										command->step_id));
	level = SettingsEnter(a->settings);
	row.result = invoke(a, command);
	SettingsLeave(level);

	a->phase = PHASE_ENGINE;
	if (!LeaseConfirm(a->lease))
		ActivationLost(a);
	row.event = event_of(command, "ActivityCompleted", "CompensationCompleted");
	row.data = compensation_of(a, command);
	ActivationRecord(a, command, &row);
	a->unconfirmed = command;
	/* it has come further than the crash it was there at */
	if (a->instance->suspect)
		SuspectClear(a->instance->iid);
	a->instance->suspect = false;
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

static char *
idempotency_key(const InstanceRow *instance, const Command *command)
{
	return psprintf("%s/%d/%d%s", instance->id, instance->run,
					command->position,
					command->kind == COMMAND_UNDO ? "/undo" : "");
}

/* ------------------------------------------------------------------
 * Remote activities
 * ------------------------------------------------------------------
 */

/*
 * StepIsRemote: is it done by clients of a queue?
 */
bool
StepIsRemote(Activation *a, const Command *command)
{
	ActivityEntry *entry;
	Phase		phase = a->phase;
	int			level;

	if (OidIsValid(command->function))
		return false;
	level = SettingsEnter(a->settings);
	a->phase = PHASE_RESOLVE;
	entry = resolve(a, command->name);
	a->phase = phase;
	SettingsLeave(level);
	return entry->queue != NULL;
}

/*
 * StepRemoteLimits: those of an attempt: to be begun, to be done, all in all.
 */
void
StepRemoteLimits(Activation *a, const Command *command, TimeLimits *limits,
				 int64 *schedule_to_start)
{
	ActivityEntry *entry = resolve(a, command->name);

	*limits = command->limits;
	if (limits->start_to_close == 0)
		limits->start_to_close = entry->limits.start_to_close;
	if (limits->schedule_to_close == 0)
		limits->schedule_to_close = entry->limits.schedule_to_close;
	*schedule_to_start = entry->schedule_to_start;
}

/*
 * StepEnqueue: leave the next attempt to the clients.
 */
void
StepEnqueue(Activation *a, Command *command)
{
	ActivityEntry *entry = resolve(a, command->name);
	HistoryRow	row = {.event = "ActivityQueued"};
	TaskRow		task = {
		.iid = a->instance->iid, .position = command->position,
		.chain = a->instance->chain, .run_as = a->instance->run_as,
		.queue = entry->queue, .served_by = entry->served_by,
		.activity = command->name, .args = command->args,
		.attempt = command->attempts + 1, .heartbeat = command->heartbeat
	};

	task.start_to_close = command->limits.start_to_close ?
		command->limits.start_to_close : entry->limits.start_to_close;
	task.key = idempotency_key(a->instance, command);
	TaskInsert(&task);
	if (command->first_at == 0)
		command->first_at = ActivationStamp(a);
	row.started_at = command->first_at;
	ActivationRecord(a, command, &row);
	a->queued = true;
	WakeupEnded(WakeupQueueNumber(entry->queue));
}

/*
 * StepComplete: a client has done it.
 */
void
StepComplete(Activation *a, Command *command, Jsonb *result,
			 TimestampTz started_at)
{
	HistoryRow	row = {
		.event = "ActivityCompleted", .result = result,
		.started_at = started_at
	};

	row.data = compensation_of(a, command);
	ActivationRecord(a, command, &row);
	if (a->instance->suspect)
		SuspectClear(a->instance->iid);
	a->instance->suspect = false;
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
	ActivityEntry *entry = NULL;

	if (a->activities != NULL)
		entry = hash_search(a->activities, command->name, HASH_FIND, NULL);
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
	error->message = psprintf("activity \"%s\" timed out", command->name);
	error->detail = psprintf("It took longer than its %s timeout.", TimeoutHit());
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
	int64		limit = command->limits.schedule_to_close;
	ActivityEntry *entry = NULL;

	if (a->activities != NULL)
		entry = hash_search(a->activities, command->name, HASH_FIND, NULL);
	if (limit == 0 && entry != NULL)
		limit = entry->limits.schedule_to_close;
	return limit == 0 || next_at <= command->first_at + limit * 1000;
}

/*
 * heartbeat_of: the last details, for the next attempt.
 */
static Jsonb *
heartbeat_of(const Command *command)
{
	JsonbParseState *data;

	if (command->heartbeat == NULL)
		return NULL;
	JsonObjectBegin(&data);
	JsonObjectAdd(&data, "heartbeat", command->heartbeat);
	return JsonObjectEnd(&data);
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
	if (ErrorIsConflict(error) && a->conflicts < MAX_CONFLICTS)
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
	row.data = heartbeat_of(command);
	row.attempt = command->attempts + 1;
	row.started_at = command->first_at;
	row.at = ActivationStamp(a);
	policy_for(a, command, &policy);
	if (retryable && RetryIsFor(&policy, sqlstate) &&
		RetryNext(&policy, row.attempt, command->first_at, row.at,
				  &row.wake_at) &&
		is_in_time(a, command, row.wake_at))
		row.event = event_of(command, "ActivityRetryScheduled",
							 "CompensationRetryScheduled");
	else
	{
		row.event = event_of(command, "ActivityFailed", "CompensationFailed");
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

	PG_RETURN_TEXT_P(cstring_to_text(idempotency_key(CurrentActivation->instance,
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
		command->heartbeat = ActivationKeep(a, PG_GETARG_JSONB_P(0));
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
	PG_RETURN_JSONB_P(command->heartbeat);
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
