/*-------------------------------------------------------------------------
 *
 * result.c
 *	  The outcome of an instance: durable_result, durable_wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "client/client.h"
#include "client/waiting.h"
#include "durable.h"
#include "engine/failure.h"

PG_FUNCTION_INFO_V1(durable_result);
PG_FUNCTION_INFO_V1(durable_wait);

/*
 * check_can_wait: say why waiting would be in vain.
 */
static void
check_can_wait(const InstanceRow *instance)
{
	WaitingCheck();
	if (instance->mine)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("cannot wait for instance \"%s\" in the transaction that starts it",
						instance->id),
				 errdetail("It runs when the transaction has committed."),
				 errhint("Commit first.")));
}

static bool
has_ended(int64 number, const char *id)
{
	return ClientFindInstance(id)->ended;
}

/*
 * outcome_of: what it returned; the error is raised.
 */
static Jsonb *
outcome_of(const InstanceRow *instance)
{
	Outcome		outcome;

	if (!instance->ended)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" has no result yet: it is %s", instance->id,
						instance->status),
				 instance->reason ? errdetail("%s", instance->reason) : 0,
				 strcmp(instance->status, "held") == 0 ?
				 errhint("Mend that, then call durable_resume().") :
				 errhint("Wait for it with CALL durable_wait(), or ask again.")));
	InstanceOutcome(instance->iid, &outcome);
	if (outcome.error != NULL)
		FailureThrow(outcome.error);
	return outcome.result;
}

/*
 * durable_result: what a completed instance returned, or the error of one
 * that failed.
 */
Datum
durable_result(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	TimestampTz until = WaitingUntil(fcinfo, 1);
	InstanceRow *instance;
	Jsonb	   *result;

	ClientEnter("durable_result");
	instance = ClientFindInstance(id);
	if (!instance->ended && until != 0)
	{
		check_can_wait(instance);
		WaitingWithSnapshot(instance->chain, has_ended, id, until);
	}
	result = outcome_of(ClientFindInstance(id));
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}

/*
 * durable_wait: the same as durable_result, for long waits.
 */
Datum
durable_wait(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	TimestampTz until = WaitingUntil(fcinfo, 1);
	InstanceRow *instance;

	ClientEnter("durable_wait");
	instance = ClientFindInstance(id);
	if (!instance->ended && until != 0)
	{
		WaitingCheckProcedure(fcinfo, "durable_wait",
							  "There, durable_result(id, wait) can wait.");
		check_can_wait(instance);
		WaitingWithoutSnapshot(instance->chain, has_ended, id, until);
	}
	return WaitingResult(fcinfo, outcome_of(ClientFindInstance(id)));
}
