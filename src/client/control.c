/*-------------------------------------------------------------------------
 *
 * control.c
 *	  What an instance is told from outside: signals, and to stop or go on.
 *
 * A message is one row in the inbox.  Only pausing, resuming, terminating and
 * retrying touch the instance: of one that nobody runs, and in the order of
 * locks of queue.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "engine/activity.h"
#include "engine/child.h"
#include "engine/failure.h"
#include "engine/internal.h"
#include "engine/json.h"
#include "engine/restart.h"
#include "engine/start.h"
#include "engine/transaction.h"
#include "runtime/lease.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_signal);
PG_FUNCTION_INFO_V1(durable_status);
PG_FUNCTION_INFO_V1(durable_cancel);
PG_FUNCTION_INFO_V1(durable_terminate);
PG_FUNCTION_INFO_V1(durable_pause);
PG_FUNCTION_INFO_V1(durable_resume);
PG_FUNCTION_INFO_V1(durable_pause_workflow);
PG_FUNCTION_INFO_V1(durable_resume_workflow);
PG_FUNCTION_INFO_V1(durable_pause_all);
PG_FUNCTION_INFO_V1(durable_resume_all);

static void
refuse_ended(const InstanceRow *instance, const char *hint)
{
	if (instance->ended)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" has ended: it is %s", instance->id,
						instance->status),
				 errhint("%s", hint)));
}

/*
 * durable_signal: leave a message for an instance.
 */
Datum
durable_signal(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		"id", "name", "payload", "dedup_key", NULL
	};
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *name = ArgName(fcinfo, 1, "name");
	Jsonb	   *payload = ArgJsonb(fcinfo, 2, "payload");
	char	   *key = ArgNameOrNull(fcinfo, 3, "dedup_key");
	InstanceRow *instance;

	if (CurrentContext == CONTEXT_BODY)
		return ActivityInBody(fcinfo, "durable_signal", names);
	ClientEnterToWrite("durable_signal");
	instance = ClientFindInstance(id);
	refuse_ended(instance, "durable_signal_start() starts it anew.");
	if (key == NULL || InboxUseKey(instance->chain, key))
	{
		(void) InboxInsert(instance->chain, "signal", name, payload);
		WakeupMessageTo(instance->chain, instance->run_as);
	}
	PG_RETURN_VOID();
}

/*
 * durable_status: what it is doing.
 */
Datum
durable_status(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");

	ClientEnter("durable_status");
	PG_RETURN_TEXT_P(cstring_to_text(ClientFindInstance(id)->status));
}

/* ------------------------------------------------------------------
 * Cancel, terminate
 * ------------------------------------------------------------------
 */

/*
 * ask: a message that the instance cannot overhear.
 */
static void
ask(const InstanceRow *instance, const char *request, const char *reason,
	bool interrupt)
{
	JsonbParseState *payload;

	JsonObjectBegin(&payload);
	JsonObjectAddText(&payload, "reason", reason);
	(void) InboxInsert(instance->chain, request, "", JsonObjectEnd(&payload));
	ControlChanged();
	WakeupMessageTo(instance->chain, instance->run_as);
	if (interrupt)
		WakeupInterrupt(instance->iid);
}

/*
 * durable_cancel: ask an instance to come to an end; false if it has.
 */
Datum
durable_cancel(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {"id", "reason", "force", NULL};
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *reason = PG_ARGISNULL(1) ? NULL : ArgText(fcinfo, 1, "reason");
	bool		force;
	InstanceRow *instance;

	ArgNotNull(fcinfo, 2, "force");
	force = PG_GETARG_BOOL(2);
	if (CurrentContext == CONTEXT_BODY)
		return ActivityInBody(fcinfo, "durable_cancel", names);
	ClientEnterToWrite("durable_cancel");
	instance = ClientFindInstance(id);
	if (instance->ended)
		PG_RETURN_BOOL(false);
	ask(instance, "cancel", reason, force);
	PG_RETURN_BOOL(true);
}

/* An end that is written here. */
typedef struct Ending
{
	InstanceRow *instance;
	const char *reason;
} Ending;

static void
write_end(void *arg)
{
	Ending	   *ending = arg;
	InstanceRow *instance = ending->instance;
	HistoryRow	row = {.event = "WorkflowTerminated"};

	row.error = FailureMake("WF002", "the workflow was terminated",
							ending->reason);
	row.at = GetCurrentTimestamp();
	row.seq = HistoryNextSeq(instance->iid);
	HistoryAppend(instance->iid, &row);
	InstanceEnd(instance->iid, "cancelled", row.seq, row.at, row.at);
	ChildTellParent(instance, "cancelled", NULL, row.error, false);
	ChildrenTerminate(instance->iid);
	SubscriptionDelete(instance->chain);
	/* copies that nobody needs now are found by the sweep */
	(void) PinRelease(instance->iid);
	RestartOrDrop(instance->iid, false);
	WakeupEnded(instance->chain);
}

/*
 * end_here: end an instance that nobody runs, in this transaction.  False:
 * somebody has come before us.
 */
