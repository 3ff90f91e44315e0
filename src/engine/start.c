/*-------------------------------------------------------------------------
 *
 * start.c
 *	  Starting an instance, for a client or for a parent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/syscache.h"
#include "utils/uuid.h"

#include "compat.h"
#include "durable.h"
#include "engine/binding.h"
#include "engine/definition.h"
#include "engine/json.h"
#include "engine/restart.h"
#include "engine/settings.h"
#include "engine/start.h"
#include "runtime/shmem.h"
#include "runtime/wakeup.h"

static char *
new_id(void)
{
	Datum		uuid = DirectFunctionCall1(gen_random_uuid, (Datum) 0);

	return DatumGetCString(DirectFunctionCall1(uuid_out, uuid));
}

/*
 * StartNewSeed: what durable_random() is made from.
 */
int64
StartNewSeed(void)
{
	int64		seed;

	if (!pg_strong_random(&seed, sizeof(seed)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random seed")));
	return seed;
}

/*
 * settings_for: those of the caller, unless the instance runs as somebody
 * else, whose code must not be led astray by the caller's search_path.
 */
static Jsonb *
settings_for(const WorkflowRow *workflow, bool as_owner)
{
	if (as_owner)
		return workflow->settings;
	return SettingsCapture(workflow->capture_settings);
}

/*
 * check_login: in the background a role that may not log in has no workers,
 * on servers that do not allow it.
 */
static void
check_login(Oid role, const char *name)
{
	HeapTuple	tuple;
	bool		can_login;

	if (Shared == NULL || !COMPAT_LOGIN_NEEDED)
		return;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	can_login = HeapTupleIsValid(tuple) &&
		((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!can_login)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\" may not log in, so it cannot run instances", name),
				 errhint("Register the workflow with run_as => 'owner'.")));
}

/*
 * StartFindWorkflow: one that is registered.
 */
WorkflowRow *
StartFindWorkflow(const char *name)
{
	WorkflowRow *row = WorkflowFind(name);

	if (row == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("workflow \"%s\" does not exist", name),
				 errhint("Register a function with durable_register(). The view durable.workflows shows what is registered.")));
	return row;
}

/*
 * StartFreezeInput: check that the caller may run the workflow and that the input
 * fits, and fill in the defaults.
 */
Jsonb *
StartFreezeInput(const WorkflowRow *workflow, Jsonb *input)
{
	DurableFunction *fn;

	fn = FunctionDescribe(FunctionResolve(workflow->function, "workflow"),
						  "workflow");
	FunctionCheckOwner(fn, workflow->owner);
	FunctionCheckExecute(fn);
	fn->whole = workflow->whole;
	return ArgumentsFreezeDefaults(fn, input);
}

/*
 * StartCheckTimeout: a time to run can only be in front of one.
 */
void
StartCheckTimeout(const Interval *timeout)
{
	Interval	zero = {0};

	if (timeout != NULL &&
		DatumGetBool(DirectFunctionCall2(interval_le, IntervalPGetDatum(timeout),
										 IntervalPGetDatum(&zero))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must be greater than zero")));
}

/*
 * StartReadTimeout: an interval that was kept as text, NULL for none.
 */
Interval *
StartReadTimeout(const char *text)
{
	if (text == NULL)
		return NULL;
	return DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text),
												 ObjectIdGetDatum(InvalidOid),
												 Int32GetDatum(-1)));
}

/*
 * deadline_for: when the instance is to have ended, 0 for never.
 */
static TimestampTz
deadline_for(const StartRequest *request, const WorkflowRow *workflow)
{
	Interval   *timeout = request->timeout ? request->timeout : workflow->timeout;
	TimestampTz from = request->start_at != 0 ? request->start_at :
		GetCurrentTimestamp();

	if (timeout == NULL)
		return 0;
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(from),
												   IntervalPGetDatum(timeout)));
}

/*
 * may_see: the caller could have started it, or is a member of its role.
 */
static bool
may_see(const InstanceRow *known, const InstanceRow *wanted)
{
	return known->run_as == wanted->run_as || superuser() ||
		has_privs_of_role(GetUserId(), known->run_as);
}

/*
 * check_duplicate: the id is in use: is that what the caller wanted?
 *
 * Returns true when a new run is to be started.
 */
