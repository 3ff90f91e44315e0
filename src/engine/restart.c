/*-------------------------------------------------------------------------
 *
 * restart.c
 *	  Messages that come behind the end of their instance.
 *
 * They are recorded as dropped, but for what durable_signal_start sent: when
 * it looked, the instance was running, so it left a signal.  That signal has
 * with it all that starting needs, checked and frozen by the sender, so
 * whoever finds it behind the end can start the next run: no code of a user is
 * run here, and the run is of the role that it would have been of.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"

#include "engine/json.h"
#include "engine/replay.h"
#include "engine/restart.h"
#include "engine/start.h"
#include "engine/transaction.h"
#include "runtime/wakeup.h"

/* How long to wait for who is starting the same run in an open transaction. */
#define MAX_WAIT	"10ms"

/*
 * RestartDescribe: what the next run would be, as the sender has it.
 */
Jsonb *
RestartDescribe(const InstanceRow *row, Jsonb *input, Jsonb *settings,
				const Interval *timeout)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAddText(&state, "id", row->id);
	JsonObjectAddText(&state, "workflow", row->workflow);
	JsonObjectAddNumber(&state, "version", row->version);
	JsonObjectAddNumber(&state, "run_as", row->run_as);
	JsonObjectAddText(&state, "run_as_name", row->run_as_name);
	JsonObjectAddNumber(&state, "sender", GetUserId());
	JsonObjectAdd(&state, "input", input);
	JsonObjectAdd(&state, "settings", settings);
	if (timeout != NULL)
		JsonObjectAddText(&state, "timeout",
						  DatumGetCString(DirectFunctionCall1(interval_out,
															  IntervalPGetDatum(timeout))));
	return JsonObjectEnd(&state);
}

static TimestampTz
deadline_of(Jsonb *restart)
{
	Interval   *timeout = StartReadTimeout(JsonGetText(restart, "timeout"));

	if (timeout == NULL)
		return 0;
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(GetCurrentTimestamp()),
												   IntervalPGetDatum(timeout)));
}

/*
 * start_next: the run after that one, with the signal; false if there is one.
 */
static bool
start_next(const RestartRow *message, int run)
{
	Jsonb	   *restart = message->restart;
	InstanceRow row = {0};

	row.iid = row.chain = StorageNextNumber("iid_seq");
	row.id = JsonGetText(restart, "id");
	row.run = run + 1;
	row.workflow = JsonGetText(restart, "workflow");
	row.version = JsonGetInt(restart, "version");
	row.run_as = (Oid) JsonGetInt(restart, "run_as");
	row.run_as_name = JsonGetText(restart, "run_as_name");
	row.seed = StartNewSeed();
	row.tags = JsonEmpty();
	row.deadline = deadline_of(restart);
	if (!InstanceInsert(&row, JsonGet(restart, "input"),
						JsonGet(restart, "settings"), 0))
		return false;
	(void) InboxInsert(row.chain, "signal", message->name, message->payload);
	WakeupReady(row.run_as);
	return true;
}

/*
 * may_signal: could the sender have signalled the run that is there now?
 */
static bool
may_signal(const InstanceRow *known, Jsonb *restart)
{
	Oid			sender = (Oid) JsonGetInt(restart, "sender");

	return strcmp(known->workflow, JsonGetText(restart, "workflow")) == 0 &&
		GetUserNameFromId(sender, true) != NULL &&
		has_privs_of_role(sender, known->run_as);
}

static void
record_dropped(int64 iid, const RestartRow *message)
{
	HistoryRow	row = {.event = "MessageDropped"};
	JsonbParseState *data;

	JsonObjectBegin(&data);
	JsonObjectAddText(&data, "kind", "signal");
	row.data = JsonObjectEnd(&data);
	row.name = message->name;
	row.args = message->payload;
	row.at = GetCurrentTimestamp();
	row.seq = HistoryNextSeq(iid);
	HistoryAppend(iid, &row);
}

/*
 * pass_on: to the next run of the id, which is started if there is none.
 */
static void
pass_on(int64 iid, const RestartRow *message)
{
	InstanceRow *known;

	do
	{
		known = InstanceFind(JsonGetText(message->restart, "id"));
		if (known == NULL || !may_signal(known, message->restart))
		{
			record_dropped(iid, message);
			return;
		}
		if (!known->ended)
		{
			InboxInsertRestart(known->chain, message->name, message->payload,
							   message->restart);
			WakeupMessageTo(known->chain, known->run_as);
			return;
		}
	} while (!start_next(message, known->run));
}

static void
pass_on_all(int64 iid)
{
	RestartRow *messages;
	int			count = InboxTakeRestarts(iid, &messages);

	for (int i = 0; i < count; i++)
		pass_on(iid, &messages[i]);
}

static void
restart_soon(void *arg)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("lock_timeout", MAX_WAIT, PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	pass_on_all(*(int64 *) arg);
	AtEOXact_GUC(false, level);
}

/*
 * try_restart: unless a client has just started the run and not committed; then
 * the messages stay for the next sweep, and nobody waits for that client.
 */
static void
try_restart(int64 iid)
{
	ErrorData  *error = TransactionTry(restart_soon, &iid);

	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
}

/*
 * RestartOrDrop: an instance has ended: nothing in its inbox is received any
 * more.  restart: what durable_signal_start sent is passed on to the next run.
 */
void
RestartOrDrop(int64 iid, bool restart)
{
	bool		restarts;

	if (InboxDrop(iid, restart, &restarts) > 0)
		WakeupAllEnded();
	if (restarts)
		try_restart(iid);
}
