/*-------------------------------------------------------------------------
 *
 * replay.c
 *	  What a primitive does in a body: take a position, match, yield.
 *
 * A body must not go on when it has to wait, or when it has left the path of
 * its history.  Then an error is thrown that PL/pgSQL's OTHERS does not catch
 * (query_canceled), and the pass remembers why: whatever the body makes of
 * the error, that is the outcome of the pass.  Every further primitive throws
 * it again.
 *
 * Nothing here touches a table: commands are in memory, which survives the
 * exception blocks of the body.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "engine/failure.h"
#include "engine/json.h"
#include "engine/replay.h"
#include "runtime/lease.h"
#include "runtime/process.h"

DurableContext CurrentContext = CONTEXT_NONE;
Activation *CurrentActivation = NULL;

/*
 * drop_cancel: one that came before is not for this code; but a body or a
 * handler that an activity has called (durable_check, durable_query) is part
 * of the activity, and a limit of that is hit only once.
 */
static void
drop_cancel(void)
{
	if (TimeoutIsDue())
		return;
	QueryCancelPending = false;
	/* just now */
	if (TimeoutIsDue())
		QueryCancelPending = true;
}

/*
 * ContextSet: from now on it is this one's code.
 *
 * In a worker a cancel is for user's code only: it waits no longer than that,
 * and one that came before must not hit the next.  An error lifts the hold, so
 * whoever catches one calls this first.
 */
void
ContextSet(DurableContext context)
{
	bool		entered = context != CurrentContext;

	CurrentContext = context;
	if (!IsDurableWorker)
		return;
	if (context == CONTEXT_BODY || context == CONTEXT_ACTIVITY)
	{
		if (entered)
			drop_cancel();
		QueryCancelHoldoffCount = 0;
	}
	else
		QueryCancelHoldoffCount = 1;
}

/* A body that catches our signal this often will not stop by itself. */
#define MAX_SWALLOWED	100
#define MAX_SWALLOWED_ALL	10000

/*
 * leave_body: the error that ends the pass.
 *
 * It is never shown, so it needs no context, which costs more than all else.
 * A body that does not let it pass meets another one that OTHERS does not
 * catch, and in the end loses its session.
 */
static void
leave_body(Activation *a)
{
	int			swallowed = a->pass.swallowed;

	error_context_stack = NULL;
	if (swallowed >= MAX_SWALLOWED_ALL)
		LeaseCondemn(a->instance->iid,
					 "WF006: the body catches the error that ends a pass");
	ereport(swallowed < MAX_SWALLOWED_ALL ? ERROR : FATAL,
			(errcode(swallowed < MAX_SWALLOWED ?
					 ERRCODE_QUERY_CANCELED : ERRCODE_ASSERT_FAILURE),
			 errmsg_internal("the workflow yields to durable"),
			 errdetail_internal("This error ends a pass over the workflow's body. It must not be caught.")));
}

/*
 * ReplayCondemn: the outcome of the pass is that the instance must not go on.
 */
void
ReplayCondemn(Activation *a, int sqlerrcode, const char *reason,
			  const char *hint)
{
	MemoryContext old = MemoryContextSwitchTo(a->pass_cxt);
	Pass	   *pass = &a->pass;

	pass->outcome = PASS_VERDICT;
	pass->sqlerrcode = sqlerrcode;
	pass->reason = psprintf("%s: %s%s%s", unpack_sql_state(sqlerrcode), reason,
							hint ? ". " : "", hint ? hint : "");
	MemoryContextSwitchTo(old);
}

/*
 * ReplayVerdict: the same, from within the body.
 */
void
ReplayVerdict(Activation *a, int sqlerrcode, const char *reason,
			  const char *hint)
{
	ReplayCondemn(a, sqlerrcode, reason, hint);
	leave_body(a);
	pg_unreachable();
}

/*
 * ReplayBlock: the body waits for a command.
 */
void
ReplayBlock(Activation *a, Command *command)
{
	a->pass.outcome = PASS_BLOCKED;
	a->pass.blocked_on = command;
	leave_body(a);
	pg_unreachable();
}

/*
 * ReplayContinue: the body goes on as a new run.
 */
void
ReplayContinue(Activation *a, Jsonb *input)
{
	MemoryContext old = MemoryContextSwitchTo(a->pass_cxt);

	a->pass.outcome = PASS_CONTINUED;
	a->pass.result = JsonCopy(input);
	MemoryContextSwitchTo(old);
	leave_body(a);
	pg_unreachable();
}

static void
refuse_outside(const char *primitive)
{
	if (CurrentContext == CONTEXT_ACTIVITY)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("%s() cannot be called in an activity", primitive),
				 errhint("Call it in the workflow's body; an activity is one step of it.")));
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_WRONG_STATE),
			 errmsg("%s() can only be called in a workflow that durable runs",
					primitive),
			 errhint("Register the function with durable_register() and start it with durable_start().")));
}

