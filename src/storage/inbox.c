/*-------------------------------------------------------------------------
 *
 * inbox.c
 *	  Table inbox: messages that no instance has taken yet.
 *
 * A sender only inserts; it never locks or updates the instance.  The executor
 * takes a row by DELETE of what it sees, never by a high-water mark: numbers
 * are not given in the order of commits.  What nothing waits for stays here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "storage/storage.h"

static Statement insert_message = {
	"INSERT INTO durable_internal.inbox (mid, chain, kind, name, payload, sent_at)"
	" VALUES (pg_catalog.nextval('durable_internal.mid_seq'), $1, $2, $3, $4, pg_catalog.clock_timestamp())"
	" RETURNING mid",
	4, {INT8OID, TEXTOID, TEXTOID, JSONBOID}, NULL
};

static Statement insert_restart = {
	"INSERT INTO durable_internal.inbox (mid, chain, kind, name, payload, sent_at, restart)"
	" VALUES (pg_catalog.nextval('durable_internal.mid_seq'), $1, 'signal', $2, $3, pg_catalog.clock_timestamp(), $4)",
	4, {INT8OID, TEXTOID, JSONBOID, JSONBOID}, NULL
};

/* Of an inbox by the index: there may be very many messages for others. */
#define DELETE_OF_CHAIN(which) \
	"DELETE FROM durable_internal.inbox m WHERE m.mid = ANY (ARRAY(SELECT l.mid" \
	" FROM durable_internal.instance i CROSS JOIN LATERAL" \
	" (SELECT x.mid FROM durable_internal.inbox x WHERE x.chain = i.chain AND " which " OFFSET 0) l" \
	" WHERE i.iid = $1))"

static Statement take_restarts = {
	"WITH gone AS (" DELETE_OF_CHAIN("x.restart IS NOT NULL")
	" RETURNING m.mid, m.name, m.payload, m.restart)"
	" SELECT name, payload, restart FROM gone ORDER BY mid",
	1, {INT8OID}, NULL
};

static Statement take_message = {
	"DELETE FROM durable_internal.inbox WHERE mid ="
	" (SELECT m.mid FROM durable_internal.inbox m"
	" WHERE m.chain = $1 AND m.kind = $2 AND m.name = $3 ORDER BY m.mid LIMIT 1)"
	" RETURNING payload",
	3, {INT8OID, TEXTOID, TEXTOID}, NULL
};

static Statement take_event = {
	"DELETE FROM durable_internal.inbox WHERE mid ="
	" (SELECT m.mid FROM durable_internal.inbox m"
	" WHERE m.chain = $1 AND m.kind = 'event' AND m.name = $2"
	" AND ($3 IS NULL OR m.payload -> 'data' @> $3) ORDER BY m.mid LIMIT 1)"
	" RETURNING payload",
	3, {INT8OID, TEXTOID, JSONBOID}, NULL
};

/*
 * An event for one of several subscribers: whoever takes it first.
 */
static Statement take_competing = {
	"DELETE FROM durable_internal.inbox WHERE mid ="
	" (SELECT m.mid FROM durable_internal.inbox m JOIN durable_internal.subscription s"
	" ON s.chain = $1 AND s.type = m.name AND s.mode = 'competing'"
	" WHERE m.chain = 0 AND m.kind = 'event' AND m.name = $2"
	" AND pg_catalog.pg_has_role((m.payload ->> 'publisher')::pg_catalog.oid, s.run_as, 'USAGE')"
	" AND (s.filter IS NULL OR m.payload -> 'event' -> 'data' @> s.filter)"
	" AND ($3 IS NULL OR m.payload -> 'event' -> 'data' @> $3)"
	" ORDER BY m.mid LIMIT 1 FOR UPDATE OF m SKIP LOCKED)"
	" RETURNING payload -> 'event'",
	3, {INT8OID, TEXTOID, JSONBOID}, NULL
};

static Statement take_all = {
	"WITH gone AS (DELETE FROM durable_internal.inbox"
	" WHERE chain = $1 AND kind = $2 RETURNING mid, payload)"
	" SELECT payload FROM gone ORDER BY mid",
	2, {INT8OID, TEXTOID}, NULL
};

