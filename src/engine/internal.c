/*-------------------------------------------------------------------------
 *
 * internal.c
 *	  Workflows of our own: an activity beside a body, a part of a map.
 *
 * An activity that is spawned is a child whose body is one call, so that it
 * has all that instances have: a worker of its own, its commit, its retries,
 * its place after a crash.  A map is cut into as many children as may run at
 * the same time; each calls the activity for its share of the items.
 *
 * They are started by the engine only, and are not in the table of workflows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "arguments.h"
#include "engine/child.h"
#include "engine/failure.h"
#include "engine/internal.h"
#include "engine/json.h"
#include "engine/retry.h"

PG_FUNCTION_INFO_V1(durable_run_activity);
PG_FUNCTION_INFO_V1(durable_run_share);
PG_FUNCTION_INFO_V1(durable_spawn);
PG_FUNCTION_INFO_V1(durable_map);

/* How many children a map has, when nobody says how many. */
#define DEFAULT_SHARES	32

/*
 * InternalIs: is it one of ours?
 */
bool
InternalIs(const char *workflow)
{
	return strncmp(workflow, INTERNAL_PREFIX, strlen(INTERNAL_PREFIX)) == 0;
}

static Oid
find_function(const char *workflow)
{
	Oid			type = JSONBOID;
	oidvector  *types = buildoidvector(&type, 1);
	const char *name = strcmp(workflow, MAP_WORKFLOW) == 0 ? "run_share" : "run_activity";
	Oid			function;

	function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
							   CStringGetDatum(name), PointerGetDatum(types),
							   ObjectIdGetDatum(get_namespace_oid("durable_internal", false)));
	if (!OidIsValid(function))
		elog(ERROR, "function durable_internal.%s does not exist", name);
	return function;
}

/*
 * InternalDescribe: function and arguments of the instance's body.  Whose
 * activities it calls, and by which policy, is the parent's; that is asked
 * there, not of the input, which nobody could vouch for.
 */
void
InternalDescribe(Activation *a)
{
	a->function = FunctionDescribe(find_function(a->instance->workflow),
								   "workflow");
	a->function->whole = true;
	a->arguments = ArgumentsBind(a->function, a->input);
	a->instance->workflow_owner = WorkflowOwner(a->instance->parent,
												&a->instance->activity_retry);
}

/* ------------------------------------------------------------------
 * In the parent
 * ------------------------------------------------------------------
 */

/*
 * call_options: what durable_call() could be given, as it is kept.
 */
static Jsonb *
call_options(FunctionCallInfo fcinfo, int retry, int timeout)
{
	JsonbParseState *call;

	RetryCheck(ArgJsonbOrNull(fcinfo, retry), "retry");
	JsonObjectBegin(&call);
	JsonObjectAdd(&call, "retry", ArgJsonbOrNull(fcinfo, retry));
	if (!PG_ARGISNULL(timeout))
		JsonObjectAddNumber(&call, "timeout",
							TimeoutRead(PG_GETARG_INTERVAL_P(timeout), "timeout"));
	if (!PG_ARGISNULL(timeout + 1))
		JsonObjectAddNumber(&call, "schedule_to_close",
							TimeoutRead(PG_GETARG_INTERVAL_P(timeout + 1), "schedule_to_close"));
	return JsonObjectEnd(&call);
}

/*
 * child_options: of a child that is closed together with its parent.
 */
static Jsonb *
child_options(const char *workflow, Jsonb *call, const char *compensate,
			  bool attempted)
{
	JsonbParseState *options;

	JsonObjectBegin(&options);
	JsonObjectAddText(&options, "internal", workflow);
	JsonObjectAdd(&options, "call", call);
	JsonObjectAddText(&options, "on_cancel", "terminate");
	JsonObjectAddText(&options, "on_close", "terminate");
	JsonObjectAddText(&options, "compensate", compensate);
	if (attempted)
		JsonObjectAddNumber(&options, "compensate_attempted", 1);
	return JsonObjectEnd(&options);
}

/*
 * durable_spawn: begin an activity; a handle that is done with it.
 */
