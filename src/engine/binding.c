/*-------------------------------------------------------------------------
 *
 * binding.c
 *	  JSON to arguments, SQL values to JSON and back.
 *
 * Owns the rules by which a JSON input becomes the arguments of a function,
 * and the conversions between JSON and SQL in both directions, which are
 * those of PostgreSQL's jsonb_to_record and to_jsonb.  Every function is
 * called by OID: nothing here looks at search_path.  Takes no locks.
 *
 * Garbage of the conversions goes to a context of its own; what is returned
 * is palloc'd in the caller's current context.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "engine/binding.h"
#include "engine/json.h"

/* ------------------------------------------------------------------
 * Conversions
 * ------------------------------------------------------------------
 */

/*
 * flat_copy
 *		Copy a value to the current context, without TOAST pointers and
 *		expanded objects, so that it outlives snapshots and transactions.
 */
static Datum
flat_copy(Datum value, bool isnull, Oid type)
{
	int16		typlen;
	bool		typbyval;

	if (isnull)
		return (Datum) 0;
	get_typlenbyval(type, &typlen, &typbyval);
	if (typlen == -1)
		return PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	return datumCopy(value, typbyval, typlen);
}

/*
 * is_json_type
 *		Is the type json, jsonb or a domain over one of them?
 */
static bool
is_json_type(Oid type)
{
	Oid			base = getBaseType(type);

	return base == JSONBOID || base == JSONOID;
}

/*
 * json_as_is
 *		A value for a parameter of a JSON type: the JSON itself.
 */
static Datum
json_as_is(Jsonb *json, Oid type, bool *isnull)
{
	Oid			base = getBaseType(type);
	Datum		value;

	if (base == JSONBOID)
		value = JsonbPGetDatum(JsonCopy(json));
	else
		value = CStringGetTextDatum(JsonbToCString(NULL, &json->root,
												   VARSIZE(json)));
	if (base != type)
		domain_check(value, false, type, NULL, NULL);
	*isnull = false;
	return value;
}

/*
 * record_of_one
 *		{name: json}, the input of jsonb_to_record.
 */
static Jsonb *
record_of_one(const char *name, Jsonb *json)
{
	JsonbParseState *state = NULL;
	JsonbValue	value;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	JsonStringAsValue(name, &value);
	pushJsonbValue(&state, WJB_KEY, &value);
	JsonAsValue(json, &value);
	pushJsonbValue(&state, WJB_VALUE, &value);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/*
 * json_to_column
 *		Convert as jsonb_to_record does for a column of this name and type.
 *
 * json_populate_type would do, but is exported from 17 on only.  So call
 * jsonb_to_record itself, with a column list as a FROM clause gives it.
 */
static Datum
json_to_column(Jsonb *json, const char *name, Oid type, int32 typmod,
			   bool *isnull)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;
	ReturnSetInfo rsinfo = {.type = T_ReturnSetInfo};
	TupleDesc	desc;
	Datum		record;

	desc = CreateTemplateTupleDesc(1);
	TupleDescInitEntry(desc, 1, name, type, typmod, 0);
	rsinfo.expectedDesc = BlessTupleDesc(desc);

	fmgr_info(F_JSONB_TO_RECORD, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL,
							 (Node *) &rsinfo);
	fcinfo->args[0].value = JsonbPGetDatum(record_of_one(name, json));
	fcinfo->args[0].isnull = false;
	record = FunctionCallInvoke(fcinfo);

	return GetAttributeByNum(DatumGetHeapTupleHeader(record), 1, isnull);
}

static Datum
json_to_datum(Jsonb *json, const char *name, Oid type, int32 typmod,
			  bool *isnull)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext work;
	Datum		value;

	if (is_json_type(type))
		return json_as_is(json, type, isnull);

	work = AllocSetContextCreate(caller, "durable conversion",
								 ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(work);
	value = json_to_column(json, name, type, typmod, isnull);
	MemoryContextSwitchTo(caller);
	value = flat_copy(value, *isnull, type);
	MemoryContextDelete(work);
	return value;
}

