/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  Starts a scheduler for each database that has the extension.
 *
 * The launcher has no database of its own, so it cannot see which ones have
 * the extension: each is asked by a scheduler that leaves if there is none.
 * It asks again when CREATE EXTENSION says so.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "compat.h"
#include "durable.h"
#include "runtime/process.h"
#include "runtime/shmem.h"

typedef struct Database
{
	Oid			oid;
	char	   *name;
} Database;

static BackgroundWorkerHandle **handles;

static void
launcher_exit(int code, Datum arg)
{
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	Shared->launcher_pid = 0;
	Shared->launcher_latch = NULL;
	LWLockRelease(Shared->lock);
}

/*
 * is_wanted: does durable.databases name it?
 */
static bool
is_wanted(const char *database)
{
	List	   *names;
	ListCell   *lc;

	if (strcmp(durable_databases, "*") == 0)
		return true;
	if (!SplitIdentifierString(pstrdup(durable_databases), ',', &names))
		return false;
	foreach(lc, names)
	{
		if (strcmp(lfirst(lc), database) == 0)
			return true;
	}
	return false;
}

static List *
list_databases(MemoryContext cxt)
{
	List	   *databases = NIL;
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		if (form->datallowconn && !form->datistemplate &&
			!database_is_invalid_form(form) &&
			is_wanted(NameStr(form->datname)))
		{
			MemoryContext old = MemoryContextSwitchTo(cxt);
			Database   *database = palloc(sizeof(Database));

			database->oid = form->oid;
			database->name = pstrdup(NameStr(form->datname));
			databases = lappend(databases, database);
			MemoryContextSwitchTo(old);
		}
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	return databases;
}

/*
 * slot_to_start: the slot of a database whose scheduler is to be started now,
 * marked so, or -1.  *next is when another look is needed.
 */
static int
slot_to_start(Oid database, TimestampTz now, TimestampTz *next)
{
	SchedulerSlot *slot;
	int			i = -1;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	slot = SharedScheduler(database);
	if (slot == NULL)
		slot = SharedScheduler(InvalidOid);
	if (slot != NULL && !OidIsValid(slot->database))
	{
		memset(slot, 0, sizeof(SchedulerSlot));
		slot->database = database;
	}
	if (slot != NULL && slot->state == SCHEDULER_FAILED &&
		slot->not_before > now)
		*next = Min(*next, slot->not_before);
	/* one that is about to leave wakes us when it has: it clears its slot */
	else if (slot != NULL && slot->pid == 0 &&
			 (slot->state == SCHEDULER_UNKNOWN ||
			  slot->state == SCHEDULER_FAILED))
	{
		slot->state = SCHEDULER_STARTING;
		slot->probe_again = false;
		i = slot - Shared->schedulers;
	}
	LWLockRelease(Shared->lock);
	return i;
}

static void
mark_failed(int i)
{
	SchedulerSlot *slot = &Shared->schedulers[i];

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	if (slot->state == SCHEDULER_STARTING)
		SharedSchedulerFailed(slot);
	LWLockRelease(Shared->lock);
}

/*
 * check_started: those that died before they could say so.
 */
static void
check_started(void)
{
	for (int i = 0; i < MAX_DATABASES; i++)
	{
		pid_t		pid;

		if (handles[i] != NULL &&
			GetBackgroundWorkerPid(handles[i], &pid) == BGWH_STOPPED)
		{
			pfree(handles[i]);
			handles[i] = NULL;
			mark_failed(i);
		}
	}
}

static void
start_scheduler(const Database *database, int i)
{
	char	   *name = psprintf("durable scheduler for %s", database->name);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	/* of one that has said that it ends, and has not quite ended */
	if (handles[i] != NULL)
		pfree(handles[i]);
	handles[i] = NULL;
	if (!ProcessStart(name, "durable scheduler", "DurableSchedulerMain",
					  Int32GetDatum(i), &handles[i]))
	{
		mark_failed(i);
		ereport(LOG,
				(errmsg("durable has no room for the scheduler of database \"%s\"",
						database->name),
				 errhint("Increase max_worker_processes.")));
	}
	MemoryContextSwitchTo(old);
}

/*
 * forget_databases: slots of databases that are gone, or not wanted any more.
 */
static void
forget_databases(List *databases)
{
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_DATABASES; i++)
	{
		SchedulerSlot *slot = &Shared->schedulers[i];
		bool		found = false;
		ListCell   *lc;

		foreach(lc, databases)
			found = found || ((Database *) lfirst(lc))->oid == slot->database;
		if (found || !OidIsValid(slot->database))
			continue;
		for (int w = 0; w < Shared->nslots; w++)
		{
			WorkerSlot *worker = &Shared->workers[w];

			if (worker->state != WORKER_FREE && worker->pid != 0 &&
				worker->database == slot->database)
				kill(worker->pid, SIGTERM);
		}
		if (slot->pid != 0)
			kill(slot->pid, SIGTERM);
		else if (slot->state != SCHEDULER_STARTING &&
				 slot->state != SCHEDULER_BARRED)
			slot->database = InvalidOid;
	}
	LWLockRelease(Shared->lock);
}

void
DurableLauncherMain(Datum arg)
{
	MemoryContext cxt;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	before_shmem_exit(launcher_exit, (Datum) 0);
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	Shared->launcher_pid = MyProcPid;
	Shared->launcher_latch = MyLatch;
	LWLockRelease(Shared->lock);

	handles = MemoryContextAllocZero(TopMemoryContext,
									 sizeof(BackgroundWorkerHandle *) * MAX_DATABASES);
	cxt = AllocSetContextCreate(TopMemoryContext, "durable launcher",
								ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz next = now + durable_sweep_interval * INT64CONST(1000);
		List	   *databases;
		ListCell   *lc;

		MemoryContextReset(cxt);
		MemoryContextSwitchTo(cxt);
		check_started();
		databases = list_databases(cxt);
		forget_databases(databases);
		foreach(lc, databases)
		{
			int			i = slot_to_start(((Database *) lfirst(lc))->oid, now, &next);

			if (i >= 0)
				start_scheduler(lfirst(lc), i);
		}
		pgstat_report_stat(true);
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) ProcessSleep(WAIT_LAUNCHER, (next - now) / 1000 + 1);
	}
}
