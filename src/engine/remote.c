/*-------------------------------------------------------------------------
 *
 * remote.c
 *	  Activities that clients of a queue do.
 *
 * An attempt is a row of task, and its outcome a message.  An instance has at
 * most one such row: of the step that its body waits in, or of the
 * compensation that it has come to.
 *
 * A client deletes the row and sends the message in one transaction.  So the
 * driver locks the row first and reads the messages then: either it has the
 * row, and no client can end the attempt, or the outcome is there.  A worker
 * does not wait for a client's open transaction: it looks again later.
 *
 * A client that had the row and is not heard of again may have done the work
 * or not: the step was attempted, and is undone if that was asked for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "engine/compensate.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/remote.h"
#include "engine/step.h"
#include "runtime/process.h"
#include "runtime/wakeup.h"

/*
 * RemoteIs: is it done by clients of a queue?
 */
bool
RemoteIs(Activation *a, const Command *command)
{
	return !OidIsValid(command->function) &&
		StepResolve(a, command->name)->queue != NULL;
}

/*
 * lock_task: the instance's task, which no client can touch from now on; false
 * if it has none.
 */
static bool
lock_task(Activation *a, TaskRow *task)
{
	switch (TaskLock(a->instance->iid, !IsDurableWorker, task))
	{
		case TASK_NONE:
			return false;
		case TASK_LOCKED:
			return true;
		case TASK_BUSY:
			break;
	}
	ActivationLater(a);
}

/*
 * find_command: of a task or a message, NULL if it is not the business of this
 * run any more.
 */
static Command *
find_command(Activation *a, int position, bool undo)
{
	if (undo)
		return a->closing ? CompensationFind(a, position) : NULL;
	if (a->closing != NULL || position < 1 || position > a->ncommands)
		return NULL;
	return a->commands[position - 1];
}

/*
 * take_result: what a client says of an attempt.
 */
static void
take_result(Activation *a, Jsonb *message)
{
	Jsonb	   *error = JsonGet(message, "error");
	Command    *command;

	if (JsonGetInt(message, "iid") != a->instance->iid)
		return;
	command = find_command(a, JsonGetInt(message, "position"),
						   JsonGetInt(message, "undo") != 0);
	/* of an attempt that was given up */
	if (command == NULL || command->state != COMMAND_ISSUED ||
		JsonGetInt(message, "attempt") != command->attempts + 1)
		return;
	/* its policy, and what undoes it */
	(void) StepResolve(a, command->name);
	command->heartbeat = ActivationKeep(a, JsonGet(message, "heartbeat"));
	command->beating = false;
	/* one that had it before was lost */
	if (JsonGetInt(message, "clients") > 1)
		command->attempted = true;
	if (error == NULL)
		StepComplete(a, command, JsonGet(message, "result"),
					 JsonGetInt(message, "started_at"));
	else
		StepRecordFailure(a, command, error, JsonGetText(error, "sqlstate"),
						  JsonGet(message, "final") == NULL);
}

static void
take_results(Activation *a)
{
	Jsonb	  **messages;
	int			count = InboxTakeAll(a->instance->chain, "task", &messages);

	a->dirty = a->dirty || count > 0;
	for (int i = 0; i < count; i++)
		take_result(a, messages[i]);
}

/* ------------------------------------------------------------------
 * An attempt
 * ------------------------------------------------------------------
 */

/*
 * queued_data: what undoes the step when it is done, or (attempted) should
 * nobody know what became of it.  By then the body may not be run any more.
 */
static Jsonb *
queued_data(Activation *a, const ActivityEntry *entry, const Command *command)
{
	const char *compensate = StepCompensation(a, command);
	JsonbParseState *data;

	if (compensate == NULL)
		return NULL;
	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "compensate", compensate);
	if (command->compensate_attempted || entry->compensate_attempted)
		JsonObjectAddNumber(&data, "compensate_attempted", 1);
	return JsonObjectEnd(&data);
}

/*
 * enqueue: leave the next attempt to the clients.
 */
static void
enqueue(Activation *a, Command *command, TaskRow *task)
{
	const ActivityEntry *entry = StepResolve(a, command->name);
	TimeLimits	limits;
	HistoryRow	row = {0};

	if (command->undoes != NULL)
		command->args = ActivationKeep(a, CompensationArguments(command->undoes,
																NULL, NULL));
	StepLimits(entry, command, &limits);
	*task = (TaskRow) {
		.iid = a->instance->iid, .position = command->position,
		.undo = command->kind == COMMAND_UNDO,
		.shielded = command->shielded || command->kind == COMMAND_UNDO,
		.chain = a->instance->chain, .run_as = a->instance->run_as,
		.queue = entry->queue, .served_by = entry->served_by,
		.served_by_name = entry->served_by_name,
		.activity = command->name, .args = command->args,
		.attempt = command->attempts + 1, .heartbeat = command->heartbeat,
		.key = StepKey(a->instance, command),
		.start_to_close = limits.start_to_close,
		.heartbeat_timeout = limits.heartbeat,
		.scheduled_at = ActivationStamp(a)
	};
	TaskInsert(task);
	if (command->first_at == 0)
		command->first_at = task->scheduled_at;
	row.event = StepEvent(command, "ActivityQueued", "CompensationQueued");
	row.started_at = command->first_at;
	row.data = queued_data(a, entry, command);
	ActivationRecord(a, command, &row);
	a->queued = true;
	WakeupEnded(WakeupQueueNumber(entry->queue));
}

