/*-------------------------------------------------------------------------
 *
 * compensate.c
 *	  Undoing what a workflow did before it failed.
 *
 * When a run is to end other than completed, the compensations of the steps
 * that it completed are run, the newest first, each as a durable step.  That
 * this has begun is committed before the first one runs; from then on the
 * body is not run any more.  A compensation has the position of its step;
 * those of earlier runs of the chain have negative ones.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "engine/child.h"
#include "engine/compensate.h"
#include "engine/deliver.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/remote.h"
#include "engine/settle.h"
#include "engine/step.h"
#include "engine/unblock.h"

PG_FUNCTION_INFO_V1(durable_add_compensation);
PG_FUNCTION_INFO_V1(durable_discard_compensations);

/* ------------------------------------------------------------------
 * In a body
 * ------------------------------------------------------------------
 */

/*
 * durable_add_compensation: what is to be run should the workflow fail.
 */
Datum
durable_add_compensation(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_add_compensation");
	CommandRequest request = {.kind = COMMAND_COMPENSATION, .shielded = true};

	request.name = ArgName(fcinfo, 0, "activity");
	request.args = ArgJsonb(fcinfo, 1, "args");
	(void) ReplayCommand(a, &request);
	PG_RETURN_VOID();
}

/*
 * durable_discard_compensations: what was done so far stays done.
 */
Datum
durable_discard_compensations(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_discard_compensations");
	CommandRequest request = {
		.kind = COMMAND_DISCARD, .name = "compensations", .shielded = true
	};

	(void) ReplayCommand(a, &request);
	PG_RETURN_VOID();
}

/* ------------------------------------------------------------------
 * What is to be undone
 * ------------------------------------------------------------------
 */

static Command *
make_undo(int position, const char *activity, const char *step_id)
{
	Command    *undo = palloc0(sizeof(Command));

	undo->kind = COMMAND_UNDO;
	undo->position = position;
	undo->name = activity;
	undo->step_id = psprintf("undo %s", step_id);
	return undo;
}

/*
 * undone_by: the activity that undoes a step, or NULL: what it did, or what it
 * may have done.
 */
static const char *
undone_by(const Command *command)
{
	if (command->kind != COMMAND_ACTIVITY && command->kind != COMMAND_SPAWN)
		return NULL;
	if (command->state == COMMAND_COMPLETED)
		return command->compensate;
	return command->attempted ? command->undo_attempted : NULL;
}

/*
 * undo_of: what a command of the body asks for, or NULL.
 */
static Command *
undo_of(Command *command)
{
	const char *undone = undone_by(command);
	Command    *undo;

	if (!command->recorded)
		return NULL;
	if (undone != NULL)
	{
		undo = make_undo(command->position, undone, command->step_id);
		undo->undoes = command;
	}
	else if (command->kind == COMMAND_COMPENSATION)
	{
		undo = make_undo(command->position, command->name, command->name);
		undo->args = command->args;
	}
	else
		return NULL;
	undo->seq = command->seq;
	return undo;
}

/*
 * undo_of_carried: the same for one that an earlier run left.
 */
static Command *
undo_of_carried(Jsonb *carried, int number)
{
	Command    *undo = make_undo(-number, JsonGetText(carried, "activity"),
								 JsonGetText(carried, "step"));
	Command    *step;

	undo->args = JsonGet(carried, "args");
	if (undo->args != NULL)
		return undo;
	step = palloc0(sizeof(Command));
	step->kind = COMMAND_ACTIVITY;
	step->name = JsonGetText(carried, "name");
	step->args = JsonGet(carried, "step_args");
	step->result = JsonGet(carried, "step_result");
	undo->undoes = step;
	return undo;
}

static int
by_completion(const ListCell *a, const ListCell *b)
{
	const Command *left = lfirst(a);
	const Command *right = lfirst(b);

	return right->seq - left->seq;
}

/*
 * collect: all that is to be undone, the newest first.
 */
static List *
collect(Activation *a)
{
	List	   *own = NIL;
	List	   *carried = NIL;
	ListCell   *lc;

	foreach(lc, a->carried)
		carried = lcons(undo_of_carried(lfirst(lc), foreach_current_index(lc) + 1),
						carried);
	/* what was copied from another instance is that one's to undo */
	for (int i = a->fork_through; i < a->ncommands; i++)
	{
		Command    *undo = undo_of(a->commands[i]);

		if (undo != NULL)
			own = lappend(own, undo);
		else if (a->commands[i]->kind == COMMAND_DISCARD)
			own = carried = NIL;
	}
	list_sort(own, by_completion);
	return list_concat(own, carried);
}

/*
 * make_list: when nothing more can be completed beside us.
 */
