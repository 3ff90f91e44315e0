/*-------------------------------------------------------------------------
 *
 * result.c
 *	  The outcome of an instance, and waiting for it: durable_result,
 *	  durable_wait.
 *
 * Who waits sleeps on a condition that the commit of the end wakes; then it
 * looks with a new snapshot.  A function cannot let go of the snapshot of
 * the query that calls it, so the one for long waits is a procedure.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "engine/failure.h"
#include "runtime/process.h"
#include "runtime/shmem.h"

PG_FUNCTION_INFO_V1(durable_result);
PG_FUNCTION_INFO_V1(durable_wait);

/*
 * read_wait: the time to wait until, 0 for not at all.
 */
static TimestampTz
read_wait(FunctionCallInfo fcinfo, int i)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until;

	ArgNotNull(fcinfo, i, "wait");
	until = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
													TimestampTzGetDatum(now),
													PG_GETARG_DATUM(i)));
	return until <= now ? 0 : until;
}

/*
 * check_can_wait: say why waiting would be in vain.
 */
static void
check_can_wait(const InstanceRow *instance)
{
	if (Shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("waiting for a result needs durable in shared_preload_libraries"),
				 errhint("Without it, drive the instance with CALL durable_work() and ask for the result then.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("cannot wait for a result above isolation level READ COMMITTED"),
				 errdetail("The transaction would never see it.")));
	if (instance->mine)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("cannot wait for instance \"%s\" in the transaction that starts it",
						instance->id),
				 errdetail("It runs when the transaction has committed."),
				 errhint("Commit first.")));
}

static void
refuse_not_ended(const InstanceRow *instance)
{
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_WRONG_STATE),
			 errmsg("instance \"%s\" has no result yet: it is %s", instance->id,
					instance->status),
			 instance->reason ? errdetail("%s", instance->reason) : 0));
}

/*
 * sleep_until_end: until some instance of this condition has ended, or the
 * time is over (false).
 */
static bool
sleep_until_end(int64 iid, TimestampTz until)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= until)
		return false;
	(void) ConditionVariableTimedSleep(&Shared->ended[iid % RESULT_CONDITIONS],
									   Min((until - now) / 1000 + 1, durable_sweep_interval),
									   ProcessWaitEvent(WAIT_RESULT));
	return true;
}

static Jsonb *
outcome(const InstanceRow *instance)
{
	Jsonb	   *result;
	Jsonb	   *error;

	InstanceOutcome(instance->iid, &result, &error);
	if (error != NULL)
		FailureThrow(error);
	return result;
}

/*
 * durable_result: what a completed instance returned, or the error of one
 * that failed.
 */
Datum
durable_result(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	TimestampTz until = read_wait(fcinfo, 1);
	InstanceRow *instance;
	Jsonb	   *result;

	ClientEnter("durable_result");
	instance = ClientFindInstance(id);
	if (!instance->ended && until != 0)
	{
		check_can_wait(instance);
		ConditionVariablePrepareToSleep(&Shared->ended[instance->iid % RESULT_CONDITIONS]);
		while (!(instance = ClientFindInstance(id))->ended &&
			   sleep_until_end(instance->iid, until))
			;
		ConditionVariableCancelSleep();
	}
	if (!instance->ended)
		refuse_not_ended(instance);
	result = outcome(instance);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/*
 * wait_without_snapshot: each look in a transaction of its own, none while we
 * sleep.
 */
static void
wait_without_snapshot(int64 iid, const char *id, TimestampTz until)
{
	ConditionVariable *condition = &Shared->ended[iid % RESULT_CONDITIONS];

	ConditionVariablePrepareToSleep(condition);
	while (!ClientFindInstance(id)->ended)
	{
		bool		more;

		SPI_commit();
		more = sleep_until_end(iid, until);
		if (!more)
			break;
	}
	ConditionVariableCancelSleep();
}

/*
 * durable_wait: the same as durable_result, for long waits.
 */
Datum
durable_wait(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	TimestampTz until = read_wait(fcinfo, 1);
	InstanceRow *instance;
	TupleDesc	desc;
	Datum		value;
	bool		isnull;
	bool		atomic = castNode(CallContext, fcinfo->context)->atomic;

	ClientEnter("durable_wait");
	instance = ClientFindInstance(id);
	if (!instance->ended && until != 0)
	{
		if (atomic)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
					 errmsg("durable_wait() must be called outside of transactions and functions"),
					 errhint("There, durable_result(id, wait) can wait.")));
		check_can_wait(instance);
		SPI_connect_ext(SPI_OPT_NONATOMIC);
		wait_without_snapshot(instance->iid, id, until);
		SPI_finish();
		instance = ClientFindInstance(id);
	}
	if (!instance->ended)
		refuse_not_ended(instance);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "durable_wait must return a row");
	value = PointerGetDatum(outcome(instance));
	isnull = value == (Datum) 0;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  &value, &isnull)));
}
