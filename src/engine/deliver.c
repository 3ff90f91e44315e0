/*-------------------------------------------------------------------------
 *
 * deliver.c
 *	  What reaches a running instance from outside: requests to cancel,
 *	  terminate or pause it, and messages that the body has handlers for.
 *
 * Delivery happens when the body is blocked, and is recorded together with
 * the command in which it happened, so that each replay has it at the same
 * place.  A handler is run once: the state it led to is recorded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/inval.h"
#include "utils/timestamp.h"

#include "engine/child.h"
#include "engine/deliver.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/remote.h"
#include "engine/settle.h"
#include "engine/step.h"
#include "engine/transaction.h"
#include "engine/unblock.h"
#include "runtime/wakeup.h"

/* How many messages are handled in a transaction. */
#define MAX_BATCH	1000

/* ------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------
 */

/*
 * DeliverHasRequest: is there a cancel or terminate?
 */
bool
DeliverHasRequest(Activation *a)
{
	Jsonb	   *payload;

	return InboxControl(a->instance->chain, &payload) != NULL;
}

/*
 * DeliverMustLook: may something have come for the instance that should not
 * wait for the body to block, or is its time over?
 */
bool
DeliverMustLook(Activation *a)
{
	InboxRow   *rows;
	List	   *names = NIL;
	ListCell   *lc;

	if (a->look || a->control_seen != ControlGeneration)
		return true;
	if (a->instance->deadline != 0 &&
		a->instance->deadline <= GetCurrentTimestamp())
		return true;
	if (a->pass.handlers == NIL)
		return false;
	foreach(lc, a->pass.handlers)
		names = lappend(names, ((Handler *) lfirst(lc))->name);
	return InboxList(a->instance->chain, TextArray(names), 1, &rows) > 0;
}

static const char *
cancelled_event(CommandKind kind)
{
	switch (kind)
	{
		case COMMAND_ACTIVITY:
			return "ActivityCancelled";
		case COMMAND_TIMER:
			return "TimerCancelled";
		case COMMAND_SIGNAL:
			return "SignalCancelled";
		case COMMAND_EVENT:
			return "EventCancelled";
		case COMMAND_CONDITION:
			return "ConditionCancelled";
		case COMMAND_CHILD:
		case COMMAND_SPAWN:
		case COMMAND_COMPENSATION:
		case COMMAND_DISCARD:
		case COMMAND_UNDO:
			break;
		case COMMAND_AWAIT:
			return "AwaitCancelled";
	}
	return NULL;
}

/*
 * withdraw: a task that the body waits for; false if a client was faster, so
 * that its result is known now.
 */
static bool
withdraw(Activation *a, Command *command)
{
	if (command->kind == COMMAND_ACTIVITY)
		RemoteWithdraw(a);
	return command->state == COMMAND_ISSUED;
}

/*
 * deliver_cancel: the command that the body waits in is cancelled; one that
 * was not begun never is.
 */
static Delivery
deliver_cancel(Activation *a, Command *command, Jsonb *request)
{
	HistoryRow	row = {.event = "WorkflowCancelRequested"};
	bool		interrupts = !command->shielded &&
		(command->recorded || a->interrupted);
	JsonbParseState *data;
	Jsonb	  **ignored;

	(void) InboxTakeAll(a->instance->chain, "cancel", &ignored);
	a->dirty = true;
	if (a->cancel_after >= 0)
		return NOTHING_DELIVERED;

	UnblockFlush(a, command);
	ChildrenCancel(a);
	if (interrupts)
		interrupts = withdraw(a, command);
	a->cancel_in = interrupts ? command->position : 0;
	a->cancel_after = command->position - !(interrupts || command->recorded);
	/* a child goes its own way: only our waiting for it is over */
	if (interrupts && !ChildIs(command))
	{
		HistoryRow	end = {.event = cancelled_event(command->kind)};

		if (command->kind == COMMAND_ACTIVITY)
			end.data = StepLeft(command);
		ActivationRecord(a, command, &end);
	}
	JsonObjectBegin(&data);
	JsonObjectAddNumber(&data, "after", a->cancel_after);
	JsonObjectAddNumber(&data, "in", a->cancel_in);
	JsonObjectAddText(&data, "reason", JsonGetText(request, "reason"));
	row.data = JsonObjectEnd(&data);
	ActivationRecord(a, NULL, &row);
	a->cancel_reason = JsonGetText(request, "reason");
	if (a->cancel_reason != NULL)
		a->cancel_reason = MemoryContextStrdup(a->history_cxt, a->cancel_reason);
	return DELIVERED;
}

/*
 * end_by_result: an activity that ran beside a body is to be terminated, but a
 * client was faster: its parent has to know, to undo it.
 */
