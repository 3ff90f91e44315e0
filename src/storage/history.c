/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Table history: what happened to an instance, appended only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"

#include "durable.h"
#include "storage/storage.h"

static Statement append_row = {
	"INSERT INTO durable_internal.history"
	" (iid, seq, position, event, name, step_id, args, result, error, data,"
	" attempt, wake_at, started_at, at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
	14, {INT8OID, INT4OID, INT4OID, TEXTOID, TEXTOID, TEXTOID,
		JSONBOID, JSONBOID, JSONBOID, JSONBOID,
		INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID
	}, NULL
};

#define SELECT_ROWS \
	"SELECT seq, position, event, name, step_id, args, result, error, data," \
	" attempt, wake_at, started_at, at FROM durable_internal.history WHERE iid = $1"

static Statement scan_rows = {
	SELECT_ROWS " ORDER BY seq", 1, {INT8OID}, NULL
};

static Statement scan_first = {
	SELECT_ROWS " AND seq = 1", 1, {INT8OID}, NULL
};

static Statement next_seq = {
	"SELECT pg_catalog.max(seq) + 1 FROM durable_internal.history WHERE iid = $1",
	1, {INT8OID}, NULL
};

/*
 * What a fork keeps: the rows of commands up to a position, what was delivered
 * to them, and their markers.  Ends, cancels and retries are not inherited.
 */
static Statement copy_rows = {
	"INSERT INTO durable_internal.history"
	" (iid, seq, position, event, name, step_id, args, result, error, data, attempt, wake_at, started_at, at)"
	" SELECT $2, pg_catalog.row_number() OVER (ORDER BY h.seq) + 1, h.position, h.event, h.name, h.step_id,"
	" h.args, h.result, h.error, h.data, h.attempt, h.wake_at, h.started_at, h.at"
	" FROM durable_internal.history h WHERE h.iid = $1 AND h.seq > 1 AND (h.position <= $3"
	" OR h.event IN ('WorkflowForked', 'WorkflowRetried')"
	" OR h.event IN ('SignalHandled', 'UpdateCompleted') AND (h.data ->> 'at')::int <= $3"
	" OR h.event = 'VersionMarked' AND (h.data ->> 'after')::int < $3)",
	3, {INT8OID, INT8OID, INT4OID}, NULL
};

/*
 * HistoryNextSeq: the number of an instance's next row.
 */
int
HistoryNextSeq(int64 iid)
{
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	int			seq;
	bool		isnull;

	StorageEnter(&scope);
	(void) StatementExecute(&next_seq, values, NULL);
	seq = DatumGetInt32(StatementColumn(0, 1, &isnull));
	StorageLeave(&scope);
	return isnull ? 1 : seq;
}

/*
 * HistoryCopy: the history of one instance up to a position, to another that
 * has its first row already; how many rows there were.
 */
uint64
HistoryCopy(int64 from, int64 to, int position)
{
	Datum		values[3] = {
		Int64GetDatum(from), Int64GetDatum(to), Int32GetDatum(position)
	};

	return StatementRun(&copy_rows, values, NULL);
}

/*
 * HistoryAppend: write one row.  A unique violation here is the fence: another
 * executor has written this instance's next row (HistoryIsFenceError).
 */
void
HistoryAppend(int64 iid, const HistoryRow *row)
{
	Datum		values[14] = {
		Int64GetDatum(iid), Int32GetDatum(row->seq), Int32GetDatum(row->position),
		TextDatum(row->event), TextDatum(row->name), TextDatum(row->step_id),
		PointerGetDatum(row->args), PointerGetDatum(row->result),
		PointerGetDatum(row->error), PointerGetDatum(row->data),
		Int32GetDatum(row->attempt), TimestampTzGetDatum(row->wake_at),
		TimestampTzGetDatum(row->started_at), TimestampTzGetDatum(row->at)
	};
	bool		nulls[14] = {
		false, false, row->position == 0, false, row->name == NULL,
		row->step_id == NULL, row->args == NULL, row->result == NULL,
		row->error == NULL, row->data == NULL, row->attempt == 0,
		row->wake_at == 0, row->started_at == 0, false
	};

	StatementRun(&append_row, values, nulls);
}

static int
number_or_zero(uint64 row, int column)
{
	bool		isnull;
	Datum		value = StatementColumn(row, column, &isnull);

	return isnull ? 0 : DatumGetInt32(value);
}

static void
scan(Statement *statement, int64 iid, MemoryContext cxt,
	 HistoryVisitor visitor, void *arg)
{
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	uint64		rows;

	StorageEnter(&scope);
	rows = StatementExecute(statement, values, NULL);
	for (uint64 i = 0; i < rows; i++)
	{
		HistoryRow	row = {0};
		MemoryContext old;

		row.seq = number_or_zero(i, 1);
		row.position = number_or_zero(i, 2);
		row.event = StatementText(cxt, i, 3);
		row.name = StatementText(cxt, i, 4);
		row.step_id = StatementText(cxt, i, 5);
		row.args = StatementJsonb(cxt, i, 6);
		row.result = StatementJsonb(cxt, i, 7);
		row.error = StatementJsonb(cxt, i, 8);
		row.data = StatementJsonb(cxt, i, 9);
		row.attempt = number_or_zero(i, 10);
		row.wake_at = StatementTime(i, 11);
		row.started_at = StatementTime(i, 12);
		row.at = StatementTime(i, 13);
		/* what the visitor makes of it must outlive SPI */
		old = MemoryContextSwitchTo(cxt);
		visitor(&row, arg);
		MemoryContextSwitchTo(old);
	}
	StorageLeave(&scope);
}

/*
 * HistoryScan: visit an instance's rows in order; what they point to is
 * copied into the given context, which is the visitor's.
 */
void
HistoryScan(int64 iid, MemoryContext cxt, HistoryVisitor visitor, void *arg)
{
	scan(&scan_rows, iid, cxt, visitor, arg);
}

/*
 * HistoryFirst: the same for the row of the start only.
 */
void
HistoryFirst(int64 iid, MemoryContext cxt, HistoryVisitor visitor, void *arg)
{
	scan(&scan_first, iid, cxt, visitor, arg);
}

/*
 * HistoryIsFenceError: did this error come from losing the race for a row?
 */
bool
HistoryIsFenceError(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION &&
		error->schema_name != NULL &&
		strcmp(error->schema_name, "durable_internal") == 0 &&
		error->constraint_name != NULL &&
		strcmp(error->constraint_name, "history_pkey") == 0;
}
