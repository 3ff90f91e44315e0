/*-------------------------------------------------------------------------
 *
 * task.c
 *	  Table task: activities that clients are to do, or are doing.
 *
 * Who runs the instance inserts and withdraws a task; a client takes it for a
 * time, and deletes it together with the message of its result.  A token that
 * was given for it before does not fit any more once it was given to another.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"

#include "storage/storage.h"

static Statement insert_task = {
	"INSERT INTO durable_internal.task (iid, position, undo, shielded, chain, run_as, queue, served_by, served_by_name,"
	" activity, args, attempt, key, start_to_close, heartbeat_timeout, heartbeat, scheduled_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
	17, {INT8OID, INT4OID, BOOLOID, BOOLOID, INT8OID, OIDOID, TEXTOID, OIDOID, NAMEOID,
		TEXTOID, JSONBOID, INT4OID, TEXTOID, INT8OID, INT8OID, JSONBOID, TIMESTAMPTZOID
	}, NULL
};

#define LOCK_TASK \
	"SELECT t.position, t.undo, t.clients, t.scheduled_at, t.started_at, t.alive_at, t.heartbeat" \
	" FROM durable_internal.task t WHERE t.iid = $1 FOR UPDATE"

static Statement lock_task = {LOCK_TASK, 1, {INT8OID}, NULL};

static Statement lock_task_now = {LOCK_TASK " SKIP LOCKED", 1, {INT8OID}, NULL};

static Statement find_task = {
	"SELECT 1 FROM durable_internal.task t WHERE t.iid = $1",
	1, {INT8OID}, NULL
};

static Statement delete_task = {
	"DELETE FROM durable_internal.task WHERE iid = $1",
	1, {INT8OID}, NULL
};

/* A role must have the name it had: in another cluster it may be another. */
#define MAY_SERVE \
	" pg_catalog.pg_has_role($2, t.served_by, 'USAGE')" \
	" AND pg_catalog.pg_get_userbyid(t.served_by) = t.served_by_name"

#define IS_FREE \
	" t.queue = $1 AND (t.lease_until IS NULL OR t.lease_until < pg_catalog.clock_timestamp())" \
	" AND" MAY_SERVE

/* All at once: each look begins with those that others are at work on. */
static Statement claim_tasks = {
	"WITH free AS MATERIALIZED (SELECT t.iid, t.position, t.scheduled_at FROM durable_internal.task t WHERE" IS_FREE
	" ORDER BY t.scheduled_at LIMIT pg_catalog.cardinality($3) FOR UPDATE SKIP LOCKED),"
	" mine AS MATERIALIZED (SELECT f.iid, f.position, pg_catalog.row_number() OVER (ORDER BY f.scheduled_at, f.iid) AS n"
	" FROM free f),"
	" claimed AS (UPDATE durable_internal.task u SET token_hash = ($3)[m.n::pg_catalog.int4], worker = $4, lease = $5,"
	" lease_until = pg_catalog.clock_timestamp() + $5, started_at = pg_catalog.clock_timestamp(),"
	" alive_at = pg_catalog.clock_timestamp(), clients = u.clients + 1"
	" FROM mine m WHERE u.iid = m.iid AND u.position = m.position"
	" RETURNING m.n, u.activity, u.args, u.attempt, u.key, u.heartbeat, u.iid, u.run_as, u.start_to_close,"
	" u.heartbeat_timeout)"
	" SELECT * FROM claimed c ORDER BY c.n",
	5, {TEXTOID, OIDOID, TEXTARRAYOID, TEXTOID, INTERVALOID}, NULL
};

static Statement has_task = {
	"SELECT 1 FROM durable_internal.task t WHERE" IS_FREE " LIMIT 1",
	2, {TEXTOID, OIDOID}, NULL
};

static Statement next_expiry = {
	"SELECT pg_catalog.min(t.lease_until) FROM durable_internal.task t"
	" WHERE t.queue = $1 AND" MAY_SERVE,
	2, {TEXTOID, OIDOID}, NULL
};

#define BY_TOKEN \
	" WHERE t.token_hash = $1 AND" MAY_SERVE

