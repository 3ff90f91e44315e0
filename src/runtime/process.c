/*-------------------------------------------------------------------------
 *
 * process.c
 *	  What launcher, scheduler and workers have in common.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "runtime/process.h"

bool		IsDurableWorker = false;

/*
 * ProcessStart: start a process that is not restarted; false if there is no
 * room for it.
 */
bool
ProcessStart(const char *name, const char *type, const char *entry, Datum arg,
			 BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_name, name, BGW_MAXLEN);
	strlcpy(worker.bgw_type, type, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "durable", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, entry, BGW_MAXLEN);
	worker.bgw_main_arg = arg;
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/*
 * LauncherRegister: the launcher is there as long as the server is.
 */
void
LauncherRegister(void)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_name, "durable launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "durable launcher", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "durable", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "DurableLauncherMain", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

/*
 * ProcessBegin: a transaction of the process's own, in which statements can
 * run without a portal.
 */
void
ProcessBegin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	XactIsoLevel = XACT_READ_COMMITTED;
	XactReadOnly = false;
	PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * ProcessCommit: its end.  The current context is the caller's to choose.
 */
void
ProcessCommit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/*
 * ProcessWaitEvent: named where the server can name it.
 */
uint32
ProcessWaitEvent(ProcessWait wait)
{
	static const char *const names[] = {
		"DurableLauncher", "DurableScheduler", "DurableWorker", "DurableResult"
	};
	static uint32 events[lengthof(names)];

	if (events[wait] == 0)
		events[wait] = compat_wait_event(names[wait]);
	return events[wait];
}

/*
 * ProcessSleep: until the latch is set (true) or the time is over; then act
 * on signals.  Look for work after it, not before.
 */
bool
ProcessSleep(ProcessWait wait, long milliseconds)
{
	int			events;

	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   Min(Max(milliseconds, 0), INT_MAX),
					   ProcessWaitEvent(wait));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	return (events & WL_LATCH_SET) != 0;
}

/*
 * ProcessWhyNot: why a role cannot have workers here, or NULL.  A worker that fails
 * to start tells nobody.
 */
char *
ProcessWhyNot(Oid role)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	Form_pg_authid form;
	char	   *reason = NULL;

	if (!HeapTupleIsValid(tuple))
		return psprintf("WF005: role %u does not exist any more", role);
	form = (Form_pg_authid) GETSTRUCT(tuple);
	if (COMPAT_LOGIN_NEEDED && !form->rolcanlogin)
		reason = psprintf("WF005: role \"%s\" may not log in. Let it, or register the workflow with run_as => 'owner'.",
						  NameStr(form->rolname));
	else if (!form->rolsuper &&
			 compat_database_aclcheck(MyDatabaseId, role, ACL_CONNECT) != ACLCHECK_OK)
		reason = psprintf("WF005: role \"%s\" has no CONNECT on this database",
						  NameStr(form->rolname));
	else if (compat_namespace_aclcheck(get_namespace_oid("durable", false),
									   role, ACL_USAGE) != ACLCHECK_OK)
		reason = psprintf("WF005: role \"%s\" has no USAGE on schema durable",
						  NameStr(form->rolname));
	ReleaseSysCache(tuple);
	return reason;
}
