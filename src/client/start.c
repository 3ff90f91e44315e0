/*-------------------------------------------------------------------------
 *
 * start.c
 *	  durable_start.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/syscache.h"
#include "utils/uuid.h"

#include "arguments.h"
#include "client/client.h"
#include "compat.h"
#include "durable.h"
#include "engine/binding.h"
#include "engine/json.h"
#include "engine/settings.h"
#include "runtime/shmem.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_start);

typedef enum OnConflict
{
	CONFLICT_ERROR,
	CONFLICT_EXISTING,
	CONFLICT_RESTART_FAILED
} OnConflict;

static OnConflict
read_on_conflict(FunctionCallInfo fcinfo, int i)
{
	char	   *text = ArgText(fcinfo, i, "on_conflict");

	if (strcmp(text, "error") == 0)
		return CONFLICT_ERROR;
	if (strcmp(text, "existing") == 0)
		return CONFLICT_EXISTING;
	if (strcmp(text, "restart_failed") == 0)
		return CONFLICT_RESTART_FAILED;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for on_conflict: \"%s\"", text),
			 errhint("It can be error, existing or restart_failed.")));
	return CONFLICT_ERROR;		/* keep compiler quiet */
}

static TimestampTz
read_start_at(FunctionCallInfo fcinfo, int i)
{
	TimestampTz start_at;

	if (PG_ARGISNULL(i))
		return 0;
	start_at = PG_GETARG_TIMESTAMPTZ(i);
	if (TIMESTAMP_NOT_FINITE(start_at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("start_at must not be infinite")));
	/* the zero of timestamps means that there is none */
	return start_at == 0 ? 1 : start_at;
}

static Jsonb *
read_tags(FunctionCallInfo fcinfo, int i)
{
	Jsonb	   *tags = ArgJsonb(fcinfo, i, "tags");

	if (!JB_ROOT_IS_OBJECT(tags))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tags must be a JSON object, not %s",
						JsonTypeName(tags)),
				 errhint("For example: {\"customer\": \"42\"}.")));
	return tags;
}

static char *
new_id(void)
{
	Datum		uuid = DirectFunctionCall1(gen_random_uuid, (Datum) 0);

	return DatumGetCString(DirectFunctionCall1(uuid_out, uuid));
}

static int64
new_seed(void)
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
settings_for(const WorkflowRow *workflow)
{
	if (strcmp(workflow->run_as, "owner") == 0)
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

static WorkflowRow *
find_workflow(const char *name)
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
 * freeze_input: check that the caller may run the workflow and that the input
 * fits, and fill in the defaults.
 */
static Jsonb *
freeze_input(const WorkflowRow *workflow, Jsonb *input)
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
 * check_duplicate: the id is in use: is that what the caller wanted?
 *
 * Returns true when a new run is to be started.
 */
static bool
check_duplicate(const InstanceRow *known, OnConflict on_conflict,
				const InstanceRow *wanted)
{
	/* who could have started it learns nothing new */
	bool		same = strcmp(known->workflow, wanted->workflow) == 0 &&
		(known->run_as == wanted->run_as || ClientMaySee(known));

	if (on_conflict == CONFLICT_ERROR || !same)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_DUPLICATE),
				 errmsg("instance \"%s\" already exists", wanted->id),
				 same ?
				 errhint("Give another id, or on_conflict => 'existing' or 'restart_failed'.") :
				 errhint("Give another id.")));
	return on_conflict == CONFLICT_RESTART_FAILED && known->ended &&
		strcmp(known->status, "completed") != 0;
}

/*
 * insert: start the first run of an id, or the next one if it may be.
 */
static void
insert(InstanceRow *row, OnConflict on_conflict, Jsonb *input,
	   Jsonb *settings, TimestampTz start_at)
{
	for (row->run = 1;; row->run++)
	{
		InstanceRow *known;

		row->iid = row->chain = StorageNextNumber("iid_seq");
		if (InstanceInsert(row, input, settings, start_at))
			return;
		known = InstanceFind(row->id);
		if (known == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("instance \"%s\" was started by another transaction",
							row->id)));
		if (!check_duplicate(known, on_conflict, row))
			return;
		row->run = known->run;
	}
}

/*
 * durable_start: start an instance, which runs when this transaction has
 * committed.
 */
Datum
durable_start(PG_FUNCTION_ARGS)
{
	InstanceRow row = {0};
	WorkflowRow *workflow;
	Jsonb	   *input;
	OnConflict	on_conflict;
	TimestampTz start_at;

	ClientEnterToWrite("durable_start");
	row.workflow = ArgText(fcinfo, 0, "workflow");
	input = ArgJsonb(fcinfo, 1, "input");
	row.id = ArgNameOrNull(fcinfo, 2, "id");
	on_conflict = read_on_conflict(fcinfo, 3);
	start_at = read_start_at(fcinfo, 4);
	ArgNotNull(fcinfo, 5, "priority");
	row.priority = PG_GETARG_INT32(5);
	row.tags = read_tags(fcinfo, 6);

	workflow = find_workflow(row.workflow);
	input = freeze_input(workflow, input);
	row.version = workflow->version;
	row.run_as = strcmp(workflow->run_as, "owner") == 0 ?
		workflow->owner : GetUserId();
	row.run_as_name = GetUserNameFromId(row.run_as, false);
	check_login(row.run_as, row.run_as_name);
	row.seed = new_seed();
	if (row.id == NULL)
		row.id = new_id();
	insert(&row, on_conflict, input, settings_for(workflow), start_at);
	if (start_at == 0)
		WakeupReady(row.run_as);
	else
		WakeupTimer(start_at);
	PG_RETURN_TEXT_P(cstring_to_text(row.id));
}
