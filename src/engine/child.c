/*-------------------------------------------------------------------------
 *
 * child.c
 *	  Instances that an instance has started, and what becomes of them.
 *
 * A child is started in the transaction that records it.  Its end and the
 * message to its parent are one transaction too.  Parent and child never
 * touch each other's rows: all else goes through the inbox.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "engine/child.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/settings.h"
#include "engine/start.h"
#include "engine/step.h"
#include "engine/transaction.h"
#include "runtime/wakeup.h"

static char *
child_id(Activation *a, const Command *command)
{
	char	   *id = JsonGetText(command->options, "id");

	return id != NULL ? id :
		psprintf("%s/%d.%d", a->instance->id, a->instance->run,
				 command->position);
}

/*
 * internal_input: what an activity that runs beside the body needs to be the
 * same as one that runs in it.
 */
static Jsonb *
internal_input(Activation *a, const Command *command)
{
	JsonbParseState *input;

	JsonObjectBegin(&input);
	JsonObjectAddText(&input, "activity", command->name);
	JsonObjectAdd(&input, "args", command->args);
	JsonObjectAdd(&input, "call", JsonGet(command->options, "call"));
	return JsonObjectEnd(&input);
}

static void
start(Activation *a, Command *command, StartRequest *request)
{
	memset(request, 0, sizeof(StartRequest));
	request->workflow = command->name;
	request->input = command->args;
	request->internal = JsonGetText(command->options, "internal");
	if (request->internal != NULL)
	{
		request->input = internal_input(a, command);
		request->settings = a->settings_json;
	}
	request->id = child_id(a, command);
	request->timeout = StartReadTimeout(JsonGetText(command->options, "timeout"));
	request->priority = a->instance->priority;
	request->tags = JsonEmpty();
	request->parent = a->instance;
	request->parent_position = command->position;
	/* before a retry this position may have had a child of the same id */
	request->on_conflict = command->position <= a->retried_through ?
		CONFLICT_RESTART : CONFLICT_ERROR;
	StartInstance(request);
}

/*
 * started: what is recorded of it: who it is, and what becomes of it when its
 * parent is cancelled or ends.
 */
static Jsonb *
started(Activation *a, const Command *command, const StartRequest *request)
{
	const char *compensate = JsonGetText(command->options, "compensate");
	bool		attempted = JsonGetInt(command->options, "compensate_attempted") != 0;
	JsonbParseState *data;

	if (command->kind == COMMAND_SPAWN)
	{
		const ActivityEntry *entry = StepResolve(a, command->name);

		if (compensate == NULL)
			compensate = entry->compensate;
		attempted = attempted || entry->compensate_attempted;
	}
	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "id", request->id);
	JsonObjectAddNumber(&data, "chain", request->chain);
	JsonObjectAddText(&data, "on_cancel", JsonGetText(command->options, "on_cancel"));
	JsonObjectAddText(&data, "on_close", JsonGetText(command->options, "on_close"));
	JsonObjectAddText(&data, "compensate", compensate);
	if (compensate != NULL && attempted)
		JsonObjectAddNumber(&data, "compensate_attempted", 1);
	return JsonObjectEnd(&data);
}

/*
 * unknown_outcome: a child that failed may have done what it was to do.
 */
static Jsonb *
unknown_outcome(void)
{
	JsonbParseState *data;

	JsonObjectBegin(&data);
	JsonObjectAddNumber(&data, "attempted", 1);
	return JsonObjectEnd(&data);
}

static const char *
event_of(const Command *command, const char *child, const char *activity)
{
	return command->kind == COMMAND_SPAWN ? activity : child;
}

/* A child that is started. */
typedef struct Starting
{
	Activation *activation;
	Command    *command;
	StartRequest request;
	Jsonb	   *data;			/* to be recorded */
} Starting;

static void
start_child(void *arg)
{
	Starting   *child = arg;

	(void) SettingsEnter(child->activation->settings);
	start(child->activation, child->command, &child->request);
	child->data = started(child->activation, child->command, &child->request);
}

/*
 * ChildStart: start it, and record that, or why it could not be.
 *
 * A workflow that is not there holds the parent, as an activity does.
 */
void
ChildStart(Activation *a, Command *command)
{
	Starting	child = {.activation = a, .command = command};
	HistoryRow	row = {0};
	ErrorData  *error;

	a->phase = PHASE_RESOLVE;
	a->running = command;
	/* its end is that of the settings, too */
	error = TransactionTry(start_child, &child);
	if (error != NULL &&
		(ErrorIsGap(error) || ErrorIsEnvironment(error) ||
		 error->sqlerrcode == ERRCODE_DURABLE_UNDEFINED))
		ReThrowError(error);
	/* the one that was begun here before a retry is about to be terminated */
	if (error == NULL && child.request.internal != NULL &&
		!child.request.is_new)
		ActivationLater(a);

	if (error == NULL)
	{
		row.event = event_of(command, "ChildStarted", "ActivityScheduled");
		row.data = child.data;
	}
	else
	{
		row.event = event_of(command, "ChildFailed", "ActivityFailed");
		row.error = FailureFromError(error);
	}
	a->phase = PHASE_ENGINE;
	ActivationRecord(a, command, &row);
}

/*
 * ChildIs: is there an instance for the command?
 */
bool
ChildIs(const Command *command)
{
	return command->kind == COMMAND_CHILD || command->kind == COMMAND_SPAWN;
}

/*
 * ChildIsOpen: and it has not ended?
 */
bool
ChildIsOpen(const Command *command)
{
	return ChildIs(command) && command->state == COMMAND_ISSUED;
}

