/*-------------------------------------------------------------------------
 *
 * handle.c
 *	  Primitives that begin something and go on, and those that wait for it:
 *	  timers, signals, children; and continue-as-new.
 *
 * A handle is the position of the command.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "engine/child.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/replay.h"
#include "engine/start.h"
#include "engine/wait.h"

PG_FUNCTION_INFO_V1(durable_timer);
PG_FUNCTION_INFO_V1(durable_signal_handle);
PG_FUNCTION_INFO_V1(durable_spawn_child);
PG_FUNCTION_INFO_V1(durable_call_child);
PG_FUNCTION_INFO_V1(durable_await);
PG_FUNCTION_INFO_V1(durable_await_all);
PG_FUNCTION_INFO_V1(durable_await_any);
PG_FUNCTION_INFO_V1(durable_continue_as_new);

/*
 * durable_timer: a handle that is done after that time.
 */
Datum
durable_timer(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_timer");
	CommandRequest request = {.kind = COMMAND_TIMER, .name = "timer"};
	JsonbParseState *args;

	ArgNotNull(fcinfo, 0, "duration");
	request.wake_at = WaitFromNow(PG_GETARG_DATUM(0), "duration");
	JsonObjectBegin(&args);
	JsonObjectAdd(&args, "for", DatumToJsonb(PG_GETARG_DATUM(0), false, INTERVALOID));
	request.args = JsonObjectEnd(&args);
	PG_RETURN_INT32(ReplayCommand(a, &request)->position);
}

/*
 * durable_signal_handle: a handle that is done with the next signal.
 */
Datum
durable_signal_handle(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_signal_handle");
	CommandRequest request = {.kind = COMMAND_SIGNAL};

	request.name = ArgName(fcinfo, 0, "name");
	PG_RETURN_INT32(ReplayCommand(a, &request)->position);
}

/* ------------------------------------------------------------------
 * Children
 * ------------------------------------------------------------------
 */

static void
check_policy(const char *policy, const char *parameter)
{
	if (strcmp(policy, "cancel") != 0 && strcmp(policy, "terminate") != 0 &&
		strcmp(policy, "abandon") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for %s: \"%s\"", parameter, policy),
				 errhint("It can be cancel, terminate or abandon.")));
}

/*
 * read_child: workflow, input, id, on_cancel, on_close, timeout.
 */
static void
read_child(FunctionCallInfo fcinfo, CommandRequest *request)
{
	char	   *on_cancel = ArgText(fcinfo, 3, "on_cancel");
	char	   *on_close = ArgText(fcinfo, 4, "on_close");
	JsonbParseState *options;

	memset(request, 0, sizeof(CommandRequest));
	request->kind = COMMAND_CHILD;
	request->name = ArgName(fcinfo, 0, "workflow");
	request->args = ArgJsonb(fcinfo, 1, "input");
	check_policy(on_cancel, "on_cancel");
	check_policy(on_close, "on_close");
	JsonObjectBegin(&options);
	JsonObjectAddText(&options, "id", ArgNameOrNull(fcinfo, 2, "id"));
	JsonObjectAddText(&options, "on_cancel", on_cancel);
	JsonObjectAddText(&options, "on_close", on_close);
	if (!PG_ARGISNULL(5))
	{
		StartCheckTimeout(PG_GETARG_INTERVAL_P(5));
		JsonObjectAddText(&options, "timeout",
						  DatumGetCString(DirectFunctionCall1(interval_out,
															  PG_GETARG_DATUM(5))));
	}
	request->options = JsonObjectEnd(&options);
}

/*
 * durable_spawn_child: start another workflow; a handle that is done with its
 * end.
 */
Datum
durable_spawn_child(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_spawn_child");
	CommandRequest request;

	read_child(fcinfo, &request);
	PG_RETURN_INT32(ReplayCommand(a, &request)->position);
}

/*
 * durable_call_child: start another workflow, and its result.
 */
Datum
durable_call_child(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_call_child");
	CommandRequest request;
	Jsonb	   *result;

	read_child(fcinfo, &request);
	result = ReplayFinished(a, ReplayCommand(a, &request))->result;
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/* ------------------------------------------------------------------
 * Waiting
 * ------------------------------------------------------------------
 */

static void
check_handle(Activation *a, int handle)
{
	Command    *command = NULL;

	if (handle >= 1 && handle <= a->pass.position)
		command = a->commands[handle - 1];
	if (command == NULL ||
		(command->kind != COMMAND_TIMER && command->kind != COMMAND_SIGNAL &&
		 !ChildIs(command)))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("%d is no handle of this run", handle),
				 errhint("Handles come from durable_spawn(), durable_spawn_child(), durable_timer() and durable_signal_handle().")));
}

/*
 * await: wait for one or all of the handles.
 */