/*
 * ReplayEnter: every primitive begins here.
 */
Activation *
ReplayEnter(const char *primitive)
{
	Activation *a = CurrentActivation;

	if (CurrentContext != CONTEXT_BODY)
		refuse_outside(primitive);

	if (unlikely(a->pass.in_handler))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_SANDBOX),
				 errmsg("%s() cannot be called in a handler", primitive),
				 errhint("A handler is a function of the state and the message. Act upon the new state in the workflow's body.")));
	if (unlikely(a->pass.outcome != PASS_OPEN))
	{
		if (++a->pass.swallowed >= MAX_SWALLOWED)
			ReplayCondemn(a, ERRCODE_DURABLE_SANDBOX,
						  psprintf("the body catches query_canceled in a loop, after position %d",
								   a->pass.position),
						  "Let that error pass.");
		leave_body(a);
	}
	if (unlikely(a->pass.broken))
		ReplayVerdict(a, ERRCODE_DURABLE_SANDBOX,
					  "the body of a workflow must not say ROLLBACK",
					  "Steps commit by themselves.");
	return a;
}

/* ------------------------------------------------------------------
 * Matching
 * ------------------------------------------------------------------
 */

static const char *
kind_name(CommandKind kind)
{
	switch (kind)
	{
		case COMMAND_ACTIVITY:
			return "activity";
		case COMMAND_SPAWN:
			return "spawned activity";
		case COMMAND_TIMER:
			return "timer";
		case COMMAND_SIGNAL:
			return "signal";
		case COMMAND_EVENT:
			return "event";
		case COMMAND_CONDITION:
			return "condition";
		case COMMAND_CHILD:
			return "child";
		case COMMAND_AWAIT:
			return "await";
		case COMMAND_COMPENSATION:
		case COMMAND_UNDO:
			return "compensation";
		case COMMAND_DISCARD:
			return "discarding of";
	}
	return "command";
}

/* How much of a command's arguments is told. */
#define MAX_DESCRIPTION	1000

static char *
describe(CommandKind kind, const char *name, Jsonb *args)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "%s %s", kind_name(kind), name);
	if (args != NULL)
	{
		appendStringInfoChar(&text, ' ');
		JsonbToCString(&text, &args->root, VARSIZE(args));
	}
	if (text.len > MAX_DESCRIPTION)
		strcpy(text.data + pg_mbcliplen(text.data, text.len, MAX_DESCRIPTION),
			   "...");
	return text.data;
}

/*
 * ReplayDescribe: a command, for messages.
 */
char *
ReplayDescribe(const Command *command)
{
	return describe(command->kind, command->name, command->args);
}

static bool
args_match(const Command *command, const CommandRequest *request)
{
	if (command->args == NULL || request->args == NULL)
		return command->args == request->args;
	return JsonEqual(command->args, request->args);
}

static char *
mismatch(const Command *command, const CommandRequest *request)
{
	return psprintf("at position %d the history has %s, but the workflow asks for %s",
					command->position,
					describe(command->kind, command->name, command->args),
					describe(request->kind, request->name, request->args));
}

static void
match(Activation *a, const Command *command, const CommandRequest *request)
{
	if (command->kind == request->kind &&
		strcmp(command->name, request->name) == 0)
	{
		if (args_match(command, request))
			return;
		if (durable_argument_mismatch == WARNING &&
			request->kind == COMMAND_ACTIVITY)
		{
			ereport(WARNING,
					(errcode(ERRCODE_DURABLE_DETERMINISM),
					 errmsg_internal("instance \"%s\": %s", a->instance->id,
									 mismatch(command, request))));
			return;
		}
	}
	ReplayVerdict(a, ERRCODE_DURABLE_DETERMINISM, mismatch(command, request),
				  "Mend the workflow and call durable_resume().");
}

/*
 * check_step_id: the caller's id must be new in the run, as far as the body
 * has come.
 */
static void
check_step_id(Activation *a, const char *id)
{
	int			position = ActivationStepPosition(a, id);

	if (position > 0 && position <= a->pass.position)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_DUPLICATE),
				 errmsg("step id \"%s\" is already used in this run", id),
				 errhint("Give each step an id of its own, or leave it out.")));
}

/* ------------------------------------------------------------------
 * What reaches the body from outside
 * ------------------------------------------------------------------
 */

/*
 * deliver_through: the messages that came in up to that command have had
 * their effect on the state.
 */
static void
deliver_through(Activation *a, int position)
{
	Pass	   *pass = &a->pass;

	while (pass->next_arrival < a->narrivals &&
		   a->arrivals[pass->next_arrival].position <= position)
	{
		pass->state = a->arrivals[pass->next_arrival++].state;
		pass->has_state = true;
	}
}