/*
 * JsonbToDatum
 *		JSON to a SQL value, by the rules of jsonb_to_record.
 *
 * JSON null is SQL NULL (for a domain too, if it allows that), except for
 * json, jsonb and domains over them: there it stays JSON null, since those
 * types can tell the two apart and we promise to do so.
 */
Datum
JsonbToDatum(Jsonb *json, Oid type, int32 typmod, bool *isnull)
{
	return json_to_datum(json, "value", type, typmod, isnull);
}

/*
 * DatumToJsonb
 *		A SQL value to JSON, by the rules of to_jsonb.
 *
 * SQL NULL, and void, which has no value, give a NULL pointer.
 */
Jsonb *
DatumToJsonb(Datum value, bool isnull, Oid type)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext work;
	FmgrInfo	flinfo;
	FuncExpr   *expr;
	Datum		json;
	Jsonb	   *result;

	if (isnull || type == VOIDOID)
		return NULL;
	if (type == JSONBOID)
		return DatumGetJsonbPCopy(value);

	work = AllocSetContextCreate(caller, "durable conversion",
								 ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(work);

	/* to_jsonb takes the type from its call expression */
	expr = makeFuncExpr(F_TO_JSONB, JSONBOID,
						list_make1(makeNullConst(type, -1, InvalidOid)),
						InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	fmgr_info(F_TO_JSONB, &flinfo);
	fmgr_info_set_expr((Node *) expr, &flinfo);
	json = FunctionCall1(&flinfo, value);

	MemoryContextSwitchTo(caller);
	result = DatumGetJsonbPCopy(json);
	MemoryContextDelete(work);
	return result;
}

/* ------------------------------------------------------------------
 * Matching the input with the parameters
 * ------------------------------------------------------------------
 */

/* parameter_label: how messages call a parameter. */
static const char *
parameter_label(const DurableFunction *fn, int param)
{
	if (fn->param_names[param][0] != '\0')
		return psprintf("\"%s\"", fn->param_names[param]);
	return psprintf("$%d", param + 1);
}

/*
 * detail_parameters
 *		errdetail that lists what the function takes.
 */
static int
detail_parameters(const DurableFunction *fn)
{
	StringInfoData list;
	int			required = fn->nparams - fn->ndefaults;

	if (fn->nparams == 0)
		return errdetail("It has no parameters.");

	initStringInfo(&list);
	for (int i = 0; i < fn->nparams; i++)
		appendStringInfo(&list, "%s%s %s%s", i > 0 ? ", " : "",
						 parameter_label(fn, i),
						 format_type_be(fn->param_types[i]),
						 i >= required ? " (has a default)" : "");
	return errdetail("Its parameters are: %s.", list.data);
}

static int
find_parameter(const DurableFunction *fn, const JsonbValue *key)
{
	for (int i = 0; i < fn->nparams; i++)
	{
		const char *name = fn->param_names[i];

		if (name[0] != '\0' &&
			strlen(name) == key->val.string.len &&
			memcmp(name, key->val.string.val, key->val.string.len) == 0)
			return i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s %s has no parameter \"%.*s\"", fn->what,
					fn->signature, key->val.string.len,
					key->val.string.val),
			 detail_parameters(fn),
			 errhint("A JSON object gives the arguments by name.")));
	return -1;					/* keep compiler quiet */
}

static void
match_object(const DurableFunction *fn, Jsonb *input, Jsonb **given)
{
	JsonbIterator *it = JsonbIteratorInit(&input->root);
	JsonbValue	value;
	JsonbIteratorToken token;
	int			param = 0;

	for (int i = 0; i < fn->nparams - fn->ndefaults; i++)
	{
		if (fn->param_names[i][0] == '\0')
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("parameter $%d of %s %s has no name, it can only be given by position",
							i + 1, fn->what, fn->signature),
					 errhint("Give the arguments as a JSON array, or name the parameter.")));
	}

	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			param = find_parameter(fn, &value);
		else if (token == WJB_VALUE)
			given[param] = JsonbValueToJsonb(&value);
	}
}