static bool
end_here(InstanceRow *instance, const char *reason)
{
	Ending		ending = {.instance = instance, .reason = reason};
	ErrorData  *error = TransactionTry(write_end, &ending);

	if (error != NULL && !HistoryIsFenceError(error))
		ReThrowError(error);
	return error == NULL;
}

/*
 * durable_terminate: end an instance without its code having a say; false if
 * it has ended.
 */
Datum
durable_terminate(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *reason = PG_ARGISNULL(1) ? NULL : ArgText(fcinfo, 1, "reason");
	InstanceRow *instance;

	ClientEnterToWrite("durable_terminate");
	instance = ClientFindInstance(id);
	if (instance->ended)
		PG_RETURN_BOOL(false);
	/* what runs beside a body is ended by a driver, who knows its history */
	if (instance->lease == 0 && !InternalIs(instance->workflow) &&
		LeaseTakeInHand(instance->iid))
	{
		TaskDelete(instance->iid);
		TimerClear(instance->iid);
		ReadyWithdraw(instance->iid);
		instance = ClientFindInstance(id);
		if (instance->ended)
			PG_RETURN_BOOL(false);
		if (instance->lease == 0 && end_here(instance, reason))
			PG_RETURN_BOOL(true);
		instance = ClientFindInstance(id);
		if (instance->ended)
			PG_RETURN_BOOL(false);
	}
	ask(instance, "terminate", reason, true);
	PG_RETURN_BOOL(true);
}

/* ------------------------------------------------------------------
 * Pause, resume
 * ------------------------------------------------------------------
 */

/*
 * durable_pause: let an instance rest until it is resumed; false if it is
 * paused, is held or has ended.
 */
Datum
durable_pause(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	InstanceRow *instance;
	int64		tried = 0;
	bool		paused = false;

	ClientEnterToWrite("durable_pause");
	/* one that continues as new while we wait for its row has a next run */
	while (!paused && (instance = ClientFindInstance(id))->iid != tried)
	{
		tried = instance->iid;
		ReadyWithdraw(tried);
		paused = InstancePause(tried);
		/* what was withdrawn is not to be lost: unless it is paused now */
		ReadyInsert(tried);
	}
	if (!paused)
		PG_RETURN_BOOL(false);
	InstancePauseBeside(tried);
	ControlChanged();
	PG_RETURN_BOOL(true);
}

/*
 * resume_beside: the activities that run beside its body, too.
 */
static bool
resume_beside(const InstanceRow *instance, const char *role)
{
	int64	   *iids;
	int			count = InstanceResumeBeside(instance->iid, role, &iids);

	if (count == 0)
		return false;
	ReadyInsertMany(iids, count);
	WakeupReady(instance->run_as);
	return true;
}

/*
 * durable_resume: let an instance that is held or paused go on.
 *
 * If its role has another name now, only a superuser gets here, and says by
 * this that it is the right one.
 */
Datum
durable_resume(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *definition = ClientDefinition(fcinfo, 1);
	InstanceRow *instance;
	char	   *role;
	bool		resumed;

	ClientEnterToWrite("durable_resume");
	instance = ClientFindInstance(id);
	refuse_ended(instance, "durable_retry() lets one that has failed go on.");
	role = GetUserNameFromId(instance->run_as, true);
	if (role == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("the role of instance \"%s\" does not exist any more", id),
				 errdetail("Its role was \"%s\".", instance->run_as_name)));
	resumed = InstanceResume(instance->iid, role, definition);
	/* what is to start later has a timer still */
	if (resumed && !InstanceIsForLater(instance->iid))
	{
		ReadyInsert(instance->iid);
		WakeupReady(instance->run_as);
	}
	resumed = resume_beside(instance, role) || resumed;
	PG_RETURN_BOOL(resumed);
}

static char *
check_workflow(FunctionCallInfo fcinfo, const char *function)
{
	char	   *name = ArgText(fcinfo, 0, "name");
	WorkflowRow *workflow;

	ClientEnterToWrite(function);
	workflow = StartFindWorkflow(name);
	if (!has_privs_of_role(GetUserId(), workflow->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of workflow %s", name)));
	return name;
}

static void
check_superuser(const char *function)
{
	ClientEnterToWrite(function);
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to call %s()", function),
				 errhint("Owners can call durable_pause_workflow() and durable_resume_workflow().")));
}

/*
 * resume: of a workflow or (NULL) everything.
 */
static bool
resume(const char *workflow)
{
	if (!ControlPause(workflow, false))
		return false;
	ControlUnpark(workflow);
	WakeupScan();
	return true;
}

/*
 * durable_pause_workflow: no instance of it goes on; false if it is paused.
 */
Datum
durable_pause_workflow(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ControlPause(check_workflow(fcinfo, "durable_pause_workflow"),
								true));
}

Datum
durable_resume_workflow(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(resume(check_workflow(fcinfo, "durable_resume_workflow")));
}

/*
 * durable_pause_all: nothing goes on in this database.
 */
Datum
durable_pause_all(PG_FUNCTION_ARGS)
{
	check_superuser("durable_pause_all");
	PG_RETURN_BOOL(ControlPause(NULL, true));
}

Datum
durable_resume_all(PG_FUNCTION_ARGS)
{
	check_superuser("durable_resume_all");
	PG_RETURN_BOOL(resume(NULL));
}
