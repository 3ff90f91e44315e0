/*-------------------------------------------------------------------------
 *
 * unblock.c
 *	  What a body waits for: has it come, or is there to be waited?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"

#include "engine/child.h"
#include "engine/deliver.h"
#include "engine/json.h"
#include "engine/remote.h"
#include "engine/settle.h"
#include "engine/step.h"
#include "engine/unblock.h"
#include "runtime/process.h"
#include "runtime/wakeup.h"

/* Above that many, subtransactions slow down the whole server. */
#define MAX_INSIDE	60

/*
 * With more open children than that, a body that waits for them is not woken
 * for each: it naps for some times as long as a look takes, in microseconds
 * at least and at most.
 */
#define FEW_CHILDREN	32
#define NAP_FACTOR		10
#define MIN_NAP			(20 * INT64CONST(1000))
#define MAX_NAP			(2 * USECS_PER_SEC)

static void
record(Activation *a, Command *command, const char *event, Jsonb *result)
{
	HistoryRow	row = {
		.event = event, .result = result, .wake_at = command->wake_at
	};

	ActivationRecord(a, command, &row);
}

static bool
is_over(TimestampTz time)
{
	return time != 0 && time <= GetCurrentTimestamp();
}

static TimestampTz
earlier(TimestampTz a, TimestampTz b)
{
	if (a == 0 || b == 0)
		return a == 0 ? b : a;
	return Min(a, b);
}

static List *
await(List *awaits, const char *kind, const char *name)
{
	return lappend(awaits, psprintf("%s:%s", kind, name));
}

/*
 * UnblockFlush: commands that did not block the body get into the history, up
 * to the one that does, or (NULL) all.
 */
void
UnblockFlush(Activation *a, const Command *before)
{
	int			end = before ? before->position - 1 : a->ncommands;
	int			i = end;

	ActivationRecordMarkers(a);
	while (i > 0 && !a->commands[i - 1]->recorded)
		i--;
	for (; i < end; i++)
	{
		Command    *command = a->commands[i];

		switch (command->kind)
		{
			case COMMAND_TIMER:
				record(a, command, "TimerStarted", NULL);
				break;
			case COMMAND_SIGNAL:
				record(a, command, "SignalAwaited", NULL);
				break;
			case COMMAND_CHILD:
			case COMMAND_SPAWN:
				ChildStart(a, command);
				break;
			case COMMAND_COMPENSATION:
				record(a, command, "CompensationAdded", NULL);
				break;
			case COMMAND_DISCARD:
				record(a, command, "CompensationsDiscarded", NULL);
				break;
			default:
				elog(ERROR, "command %d was not recorded", command->position);
		}
	}
}

/* ------------------------------------------------------------------
 * Each kind.  True: there is more to do now.
 * ------------------------------------------------------------------
 */

/*
 * unblock_remote: an activity that clients do.
 */
static bool
unblock_remote(Activation *a, Command *command)
{
	TimestampTz deadline;

	if (RemoteAdvance(a, command, &deadline))
		return true;
	SettleWait(a, "waiting_for_activity", await(NIL, "task", ""), NULL, deadline);
	return false;
}

static bool
unblock_activity(Activation *a, Command *command)
{
	if (!StepIsDue(command))
	{
		SettleWait(a, "waiting_for_activity", NIL, NULL, command->wake_at);
		return false;
	}
	if (a->tx->inside && a->tx->count >= MAX_INSIDE)
	{
		if (!ReadyRelease(a->instance->iid, a->lease))
			ActivationLost(a);
		SettleCommit(a);
		ereport(NOTICE,
				(errmsg("instance \"%s\" has more steps than fit into one transaction",
						a->instance->id),
				 errhint("Commit and call durable_run() again, or CALL durable_work().")));
		return false;
	}
	if (RemoteIs(a, command))
		return unblock_remote(a, command);
	/* it was one of a queue when it was begun */
	if (a->queued)
	{
		RemoteWithdraw(a);
		if (command->state != COMMAND_ISSUED || !StepIsDue(command))
			return true;
	}
	if (a->dirty)
		SettleCommit(a);
	StepRun(a, command);
	return true;
}

static bool
unblock_timer(Activation *a, Command *command)
{
	if (is_over(command->wake_at))
	{
		record(a, command, "TimerExpired", NULL);
		return true;
	}
	if (!command->recorded)
		record(a, command, "TimerStarted", NULL);
	SettleWait(a, "waiting_for_timer", NIL, NULL, command->wake_at);
	return false;
}