/*
 * ReplayDeliverAll: the same at the end of the body.
 */
void
ReplayDeliverAll(Activation *a)
{
	deliver_through(a, PG_INT32_MAX);
}

/*
 * ReplayIsCancelled: does the body know of a cancel?
 */
bool
ReplayIsCancelled(const Activation *a)
{
	return a->cancel_after >= 0 && a->pass.position >= a->cancel_after;
}

static void
throw_cancelled(Activation *a)
{
	/* one that does not want to hear is ended without being asked */
	if (++a->pass.cancels > MAX_SWALLOWED)
	{
		a->pass.outcome = PASS_CANCELLED;
		leave_body(a);
	}
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_CANCELLED),
			 errmsg("the workflow was cancelled"),
			 a->cancel_reason ? errdetail("%s", a->cancel_reason) : 0,
			 errhint("Clean up with steps that are shielded => true.")));
}

/*
 * ReplayCommand: take the next position; what the history has there, or a new
 * command.
 *
 * One that is told of a cancel instead takes no position.
 */
Command *
ReplayCommand(Activation *a, const CommandRequest *request)
{
	int			position = a->pass.position + 1;
	Command    *command;

	if (unlikely(a->cancel_after >= 0) && ReplayIsCancelled(a) &&
		!request->shielded)
		throw_cancelled(a);
	/* what came in at this position came to who takes it */
	deliver_through(a, position);
	if (request->step_id != NULL)
		check_step_id(a, request->step_id);
	if (position > a->ncommands)
		command = ActivationIssue(a, request);
	else
	{
		command = a->commands[position - 1];
		match(a, command, request);
		if (command->state == COMMAND_ISSUED && request->retry != NULL &&
			command->retry == NULL)
		{
			MemoryContext old = MemoryContextSwitchTo(a->history_cxt);

			command->retry = JsonCopy(request->retry);
			MemoryContextSwitchTo(old);
		}
	}
	/* it is to be started again, by what is asked for now */
	if (command->restarted)
		command->options = ActivationKeep(a, request->options);
	command->shielded = request->shielded;
	command->limits = request->limits;
	command->compensate_attempted = request->compensate_attempted;
	if (command->kind == COMMAND_ACTIVITY && command->state == COMMAND_ISSUED)
		command->compensate = request->compensate ?
			MemoryContextStrdup(a->pass_cxt, request->compensate) : NULL;
	command->function = request->function;
	command->handles = request->handles;
	command->nhandles = request->nhandles;
	command->any = request->any;
	a->pass.position = position;
	a->pass.draws = 0;
	return command;
}

/*
 * ReplayFinished: go on with a command that has come to its end, or yield.
 */
Command *
ReplayFinished(Activation *a, Command *command)
{
	if (unlikely(a->cancel_in == command->position))
		throw_cancelled(a);
	if (command->state == COMMAND_ISSUED)
		ReplayBlock(a, command);

	a->pass.now = Max(a->pass.now, command->at);
	if (command->state == COMMAND_FAILED)
	{
		a->pass.raised = command;
		FailureThrow(command->error);
	}
	return command;
}

/*
 * ReplayCheckLeftover: at its end the body must have asked for all that the
 * history has.
 */
void
ReplayCheckLeftover(Activation *a)
{
	const ErrorData *error = a->pass.error;
	Command    *command;

	if (!ReplayIsReplaying(a))
		return;
	command = a->commands[a->pass.position];
	ReplayCondemn(a, ERRCODE_DURABLE_DETERMINISM,
				  psprintf("the workflow ended after position %d%s, but the history has %s at position %d",
						   a->pass.position,
						   /* the one that kept it from going on */
						   error == NULL || a->pass.outcome == PASS_CONTINUED ? "" :
						   psprintf(" with error %s: %s",
									unpack_sql_state(error->sqlerrcode),
									error->message),
						   describe(command->kind, command->name, command->args),
						   command->position),
				  "Mend the workflow and call durable_resume().");
}

/*
 * ReplayIsReplaying: has the body been here before?
 *
 * Yes while the history knows of a command behind the last one taken.
 */
bool
ReplayIsReplaying(const Activation *a)
{
	return a->pass.position < a->ncommands &&
		a->commands[a->pass.position]->recorded;
}

/*
 * ReplayHandler: who is in charge of that, or NULL.
 */
Handler *
ReplayHandler(Activation *a, HandlerKind kind, const char *name)
{
	ListCell   *lc;

	foreach(lc, a->pass.handlers)
	{
		Handler    *handler = lfirst(lc);

		if (handler->kind == kind && strcmp(handler->name, name) == 0)
			return handler;
	}
	return NULL;
}