static Command *
command_of_message(Activation *a, Jsonb *message)
{
	int			position = JsonGetInt(message, "position");
	Command    *command;

	/* of an earlier run, or known already */
	if (JsonGetInt(message, "parent") != a->instance->iid ||
		position < 1 || position > a->ncommands ||
		!ChildIsOpen(a->commands[position - 1]))
		return NULL;
	command = a->commands[position - 1];
	/* of one that was begun there before a retry */
	if (JsonGetInt(message, "chain") != JsonGetInt(command->options, "chain"))
		return NULL;
	return command;
}

/*
 * ChildResults: take the messages of children that have ended; how many.
 */
int
ChildResults(Activation *a)
{
	Jsonb	  **messages;
	int			count = InboxTakeAll(a->instance->chain, "child", &messages);

	for (int i = 0; i < count; i++)
	{
		Command    *command = command_of_message(a, messages[i]);
		HistoryRow	row = {0};

		if (command == NULL)
			continue;
		row.event = event_of(command, "ChildCompleted", "ActivityCompleted");
		row.result = JsonGet(messages[i], "result");
		row.error = JsonGet(messages[i], "error");
		if (row.error != NULL)
			row.event = event_of(command, "ChildFailed", "ActivityFailed");
		if (row.error != NULL && JsonGetInt(messages[i], "attempted") != 0)
			row.data = unknown_outcome();
		ActivationRecord(a, command, &row);
	}
	return count;
}

/*
 * tell: ask something of a child that is open.
 */
static void
tell(Activation *a, Command *command, const char *policy, const char *reason)
{
	int64		chain = JsonGetInt(command->options, "chain");
	JsonbParseState *payload;

	if (policy == NULL || strcmp(policy, "abandon") == 0 || chain == 0)
		return;
	JsonObjectBegin(&payload);
	JsonObjectAddText(&payload, "reason", reason);
	(void) InboxInsert(chain, policy, "", JsonObjectEnd(&payload));
	ControlChanged();
	WakeupMessage(chain);
	if (strcmp(policy, "terminate") == 0)
		WakeupInterrupt(chain);
}

/*
 * ChildrenCancel: the parent was cancelled.
 */
void
ChildrenCancel(Activation *a)
{
	for (int i = 0; i < a->ncommands; i++)
	{
		if (ChildIsOpen(a->commands[i]))
			tell(a, a->commands[i],
				 JsonGetText(a->commands[i]->options, "on_cancel"),
				 "The parent was cancelled.");
	}
}

/*
 * ChildrenClose: the parent has ended.
 */
void
ChildrenClose(Activation *a)
{
	for (int i = 0; i < a->ncommands; i++)
	{
		if (ChildIsOpen(a->commands[i]))
			tell(a, a->commands[i],
				 JsonGetText(a->commands[i]->options, "on_close"),
				 "The parent has ended.");
	}
}

/*
 * ChildrenTerminate: the parent has ended without its history being at hand:
 * its children follow by what was recorded.
 */
void
ChildrenTerminate(int64 parent)
{
	int64	   *chains;
	bool	   *terminated;
	int			count = InboxCloseChildren(parent, &chains, &terminated);

	for (int i = 0; i < count; i++)
	{
		WakeupMessage(chains[i]);
		if (terminated[i])
			WakeupInterrupt(chains[i]);
	}
	if (count > 0)
		ControlChanged();
}

/*
 * error_for_parent: a cancelled or timed out child is told apart from one that
 * failed.
 */
static Jsonb *
error_for_parent(const InstanceRow *child, const char *status, Jsonb *error)
{
	if (strcmp(status, "cancelled") == 0)
		return FailureMake("WF010", psprintf("child \"%s\" was cancelled", child->id),
						   JsonGetText(error, "detail"));
	if (strcmp(status, "timed_out") == 0)
		return FailureMake("WF011", psprintf("child \"%s\" timed out", child->id),
						   NULL);
	return error;
}

/*
 * ChildTellParent: an instance has ended; if another one started it, that one
 * gets a message.
 *
 * attempted: a client may have done what the child was to have done.
 */
void
ChildTellParent(const InstanceRow *child, const char *status, Jsonb *result,
				Jsonb *error, bool attempted)
{
	JsonbParseState *payload;

	if (child->parent == 0)
		return;
	JsonObjectBegin(&payload);
	JsonObjectAddNumber(&payload, "parent", child->parent);
	JsonObjectAddNumber(&payload, "position", child->parent_position);
	JsonObjectAddNumber(&payload, "chain", child->chain);
	JsonObjectAdd(&payload, "result", result);
	JsonObjectAdd(&payload, "error", error_for_parent(child, status, error));
	if (attempted)
		JsonObjectAddNumber(&payload, "attempted", 1);
	if (InstanceHears(child->parent))
	{
		(void) InboxInsert(child->parent_chain, "child", "",
						   JsonObjectEnd(&payload));
		WakeupMessageTo(child->parent_chain, child->run_as);
	}
}

/*
 * ChildrenTellAgain: a parent goes on that had ended, and does not know of
 * children that ended since: of those before that position.
 */
void
ChildrenTellAgain(int64 parent, int before)
{
	int64	   *iids;
	int			count = InstanceEndedChildren(parent, before, &iids);

	for (int i = 0; i < count; i++)
	{
		InstanceRow *child = InstanceLoad(iids[i]);
		Outcome		outcome;

		InstanceOutcome(child->iid, &outcome);
		ChildTellParent(child, child->status, outcome.result, outcome.error,
						false);
	}
}
