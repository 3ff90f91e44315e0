/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  Tables ready and timer: what can run, what is running, what sleeps.
 *
 * The row of ready with a lease is the right to run the instance: whoever
 * deletes or releases it says which lease it believes to hold, and has lost
 * the instance if the row says otherwise.
 *
 * Order of row locks: timer, ready, instance, history, for each instance.  A
 * driver that goes to wait sets its timer before it gives up its ready row, so
 * that it and one that fires the old timer never wait for each other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "storage/procarray.h"
#include "utils/builtins.h"

#include "storage/storage.h"

/* Each kind is looked up in the index by itself, see below. */
#define HAS_OF_KIND(kind) \
	" EXISTS (SELECT 1 FROM durable_internal.inbox m" \
	" WHERE m.chain = i.chain AND m.kind = '" kind "' OFFSET 0)"

/*
 * An instance that has ended is never made ready, and one that is suspended
 * only to be terminated: that runs none of its code, and others may wait for it.
 */
#define CAN_RUN \
	" (i.suspended IS NULL OR" HAS_OF_KIND("terminate") ") AND i.end_seq IS NULL"

static Statement insert_ready = {
	"INSERT INTO durable_internal.ready (iid, run_as, priority, suspect)"
	" SELECT i.iid, i.run_as, i.priority, i.suspect FROM durable_internal.instance i"
	" WHERE i.iid = $1 AND" CAN_RUN " ON CONFLICT (iid) DO NOTHING",
	1, {INT8OID}, NULL
};

static Statement insert_many = {
	"INSERT INTO durable_internal.ready (iid, run_as, priority, suspect)"
	" SELECT i.iid, i.run_as, i.priority, i.suspect FROM durable_internal.instance i"
	" WHERE i.iid = ANY ($1) AND" CAN_RUN " ORDER BY i.iid"
	" ON CONFLICT (iid) DO NOTHING",
	1, {INT8ARRAYOID}, NULL
};

static Statement delete_unclaimed = {
	"DELETE FROM durable_internal.ready WHERE iid = $1 AND lease IS NULL",
	1, {INT8OID}, NULL
};

/* Arrays, not joins: these are planned without knowing how few they are. */
static Statement claim_next = {
	"WITH claimed AS (UPDATE durable_internal.ready u"
	" SET lease = $2, leased_at = pg_catalog.clock_timestamp()"
	" WHERE u.iid = ANY (ARRAY(SELECT r.iid FROM durable_internal.ready r"
	" WHERE r.run_as = $1 AND r.lease IS NULL AND (NOT r.suspect OR $3)"
	" ORDER BY r.priority DESC, r.iid LIMIT $4 FOR UPDATE SKIP LOCKED))"
	" RETURNING u.iid, u.priority)"
	" SELECT iid FROM claimed ORDER BY priority DESC, iid",
	4, {OIDOID, INT8OID, BOOLOID, INT4OID}, NULL
};

static Statement claim_one = {
	"UPDATE durable_internal.ready SET lease = $2, leased_at = pg_catalog.clock_timestamp()"
	" WHERE iid = (SELECT r.iid FROM durable_internal.ready r"
	" WHERE r.iid = $1 AND r.lease IS NULL FOR UPDATE SKIP LOCKED)",
	2, {INT8OID, INT8OID}, NULL
};

static Statement delete_ready = {
	"DELETE FROM durable_internal.ready WHERE iid = $1 AND lease = $2",
	2, {INT8OID, INT8OID}, NULL
};

static Statement release_ready = {
	"UPDATE durable_internal.ready SET lease = NULL, leased_at = NULL"
	" WHERE iid = $1 AND lease = $2",
	2, {INT8OID, INT8OID}, NULL
};

/*
 * After a crash of the server: what ran then is suspect, and what ran alone is
 * held when it did so often enough.
 */
