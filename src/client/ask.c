/*-------------------------------------------------------------------------
 *
 * ask.c
 *	  Questions to an instance: queries of its state, updates with an answer.
 *
 * A query reads what the last activation left.  Its handler is the instance's
 * code, so it runs only in a session of the instance's role.  An update is a
 * message; its answer is written by whoever runs the instance.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "client/client.h"
#include "client/waiting.h"
#include "durable.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/query.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_query);
PG_FUNCTION_INFO_V1(durable_update);
PG_FUNCTION_INFO_V1(durable_update_result);
PG_FUNCTION_INFO_V1(durable_update_wait);

/* ------------------------------------------------------------------
 * Queries
 * ------------------------------------------------------------------
 */

/*
 * check_own_session: another role's code must not run in this session.
 */
static void
check_own_session(const InstanceRow *instance)
{
	if (instance->run_as != GetUserId() || !ClientIsOwnSession())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the handlers of instance \"%s\" run only in a session of role \"%s\"",
						instance->id, instance->run_as_name),
				 errhint("durable_query(id) without a name gives the state, to every member of the role.")));
}

/*
 * durable_query: the state of an instance or, with a name, what the handler
 * of that name makes of it.
 */
Datum
durable_query(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *name = ArgNameOrNull(fcinfo, 1, "name");
	Jsonb	   *args[2] = {NULL, ArgJsonb(fcinfo, 2, "args")};
	InstanceRow *instance;
	Jsonb	   *queries = NULL;
	Jsonb	   *result;
	char	   *function;

	ClientEnter("durable_query");
	instance = ClientFindInstance(id);
	if (!StateFind(instance->iid, &args[0], &queries))
		args[0] = JsonEmpty();
	if (name == NULL)
		PG_RETURN_JSONB_P(args[0]);
	function = JsonGetText(queries, name);
	if (function == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("instance \"%s\" has no handler for query \"%s\"", id, name),
				 errhint("The workflow sets it with durable_on_query(), when it first runs.")));
	check_own_session(instance);
	result = QueryRun(instance, function, args, 2);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/* ------------------------------------------------------------------
 * Updates
 * ------------------------------------------------------------------
 */

static int64
send(const char *id, const char *name, Jsonb *payload)
{
	InstanceRow *instance = ClientFindInstance(id);
	int64		mid;

	if (instance->ended)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" has ended: it is %s", instance->id,
						instance->status),
				 errhint("durable_query() still gives its state.")));
	mid = InboxInsert(instance->chain, "update", name, payload);
	WakeupMessageTo(instance->chain, instance->run_as);
	return mid;
}

/*
 * durable_update: ask an instance to change its state; the number to ask for
 * the answer with.
 */
Datum
durable_update(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *name = ArgName(fcinfo, 1, "name");
	Jsonb	   *payload = ArgJsonb(fcinfo, 2, "payload");

	ClientEnterToWrite("durable_update");
	PG_RETURN_INT64(send(id, name, payload));
}

/*
 * find_answer: of an update to an instance that the caller may see.
 */
static Answer *
find_answer(int64 update)
{
	Answer	   *answer = AnswerFind(update);
	InstanceRow *instance = answer ? InstanceLoad(answer->iid) : NULL;

	if (instance == NULL || !ClientMaySee(instance))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("update " INT64_FORMAT " does not exist", update),
				 errhint("durable_update() gives the number; its transaction must have committed.")));
	return answer;
}

static Jsonb *
result_of(const Answer *answer, int64 update)
{
	if (!answer->given)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("update " INT64_FORMAT " has no answer yet", update),
				 errhint("It is answered when the instance is driven. Give a time to wait, or ask again.")));
	if (answer->error != NULL)
		FailureThrow(answer->error);
	return answer->result;
}

static bool
is_answered(int64 update, const char *unused)
{
	return find_answer(update)->given;
}

/*
 * durable_update_result: what the handler answered; the error if it raised
 * one or the update was rejected.
 */
Datum
durable_update_result(PG_FUNCTION_ARGS)
{
	TimestampTz until = WaitingUntil(fcinfo, 1);
	int64		update;
	Jsonb	   *result;

	ArgNotNull(fcinfo, 0, "update_id");
	update = PG_GETARG_INT64(0);
	ClientEnter("durable_update_result");
	if (until != 0 && !is_answered(update, NULL))
	{
		WaitingCheck();
		WaitingWithSnapshot(update, is_answered, NULL, until);
	}
	result = result_of(find_answer(update), update);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/*
 * durable_update_wait: ask, commit, and wait for the answer.
 */
Datum
durable_update_wait(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *name = ArgName(fcinfo, 1, "name");
	Jsonb	   *payload = ArgJsonb(fcinfo, 2, "payload");
	TimestampTz until = WaitingUntil(fcinfo, 3);
	int64		update;

	ClientEnterToWrite("durable_update_wait");
	WaitingCheckProcedure(fcinfo, "durable_update_wait", "There, call durable_update(), commit, and durable_update_result(id, wait).");
	WaitingCheck();
	update = send(id, name, payload);
	WaitingWithoutSnapshot(update, is_answered, NULL, until);
	return WaitingResult(fcinfo, result_of(find_answer(update), update));
}
