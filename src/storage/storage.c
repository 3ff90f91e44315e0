/*-------------------------------------------------------------------------
 *
 * storage.c
 *	  The one way to the extension's tables.
 *
 * A statement runs as the tables' owner with search_path pinned, as foreign
 * key triggers do: the calling role needs no rights on the tables, and nothing
 * the caller defined (operators, functions, temporary tables) can be reached
 * by our SQL.  An error needs no clean-up here: the abort of the transaction
 * or subtransaction restores user, settings and SPI.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "durable.h"
#include "storage/storage.h"

/*
 * tables_owner: whose tables they are.
 *
 * Not the extension's owner: that can be changed without the tables'.
 */
static Oid
tables_owner(void)
{
	Oid			namespace = get_namespace_oid("durable_internal", true);
	Oid			relation = InvalidOid;
	HeapTuple	tuple;
	Oid			owner;

	if (OidIsValid(namespace))
		relation = get_relname_relid("instance", namespace);
	if (!OidIsValid(relation))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"durable\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION durable.")));

	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relation);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * StorageInstalled: does this database have the extension's tables?
 */
bool
StorageInstalled(void)
{
	Oid			namespace = get_namespace_oid("durable_internal", true);

	return OidIsValid(namespace) &&
		OidIsValid(get_relname_relid("instance", namespace));
}

/*
 * set_for_now: up to StorageLeave, or an error.
 */
static void
set_for_now(const char *setting, const char *value)
{
	(void) set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Ways to do it that are not for our statements. */
static const struct
{
	const char *setting;
	bool	   *enabled;
}			unwanted[] = {
	{"enable_seqscan", &enable_seqscan},
	{"enable_bitmapscan", &enable_bitmapscan},
	{"enable_sort", &enable_sort},
	{"enable_mergejoin", &enable_mergejoin},
	{"enable_hashjoin", &enable_hashjoin},
	{"jit", &jit_enabled}
};

/*
 * StorageEnter: become the tables' owner, with a snapshot and SPI at hand.
 */
void
StorageEnter(StorageScope *scope)
{
	Oid			owner = tables_owner();

	GetUserIdAndSecContext(&scope->user, &scope->security_context);
	SetUserIdAndSecContext(owner, scope->security_context |
						   SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	scope->guc_level = NewGUCNestLevel();
	set_for_now("search_path", "pg_catalog, pg_temp");
	/*
	 * A plan made while a queue is empty is kept when it is long: it must
	 * not read the whole of it, nor all of one key to sort or to join that.
	 */
	for (int i = 0; i < lengthof(unwanted); i++)
	{
		if (*unwanted[i].enabled)
			set_for_now(unwanted[i].setting, "off");
	}
	(void) SPI_connect();
}

/*
 * StorageLeave: be the caller again.
 */
void
StorageLeave(StorageScope *scope)
{
	SPI_finish();
	AtEOXact_GUC(false, scope->guc_level);
	SetUserIdAndSecContext(scope->user, scope->security_context);
}

static void
statement_prepare(Statement *statement)
{
	SPIPlanPtr	plan;

	/* keys are all alike to us: not planned for each, nor for the first few */
	plan = SPI_prepare_cursor(statement->sql, statement->nargs,
							  statement->types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", statement->sql,
			 SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	statement->plan = plan;
}

/*
 * StatementExecute: run a statement between StorageEnter and StorageLeave.
 *
 * Returns the number of rows; their columns are read by the functions below
 * until StorageLeave.
 */
uint64
StatementExecute(Statement *statement, Datum *values, const bool *nulls)
{
	char		spi_nulls[STATEMENT_MAX_ARGS + 1];
	int			rc;

	if (statement->plan == NULL)
		statement_prepare(statement);

	for (int i = 0; i < statement->nargs; i++)
		spi_nulls[i] = (nulls != NULL && nulls[i]) ? 'n' : ' ';
	spi_nulls[statement->nargs] = '\0';

	/* not read-only: takes a snapshot of its own, so it sees all before it */
	rc = SPI_execute_plan(statement->plan, values, spi_nulls, false, 0);
	if (rc < 0)
		elog(ERROR, "could not execute \"%s\": %s", statement->sql,
			 SPI_result_code_string(rc));
	return SPI_processed;
}

/*
 * StatementRun: run a statement of which only the number of rows counts.
 */
uint64
StatementRun(Statement *statement, Datum *values, const bool *nulls)
{
	StorageScope scope;
	uint64		rows;

	StorageEnter(&scope);
	rows = StatementExecute(statement, values, nulls);
	StorageLeave(&scope);
	return rows;
}

/*
 * StatementColumn: a column of the last statement's result, from 1.
 */
Datum
StatementColumn(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc,
						 column, isnull);
}

/*
 * StatementText: the same as a C string in the given context, or NULL.
 */
char *
StatementText(MemoryContext cxt, uint64 row, int column)
{
	bool		isnull;
	Datum		value = StatementColumn(row, column, &isnull);
	MemoryContext old;
	char	   *string;

	if (isnull)
		return NULL;
	old = MemoryContextSwitchTo(cxt);
	string = TextDatumGetCString(value);
	MemoryContextSwitchTo(old);
	return string;
}

/*
 * StatementJsonb: the same as a plain copy of a jsonb, or NULL.
 */
Jsonb *
StatementJsonb(MemoryContext cxt, uint64 row, int column)
{
	bool		isnull;
	Datum		value = StatementColumn(row, column, &isnull);
	MemoryContext old;
	Jsonb	   *json;

	if (isnull)
		return NULL;
	old = MemoryContextSwitchTo(cxt);
	json = DatumGetJsonbPCopy(value);
	MemoryContextSwitchTo(old);
	return json;
}

/*
 * StatementTime: the same as a time, 0 for NULL.
 */
TimestampTz
StatementTime(uint64 row, int column)
{
	bool		isnull;
	Datum		value = StatementColumn(row, column, &isnull);

	return isnull ? 0 : DatumGetTimestampTz(value);
}

/*
 * TextDatum: a C string, or NULL, as an argument.
 */
Datum
TextDatum(const char *string)
{
	return string == NULL ? (Datum) 0 : CStringGetTextDatum(string);
}

/*
 * NameDatum: a C string as an argument of type name.
 */
Datum
NameDatum(const char *string)
{
	Name		name = palloc0(sizeof(NameData));

	namestrcpy(name, string);
	return NameGetDatum(name);
}

/*
 * NumberArray: numbers as an argument of type bigint[].
 */
Datum
NumberArray(const int64 *numbers, int count)
{
	Datum	   *datums = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		datums[i] = Int64GetDatum(numbers[i]);
	return PointerGetDatum(construct_array(datums, count, INT8OID, 8,
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*
 * TextArray: strings as an argument of type text[].
 */
Datum
TextArray(List *strings)
{
	Datum	   *datums = palloc(sizeof(Datum) * Max(list_length(strings), 1));
	ListCell   *lc;

	foreach(lc, strings)
		datums[foreach_current_index(lc)] = CStringGetTextDatum(lfirst(lc));
	return PointerGetDatum(construct_array(datums, list_length(strings),
										   TEXTOID, -1, false, TYPALIGN_INT));
}

/*
 * StorageNextNumber: the next value of one of our sequences.
 */
int64
StorageNextNumber(const char *sequence)
{
	StorageScope scope;
	Oid			relation;
	int64		number;

	StorageEnter(&scope);
	relation = get_relname_relid(sequence,
								 get_namespace_oid("durable_internal", false));
	number = nextval_internal(relation, true);
	StorageLeave(&scope);
	return number;
}
