/*-------------------------------------------------------------------------
 *
 * instance.c
 *	  Table instance: one row a run.
 *
 * Only the holder of the lease writes the row of an instance that can run;
 * the row of one that is held is written by durable_resume, which makes it
 * ready in the same transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "storage/storage.h"

/*
 * The row, its first history row and its place in the queue (or, for a later
 * start, its timer) in one statement; nothing at all if the id is taken.
 */
static Statement insert_instance = {
	"WITH i AS (INSERT INTO durable_internal.instance"
	" (iid, id, run, chain, workflow, version, status, run_as, run_as_name, priority, seed, tags, created_at,"
	" parent, parent_chain, parent_position, deadline)"
	" VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7, $8, $9, $10, $11, pg_catalog.clock_timestamp(),"
	" $15, $16, $17, $18)"
	" ON CONFLICT (id, run) DO NOTHING RETURNING iid, created_at),"
	" h AS (INSERT INTO durable_internal.history (iid, seq, event, name, args, data, at)"
	" SELECT i.iid, 1, 'WorkflowStarted', $5, $12, $13, i.created_at FROM i),"
	" r AS (INSERT INTO durable_internal.ready (iid, run_as, priority)"
	" SELECT i.iid, $7, $9 FROM i WHERE $14 IS NULL),"
	" t AS (INSERT INTO durable_internal.timer (iid, run_as, wake_at)"
	" SELECT i.iid, $7, $14 FROM i WHERE $14 IS NOT NULL)"
	" SELECT iid FROM i",
	18, {INT8OID, TEXTOID, INT4OID, INT8OID, TEXTOID, INT4OID, OIDOID, NAMEOID,
		INT4OID, INT8OID, JSONBOID, JSONBOID, JSONBOID, TIMESTAMPTZOID,
		INT8OID, INT8OID, INT4OID, TIMESTAMPTZOID
	}, NULL
};

/*
 * OFFSET 0: queues are asked by the key.  They are planned as if they were
 * empty, and then to read all of one seems as cheap; what was deleted since
 * the last vacuum would be read, too.  What runs beside a body is paused with
 * the body's workflow.
 */
#define SELECT_INSTANCE \
	"SELECT i.iid, i.id, i.run, i.chain, i.workflow, i.version," \
	" CASE WHEN i.end_seq IS NOT NULL THEN i.status" \
	" WHEN r.lease IS NOT NULL THEN CASE WHEN i.status = 'compensating' THEN i.status ELSE 'running' END" \
	" WHEN i.suspended IS NOT NULL THEN i.suspended" \
	" WHEN w.paused OR EXISTS (SELECT 1 FROM durable_internal.control) THEN 'paused'" \
	" WHEN r.iid IS NULL THEN i.status ELSE 'pending' END," \
	" i.reason, i.run_as, i.run_as_name::text, i.priority, i.body_failures," \
	" i.seed, i.tags, i.suspended IS NOT NULL, i.end_seq IS NOT NULL," \
	" CASE WHEN w.name IS NOT NULL THEN v.function END, v.whole, w.sandbox, v.owner, w.activity_retry," \
	" r.lease, t.wake_at, i.suspect," \
	" i.xmin, i.parent, i.parent_chain, i.parent_position, i.deadline," \
	" EXISTS (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = i.chain AND m.kind = 'cancel' OFFSET 0)" \
	" OR EXISTS (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = i.chain AND m.kind = 'terminate' OFFSET 0)," \
	" coalesce(w.paused, (SELECT o.paused FROM durable_internal.instance p" \
	" JOIN durable_internal.workflow o ON o.name = p.workflow" \
	" WHERE p.iid = i.parent AND i.workflow LIKE 'durable:%'), false)" \
	" OR EXISTS (SELECT 1 FROM durable_internal.control)," \
	" EXISTS (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = i.chain AND m.kind = 'update' OFFSET 0)," \
	" coalesce(w.hold_on_undo_failure, false), i.definition, v.hash, w.version, w.on_change," \
	" EXISTS (SELECT 1 FROM durable_internal.pin_use u WHERE u.iid = i.iid OFFSET 0)" \
	" FROM durable_internal.instance i" \
	" LEFT JOIN LATERAL (SELECT * FROM durable_internal.ready r WHERE r.iid = i.iid OFFSET 0) r ON true" \
	" LEFT JOIN LATERAL (SELECT * FROM durable_internal.timer t WHERE t.iid = i.iid OFFSET 0) t ON true" \
	" LEFT JOIN durable_internal.workflow w ON w.name = i.workflow" \
	" LEFT JOIN durable_internal.workflow_version v" \
	" ON v.workflow = i.workflow AND v.version = i.version"

