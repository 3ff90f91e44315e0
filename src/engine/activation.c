/*-------------------------------------------------------------------------
 *
 * activation.c
 *	  An instance in memory: its history as commands.
 *
 * Read once an activation, with one indexed scan, and kept across passes.  It
 * moves together with the rows that are written; when a transaction fails
 * with rows in it, all is read again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "engine/child.h"
#include "engine/compensate.h"
#include "engine/json.h"
#include "engine/replay.h"
#include "engine/settings.h"
#include "engine/step.h"

typedef struct StepIdEntry
{
	char		id[DURABLE_MAX_NAME + 16];
	int			number;			/* position of the step, or a counter */
} StepIdEntry;

static void
add_command(Activation *a, Command *command)
{
	if (a->ncommands == a->size)
	{
		a->size *= 2;
		a->commands = repalloc_huge(a->commands, sizeof(Command *) * a->size);
	}
	a->commands[a->ncommands++] = command;
}

static StepIdEntry *
step_id_entry(Activation *a, const char *id, bool *found)
{
	char		key[sizeof(((StepIdEntry *) NULL)->id)];
	StepIdEntry *entry;

	memset(key, 0, sizeof(key));
	strlcpy(key, id, sizeof(key));
	entry = hash_search(a->step_ids, key, HASH_ENTER, found);
	if (!*found)
		entry->number = 0;
	return entry;
}

/*
 * name_counter: how many ids of the form name:n there are.
 *
 * Counters are kept under keys that no id can have.
 */
static int *
name_counter(Activation *a, const char *name)
{
	char		key[sizeof(((StepIdEntry *) NULL)->id)];
	bool		found;

	snprintf(key, sizeof(key), "\n%s", name);
	return &step_id_entry(a, key, &found)->number;
}

static bool
is_numbered(const Command *command)
{
	size_t		length = strlen(command->name);

	return strncmp(command->step_id, command->name, length) == 0 &&
		command->step_id[length] == ':';
}

static void
use_step_id(Activation *a, const Command *command)
{
	bool		found;

	step_id_entry(a, command->step_id, &found)->number = command->position;
	if (is_numbered(command))
		++*name_counter(a, command->name);
}

static void
unuse_step_id(Activation *a, const Command *command)
{
	hash_search(a->step_ids, command->step_id, HASH_REMOVE, NULL);
	if (is_numbered(command))
		--*name_counter(a, command->name);
}

/*
 * ActivationStepPosition: the position of the step that has this id, or 0.
 */
int
ActivationStepPosition(Activation *a, const char *id)
{
	StepIdEntry *entry = hash_search(a->step_ids, id, HASH_FIND, NULL);

	return entry != NULL ? entry->number : 0;
}

/*
 * choose_step_id: the caller's, or the next of the name.
 */
static char *
choose_step_id(Activation *a, const CommandRequest *request)
{
	int			n;
	char	   *id;

	if (request->step_id != NULL)
		return pstrdup(request->step_id);

	n = *name_counter(a, request->name);
	do
		id = psprintf("%s:%d", request->name, ++n);
	while (ActivationStepPosition(a, id) > 0);
	return id;
}