/* The oldest of each name by the index: there may be many more than asked for. */
static Statement list_some = {
	"SELECT m.mid, m.kind, m.name, m.payload FROM"
	" (SELECT s.* FROM pg_catalog.unnest($2) AS n (name) CROSS JOIN LATERAL"
	" (SELECT m.mid, m.kind, m.name, m.payload FROM durable_internal.inbox m"
	" WHERE m.chain = $1 AND m.kind = 'signal' AND m.name = n.name ORDER BY m.mid LIMIT $3) s"
	" UNION ALL SELECT m.mid, m.kind, m.name, m.payload FROM durable_internal.inbox m"
	" WHERE m.chain = $1 AND m.kind = 'update') m"
	" ORDER BY m.mid LIMIT $3",
	3, {INT8OID, TEXTARRAYOID, INT4OID}, NULL
};

static Statement delete_some = {
	"DELETE FROM durable_internal.inbox WHERE mid = ANY ($1)",
	1, {INT8ARRAYOID}, NULL
};

static Statement find_control = {
	"SELECT m.kind, m.payload FROM pg_catalog.unnest('{terminate,cancel}'::text[]) AS k (kind)"
	" CROSS JOIN LATERAL (SELECT m.kind, m.payload, m.mid FROM durable_internal.inbox m"
	" WHERE m.chain = $1 AND m.kind = k.kind OFFSET 0) m ORDER BY m.kind DESC, m.mid LIMIT 1",
	1, {INT8OID}, NULL
};

static Statement insert_key = {
	"INSERT INTO durable_internal.signal_key (chain, key) VALUES ($1, $2) ON CONFLICT DO NOTHING",
	2, {INT8OID, TEXTOID}, NULL
};

/*
 * Messages to an instance that has ended, recorded behind the end; and whether
 * there are some that are to start the next run, which can be kept ($2).
 */
static Statement drop_messages = {
	"WITH gone AS (" DELETE_OF_CHAIN("(x.restart IS NULL OR NOT $2)")
	" RETURNING $1 AS iid, m.mid, m.kind, m.name, m.payload),"
	" answered AS (INSERT INTO durable_internal.answer (mid, iid, error) SELECT g.mid, g.iid,"
	" pg_catalog.jsonb_build_object('sqlstate', 'WF005', 'message', 'the instance has ended')"
	" FROM gone g WHERE g.kind = 'update'),"
	" numbered AS (SELECT g.*, pg_catalog.row_number() OVER (PARTITION BY g.iid ORDER BY g.mid) AS n FROM gone g),"
	" told AS (INSERT INTO durable_internal.history (iid, seq, event, name, args, data, at)"
	" SELECT n.iid, (SELECT pg_catalog.max(h.seq) FROM durable_internal.history h WHERE h.iid = n.iid) + n.n,"
	" 'MessageDropped', NULLIF(n.name, ''), n.payload, pg_catalog.jsonb_build_object('kind', n.kind),"
	" pg_catalog.clock_timestamp() FROM numbered n)"
	" SELECT (SELECT pg_catalog.count(*) FROM gone), $2 AND EXISTS"
	" (SELECT 1 FROM durable_internal.instance i CROSS JOIN LATERAL"
	" (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = i.chain AND m.restart IS NOT NULL OFFSET 0) m"
	" WHERE i.iid = $1)",
	2, {INT8OID, BOOLOID}, NULL
};

/*
 * Who drops what came behind the end does so alone: the numbers of its rows
 * are the next ones.  Whoever has the row is dropping too, or reopens it.
 */
static Statement lock_ended = {
	"SELECT 1 FROM durable_internal.instance i WHERE i.iid = $1 AND i.end_seq IS NOT NULL"
	" FOR NO KEY UPDATE SKIP LOCKED",
	1, {INT8OID}, NULL
};

/* The last row of a child's position tells what is to become of it. */
static Statement close_children = {
	"INSERT INTO durable_internal.inbox (mid, chain, kind, name, payload, sent_at)"
	" SELECT pg_catalog.nextval('durable_internal.mid_seq'), c.chain, h.data ->> 'on_close', '',"
	" '{\"reason\": \"The parent has ended.\"}', pg_catalog.clock_timestamp()"
	" FROM durable_internal.instance c JOIN durable_internal.history h"
	" ON h.iid = $1 AND h.position = c.parent_position AND h.event IN ('ChildStarted', 'ActivityScheduled')"
	" WHERE c.parent = $1 AND c.end_seq IS NULL AND h.data ->> 'on_close' <> 'abandon'"
	" RETURNING chain, kind = 'terminate'",
	1, {INT8OID}, NULL
};

