/*-------------------------------------------------------------------------
 *
 * waiting.c
 *	  Waiting for something that a commit of another session brings.
 *
 * Who waits sleeps on a condition that the commit wakes; then it looks with a
 * new snapshot.  A function cannot let go of the snapshot of the query that
 * calls it, so the ones for long waits are procedures.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "nodes/parsenodes.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "arguments.h"
#include "client/waiting.h"
#include "durable.h"
#include "runtime/process.h"
#include "runtime/shmem.h"

/*
 * WaitingUntil: the time to wait until, 0 for not at all.
 */
TimestampTz
WaitingUntil(FunctionCallInfo fcinfo, int i)
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
 * WaitingCheck: say why waiting would be in vain.
 */
void
WaitingCheck(void)
{
	if (Shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("waiting needs durable in shared_preload_libraries"),
				 errhint("Without it, drive the instance with CALL durable_work(), and ask without waiting.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("cannot wait for a result above isolation level READ COMMITTED"),
				 errdetail("The transaction would never see it."),
				 errhint("CALL durable_wait() outside of transactions.")));
}

/*
 * WaitingCheckProcedure: one that waits must be able to commit.
 */
void
WaitingCheckProcedure(FunctionCallInfo fcinfo, const char *procedure,
					  const char *hint)
{
	if (castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("%s() must be called outside of transactions and functions",
						procedure),
				 errhint("%s", hint)));
}

static ConditionVariable *
condition_of(int64 number)
{
	return &Shared->ended[number % RESULT_CONDITIONS];
}

/*
 * sleep_until: until something of this condition has come, or the time is over
 * (false).
 */
static bool
sleep_until(int64 number, TimestampTz until)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= until)
		return false;
	(void) ConditionVariableTimedSleep(condition_of(number),
									   Min((until - now) / 1000 + 1, durable_sweep_interval),
									   ProcessWaitEvent(WAIT_RESULT));
	return true;
}

/*
 * look: has it come?  What that takes is freed: one may wait for days, and is
 * woken for others.
 */
static bool
look(MemoryContext cxt, int64 number, WaitingDone done, const char *id)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	bool		result = done(number, id);

	MemoryContextSwitchTo(old);
	MemoryContextReset(cxt);
	return result;
}

static MemoryContext
create_context(void)
{
	return AllocSetContextCreate(CurrentMemoryContext, "durable wait",
								 ALLOCSET_DEFAULT_SIZES);
}

/*
 * WaitingWithSnapshot: within the caller's query.
 */
void
WaitingWithSnapshot(int64 number, WaitingDone done, const char *id,
					TimestampTz until)
{
	MemoryContext cxt = create_context();

	ConditionVariablePrepareToSleep(condition_of(number));
	while (!look(cxt, number, done, id) && sleep_until(number, until))
		;
	ConditionVariableCancelSleep();
	MemoryContextDelete(cxt);
}

/*
 * WaitingWithoutSnapshot: each look in a transaction of its own, none while we
 * sleep.  What the caller did before is committed.
 */
void
WaitingWithoutSnapshot(int64 number, WaitingDone done, const char *id,
					   TimestampTz until)
{
	MemoryContext cxt;

	SPI_connect_ext(SPI_OPT_NONATOMIC);
	cxt = create_context();
	ConditionVariablePrepareToSleep(condition_of(number));
	do
		SPI_commit();
	while (!look(cxt, number, done, id) &&
		   (SPI_commit(), sleep_until(number, until)));
	ConditionVariableCancelSleep();
	SPI_finish();
}

/*
 * WaitingResult: what the procedure gives back in its INOUT parameter.
 */
Datum
WaitingResult(FunctionCallInfo fcinfo, Jsonb *result)
{
	TupleDesc	desc;
	Datum		value = PointerGetDatum(result);
	bool		isnull = result == NULL;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "the procedure must return a row");
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  &value, &isnull)));
}