/* What the events of commands say. */
static const struct
{
	const char *event;
	CommandKind kind;
	CommandState state;
}			command_events[] = {
	{"ActivityCompleted", COMMAND_ACTIVITY, COMMAND_COMPLETED},
	{"ActivityFailed", COMMAND_ACTIVITY, COMMAND_FAILED},
	{"ActivityRetryScheduled", COMMAND_ACTIVITY, COMMAND_ISSUED},
	{"ActivityCancelled", COMMAND_ACTIVITY, COMMAND_CANCELLED},
	{"ActivityQueued", COMMAND_ACTIVITY, COMMAND_ISSUED},
	{"ActivityInterrupted", COMMAND_ACTIVITY, COMMAND_ISSUED},
	{"ActivityScheduled", COMMAND_SPAWN, COMMAND_ISSUED},
	{"TimerStarted", COMMAND_TIMER, COMMAND_ISSUED},
	{"TimerExpired", COMMAND_TIMER, COMMAND_COMPLETED},
	{"TimerCancelled", COMMAND_TIMER, COMMAND_CANCELLED},
	{"SignalAwaited", COMMAND_SIGNAL, COMMAND_ISSUED},
	{"SignalReceived", COMMAND_SIGNAL, COMMAND_COMPLETED},
	{"SignalTimedOut", COMMAND_SIGNAL, COMMAND_TIMED_OUT},
	{"SignalCancelled", COMMAND_SIGNAL, COMMAND_CANCELLED},
	{"EventAwaited", COMMAND_EVENT, COMMAND_ISSUED},
	{"EventReceived", COMMAND_EVENT, COMMAND_COMPLETED},
	{"EventTimedOut", COMMAND_EVENT, COMMAND_TIMED_OUT},
	{"EventCancelled", COMMAND_EVENT, COMMAND_CANCELLED},
	{"ConditionAwaited", COMMAND_CONDITION, COMMAND_ISSUED},
	{"ConditionMet", COMMAND_CONDITION, COMMAND_COMPLETED},
	{"ConditionTimedOut", COMMAND_CONDITION, COMMAND_TIMED_OUT},
	{"ConditionCancelled", COMMAND_CONDITION, COMMAND_CANCELLED},
	{"ChildStarted", COMMAND_CHILD, COMMAND_ISSUED},
	{"ChildCompleted", COMMAND_CHILD, COMMAND_COMPLETED},
	{"ChildFailed", COMMAND_CHILD, COMMAND_FAILED},
	{"AwaitStarted", COMMAND_AWAIT, COMMAND_ISSUED},
	{"AwaitCompleted", COMMAND_AWAIT, COMMAND_COMPLETED},
	{"AwaitTimedOut", COMMAND_AWAIT, COMMAND_TIMED_OUT},
	{"AwaitCancelled", COMMAND_AWAIT, COMMAND_CANCELLED},
	{"CompensationAdded", COMMAND_COMPENSATION, COMMAND_COMPLETED},
	{"CompensationsDiscarded", COMMAND_DISCARD, COMMAND_COMPLETED},
	{"CompensationCompleted", COMMAND_UNDO, COMMAND_COMPLETED},
	{"CompensationFailed", COMMAND_UNDO, COMMAND_FAILED},
	{"CompensationRetryScheduled", COMMAND_UNDO, COMMAND_ISSUED},
	{"CompensationQueued", COMMAND_UNDO, COMMAND_ISSUED},
	{"CompensationInterrupted", COMMAND_UNDO, COMMAND_ISSUED}
};

static int
try_find_event(const char *event)
{
	for (int i = 0; i < lengthof(command_events); i++)
	{
		if (strcmp(event, command_events[i].event) == 0)
			return i;
	}
	return -1;
}

static int
find_event(const char *event)
{
	int			i = try_find_event(event);

	if (i < 0)
		elog(ERROR, "unexpected event \"%s\" of a command", event);
	return i;
}

/*
 * apply_data: what a row of an activity or its compensation says besides.
 */
static void
apply_data(Command *command, Jsonb *data)
{
	Jsonb	   *heartbeat = JsonGet(data, "heartbeat");

	if (JsonGetInt(data, "attempted") != 0)
		command->attempted = true;
	if (ChildIs(command))
		return;
	command->compensate = JsonGetText(data, "compensate");
	if (JsonGetInt(data, "compensate_attempted") != 0)
		command->undo_attempted = command->compensate;
	if (heartbeat != NULL)
	{
		command->heartbeat = heartbeat;
		command->beating = false;
	}
}

/*
 * apply_row: what a row says about its command.
 */
static void
apply_row(Command *command, const HistoryRow *row)
{
	command->recorded = true;
	command->seq = row->seq;
	command->restarted = false;
	command->state = command_events[find_event(row->event)].state;
	command->result = row->result;
	command->error = row->error;
	command->at = row->at;
	command->wake_at = row->wake_at;
	if (row->attempt > 0)
		command->attempts = row->attempt;
	if (command->first_at == 0)
		command->first_at = row->started_at;
	if (row->data != NULL && ChildIs(command) && command->state == COMMAND_ISSUED)
		command->options = row->data;
	if (command->kind == COMMAND_SPAWN)
		command->compensate = JsonGetText(command->options, "compensate");
	if (command->kind == COMMAND_SPAWN &&
		JsonGetInt(command->options, "compensate_attempted") != 0)
		command->undo_attempted = command->compensate;
	if (row->data != NULL &&
		(command->kind == COMMAND_ACTIVITY || command->kind == COMMAND_SPAWN ||
		 command->kind == COMMAND_UNDO))
		apply_data(command, row->data);
}

