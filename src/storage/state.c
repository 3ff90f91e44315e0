/*-------------------------------------------------------------------------
 *
 * state.c
 *	  Tables state and answer: what queries see, what became of updates.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"

#include "storage/storage.h"

static Statement store_state = {
	"INSERT INTO durable_internal.state AS s (iid, state, queries) VALUES ($1, $2, $3)"
	" ON CONFLICT (iid) DO UPDATE SET state = excluded.state, queries = excluded.queries"
	" WHERE s.state <> excluded.state OR s.queries <> excluded.queries",
	3, {INT8OID, JSONBOID, JSONBOID}, NULL
};

static Statement find_state = {
	"SELECT state, queries FROM durable_internal.state WHERE iid = $1",
	1, {INT8OID}, NULL
};

static Statement store_answer = {
	"INSERT INTO durable_internal.answer (mid, iid, result, error) VALUES ($1, $2, $3, $4)"
	" ON CONFLICT (mid) DO NOTHING",
	4, {INT8OID, INT8OID, JSONBOID, JSONBOID}, NULL
};

/* An update that is still in the inbox belongs to the last run of its chain. */
static Statement find_answer = {
	"SELECT a.iid, a.result, a.error, true FROM durable_internal.answer a WHERE a.mid = $1"
	" UNION ALL SELECT m.chain, NULL, NULL, false FROM durable_internal.inbox m"
	" WHERE m.mid = $1 AND m.kind = 'update' LIMIT 1",
	1, {INT8OID}, NULL
};

/*
 * StateStore: what queries see from now on.
 */
void
StateStore(int64 iid, Jsonb *state, Jsonb *queries)
{
	Datum		values[3] = {
		Int64GetDatum(iid), PointerGetDatum(state), PointerGetDatum(queries)
	};

	StatementRun(&store_state, values, NULL);
}

/*
 * StateFind: false if the instance has none.
 */
bool
StateFind(int64 iid, Jsonb **state, Jsonb **queries)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	bool		found;

	StorageEnter(&scope);
	found = StatementExecute(&find_state, values, NULL) > 0;
	if (found)
	{
		*state = StatementJsonb(cxt, 0, 1);
		*queries = StatementJsonb(cxt, 0, 2);
	}
	StorageLeave(&scope);
	return found;
}

/*
 * AnswerStore: what became of an update.
 */
void
AnswerStore(int64 mid, int64 iid, Jsonb *result, Jsonb *error)
{
	Datum		values[4] = {
		Int64GetDatum(mid), Int64GetDatum(iid), PointerGetDatum(result),
		PointerGetDatum(error)
	};
	bool		nulls[4] = {[2] = result == NULL, [3] = error == NULL};

	StatementRun(&store_answer, values, nulls);
}

/*
 * AnswerFind: the answer to an update, or that there is none yet; NULL if
 * there is no such update.
 */
Answer *
AnswerFind(int64 mid)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(mid)};
	Answer	   *answer = NULL;
	bool		isnull;

	StorageEnter(&scope);
	if (StatementExecute(&find_answer, values, NULL) > 0)
	{
		answer = MemoryContextAllocZero(cxt, sizeof(Answer));
		answer->iid = DatumGetInt64(StatementColumn(0, 1, &isnull));
		answer->result = StatementJsonb(cxt, 0, 2);
		answer->error = StatementJsonb(cxt, 0, 3);
		answer->given = DatumGetBool(StatementColumn(0, 4, &isnull));
	}
	StorageLeave(&scope);
	return answer;
}