Datum
durable_spawn(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_spawn");
	CommandRequest request = {.kind = COMMAND_SPAWN};

	request.name = ArgName(fcinfo, 0, "activity");
	request.args = ArgJsonb(fcinfo, 1, "args");
	request.step_id = ArgNameOrNull(fcinfo, 2, "step_id");
	request.options = child_options(ACTIVITY_WORKFLOW, call_options(fcinfo, 3, 4),
									ArgNameOrNull(fcinfo, 6, "compensate"),
									!PG_ARGISNULL(7) && PG_GETARG_BOOL(7));
	PG_RETURN_INT32(ReplayCommand(a, &request)->position);
}

/*
 * share_of: every n-th item, so that each share has about as much to do.
 */
static Jsonb *
share_of(Jsonb *items, int share, int shares)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = share; i < JB_ROOT_COUNT(items); i += shares)
		pushJsonbValue(&state, WJB_ELEM,
					   getIthJsonbValueFromContainer(&items->root, i));
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

static void
check_items(Jsonb *items)
{
	if (!JB_ROOT_IS_ARRAY(items) || JB_ROOT_IS_SCALAR(items))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("items must be a JSON array, not %s", JsonTypeName(items)),
				 errhint("Each element is the args of one call.")));
}

static int
read_shares(FunctionCallInfo fcinfo, int i, int items)
{
	int			shares = PG_ARGISNULL(i) ? DEFAULT_SHARES : PG_GETARG_INT32(i);

	if (shares < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_parallel must be at least 1")));
	return Min(shares, items);
}

static bool
read_collect(FunctionCallInfo fcinfo, int i)
{
	char	   *on_error = ArgText(fcinfo, i, "on_error");

	if (strcmp(on_error, "fail") != 0 && strcmp(on_error, "collect") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for on_error: \"%s\"", on_error),
				 errhint("It can be fail or collect.")));
	return strcmp(on_error, "collect") == 0;
}

/*
 * result_of: of one item of a share.  In a history that comes from elsewhere
 * (durable_check) a share can have come to anything.
 */
static JsonbValue *
result_of(Activation *a, const Command *share, int i)
{
	Jsonb	   *results = share->result;
	JsonbValue *result = NULL;

	if (results != NULL && JB_ROOT_IS_ARRAY(results))
		result = getIthJsonbValueFromContainer(&results->root, i);
	if (result == NULL)
		ReplayVerdict(a, ERRCODE_DURABLE_DETERMINISM,
					  psprintf("the history has no results of durable_map() at position %d",
							   share->position),
					  NULL);
	return result;
}

/*
 * merge: the results of the shares, in the order of the items.
 */
static Jsonb *
merge(Activation *a, const int *handles, int shares, int items)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < items; i++)
		pushJsonbValue(&state, WJB_ELEM,
					   result_of(a, a->commands[handles[i % shares] - 1], i / shares));
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

static void
start_shares(Activation *a, const CommandRequest *map, Jsonb *items,
			 int shares, int *handles)
{
	for (int i = 0; i < shares; i++)
	{
		CommandRequest request = *map;

		request.args = share_of(items, i, shares);
		handles[i] = ReplayCommand(a, &request)->position;
	}
}

static void
await_shares(Activation *a, const int *handles, int shares)
{
	CommandRequest request = {
		.kind = COMMAND_AWAIT, .name = "map", .handles = handles,
		.nhandles = shares
	};

	(void) ReplayFinished(a, ReplayCommand(a, &request));
	for (int i = 0; i < shares; i++)
	{
		Command    *command = a->commands[handles[i] - 1];

		if (command->state == COMMAND_FAILED)
		{
			a->pass.raised = command;
			FailureThrow(command->error);
		}
	}
}

/*
 * durable_map: an activity for each item, some at the same time; their
 * results in the order of the items.
 */