static Statement find_instance = {
	SELECT_INSTANCE " WHERE i.id = $1 ORDER BY i.run DESC LIMIT 1",
	1, {TEXTOID}, NULL
};

static Statement find_run = {
	SELECT_INSTANCE " WHERE i.id = $1 AND i.run = $2", 2, {TEXTOID, INT4OID}, NULL
};

static Statement instances_of = {
	"SELECT iid FROM durable_internal.instance"
	" WHERE workflow = $1 AND (end_seq IS NULL OR $2) ORDER BY created_at, iid",
	2, {TEXTOID, BOOLOID}, NULL
};

static Statement load_instance = {
	SELECT_INSTANCE " WHERE i.iid = $1", 1, {INT8OID}, NULL
};

/* One that was terminated meanwhile stays so. */
static Statement wait_instance = {
	"UPDATE durable_internal.instance SET status = $2, awaits = $3, awaits_filter = $4,"
	" body_failures = 0, started_at = coalesce(started_at, $5)"
	" WHERE iid = $1 AND end_seq IS NULL",
	5, {INT8OID, TEXTOID, TEXTARRAYOID, JSONBOID, TIMESTAMPTZOID}, NULL
};

static Statement set_body_failures = {
	"UPDATE durable_internal.instance SET body_failures = $2, awaits = NULL WHERE iid = $1",
	2, {INT8OID, INT4OID}, NULL
};

static Statement hold_instance = {
	"UPDATE durable_internal.instance SET suspended = 'held', reason = $2,"
	" definition = CASE WHEN $3 THEN 'current' ELSE definition END"
	" WHERE iid = $1 AND end_seq IS NULL",
	3, {INT8OID, TEXTOID, BOOLOID}, NULL
};

static Statement resume_instance = {
	"UPDATE durable_internal.instance SET suspended = NULL, reason = NULL, body_failures = 0,"
	" run_as_name = $2, definition = coalesce($3, definition)"
	" WHERE iid = $1 AND suspended IS NOT NULL AND end_seq IS NULL",
	3, {INT8OID, NAMEOID, TEXTOID}, NULL
};

/*
 * Activities beside a body are paused and resumed with it: nobody knows them by
 * name.  Whoever resumes the instance meanwhile has its row.
 */
static Statement pause_beside = {
	"WITH p AS (SELECT i.iid FROM durable_internal.instance i"
	" WHERE i.iid = $1 AND i.suspended = 'paused' FOR NO KEY UPDATE)"
	" UPDATE durable_internal.instance c SET suspended = 'paused' FROM p"
	" WHERE c.parent = p.iid AND c.suspended IS NULL AND c.end_seq IS NULL"
	" AND c.workflow LIKE 'durable:%'",
	1, {INT8OID}, NULL
};

static Statement resume_beside = {
	"UPDATE durable_internal.instance SET suspended = NULL, reason = NULL, body_failures = 0,"
	" run_as_name = $2 WHERE parent = $1 AND suspended IS NOT NULL AND end_seq IS NULL"
	" AND workflow LIKE 'durable:%' RETURNING iid",
	2, {INT8OID, NAMEOID}, NULL
};

static Statement switch_instance = {
	"UPDATE durable_internal.instance SET version = $2, definition = NULL WHERE iid = $1",
	2, {INT8OID, INT4OID}, NULL
};

static Statement pause_instance = {
	"UPDATE durable_internal.instance SET suspended = 'paused' WHERE iid = $1"
	" AND suspended IS NULL AND end_seq IS NULL",
	1, {INT8OID}, NULL
};

static Statement reopen_instance = {
	"UPDATE durable_internal.instance SET status = 'pending', end_seq = NULL, ended_at = NULL,"
	" body_failures = 0, deadline = $3, definition = coalesce($4, definition)"
	" WHERE iid = $1 AND end_seq = $2",
	4, {INT8OID, INT4OID, TIMESTAMPTZOID, TEXTOID}, NULL
};

static Statement end_instance = {
	"UPDATE durable_internal.instance SET status = $2, awaits = NULL, end_seq = $3,"
	" suspect = false, crashes = 0,"
	" started_at = coalesce(started_at, $4), ended_at = $5 WHERE iid = $1",
	5, {INT8OID, TEXTOID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID}, NULL
};

static Statement is_open = {
	"SELECT 1 FROM durable_internal.instance WHERE iid = $1 AND end_seq IS NULL",
	1, {INT8OID}, NULL
};