static void
make_list(Activation *a)
{
	MemoryContext old = MemoryContextSwitchTo(a->history_cxt);

	if (!a->closing->has_list)
		a->closing->undo = collect(a);
	a->closing->has_list = true;
	MemoryContextSwitchTo(old);
}

/*
 * CompensationFind: the compensation of a position.
 */
Command *
CompensationFind(Activation *a, int position)
{
	ListCell   *lc;

	make_list(a);
	foreach(lc, a->closing->undo)
	{
		Command    *undo = lfirst(lc);

		if (undo->position == position)
			return undo;
	}
	elog(ERROR, "history of instance \"%s\" has no compensation of position %d",
		 a->instance->id, position);
	return NULL;				/* keep compiler quiet */
}

/*
 * CompensationRead: it was decided how the instance will end.
 */
void
CompensationRead(Activation *a, const HistoryRow *row)
{
	Closing    *closing = palloc0(sizeof(Closing));

	closing->status = JsonGetText(row->data, "status");
	closing->event = JsonGetText(row->data, "event");
	closing->data = JsonGet(row->data, "data");
	closing->error = row->error;
	a->closing = closing;
}

/* ------------------------------------------------------------------
 * Continue-as-new
 * ------------------------------------------------------------------
 */

static Jsonb *
to_carry(const Command *undo)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAddText(&state, "activity", undo->name);
	JsonObjectAddText(&state, "step", undo->step_id + strlen("undo "));
	if (undo->undoes == NULL)
		JsonObjectAdd(&state, "args", undo->args);
	else
	{
		JsonObjectAddText(&state, "name", undo->undoes->name);
		JsonObjectAdd(&state, "step_args", undo->undoes->args);
		JsonObjectAdd(&state, "step_result", undo->undoes->result);
	}
	return JsonObjectEnd(&state);
}

/*
 * CompensationsToCarry: for the next run of the chain, the oldest first; NULL
 * if there are none.
 */
Jsonb *
CompensationsToCarry(Activation *a)
{
	List	   *undo = collect(a);
	int			count = list_length(undo);
	Jsonb	  **list = palloc(sizeof(Jsonb *) * Max(count, 1));
	JsonbParseState *state;

	if (count == 0)
		return NULL;
	for (int i = 0; i < count; i++)
		list[count - 1 - i] = to_carry(list_nth(undo, i));
	JsonObjectBegin(&state);
	JsonObjectAdd(&state, "list", JsonArray(list, count));
	return JsonObjectEnd(&state);
}

/*
 * CompensationReadCarried: from the history of the next run.
 */
List *
CompensationReadCarried(const HistoryRow *row)
{
	Jsonb	   *list = JsonGet(row->data, "list");
	JsonbIterator *it = JsonbIteratorInit(&list->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	List	   *carried = NIL;

	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM)
			carried = lappend(carried, JsonbValueToJsonb(&value));
	}
	return carried;
}

/* ------------------------------------------------------------------
 * The arguments
 * ------------------------------------------------------------------
 */

/*
 * step_argument: what the step had for a parameter of that name, or NULL.
 *
 * Arguments by position are those of the step's own parameters.
 */
static Jsonb *
step_argument(const Command *step, const DurableFunction *fn, const char *name)
{
	if (step->args == NULL)
		return NULL;
	if (JB_ROOT_IS_OBJECT(step->args))
		return JsonGet(step->args, name);
	for (int i = 0; fn != NULL && i < fn->nparams; i++)
	{
		if (strcmp(fn->param_names[i], name) != 0)
			continue;
		if (JB_ROOT_IS_SCALAR(step->args))
			return i == 0 ? step->args : NULL;
		if (i < JB_ROOT_COUNT(step->args))
			return JsonbValueToJsonb(getIthJsonbValueFromContainer(&step->args->root, i));
	}
	return NULL;
}

/*
 * CompensationArguments: of the compensation of a step.
 *
 * One with a single jsonb parameter gets arguments and result of its step, and
 * so does a client (NULL); others get those that they have parameters for.
 */
Jsonb *
CompensationArguments(const Command *undoes, const DurableFunction *fn,
					  const DurableFunction *step)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	if (fn == NULL || fn->whole)
	{
		JsonObjectAdd(&state, "args", undoes->args);
		JsonObjectAdd(&state, "result", undoes->result ? undoes->result : JsonNull());
		return JsonObjectEnd(&state);
	}
	for (int i = 0; i < fn->nparams; i++)
	{
		const char *name = fn->param_names[i];

		if (strcmp(name, "result") == 0)
			JsonObjectAdd(&state, name, undoes->result ? undoes->result : JsonNull());
		else
			JsonObjectAdd(&state, name, step_argument(undoes, step, name));
	}
	return JsonObjectEnd(&state);
}