static Statement finish_task = {
	"DELETE FROM durable_internal.task t" BY_TOKEN
	" RETURNING t.iid, t.position, t.chain, t.attempt, t.heartbeat, t.started_at, t.undo, t.clients",
	2, {TEXTOID, OIDOID}, NULL
};

static Statement extend_task = {
	"UPDATE durable_internal.task t SET lease_until = pg_catalog.clock_timestamp() + t.lease,"
	" alive_at = pg_catalog.clock_timestamp(), heartbeat = coalesce($3, t.heartbeat)" BY_TOKEN
	" RETURNING EXISTS (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = t.chain"
	" AND (m.kind = 'terminate' OR m.kind = 'cancel' AND NOT t.shielded))",
	3, {TEXTOID, OIDOID, JSONBOID}, NULL
};

/* The instance is to be looked at when the attempt takes too long. */
static Statement limit_task = {
	"INSERT INTO durable_internal.timer AS t (iid, run_as, wake_at) VALUES ($1, $2, $3)"
	" ON CONFLICT (iid) DO UPDATE SET wake_at = excluded.wake_at WHERE t.wake_at > excluded.wake_at",
	3, {INT8OID, OIDOID, TIMESTAMPTZOID}, NULL
};

/*
 * TaskInsert: a task for the clients of a queue.
 */
void
TaskInsert(const TaskRow *row)
{
	Datum		values[17] = {
		Int64GetDatum(row->iid), Int32GetDatum(row->position),
		BoolGetDatum(row->undo), BoolGetDatum(row->shielded),
		Int64GetDatum(row->chain),
		ObjectIdGetDatum(row->run_as), TextDatum(row->queue),
		ObjectIdGetDatum(row->served_by), NameDatum(row->served_by_name),
		TextDatum(row->activity), PointerGetDatum(row->args),
		Int32GetDatum(row->attempt), TextDatum(row->key),
		Int64GetDatum(row->start_to_close),
		Int64GetDatum(row->heartbeat_timeout), PointerGetDatum(row->heartbeat),
		TimestampTzGetDatum(row->scheduled_at)
	};
	bool		nulls[17] = {[15] = row->heartbeat == NULL};

	StatementRun(&insert_task, values, nulls);
}

static void
read_locked(MemoryContext cxt, TaskRow *row)
{
	bool		isnull;

	row->position = DatumGetInt32(StatementColumn(0, 1, &isnull));
	row->undo = DatumGetBool(StatementColumn(0, 2, &isnull));
	row->clients = DatumGetInt32(StatementColumn(0, 3, &isnull));
	row->scheduled_at = StatementTime(0, 4);
	row->started_at = StatementTime(0, 5);
	row->alive_at = StatementTime(0, 6);
	row->heartbeat = StatementJsonb(cxt, 0, 7);
}

/*
 * TaskLock: the task of an instance; clients keep off it until the end of the
 * transaction.
 */
TaskLockResult
TaskLock(int64 iid, bool wait, TaskRow *row)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	bool		locked;

	StorageEnter(&scope);
	locked = StatementExecute(wait ? &lock_task : &lock_task_now, values, NULL) > 0;
	if (locked)
		read_locked(cxt, row);
	StorageLeave(&scope);
	if (locked)
		return TASK_LOCKED;
	/* one that a client has deleted, but not yet for good, is seen by this */
	return !wait && StatementRun(&find_task, values, NULL) > 0 ? TASK_BUSY : TASK_NONE;
}

/*
 * TaskDelete: withdraw the task of an instance.
 */
void
TaskDelete(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	StatementRun(&delete_task, values, NULL);
}

static void
read_claimed(MemoryContext cxt, int i, TaskRow *row)
{
	bool		isnull;

	row->activity = StatementText(cxt, i, 2);
	row->args = StatementJsonb(cxt, i, 3);
	row->attempt = DatumGetInt32(StatementColumn(i, 4, &isnull));
	row->key = StatementText(cxt, i, 5);
	row->heartbeat = StatementJsonb(cxt, i, 6);
	row->iid = DatumGetInt64(StatementColumn(i, 7, &isnull));
	row->run_as = DatumGetObjectId(StatementColumn(i, 8, &isnull));
	row->start_to_close = DatumGetInt64(StatementColumn(i, 9, &isnull));
	row->heartbeat_timeout = DatumGetInt64(StatementColumn(i, 10, &isnull));
}

