/*-------------------------------------------------------------------------
 *
 * invoke.c
 *	  The call: the conventions of functions, sets and procedures.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_collate.h"
#include "pgstat.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "engine/binding.h"
#include "engine/json.h"

/*
 * call_expression
 *		The call as the parser would have made it, with constants.
 *
 * Functions look at it for the types and for VARIADIC; the parser's own
 * rules find the collation.
 */
static FuncExpr *
call_expression(const DurableFunction *fn, const DurableArguments *args)
{
	List	   *consts = NIL;
	FuncExpr   *call;

	for (int i = 0; i < fn->nparams; i++)
	{
		Oid			type = fn->param_types[i];
		int16		typlen;
		bool		typbyval;

		get_typlenbyval(type, &typlen, &typbyval);
		consts = lappend(consts,
						 makeConst(type, -1, get_typcollation(type), typlen,
								   args->values[i], args->nulls[i],
								   typbyval));
	}

	call = makeFuncExpr(fn->oid, fn->result_type, consts, InvalidOid,
						InvalidOid, COERCE_EXPLICIT_CALL);
	call->funcretset = fn->returns_set;
	call->funcvariadic = fn->variadic;
	assign_expr_collations(NULL, (Node *) call);
	return call;
}

/*
 * invoke_single
 *		Call a function or procedure that returns one value.
 *
 * Nothing here may be tied to the transaction: a procedure can end it.
 */
static Datum
invoke_single(const DurableFunction *fn, const DurableArguments *args,
			  FuncExpr *call, bool nonatomic, bool *isnull)
{
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	FmgrInfo	flinfo;
	PgStat_FunctionCallUsage usage;
	CallContext *context = NULL;
	Datum		result;

	if (fn->prokind == PROKIND_PROCEDURE)
	{
		context = makeNode(CallContext);
		context->atomic = !nonatomic;
	}

	InvokeFunctionExecuteHook(fn->oid);
	fmgr_info(fn->oid, &flinfo);
	fmgr_info_set_expr((Node *) call, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, fn->nparams,
							 call->inputcollid, (Node *) context, NULL);
	for (int i = 0; i < fn->nparams; i++)
	{
		/* may have become STRICT since it was described */
		if (flinfo.fn_strict && args->nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s %s is STRICT and has a null argument",
							fn->what, fn->signature)));
		fcinfo->args[i].value = args->values[i];
		fcinfo->args[i].isnull = args->nulls[i];
	}

	pgstat_init_function_usage(fcinfo, &usage);
	result = FunctionCallInvoke(fcinfo);
	pgstat_end_function_usage(&usage, true);

	*isnull = fcinfo->isnull;
	return result;
}

/*
 * set_descriptor
 *		The columns of a set, as a FROM clause would expect them.
 */
static TupleDesc
set_descriptor(FuncExpr *call, bool *is_row)
{
	TupleDesc	desc;
	Oid			type;

	switch (get_expr_result_type((Node *) call, &type, &desc))
	{
		case TYPEFUNC_COMPOSITE:
		case TYPEFUNC_COMPOSITE_DOMAIN:
			*is_row = true;
			return BlessTupleDesc(desc);
		case TYPEFUNC_SCALAR:
			*is_row = false;
			desc = CreateTemplateTupleDesc(1);
			TupleDescInitEntry(desc, 1, "value", type, -1, 0);
			return desc;
		default:
			elog(ERROR, "unexpected result type %u of function %u",
				 call->funcresulttype, call->funcid);
	}
	return NULL;				/* keep compiler quiet */
}

/*
 * slot_to_json
 *		One element of a set; a JSON array has no other null than JSON's.
 */
static void
slot_to_json(TupleTableSlot *slot, bool is_row, Oid type, JsonbValue *element)
{
	Datum		value;
	bool		isnull = false;
	Jsonb	   *json;

	if (is_row)
		value = ExecFetchSlotHeapTupleDatum(slot);
	else
		value = slot_getattr(slot, 1, &isnull);

	json = DatumToJsonb(value, isnull, is_row ? RECORDOID : type);
	if (json == NULL)
		element->type = jbvNull;
	else
		JsonAsValue(json, element);
}