static bool
end_by_result(Activation *a)
{
	HistoryRow	row = {.event = "WorkflowCompleted"};

	if (strcmp(a->instance->workflow, ACTIVITY_WORKFLOW) != 0)
		return false;
	RemoteWithdraw(a);
	if (a->ncommands != 1 || a->commands[0]->state != COMMAND_COMPLETED)
		return false;
	row.result = a->commands[0]->result;
	SettleEnd(a, "completed", &row);
	return true;
}

/*
 * ignore_cancel: it is answered by that, lest it excuses what comes later.
 */
static void
ignore_cancel(Activation *a)
{
	Jsonb	  **ignored;

	(void) InboxTakeAll(a->instance->chain, "cancel", &ignored);
	a->dirty = true;
}

static void
withdraw_task(void *arg)
{
	RemoteWithdraw(arg);
}

/*
 * withdraw_or_forget: if the activity is gone nobody can say what its result
 * means, and this is to end all the same.
 */
static void
withdraw_or_forget(Activation *a)
{
	Phase		phase = a->phase;
	ErrorData  *error = TransactionTry(withdraw_task, a);

	if (error == NULL)
		return;
	if (!ErrorIsGap(error) && error->sqlerrcode != ERRCODE_DURABLE_UNDEFINED)
		ReThrowError(error);
	a->phase = phase;
	RemoteForget(a);
}

static Delivery
terminate(Activation *a, Command *command, Jsonb *request)
{
	Jsonb	  **ignored;

	if (a->queued)
		withdraw_or_forget(a);

	/* done, not dropped */
	(void) InboxTakeAll(a->instance->chain, "terminate", &ignored);
	if (command != NULL)
		UnblockFlush(a, command);
	if (end_by_result(a))
		return DELIVERY_ENDS;
	SettleEndByRequest(a, "cancelled", "WorkflowTerminated", "WF002",
					   "the workflow was terminated",
					   JsonGetText(request, "reason"));
	return DELIVERY_ENDS;
}

/*
 * is_to_stop: was it paused while it ran?
 */
static bool
is_to_stop(Activation *a)
{
	InstanceRow *now = InstanceLoad(a->instance->iid);

	if (now == NULL)
		ActivationLost(a);
	a->instance->suspended = now->suspended;
	a->instance->parked = now->parked;
	return now->suspended || now->parked;
}

/*
 * DeliverInsteadOfPass: one that is cancelled before it has run has nothing to
 * clean up, and is not begun.  A run that continues another one may have: what
 * it has to say about that, it says when it is blocked.  One that is terminated
 * while it is suspended is not run any more.  True: it has ended.
 */
bool
DeliverInsteadOfPass(Activation *a)
{
	InstanceRow *instance = a->instance;
	Jsonb	   *request;
	const char *kind = NULL;

	if (a->look &&
		(a->next_seq == 2 || instance->suspended || instance->parked))
		kind = InboxControl(a->instance->chain, &request);
	if (kind == NULL)
		return false;
	if (strcmp(kind, "terminate") == 0)
		(void) terminate(a, NULL, request);
	else if (a->instance->chain != a->instance->iid)
		return false;
	else
	{
		Jsonb	  **ignored;

		(void) InboxTakeAll(a->instance->chain, "cancel", &ignored);
		SettleEndByRequest(a, "cancelled", "WorkflowCancelled", "WF002",
						   "the workflow was cancelled",
						   JsonGetText(request, "reason"));
	}
	return true;
}

/*
 * DeliverRequests: what was asked of the instance, while its body is blocked
 * on a command or (NULL) it is being undone.
 */
Delivery
DeliverRequests(Activation *a, Command *command)
{
	Jsonb	   *request;
	const char *kind;
	Delivery	delivery = NOTHING_DELIVERED;

	/* not only at the begin of a transaction */
	AcceptInvalidationMessages();
	if (!a->look && !a->interrupted && a->control_seen == ControlGeneration)
		return NOTHING_DELIVERED;
	a->control_seen = ControlGeneration;
	a->look = false;
	kind = InboxControl(a->instance->chain, &request);
	if (kind != NULL && strcmp(kind, "terminate") == 0)
		return terminate(a, command, request);
	/* what is being undone cannot be cancelled */
	if (kind != NULL && command == NULL)
		ignore_cancel(a);
	else if (kind != NULL)
		delivery = deliver_cancel(a, command, request);
	a->interrupted = false;
	if (delivery == NOTHING_DELIVERED && is_to_stop(a))
	{
		if (command != NULL)
			UnblockFlush(a, command);
		SettleStop(a);
		return DELIVERY_ENDS;
	}
	return delivery;
}

/* ------------------------------------------------------------------
 * Handlers
 * ------------------------------------------------------------------
 */