/* Limit the deadline, if there is such a limit. */
static void
limit_by(TimestampTz *deadline, const char **kind, const char *name,
		 TimestampTz from, int64 milliseconds)
{
	TimestampTz until = from + milliseconds * 1000;

	if (from == 0 || milliseconds == 0 || (*deadline != 0 && *deadline <= until))
		return;
	*deadline = until;
	*kind = name;
}

/*
 * find_deadline: when an attempt that clients have not ended is over, and
 * which limit that is; 0: never.
 */
static TimestampTz
find_deadline(Activation *a, const Command *command, const TaskRow *task,
			  const char **kind)
{
	const ActivityEntry *entry = StepResolve(a, command->name);
	TimestampTz deadline = 0;
	TimeLimits	limits;

	StepLimits(entry, command, &limits);
	limit_by(&deadline, kind, "schedule_to_close", command->first_at,
			 limits.schedule_to_close);
	if (task->started_at == 0)
		limit_by(&deadline, kind, "schedule_to_start", task->scheduled_at,
				 entry->schedule_to_start);
	limit_by(&deadline, kind, "start_to_close", task->started_at,
			 limits.start_to_close);
	limit_by(&deadline, kind, "heartbeat", task->alive_at, limits.heartbeat);
	return deadline;
}

static void
time_out(Activation *a, Command *command, const TaskRow *task,
		 const char *kind)
{
	TaskDelete(a->instance->iid);
	if (task->clients > 0)
		command->attempted = true;
	command->heartbeat = ActivationKeep(a, task->heartbeat);
	StepRecordFailure(a, command,
					  FailureMake("WF003", psprintf("activity \"%s\" timed out", command->name),
								  psprintf("It took longer than its %s timeout.", kind)),
					  "WF003", true);
}

/*
 * RemoteAdvance: an activity that clients do.  False: it is to be waited for, at
 * most until the deadline (0: for ever).
 */
bool
RemoteAdvance(Activation *a, Command *command, TimestampTz *deadline)
{
	TaskRow		task = {0};
	const char *kind = NULL;
	int			attempts = command->attempts;
	bool		found = lock_task(a, &task);

	take_results(a);
	if (command->state != COMMAND_ISSUED || command->attempts != attempts)
		return true;
	if (!found)
		enqueue(a, command, &task);
	*deadline = find_deadline(a, command, &task, &kind);
	if (*deadline == 0 || *deadline > GetCurrentTimestamp())
		return false;
	time_out(a, command, &task, kind);
	return true;
}

/* ------------------------------------------------------------------
 * Giving up
 * ------------------------------------------------------------------
 */

/*
 * withdraw: nobody waits for the task any more; its command, or NULL.  A client
 * that has it learns from its token.  If one was faster, its result is known
 * now.
 */
static Command *
withdraw(Activation *a)
{
	TaskRow		task = {0};
	Command    *command = NULL;

	if (!a->queued)
		return NULL;
	if (lock_task(a, &task))
	{
		TaskDelete(a->instance->iid);
		command = find_command(a, task.position, task.undo);
	}
	if (command != NULL && task.clients > 0)
		command->attempted = true;
	take_results(a);
	return command;
}

/*
 * RemoteWithdraw: the same, and the caller will see what became of the command.
 */
void
RemoteWithdraw(Activation *a)
{
	(void) withdraw(a);
}

/*
 * RemoteForget: whatever becomes of the task is of no interest any more.
 */
void
RemoteForget(Activation *a)
{
	TaskDelete(a->instance->iid);
	a->queued = false;
}

/*
 * RemoteClose: the body is done with: what it waited for is not done any more,
 * or needs to be undone.
 */
void
RemoteClose(Activation *a)
{
	Command    *command = withdraw(a);
	HistoryRow	row = {.event = "ActivityCancelled"};

	if (command == NULL || command->state != COMMAND_ISSUED)
		return;
	row.data = StepLeft(command);
	ActivationRecord(a, command, &row);
}

/*
 * RemoteWasAttempted: may a client have done what is not known to be done?
 */
bool
RemoteWasAttempted(const Activation *a)
{
	for (int i = 0; i < a->ncommands; i++)
	{
		if (a->commands[i]->attempted &&
			a->commands[i]->state != COMMAND_COMPLETED)
			return true;
	}
	return false;
}
