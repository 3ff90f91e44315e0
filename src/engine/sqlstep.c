/*-------------------------------------------------------------------------
 *
 * sqlstep.c
 *	  durable_sql: one statement as a step.
 *
 * The types of its parameters are those that the parser infers, as for a
 * statement that a client prepares without saying any.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "parser/analyze.h"
#include "parser/parse_param.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "durable.h"
#include "engine/binding.h"
#include "engine/json.h"
#include "engine/sqlstep.h"

/*
 * infer_parameters: the types of $1 and on.
 */
static int
infer_parameters(const char *query, Oid **types)
{
	List	   *statements = pg_parse_query(query);
	int			count = 0;

	if (list_length(statements) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("durable_sql() takes one statement, not %d",
						list_length(statements)),
				 errhint("Call it for each of them, or put them into a function and use durable_call().")));

	*types = NULL;
	(void) parse_analyze_varparams(linitial_node(RawStmt, statements), query,
								   types, &count, NULL);
	for (int i = 0; i < count; i++)
	{
		if ((*types)[i] == InvalidOid || (*types)[i] == UNKNOWNOID)
			(*types)[i] = TEXTOID;
	}
	return count;
}

static void
bind_parameters(Jsonb *args, int count, const Oid *types, Datum *values,
				char *nulls)
{
	int			given = JB_ROOT_COUNT(args);

	if (given != count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("wrong number of arguments for durable_sql(): %d given, %d needed",
						given, count),
				 errhint("Give the arguments as a JSON array: the first is $1.")));

	for (int i = 0; i < count; i++)
	{
		JsonbValue *value = getIthJsonbValueFromContainer(&args->root, i);
		bool		isnull;

		values[i] = JsonbToDatum(JsonbValueToJsonb(value), types[i], -1,
								 &isnull);
		nulls[i] = isnull ? 'n' : ' ';
	}
}

static Jsonb *
row_count_json(uint64 rows)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAdd(&state, "rows",
				  DatumToJsonb(Int64GetDatum((int64) rows), false, INT8OID));
	return JsonObjectEnd(&state);
}

static Jsonb *
rows_json(SPITupleTable *table, uint64 rows)
{
	JsonbParseState *state = NULL;
	JsonbValue	element;
	TupleDesc	desc = BlessTupleDesc(table->tupdesc);

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (uint64 i = 0; i < rows; i++)
	{
		Datum		row = heap_copy_tuple_as_datum(table->vals[i], desc);

		JsonAsValue(DatumToJsonb(row, false, RECORDOID), &element);
		pushJsonbValue(&state, WJB_ELEM, &element);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/*
 * SqlStepRun: run the statement; its rows as an array of objects, or their
 * number.  An error while *preparing is the statement's own fault.
 */
Jsonb *
SqlStepRun(Jsonb *args, bool *preparing)
{
	MemoryContext caller = CurrentMemoryContext;
	char	   *query = JsonGetText(args, "query");
	Jsonb	   *parameters = JsonGet(args, "args");
	bool		pushed = !ActiveSnapshotSet();
	Oid		   *types;
	int			count;
	Datum	   *values;
	char	   *nulls;
	SPIPlanPtr	plan;
	int			rc;
	Jsonb	   *result;

	*preparing = true;
	if (query == NULL || parameters == NULL || !JB_ROOT_IS_ARRAY(parameters) ||
		JB_ROOT_IS_SCALAR(parameters))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("activity \"%s\" needs a query and an array of args",
						SQL_ACTIVITY),
				 errhint("Use durable_sql().")));

	if (pushed)
		PushActiveSnapshot(GetTransactionSnapshot());
	count = infer_parameters(query, &types);
	values = palloc0(sizeof(Datum) * Max(count, 1));
	nulls = palloc0(count + 1);
	bind_parameters(parameters, count, types, values, nulls);

	SPI_connect();
	plan = SPI_prepare(query, count, types);
	if (plan == NULL)
		elog(ERROR, "could not prepare the statement: %s",
			 SPI_result_code_string(SPI_result));
	*preparing = false;
	rc = SPI_execute_plan(plan, values, nulls, false, 0);
	if (rc < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("durable_sql() cannot run this kind of statement"),
				 errdetail("A step is one transaction; it takes queries and commands that can run inside of one.")));
	if (SPI_tuptable != NULL)
		result = rows_json(SPI_tuptable, SPI_processed);
	else
		result = row_count_json(SPI_processed);
	MemoryContextSwitchTo(caller);
	result = JsonCopy(result);
	SPI_finish();
	if (pushed)
		PopActiveSnapshot();
	MemoryContextSwitchTo(caller);
	return result;
}