static void
match_array(const DurableFunction *fn, Jsonb *input, Jsonb **given)
{
	JsonbIterator *it = JsonbIteratorInit(&input->root);
	JsonbValue	value;
	JsonbIteratorToken token;
	int			param = 0;

	if (JB_ROOT_COUNT(input) > (uint32) fn->nparams)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("too many arguments for %s %s: %u given, %d possible",
						fn->what, fn->signature,
						(unsigned) JB_ROOT_COUNT(input), fn->nparams),
				 detail_parameters(fn),
				 errhint("A JSON array gives the arguments by position; an argument that is an array itself stands inside it, as in [[1, 2]].")));

	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM)
			given[param++] = JsonbValueToJsonb(&value);
	}
}

/*
 * match_scalar
 *		A scalar is the only parameter, or the only one without a default.
 *
 * A function without parameters takes JSON null: "no input".
 */
static void
match_scalar(const DurableFunction *fn, Jsonb *input, Jsonb **given)
{
	JsonbValue	value;

	if (fn->nparams == 1 || fn->nparams - fn->ndefaults == 1)
	{
		given[0] = input;
		return;
	}

	JsonbExtractScalar(&input->root, &value);
	if (fn->nparams == 0 && value.type == jbvNull)
		return;

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("a single value cannot be the input of %s %s",
					fn->what, fn->signature),
			 detail_parameters(fn),
			 errhint("Give a JSON object with the arguments by name, or a JSON array with them by position.")));
}

/*
 * match_input
 *		Find out which parameter gets which part of the input.
 *
 * The result has NULL for each parameter whose default is to be used.  A
 * JSON object always means arguments by name, also for a function that has
 * one parameter of a composite type.
 */
static Jsonb **
match_input(const DurableFunction *fn, Jsonb *input)
{
	Jsonb	  **given = palloc0(sizeof(Jsonb *) * Max(fn->nparams, 1));

	if (fn->whole)
		given[0] = input;
	else if (JB_ROOT_IS_SCALAR(input))
		match_scalar(fn, input, given);
	else if (JB_ROOT_IS_ARRAY(input))
		match_array(fn, input, given);
	else
		match_object(fn, input, given);

	for (int i = 0; i < fn->nparams - fn->ndefaults; i++)
	{
		if (given[i] == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("parameter %s of %s %s is missing",
							parameter_label(fn, i), fn->what, fn->signature),
					 detail_parameters(fn),
					 errhint("Add it to the input, or give it a default in the function.")));
	}
	return given;
}

/* ------------------------------------------------------------------
 * Binding
 * ------------------------------------------------------------------
 */

/*
 * rethrow_for_parameter
 *		Throw the current error again with the parameter's name in front.
 *
 * A cancel is about the session, not about the parameter: it stays as it is.
 */
static void
rethrow_for_parameter(const DurableFunction *fn, int param)
{
	ErrorData  *edata;

	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		PG_RE_THROW();

	edata = CopyErrorData();
	FlushErrorState();
	edata->message = psprintf("parameter %s of %s %s: %s",
							  parameter_label(fn, param), fn->what,
							  fn->signature, edata->message);
	ReThrowError(edata);
}

static Datum
bind_parameter(const DurableFunction *fn, int param, Jsonb *json,
			   bool *isnull)
{
	MemoryContext context = CurrentMemoryContext;
	const char *name = fn->param_names[param];
	Datum		value = (Datum) 0;

	PG_TRY();
	{
		value = json_to_datum(json, name[0] != '\0' ? name : "value",
							  fn->param_types[param], -1, isnull);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		rethrow_for_parameter(fn, param);
	}
	PG_END_TRY();

	return value;
}

/*
 * default_expressions
 *		The expressions of the last fn->ndefaults parameters.
 */
static List *
default_expressions(const DurableFunction *fn)
{
	HeapTuple	tuple;
	Datum		stored;
	bool		isnull;
	List	   *defaults = NIL;

	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fn->oid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", fn->oid);
	stored = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proargdefaults,
							 &isnull);
	if (!isnull)
		defaults = castNode(List, stringToNode(TextDatumGetCString(stored)));
	ReleaseSysCache(tuple);

	if (list_length(defaults) != fn->ndefaults)
		elog(ERROR, "defaults of function %s changed", fn->signature);
	return defaults;
}