static Statement count_crash = {
	"WITH ran AS (SELECT r.iid, r.suspect FROM durable_internal.ready r WHERE r.lease = $1),"
	" i AS (UPDATE durable_internal.instance i SET suspect = true,"
	" crashes = i.crashes + ran.suspect::int,"
	" suspended = CASE WHEN i.crashes + ran.suspect::int >= $2 THEN 'held' ELSE i.suspended END,"
	" reason = CASE WHEN i.crashes + ran.suspect::int >= $2"
	" THEN 'WF005: the server crashed ' || $2 || ' times while this instance ran alone' ELSE i.reason END"
	" FROM ran WHERE i.iid = ran.iid RETURNING i.iid, i.suspended),"
	" gone AS (DELETE FROM durable_internal.ready d USING i"
	" WHERE d.iid = i.iid AND i.suspended IS NOT NULL)"
	" UPDATE durable_internal.ready u SET lease = NULL, leased_at = NULL, suspect = true"
	" FROM i WHERE u.iid = i.iid AND i.suspended IS NULL",
	2, {INT8OID, INT4OID}, NULL
};

static Statement find_suspect = {
	"SELECT r.iid, r.run_as FROM durable_internal.ready r"
	" WHERE r.suspect AND r.lease IS NULL ORDER BY r.priority DESC, r.iid LIMIT 1",
	0, {0}, NULL
};

static Statement clear_suspect = {
	"UPDATE durable_internal.instance SET suspect = false, crashes = 0 WHERE iid = $1",
	1, {INT8OID}, NULL
};

static Statement release_lease = {
	"UPDATE durable_internal.ready SET lease = NULL, leased_at = NULL WHERE lease = $1",
	1, {INT8OID}, NULL
};

static Statement list_leases = {
	"SELECT DISTINCT r.lease FROM durable_internal.ready r"
	" WHERE ($1 = 0 OR r.run_as = $1) AND r.lease IS NOT NULL ORDER BY r.lease",
	1, {OIDOID}, NULL
};

static Statement set_timer = {
	"INSERT INTO durable_internal.timer (iid, run_as, wake_at) VALUES ($1, $2, $3)"
	" ON CONFLICT (iid) DO UPDATE SET wake_at = excluded.wake_at",
	3, {INT8OID, OIDOID, TIMESTAMPTZOID}, NULL
};

static Statement clear_timer = {
	"DELETE FROM durable_internal.timer WHERE iid = $1",
	1, {INT8OID}, NULL
};

/*
 * A timer that fires for an instance which is ready anyway is only deleted:
 * the driver sets it again if the instance then waits for it still.
 */
static Statement fire_due = {
	"WITH due AS (DELETE FROM durable_internal.timer WHERE iid = ANY (ARRAY"
	"(SELECT t.iid FROM durable_internal.timer t"
	" WHERE t.wake_at <= pg_catalog.clock_timestamp() AND ($1 = 0 OR t.run_as = $1)"
	" ORDER BY t.wake_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING iid),"
	" made AS (INSERT INTO durable_internal.ready (iid, run_as, priority, suspect)"
	" SELECT i.iid, i.run_as, i.priority, i.suspect FROM due CROSS JOIN LATERAL"
	" (SELECT l.* FROM durable_internal.instance l WHERE l.iid = due.iid OFFSET 0) i"
	" WHERE" CAN_RUN " ORDER BY i.iid"
	" ON CONFLICT (iid) DO NOTHING)"
	" SELECT 1 FROM due",
	1, {OIDOID}, NULL
};

/*
 * May the instance be woken?  What has ended, is suspended or runs may not.
 * OFFSET 0: no join, which might read the whole of a queue (see instance.c).
 */
#define CAN_WAKE \
	CAN_RUN " AND NOT EXISTS (SELECT 1 FROM durable_internal.ready r WHERE r.iid = i.iid OFFSET 0)" \
	" AND NOT EXISTS (SELECT 1 FROM durable_internal.parked p WHERE p.iid = i.iid OFFSET 0)"

/*
 * Is there a message that wakes instance i?  Requests always do.
 *
 * Each kind is looked up in the index by itself: an inbox may hold any number
 * of messages that nobody waits for, and this is asked for every one that
 * comes.  OFFSET 0 keeps the planner from making a hash of the whole inbox.
 */