static bool
unblock_signal(Activation *a, Command *command)
{
	Jsonb	   *payload = InboxTake(a->instance->chain, "signal", command->name,
									CurrentMemoryContext);

	if (payload != NULL)
		record(a, command, "SignalReceived", payload);
	else if (is_over(command->wake_at))
		record(a, command, "SignalTimedOut", NULL);
	if (command->state != COMMAND_ISSUED)
		return true;

	if (!command->recorded)
		record(a, command, "SignalAwaited", NULL);
	SettleWait(a, "waiting_for_event", await(NIL, "signal", command->name),
			   NULL, command->wake_at);
	return false;
}

static bool
unblock_event(Activation *a, Command *command)
{
	Jsonb	   *filter = JsonGet(command->args, "filter");
	bool		competing;
	Jsonb	   *event = InboxTakeEvent(a->instance->chain, command->name,
									   filter, &competing, CurrentMemoryContext);

	if (competing)
		WakeupTaken();
	if (event != NULL)
		record(a, command, "EventReceived", event);
	else if (is_over(command->wake_at))
		record(a, command, "EventTimedOut", NULL);
	if (command->state != COMMAND_ISSUED)
		return true;

	if (!command->recorded)
	{
		/* who waits without having subscribed does so from now on */
		if (!SubscriptionExists(a->instance->chain, command->name) &&
			!SubscriptionInsert(a->instance->chain, command->name,
								"broadcast", NULL, a->instance->run_as))
		{
			SettleHold(a, psprintf("WF005: events of type \"%s\" are competed for. Call durable_subscribe() with mode => 'competing' first.",
								   command->name));
			return false;
		}
		a->subscribed = true;
		record(a, command, "EventAwaited", NULL);
	}
	SettleWait(a, "waiting_for_event", await(NIL, "event", command->name),
			   filter, command->wake_at);
	return false;
}

static bool
unblock_condition(Activation *a, Command *command)
{
	bool		met;

	if (!DeliverIsMet(a, command, &met))
		return false;
	if (met)
		record(a, command, "ConditionMet", NULL);
	else if (is_over(command->wake_at))
		record(a, command, "ConditionTimedOut", NULL);
	if (command->state != COMMAND_ISSUED)
		return true;

	if (!command->recorded)
		record(a, command, "ConditionAwaited", NULL);
	SettleWait(a, "waiting_for_event", NIL, NULL, command->wake_at);
	return false;
}

static bool
unblock_child(Activation *a, Command *command)
{
	if (!command->recorded)
		ChildStart(a, command);
	else
		(void) ChildResults(a);
	if (command->state != COMMAND_ISSUED)
		return true;
	SettleWait(a, "waiting_for_child", await(NIL, "child", ""), NULL, 0);
	return false;
}

/* ------------------------------------------------------------------
 * Several at once
 * ------------------------------------------------------------------
 */

/* What is still to be waited for. */
typedef struct Waits
{
	List	   *awaits;
	void	   *child_messages; /* of these, those of children */
	TimestampTz wake_at;
	bool		child;
	bool		workflow;		/* one that is not only an activity */
	bool		message;
} Waits;

/*
 * look_at: has one of the awaited come?
 */
static void
look_at(Activation *a, Command *command, Waits *waits)
{
	Jsonb	   *payload;

	if (command->state != COMMAND_ISSUED)
		return;
	switch (command->kind)
	{
		case COMMAND_TIMER:
			if (is_over(command->wake_at))
				record(a, command, "TimerExpired", NULL);
			else
				waits->wake_at = earlier(waits->wake_at, command->wake_at);
			break;
		case COMMAND_SIGNAL:
			payload = InboxTake(a->instance->chain, "signal", command->name,
								CurrentMemoryContext);
			if (payload != NULL)
				record(a, command, "SignalReceived", payload);
			else
				waits->awaits = await(waits->awaits, "signal", command->name);
			waits->message = true;
			break;
		case COMMAND_CHILD:
		case COMMAND_SPAWN:
			if (!waits->child)
			{
				waits->awaits = await(waits->awaits, "child", "");
				waits->child_messages = llast(waits->awaits);
			}
			waits->child = true;
			waits->workflow = waits->workflow || command->kind == COMMAND_CHILD;
			break;
		default:
			elog(ERROR, "command %d cannot be awaited", command->position);
	}
}

static bool
has_child(Activation *a, const Command *await)
{
	for (int i = 0; i < await->nhandles; i++)
	{
		if (ChildIs(a->commands[await->handles[i] - 1]))
			return true;
	}
	return false;
}

/*
 * find_winner: the first of the awaited that has come to its end, 0 if none.
 */
