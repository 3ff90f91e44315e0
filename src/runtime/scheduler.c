/*-------------------------------------------------------------------------
 *
 * scheduler.c
 *	  One a database: fires timers, turns hints into ready instances, takes
 *	  leases from the dead, and starts workers.  It runs no user's code.
 *
 * A turn looks at what the hints, the clock and dead workers ask for, then at
 * which roles have instances ready that nobody has claimed.  It sleeps until
 * its next timer.  What hints lose, the sweep finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "durable.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "runtime/shmem.h"
#include "storage/storage.h"

/* A worker that has not come up by then never will. */
#define START_LIMIT_S	30

/* How soon to try again when there was no room for a worker. */
#define NO_ROOM_MS	1000

static SchedulerSlot *my_slot;
static BackgroundWorkerHandle **handles;
static TimestampTz no_room_until = 0;
static bool no_room_logged = false;

/* What the slot asked for, taken out of it. */
typedef struct Asked
{
	bool		scan;
	int			nhints;
	int64		hints[SCHEDULER_MAX_HINTS];
} Asked;

static void
scheduler_exit(int code, Datum arg)
{
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->pid = 0;
	my_slot->latch = NULL;
	if (my_slot->state == SCHEDULER_RUNNING ||
		my_slot->state == SCHEDULER_STARTING)
		SharedSchedulerFailed(my_slot);
	LWLockRelease(Shared->lock);
}

static void
take_asked(Asked *asked)
{
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	asked->scan = my_slot->scan;
	asked->nhints = my_slot->nhints;
	memcpy(asked->hints, my_slot->hints, sizeof(int64) * asked->nhints);
	my_slot->scan = false;
	my_slot->nhints = 0;
	LWLockRelease(Shared->lock);
}

/*
 * leave_if_absent: without the extension there is nothing to schedule.
 */
static void
leave_if_absent(void)
{
	if (StorageInstalled())
		return;
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->state = SCHEDULER_ABSENT;
	LWLockRelease(Shared->lock);
	AbortCurrentTransaction();
	proc_exit(0);
}

/* ------------------------------------------------------------------
 * Workers
 * ------------------------------------------------------------------
 */

/*
 * free_dead_slots: of workers that died before they could do it themselves.
 * True if there were any.
 */
static bool
free_dead_slots(void)
{
	TimestampTz long_ago = GetCurrentTimestamp() - START_LIMIT_S * USECS_PER_SEC;
	bool		found = false;

	for (int i = 0; i < Shared->nslots; i++)
	{
		pid_t		pid;

		if (handles[i] == NULL ||
			GetBackgroundWorkerPid(handles[i], &pid) != BGWH_STOPPED)
			continue;
		pfree(handles[i]);
		handles[i] = NULL;
		found = true;
		LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
		if (Shared->workers[i].database == MyDatabaseId &&
			Shared->workers[i].state == WORKER_STARTING)
			Shared->workers[i].state = WORKER_FREE;
		LWLockRelease(Shared->lock);
	}

	/* started by an earlier scheduler, and never heard of again */
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (handles[i] == NULL && worker->state == WORKER_STARTING &&
			worker->database == MyDatabaseId && worker->since < long_ago)
			worker->state = WORKER_FREE;
	}
	LWLockRelease(Shared->lock);
	return found;
}

/*
 * why_not: why a role cannot have workers here, or NULL.  A worker that fails
 * to start tells nobody.
 */
static char *
why_not(Oid role)
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

/*
 * count_workers: of a role, or all of the database.
 */
static int
count_workers(Oid role, bool idle)
{
	int			count = 0;

	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state != WORKER_FREE && worker->database == MyDatabaseId &&
			(!OidIsValid(role) || worker->role == role) &&
			(!idle || worker->state == WORKER_IDLE ||
			 worker->state == WORKER_STARTING))
			count++;
	}
	return count;
}

/*
 * wake_workers: so many idle workers of a role; returns how many there were.
 */
