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

#include <limits.h>

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "durable.h"
#include "engine/pin.h"
#include "runtime/dispatch.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "runtime/shmem.h"
#include "storage/storage.h"

/* A worker that has not come up by then never will. */
#define START_LIMIT_S	30

/* How soon to try again when there was no room for a worker. */
#define NO_ROOM_MS	1000

/* How long a few more instances than workers are no reason for another one. */
#define RUSH_MS		5

/* How often to look, at the least, at a timer that is due but locked. */
#define LOCKED_MAX_MS	256

static SchedulerSlot *my_slot;
static BackgroundWorkerHandle **handles;
static TimestampTz no_room_until = 0;
static TimestampTz rush_until = 0;
static Oid	last_started = InvalidOid;	/* the role of the last worker */
static bool no_room_logged = false;

/*
 * Roles whose workers could not connect or died, and until when none is
 * started.  The first time costs nothing: somebody may have sent it away.
 */
#define MAX_REFUSED			64
#define FIRST_REFUSAL_MS	100
#define MAX_REFUSAL_MS		10000
#define MAX_LEAVE_MS		1000	/* of those that were told to leave */
static struct
{
	Oid			role;
	int			failures;		/* shortly after one another */
	TimestampTz last;
	TimestampTz until;
}			refused[MAX_REFUSED];
static int	nrefused = 0;

static int	locked_ms = 0;		/* how long to wait for a locked timer */

/* What the slot asked for, taken out of it. */
typedef struct Asked
{
	bool		scan;
	bool		sweep;
	int			nhints;
	int64		hints[SCHEDULER_MAX_HINTS];
} Asked;

/*
 * has_solo: has a worker been given the suspect?
 */
static bool
has_solo(void)
{
	for (int i = 0; i < Shared->nslots; i++)
	{
		if (Shared->workers[i].state != WORKER_FREE &&
			Shared->workers[i].solo_iid != 0)
			return true;
	}
	return false;
}

static void
scheduler_exit(int code, Datum arg)
{
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->pid = 0;
	my_slot->latch = NULL;
	if (my_slot->state == SCHEDULER_RUNNING ||
		my_slot->state == SCHEDULER_STARTING)
		SharedSchedulerFailed(my_slot);
	/* nobody would see to our suspect, and all would wait for it */
	if (Shared->solo_database == my_slot->database && !has_solo())
		Shared->solo_iid = 0;
	/* the server tells the launcher that started us: this may be another one */
	if (Shared->launcher_latch != NULL)
		SetLatch(Shared->launcher_latch);
	LWLockRelease(Shared->lock);
}

static void
take_asked(Asked *asked)
{
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	asked->scan = my_slot->scan;
	asked->sweep = my_slot->sweep;
	asked->nhints = my_slot->nhints;
	memcpy(asked->hints, my_slot->hints, sizeof(int64) * asked->nhints);
	my_slot->scan = false;
	my_slot->sweep = false;
	my_slot->nhints = 0;
	/* timers that are set from now on wake us: we may not see them */
	my_slot->next_wake = PG_INT64_MAX;
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
	/* CREATE EXTENSION may have committed since we looked */
	my_slot->state = my_slot->probe_again ? SCHEDULER_UNKNOWN : SCHEDULER_ABSENT;
	LWLockRelease(Shared->lock);
	AbortCurrentTransaction();
	proc_exit(0);
}

/* ------------------------------------------------------------------
 * Workers
 * ------------------------------------------------------------------
 */

/*
 * back_off: a worker of the role could not connect, or died.
 */
static void
back_off(Oid role, int max_delay)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		delay = 0;
	int			i = 0;

	while (i < nrefused && refused[i].role != role)
		i++;
	if (i == nrefused)
	{
		i = nrefused < MAX_REFUSED ? nrefused++ : 0;
		memset(&refused[i], 0, sizeof(refused[i]));
		refused[i].role = role;
	}
	if (refused[i].last < now - 2 * MAX_REFUSAL_MS * INT64CONST(1000))
		refused[i].failures = 0;
	if (refused[i].failures > 0)
		delay = Min(FIRST_REFUSAL_MS << Min(refused[i].failures, 10), max_delay);
	refused[i].failures++;
	refused[i].last = now;
	refused[i].until = now + delay * 1000;
}