static void
evaluate_default(const DurableFunction *fn, int param, Expr *expr,
				 EState *estate, DurableArguments *args)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		Datum		value;

		value = ExecEvalExprSwitchContext(ExecPrepareExpr(expr, estate),
										  GetPerTupleExprContext(estate),
										  &args->nulls[param]);
		args->values[param] = flat_copy(value, args->nulls[param],
										fn->param_types[param]);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		rethrow_for_parameter(fn, param);
	}
	PG_END_TRY();
}

/*
 * evaluate_defaults
 *		Fill in the parameters that the input does not give.
 */
static void
evaluate_defaults(const DurableFunction *fn, Jsonb **given,
				  DurableArguments *args)
{
	MemoryContext caller = CurrentMemoryContext;
	int			required = fn->nparams - fn->ndefaults;
	EState	   *estate = NULL;
	List	   *defaults = NIL;

	for (int i = required; i < fn->nparams; i++)
	{
		if (given[i] != NULL)
			continue;
		if (estate == NULL)
		{
			estate = CreateExecutorState();
			MemoryContextSwitchTo(estate->es_query_cxt);
			defaults = default_expressions(fn);
			MemoryContextSwitchTo(caller);
		}
		evaluate_default(fn, i, list_nth(defaults, i - required), estate,
						 args);
	}

	if (estate != NULL)
		FreeExecutorState(estate);
}

static DurableArguments *
new_arguments(const DurableFunction *fn)
{
	DurableArguments *args = palloc(sizeof(DurableArguments));

	args->values = palloc0(sizeof(Datum) * Max(fn->nparams, 1));
	args->nulls = palloc0(sizeof(bool) * Max(fn->nparams, 1));
	return args;
}

/*
 * check_strict
 *		A call would be skipped silently; that is never what was meant.
 */
static void
check_strict(const DurableFunction *fn, const DurableArguments *args)
{
	for (int i = 0; i < fn->nparams; i++)
	{
		if (args->nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("parameter %s of %s %s must not be null",
							parameter_label(fn, i), fn->what, fn->signature),
					 errdetail("The function is STRICT: it would not be called at all."),
					 errhint("Give a value, or declare the function CALLED ON NULL INPUT.")));
	}
}

/*
 * push_snapshot_if_none
 *		Input functions, CHECKs of domains and defaults may run queries.
 */
static bool
push_snapshot_if_none(void)
{
	if (ActiveSnapshotSet())
		return false;
	PushActiveSnapshot(GetTransactionSnapshot());
	return true;
}

/*
 * ArgumentsBind
 *		Make the arguments of one call from the JSON input.
 *
 * A function whose single parameter is jsonb gets the input as it is.  Else
 * an object gives the arguments by name, an array by position, a scalar is
 * the only argument.  Null: see JsonbToDatum.  A VARIADIC parameter is one
 * parameter, of an array type.
 */
DurableArguments *
ArgumentsBind(const DurableFunction *fn, Jsonb *input)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext work = AllocSetContextCreate(caller, "durable binding",
											   ALLOCSET_SMALL_SIZES);
	DurableArguments *args = new_arguments(fn);
	bool		pushed = push_snapshot_if_none();
	Jsonb	  **given;

	MemoryContextSwitchTo(work);
	given = match_input(fn, input);
	MemoryContextSwitchTo(caller);

	for (int i = 0; i < fn->nparams; i++)
	{
		if (given[i] != NULL)
			args->values[i] = bind_parameter(fn, i, given[i],
											 &args->nulls[i]);
	}
	evaluate_defaults(fn, given, args);
	if (fn->strict)
		check_strict(fn, args);

	if (pushed)
		PopActiveSnapshot();
	MemoryContextDelete(work);
	return args;
}

/*
 * default_to_json
 *		The value of a default as it is kept in the input.
 *
 * SQL NULL for a JSON type cannot be written in JSON, where null means JSON
 * null: NULL then, and the parameter stays out of the input if it can.
 */
static Jsonb *
default_to_json(const DurableFunction *fn, const DurableArguments *args,
				int param)
{
	Oid			type = fn->param_types[param];

	if (args->nulls[param])
		return is_json_type(type) ? NULL : JsonNull();
	return DatumToJsonb(args->values[param], false, type);
}

/*
 * by_position_works
 *		Can an array say all of this?  Not if something is left out in the
 *		middle; then it must be an object, if all have a name.
 */
