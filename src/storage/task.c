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
	"INSERT INTO durable_internal.task (iid, position, chain, run_as, queue, served_by, activity, args,"
	" attempt, key, start_to_close, heartbeat)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
	" ON CONFLICT (iid, position) DO NOTHING",
	12, {INT8OID, INT4OID, INT8OID, OIDOID, TEXTOID, OIDOID, TEXTOID, JSONBOID,
		INT4OID, TEXTOID, INT8OID, JSONBOID
	}, NULL
};

static Statement find_task = {
	"SELECT t.scheduled_at, t.started_at, t.heartbeat FROM durable_internal.task t"
	" WHERE t.iid = $1 AND t.position = $2",
	2, {INT8OID, INT4OID}, NULL
};

/* $2 = 0: all of the instance. */
static Statement delete_task = {
	"DELETE FROM durable_internal.task WHERE iid = $1 AND ($2 = 0 OR position = $2)",
	2, {INT8OID, INT4OID}, NULL
};

#define IS_FREE \
	" t.queue = $1 AND (t.lease_until IS NULL OR t.lease_until < pg_catalog.clock_timestamp())" \
	" AND pg_catalog.pg_has_role($2, t.served_by, 'USAGE')"

static Statement claim_task = {
	"UPDATE durable_internal.task u SET token_hash = $3, worker = $4, lease = $5,"
	" lease_until = pg_catalog.clock_timestamp() + $5, started_at = pg_catalog.clock_timestamp()"
	" FROM (SELECT t.iid, t.position FROM durable_internal.task t WHERE" IS_FREE
	" ORDER BY t.scheduled_at LIMIT 1 FOR UPDATE SKIP LOCKED) n"
	" WHERE u.iid = n.iid AND u.position = n.position"
	" RETURNING u.activity, u.args, u.attempt, u.key, u.heartbeat, u.iid, u.run_as, u.start_to_close",
	5, {TEXTOID, OIDOID, TEXTOID, TEXTOID, INTERVALOID}, NULL
};

static Statement has_task = {
	"SELECT 1 FROM durable_internal.task t WHERE" IS_FREE " LIMIT 1",
	2, {TEXTOID, OIDOID}, NULL
};

static Statement next_expiry = {
	"SELECT pg_catalog.min(t.lease_until) FROM durable_internal.task t"
	" WHERE t.queue = $1 AND pg_catalog.pg_has_role($2, t.served_by, 'USAGE')",
	2, {TEXTOID, OIDOID}, NULL
};

#define BY_TOKEN \
	" WHERE t.token_hash = $1 AND pg_catalog.pg_has_role($2, t.served_by, 'USAGE')"

static Statement finish_task = {
	"DELETE FROM durable_internal.task t" BY_TOKEN
	" RETURNING t.iid, t.position, t.chain, t.attempt, t.heartbeat, t.started_at",
	2, {TEXTOID, OIDOID}, NULL
};

static Statement extend_task = {
	"UPDATE durable_internal.task t SET lease_until = pg_catalog.clock_timestamp() + t.lease,"
	" heartbeat = coalesce($3, t.heartbeat)" BY_TOKEN
	" RETURNING EXISTS (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = t.chain"
	" AND m.kind IN ('cancel', 'terminate'))",
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
	Datum		values[12] = {
		Int64GetDatum(row->iid), Int32GetDatum(row->position),
		Int64GetDatum(row->chain), ObjectIdGetDatum(row->run_as),
		TextDatum(row->queue), ObjectIdGetDatum(row->served_by),
		TextDatum(row->activity), PointerGetDatum(row->args),
		Int32GetDatum(row->attempt), TextDatum(row->key),
		Int64GetDatum(row->start_to_close), PointerGetDatum(row->heartbeat)
	};
	bool		nulls[12] = {[11] = row->heartbeat == NULL};

	StatementRun(&insert_task, values, nulls);
}

/*
 * TaskFind: how it stands; false if it is not there.
 */
bool
TaskFind(int64 iid, int position, TaskRow *row)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[2] = {Int64GetDatum(iid), Int32GetDatum(position)};
	bool		found;

	StorageEnter(&scope);
	found = StatementExecute(&find_task, values, NULL) > 0;
	if (found)
	{
		row->scheduled_at = StatementTime(0, 1);
		row->started_at = StatementTime(0, 2);
		row->heartbeat = StatementJsonb(cxt, 0, 3);
	}
	StorageLeave(&scope);
	return found;
}

/*
 * TaskDelete: withdraw it; position 0: all of the instance.
 */
void
TaskDelete(int64 iid, int position)
{
	Datum		values[2] = {Int64GetDatum(iid), Int32GetDatum(position)};

	StatementRun(&delete_task, values, NULL);
}

/*
 * TaskClaim: the oldest task of a queue that the role may do; false if there
 * is none.
 */
bool
TaskClaim(const char *queue, Oid role, const char *token_hash,
		  const char *worker, Interval *lease, TaskRow *row)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[5] = {
		TextDatum(queue), ObjectIdGetDatum(role), TextDatum(token_hash),
		TextDatum(worker), IntervalPGetDatum(lease)
	};
	bool		nulls[5] = {[3] = worker == NULL};
	bool		found;
	bool		isnull;

	StorageEnter(&scope);
	found = StatementExecute(&claim_task, values, nulls) > 0;
	if (found)
	{
		row->activity = StatementText(cxt, 0, 1);
		row->args = StatementJsonb(cxt, 0, 2);
		row->attempt = DatumGetInt32(StatementColumn(0, 3, &isnull));
		row->key = StatementText(cxt, 0, 4);
		row->heartbeat = StatementJsonb(cxt, 0, 5);
		row->iid = DatumGetInt64(StatementColumn(0, 6, &isnull));
		row->run_as = DatumGetObjectId(StatementColumn(0, 7, &isnull));
		row->start_to_close = DatumGetInt64(StatementColumn(0, 8, &isnull));
	}
	StorageLeave(&scope);
	return found;
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