#define HAS_AWAITED \
	" EXISTS (SELECT 1 FROM pg_catalog.unnest(i.awaits) AS w (what) CROSS JOIN LATERAL" \
	" (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = i.chain" \
	" AND m.kind = pg_catalog.split_part(w.what, ':', 1)" \
	" AND m.name = pg_catalog.substr(w.what, pg_catalog.strpos(w.what, ':') + 1)" \
	" AND (m.kind <> 'event' OR i.awaits_filter IS NULL" \
	" OR m.payload -> 'data' @> i.awaits_filter) OFFSET 0) m OFFSET 0)"

#define WAKES \
	" (" HAS_OF_KIND("cancel") " OR" HAS_OF_KIND("terminate") \
	" OR i.started_at IS NOT NULL AND" HAS_OF_KIND("update") \
	" OR" HAS_AWAITED ") AND" CAN_WAKE

/* The same for an event m that instance i competes for by subscription s. */
#define WAKES_COMPETING \
	" m.chain = 0 AND m.kind = 'event' AND s.mode = 'competing'" \
	" AND ('event:' || m.name) = ANY (i.awaits)" \
	" AND pg_catalog.pg_has_role((m.payload ->> 'publisher')::pg_catalog.oid, s.run_as, 'USAGE')" \
	" AND (s.filter IS NULL OR m.payload -> 'event' -> 'data' @> s.filter)" \
	" AND (i.awaits_filter IS NULL OR m.payload -> 'event' -> 'data' @> i.awaits_filter) AND" CAN_WAKE

static Statement messages_for = {
	"SELECT i.iid FROM (SELECT DISTINCT m.chain FROM durable_internal.inbox m) c"
	LAST_RUN_OF("c.chain")
	" WHERE ($1 = 0 OR i.run_as = $1) AND" WAKES " ORDER BY i.iid",
	1, {OIDOID}, NULL
};

static Statement messages_among = {
	"SELECT DISTINCT i.iid FROM pg_catalog.unnest($1) AS c (chain)"
	LAST_RUN_OF("c.chain") " WHERE" WAKES " ORDER BY i.iid",
	1, {INT8ARRAYOID}, NULL
};

/*
 * An event that another one is taking (xmax, in a transaction that goes on) is
 * not there: else all others would be woken again and again until it is gone.
 * If it is given back, the scheduler is told (WakeupTaken).
 */
static Statement messages_competing = {
	"SELECT DISTINCT i.iid, m.xmax::pg_catalog.text::pg_catalog.int8 FROM durable_internal.inbox m"
	" JOIN durable_internal.subscription s ON s.type = m.name"
	LAST_RUN_OF("s.chain")
	" WHERE ($1 = 0 OR i.run_as = $1) AND" WAKES_COMPETING " ORDER BY i.iid",
	1, {OIDOID}, NULL
};

/* The same for one instance. */
static Statement has_message = {
	"SELECT 1 FROM durable_internal.instance i WHERE i.iid = $1 AND" WAKES,
	1, {INT8OID}, NULL
};

static Statement has_competing_message = {
	"SELECT DISTINCT i.iid, m.xmax::pg_catalog.text::pg_catalog.int8 FROM durable_internal.instance i"
	" JOIN durable_internal.subscription s ON s.chain = i.chain"
	" JOIN durable_internal.inbox m ON m.name = s.type"
	" WHERE i.iid = $1 AND" WAKES_COMPETING,
	1, {INT8OID}, NULL
};

/*
 * What a message means for its instance: is it to be woken, and if not, is
 * there something that only the scheduler can see to?
 */
static Statement look_at_message = {
	"SELECT i.iid, i.run_as = $2 AND NOT i.suspect AND" WAKES ","
	" i.run_as <> $2 OR i.suspect OR i.end_seq IS NOT NULL"
	" FROM (SELECT $1 AS chain) c" LAST_RUN_OF("c.chain"),
	2, {INT8OID, OIDOID}, NULL
};