static bool
by_position_works(const DurableFunction *fn, Jsonb **given)
{
	bool		hole = false;
	bool		left_out = false;

	for (int i = 0; i < fn->nparams; i++)
	{
		if (fn->param_names[i][0] == '\0')
			return true;
		if (given[i] == NULL)
			left_out = true;
		else if (left_out)
			hole = true;
	}
	return !hole;
}

static Jsonb *
build_object(const DurableFunction *fn, Jsonb **given)
{
	JsonbParseState *state = NULL;
	JsonbValue	value;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < fn->nparams; i++)
	{
		/* an unnamed one has a default here, and no way to be said */
		if (given[i] == NULL || fn->param_names[i][0] == '\0')
			continue;
		JsonStringAsValue(fn->param_names[i], &value);
		pushJsonbValue(&state, WJB_KEY, &value);
		JsonAsValue(given[i], &value);
		pushJsonbValue(&state, WJB_VALUE, &value);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

static Jsonb *
build_array(const DurableFunction *fn, Jsonb **given)
{
	JsonbParseState *state = NULL;
	JsonbValue	value;
	int			n = fn->nparams;

	while (n > 0 && given[n - 1] == NULL)
		n--;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < n; i++)
	{
		JsonAsValue(given[i] != NULL ? given[i] : JsonNull(), &value);
		pushJsonbValue(&state, WJB_ELEM, &value);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

static bool
is_time_type(Oid type)
{
	switch (getBaseType(type))
	{
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return true;
		default:
			return false;
	}
}

/*
 * freeze_times
 *		Dates and times as they are now: "now" or "tomorrow" must mean the
 *		same on each replay.  Returns how many there are.
 */
static int
freeze_times(const DurableFunction *fn, Jsonb **given)
{
	int			count = 0;

	for (int i = 0; i < fn->nparams; i++)
	{
		Datum		value;
		bool		isnull;

		if (given[i] == NULL || !is_time_type(fn->param_types[i]))
			continue;
		value = bind_parameter(fn, i, given[i], &isnull);
		if (isnull)
			continue;
		given[i] = DatumToJsonb(value, false, fn->param_types[i]);
		count++;
	}
	return count;
}

/*
 * add_defaults
 *		The input with the values of the defaults it does not give.
 *
 * Returns the input itself if there are none.
 */
static Jsonb *
add_defaults(const DurableFunction *fn, Jsonb *input)
{
	DurableArguments *args = new_arguments(fn);
	Jsonb	  **given = match_input(fn, input);
	int			added = freeze_times(fn, given);

	evaluate_defaults(fn, given, args);
	for (int i = fn->nparams - fn->ndefaults; i < fn->nparams; i++)
	{
		if (given[i] != NULL)
			continue;
		given[i] = default_to_json(fn, args, i);
		added += given[i] != NULL;
	}

	if (added == 0)
		return input;
	if (JB_ROOT_IS_OBJECT(input) || !by_position_works(fn, given))
		return build_object(fn, given);
	return build_array(fn, given);
}

/*
 * ArgumentsFreezeDefaults
 *		Check the input, and add the values of the defaults it relies on.
 *
 * So a workflow replays with the values of its start, even if a default is
 * now() or is changed later.  The form of the input is kept: by name, by
 * position; a scalar becomes an array only when something is added.  Not
 * added are a SQL NULL for a JSON type (see default_to_json) and an unnamed
 * parameter beside an object.
 */
Jsonb *
ArgumentsFreezeDefaults(const DurableFunction *fn, Jsonb *input)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext work = AllocSetContextCreate(caller, "durable binding",
											   ALLOCSET_SMALL_SIZES);
	bool		pushed = push_snapshot_if_none();
	Jsonb	   *frozen;

	MemoryContextSwitchTo(work);
	frozen = add_defaults(fn, input);

	/* what is kept must bind: some types do not read their own JSON */
	(void) ArgumentsBind(fn, frozen);

	MemoryContextSwitchTo(caller);
	frozen = JsonCopy(frozen);
	if (pushed)
		PopActiveSnapshot();
	MemoryContextDelete(work);
	return frozen;
}