/*
 * TaskClaim: the oldest tasks of a queue that the role may do, one for each
 * token, in the order of these; how many there were.
 */
int
TaskClaim(const char *queue, Oid role, List *token_hashes,
		  const char *worker, Interval *lease, TaskRow **rows)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[5] = {
		TextDatum(queue), ObjectIdGetDatum(role), TextArray(token_hashes),
		TextDatum(worker), IntervalPGetDatum(lease)
	};
	bool		nulls[5] = {[3] = worker == NULL};
	int			count;

	*rows = palloc0(sizeof(TaskRow) * list_length(token_hashes));
	StorageEnter(&scope);
	count = StatementExecute(&claim_tasks, values, nulls);
	for (int i = 0; i < count; i++)
		read_claimed(cxt, i, &(*rows)[i]);
	StorageLeave(&scope);
	return count;
}

/*
 * TaskLimit: an attempt has begun that may not last longer.
 */
void
TaskLimit(int64 iid, Oid run_as, TimestampTz until)
{
	Datum		values[3] = {
		Int64GetDatum(iid), ObjectIdGetDatum(run_as), TimestampTzGetDatum(until)
	};

	StatementRun(&limit_task, values, NULL);
}

/*
 * TaskHas: is there one to be had?
 */
bool
TaskHas(const char *queue, Oid role)
{
	Datum		values[2] = {TextDatum(queue), ObjectIdGetDatum(role)};

	return StatementRun(&has_task, values, NULL) > 0;
}

/*
 * TaskNextExpiry: when the next one comes back from a client, 0: never.
 */
TimestampTz
TaskNextExpiry(const char *queue, Oid role)
{
	StorageScope scope;
	Datum		values[2] = {TextDatum(queue), ObjectIdGetDatum(role)};
	TimestampTz next;

	StorageEnter(&scope);
	(void) StatementExecute(&next_expiry, values, NULL);
	next = StatementTime(0, 1);
	StorageLeave(&scope);
	return next;
}

/*
 * TaskFinish: the client that has this token is done; false if it is not its
 * task any more.
 */
bool
TaskFinish(const char *token_hash, Oid role, TaskRow *row)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[2] = {TextDatum(token_hash), ObjectIdGetDatum(role)};
	bool		found;
	bool		isnull;

	StorageEnter(&scope);
	found = StatementExecute(&finish_task, values, NULL) > 0;
	if (found)
	{
		row->iid = DatumGetInt64(StatementColumn(0, 1, &isnull));
		row->position = DatumGetInt32(StatementColumn(0, 2, &isnull));
		row->chain = DatumGetInt64(StatementColumn(0, 3, &isnull));
		row->attempt = DatumGetInt32(StatementColumn(0, 4, &isnull));
		row->heartbeat = StatementJsonb(cxt, 0, 5);
		row->started_at = StatementTime(0, 6);
		row->undo = DatumGetBool(StatementColumn(0, 7, &isnull));
		row->clients = DatumGetInt32(StatementColumn(0, 8, &isnull));
	}
	StorageLeave(&scope);
	return found;
}

/*
 * TaskExtend: the client is alive; false if it is not its task any more.
 */
bool
TaskExtend(const char *token_hash, Oid role, Jsonb *details, bool *cancelled)
{
	StorageScope scope;
	Datum		values[3] = {
		TextDatum(token_hash), ObjectIdGetDatum(role), PointerGetDatum(details)
	};
	bool		nulls[3] = {[2] = details == NULL};
	bool		found;
	bool		isnull;

	StorageEnter(&scope);
	found = StatementExecute(&extend_task, values, nulls) > 0;
	if (found)
		*cancelled = DatumGetBool(StatementColumn(0, 1, &isnull));
	StorageLeave(&scope);
	return found;
}