static Statement claim_waiting = {
	"INSERT INTO durable_internal.ready (iid, run_as, priority, lease, leased_at)"
	" SELECT i.iid, i.run_as, i.priority, $2, pg_catalog.clock_timestamp()"
	" FROM durable_internal.instance i"
	" WHERE i.iid = $1 AND NOT i.suspect AND" CAN_RUN
	" ON CONFLICT (iid) DO NOTHING",
	2, {INT8OID, INT8OID}, NULL
};

static Statement next_timer = {
	"SELECT t.wake_at FROM durable_internal.timer t ORDER BY t.wake_at LIMIT 1",
	0, {0}, NULL
};

static Statement has_ready = {
	"SELECT 1 FROM durable_internal.ready r"
	" WHERE r.run_as = $1 AND r.lease IS NULL AND NOT r.suspect LIMIT 1 FOR UPDATE SKIP LOCKED",
	1, {OIDOID}, NULL
};

/* The roles one by one from the index, and of each no more than we need. */
static Statement ready_roles = {
	"WITH RECURSIVE role (oid) AS ("
	" (SELECT r.run_as FROM durable_internal.ready r ORDER BY r.run_as LIMIT 1)"
	" UNION ALL SELECT (SELECT r.run_as FROM durable_internal.ready r WHERE r.run_as > role.oid"
	" ORDER BY r.run_as LIMIT 1) FROM role WHERE role.oid IS NOT NULL)"
	" SELECT role.oid, n.unclaimed FROM role CROSS JOIN LATERAL"
	" (SELECT pg_catalog.count(*)::int AS unclaimed FROM (SELECT 1 FROM durable_internal.ready r"
	" WHERE r.run_as = role.oid AND r.lease IS NULL AND NOT r.suspect LIMIT 100) x) n"
	" WHERE n.unclaimed > 0",
	0, {0}, NULL
};

static Statement hold_role = {
	"WITH gone AS (DELETE FROM durable_internal.ready WHERE iid IN (SELECT r.iid FROM durable_internal.ready r"
	" WHERE r.run_as = $1 AND r.lease IS NULL FOR UPDATE SKIP LOCKED) RETURNING iid)"
	" UPDATE durable_internal.instance i SET suspended = 'held', reason = $2"
	" FROM gone WHERE i.iid = gone.iid",
	2, {OIDOID, TEXTOID}, NULL
};

static int64 *
read_numbers(MemoryContext cxt, int count)
{
	int64	   *numbers = MemoryContextAlloc(cxt, sizeof(int64) * Max(count, 1));
	bool		isnull;

	for (int i = 0; i < count; i++)
		numbers[i] = DatumGetInt64(StatementColumn(i, 1, &isnull));
	return numbers;
}

static int
list_numbers(Statement *statement, Datum key, int64 **numbers)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	int			count;

	StorageEnter(&scope);
	count = (int) StatementExecute(statement, &key, NULL);
	*numbers = read_numbers(cxt, count);
	StorageLeave(&scope);
	return count;
}

/*
 * ReadyInsert: put an instance into the queue, unless it is there.
 */
void
ReadyInsert(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	StatementRun(&insert_ready, values, NULL);
}

/*
 * ReadyClaim: take the next instances of a role, no more than limit; how many
 * there are.
 */
int
ReadyClaim(Oid run_as, int64 lease, bool suspects, int limit, int64 **iids)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[4] = {
		ObjectIdGetDatum(run_as), Int64GetDatum(lease),
		BoolGetDatum(suspects), Int32GetDatum(limit)
	};
	int			count;

	StorageEnter(&scope);
	count = (int) StatementExecute(&claim_next, values, NULL);
	*iids = read_numbers(cxt, count);
	StorageLeave(&scope);
	return count;
}

/*
 * ReadyClaimOne: take this instance; false if it is not there to be taken.
 */
bool
ReadyClaimOne(int64 iid, int64 lease)
{
	Datum		values[2] = {Int64GetDatum(iid), Int64GetDatum(lease)};

	return StatementRun(&claim_one, values, NULL) == 1;
}

/*
 * ReadyDelete: the instance waits or has ended.  False: it is not ours.
 */
bool
ReadyDelete(int64 iid, int64 lease)
{
	Datum		values[2] = {Int64GetDatum(iid), Int64GetDatum(lease)};

	return StatementRun(&delete_ready, values, NULL) == 1;
}

