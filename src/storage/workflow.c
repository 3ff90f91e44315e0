/*-------------------------------------------------------------------------
 *
 * workflow.c
 *	  Tables workflow, workflow_version and activity: what was registered.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"

#include "durable.h"
#include "storage/storage.h"

static Statement find_workflow = {
	"SELECT w.name, w.owner, w.owner_name::text, w.version, w.run_as, w.sandbox,"
	" w.activity_retry, w.capture_settings, v.function, v.definition, v.hash, v.whole, w.settings,"
	" w.timeout, w.start_on, w.start_filter, w.on_change, w.since"
	" FROM durable_internal.workflow w"
	" JOIN durable_internal.workflow_version v ON v.workflow = w.name AND v.version = w.version"
	" WHERE w.name = $1",
	1, {TEXTOID}, NULL
};

static Statement lock_workflows = {
	"LOCK TABLE durable_internal.workflow IN SHARE ROW EXCLUSIVE MODE", 0, {0}, NULL
};

static Statement store_workflow = {
	"INSERT INTO durable_internal.workflow AS w"
	" (name, owner, owner_name, version, run_as, sandbox, activity_retry, capture_settings, settings,"
	" timeout, start_on, start_filter, hold_on_undo_failure, on_change, since)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $4)"
	" ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, owner_name = excluded.owner_name,"
	" version = excluded.version, run_as = excluded.run_as, sandbox = excluded.sandbox,"
	" activity_retry = excluded.activity_retry, capture_settings = excluded.capture_settings,"
	" settings = excluded.settings, timeout = excluded.timeout,"
	" start_on = excluded.start_on, start_filter = excluded.start_filter,"
	" hold_on_undo_failure = excluded.hold_on_undo_failure,"
	" on_change = excluded.on_change, registered_at = excluded.registered_at",
	14, {TEXTOID, OIDOID, NAMEOID, INT4OID, TEXTOID, TEXTOID, JSONBOID,
		TEXTARRAYOID, JSONBOID, INTERVALOID, TEXTOID, JSONBOID, BOOLOID, TEXTOID
	}, NULL
};

static Statement set_version = {
	"UPDATE durable_internal.workflow SET version = $2 WHERE name = $1",
	2, {TEXTOID, INT4OID}, NULL
};

static Statement store_version = {
	"INSERT INTO durable_internal.workflow_version"
	" (workflow, version, function, definition, hash, whole, owner, owner_name)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
	" ON CONFLICT (workflow, version) DO NOTHING",
	8, {TEXTOID, INT4OID, TEXTOID, TEXTOID, TEXTOID, BOOLOID, OIDOID, NAMEOID}, NULL
};

static Statement last_version = {
	"SELECT pg_catalog.max(version) FROM durable_internal.workflow_version WHERE workflow = $1",
	1, {TEXTOID}, NULL
};

/* Its versions stay: instances that ended tell which one they ran on. */
static Statement delete_workflow = {
	"DELETE FROM durable_internal.workflow WHERE name = $1",
	1, {TEXTOID}, NULL
};

static Statement live_instances = {
	"SELECT 1 FROM durable_internal.instance WHERE workflow = $1 AND end_seq IS NULL LIMIT 1",
	1, {TEXTOID}, NULL
};

static Statement owner_of_instance = {
	"SELECT v.owner, w.activity_retry FROM durable_internal.instance i"
	" JOIN durable_internal.workflow w ON w.name = i.workflow"
	" JOIN durable_internal.workflow_version v ON v.workflow = i.workflow AND v.version = i.version"
	" WHERE i.iid = $1",
	1, {INT8OID}, NULL
};

static Statement find_activity = {
	"SELECT a.name, a.owner, a.owner_name::text, a.function, a.retry, a.compensate,"
	" a.start_to_close, a.schedule_to_close, a.heartbeat, a.schedule_to_start, a.queue, a.served_by,"
	" a.served_by_name::text, a.compensate_attempted"
	" FROM durable_internal.activity a WHERE a.name = $1 AND a.owner IN ($2, $3)"
	" ORDER BY a.owner <> $2 LIMIT 1",
	3, {TEXTOID, OIDOID, OIDOID}, NULL
};