/* Nobody waits: who has the row is reopening it, or drops its messages. */
static Statement lock_ended = {
	"SELECT i.end_seq IS NULL FROM durable_internal.instance i WHERE i.iid = $1"
	" FOR SHARE SKIP LOCKED",
	1, {INT8OID}, NULL
};

static Statement is_for_later = {
	"SELECT 1 FROM durable_internal.instance i JOIN durable_internal.timer t ON t.iid = i.iid"
	" WHERE i.iid = $1 AND i.status = 'pending' AND t.wake_at > pg_catalog.clock_timestamp()",
	1, {INT8OID}, NULL
};

static Statement find_outcome = {
	"SELECT h.result, h.error, h.data, h.seq FROM durable_internal.instance i"
	" JOIN durable_internal.history h ON h.iid = i.iid AND h.seq = i.end_seq"
	" WHERE i.iid = $1",
	1, {INT8OID}, NULL
};

/* Of each position the last one, if it has ended. */
static Statement ended_children = {
	"SELECT c.iid FROM (SELECT DISTINCT ON (i.parent_position) i.iid, i.end_seq FROM durable_internal.instance i"
	" WHERE i.parent = $1 AND i.parent_position < $2 ORDER BY i.parent_position, i.iid DESC) c"
	" WHERE c.end_seq IS NOT NULL",
	2, {INT8OID, INT4OID}, NULL
};

/*
 * InstanceInsert: start a run; false if this id has a run of that number.
 *
 * start_at is 0 for now.
 */
bool
InstanceInsert(const InstanceRow *row, Jsonb *input, Jsonb *settings,
			   TimestampTz start_at)
{
	Datum		values[18] = {
		Int64GetDatum(row->iid), TextDatum(row->id), Int32GetDatum(row->run),
		Int64GetDatum(row->chain), TextDatum(row->workflow),
		Int32GetDatum(row->version), ObjectIdGetDatum(row->run_as),
		NameDatum(row->run_as_name), Int32GetDatum(row->priority),
		Int64GetDatum(row->seed), PointerGetDatum(row->tags),
		PointerGetDatum(input), PointerGetDatum(settings),
		TimestampTzGetDatum(start_at), Int64GetDatum(row->parent),
		Int64GetDatum(row->parent_chain), Int32GetDatum(row->parent_position),
		TimestampTzGetDatum(row->deadline)
	};
	bool		nulls[18] = {
		[13] = start_at == 0, [14] = row->parent == 0, [15] = row->parent == 0,
		[16] = row->parent == 0, [17] = row->deadline == 0
	};

	return StatementRun(&insert_instance, values, nulls) == 1;
}

static InstanceRow *
read_row(MemoryContext cxt)
{
	InstanceRow *row = MemoryContextAllocZero(cxt, sizeof(InstanceRow));
	Datum		value;
	bool		isnull;

	row->iid = DatumGetInt64(StatementColumn(0, 1, &isnull));
	row->id = StatementText(cxt, 0, 2);
	row->run = DatumGetInt32(StatementColumn(0, 3, &isnull));
	row->chain = DatumGetInt64(StatementColumn(0, 4, &isnull));
	row->workflow = StatementText(cxt, 0, 5);
	row->version = DatumGetInt32(StatementColumn(0, 6, &isnull));
	row->status = StatementText(cxt, 0, 7);
	row->reason = StatementText(cxt, 0, 8);
	row->run_as = DatumGetObjectId(StatementColumn(0, 9, &isnull));
	row->run_as_name = StatementText(cxt, 0, 10);
	row->priority = DatumGetInt32(StatementColumn(0, 11, &isnull));
	row->body_failures = DatumGetInt32(StatementColumn(0, 12, &isnull));
	row->seed = DatumGetInt64(StatementColumn(0, 13, &isnull));
	row->tags = StatementJsonb(cxt, 0, 14);
	row->suspended = DatumGetBool(StatementColumn(0, 15, &isnull));
	row->ended = DatumGetBool(StatementColumn(0, 16, &isnull));
	row->function = StatementText(cxt, 0, 17);
	value = StatementColumn(0, 18, &isnull);
	row->whole = !isnull && DatumGetBool(value);
	row->sandbox = StatementText(cxt, 0, 19);
	value = StatementColumn(0, 20, &isnull);
	row->workflow_owner = isnull ? InvalidOid : DatumGetObjectId(value);
	row->activity_retry = StatementJsonb(cxt, 0, 21);
	value = StatementColumn(0, 22, &isnull);
	row->lease = isnull ? 0 : DatumGetInt64(value);
	row->wake_at = StatementTime(0, 23);
	row->suspect = DatumGetBool(StatementColumn(0, 24, &isnull));
	value = StatementColumn(0, 25, &isnull);
	row->mine = !isnull &&
		TransactionIdIsCurrentTransactionId(DatumGetTransactionId(value));
	value = StatementColumn(0, 26, &isnull);
	row->parent = isnull ? 0 : DatumGetInt64(value);
	value = StatementColumn(0, 27, &isnull);
	row->parent_chain = isnull ? 0 : DatumGetInt64(value);
	value = StatementColumn(0, 28, &isnull);
	row->parent_position = isnull ? 0 : DatumGetInt32(value);
	row->deadline = StatementTime(0, 29);
	row->requested = DatumGetBool(StatementColumn(0, 30, &isnull));
	value = StatementColumn(0, 31, &isnull);
	row->parked = !isnull && DatumGetBool(value);
	row->updates = DatumGetBool(StatementColumn(0, 32, &isnull));
	row->hold_on_undo_failure = DatumGetBool(StatementColumn(0, 33, &isnull));
	row->definition = StatementText(cxt, 0, 34);
	row->hash = StatementText(cxt, 0, 35);
	value = StatementColumn(0, 36, &isnull);
	row->current_version = isnull ? 0 : DatumGetInt32(value);
	row->on_change = StatementText(cxt, 0, 37);
	row->pinned = DatumGetBool(StatementColumn(0, 38, &isnull));
	return row;
}