/*
 * ReadyRelease: let others run it.  False: it is not ours.
 */
bool
ReadyRelease(int64 iid, int64 lease)
{
	Datum		values[2] = {Int64GetDatum(iid), Int64GetDatum(lease)};

	return StatementRun(&release_ready, values, NULL) == 1;
}

/*
 * ReadyCountCrash: what a lease held was running when the server crashed.
 */
void
ReadyCountCrash(int64 lease, int max_crashes)
{
	Datum		values[2] = {Int64GetDatum(lease), Int32GetDatum(max_crashes)};

	StatementRun(&count_crash, values, NULL);
}

/*
 * ReadySuspect: an instance that is to run alone, 0 if there is none.
 */
int64
ReadySuspect(Oid *run_as)
{
	StorageScope scope;
	int64		iid = 0;
	bool		isnull;

	StorageEnter(&scope);
	if (StatementExecute(&find_suspect, NULL, NULL) > 0)
	{
		iid = DatumGetInt64(StatementColumn(0, 1, &isnull));
		*run_as = DatumGetObjectId(StatementColumn(0, 2, &isnull));
	}
	StorageLeave(&scope);
	return iid;
}

/*
 * SuspectClear: it has come further than the crash.
 */
void
SuspectClear(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	StatementRun(&clear_suspect, values, NULL);
}

/*
 * ReadyReleaseAll: all that a lease holds can be run by others.
 */
void
ReadyReleaseAll(int64 lease)
{
	Datum		values[1] = {Int64GetDatum(lease)};

	StatementRun(&release_lease, values, NULL);
}

/*
 * ReadyLeases: the leases under which instances of a role, or of all, are
 * running.
 */
int
ReadyLeases(Oid run_as, int64 **leases)
{
	return list_numbers(&list_leases, ObjectIdGetDatum(run_as), leases);
}

/*
 * TimerSet: when to look at the instance again.
 */
void
TimerSet(int64 iid, Oid run_as, TimestampTz wake_at)
{
	Datum		values[3] = {
		Int64GetDatum(iid), ObjectIdGetDatum(run_as),
		TimestampTzGetDatum(wake_at)
	};

	StatementRun(&set_timer, values, NULL);
}

/*
 * TimerClear: not any more.
 */
void
TimerClear(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	StatementRun(&clear_timer, values, NULL);
}

/*
 * TimerFireDue: make ready what is due, up to a thousand at a time; how many
 * there were.
 */
uint64
TimerFireDue(Oid run_as)
{
	Datum		values[1] = {ObjectIdGetDatum(run_as)};

	return StatementRun(&fire_due, values, NULL);
}

/*
 * TimerNext: when the next one is due, 0 if there is none.
 */
TimestampTz
TimerNext(void)
{
	StorageScope scope;
	TimestampTz next = 0;

	StorageEnter(&scope);
	if (StatementExecute(&next_timer, NULL, NULL) > 0)
		next = StatementTime(0, 1);
	StorageLeave(&scope);
	return next;
}

/*
 * ReadyHas: is there something to claim for a role?
 */
bool
ReadyHas(Oid run_as)
{
	Datum		values[1] = {ObjectIdGetDatum(run_as)};

	return StatementRun(&has_ready, values, NULL) > 0;
}

/*
 * ReadyRoles: the roles with something to claim.
 */
int
ReadyRoles(RoleReady **roles)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	int			count;
	bool		isnull;

	StorageEnter(&scope);
	count = (int) StatementExecute(&ready_roles, NULL, NULL);
	*roles = MemoryContextAlloc(cxt, sizeof(RoleReady) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		(*roles)[i].role = DatumGetObjectId(StatementColumn(i, 1, &isnull));
		(*roles)[i].unclaimed = DatumGetInt32(StatementColumn(i, 2, &isnull));
	}
	StorageLeave(&scope);
	return count;
}

/*
 * RoleHold: hold all that is ready of a role that cannot run anything.
 */