static Statement orphans_of_all = {
	"SELECT i.iid FROM (SELECT DISTINCT m.chain FROM durable_internal.inbox m) c"
	LAST_RUN_OF("c.chain") " WHERE i.end_seq IS NOT NULL ORDER BY i.iid",
	0, {0}, NULL
};

static Statement orphans_among = {
	"SELECT DISTINCT i.iid FROM pg_catalog.unnest($1) AS c (chain)" LAST_RUN_OF("c.chain")
	" WHERE i.end_seq IS NOT NULL AND EXISTS"
	" (SELECT 1 FROM durable_internal.inbox m WHERE m.chain = c.chain OFFSET 0) ORDER BY i.iid",
	1, {INT8ARRAYOID}, NULL
};

/*
 * InboxInsert: leave a message for a chain of runs; its number.
 */
int64
InboxInsert(int64 chain, const char *kind, const char *name, Jsonb *payload)
{
	StorageScope scope;
	Datum		values[4] = {
		Int64GetDatum(chain), TextDatum(kind), TextDatum(name),
		PointerGetDatum(payload)
	};
	int64		mid;
	bool		isnull;

	StorageEnter(&scope);
	(void) StatementExecute(&insert_message, values, NULL);
	mid = DatumGetInt64(StatementColumn(0, 1, &isnull));
	StorageLeave(&scope);
	return mid;
}

/*
 * InboxUseKey: a signal of that key is to be sent; false if one was.
 */
bool
InboxUseKey(int64 chain, const char *key)
{
	Datum		values[2] = {Int64GetDatum(chain), TextDatum(key)};

	return StatementRun(&insert_key, values, NULL) == 1;
}

static Jsonb *
take_one(Statement *statement, Datum *values, const bool *nulls,
		 MemoryContext cxt)
{
	StorageScope scope;
	Jsonb	   *payload = NULL;

	StorageEnter(&scope);
	if (StatementExecute(statement, values, nulls) > 0)
		payload = StatementJsonb(cxt, 0, 1);
	StorageLeave(&scope);
	return payload;
}

/*
 * InboxTake: take the oldest message of that name, or NULL if there is none.
 */
Jsonb *
InboxTake(int64 chain, const char *kind, const char *name, MemoryContext cxt)
{
	Datum		values[3] = {
		Int64GetDatum(chain), TextDatum(kind), TextDatum(name)
	};

	return take_one(&take_message, values, NULL, cxt);
}

/*
 * InboxTakeEvent: the same for an event whose data contain the filter: of our
 * own, else one that we compete for.
 */
Jsonb *
InboxTakeEvent(int64 chain, const char *type, Jsonb *filter, bool *competing,
			   MemoryContext cxt)
{
	Datum		values[3] = {
		Int64GetDatum(chain), TextDatum(type), PointerGetDatum(filter)
	};
	bool		nulls[3] = {false, false, filter == NULL};
	Jsonb	   *event = take_one(&take_event, values, nulls, cxt);

	*competing = false;
	if (event == NULL)
	{
		event = take_one(&take_competing, values, nulls, cxt);
		*competing = event != NULL;
	}
	return event;
}

/*
 * InboxTakeAll: all messages of a kind, oldest first; how many there were.
 */
int
InboxTakeAll(int64 chain, const char *kind, Jsonb ***payloads)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[2] = {Int64GetDatum(chain), TextDatum(kind)};
	int			count;

	StorageEnter(&scope);
	count = (int) StatementExecute(&take_all, values, NULL);
	*payloads = MemoryContextAllocHuge(cxt, sizeof(Jsonb *) * Max(count, 1));
	for (int i = 0; i < count; i++)
		(*payloads)[i] = StatementJsonb(cxt, i, 1);
	StorageLeave(&scope);
	return count;
}

/*
 * InboxList: updates and signals of those names, oldest first, left where
 * they are; how many there are, no more than limit.
 */
int
InboxList(int64 chain, Datum names, int limit, InboxRow **rows)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[3] = {Int64GetDatum(chain), names, Int32GetDatum(limit)};
	int			count;
	bool		isnull;

	StorageEnter(&scope);
	count = (int) StatementExecute(&list_some, values, NULL);
	*rows = MemoryContextAlloc(cxt, sizeof(InboxRow) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		InboxRow   *row = &(*rows)[i];

		row->mid = DatumGetInt64(StatementColumn(i, 1, &isnull));
		row->kind = StatementText(cxt, i, 2);
		row->name = StatementText(cxt, i, 3);
		row->payload = StatementJsonb(cxt, i, 4);
	}
	StorageLeave(&scope);
	return count;
}