Datum
durable_map(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_map");
	CommandRequest request = {.kind = COMMAND_SPAWN};
	Jsonb	   *items = ArgJsonb(fcinfo, 1, "items");
	bool		collect = read_collect(fcinfo, 3);
	Jsonb	   *call = call_options(fcinfo, 4, 5);
	JsonbParseState *state;
	int		   *handles;
	int			count;
	int			shares;

	request.name = ArgName(fcinfo, 0, "activity");
	check_items(items);
	count = JB_ROOT_COUNT(items);
	if (count == 0)
		PG_RETURN_JSONB_P(items);
	shares = read_shares(fcinfo, 2, count);
	JsonObjectBegin(&state);
	JsonObjectAdd(&state, "options", call);
	if (collect)
		JsonObjectAddNumber(&state, "collect", 1);
	request.options = child_options(MAP_WORKFLOW, JsonObjectEnd(&state), NULL, false);
	handles = MemoryContextAlloc(a->pass_cxt, sizeof(int) * shares);
	start_shares(a, &request, items, shares, handles);
	await_shares(a, handles, shares);
	PG_RETURN_JSONB_P(merge(a, handles, shares, count));
}

/* ------------------------------------------------------------------
 * The bodies of the children
 * ------------------------------------------------------------------
 */

static void
read_call(CommandRequest *request, Jsonb *input, Jsonb *options)
{
	memset(request, 0, sizeof(CommandRequest));
	request->kind = COMMAND_ACTIVITY;
	request->name = JsonGetText(input, "activity");
	request->retry = JsonGet(options, "retry");
	request->limits.start_to_close = JsonGetInt(options, "timeout");
	request->limits.schedule_to_close = JsonGetInt(options, "schedule_to_close");
}

/*
 * durable_run_activity: one call.
 */
Datum
durable_run_activity(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_run_activity");
	Jsonb	   *input = PG_GETARG_JSONB_P(0);
	CommandRequest request;
	Jsonb	   *result;

	read_call(&request, input, JsonGet(input, "call"));
	request.args = JsonGet(input, "args");
	result = ReplayFinished(a, ReplayCommand(a, &request))->result;
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/*
 * call_item: the command of one item.
 *
 * What is recorded is not compared: the body is ours, and a long share would
 * be compared again for each of its items.
 */
static Command *
call_item(Activation *a, CommandRequest *request, JsonbContainer *items, int i)
{
	if (i < a->ncommands && a->commands[i]->state != COMMAND_ISSUED &&
		!ReplayIsCancelled(a))
	{
		a->pass.position = i + 1;
		return a->commands[i];
	}
	request->args = JsonbValueToJsonb(getIthJsonbValueFromContainer(items, i));
	return ReplayCommand(a, request);
}

/*
 * items_of: the items of a share, where they are: a copy for each of them
 * would be too much.
 */
static JsonbContainer *
items_of(Jsonb *input)
{
	JsonbValue	items;

	if (getKeyJsonValueFromContainer(&input->root, "args", 4, &items) == NULL ||
		items.type != jbvBinary)
		elog(ERROR, "a share of a map has no items");
	return items.val.binary.data;
}

static Jsonb *
collected(const Command *command)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	if (command->state == COMMAND_FAILED)
		JsonObjectAdd(&state, "error", command->error);
	else
		JsonObjectAdd(&state, "result", command->result ? command->result : JsonNull());
	return JsonObjectEnd(&state);
}

/*
 * durable_run_share: one call after another.
 */
Datum
durable_run_share(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_run_share");
	Jsonb	   *input = PG_GETARG_JSONB_P(0);
	JsonbContainer *items = items_of(input);
	Jsonb	   *call = JsonGet(input, "call");
	bool		collect = JsonGetInt(call, "collect") != 0;
	int			count = JsonContainerSize(items);
	Jsonb	  **results;
	CommandRequest request;

	read_call(&request, input, JsonGet(call, "options"));
	for (int i = 0; i < count; i++)
	{
		Command    *command = call_item(a, &request, items, i);

		if (command->state == COMMAND_ISSUED ||
			(command->state == COMMAND_FAILED && !collect))
			(void) ReplayFinished(a, command);
	}
	results = palloc(sizeof(Jsonb *) * Max(count, 1));
	for (int i = 0; i < count; i++)
		results[i] = collect ? collected(a->commands[i]) :
			a->commands[i]->result;
	PG_RETURN_JSONB_P(JsonArray(results, count));
}
