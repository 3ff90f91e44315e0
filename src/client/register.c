/*-------------------------------------------------------------------------
 *
 * register.c
 *	  Define: durable_register, durable_unregister and
 *	  durable_register_activity.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "arguments.h"
#include "client/client.h"
#include "compat.h"
#include "durable.h"
#include "engine/binding.h"
#include "engine/child.h"
#include "engine/definition.h"
#include "engine/internal.h"
#include "engine/lint.h"
#include "engine/retry.h"
#include "engine/sandbox.h"
#include "engine/start.h"
#include "engine/timeout.h"
#include "engine/settings.h"
#include "engine/sqlstep.h"

PG_FUNCTION_INFO_V1(durable_register);
PG_FUNCTION_INFO_V1(durable_unregister);
PG_FUNCTION_INFO_V1(durable_register_activity);

static void
check_choice(const char *value, const char *parameter,
			 const char *const *choices)
{
	for (int i = 0; choices[i] != NULL; i++)
	{
		if (strcmp(value, choices[i]) == 0)
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for %s: \"%s\"", parameter, value),
			 choices[2] ?
			 errhint("It can be %s, %s or %s.", choices[0], choices[1], choices[2]) :
			 errhint("It can be %s or %s.", choices[0], choices[1])));
}

/*
 * check_source: tell of what the body should not contain.
 */
static void
check_source(const DurableFunction *fn, SandboxMode mode)
{
	List	   *findings;
	LintFinding *finding;
	ListCell   *lc;

	if (mode == SANDBOX_OFF)
		return;
	findings = LintFunction(fn->oid);
	if (findings == NIL)
		return;

	foreach(lc, findings)
	{
		finding = lfirst(lc);
		if (mode == SANDBOX_WARN || list_length(findings) > 1)
			ereport(WARNING,
					(errcode(ERRCODE_DURABLE_SANDBOX),
					 errmsg("workflow %s: %s in line %d", fn->signature,
							finding->found, finding->line),
					 errhint("%s", finding->replacement)));
	}
	finding = linitial(findings);
	if (mode == SANDBOX_STRICT)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_SANDBOX),
				 errmsg("workflow %s must not contain %s (line %d)",
						fn->signature, finding->found, finding->line),
				 errdetail("The body runs again on each replay and must come to the same steps each time."),
				 errhint("%s", finding->replacement)));
}

static void
check_owner(Oid owner, const char *what, const char *name)
{
	if (!has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of %s %s", what, name)));
}

static Datum
read_capture_settings(FunctionCallInfo fcinfo, int i)
{
	Datum	   *names;
	bool	   *nulls;
	int			count;

	ArgNotNull(fcinfo, i, "capture_settings");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(i), TEXTOID, -1, false,
					  TYPALIGN_INT, &names, &nulls, &count);
	for (int n = 0; n < count; n++)
	{
		if (nulls[n])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("capture_settings must not contain nulls")));
		SettingsCheckName(TextDatumGetCString(names[n]));
	}
	return PG_GETARG_DATUM(i);
}

static DurableFunction *
find_own_function(const char *text, const char *what)
{
	DurableFunction *fn = FunctionDescribe(FunctionResolve(text, what), what);

	check_owner(FunctionOwner(fn->oid), "function", fn->signature);
	return fn;
}

/*
 * notice_procedure: say when steps of a procedure cannot run in place.
 */
static void
notice_procedure(const DurableFunction *fn, SandboxMode mode)
{
	if (fn->prokind != PROKIND_PROCEDURE)
		return;
	if (!fn->nonatomic_ok)
		ereport(NOTICE,
				(errmsg("procedure %s cannot commit in place", fn->signature),
				 errdetail("It is SECURITY DEFINER or has SET clauses: CALL durable_step() works there as durable_call() does.")));
	else if (mode != SANDBOX_STRICT)
		ereport(NOTICE,
				(errmsg("procedure %s does not commit in place", fn->signature),
				 errdetail("Only sandbox \"strict\" allows that: CALL durable_step() works as durable_call() does.")));
}

/*
 * durable_register: make a function known as a workflow.
 */