/*
 * InboxDelete: these are taken.
 */
void
InboxDelete(const int64 *mids, int count)
{
	Datum		values[1] = {NumberArray(mids, count)};

	StatementRun(&delete_some, values, NULL);
}

/*
 * InboxControl: what was asked of the instance: "terminate", "cancel" or NULL.
 */
const char *
InboxControl(int64 chain, Jsonb **payload)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(chain)};
	const char *kind = NULL;

	StorageEnter(&scope);
	if (StatementExecute(&find_control, values, NULL) > 0)
	{
		kind = StatementText(cxt, 0, 1);
		*payload = StatementJsonb(cxt, 0, 2);
	}
	StorageLeave(&scope);
	return kind;
}

/*
 * InboxDrop: an ended instance receives nothing more: what is there goes into
 * its history as dropped; how many there were.
 *
 * keep_restarts: but not what is to start the next run; is there such?
 */
int64
InboxDrop(int64 iid, bool keep_restarts, bool *restarts)
{
	StorageScope scope;
	Datum		values[2] = {Int64GetDatum(iid), BoolGetDatum(keep_restarts)};
	int64		dropped;
	bool		isnull;

	StorageEnter(&scope);
	(void) StatementExecute(&drop_messages, values, NULL);
	dropped = DatumGetInt64(StatementColumn(0, 1, &isnull));
	*restarts = DatumGetBool(StatementColumn(0, 2, &isnull));
	StorageLeave(&scope);
	return dropped;
}

/*
 * InboxLockEnded: be the only one to drop messages of an ended instance; false
 * if another is, or it goes on.
 */
bool
InboxLockEnded(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	return StatementRun(&lock_ended, values, NULL) > 0;
}

/*
 * InboxInsertRestart: a signal that starts the next run if this one has ended.
 */
void
InboxInsertRestart(int64 chain, const char *name, Jsonb *payload,
				   Jsonb *restart)
{
	Datum		values[4] = {
		Int64GetDatum(chain), TextDatum(name), PointerGetDatum(payload),
		PointerGetDatum(restart)
	};

	StatementRun(&insert_restart, values, NULL);
}

/*
 * InboxTakeRestarts: those that came behind the end, oldest first; how many.
 */
int
InboxTakeRestarts(int64 iid, RestartRow **rows)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	int			count;

	StorageEnter(&scope);
	count = (int) StatementExecute(&take_restarts, values, NULL);
	*rows = MemoryContextAllocHuge(cxt, sizeof(RestartRow) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		(*rows)[i].name = StatementText(cxt, i, 1);
		(*rows)[i].payload = StatementJsonb(cxt, i, 2);
		(*rows)[i].restart = StatementJsonb(cxt, i, 3);
	}
	StorageLeave(&scope);
	return count;
}

/*
 * InboxOrphans: the ended instances that have messages, of these chains or
 * (NULL) of all.
 */
int
InboxOrphans(const int64 *chains, int count, int64 **iids)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {chains ? NumberArray(chains, count) : (Datum) 0};
	int			found;
	bool		isnull;

	StorageEnter(&scope);
	found = (int) StatementExecute(chains ? &orphans_among : &orphans_of_all,
								   values, NULL);
	*iids = MemoryContextAlloc(cxt, sizeof(int64) * Max(found, 1));
	for (int i = 0; i < found; i++)
		(*iids)[i] = DatumGetInt64(StatementColumn(i, 1, &isnull));
	StorageLeave(&scope);
	return found;
}

/*
 * InboxCloseChildren: tell the children of an instance that it has ended;
 * their chains, and which of them are to end at once.
 */
int
InboxCloseChildren(int64 parent, int64 **chains, bool **terminated)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(parent)};
	int			count;
	bool		isnull;

	StorageEnter(&scope);
	count = (int) StatementExecute(&close_children, values, NULL);
	*chains = MemoryContextAlloc(cxt, sizeof(int64) * Max(count, 1));
	*terminated = MemoryContextAlloc(cxt, sizeof(bool) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		(*chains)[i] = DatumGetInt64(StatementColumn(i, 1, &isnull));
		(*terminated)[i] = DatumGetBool(StatementColumn(i, 2, &isnull));
	}
	StorageLeave(&scope);
	return count;
}
