/*-------------------------------------------------------------------------
 *
 * sandbox.c
 *	  The net under workflow bodies: what they must not do is refused.
 *
 * While a body runs (CONTEXT_BODY), hooks look at each function when it is
 * made ready to be called, at each query and at each utility command; the
 * transaction callbacks at COMMIT and ROLLBACK.  What a hook finds is a
 * verdict in strict mode, a warning in warn mode.
 *
 * This is a net, not the guarantee: expressions such as CURRENT_TIMESTAMP
 * call no function, and the source check alone sees them; PL/pgSQL keeps an
 * expression ready for a whole transaction, so a helper that an activity used
 * before in the same transaction may not be looked at again.  What slips
 * through is found by strict matching.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "nodes/plannodes.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "engine/lint.h"
#include "engine/replay.h"
#include "engine/sandbox.h"

uint64		FunctionGeneration = 1;

static object_access_hook_type prev_object_access_hook = NULL;
static ExecutorStart_hook_type prev_executor_start_hook = NULL;
static ProcessUtility_hook_type prev_process_utility_hook = NULL;

/* What we know of a function; NULL reasons mean that it is fine. */
typedef struct FunctionEntry
{
	Oid			function;
	char	   *reason;
	char	   *advice;
} FunctionEntry;

static HTAB *functions = NULL;
static MemoryContext functions_cxt = NULL;
static uint64 functions_generation = 0;

/*
 * watching: is it the body's code?  Not when the process ends in the middle of
 * it: what is cleaned up then is not, and the activation may be gone.
 */
static bool
watching(void)
{
	return CurrentContext == CONTEXT_BODY && !proc_exit_inprogress;
}

/*
 * object: something a body must not do.
 */
static void
object(const char *reason, const char *advice)
{
	Activation *a = CurrentActivation;

	if (a->sandbox == SANDBOX_STRICT)
		ReplayVerdict(a, ERRCODE_DURABLE_SANDBOX, reason, advice);
	if (a->sandbox == SANDBOX_WARN)
		ereport(WARNING,
				(errcode(ERRCODE_DURABLE_SANDBOX),
				 errmsg_internal("workflow \"%s\": %s", a->instance->workflow,
								 reason),
				 advice ? errhint("%s", advice) : 0));
}

/*
 * check_broken: a body that said ROLLBACK is out of its transaction.
 */
static void
check_broken(void)
{
	if (CurrentActivation->pass.broken)
		ReplayVerdict(CurrentActivation, ERRCODE_DURABLE_SANDBOX,
					  "the body of a workflow must not say ROLLBACK",
					  "Steps commit by themselves.");
}

/* ------------------------------------------------------------------
 * Functions
 * ------------------------------------------------------------------
 */

static bool
is_ours(Oid function)
{
	Oid			extension = getExtensionOfObject(ProcedureRelationId, function);

	return OidIsValid(extension) &&
		extension == get_extension_oid("durable", true);
}

/*
 * judge_source: the source check of a helper, when it is first entered.
 */
static void
judge_source(FunctionEntry *entry)
{
	List	   *findings = LintFunction(entry->function);
	LintFinding *first;

	if (findings == NIL)
		return;
	first = linitial(findings);
	entry->reason = psprintf("function %s has %s in line %d",
							 get_func_name(entry->function), first->found,
							 first->line);
	entry->advice = pstrdup(first->replacement);
}

/*
 * judge: may a body call this function?
 */
static void
judge(FunctionEntry *entry)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID,
										ObjectIdGetDatum(entry->function));
	Form_pg_proc form;
	bool		native;
	const char *advice = NULL;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	native = form->prolang == INTERNALlanguageId ||
		form->prolang == ClanguageId;

	if (form->pronamespace == PG_CATALOG_NAMESPACE)
		advice = LintAdvice(NameStr(form->proname), form->pronargs);
	if (advice == NULL && native &&
		form->provolatile == PROVOLATILE_VOLATILE &&
		!is_ours(entry->function))
		advice = "Call it in an activity with durable_call().";

	if (advice != NULL)
	{
		entry->reason = psprintf("the body of a workflow must not call %s()",
								 NameStr(form->proname));
		entry->advice = pstrdup(advice);
	}
	else if (!native)
		judge_source(entry);
	ReleaseSysCache(tuple);
}