/* ------------------------------------------------------------------
 * Undoing
 * ------------------------------------------------------------------
 */

/*
 * begin: the body is done with; what it left running is closed first.
 */
static void
begin(Activation *a, const char *status, HistoryRow *end)
{
	HistoryRow	row = {.event = "CompensationStarted", .error = end->error};
	MemoryContext old;
	JsonbParseState *data;

	ChildrenClose(a);
	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "status", status);
	JsonObjectAddText(&data, "event", end->event);
	JsonObjectAdd(&data, "data", end->data);
	row.data = JsonObjectEnd(&data);
	ActivationRecord(a, NULL, &row);
	InstanceWait(a->instance->iid, "compensating", NIL, NULL, a->began_at);
	SettleCommit(a);

	old = MemoryContextSwitchTo(a->history_cxt);
	row.data = JsonCopy(row.data);
	row.error = row.error ? JsonCopy(row.error) : NULL;
	CompensationRead(a, &row);
	MemoryContextSwitchTo(old);
}

/*
 * has_open_sibling: does an activity run beside us that would have to be
 * undone?
 */
static bool
has_open_sibling(Activation *a)
{
	for (int i = 0; i < a->ncommands; i++)
	{
		if (a->commands[i]->kind == COMMAND_SPAWN &&
			ChildIsOpen(a->commands[i]) && a->commands[i]->recorded &&
			a->commands[i]->compensate != NULL)
			return true;
	}
	return false;
}

/*
 * CompensateOrEnd: the run is to end like that, when all that can be undone is
 * undone.  True: there is more to do now.
 */
bool
CompensateOrEnd(Activation *a, const char *status, HistoryRow *row)
{
	RemoteClose(a);
	if (collect(a) == NIL && !has_open_sibling(a))
	{
		SettleEnd(a, status, row);
		return false;
	}
	begin(a, status, row);
	return true;
}

static Command *
next_undo(Activation *a)
{
	ListCell   *lc;

	foreach(lc, a->closing->undo)
	{
		Command    *undo = lfirst(lc);

		if (undo->state == COMMAND_ISSUED)
			return undo;
	}
	return NULL;
}

/*
 * finish: all is undone, or could not be; the end tells which.
 */
static void
finish(Activation *a)
{
	Closing    *closing = a->closing;
	HistoryRow	row = {.event = closing->event, .error = closing->error};
	JsonbParseState *data;
	int			failed = 0;
	ListCell   *lc;

	foreach(lc, closing->undo)
		failed += ((Command *) lfirst(lc))->state == COMMAND_FAILED;
	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "compensation",
					  failed == 0 ? "completed" :
					  failed < list_length(closing->undo) ? "partial" : "failed");
	JsonObjectAddNumber(&data, "undone", list_length(closing->undo) - failed);
	JsonObjectAddNumber(&data, "failed", failed);
	row.data = JsonObjectEnd(&data);
	SettleEnd(a, closing->status, &row);
}

static void
wait_undone(Activation *a, List *awaits, TimestampTz wake_at)
{
	DeliverRefuse(a);
	SettleWait(a, "compensating", awaits, NULL, wake_at);
}

static bool
undo_remotely(Activation *a, Command *undo)
{
	TimestampTz deadline;

	if (!RemoteAdvance(a, undo, &deadline))
	{
		wait_undone(a, list_make1("task:"), deadline);
		return false;
	}
	SettleCommit(a);
	return true;
}

/*
 * CompensateNext: undo the next step, or end.  True: there is more to do now.
 */
bool
CompensateNext(Activation *a)
{
	Command    *undo;

	if (DeliverRequests(a, NULL) == DELIVERY_ENDS)
		return false;
	/* nothing may be done beside us after it was undone */
	if (has_open_sibling(a))
	{
		TimestampTz wake_at = UnblockNap(a, ChildResults(a));

		if (has_open_sibling(a))
		{
			wait_undone(a, wake_at ? NIL : list_make1("child:"), wake_at);
			return false;
		}
	}
	make_list(a);
	undo = next_undo(a);
	if (a->stuck)
	{
		SettleHold(a, psprintf("%s: %s failed: %s",
							   JsonGetText(undo->error, "sqlstate"), undo->step_id,
							   JsonGetText(undo->error, "message")));
		return false;
	}
	if (undo == NULL)
	{
		finish(a);
		return false;
	}
	if (!StepIsDue(undo))
	{
		wait_undone(a, NIL, undo->wake_at);
		return false;
	}
	if (RemoteIs(a, undo))
		return undo_remotely(a, undo);
	if (a->dirty)
		SettleCommit(a);
	StepRun(a, undo);
	SettleCommit(a);
	return true;
}