static InstanceRow *
find_row(Statement *statement, Datum *key)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	InstanceRow *row = NULL;

	StorageEnter(&scope);
	if (StatementExecute(statement, key, NULL) == 1)
		row = read_row(cxt);
	StorageLeave(&scope);
	return row;
}

/*
 * InstanceFind: the current run of an id, or NULL.
 */
InstanceRow *
InstanceFind(const char *id)
{
	Datum		values[1] = {TextDatum(id)};

	return find_row(&find_instance, values);
}

/*
 * InstanceFindRun: that run of an id, or NULL.
 */
InstanceRow *
InstanceFindRun(const char *id, int run)
{
	Datum		values[2] = {TextDatum(id), Int32GetDatum(run)};

	return find_row(&find_run, values);
}

/*
 * InstanceLoad: a run, or NULL.
 */
InstanceRow *
InstanceLoad(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	return find_row(&load_instance, values);
}

/*
 * InstanceWait: what it waits for, from now on: a list of kind:name, and what
 * the data of an event must contain (NULL: anything).
 */
void
InstanceWait(int64 iid, const char *status, List *awaits, Jsonb *filter,
			 TimestampTz started_at)
{
	Datum		values[5] = {
		Int64GetDatum(iid), TextDatum(status), (Datum) 0,
		PointerGetDatum(filter), TimestampTzGetDatum(started_at)
	};
	bool		nulls[5] = {[2] = awaits == NIL, [3] = filter == NULL};

	if (awaits != NIL)
		values[2] = TextArray(awaits);
	StatementRun(&wait_instance, values, nulls);
}

/*
 * InstancePause: suspend it until durable_resume; false if it is suspended or
 * has ended.
 */
bool
InstancePause(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	return StatementRun(&pause_instance, values, NULL) == 1;
}

/*
 * InstanceReopen: it has not ended after all; false if it was reopened before.
 */
bool
InstanceReopen(int64 iid, int end_seq, TimestampTz deadline,
			   const char *definition)
{
	Datum		values[4] = {
		Int64GetDatum(iid), Int32GetDatum(end_seq),
		TimestampTzGetDatum(deadline), TextDatum(definition)
	};
	bool		nulls[4] = {[2] = deadline == 0, [3] = definition == NULL};

	return StatementRun(&reopen_instance, values, nulls) == 1;
}

/*
 * InstanceSetBodyFailures: passes lost to the environment, one after another.
 */
void
InstanceSetBodyFailures(int64 iid, int failures)
{
	Datum		values[2] = {Int64GetDatum(iid), Int32GetDatum(failures)};

	StatementRun(&set_body_failures, values, NULL);
}

/*
 * InstanceHold: suspend it until durable_resume.
 *
 * mend: it is to go on with what its workflow is then.
 */
void
InstanceHold(int64 iid, const char *reason, bool mend)
{
	Datum		values[3] = {
		Int64GetDatum(iid), TextDatum(reason), BoolGetDatum(mend)
	};

	StatementRun(&hold_instance, values, NULL);
}

