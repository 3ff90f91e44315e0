/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Rehearse: durable_check and durable_export.
 *
 * The body runs in the caller's session, so it is rehearsed only for
 * instances that could be run there: those of the session's own role.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "engine/binding.h"
#include "engine/json.h"
#include "engine/rehearse.h"
#include "engine/start.h"

PG_FUNCTION_INFO_V1(durable_check);
PG_FUNCTION_INFO_V1(durable_export);

/* What is rehearsed. */
typedef struct Check
{
	ReturnSetInfo *result;
	Transactions tx;			/* nothing is ever committed */
	DurableFunction *candidate;
	MemoryContext cxt;			/* one instance */
} Check;

static void
add_row(Check *check, const InstanceRow *instance, const Rehearsal *rehearsal)
{
	Datum		values[5] = {
		CStringGetTextDatum(instance->id), Int32GetDatum(instance->run),
		CStringGetTextDatum(rehearsal->verdict),
		Int32GetDatum(rehearsal->position),
		CStringGetTextDatum(rehearsal->reason)
	};
	bool		nulls[5] = {[3] = rehearsal->position == 0};

	tuplestore_putvalues(check->result->setResult, check->result->setDesc,
						 values, nulls);
}

static void
check_activation(Check *check, Activation *a)
{
	Rehearsal	rehearsal;

	RehearseRun(a, check->candidate, &rehearsal);
	add_row(check, a->instance, &rehearsal);
}

static void
check_instance(Check *check, int64 iid)
{
	MemoryContext old = MemoryContextSwitchTo(check->cxt);
	InstanceRow *instance = InstanceLoad(iid);
	Rehearsal	skipped = {.verdict = "skipped"};

	if (instance != NULL && ClientMaySee(instance))
	{
		if (instance->run_as == GetUserId() && ClientIsOwnSession())
			check_activation(check, RehearseLoad(&check->tx, instance));
		else
		{
			skipped.reason = psprintf("it runs only in a session of role \"%s\"",
									  instance->run_as_name);
			add_row(check, instance, &skipped);
		}
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->cxt);
}

/*
 * find_candidate: the function that is to be rehearsed, by default what the
 * workflow's is now.
 */
static DurableFunction *
find_candidate(const char *workflow, const char *function)
{
	DurableFunction *fn;

	if (function == NULL)
		function = StartFindWorkflow(workflow)->function;
	fn = FunctionDescribe(FunctionResolve(function, "workflow"), "workflow");
	FunctionCheckExecute(fn);
	return fn;
}

/*
 * durable_check: which instances of a workflow could go on with a function.
 */
Datum
durable_check(PG_FUNCTION_ARGS)
{
	char	   *workflow = ArgName(fcinfo, 0, "workflow");
	char	   *function = PG_ARGISNULL(1) ? NULL : ArgText(fcinfo, 1, "function");
	Jsonb	   *history = ArgJsonbOrNull(fcinfo, 2);
	Check		check = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	int64	   *iids;
	int			count;

	ArgNotNull(fcinfo, 3, "include_ended");
	ClientEnter("durable_check");
	check.candidate = find_candidate(workflow, function);
	check.cxt = AllocSetContextCreate(CurrentMemoryContext, "durable check",
									  ALLOCSET_DEFAULT_SIZES);
	check.tx.inside = true;
	check.tx.cxt = check.cxt;
	InitMaterializedSRF(fcinfo, 0);
	if (history != NULL)
	{
		check_activation(&check, RehearseImport(&check.tx, history));
		return (Datum) 0;
	}
	(void) StartFindWorkflow(workflow);
	count = InstancesOf(workflow, PG_GETARG_BOOL(3), &iids);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		check_instance(&check, iids[i]);
	}
	return (Datum) 0;
}

/*
 * durable_export: an instance with its history, for durable_check() elsewhere.
 */
Datum
durable_export(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	InstanceRow *instance;

	ClientEnter("durable_export");
	instance = ClientFindInstance(id);
	if (!PG_ARGISNULL(1))
	{
		int			run = PG_GETARG_INT32(1);

		instance = InstanceFindRun(id, run);
		if (instance == NULL || !ClientMaySee(instance))
			ereport(ERROR,
					(errcode(ERRCODE_DURABLE_UNDEFINED),
					 errmsg("instance \"%s\" has no run %d", id, run),
					 errhint("The view durable.instances shows its runs.")));
	}
	PG_RETURN_JSONB_P(RehearseExport(instance));
}