static Command *
command_of_row(Activation *a, const HistoryRow *row)
{
	Command    *command;

	if (row->position <= a->ncommands)
		return a->commands[row->position - 1];
	if (row->position != a->ncommands + 1)
		elog(ERROR, "history of instance \"%s\" lacks position %d",
			 a->instance->id, a->ncommands + 1);

	command = palloc0(sizeof(Command));
	command->position = row->position;
	command->kind = command_events[find_event(row->event)].kind;
	command->name = row->name;
	command->step_id = row->step_id;
	command->args = row->args;
	if (command->step_id != NULL)
		use_step_id(a, command);
	if (command->kind == COMMAND_EVENT ||
		strcmp(command->name, SUBSCRIBE_ACTIVITY) == 0)
		a->subscribed = true;
	add_command(a, command);
	return command;
}

/*
 * ActivationAddArrival: from that position on the state is this one.
 */
void
ActivationAddArrival(Activation *a, int position, Jsonb *state)
{
	if (a->narrivals == a->arrivals_size)
	{
		a->arrivals_size *= 2;
		a->arrivals = repalloc_huge(a->arrivals,
									sizeof(Arrival) * a->arrivals_size);
	}
	a->arrivals[a->narrivals].position = position;
	a->arrivals[a->narrivals].state = state;
	a->narrivals++;
}

/*
 * drop_markers: those that fail the test are not there any more.
 */
static void
drop_markers(Activation *a, bool (*keep) (const Marker *marker, int position),
			 int position)
{
	ListCell   *lc;

	foreach(lc, a->markers)
	{
		if (!keep(lfirst(lc), position))
			a->markers = foreach_delete_current(a->markers, lc);
	}
}

static bool
was_before(const Marker *marker, int position)
{
	return marker->position < position;
}

static bool
is_recorded(const Marker *marker, int position)
{
	return marker->recorded;
}

/*
 * arrive_before: what came in behind that position has its effect right behind
 * it: messages are not lost, and what comes in from now on comes after them.
 */
static void
arrive_before(Activation *a, int position)
{
	for (int i = a->narrivals; i > 0; i--)
	{
		if (a->arrivals[i - 1].position <= position)
			break;
		a->arrivals[i - 1].position = position;
	}
}

/*
 * retry_from: the step whose error ended the run is open again, and all that
 * came after it is not there any more.
 */
static void
retry_from(Activation *a, int position)
{
	Command    *command;

	if (position == 0 || position > a->ncommands)
		return;
	a->retried_through = Max(a->retried_through, a->ncommands);
	while (a->ncommands > position)
	{
		command = a->commands[--a->ncommands];
		if (command->step_id != NULL)
			unuse_step_id(a, command);
	}
	drop_markers(a, was_before, position);
	arrive_before(a, position + 1);
	if (a->cancel_after >= position)
	{
		a->cancel_after = -1;
		a->cancel_in = 0;
		a->cancel_reason = NULL;
	}
	command = a->commands[position - 1];
	command->state = COMMAND_ISSUED;
	/* the policy begins anew, the numbers go on */
	command->attempts_before = command->attempts;
	command->first_at = command->wake_at = 0;
	/* a child cannot be tried again, but another one in its place */
	if (ChildIs(command))
	{
		command->recorded = false;
		command->restarted = true;
	}
}

static Marker *
add_marker(Activation *a, const char *change, int version, int position)
{
	Marker	   *marker = palloc(sizeof(Marker));

	marker->change = change;
	marker->version = version;
	marker->position = position;
	marker->recorded = true;
	a->markers = lappend(a->markers, marker);
	return marker;
}

/*
 * is_end: does this event end a run?
 */
static bool
is_end(const char *event)
{
	static const char *const ends[] = {
		"WorkflowCompleted", "WorkflowFailed", "WorkflowCancelled",
		"WorkflowTimedOut", "WorkflowTerminated", "WorkflowContinuedAsNew"
	};

	for (int i = 0; i < lengthof(ends); i++)
	{
		if (strcmp(event, ends[i]) == 0)
			return true;
	}
	return false;
}

/*
 * apply_other: a row that is not of a command.
 */
