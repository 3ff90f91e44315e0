/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Running the handler of a query, outside of any activation.
 *
 * It runs as handlers do: with the instance's settings, in the sandbox, in a
 * subtransaction that is rolled back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "engine/query.h"
#include "engine/replay.h"
#include "engine/sandbox.h"
#include "engine/settings.h"

static void
find_settings(const HistoryRow *row, void *arg)
{
	Activation *a = arg;

	if (row->seq == 1)
		a->settings = SettingsRead(row->data);
}

/*
 * QueryRun: the result of the handler; its error is the caller's.
 */
Jsonb *
QueryRun(InstanceRow *instance, const char *function, Jsonb **args, int nargs)
{
	Activation *volatile outer = CurrentActivation;
	DurableContext context = CurrentContext;
	Activation *a = palloc0(sizeof(Activation));
	Jsonb	   *volatile result = NULL;
	ErrorData  *error = NULL;

	a->cxt = a->pass_cxt = CurrentMemoryContext;
	a->instance = instance;
	a->sandbox = SandboxModeFromText(instance->sandbox);
	a->pass.outcome = PASS_RETURNED;
	HistoryFirst(instance->iid, CurrentMemoryContext, find_settings, a);
	PG_TRY();
	{
		result = PassCallHandler(a, function, args, nargs, &error);
	}
	PG_FINALLY();
	{
		ContextSet(context);
		CurrentActivation = outer;
	}
	PG_END_TRY();
	if (a->pass.outcome == PASS_VERDICT)
		ereport(ERROR,
				(errcode(a->pass.sqlerrcode),
				 errmsg("handler %s of instance \"%s\" did what it must not do",
						function, instance->id),
				 errdetail_internal("%s", a->pass.reason)));
	if (error != NULL)
		ReThrowError(error);
	return result;
}