/*
 * hold_for_handler: one that fails is mended, and the message waits for that.
 */
static void
hold_for_handler(Activation *a, const char *what, const char *function,
				 const ErrorData *error)
{
	if (a->pass.outcome == PASS_VERDICT)
		SettleHoldToMend(a, a->pass.reason);
	else
		SettleHoldToMend(a, psprintf("%s: %s %s failed: %s",
									 unpack_sql_state(error->sqlerrcode), what,
									 function, error->message));
}

static Jsonb *
position_of(int position, int64 update, Jsonb *state)
{
	JsonbParseState *data;

	JsonObjectBegin(&data);
	JsonObjectAddNumber(&data, "at", position);
	if (update != 0)
		JsonObjectAddNumber(&data, "update", update);
	JsonObjectAdd(&data, "state", state);
	return JsonObjectEnd(&data);
}

/* One message that was handled, before it is recorded. */
typedef struct Handled
{
	const InboxRow *message;
	const char *event;			/* NULL: leaves no trace */
	Jsonb	   *result;
	Jsonb	   *error;
} Handled;

/*
 * answer: tell who asked for an update what became of it.
 */
static void
answer(Activation *a, Handled *handled)
{
	AnswerStore(handled->message->mid, a->instance->iid, handled->result,
				handled->error);
	WakeupEnded(handled->message->mid);
}

static void
reject(Handled *handled, const char *sqlstate, const char *message)
{
	handled->event = NULL;
	handled->error = FailureMake(sqlstate, message, NULL);
}

/*
 * apply_update: validate, then apply.  False: the activation is over.
 */
static bool
apply_update(Activation *a, Handled *handled, Jsonb **state)
{
	const InboxRow *message = handled->message;
	Handler    *handler = ReplayHandler(a, HANDLER_UPDATE, message->name);
	Jsonb	   *args[2] = {*state, message->payload};
	Jsonb	   *result;
	ErrorData  *error;

	if (handler == NULL)
	{
		reject(handled, "WF004",
			   psprintf("the workflow has no handler for update \"%s\"", message->name));
		return true;
	}
	if (handler->validator != NULL)
	{
		(void) PassCallHandler(a, handler->validator, args, 2, &error);
		if (a->pass.outcome == PASS_VERDICT)
		{
			hold_for_handler(a, "validator", handler->validator, error);
			return false;
		}
		if (error != NULL)
		{
			handled->error = FailureFromError(error);
			return true;
		}
	}
	result = PassCallHandler(a, handler->function, args, 2, &error);
	if (a->pass.outcome == PASS_VERDICT)
	{
		hold_for_handler(a, "handler", handler->function, error);
		return false;
	}
	handled->event = "UpdateCompleted";
	if (error != NULL)
		handled->error = FailureFromError(error);
	else if (result == NULL || !JB_ROOT_IS_OBJECT(result) ||
			 JsonGet(result, "state") == NULL)
		handled->error = FailureMake("WF005", psprintf("handler %s of update \"%s\" returned no state",
													   handler->function, message->name),
									 "It must return {\"state\": ..., \"result\": ...}.");
	else
	{
		*state = JsonGet(result, "state");
		handled->result = JsonGet(result, "result");
	}
	return true;
}

/*
 * apply_signal: the state after a signal.  False: the activation is over.
 */
static bool
apply_signal(Activation *a, Handled *handled, Jsonb **state)
{
	const InboxRow *message = handled->message;
	Handler    *handler = ReplayHandler(a, HANDLER_SIGNAL, message->name);
	Jsonb	   *args[2] = {*state, message->payload};
	Jsonb	   *result;
	ErrorData  *error;

	handled->event = "SignalHandled";
	result = PassCallHandler(a, handler->function, args, 2, &error);
	if (error != NULL || a->pass.outcome == PASS_VERDICT)
	{
		hold_for_handler(a, "handler", handler->function, error);
		return false;
	}
	if (result != NULL)
		*state = result;
	return true;
}

/*
 * record_handled: all of a batch; the last row has the state they led to.
 */
static void
record_handled(Activation *a, int position, Handled *handled, int count,
			   Jsonb *state)
{
	int64	   *mids = palloc(sizeof(int64) * Max(count, 1));
	int			last = -1;

	for (int i = 0; i < count; i++)
	{
		mids[i] = handled[i].message->mid;
		if (handled[i].event != NULL)
			last = i;
		if (strcmp(handled[i].message->kind, "update") == 0)
			answer(a, &handled[i]);
	}
	for (int i = 0; i <= last; i++)
	{
		HistoryRow	row = {
			.event = handled[i].event, .name = handled[i].message->name,
			.args = handled[i].message->payload, .result = handled[i].result,
			.error = handled[i].error
		};
		bool		update = strcmp(handled[i].message->kind, "update") == 0;

		if (row.event == NULL)
			continue;
		row.data = position_of(position, update ? mids[i] : 0,
							   i == last ? state : NULL);
		ActivationRecord(a, NULL, &row);
	}
	InboxDelete(mids, count);
	a->dirty = true;
	if (last >= 0)
	{
		ActivationAddArrival(a, position, ActivationKeep(a, state));
		a->pass.next_arrival = a->narrivals;
		a->pass.state = a->arrivals[a->narrivals - 1].state;
		a->pass.has_state = true;
	}
}

