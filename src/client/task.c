/*-------------------------------------------------------------------------
 *
 * task.c
 *	  Remote activities, for the clients that do them.
 *
 * A client takes tasks of a queue for a time, and says by the token it got
 * with each that it is alive, done, or has failed.  The result is a message to
 * the instance.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "arguments.h"
#include "client/client.h"
#include "client/waiting.h"
#include "digest.h"
#include "durable.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/timeout.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_task_poll);
PG_FUNCTION_INFO_V1(durable_task_wait);
PG_FUNCTION_INFO_V1(durable_task_heartbeat);
PG_FUNCTION_INFO_V1(durable_task_complete);
PG_FUNCTION_INFO_V1(durable_task_fail);

#define TOKEN_BYTES	24
#define MAX_TASKS	1000

static char *
new_token(void)
{
	uint8		bytes[TOKEN_BYTES];

	if (!pg_strong_random(bytes, sizeof(bytes)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random token")));
	return DigestHex(bytes, TOKEN_BYTES);
}

/* ------------------------------------------------------------------
 * Taking tasks
 * ------------------------------------------------------------------
 */

static Datum
as_interval(int64 milliseconds)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = milliseconds * 1000;
	return IntervalPGetDatum(interval);
}

static void
add_task(ReturnSetInfo *result, const char *token, const TaskRow *task)
{
	Datum		values[7] = {
		CStringGetTextDatum(token), CStringGetTextDatum(task->activity),
		PointerGetDatum(task->args), Int32GetDatum(task->attempt),
		CStringGetTextDatum(task->key), PointerGetDatum(task->heartbeat),
		as_interval(task->heartbeat_timeout)
	};
	bool		nulls[7] = {
		[5] = task->heartbeat == NULL, [6] = task->heartbeat_timeout == 0
	};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * watch: the instance is to be looked at when the client takes too long, or
 * is silent for too long.
 */
static void
watch(const TaskRow *task)
{
	int64		limit = task->start_to_close;
	TimestampTz until;

	if (limit == 0 ||
		(task->heartbeat_timeout != 0 && task->heartbeat_timeout < limit))
		limit = task->heartbeat_timeout;
	if (limit == 0)
		return;
	until = GetCurrentTimestamp() + limit * 1000;
	TaskLimit(task->iid, task->run_as, until);
	WakeupTimer(until);
}

/*
 * read_lease: cut like any timeout, so that its end is always a time.
 */
static Interval *
read_lease(FunctionCallInfo fcinfo, int i)
{
	Interval   *lease = palloc0(sizeof(Interval));

	ArgNotNull(fcinfo, i, "lease");
	lease->time = TimeoutRead(PG_GETARG_INTERVAL_P(i), "lease") * 1000;
	return lease;
}

/*
 * durable_task_poll: tasks of a queue, for a time.  One look.
 */
Datum
durable_task_poll(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *queue = ArgName(fcinfo, 0, "queue");
	char	   *worker = ArgNameOrNull(fcinfo, 1, "worker");
	Interval   *lease = read_lease(fcinfo, 3);
	List	   *tokens = NIL;
	List	   *hashes = NIL;
	TaskRow    *tasks;
	int			count;
	int			max;

	ArgNotNull(fcinfo, 2, "max");
	max = PG_GETARG_INT32(2);
	if (max < 1 || max > MAX_TASKS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max must be from 1 to %d", MAX_TASKS)));
	ClientEnterToWrite("durable_task_poll");
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < max; i++)
	{
		tokens = lappend(tokens, new_token());
		hashes = lappend(hashes, DigestOf(llast(tokens)));
	}
	count = TaskClaim(queue, GetUserId(), hashes, worker, lease, &tasks);
	for (int i = 0; i < count; i++)
	{
		add_task(result, list_nth(tokens, i), &tasks[i]);
		watch(&tasks[i]);
	}
	return (Datum) 0;
}

static bool
has_task(int64 number, const char *queue)
{
	return TaskHas(queue, GetUserId());
}

/*
 * durable_task_wait: until there may be a task (true), or the time is over.
 */
Datum
durable_task_wait(PG_FUNCTION_ARGS)
{
	char	   *queue = ArgName(fcinfo, 0, "queue");
	TimestampTz until = WaitingUntil(fcinfo, 1);
	TupleDesc	desc;
	Datum		value;
	bool		isnull = false;
	bool		found;

	ClientEnter("durable_task_wait");
	found = has_task(0, queue);
	if (!found && until != 0)
	{
		WaitingCheckProcedure(fcinfo, "durable_task_wait",
							  "There, call durable_task_poll().");
		WaitingCheck();
	}
	while (!found && until != 0 && GetCurrentTimestamp() < until)
	{
		TimestampTz expiry = TaskNextExpiry(queue, GetUserId());

		WaitingWithoutSnapshot(WakeupQueueNumber(queue), has_task, queue,
							   expiry == 0 ? until : Min(until, expiry + 1000));
		found = has_task(0, queue);
	}
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "the procedure must return a row");
	value = BoolGetDatum(found);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  &value, &isnull)));
}