static Statement store_activity = {
	"INSERT INTO durable_internal.activity (owner, owner_name, name, function, retry, compensate,"
	" start_to_close, schedule_to_close, heartbeat, schedule_to_start, queue, served_by, served_by_name, compensate_attempted)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
	" ON CONFLICT (owner, name) DO UPDATE SET owner_name = excluded.owner_name,"
	" function = excluded.function, retry = excluded.retry, compensate = excluded.compensate,"
	" start_to_close = excluded.start_to_close, schedule_to_close = excluded.schedule_to_close,"
	" heartbeat = excluded.heartbeat, schedule_to_start = excluded.schedule_to_start,"
	" queue = excluded.queue, served_by = excluded.served_by,"
	" served_by_name = excluded.served_by_name, compensate_attempted = excluded.compensate_attempted,"
	" registered_at = excluded.registered_at",
	14, {OIDOID, NAMEOID, TEXTOID, TEXTOID, JSONBOID, TEXTOID, INT8OID, INT8OID,
		INT8OID, INT8OID, TEXTOID, OIDOID, NAMEOID, BOOLOID
	}, NULL
};

/*
 * WorkflowFind: a registered workflow with its current version, or NULL.
 */
WorkflowRow *
WorkflowFind(const char *name)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {TextDatum(name)};
	WorkflowRow *row = NULL;
	Datum		timeout;
	bool		isnull;

	StorageEnter(&scope);
	if (StatementExecute(&find_workflow, values, NULL) == 1)
	{
		MemoryContext old = MemoryContextSwitchTo(cxt);

		row = palloc0(sizeof(WorkflowRow));
		row->name = StatementText(cxt, 0, 1);
		row->owner = DatumGetObjectId(StatementColumn(0, 2, &isnull));
		row->owner_name = StatementText(cxt, 0, 3);
		row->version = DatumGetInt32(StatementColumn(0, 4, &isnull));
		row->run_as = StatementText(cxt, 0, 5);
		row->sandbox = StatementText(cxt, 0, 6);
		row->activity_retry = StatementJsonb(cxt, 0, 7);
		row->capture_settings =
			PointerGetDatum(DatumGetArrayTypePCopy(StatementColumn(0, 8, &isnull)));
		row->function = StatementText(cxt, 0, 9);
		row->definition = StatementText(cxt, 0, 10);
		row->hash = StatementText(cxt, 0, 11);
		row->whole = DatumGetBool(StatementColumn(0, 12, &isnull));
		row->settings = StatementJsonb(cxt, 0, 13);
		timeout = StatementColumn(0, 14, &isnull);
		if (!isnull)
		{
			row->timeout = palloc(sizeof(Interval));
			*row->timeout = *DatumGetIntervalP(timeout);
		}
		row->start_on = StatementText(cxt, 0, 15);
		row->start_filter = StatementJsonb(cxt, 0, 16);
		row->on_change = StatementText(cxt, 0, 17);
		row->since = DatumGetInt32(StatementColumn(0, 18, &isnull));
		MemoryContextSwitchTo(old);
	}
	StorageLeave(&scope);
	return row;
}

/*
 * WorkflowLock: one registration at a time, so that what WorkflowFind says
 * is true when WorkflowStore writes.
 */
void
WorkflowLock(void)
{
	StatementRun(&lock_workflows, NULL, NULL);
}

static void
insert_version(const WorkflowRow *row)
{
	Datum		values[8] = {
		TextDatum(row->name), Int32GetDatum(row->version),
		TextDatum(row->function), TextDatum(row->definition),
		TextDatum(row->hash), BoolGetDatum(row->whole),
		ObjectIdGetDatum(row->owner), NameDatum(row->owner_name)
	};

	StatementRun(&store_version, values, NULL);
}

/*
 * WorkflowStoreVersion: another version of a workflow that is registered.
 */
void
WorkflowStoreVersion(const WorkflowRow *row)
{
	Datum		values[2] = {TextDatum(row->name), Int32GetDatum(row->version)};

	StatementRun(&set_version, values, NULL);
	insert_version(row);
}

/*
 * WorkflowStore: insert or replace a workflow, and its version if it is new.
 */
void
WorkflowStore(const WorkflowRow *row)
{
	Datum		workflow[14] = {
		TextDatum(row->name), ObjectIdGetDatum(row->owner),
		NameDatum(row->owner_name), Int32GetDatum(row->version),
		TextDatum(row->run_as), TextDatum(row->sandbox),
		PointerGetDatum(row->activity_retry), row->capture_settings,
		PointerGetDatum(row->settings), IntervalPGetDatum(row->timeout),
		TextDatum(row->start_on), PointerGetDatum(row->start_filter),
		BoolGetDatum(row->hold_on_undo_failure), TextDatum(row->on_change)
	};
	bool		nulls[14] = {
		[5] = row->sandbox == NULL, [6] = row->activity_retry == NULL,
		[9] = row->timeout == NULL, [10] = row->start_on == NULL,
		[11] = row->start_filter == NULL
	};

	StatementRun(&store_workflow, workflow, nulls);
	insert_version(row);
}

