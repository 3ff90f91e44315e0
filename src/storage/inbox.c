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
	" VALUES (pg_catalog.nextval('durable_internal.mid_seq'), $1, $2, $3, $4, pg_catalog.clock_timestamp())",
	4, {INT8OID, TEXTOID, TEXTOID, JSONBOID}, NULL
};

static Statement take_message = {
	"DELETE FROM durable_internal.inbox WHERE mid ="
	" (SELECT m.mid FROM durable_internal.inbox m"
	" WHERE m.chain = $1 AND m.kind = $2 AND m.name = $3 ORDER BY m.mid LIMIT 1)"
	" RETURNING payload",
	3, {INT8OID, TEXTOID, TEXTOID}, NULL
};

static Statement has_message = {
	"SELECT 1 FROM durable_internal.inbox"
	" WHERE chain = $1 AND kind = $2 AND name = $3 LIMIT 1",
	3, {INT8OID, TEXTOID, TEXTOID}, NULL
};

/*
 * InboxInsert: leave a message for a chain of runs.
 */
void
InboxInsert(int64 chain, const char *kind, const char *name, Jsonb *payload)
{
	Datum		values[4] = {
		Int64GetDatum(chain), TextDatum(kind), TextDatum(name),
		PointerGetDatum(payload)
	};

	StatementRun(&insert_message, values, NULL);
}

/*
 * InboxTake: take the oldest message of that name, or NULL if there is none.
 */
Jsonb *
InboxTake(int64 chain, const char *kind, const char *name, MemoryContext cxt)
{
	StorageScope scope;
	Datum		values[3] = {
		Int64GetDatum(chain), TextDatum(kind), TextDatum(name)
	};
	Jsonb	   *payload = NULL;

	StorageEnter(&scope);
	if (StatementExecute(&take_message, values, NULL) > 0)
		payload = StatementJsonb(cxt, 0, 1);
	StorageLeave(&scope);
	return payload;
}

/*
 * InboxHas: is there a message of that name now?
 */
bool
InboxHas(int64 chain, const char *kind, const char *name)
{
	Datum		values[3] = {
		Int64GetDatum(chain), TextDatum(kind), TextDatum(name)
	};

	return StatementRun(&has_message, values, NULL) > 0;
}