static int
wake_workers(Oid role, int wanted)
{
	int			woken = 0;

	for (int i = 0; i < Shared->nslots && woken < wanted; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->database != MyDatabaseId || worker->role != role)
			continue;
		if (worker->state == WORKER_IDLE)
			SetLatch(worker->latch);
		if (worker->state == WORKER_IDLE || worker->state == WORKER_STARTING)
			woken++;
	}
	return woken;
}

/*
 * make_room: ask an idle worker of another role to leave.
 */
static void
make_room(Oid role)
{
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state == WORKER_IDLE && worker->database == MyDatabaseId &&
			worker->role != role && !worker->leave)
		{
			worker->leave = true;
			SetLatch(worker->latch);
			return;
		}
	}
}

/*
 * reserve_slot: for a new worker of a role, or -1 if it cannot have one now.
 */
static int
reserve_slot(Oid role)
{
	if (count_workers(InvalidOid, false) >= durable_max_workers)
	{
		if (count_workers(role, false) == 0)
			make_room(role);
		return -1;
	}
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state == WORKER_FREE && handles[i] == NULL)
		{
			memset(worker, 0, sizeof(WorkerSlot));
			worker->state = WORKER_STARTING;
			worker->database = MyDatabaseId;
			worker->role = role;
			worker->since = GetCurrentTimestamp();
			return i;
		}
	}
	return -1;
}

static void
no_room(void)
{
	no_room_until = GetCurrentTimestamp() + NO_ROOM_MS * INT64CONST(1000);
	if (!no_room_logged)
		ereport(LOG,
				(errmsg("durable has no room for another worker"),
				 errhint("Increase max_worker_processes.")));
	no_room_logged = true;
}

static bool
start_worker(Oid role, int i)
{
	char	   *name = GetUserNameFromId(role, true);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	bool		started;

	name = psprintf("durable worker for %s", name ? name : "?");
	started = ProcessStart(name, "durable worker", "DurableWorkerMain",
						   Int32GetDatum(i), &handles[i]);
	pfree(name);
	MemoryContextSwitchTo(old);
	if (started)
		no_room_logged = false;
	else
	{
		LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
		Shared->workers[i].state = WORKER_FREE;
		LWLockRelease(Shared->lock);
		no_room();
	}
	return started;
}

/*
 * serve_role: wake or start workers for instances nobody has claimed.
 */
static void
serve_role(Oid role, int unclaimed)
{
	char	   *reason = why_not(role);
	int			woken;

	if (reason != NULL)
	{
		RoleHold(role, reason);
		ereport(LOG, (errmsg("durable holds instances: %s", reason)));
		return;
	}
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	woken = wake_workers(role, unclaimed);
	LWLockRelease(Shared->lock);

	/* one more a turn: several roles share the room */
	if (woken < unclaimed && no_room_until <= GetCurrentTimestamp())
	{
		int			i;

		LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
		i = reserve_slot(role);
		LWLockRelease(Shared->lock);
		if (i >= 0)
			(void) start_worker(role, i);
	}
}

/* ------------------------------------------------------------------
 * A turn
 * ------------------------------------------------------------------
 */

static void
wake_for_messages(const Asked *asked, bool sweep)
{
	int64	   *iids;
	int			count = 0;

	if (asked->scan || sweep)
		count = MessagesFor(InvalidOid, &iids);
	else if (asked->nhints > 0)
		count = MessagesAmong(asked->hints, asked->nhints, &iids);
	for (int i = 0; i < count; i++)
	{
		if (!LeaseIsInHand(iids[i]))
			ReadyInsert(iids[i]);
	}
}

/*
 * others_busy: is any worker of the server at work?
 */
static bool
others_busy(void)
{
	for (int i = 0; i < Shared->nslots; i++)
	{
		if (Shared->workers[i].state == WORKER_BUSY)
			return true;
	}
	return false;
}

