/*-------------------------------------------------------------------------
 *
 * event.c
 *	  Tables subscription and event_id: who gets which events.
 *
 * An event reaches subscribers whose role the publisher is a member of.  It
 * is put into the inboxes of those that had subscribed when it was published;
 * if some of them compete, also once into the one they share (chain 0).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "storage/storage.h"

/* Beside those of runtime/lease.c; key: type and role. */
#define MODE_LOCK_CLASS	0x4459

static Statement insert_subscription = {
	"INSERT INTO durable_internal.subscription AS s (chain, type, mode, filter, run_as)"
	" VALUES ($1, $2, $3, $4, $5)"
	" ON CONFLICT (chain, type) DO UPDATE SET filter = excluded.filter WHERE s.mode = excluded.mode",
	5, {INT8OID, TEXTOID, TEXTOID, JSONBOID, OIDOID}, NULL
};

/* Two modes at once would make two events of one. */
static Statement other_mode = {
	"SELECT 1 FROM durable_internal.subscription"
	" WHERE type = $1 AND run_as = $2 AND mode <> $3 LIMIT 1",
	3, {TEXTOID, OIDOID, TEXTOID}, NULL
};

static Statement find_subscription = {
	"SELECT 1 FROM durable_internal.subscription WHERE chain = $1 AND type = $2",
	2, {INT8OID, TEXTOID}, NULL
};

static Statement delete_subscriptions = {
	"DELETE FROM durable_internal.subscription WHERE chain = $1",
	1, {INT8OID}, NULL
};

static Statement use_id = {
	"INSERT INTO durable_internal.event_id (publisher, source, id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
	3, {OIDOID, TEXTOID, TEXTOID}, NULL
};

static Statement fan_out = {
	"INSERT INTO durable_internal.inbox (mid, chain, kind, name, payload, sent_at)"
	" SELECT pg_catalog.nextval('durable_internal.mid_seq'), s.chain, 'event', $1, $2, pg_catalog.clock_timestamp()"
	" FROM durable_internal.subscription s"
	" WHERE s.type = $1 AND s.mode = 'broadcast'"
	" AND pg_catalog.pg_has_role($3, s.run_as, 'USAGE')"
	" AND (s.filter IS NULL OR $2 -> 'data' @> s.filter)"
	" RETURNING chain",
	3, {TEXTOID, JSONBOID, OIDOID}, NULL
};

static Statement has_competing = {
	"SELECT 1 FROM durable_internal.subscription s"
	" WHERE s.type = $1 AND s.mode = 'competing'"
	" AND pg_catalog.pg_has_role($3, s.run_as, 'USAGE')"
	" AND (s.filter IS NULL OR $2 -> 'data' @> s.filter) LIMIT 1",
	3, {TEXTOID, JSONBOID, OIDOID}, NULL
};

/* Not of strangers: whoever registers one is given the data. */
static Statement started_by = {
	"SELECT w.name FROM durable_internal.workflow w WHERE w.start_on = $1"
	" AND (pg_catalog.pg_has_role($3, w.owner, 'USAGE') OR pg_catalog.pg_has_role(w.owner, $3, 'USAGE'))"
	" AND (w.start_filter IS NULL OR $2 -> 'data' @> w.start_filter) ORDER BY w.name",
	3, {TEXTOID, JSONBOID, OIDOID}, NULL
};

/*
 * lock_mode: until the end of this transaction the type has no subscribers of
 * the role in the other mode but those we can see; false if there may be.
 *
 * The two lock modes conflict with each other and not with themselves.  Nobody
 * waits: whoever is not yet seen is about to be in the other mode.
 */
static bool
lock_mode(const char *type, Oid run_as, const char *mode)
{
	bool		competing = strcmp(mode, "competing") == 0;
	uint64		key = hash_bytes_extended((const unsigned char *) type,
										  strlen(type), run_as);
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key,
						 MODE_LOCK_CLASS);
	return LockAcquire(&tag, competing ? RowExclusiveLock : ShareLock, false,
					   true) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * SubscriptionInsert: from now on; false if the type has subscribers of the
 * role in the other mode, or is just getting some.
 */
bool
SubscriptionInsert(int64 chain, const char *type, const char *mode,
				   Jsonb *filter, Oid run_as)
{
	Datum		values[5] = {
		Int64GetDatum(chain), TextDatum(type), TextDatum(mode),
		PointerGetDatum(filter), ObjectIdGetDatum(run_as)
	};
	bool		nulls[5] = {[3] = filter == NULL};
	Datum		key[3] = {TextDatum(type), ObjectIdGetDatum(run_as), TextDatum(mode)};

	if (!lock_mode(type, run_as, mode) ||
		StatementRun(&other_mode, key, NULL) > 0)
		return false;
	return StatementRun(&insert_subscription, values, nulls) > 0;
}

/*
 * SubscriptionExists: does this chain of runs get events of the type?
 */
bool
SubscriptionExists(int64 chain, const char *type)
{
	Datum		values[2] = {Int64GetDatum(chain), TextDatum(type)};

	return StatementRun(&find_subscription, values, NULL) > 0;
}

/*
 * SubscriptionDelete: a chain of runs has come to its end.
 */
void
SubscriptionDelete(int64 chain)
{
	Datum		values[1] = {Int64GetDatum(chain)};

	StatementRun(&delete_subscriptions, values, NULL);
}

/*
 * EventUseId: an event of that id is to be published; false if one was.
 */
bool
EventUseId(Oid publisher, const char *source, const char *id)
{
	Datum		values[3] = {
		ObjectIdGetDatum(publisher), TextDatum(source), TextDatum(id)
	};

	return StatementRun(&use_id, values, NULL) == 1;
}

/*
 * EventFanOut: into the inbox of each subscriber; their chains.
 */
int
EventFanOut(const char *type, Jsonb *event, Oid publisher, int64 **chains)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[3] = {
		TextDatum(type), PointerGetDatum(event), ObjectIdGetDatum(publisher)
	};
	int			count;
	bool		isnull;

	StorageEnter(&scope);
	count = (int) StatementExecute(&fan_out, values, NULL);
	*chains = MemoryContextAllocHuge(cxt, sizeof(int64) * Max(count, 1));
	for (int i = 0; i < count; i++)
		(*chains)[i] = DatumGetInt64(StatementColumn(i, 1, &isnull));
	StorageLeave(&scope);
	return count;
}

/*
 * EventIsCompetedFor: are there subscribers of which one is to take it?
 */
bool
EventIsCompetedFor(const char *type, Jsonb *event, Oid publisher)
{
	Datum		values[3] = {
		TextDatum(type), PointerGetDatum(event), ObjectIdGetDatum(publisher)
	};

	return StatementRun(&has_competing, values, NULL) > 0;
}

/*
 * EventStarts: the names of the workflows that it starts: if the publisher can
 * act as their owner, or their owner as the publisher.
 */
int
EventStarts(const char *type, Jsonb *event, Oid publisher, char ***names)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[3] = {
		TextDatum(type), PointerGetDatum(event), ObjectIdGetDatum(publisher)
	};
	int			count;

	StorageEnter(&scope);
	count = (int) StatementExecute(&started_by, values, NULL);
	*names = MemoryContextAlloc(cxt, sizeof(char *) * Max(count, 1));
	for (int i = 0; i < count; i++)
		(*names)[i] = StatementText(cxt, i, 1);
	StorageLeave(&scope);
	return count;
}