static bool
is_refused(Oid role)
{
	for (int i = 0; i < nrefused; i++)
	{
		if (refused[i].role == role)
			return refused[i].until > GetCurrentTimestamp();
	}
	return false;
}

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
		if (Shared->workers[i].database == MyDatabaseId)
		{
			/* did not even get to say that it begins */
			if (Shared->workers[i].state == WORKER_STARTING &&
				Shared->workers[i].pid == 0)
			{
				Shared->workers[i].state = WORKER_FREE;
				Shared->workers[i].failed = true;
			}
			if (Shared->workers[i].failed)
				back_off(Shared->workers[i].role,
						 Shared->workers[i].told_to_leave ? MAX_LEAVE_MS : MAX_REFUSAL_MS);
			Shared->workers[i].failed = false;
		}
		LWLockRelease(Shared->lock);
	}

	/* started by an earlier scheduler, and never heard of again */
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (handles[i] == NULL && worker->state == WORKER_STARTING &&
			worker->pid == 0 && worker->database == MyDatabaseId &&
			worker->since < long_ago)
			worker->state = WORKER_FREE;
	}
	LWLockRelease(Shared->lock);
	return found;
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
		if (worker->leave)
			continue;
		if (worker->state == WORKER_IDLE)
		{
			worker->woken = true;
			SetLatch(worker->latch);
		}
		if (worker->state == WORKER_IDLE || worker->state == WORKER_STARTING)
			woken++;
	}
	return woken;
}

/*
 * make_room: ask a worker of another role to leave: an idle one, or one of the
 * role that has most, after what it has claimed.  One at a time.  When the
 * server has no room, an idle one of another database will do.
 */
static void
make_room(Oid role, bool anywhere)
{
	WorkerSlot *chosen = NULL;
	int			most = 0;

	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];
		int			count;

		if (worker->state == WORKER_FREE || worker->state == WORKER_STARTING)
			continue;
		if (worker->database != MyDatabaseId ?
			!anywhere || worker->state != WORKER_IDLE || worker->leave :
			worker->role == role)
			continue;
		if (worker->leave)
			return;
		count = worker->state == WORKER_IDLE ? INT_MAX :
			count_workers(worker->role, false);
		if (count > most)
		{
			most = count;
			chosen = worker;
		}
	}
	if (chosen != NULL)
	{
		chosen->leave = true;
		SetLatch(chosen->latch);
	}
}

/*
 * send_surplus_away: when durable.max_workers has become less.
 */
static void
send_surplus_away(void)
{
	int			surplus;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	surplus = count_workers(InvalidOid, false) - durable_max_workers;
	for (int i = 0; i < Shared->nslots && surplus > 0; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->database != MyDatabaseId || worker->latch == NULL)
			continue;
		worker->leave = true;
		SetLatch(worker->latch);
		surplus--;
	}
	LWLockRelease(Shared->lock);
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
			make_room(role, false);
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
		if (count_workers(role, false) == 0)
			make_room(role, true);
		LWLockRelease(Shared->lock);
		no_room();
	}
	return started;
}

/*
 * is_passing: is this a moment's rush, which the workers there are will see
 * to before another could be started?
 *
 * Starting a process costs more than most instances.  If they are still there
 * a little later, another worker is needed.
 */
static bool
is_passing(Oid role, int unclaimed)
{
	static Oid	rushed = InvalidOid;
	static TimestampTz since = 0;
	TimestampTz now = GetCurrentTimestamp();
	int			workers;

	LWLockAcquire(Shared->lock, LW_SHARED);
	workers = count_workers(role, false);
	LWLockRelease(Shared->lock);
	if (workers == 0 || unclaimed > 2 * workers)
		return false;
	if (rushed != role || since < now - 10 * RUSH_MS * INT64CONST(1000))
	{
		rushed = role;
		since = now;
	}
	rush_until = since + RUSH_MS * INT64CONST(1000);
	return now < rush_until;
}

/*
 * serve_role: wake or start workers for instances nobody has claimed.
 */
static void
serve_role(Oid role, int unclaimed)
{
	char	   *reason = ProcessWhyNot(role);
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
	if (woken < unclaimed && no_room_until <= GetCurrentTimestamp() &&
		!is_refused(role) && !is_passing(role, unclaimed - woken))
	{
		int			i;

		LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
		i = reserve_slot(role);
		LWLockRelease(Shared->lock);
		if (i >= 0)
		{
			last_started = role;
			(void) start_worker(role, i);
		}
	}
}