static void
apply_other(Activation *a, const HistoryRow *row)
{
	Jsonb	   *state;

	if (is_end(row->event))
	{
		a->end.event = row->event;
		a->end.result = row->result;
		a->end.error = row->error;
		return;
	}
	if (row->data == NULL)
		return;
	if (strcmp(row->event, "SignalHandled") == 0 ||
		strcmp(row->event, "UpdateCompleted") == 0)
	{
		state = JsonGet(row->data, "state");
		if (state != NULL)
			ActivationAddArrival(a, JsonGetInt(row->data, "at"), state);
	}
	else if (strcmp(row->event, "WorkflowCancelRequested") == 0)
	{
		a->cancel_after = JsonGetInt(row->data, "after");
		a->cancel_in = JsonGetInt(row->data, "in");
		a->cancel_reason = JsonGetText(row->data, "reason");
	}
	else if (strcmp(row->event, "VersionMarked") == 0)
		(void) add_marker(a, row->name, JsonGetInt(row->data, "version"),
						  JsonGetInt(row->data, "after"));
	else if (strcmp(row->event, "WorkflowRetried") == 0)
	{
		memset(&a->end, 0, sizeof(End));
		retry_from(a, JsonGetInt(row->data, "position"));
	}
	else if (strcmp(row->event, "CompensationStarted") == 0)
		CompensationRead(a, row);
	else if (strcmp(row->event, "CompensationsCarried") == 0)
		a->carried = CompensationReadCarried(row);
	else if (strcmp(row->event, "WorkflowForked") == 0)
	{
		Fork	   *fork = palloc(sizeof(Fork));

		fork->through = JsonGetInt(row->data, "through");
		fork->seed = JsonGetInt(row->data, "seed");
		a->forks = lappend(a->forks, fork);
		a->fork_through = fork->through;
	}
}

/*
 * is_compensation: of one that is under way.
 */
static bool
is_compensation(const Activation *a, const HistoryRow *row)
{
	return a->closing != NULL && strncmp(row->event, "Compensation", 12) == 0;
}

/*
 * flaw_of_command: what is wrong with a row of a command, or NULL.
 */
static const char *
flaw_of_command(const Activation *a, const HistoryRow *row)
{
	int			i = try_find_event(row->event);
	CommandKind kind;

	if (i < 0)
		return "is not one of a command";
	if (command_events[i].state == COMMAND_FAILED &&
		JsonGetText(row->error, "message") == NULL)
		return "has no error";
	if (is_compensation(a, row))
		return command_events[i].kind == COMMAND_UNDO ? NULL : "comes too late";
	if (row->position < 1 || row->position > a->ncommands + 1)
		return "has a position that is not the next";
	if (row->name == NULL)
		return "has no name";
	kind = command_events[i].kind;
	if (row->position > a->ncommands)
		return row->step_id == NULL &&
			(kind == COMMAND_ACTIVITY || kind == COMMAND_SPAWN) ?
			"has no step" : NULL;
	/* what a spawned activity comes to is told as of any */
	if (kind != a->commands[row->position - 1]->kind &&
		!(kind == COMMAND_ACTIVITY &&
		  a->commands[row->position - 1]->kind == COMMAND_SPAWN))
		return "is of another command";
	return NULL;
}

static bool
has_position(const HistoryRow *row, const char *key)
{
	int64		position = JsonGetInt(row->data, key);

	return position >= 0 && position <= PG_INT32_MAX;
}

/*
 * flaw_of_other: the same of another row.
 */
static const char *
flaw_of_other(const HistoryRow *row)
{
	if (strcmp(row->event, "VersionMarked") == 0 && row->name == NULL)
		return "has no name";
	if ((strcmp(row->event, "WorkflowRetried") == 0 &&
		 !has_position(row, "position")) ||
		(strcmp(row->event, "WorkflowForked") == 0 &&
		 !has_position(row, "through")))
		return "has no position";
	if (strcmp(row->event, "CompensationsCarried") == 0 &&
		JsonGet(row->data, "list") == NULL)
		return "has no list";
	return NULL;
}

/*
 * ActivationFlaw: why the row cannot be the next one of this history, or NULL.
 *
 * Rows of ours are sound, as long as nobody else writes them.  Who reads what
 * comes from elsewhere asks first: all that is read later is relied upon.
 */
const char *
ActivationFlaw(const Activation *a, const HistoryRow *row)
{
	if (row->seq == 1)
		return NULL;
	return row->position != 0 ? flaw_of_command(a, row) : flaw_of_other(row);
}

/*
 * ActivationReadRow: the next row of the history; what it points to is in the
 * history's context.
 */