static Jsonb *
tuplestore_to_json(Tuplestorestate *store, TupleDesc desc, bool is_row,
				   Oid type)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc,
													&TTSOpsMinimalTuple);
	JsonbParseState *state = NULL;
	JsonbValue	element;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	while (tuplestore_gettupleslot(store, true, false, slot))
	{
		CHECK_FOR_INTERRUPTS();
		slot_to_json(slot, is_row, type, &element);
		pushJsonbValue(&state, WJB_ELEM, &element);
	}
	ExecDropSingleTupleTableSlot(slot);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/*
 * invoke_set
 *		Call a function that returns a set, as a FROM clause does.
 *
 * The executor knows both protocols, value per call and materialize, checks
 * the columns and calls the hook and the statistics.  It also checks EXECUTE,
 * which nobody has on a copy of ours but its owner.
 */
static Jsonb *
invoke_set(const DurableFunction *fn, FuncExpr *call)
{
	EState	   *estate = CreateExecutorState();
	ExprContext *econtext = CreateExprContext(estate);
	MemoryContext argcontext;
	SetExprState *setexpr;
	Oid			user;
	int			security_context;
	Tuplestorestate *store;
	TupleDesc	desc;
	bool		is_row;
	Jsonb	   *result;

	argcontext = AllocSetContextCreate(estate->es_query_cxt,
									   "durable set arguments",
									   ALLOCSET_SMALL_SIZES);
	desc = set_descriptor(call, &is_row);
	GetUserIdAndSecContext(&user, &security_context);
	if (fn->pinned)
		SetUserIdAndSecContext(FunctionOwner(fn->oid),
							   security_context | SECURITY_LOCAL_USERID_CHANGE);
	setexpr = ExecInitTableFunctionResult((Expr *) call, econtext, NULL);
	SetUserIdAndSecContext(user, security_context);
	store = ExecMakeTableFunctionResult(setexpr, econtext, argcontext, desc,
										false);
	result = tuplestore_to_json(store, desc, is_row, fn->result_type);
	tuplestore_end(store);
	FreeExecutorState(estate);
	return result;
}

/*
 * FunctionInvoke
 *		Call the function and return its result as JSON, NULL for SQL NULL.
 *
 * void gives NULL; a composite type or several OUT parameters an object, so
 * do the INOUT and OUT parameters of a procedure however few they are; a set
 * an array.  EXECUTE must have been checked.
 *
 * With nonatomic a procedure may commit.  Then no snapshot of ours may be
 * active during the call, and the current context, fn and args must outlive
 * transactions; the caller runs under a portal (see ExecuteCallStmt).
 */
Jsonb *
FunctionInvoke(const DurableFunction *fn, DurableArguments *args,
			   bool nonatomic)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext work = AllocSetContextCreate(caller, "durable call",
											   ALLOCSET_DEFAULT_SIZES);
	FuncExpr   *call;
	Jsonb	   *result;

	nonatomic = nonatomic && fn->nonatomic_ok;
	/* a STABLE function sees what was done before it, in this transaction too */
	if (!nonatomic)
	{
		CommandCounterIncrement();
		PushActiveSnapshot(GetTransactionSnapshot());
	}

	MemoryContextSwitchTo(work);
	call = call_expression(fn, args);
	if (fn->returns_set)
	{
		Jsonb	   *set = invoke_set(fn, call);

		MemoryContextSwitchTo(caller);
		result = DatumGetJsonbPCopy(JsonbPGetDatum(set));
	}
	else
	{
		bool		isnull;
		Datum		value = invoke_single(fn, args, call, nonatomic, &isnull);

		/* the current context may be any other after a commit */
		MemoryContextSwitchTo(caller);
		if (nonatomic)
			EnsurePortalSnapshotExists();
		result = DatumToJsonb(value, isnull, fn->result_type);
	}

	if (!nonatomic)
		PopActiveSnapshot();
	MemoryContextDelete(work);
	return result;
}