/*
 * give_solo: hand the suspect to an idle worker of its role.
 */
static bool
give_solo(Oid role)
{
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state == WORKER_IDLE && worker->role == role &&
			worker->database == MyDatabaseId)
		{
			worker->solo_iid = Shared->solo_iid;
			SetLatch(worker->latch);
			return true;
		}
	}
	return false;
}

/*
 * serve_suspect: an instance that ran when the server crashed runs alone: so
 * that, if it was the cause, it takes nothing else with it.
 */
static void
serve_suspect(void)
{
	Oid			role;
	int64		iid = ReadySuspect(&role);
	bool		need_worker = false;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	if (iid != 0 && Shared->solo_iid == 0)
	{
		Shared->solo_iid = iid;
		Shared->solo_database = MyDatabaseId;
	}
	if (Shared->solo_database == MyDatabaseId && Shared->solo_iid != 0)
	{
		/* it may have gone meanwhile */
		if (iid == 0 && !others_busy())
			Shared->solo_iid = 0;
		else if (Shared->solo_iid == iid && !others_busy())
			need_worker = !give_solo(role);
	}
	LWLockRelease(Shared->lock);
	if (need_worker)
		serve_role(role, 1);
}

static TimestampTz
turn(bool sweep)
{
	MemoryContext cxt = CurrentMemoryContext;
	Asked		asked;
	RoleReady  *roles;
	int			nroles;
	TimestampTz next;

	ProcessBegin();
	MemoryContextSwitchTo(cxt);
	leave_if_absent();
	take_asked(&asked);
	if (sweep)
		LeaseReleaseStale(InvalidOid, !my_slot->has_run);
	while (TimerFireDue(InvalidOid) > 0)
		;
	wake_for_messages(&asked, sweep);
	ProcessCommit();
	my_slot->has_run = true;
	my_slot->failures = 0;

	ProcessBegin();
	MemoryContextSwitchTo(cxt);
	nroles = ReadyRoles(&roles);
	for (int i = 0; i < nroles; i++)
		serve_role(roles[i].role, roles[i].unclaimed);
	serve_suspect();
	next = TimerNext();
	ProcessCommit();
	MemoryContextSwitchTo(cxt);
	return next;
}

/*
 * sleep_time: until the next timer, the sweep, or room for a worker.
 */
static long
sleep_time(TimestampTz next, TimestampTz next_sweep)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = next_sweep;

	if (next != 0)
		until = Min(until, next);
	if (no_room_until > now)
		until = Min(until, no_room_until);

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->next_wake = until;
	LWLockRelease(Shared->lock);
	return until <= now ? 0 : (until - now + 999) / 1000;
}

void
DurableSchedulerMain(Datum arg)
{
	MemoryContext cxt;
	TimestampTz next_sweep = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	my_slot = &Shared->schedulers[DatumGetInt32(arg)];
	before_shmem_exit(scheduler_exit, (Datum) 0);
	BackgroundWorkerInitializeConnectionByOid(my_slot->database, InvalidOid, 0);
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->pid = MyProcPid;
	my_slot->latch = MyLatch;
	my_slot->state = SCHEDULER_RUNNING;
	LWLockRelease(Shared->lock);

	/* what is lost with a crash is done again: all of it can be */
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);

	handles = MemoryContextAllocZero(TopMemoryContext,
									 sizeof(BackgroundWorkerHandle *) * Shared->nslots);
	cxt = AllocSetContextCreate(TopMemoryContext, "durable scheduler",
								ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		bool		sweep = free_dead_slots() || now >= next_sweep;
		TimestampTz next;

		if (sweep)
			next_sweep = now + durable_sweep_interval * INT64CONST(1000);
		MemoryContextReset(cxt);
		MemoryContextSwitchTo(cxt);
		next = turn(sweep);
		pgstat_report_stat(true);
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) ProcessSleep(WAIT_SCHEDULER, sleep_time(next, next_sweep));
	}
}