void
ActivationReadRow(const HistoryRow *row, void *arg)
{
	Activation *a = arg;
	MemoryContext old = MemoryContextSwitchTo(a->history_cxt);

	if (row->seq == 1)
	{
		a->input = row->args;
		a->settings_json = row->data;
		a->settings = SettingsRead(row->data);
		a->started_at = row->at;
	}
	else if (is_compensation(a, row))
		apply_row(CompensationFind(a, row->position), row);
	else if (row->position > 0)
		apply_row(command_of_row(a, row), row);
	else
		apply_other(a, row);
	a->queued = a->queued || strcmp(row->event, "ActivityQueued") == 0 ||
		strcmp(row->event, "CompensationQueued") == 0;
	a->next_seq = row->seq + 1;
	a->last_at = Max(a->last_at, row->at);
	MemoryContextSwitchTo(old);
}

/*
 * ActivationCreate: of an instance that is not loaded yet.
 */
Activation *
ActivationCreate(Transactions *tx, int64 lease)
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
 * ActivationForgetHistory: nothing of it is in memory.
 */
void
ActivationForgetHistory(Activation *a)
{
	HASHCTL		info = {0};

	MemoryContextReset(a->history_cxt);
	a->size = 16;
	a->ncommands = 0;
	a->commands = MemoryContextAlloc(a->history_cxt,
									 sizeof(Command *) * a->size);
	info.keysize = sizeof(((StepIdEntry *) NULL)->id);
	info.entrysize = sizeof(StepIdEntry);
	info.hcxt = a->history_cxt;
	a->step_ids = hash_create("durable step ids", 16, &info,
							  HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	a->arrivals_size = 16;
	a->narrivals = 0;
	a->arrivals = MemoryContextAlloc(a->history_cxt,
									 sizeof(Arrival) * a->arrivals_size);
	a->markers = NIL;
	/* the uses of copies that they need may be gone with the transaction */
	a->handlers = NIL;
	memset(&a->end, 0, sizeof(End));
	a->cancel_after = -1;
	a->cancel_in = 0;
	a->carried = NIL;
	a->closing = NULL;
	a->queued = false;
	a->cancel_reason = NULL;
	a->retried_through = 0;
	a->fork_through = 0;
	a->forks = NIL;
	a->subscribed = a->instance->chain != a->instance->iid;
	a->last_at = 0;
	a->next_seq = 1;
	a->input = NULL;
	a->arguments = NULL;
	a->running = a->unconfirmed = NULL;
	a->dirty = false;
}

/*
 * ActivationReadHistory: read all there is, forgetting what was in memory.
 */
void
ActivationReadHistory(Activation *a)
{
	ActivationForgetHistory(a);
	HistoryScan(a->instance->iid, a->history_cxt, ActivationReadRow, a);
	if (a->input == NULL)
		elog(ERROR, "instance \"%s\" has no history", a->instance->id);
}

/*
 * ActivationStamp: the time of an event that happens now, never going back.
 */
TimestampTz
ActivationStamp(Activation *a)
{
	a->last_at = Max(GetCurrentTimestamp(), a->last_at);
	return a->last_at;
}

/*
 * ActivationKeep: a copy that lives as long as the history in memory.
 */
Jsonb *
ActivationKeep(Activation *a, Jsonb *json)
{
	MemoryContext old;
	Jsonb	   *copy;

	if (json == NULL)
		return NULL;
	old = MemoryContextSwitchTo(a->history_cxt);
	copy = JsonCopy(json);
	MemoryContextSwitchTo(old);
	return copy;
}

/*
 * ActivationRecord: write the next row of the history, and move the command.
 *
 * The command's first row carries what it was asked for.
 */
void
ActivationRecord(Activation *a, Command *command, HistoryRow *row)
{
	row->seq = a->next_seq;
	if (row->at == 0)
		row->at = ActivationStamp(a);
	if (command != NULL)
	{
		row->position = command->position;
		row->name = command->name;
		row->step_id = command->step_id;
		if (!command->recorded)
			row->args = command->args;
	}
	a->dirty = true;
	HistoryAppend(a->instance->iid, row);
	a->next_seq++;

	if (command != NULL)
	{
		HistoryRow	mine = *row;
		MemoryContext old;

		mine.result = ActivationKeep(a, row->result);
		mine.error = ActivationKeep(a, row->error);
		mine.data = ActivationKeep(a, row->data);
		old = MemoryContextSwitchTo(a->history_cxt);
		apply_row(command, &mine);
		MemoryContextSwitchTo(old);
		a->conflicts = 0;
	}
}

/*
 * ActivationMarker: what is known of a change, or NULL.
 */
Marker *
ActivationMarker(Activation *a, const char *change)
{
	ListCell   *lc;

	foreach(lc, a->markers)
	{
		Marker	   *marker = lfirst(lc);

		if (strcmp(marker->change, change) == 0)
			return marker;
	}
	return NULL;
}

/*
 * ActivationMark: from here on the body is of that version of a change.  In
 * memory only, as a new command is.
 */
Marker *
ActivationMark(Activation *a, const char *change, int version)
{
	MemoryContext old = MemoryContextSwitchTo(a->history_cxt);
	Marker	   *marker = add_marker(a, pstrdup(change), version,
									a->pass.position);

	marker->recorded = false;
	MemoryContextSwitchTo(old);
	return marker;
}

/*
 * ActivationRecordMarkers: the new ones get into the history, before the
 * commands that came after them do.
 */
void
ActivationRecordMarkers(Activation *a)
{
	ListCell   *lc;

	foreach(lc, a->markers)
	{
		Marker	   *marker = lfirst(lc);
		HistoryRow	row = {.event = "VersionMarked", .name = marker->change};
		JsonbParseState *data;

		if (marker->recorded)
			continue;
		JsonObjectBegin(&data);
		JsonObjectAddNumber(&data, "version", marker->version);
		JsonObjectAddNumber(&data, "after", marker->position);
		row.data = JsonObjectEnd(&data);
		ActivationRecord(a, NULL, &row);
		marker->recorded = true;
	}
}

/*
 * ActivationIssue: a new command at the next position, in memory only.
 */
Command *
ActivationIssue(Activation *a, const CommandRequest *request)
{
	MemoryContext old = MemoryContextSwitchTo(a->history_cxt);
	Command    *command = palloc0(sizeof(Command));

	command->position = a->ncommands + 1;
	command->kind = request->kind;
	command->name = pstrdup(request->name);
	command->args = ActivationKeep(a, request->args);
	command->retry = ActivationKeep(a, request->retry);
	command->options = ActivationKeep(a, request->options);
	command->wake_at = request->wake_at;
	if (request->kind == COMMAND_ACTIVITY || request->kind == COMMAND_SPAWN)
	{
		command->step_id = choose_step_id(a, request);
		use_step_id(a, command);
	}
	add_command(a, command);
	MemoryContextSwitchTo(old);
	return command;
}

/*
 * ActivationForget: drop the commands and markers that did not get into the
 * history.
 */
void
ActivationForget(Activation *a)
{
	drop_markers(a, is_recorded, 0);
	while (a->ncommands > 0 && !a->commands[a->ncommands - 1]->recorded &&
		   !a->commands[a->ncommands - 1]->restarted)
	{
		Command    *command = a->commands[--a->ncommands];

		if (command->step_id != NULL)
			unuse_step_id(a, command);
	}
}

static void
emit_log(Activation *a)
{
	ListCell   *lc;

	foreach(lc, a->log)
	{
		LogEntry   *entry = lfirst(lc);

		ereport(entry->level,
				(errmsg_internal("%s", entry->message),
				 errcontext("durable workflow \"%s\", instance \"%s\"",
							a->instance->workflow, a->instance->id),
				 errhidestmt(true)));
	}
	list_free_deep(a->log);
	a->log = NIL;
}

/*
 * ActivationCommitted: what was recorded is so for good.
 */
void
ActivationCommitted(Activation *a)
{
	a->dirty = false;
	a->unconfirmed = NULL;
	if (a->log != NIL)
		emit_log(a);
}

/*
 * ActivationLost: another driver has the instance: leave all as it is.
 */
void
ActivationLost(Activation *a)
{
	a->lost = true;
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_WRONG_STATE),
			 errmsg("the lease of instance \"%s\" was lost",
					a->instance->id)));
	pg_unreachable();
}

/*
 * ActivationLater: another session is about to do what we would have to wait
 * for: undo what was done since the last commit, and look again soon.
 */
void
ActivationLater(Activation *a)
{
	a->later = true;
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("a client is just working on the task of instance \"%s\"",
					a->instance->id)));
	pg_unreachable();
}