static void
forget_functions(void)
{
	HASHCTL		info = {0};

	if (functions_cxt == NULL)
		functions_cxt = AllocSetContextCreate(TopMemoryContext,
											  "durable sandbox",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(functions_cxt);
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(FunctionEntry);
	info.hcxt = functions_cxt;
	functions = hash_create("durable functions", 64, &info,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	functions_generation = FunctionGeneration;
}

/*
 * function_entry: what we know, found out at first sight.
 *
 * It is entered only when it is known: finding out can fail.
 */
static FunctionEntry *
function_entry(Oid function)
{
	FunctionEntry *entry;
	FunctionEntry found = {.function = function};
	MemoryContext old;

	if (functions == NULL || functions_generation != FunctionGeneration)
		forget_functions();
	entry = hash_search(functions, &function, HASH_FIND, NULL);
	if (entry == NULL)
	{
		old = MemoryContextSwitchTo(functions_cxt);
		judge(&found);
		MemoryContextSwitchTo(old);
		entry = hash_search(functions, &function, HASH_ENTER, NULL);
		*entry = found;
	}
	return entry;
}

static void
on_object_access(ObjectAccessType access, Oid class, Oid object_oid,
				 int subid, void *arg)
{
	if (prev_object_access_hook)
		prev_object_access_hook(access, class, object_oid, subid, arg);

	if (access == OAT_FUNCTION_EXECUTE && watching())
	{
		check_broken();
		if (CurrentActivation->sandbox != SANDBOX_OFF)
		{
			FunctionEntry *entry = function_entry(object_oid);

			if (entry->reason != NULL)
				object(entry->reason, entry->advice);
		}
	}
}

static void
on_function_change(Datum arg, int cacheid, uint32 hashvalue)
{
	FunctionGeneration++;
}

/* ------------------------------------------------------------------
 * Queries
 * ------------------------------------------------------------------
 */

static void
check_query(PlannedStmt *statement)
{
	ListCell   *lc;

	if (statement->commandType != CMD_SELECT || statement->hasModifyingCTE ||
		statement->rowMarks != NIL)
	{
		object("the body of a workflow must not write to tables",
			   "Write in an activity, with durable_call() or durable_sql().");
		return;
	}

	foreach(lc, statement->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION)
		{
			object(psprintf("the body of a workflow must not read table %s",
							get_rel_name(rte->relid)),
				   "Read it in an activity with durable_call(), or with durable_sql(), so that the value is recorded.");
			break;
		}
	}
}

static void
query_is_over(void *arg)
{
	if (CurrentActivation == arg)
		CurrentActivation->pass.live_queries--;
}

/*
 * watch_query: a commit would run a live loop query to its end at once, and
 * with it the primitives it calls.  So no step runs in place below a query
 * that calls functions which are not the server's.
 */
static void
watch_query(QueryDesc *query)
{
	ListCell   *lc;

	foreach(lc, query->plannedstmt->invalItems)
	{
		PlanInvalItem *item = lfirst_node(PlanInvalItem, lc);

		if (item->cacheId == PROCOID)
		{
			MemoryContext cxt = query->estate->es_query_cxt;
			MemoryContextCallback *callback;

			callback = MemoryContextAlloc(cxt, sizeof(MemoryContextCallback));
			callback->func = query_is_over;
			callback->arg = CurrentActivation;
			MemoryContextRegisterResetCallback(cxt, callback);
			CurrentActivation->pass.live_queries++;
			return;
		}
	}
}

static void
on_executor_start(QueryDesc *query, int eflags)
{
	if (watching())
	{
		check_broken();
		if (CurrentActivation->sandbox != SANDBOX_OFF)
			check_query(query->plannedstmt);
	}

	if (prev_executor_start_hook)
		prev_executor_start_hook(query, eflags);
	else
		standard_ExecutorStart(query, eflags);

	if (watching() && CurrentActivation->pass.linear)
		watch_query(query);
}

/* ------------------------------------------------------------------
 * Utility commands and the transaction
 * ------------------------------------------------------------------
 */

static void
on_process_utility(PlannedStmt *statement, const char *source,
				   bool read_only_tree, ProcessUtilityContext context,
				   ParamListInfo params, QueryEnvironment *environment,
				   DestReceiver *receiver, QueryCompletion *completion)
{
	if (watching())
	{
		Node	   *utility = statement->utilityStmt;

		check_broken();
		if (CurrentActivation->sandbox != SANDBOX_OFF &&
			!IsA(utility, CallStmt) && !IsA(utility, DoStmt))
			object(psprintf("the body of a workflow must not say %s",
							CreateCommandName(utility)),
				   "Say it in an activity, with durable_call() or durable_sql().");
	}

	if (prev_process_utility_hook)
		prev_process_utility_hook(statement, source, read_only_tree, context,
								  params, environment, receiver, completion);
	else
		standard_ProcessUtility(statement, source, read_only_tree, context,
								params, environment, receiver, completion);
}

/*
 * on_transaction_event: only the engine ends transactions.
 *
 * A commit can still be refused here.  An abort cannot: the body meets the
 * verdict at whatever it does next.
 */
static void
on_transaction_event(XactEvent event, void *arg)
{
	if (!watching())
		return;
	if (event == XACT_EVENT_PRE_COMMIT)
		ReplayVerdict(CurrentActivation, ERRCODE_DURABLE_SANDBOX,
					  "the body of a workflow must not say COMMIT",
					  "Steps commit by themselves.");
	if (event == XACT_EVENT_ABORT)
		CurrentActivation->pass.broken = true;
}

/*
 * SandboxInstall: put the hooks in their places.
 */
void
SandboxInstall(void)
{
	prev_object_access_hook = object_access_hook;
	object_access_hook = on_object_access;
	prev_executor_start_hook = ExecutorStart_hook;
	ExecutorStart_hook = on_executor_start;
	prev_process_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = on_process_utility;
	RegisterXactCallback(on_transaction_event, NULL);
	CacheRegisterSyscacheCallback(PROCOID, on_function_change, (Datum) 0);
}

/*
 * SandboxModeFromText: a workflow's mode; NULL means the setting's.
 */
SandboxMode
SandboxModeFromText(const char *mode)
{
	if (mode == NULL)
		return durable_sandbox;
	if (strcmp(mode, "off") == 0)
		return SANDBOX_OFF;
	return strcmp(mode, "warn") == 0 ? SANDBOX_WARN : SANDBOX_STRICT;
}