/* ------------------------------------------------------------------
 * What became of them
 * ------------------------------------------------------------------
 */

static void
refuse_token(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_WRONG_STATE),
			 errmsg("the token is not valid, or not any more"),
			 errdetail("The task was handed out again, has timed out or was cancelled, or was done already."),
			 errhint("Its result is not wanted: take the next task with durable_task_poll().")));
}

/*
 * durable_task_heartbeat: the client is alive; true if it is to stop.
 */
Datum
durable_task_heartbeat(PG_FUNCTION_ARGS)
{
	char	   *token = ArgText(fcinfo, 0, "token");
	bool		cancelled = false;

	ClientEnterToWrite("durable_task_heartbeat");
	if (!TaskExtend(DigestOf(token), GetUserId(), ArgJsonbOrNull(fcinfo, 1),
					&cancelled))
		refuse_token();
	PG_RETURN_BOOL(cancelled);
}

/*
 * finish: the task is over; the message tells how.
 */
static void
finish(const char *token, Jsonb *result, Jsonb *error, bool final)
{
	TaskRow		task = {0};
	JsonbParseState *message;

	if (!TaskFinish(DigestOf(token), GetUserId(), &task))
		refuse_token();
	JsonObjectBegin(&message);
	JsonObjectAddNumber(&message, "iid", task.iid);
	JsonObjectAddNumber(&message, "position", task.position);
	JsonObjectAddNumber(&message, "attempt", task.attempt);
	JsonObjectAddNumber(&message, "started_at", task.started_at);
	JsonObjectAddNumber(&message, "clients", task.clients);
	if (task.undo)
		JsonObjectAddNumber(&message, "undo", 1);
	JsonObjectAdd(&message, "heartbeat", task.heartbeat);
	JsonObjectAdd(&message, "result", result);
	JsonObjectAdd(&message, "error", error);
	if (final)
		JsonObjectAddNumber(&message, "final", 1);
	(void) InboxInsert(task.chain, "task", "", JsonObjectEnd(&message));
	WakeupMessage(task.chain);
}

/*
 * durable_task_complete: it is done.
 */
Datum
durable_task_complete(PG_FUNCTION_ARGS)
{
	char	   *token = ArgText(fcinfo, 0, "token");

	ClientEnterToWrite("durable_task_complete");
	finish(token, ArgJsonbOrNull(fcinfo, 1), NULL, false);
	PG_RETURN_VOID();
}

/*
 * durable_task_fail: it could not be done, this time or (not retryable) at
 * all.
 */
Datum
durable_task_fail(PG_FUNCTION_ARGS)
{
	char	   *token = ArgText(fcinfo, 0, "token");
	char	   *message = ArgText(fcinfo, 1, "message");
	char	   *detail = PG_ARGISNULL(3) ? NULL : ArgText(fcinfo, 3, "detail");

	ArgNotNull(fcinfo, 2, "retryable");
	ClientEnterToWrite("durable_task_fail");
	finish(token, NULL, FailureMake("P0001", message, detail),
		   !PG_GETARG_BOOL(2));
	PG_RETURN_VOID();
}