/*
 * InstanceResume: lift the suspension; false if there is none.  With a
 * definition it is to go on with that one.
 */
bool
InstanceResume(int64 iid, const char *run_as_name, const char *definition)
{
	Datum		values[3] = {
		Int64GetDatum(iid), NameDatum(run_as_name), TextDatum(definition)
	};
	bool		nulls[3] = {[2] = definition == NULL};

	return StatementRun(&resume_instance, values, nulls) == 1;
}

/*
 * InstanceSwitch: it runs on that version of its workflow from now on.
 */
void
InstanceSwitch(int64 iid, int version)
{
	Datum		values[2] = {Int64GetDatum(iid), Int32GetDatum(version)};

	StatementRun(&switch_instance, values, NULL);
}

/*
 * InstanceEnd: its end status, and the history row that has the outcome.
 */
void
InstanceEnd(int64 iid, const char *status, int end_seq,
			TimestampTz started_at, TimestampTz ended_at)
{
	Datum		values[5] = {
		Int64GetDatum(iid), TextDatum(status), Int32GetDatum(end_seq),
		TimestampTzGetDatum(started_at), TimestampTzGetDatum(ended_at)
	};

	StatementRun(&end_instance, values, NULL);
}

/*
 * InstanceOutcome: the last row of an ended run.
 */
void
InstanceOutcome(int64 iid, Outcome *outcome)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	bool		isnull;

	memset(outcome, 0, sizeof(Outcome));
	StorageEnter(&scope);
	if (StatementExecute(&find_outcome, values, NULL) == 1)
	{
		outcome->result = StatementJsonb(cxt, 0, 1);
		outcome->error = StatementJsonb(cxt, 0, 2);
		outcome->data = StatementJsonb(cxt, 0, 3);
		outcome->seq = DatumGetInt32(StatementColumn(0, 4, &isnull));
	}
	StorageLeave(&scope);
}

/*
 * InstanceHears: is it to be told of what is done in this transaction?
 *
 * Not if it has ended and stays so: whoever reopens it afterwards, and looks
 * for what it was not told, waits for our commit.
 */
bool
InstanceHears(int64 iid)
{
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	bool		hears = true;
	bool		isnull;

	if (StatementRun(&is_open, values, NULL) > 0)
		return true;
	StorageEnter(&scope);
	if (StatementExecute(&lock_ended, values, NULL) > 0)
		hears = DatumGetBool(StatementColumn(0, 1, &isnull));
	StorageLeave(&scope);
	return hears;
}

static int
list_iids(Statement *statement, Datum *values, int64 **iids)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	int			count;
	bool		isnull;

	StorageEnter(&scope);
	count = (int) StatementExecute(statement, values, NULL);
	*iids = MemoryContextAlloc(cxt, sizeof(int64) * Max(count, 1));
	for (int i = 0; i < count; i++)
		(*iids)[i] = DatumGetInt64(StatementColumn(i, 1, &isnull));
	StorageLeave(&scope);
	return count;
}

/*
 * InstanceEndedChildren: the children of a run that have ended, of those
 * before that position; how many there are.
 */
int
InstanceEndedChildren(int64 parent, int before, int64 **iids)
{
	Datum		values[2] = {Int64GetDatum(parent), Int32GetDatum(before)};

	return list_iids(&ended_children, values, iids);
}

/*
 * InstancesOf: the runs of a workflow that have not ended, or all; how many
 * there are.
 */
int
InstancesOf(const char *workflow, bool ended, int64 **iids)
{
	Datum		values[2] = {TextDatum(workflow), BoolGetDatum(ended)};

	return list_iids(&instances_of, values, iids);
}

/*
 * InstancePauseBeside: suspend what runs beside the body of a run, if that is
 * paused.
 */
void
InstancePauseBeside(int64 parent)
{
	Datum		values[1] = {Int64GetDatum(parent)};

	StatementRun(&pause_beside, values, NULL);
}

/*
 * InstanceResumeBeside: lift the suspension of what runs beside the body of a
 * run; how many there are.
 */
int
InstanceResumeBeside(int64 parent, const char *run_as_name, int64 **iids)
{
	Datum		values[2] = {Int64GetDatum(parent), NameDatum(run_as_name)};

	return list_iids(&resume_beside, values, iids);
}

/*
 * InstanceIsForLater: was it started with a time that has not come?
 */
bool
InstanceIsForLater(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	return StatementRun(&is_for_later, values, NULL) > 0;
}