void
RoleHold(Oid run_as, const char *reason)
{
	Datum		values[2] = {ObjectIdGetDatum(run_as), TextDatum(reason)};

	StatementRun(&hold_role, values, NULL);
}

/*
 * ReadyInsertMany: put instances into the queue.
 */
void
ReadyInsertMany(const int64 *iids, int count)
{
	Datum		values[1] = {NumberArray(iids, count)};

	StatementRun(&insert_many, values, NULL);
}

/*
 * ReadyWithdraw: take an instance out of the queue, if nobody runs it.
 */
void
ReadyWithdraw(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	StatementRun(&delete_unclaimed, values, NULL);
}

/*
 * MessagesAmong: the instances of these chains that are to be woken by a
 * message which has come.
 */
int
MessagesAmong(const int64 *chains, int count, int64 **iids)
{
	return list_numbers(&messages_among, NumberArray(chains, count), iids);
}

/*
 * MessagesFor: the instances of a role, or of all (InvalidOid), that are to be
 * woken by a message which has come.
 */
int
MessagesFor(Oid run_as, int64 **iids)
{
	return list_numbers(&messages_for, ObjectIdGetDatum(run_as), iids);
}

/*
 * list_competing: instances for which there is an event that nobody is taking;
 * the statement gives them in order, with who last meant to.
 */
static int
list_competing(Statement *statement, Datum key, int64 **iids)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	int			rows;
	int			count = 0;
	bool		isnull;

	StorageEnter(&scope);
	rows = (int) StatementExecute(statement, &key, NULL);
	*iids = MemoryContextAllocHuge(cxt, sizeof(int64) * Max(rows, 1));
	for (int i = 0; i < rows; i++)
	{
		int64		iid = DatumGetInt64(StatementColumn(i, 1, &isnull));
		TransactionId taker = (TransactionId) DatumGetInt64(StatementColumn(i, 2, &isnull));

		if (count > 0 && (*iids)[count - 1] == iid)
			continue;
		if (!TransactionIdIsValid(taker) || !TransactionIdIsInProgress(taker))
			(*iids)[count++] = iid;
	}
	StorageLeave(&scope);
	return count;
}

/*
 * MessagesCompeting: the same for events of which each is for one of several.
 */
int
MessagesCompeting(Oid run_as, int64 **iids)
{
	return list_competing(&messages_competing, ObjectIdGetDatum(run_as), iids);
}

/*
 * MessageLook: what the messages of a chain mean for its instance, if that is
 * of the role.
 */
MessageMeans
MessageLook(int64 chain, Oid run_as, int64 *iid)
{
	StorageScope scope;
	Datum		values[2] = {Int64GetDatum(chain), ObjectIdGetDatum(run_as)};
	MessageMeans means = MESSAGE_MEANS_NOTHING;
	bool		isnull;

	StorageEnter(&scope);
	if (StatementExecute(&look_at_message, values, NULL) > 0)
	{
		*iid = DatumGetInt64(StatementColumn(0, 1, &isnull));
		if (DatumGetBool(StatementColumn(0, 2, &isnull)))
			means = MESSAGE_WAKES;
		else if (DatumGetBool(StatementColumn(0, 3, &isnull)))
			means = MESSAGE_FOR_SCHEDULER;
	}
	StorageLeave(&scope);
	return means;
}

/*
 * ReadyClaimWaiting: take an instance that waits; false if somebody has made
 * it ready, or it cannot run.
 */
bool
ReadyClaimWaiting(int64 iid, int64 lease)
{
	Datum		values[2] = {Int64GetDatum(iid), Int64GetDatum(lease)};

	return StatementRun(&claim_waiting, values, NULL) == 1;
}

/*
 * MessagesHas: is there one for this instance?
 */
bool
MessagesHas(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	return StatementRun(&has_message, values, NULL) > 0;
}

/*
 * MessagesHasCompeting: is there an event for one of several, of which this
 * instance is one?
 */
bool
MessagesHasCompeting(int64 iid)
{
	int64	   *iids;
	int			count = list_competing(&has_competing_message,
									   Int64GetDatum(iid), &iids);

	pfree(iids);
	return count > 0;
}