Datum
durable_register(PG_FUNCTION_ARGS)
{
	static const char *const run_as_choices[] = {"starter", "owner", NULL};
	static const char *const sandbox_choices[] = {"strict", "warn", "off", NULL};
	static const char *const change_choices[] = {"pin", "continue", "hold", NULL};
	static const char *const undo_choices[] = {"continue", "hold", NULL};
	char	   *on_undo_failure;
	char	   *text = ArgText(fcinfo, 0, "workflow");
	WorkflowRow row = {0};
	WorkflowRow *known;
	DurableFunction *fn;

	ClientEnterToWrite("durable_register");
	row.name = ArgNameOrNull(fcinfo, 1, "name");
	if (row.name == NULL)
		row.name = FunctionNamePart(text);
	row.run_as = ArgText(fcinfo, 2, "run_as");
	check_choice(row.run_as, "run_as", run_as_choices);
	if (!PG_ARGISNULL(3))
	{
		row.sandbox = ArgText(fcinfo, 3, "sandbox");
		check_choice(row.sandbox, "sandbox", sandbox_choices);
	}
	row.on_change = ArgText(fcinfo, 4, "on_change");
	check_choice(row.on_change, "on_change", change_choices);
	row.activity_retry = ArgJsonbOrNull(fcinfo, 5);
	RetryCheck(row.activity_retry, "activity_retry");
	row.timeout = PG_ARGISNULL(6) ? NULL : PG_GETARG_INTERVAL_P(6);
	StartCheckTimeout(row.timeout);
	row.capture_settings = read_capture_settings(fcinfo, 7);
	row.start_on = ArgNameOrNull(fcinfo, 8, "start_on");
	row.start_filter = ArgJsonbOrNull(fcinfo, 9);
	if (row.start_filter != NULL && row.start_on == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("start_filter needs start_on"),
				 errhint("Give the type of the events, too, or leave start_filter out.")));
	on_undo_failure = ArgText(fcinfo, 10, "on_compensation_failure");
	check_choice(on_undo_failure, "on_compensation_failure", undo_choices);
	row.hold_on_undo_failure = strcmp(on_undo_failure, "hold") == 0;

	fn = find_own_function(text, "workflow");
	if (row.start_on != NULL && !fn->whole)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("a workflow that events start must have one parameter of type jsonb"),
				 errdetail("It gets the event.")));
	ArgCheckName(row.name, "name");
	if (InternalIs(row.name))
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("names that begin with \"%s\" are reserved", INTERNAL_PREFIX),
				 errhint("Give the workflow another name.")));
	check_source(fn, SandboxModeFromText(row.sandbox));
	notice_procedure(fn, SandboxModeFromText(row.sandbox));

	WorkflowLock();
	known = WorkflowFind(row.name);
	if (known != NULL)
		check_owner(known->owner, "workflow", row.name);
	row.settings = SettingsCapture(row.capture_settings);
	DefinitionSet(&row, fn->oid, known);
	WorkflowStore(&row);
	DefinitionStoreHandlers(&row, fn->oid, NULL);
	PG_RETURN_TEXT_P(cstring_to_text(row.name));
}

/*
 * durable_unregister: forget a workflow; false if there is none.
 */
Datum
durable_unregister(PG_FUNCTION_ARGS)
{
	char	   *name = ArgText(fcinfo, 0, "name");
	WorkflowRow *row;

	ClientEnterToWrite("durable_unregister");
	row = WorkflowFind(name);
	if (row == NULL)
		PG_RETURN_BOOL(false);
	check_owner(row->owner, "workflow", name);
	if (WorkflowHasLiveInstances(name))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("workflow \"%s\" has instances that have not ended", name),
				 errhint("The view durable.instances shows them.")));
	WorkflowDelete(name);
	PG_RETURN_BOOL(true);
}

static int64
read_timeout(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	return TimeoutRead(PG_ARGISNULL(i) ? NULL : PG_GETARG_INTERVAL_P(i),
					   parameter);
}

/*
 * read_server: whose members do the tasks of the queue: the caller's, unless
 * it names another role.
 */
static void
read_server(FunctionCallInfo fcinfo, ActivityRow *row)
{
	if (!PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("an activity has either a function or a queue"),
				 errhint("Leave one of them out.")));
	row->served_by = PG_ARGISNULL(8) ? GetUserId() :
		get_role_oid(ArgText(fcinfo, 8, "served_by"), false);
	row->served_by_name = GetUserNameFromId(row->served_by, false);
}

/*
 * refuse_for_function: an option that says something about clients only.
 */
static void
refuse_for_function(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	if (!PG_ARGISNULL(i))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is for activities of a queue", parameter),
				 errhint("Give the queue, too, or leave %s out.", parameter)));
}

/*
 * durable_register_activity: give an activity a name of its own and a policy.
 *
 * It counts for the workflows and the instances of the role that registers.
 */
Datum
durable_register_activity(PG_FUNCTION_ARGS)
{
	ActivityRow row = {0};

	row.name = ArgName(fcinfo, 0, "activity");
	row.function = PG_ARGISNULL(1) ? row.name : ArgText(fcinfo, 1, "function");
	row.retry = ArgJsonbOrNull(fcinfo, 2);
	row.compensate = ArgNameOrNull(fcinfo, 3, "compensate");
	row.start_to_close = read_timeout(fcinfo, 4, "start_to_close");
	row.schedule_to_close = read_timeout(fcinfo, 5, "schedule_to_close");
	row.heartbeat = read_timeout(fcinfo, 6, "heartbeat");
	row.queue = ArgNameOrNull(fcinfo, 7, "queue");
	row.schedule_to_start = read_timeout(fcinfo, 9, "schedule_to_start");
	row.compensate_attempted = !PG_ARGISNULL(10) && PG_GETARG_BOOL(10);
	ClientEnterToWrite("durable_register_activity");
	if (strcmp(row.name, SQL_ACTIVITY) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" cannot be registered: it is the activity of durable_sql()",
						SQL_ACTIVITY)));
	RetryCheck(row.retry, "retry");

	if (row.queue != NULL)
	{
		read_server(fcinfo, &row);
		row.function = NULL;
	}
	else
	{
		refuse_for_function(fcinfo, 8, "served_by");
		refuse_for_function(fcinfo, 9, "schedule_to_start");
		row.function = pstrdup(find_own_function(row.function, "activity")->signature);
	}
	row.owner = GetUserId();
	row.owner_name = GetUserNameFromId(row.owner, false);
	if (PG_ARGISNULL(1) && row.queue == NULL)
		row.name = FunctionNamePart(row.name);
	ActivityStore(&row);
	PG_RETURN_TEXT_P(cstring_to_text(row.name));
}