/* ------------------------------------------------------------------
 * A turn
 * ------------------------------------------------------------------
 */

static void
wake_for_messages(const Asked *asked, bool sweep)
{
	if (asked->scan || sweep)
		DispatchAll(InvalidOid);
	else if (asked->nhints > 0)
		DispatchAmong(asked->hints, asked->nhints);
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

	/* durable_run has it, and will have done with it */
	if (iid != 0 && LeaseIsInHand(iid))
		iid = 0;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	/*
	 * One that nobody has yet gives way to one that comes before it: else the
	 * two would wait for each other, and all for them.
	 */
	if (iid != 0 && (Shared->solo_iid == 0 ||
					 (Shared->solo_database == MyDatabaseId && !has_solo())))
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
			need_worker = !has_solo() && !give_solo(role);
	}
	LWLockRelease(Shared->lock);
	if (need_worker)
		serve_role(role, 1);
}

/*
 * serve_roles: those without a worker first, and of these the ones after that
 * which was the last to get one: what becomes free goes round.
 */
static void
serve_roles(const RoleReady *roles, int nroles)
{
	bool	   *has_worker = palloc(sizeof(bool) * Max(nroles, 1));
	Oid			after = last_started;

	LWLockAcquire(Shared->lock, LW_SHARED);
	for (int i = 0; i < nroles; i++)
		has_worker[i] = count_workers(roles[i].role, false) > 0;
	LWLockRelease(Shared->lock);
	for (int round = 0; round < 3; round++)
	{
		for (int i = 0; i < nroles; i++)
		{
			int			turn = has_worker[i] ? 2 : roles[i].role <= after;

			if (turn == round)
				serve_role(roles[i].role, roles[i].unclaimed);
		}
	}
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
	sweep = sweep || asked.sweep;
	if (sweep)
	{
		LeaseReleaseStale(InvalidOid, !my_slot->has_run);
		/* who parked an instance may have died before its second look */
		ControlUnpark(NULL);
	}
	while (TimerFireDue(InvalidOid) > 0)
		;
	wake_for_messages(&asked, sweep);
	ProcessCommit();
	my_slot->has_run = true;
	my_slot->failures = 0;

	if (sweep)
	{
		ProcessBegin();
		(void) PinSweep();
		ProcessCommit();
	}
	ProcessBegin();
	MemoryContextSwitchTo(cxt);
	send_surplus_away();
	nroles = ReadyRoles(&roles);
	serve_roles(roles, nroles);
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
sleep_time(TimestampTz next, TimestampTz sweep_at)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = sweep_at;

	/*
	 * What is due and was not fired is locked by somebody: that can take any
	 * time.
	 */
	if (next != 0 && next <= now)
	{
		locked_ms = Min(Max(locked_ms * 2, 1), LOCKED_MAX_MS);
		next = now + locked_ms * INT64CONST(1000);
	}
	else
		locked_ms = 0;
	if (next != 0)
		until = Min(until, next);
	if (no_room_until > now)
		until = Min(until, no_room_until);
	if (rush_until > now)
		until = Min(until, rush_until);
	for (int i = 0; i < nrefused; i++)
	{
		if (refused[i].until > now)
			until = Min(until, refused[i].until);
	}

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->next_wake = until;
	LWLockRelease(Shared->lock);
	return until <= now ? 0 : (until - now + 999) / 1000;
}

/*
 * next_sweep: asked anew each time, the interval may have been reloaded.
 */
static TimestampTz
next_sweep(TimestampTz last)
{
	return last + durable_sweep_interval * INT64CONST(1000);
}

void
DurableSchedulerMain(Datum arg)
{
	MemoryContext cxt;
	TimestampTz last_sweep = 0;

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
		bool		sweep = free_dead_slots() || now >= next_sweep(last_sweep);
		TimestampTz next;

		if (sweep)
			last_sweep = now;
		MemoryContextReset(cxt);
		MemoryContextSwitchTo(cxt);
		next = turn(sweep);
		pgstat_report_stat(true);
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) ProcessSleep(WAIT_SCHEDULER, sleep_time(next, next_sweep(last_sweep)));
	}
}