static Command *
await(Activation *a, const int *handles, int count, bool any, Datum *timeout)
{
	CommandRequest request = {
		.kind = COMMAND_AWAIT, .name = any ? "any" : "all",
		.handles = handles, .nhandles = count, .any = any
	};
	Jsonb	  **elements = palloc(sizeof(Jsonb *) * Max(count, 1));

	for (int i = 0; i < count; i++)
	{
		check_handle(a, handles[i]);
		elements[i] = DatumToJsonb(Int32GetDatum(handles[i]), false, INT4OID);
	}
	request.args = JsonArray(elements, count);
	if (timeout != NULL)
		request.wake_at = WaitFromNow(*timeout, "timeout");
	return ReplayFinished(a, ReplayCommand(a, &request));
}

static int *
copy_handles(Activation *a, const int *handles, int count)
{
	int		   *copy = MemoryContextAllocHuge(a->pass_cxt,
											  sizeof(int) * Max(count, 1));

	memcpy(copy, handles, sizeof(int) * count);
	return copy;
}

static int *
read_handles(FunctionCallInfo fcinfo, Activation *a, int *count)
{
	Datum	   *datums;
	bool	   *nulls;
	int		   *handles;

	ArgNotNull(fcinfo, 0, "handles");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), INT4OID, sizeof(int32), true,
					  TYPALIGN_INT, &datums, &nulls, count);
	handles = MemoryContextAllocHuge(a->pass_cxt, sizeof(int) * Max(*count, 1));
	for (int i = 0; i < *count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("handles must not contain nulls")));
		handles[i] = DatumGetInt32(datums[i]);
	}
	return handles;
}

/*
 * outcome: what a handle that is done has come to.
 */
static Jsonb *
outcome(Activation *a, int handle)
{
	Command    *command = a->commands[handle - 1];

	if (command->state == COMMAND_FAILED)
	{
		a->pass.raised = command;
		FailureThrow(command->error);
	}
	return command->result;
}

static void
refuse_late(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_TIMED_OUT),
			 errmsg("%s timed out", what)));
}

/*
 * durable_await: the result of a handle.
 */
Datum
durable_await(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_await");
	Datum		timeout = PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1);
	int			handle;
	Jsonb	   *result;

	ArgNotNull(fcinfo, 0, "handle");
	handle = PG_GETARG_INT32(0);
	if (await(a, copy_handles(a, &handle, 1), 1, false,
			  PG_ARGISNULL(1) ? NULL : &timeout)->state == COMMAND_TIMED_OUT)
		refuse_late("durable_await()");
	result = outcome(a, handle);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/*
 * durable_await_all: the results of all, in their order.
 */
Datum
durable_await_all(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_await_all");
	Datum		timeout = PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1);
	int			count;
	int		   *handles = read_handles(fcinfo, a, &count);
	Jsonb	  **results;
	int			failed = 0;

	if (await(a, handles, count, false,
			  PG_ARGISNULL(1) ? NULL : &timeout)->state == COMMAND_TIMED_OUT)
		refuse_late("durable_await_all()");
	results = palloc(sizeof(Jsonb *) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		Command    *command = a->commands[handles[i] - 1];

		results[i] = command->result;
		if (command->state == COMMAND_FAILED &&
			(failed == 0 || command->position < failed))
			failed = command->position;
	}
	if (failed != 0)
		(void) outcome(a, failed);
	PG_RETURN_JSONB_P(JsonArray(results, count));
}

/*
 * durable_await_any: the handle that was done first, NULL if none was in time.
 */
Datum
durable_await_any(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_await_any");
	Datum		timeout = PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1);
	int			count;
	int		   *handles = read_handles(fcinfo, a, &count);
	Command    *command;

	if (count == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("handles must not be empty"),
				 errdetail("Nothing would ever be done.")));
	command = await(a, handles, count, true, PG_ARGISNULL(1) ? NULL : &timeout);
	if (command->state == COMMAND_TIMED_OUT)
		PG_RETURN_NULL();
	PG_RETURN_INT32((int32) JsonGetInt(command->result, "handle"));
}

/* ------------------------------------------------------------------
 * Continue-as-new
 * ------------------------------------------------------------------
 */

/*
 * durable_continue_as_new: this run ends here, and the next one begins.
 */
Datum
durable_continue_as_new(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_continue_as_new");
	Jsonb	   *input = ArgJsonb(fcinfo, 0, "input");

	for (int i = 0; i < a->pass.position; i++)
	{
		if (ChildIsOpen(a->commands[i]))
			ereport(ERROR,
					(errcode(ERRCODE_DURABLE_WRONG_STATE),
					 errmsg("a run with open children cannot continue as new"),
					 errdetail("The child of position %d has not ended.", i + 1),
					 errhint("Await it first.")));
	}
	ReplayContinue(a, input);
	PG_RETURN_VOID();
}