/*
 * WorkflowLastVersion: the highest version of that name ever, or 0.
 */
int
WorkflowLastVersion(const char *name)
{
	StorageScope scope;
	Datum		values[1] = {TextDatum(name)};
	Datum		version;
	bool		isnull;

	StorageEnter(&scope);
	(void) StatementExecute(&last_version, values, NULL);
	version = StatementColumn(0, 1, &isnull);
	StorageLeave(&scope);
	return isnull ? 0 : DatumGetInt32(version);
}

/*
 * WorkflowDelete: forget a workflow.
 */
void
WorkflowDelete(const char *name)
{
	Datum		values[1] = {TextDatum(name)};

	StatementRun(&delete_workflow, values, NULL);
}

/*
 * WorkflowHasLiveInstances: is any instance of it not at its end?
 */
bool
WorkflowHasLiveInstances(const char *name)
{
	Datum		values[1] = {TextDatum(name)};

	return StatementRun(&live_instances, values, NULL) > 0;
}

/*
 * WorkflowOwner: whose code an instance runs (InvalidOid: nobody's any more),
 * and the policy of its activities.
 */
Oid
WorkflowOwner(int64 iid, Jsonb **activity_retry)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	Oid			owner = InvalidOid;
	bool		isnull;

	*activity_retry = NULL;
	StorageEnter(&scope);
	if (StatementExecute(&owner_of_instance, values, NULL) == 1)
	{
		owner = DatumGetObjectId(StatementColumn(0, 1, &isnull));
		*activity_retry = StatementJsonb(cxt, 0, 2);
	}
	StorageLeave(&scope);
	return owner;
}

/*
 * ActivityFind: the registration of an activity that an instance may trust.
 *
 * Only those of the workflow's owner, whose code runs anyway, and of the role
 * the instance runs as: a third role's registration must not put its function
 * in the place of another.
 */
ActivityRow *
ActivityFind(Oid workflow_owner, Oid run_as, const char *name)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[3] = {
		TextDatum(name), ObjectIdGetDatum(workflow_owner), ObjectIdGetDatum(run_as)
	};
	ActivityRow *row = NULL;
	Datum		served_by;
	bool		isnull;

	StorageEnter(&scope);
	if (StatementExecute(&find_activity, values, NULL) == 1)
	{
		row = MemoryContextAllocZero(cxt, sizeof(ActivityRow));
		row->name = StatementText(cxt, 0, 1);
		row->owner = DatumGetObjectId(StatementColumn(0, 2, &isnull));
		row->owner_name = StatementText(cxt, 0, 3);
		row->function = StatementText(cxt, 0, 4);
		row->retry = StatementJsonb(cxt, 0, 5);
		row->compensate = StatementText(cxt, 0, 6);
		row->start_to_close = DatumGetInt64(StatementColumn(0, 7, &isnull));
		row->schedule_to_close = DatumGetInt64(StatementColumn(0, 8, &isnull));
		row->heartbeat = DatumGetInt64(StatementColumn(0, 9, &isnull));
		row->schedule_to_start = DatumGetInt64(StatementColumn(0, 10, &isnull));
		row->queue = StatementText(cxt, 0, 11);
		served_by = StatementColumn(0, 12, &isnull);
		row->served_by = isnull ? InvalidOid : DatumGetObjectId(served_by);
		row->served_by_name = StatementText(cxt, 0, 13);
		row->compensate_attempted = DatumGetBool(StatementColumn(0, 14, &isnull));
	}
	StorageLeave(&scope);
	return row;
}

/*
 * ActivityStore: insert or replace a registered activity.
 */
void
ActivityStore(const ActivityRow *row)
{
	Datum		values[14] = {
		ObjectIdGetDatum(row->owner), NameDatum(row->owner_name),
		TextDatum(row->name), TextDatum(row->function),
		PointerGetDatum(row->retry), TextDatum(row->compensate),
		Int64GetDatum(row->start_to_close), Int64GetDatum(row->schedule_to_close),
		Int64GetDatum(row->heartbeat), Int64GetDatum(row->schedule_to_start),
		TextDatum(row->queue), ObjectIdGetDatum(row->served_by),
		row->served_by_name ? NameDatum(row->served_by_name) : (Datum) 0,
		BoolGetDatum(row->compensate_attempted)
	};
	bool		nulls[14] = {
		[3] = row->function == NULL, [4] = row->retry == NULL,
		[5] = row->compensate == NULL, [10] = row->queue == NULL,
		[11] = !OidIsValid(row->served_by), [12] = row->served_by_name == NULL
	};

	StatementRun(&store_activity, values, nulls);
}