static bool
check_duplicate(const InstanceRow *known, OnConflict on_conflict,
				const InstanceRow *wanted, bool has_choice)
{
	/* who could have started it learns nothing new */
	bool		same = strcmp(known->workflow, wanted->workflow) == 0 &&
		may_see(known, wanted) &&
		(wanted->parent == 0 || wanted->parent == known->parent);

	/* the end of an open child is told to the position that began it */
	if (wanted->parent != 0 && !known->ended &&
		wanted->parent_position != known->parent_position)
		same = false;

	if (on_conflict == CONFLICT_ERROR || !same)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_DUPLICATE),
				 errmsg("instance \"%s\" already exists", wanted->id),
				 same && has_choice ?
				 errhint("Give another id, or on_conflict => 'existing' or 'restart_failed'.") :
				 errhint("Give another id.")));
	if (!known->ended)
		return false;
	return on_conflict == CONFLICT_RESTART ||
		(on_conflict == CONFLICT_RESTART_FAILED &&
		 strcmp(known->status, "completed") != 0);
}

/*
 * insert: start the first run of an id, or the next one if it may be; false
 * if the one that is there will do.
 */
static bool
insert(InstanceRow *row, OnConflict on_conflict, bool has_choice,
	   Jsonb *input, Jsonb *settings, TimestampTz start_at)
{
	for (row->run = 1;; row->run++)
	{
		InstanceRow *known;

		row->iid = row->chain = StorageNextNumber("iid_seq");
		if (InstanceInsert(row, input, settings, start_at))
			return true;
		known = InstanceFind(row->id);
		if (known == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("instance \"%s\" was started by another transaction",
							row->id)));
		if (!check_duplicate(known, on_conflict, row, has_choice))
		{
			row->iid = known->iid;
			row->chain = known->chain;
			return false;
		}
		row->run = known->run;
	}
}

/*
 * internal_workflow: one of ours, that nobody has registered.
 */
static WorkflowRow *
internal_workflow(const char *name)
{
	WorkflowRow *workflow = palloc0(sizeof(WorkflowRow));

	workflow->name = pstrdup(name);
	workflow->run_as = "starter";
	return workflow;
}

/*
 * StartInstance: it runs when this transaction has committed.
 */
void
StartInstance(StartRequest *request)
{
	InstanceRow row = {0};
	WorkflowRow *workflow;
	Jsonb	   *input = request->input;
	bool		as_owner;

	if (request->internal != NULL)
		workflow = internal_workflow(request->internal);
	else
	{
		workflow = StartFindWorkflow(request->workflow);
		if (request->version != 0)
			DefinitionCheckSame(workflow, request->version);
		workflow = DefinitionRefresh(workflow);
		/* the history of another version goes with the input of that one */
		if (request->version == 0 || request->version == workflow->version)
			input = StartFreezeInput(workflow, request->input);
	}
	as_owner = request->as_owner || strcmp(workflow->run_as, "owner") == 0;
	row.workflow = workflow->name;
	row.version = request->version ? request->version : workflow->version;
	row.run_as = as_owner ? workflow->owner : GetUserId();
	row.run_as_name = GetUserNameFromId(row.run_as, false);
	check_login(row.run_as, row.run_as_name);
	row.seed = StartNewSeed();
	row.id = request->id != NULL ? request->id : new_id();
	row.priority = request->priority;
	row.tags = request->tags;
	row.deadline = deadline_for(request, workflow);
	if (request->parent != NULL)
	{
		row.parent = request->parent->iid;
		row.parent_chain = request->parent->chain;
		row.parent_position = request->parent_position;
	}
	request->is_new = insert(&row, request->on_conflict,
							 request->settings == NULL && request->parent == NULL,
							 input,
							 request->settings ? request->settings :
							 settings_for(workflow, as_owner),
							 request->start_at);
	request->id = row.id;
	request->iid = row.iid;
	request->chain = row.chain;
	if (!request->is_new && request->on_conflict == CONFLICT_RESTART &&
		request->parent == NULL)
		request->restart = RestartDescribe(&row, input,
										   settings_for(workflow, as_owner),
										   workflow->timeout);
	if (!request->is_new)
		return;
	if (request->start_at == 0)
		WakeupReady(row.run_as);
	else
		WakeupTimer(request->start_at);
}