static int
find_winner(Activation *a, const Command *await)
{
	Command    *winner = NULL;

	for (int i = 0; i < await->nhandles; i++)
	{
		Command    *command = a->commands[await->handles[i] - 1];

		if (command->state != COMMAND_ISSUED &&
			(winner == NULL || command->at < winner->at))
			winner = command;
	}
	return winner ? winner->position : 0;
}

static int
count_open_children(Activation *a)
{
	int			count = 0;

	for (int i = 0; i < a->ncommands; i++)
		count += ChildIsOpen(a->commands[i]);
	return count;
}

/*
 * UnblockNap: some children have ended (taken), but not all that are waited for.
 * To be woken for each of very many would cost the square of their number,
 * since every look begins with the whole history: when it is worth to look
 * again, not being woken by children until then; 0: be woken by the next one.
 *
 * Drivers by SQL look only when there is nothing else to do.
 */
TimestampTz
UnblockNap(Activation *a, int taken)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		cost = Max(now - a->began_at, MIN_NAP / NAP_FACTOR);

	if (!IsDurableWorker || taken == 0 || count_open_children(a) <= FEW_CHILDREN)
		return 0;
	return now + Min(cost * NAP_FACTOR, MAX_NAP);
}

/*
 * first_due: of several timers that are over the one that was so first, NULL
 * if none is.
 */
static Command *
first_due(Activation *a, const Command *await)
{
	Command    *first = NULL;

	for (int i = 0; i < await->nhandles; i++)
	{
		Command    *timer = a->commands[await->handles[i] - 1];

		if (timer->kind == COMMAND_TIMER && timer->state == COMMAND_ISSUED &&
			is_over(timer->wake_at) &&
			(first == NULL || timer->wake_at < first->wake_at))
			first = timer;
	}
	return first;
}

static bool
unblock_await(Activation *a, Command *command)
{
	Waits		waits = {.wake_at = command->wake_at};
	int			winner;
	int			open = 0;
	int			taken = 0;

	if (has_child(a, command))
		taken = ChildResults(a);
	winner = find_winner(a, command);
	for (int i = 0; i < command->nhandles; i++)
	{
		Command    *awaited = a->commands[command->handles[i] - 1];

		/* one is enough: leave messages for others */
		if (command->any && winner != 0)
			break;
		if (command->any && awaited->kind == COMMAND_TIMER &&
			is_over(awaited->wake_at))
			awaited = first_due(a, command);
		look_at(a, awaited, &waits);
		if (awaited->state == COMMAND_ISSUED)
			open++;
		else if (winner == 0)
			winner = awaited->position;
	}

	if (command->any ? winner != 0 : open == 0)
	{
		JsonbParseState *state;

		JsonObjectBegin(&state);
		JsonObjectAddNumber(&state, "handle", winner);
		record(a, command, "AwaitCompleted", JsonObjectEnd(&state));
		return true;
	}
	if (is_over(command->wake_at))
	{
		record(a, command, "AwaitTimedOut", NULL);
		return true;
	}
	if (!command->recorded)
		record(a, command, "AwaitStarted", NULL);
	if (!command->any && UnblockNap(a, taken) != 0)
	{
		waits.awaits = list_delete_ptr(waits.awaits, waits.child_messages);
		waits.wake_at = earlier(waits.wake_at, UnblockNap(a, taken));
	}
	SettleWait(a, waits.workflow ? "waiting_for_child" :
			   waits.child ? "waiting_for_activity" :
			   waits.message ? "waiting_for_event" : "waiting_for_timer",
			   waits.awaits, NULL, waits.wake_at);
	return false;
}

/*
 * UnblockCommand: let the body go on, or wait.
 */
bool
UnblockCommand(Activation *a, Command *command)
{
	UnblockFlush(a, command);
	switch (command->kind)
	{
		case COMMAND_ACTIVITY:
			return unblock_activity(a, command);
		case COMMAND_TIMER:
			return unblock_timer(a, command);
		case COMMAND_SIGNAL:
			return unblock_signal(a, command);
		case COMMAND_EVENT:
			return unblock_event(a, command);
		case COMMAND_CONDITION:
			return unblock_condition(a, command);
		case COMMAND_CHILD:
		case COMMAND_SPAWN:
			return unblock_child(a, command);
		case COMMAND_AWAIT:
			return unblock_await(a, command);
		case COMMAND_COMPENSATION:
		case COMMAND_DISCARD:
		case COMMAND_UNDO:
			break;
	}
	elog(ERROR, "unexpected command");
}
