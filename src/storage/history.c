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

static Statement scan_rows = {
	"SELECT seq, position, event, name, step_id, args, result, error, data,"
	" attempt, wake_at, started_at, at"
	" FROM durable_internal.history WHERE iid = $1 ORDER BY seq",
	1, {INT8OID}, NULL
};

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

/*
 * HistoryScan: visit an instance's rows in order; what they point to is
 * copied into the given context.
 */
void
HistoryScan(int64 iid, MemoryContext cxt, HistoryVisitor visitor, void *arg)
{
	StorageScope scope;
	Datum		values[1] = {Int64GetDatum(iid)};
	uint64		rows;

	StorageEnter(&scope);
	rows = StatementExecute(&scan_rows, values, NULL);
	for (uint64 i = 0; i < rows; i++)
	{
		HistoryRow	row = {0};

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
		visitor(&row, arg);
	}
	StorageLeave(&scope);
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