/*
 * DeliverIsMet: is the condition true of the state?  False: the activation is
 * over.
 */
bool
DeliverIsMet(Activation *a, Command *condition, bool *met)
{
	Jsonb	   *args[1] = {a->pass.state};
	ErrorData  *error;
	Jsonb	   *result = PassCallHandler(a, condition->name, args, 1, &error);
	JsonbValue	value;

	if (error != NULL || a->pass.outcome == PASS_VERDICT)
	{
		hold_for_handler(a, "condition", condition->name, error);
		return false;
	}
	*met = result != NULL && JB_ROOT_IS_SCALAR(result) &&
		JsonbExtractScalar(&result->root, &value) &&
		value.type == jbvBool && value.val.boolean;
	return true;
}

/*
 * deliver_batch: handle what is there, up to a limit, or until the condition
 * that the body waits for is met.  How many there were, -1: the activation is
 * over.
 */
static int
deliver_batch(Activation *a, Command *command, int position, Datum names)
{
	InboxRow   *messages;
	int			count = InboxList(a->instance->chain, names, MAX_BATCH, &messages);
	Handled    *handled = palloc0(sizeof(Handled) * Max(count, 1));
	Jsonb	   *state = a->pass.state;
	int			i;

	for (i = 0; i < count; i++)
	{
		bool		update = strcmp(messages[i].kind, "update") == 0;

		handled[i].message = &messages[i];
		if (!(update ? apply_update(a, &handled[i], &state) :
			  apply_signal(a, &handled[i], &state)))
			return -1;
		if (command != NULL && command->kind == COMMAND_CONDITION)
		{
			bool		met;

			a->pass.state = state;
			if (!DeliverIsMet(a, command, &met))
				return -1;
			if (met)
			{
				record_handled(a, position, handled, i + 1, state);
				return 0;
			}
		}
	}
	if (count > 0)
		record_handled(a, position, handled, count, state);
	return count == MAX_BATCH ? count : 0;
}

/*
 * is_to_wait: is the body blocked on what does not run now?  An activity may
 * be one that is not yet due, or done elsewhere: then an update must not be left, for it would
 * wake the instance again and again.
 */
static bool
is_to_wait(Activation *a, const Command *command)
{
	return command != NULL &&
		(command->kind != COMMAND_ACTIVITY || !StepIsDue(command) ||
		 RemoteIs(a, command));
}

/*
 * DeliverRefuse: while an instance is being undone nothing is handled; what
 * would wake it again and again is answered.
 */
void
DeliverRefuse(Activation *a)
{
	InboxRow   *messages;
	Jsonb	  **ignored;
	int			count = InboxTakeAll(a->instance->chain, "cancel", &ignored);

	a->dirty = a->dirty || count > 0;
	count = InboxList(a->instance->chain, TextArray(NIL), MAX_BATCH, &messages);
	for (int i = 0; i < count; i++)
	{
		Handled		handled = {.message = &messages[i]};

		reject(&handled, "WF005", "the instance is being undone");
		record_handled(a, 0, &handled, 1, NULL);
	}
}

/*
 * DeliverMessages: handle what the body has handlers for, while it is blocked
 * on a command or (NULL) when it has returned.  False: the activation is over.
 */
bool
DeliverMessages(Activation *a, Command *command)
{
	int			position = command ? command->position : a->pass.position + 1;
	List	   *names = NIL;
	ListCell   *lc;
	Datum		array;
	int			more;

	/* an update that nobody handles is answered too, when it is time to wait */
	if (a->pass.handlers == NIL &&
		(!a->instance->updates || !is_to_wait(a, command)))
		return true;
	foreach(lc, a->pass.handlers)
	{
		Handler    *handler = lfirst(lc);

		if (handler->kind == HANDLER_SIGNAL)
			names = lappend(names, handler->name);
	}
	array = TextArray(names);
	if (command != NULL && command->kind == COMMAND_CONDITION)
	{
		bool		met;

		if (!DeliverIsMet(a, command, &met))
			return false;
		if (met)
			return true;
	}
	do
	{
		more = deliver_batch(a, command, position, array);
		if (more > 0 && !a->tx->inside)
			SettleCommit(a);
	} while (more > 0);
	return more == 0;
}
