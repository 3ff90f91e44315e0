/*-------------------------------------------------------------------------
 *
 * activity.c
 *	  Primitives that run activities: durable_call and its kin.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "engine/activity.h"
#include "engine/deliver.h"
#include "engine/json.h"
#include "engine/remote.h"
#include "engine/replay.h"
#include "engine/retry.h"
#include "engine/sqlstep.h"
#include "engine/step.h"

PG_FUNCTION_INFO_V1(durable_call);
PG_FUNCTION_INFO_V1(durable_call_as);
PG_FUNCTION_INFO_V1(durable_sql);
PG_FUNCTION_INFO_V1(durable_step);
PG_FUNCTION_INFO_V1(durable_step_result);

/*
 * read_request: activity, args, step_id, retry, from argument i on.
 */
static void
read_request(FunctionCallInfo fcinfo, int i, CommandRequest *request)
{
	memset(request, 0, sizeof(CommandRequest));
	request->kind = COMMAND_ACTIVITY;
	request->name = ArgName(fcinfo, i, "activity");
	request->args = ArgJsonb(fcinfo, i + 1, "args");
}

static void
read_options(FunctionCallInfo fcinfo, int i, CommandRequest *request)
{
	request->step_id = ArgNameOrNull(fcinfo, i, "step_id");
	request->retry = ArgJsonbOrNull(fcinfo, i + 1);
	RetryCheck(request->retry, "retry");
	if (!PG_ARGISNULL(i + 2))
		request->limits.start_to_close =
			TimeoutRead(PG_GETARG_INTERVAL_P(i + 2), "timeout");
	if (!PG_ARGISNULL(i + 3))
		request->limits.schedule_to_close =
			TimeoutRead(PG_GETARG_INTERVAL_P(i + 3), "schedule_to_close");
	request->compensate = ArgNameOrNull(fcinfo, i + 4, "compensate");
	request->shielded = !PG_ARGISNULL(i + 5) && PG_GETARG_BOOL(i + 5);
	/* not of durable_sql(), whose outcome is always known */
	request->compensate_attempted = PG_NARGS() > i + 6 &&
		!PG_ARGISNULL(i + 6) && PG_GETARG_BOOL(i + 6);
}

static Jsonb *
call(Activation *a, const CommandRequest *request)
{
	return ReplayFinished(a, ReplayCommand(a, request))->result;
}

/*
 * durable_call: the result of an activity.
 */
Datum
durable_call(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_call");
	CommandRequest request;
	Jsonb	   *result;

	read_request(fcinfo, 0, &request);
	read_options(fcinfo, 2, &request);
	result = call(a, &request);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

static Datum
result_as(Jsonb *result, Oid type, const char *activity, bool *isnull)
{
	MemoryContext cxt = CurrentMemoryContext;
	Datum		value = (Datum) 0;

	PG_TRY();
	{
		value = JsonbToDatum(result, type, -1, isnull);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		if (geterrcode() == ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		error->hint = NULL;		/* it would speak of our way to convert */
		error->message = psprintf("result of activity \"%s\" is no %s: %s",
								  activity, format_type_be(type),
								  error->message);
		ReThrowError(error);
	}
	PG_END_TRY();
	return value;
}

/*
 * durable_call_as: the same, as a SQL type.
 */
Datum
durable_call_as(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_call_as");
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 0);
	CommandRequest request;
	Jsonb	   *result;
	Datum		value;
	bool		isnull;

	read_request(fcinfo, 1, &request);
	read_options(fcinfo, 3, &request);
	result = call(a, &request);
	if (result == NULL)
		PG_RETURN_NULL();
	value = result_as(result, type, request.name, &isnull);
	if (isnull)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(value);
}

/*
 * durable_sql: the rows of a statement.
 */
Datum
durable_sql(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_sql");
	CommandRequest request = {.kind = COMMAND_ACTIVITY, .name = SQL_ACTIVITY};
	char	   *query = ArgText(fcinfo, 0, "query");
	Jsonb	   *args = ArgJsonb(fcinfo, 1, "args");
	JsonbParseState *state;
	Jsonb	   *result;

	if (!JB_ROOT_IS_ARRAY(args) || JB_ROOT_IS_SCALAR(args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("args of durable_sql() must be a JSON array, not %s",
						JsonTypeName(args)),
				 errhint("The first element is $1.")));
	JsonObjectBegin(&state);
	JsonObjectAddText(&state, "query", query);
	JsonObjectAdd(&state, "args", args);
	request.args = JsonObjectEnd(&state);
	read_options(fcinfo, 2, &request);
	result = call(a, &request);
	/* not of our making: a history that comes from elsewhere (durable_check) */
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/* ------------------------------------------------------------------
 * Functions for clients that are steps in a body
 * ------------------------------------------------------------------
 */

static Jsonb *
arguments_as_json(FunctionCallInfo fcinfo, const char *const *parameters)
{
	JsonbParseState *state;
	Oid		   *types;
	int			count;

	(void) get_func_signature(fcinfo->flinfo->fn_oid, &types, &count);
	JsonObjectBegin(&state);
	for (int i = 0; parameters[i] != NULL; i++)
	{
		if (!PG_ARGISNULL(i))
			JsonObjectAdd(&state, parameters[i],
						  DatumToJsonb(PG_GETARG_DATUM(i), false, types[i]));
	}
	return JsonObjectEnd(&state);
}

static Jsonb *
one_attempt(void)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAddNumber(&state, "max_attempts", 1);
	return JsonObjectEnd(&state);
}

/*
 * ActivityInBody: called in a body, the function is an activity of the
 * workflow, done once.
 */
Datum
ActivityInBody(FunctionCallInfo fcinfo, const char *name,
			   const char *const *parameters)
{
	Activation *a = ReplayEnter(name);
	CommandRequest request = {.kind = COMMAND_ACTIVITY, .name = name};
	Oid			type = get_func_rettype(fcinfo->flinfo->fn_oid);
	Jsonb	   *result;
	Datum		value;
	bool		isnull = false;

	request.args = arguments_as_json(fcinfo, parameters);
	request.retry = one_attempt();
	request.function = fcinfo->flinfo->fn_oid;
	result = call(a, &request);
	if (type == VOIDOID)
		PG_RETURN_VOID();
	if (result == NULL)
		PG_RETURN_NULL();
	value = JsonbToDatum(result, type, -1, &isnull);
	if (isnull)
		PG_RETURN_NULL();
	return value;
}

/* ------------------------------------------------------------------
 * CALL durable_step
 * ------------------------------------------------------------------
 */

/*
 * can_commit_here: may a step run in place, and commit?
 *
 * Not in an exception block, not below a function, not below a query that
 * the commit would run to its end; then the step yields, as durable_call.
 */
static bool
can_commit_here(Activation *a, FunctionCallInfo fcinfo)
{
	return a->pass.linear &&
		fcinfo->context != NULL && IsA(fcinfo->context, CallContext) &&
		!castNode(CallContext, fcinfo->context)->atomic &&
		GetCurrentTransactionNestLevel() == 1 &&
		a->pass.live_queries == 0 &&
		SPI_inside_nonatomic_context();
}

/*
 * must_look: is there something to be delivered, or is the step done
 * elsewhere?  Then the body is to yield.
 */
static bool
must_look(Activation *a, const Command *command)
{
	bool		result;

	ContextSet(CONTEXT_ENGINE);
	result = DeliverMustLook(a) || RemoteIs(a, command);
	ContextSet(CONTEXT_BODY);
	return result;
}

static Jsonb *
step(FunctionCallInfo fcinfo, Activation *a, const CommandRequest *request)
{
	Command    *command = ReplayCommand(a, request);

	if (command->state == COMMAND_ISSUED && StepIsDue(command) &&
		can_commit_here(a, fcinfo) && !must_look(a, command))
		StepRunInPlace(a, command);
	return ReplayFinished(a, command)->result;
}

/*
 * durable_step: run an activity whose result nobody wants.
 */
Datum
durable_step(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_step");
	CommandRequest request;

	read_request(fcinfo, 0, &request);
	read_options(fcinfo, 2, &request);
	(void) step(fcinfo, a, &request);
	PG_RETURN_VOID();
}

/*
 * durable_step_result: the same with the result, and options.
 */
Datum
durable_step_result(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_step");
	CommandRequest request;
	TupleDesc	desc;
	Jsonb	   *result;
	Datum		value;
	bool		isnull;

	read_request(fcinfo, 0, &request);
	read_options(fcinfo, 3, &request);
	result = step(fcinfo, a, &request);

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "durable_step must return a row");
	value = PointerGetDatum(result);
	isnull = result == NULL;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  &value, &isnull)));
}
