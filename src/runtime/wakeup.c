/*-------------------------------------------------------------------------
 *
 * wakeup.c
 *	  Who is to be told when this transaction has committed.
 *
 * Notes are taken in the transaction and acted upon by a callback at its
 * commit, when its rows can be seen.  A note of a subtransaction that was
 * rolled back wakes somebody for nothing, which is harmless.  A note that is
 * lost (COMMIT PREPARED runs no callback, a crash) is made up for by the
 * scheduler's sweep.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"

#include "runtime/shmem.h"
#include "runtime/wakeup.h"

#define MAX_NOTED	64

static bool noted = false;
static Oid	ready_role = InvalidOid;	/* of the last one */
static bool scheduler_noted = false;	/* it has something to do */
static bool scan_noted = false; /* more than could be noted */
static bool launcher_noted = false;
static bool taken_noted = false;	/* an event that others wait for */
static TimestampTz timer_noted = 0; /* the earliest, 0: none */
static int	nmessages = 0;
static struct
{
	int64		chain;
	Oid			role;			/* of the instance, InvalidOid: not known */
}			messages[MAX_NOTED];
static int	nended = 0;
static int64 ended[MAX_NOTED];
static bool all_ended = false;
static int	ninterrupts = 0;
static int64 interrupts[MAX_NOTED];

static void
forget(void)
{
	noted = scheduler_noted = scan_noted = launcher_noted = all_ended = false;
	taken_noted = false;
	ready_role = InvalidOid;
	timer_noted = 0;
	ninterrupts = 0;
	nmessages = nended = 0;
}

/*
 * find_idle_worker: one of the role that has nothing to do.
 */
static WorkerSlot *
find_idle_worker(Oid role)
{
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state == WORKER_IDLE && worker->role == role &&
			worker->database == MyDatabaseId && !worker->woken &&
			worker->hint == 0 && !worker->leave)
			return worker;
	}
	return NULL;
}

/*
 * wake_worker: an idle worker of the role, so that nobody else is needed.  It
 * may be told of a message (0: none); then it does what the scheduler would.
 */
static bool
wake_worker(Oid role, int64 hint)
{
	WorkerSlot *worker = find_idle_worker(role);

	if (worker == NULL)
		return false;
	worker->woken = true;
	worker->hint = hint;
	SetLatch(worker->latch);
	return true;
}

/*
 * add_hint: to the scheduler's ring, or that it must look at everything.
 */
static void
add_hint(SchedulerSlot *scheduler, int64 chain)
{
	if (scheduler->nhints < SCHEDULER_MAX_HINTS)
		scheduler->hints[scheduler->nhints++] = chain;
	else
		scheduler->scan = true;
}

/*
 * tell_of_messages: idle workers first, who can take the instance at once,
 * then the scheduler; true if that has something to do.
 *
 * While a suspect runs alone no worker may take anything.
 */
static bool
tell_of_messages(SchedulerSlot *scheduler)
{
	bool		for_scheduler = scan_noted;

	if (scan_noted)
		scheduler->scan = true;
	for (int i = 0; i < nmessages && !scan_noted; i++)
	{
		if (OidIsValid(messages[i].role) && Shared->solo_iid == 0 &&
			wake_worker(messages[i].role, messages[i].chain))
			continue;
		add_hint(scheduler, messages[i].chain);
		for_scheduler = true;
	}
	return for_scheduler;
}

/*
 * interrupt: the worker that runs an instance.
 *
 * It tells which one that is under the lock, so the signal is there before it
 * can turn to another one.
 */
static void
interrupt(int64 iid)
{
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state == WORKER_BUSY && worker->iid == iid &&
			worker->database == MyDatabaseId && worker->pid != 0)
			kill(worker->pid, SIGINT);
	}
}

static void
wake_all(void)
{
	SchedulerSlot *scheduler;
	bool		for_scheduler = scheduler_noted;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	if (OidIsValid(ready_role) && !wake_worker(ready_role, 0))
		for_scheduler = true;
	for (int i = 0; i < ninterrupts; i++)
		interrupt(interrupts[i]);
	scheduler = SharedScheduler(MyDatabaseId);
	if (scheduler != NULL && scheduler->latch != NULL)
	{
		if (tell_of_messages(scheduler))
			for_scheduler = true;
		if (timer_noted != 0 && timer_noted < scheduler->next_wake)
			for_scheduler = true;
		if (for_scheduler)
			SetLatch(scheduler->latch);
	}
	if (launcher_noted && scheduler != NULL)
	{
		scheduler->probe_again = true;
		if (scheduler->state == SCHEDULER_ABSENT)
			scheduler->state = SCHEDULER_UNKNOWN;
	}
	if (launcher_noted && Shared->launcher_latch != NULL)
		SetLatch(Shared->launcher_latch);
	LWLockRelease(Shared->lock);

	for (int i = 0; i < (all_ended ? RESULT_CONDITIONS : nended); i++)
		ConditionVariableBroadcast(&Shared->ended[(all_ended ? i : ended[i]) % RESULT_CONDITIONS]);
}

/*
 * wake_for_untaken: an event for one of several is there again, and those who
 * passed it over wait.
 */
static void
wake_for_untaken(void)
{
	SchedulerSlot *scheduler;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	scheduler = SharedScheduler(MyDatabaseId);
	if (scheduler != NULL && scheduler->latch != NULL)
	{
		add_hint(scheduler, 0);
		SetLatch(scheduler->latch);
	}
	LWLockRelease(Shared->lock);
}

static void
on_transaction_event(XactEvent event, void *arg)
{
	if (!noted)
		return;
	if (event == XACT_EVENT_COMMIT)
		wake_all();
	else if (event == XACT_EVENT_ABORT && taken_noted)
		wake_for_untaken();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		forget();
}

/*
 * WakeupInstall: be told of commits.
 */
void
WakeupInstall(void)
{
	RegisterXactCallback(on_transaction_event, NULL);
}

/*
 * WakeupReady: an instance of a role can be run.
 */
void
WakeupReady(Oid role)
{
	if (Shared == NULL)
		return;
	noted = true;
	/* several: the scheduler shares them out */
	if (OidIsValid(ready_role))
		scheduler_noted = true;
	ready_role = role;
}

/*
 * WakeupMessage: a chain of runs has got a message.
 */
void
WakeupMessage(int64 chain)
{
	WakeupMessageTo(chain, InvalidOid);
}

/*
 * WakeupMessageTo: the same when the role of its instances is known, or
 * guessed: a worker of that role sees for itself.
 */
void
WakeupMessageTo(int64 chain, Oid role)
{
	if (Shared == NULL)
		return;
	noted = true;
	/* one look is for all messages of a chain */
	for (int i = nmessages - 1; i >= 0; i--)
	{
		if (messages[i].chain == chain)
			return;
	}
	if (nmessages == MAX_NOTED)
	{
		scan_noted = true;
		return;
	}
	messages[nmessages].chain = chain;
	messages[nmessages++].role = role;
}

/*
 * WakeupTaken: an event that several compete for is taken, unless this
 * transaction is rolled back.
 */
void
WakeupTaken(void)
{
	if (Shared == NULL)
		return;
	noted = taken_noted = true;
}

/*
 * WakeupTimer: somebody must look at that time.
 */
void
WakeupTimer(TimestampTz wake_at)
{
	if (Shared == NULL)
		return;
	noted = true;
	if (timer_noted == 0 || wake_at < timer_noted)
		timer_noted = wake_at;
}

/*
 * WakeupEnded: a chain of runs, or an update, has come to its end.
 */
void
WakeupEnded(int64 number)
{
	if (Shared == NULL)
		return;
	noted = true;
	if (nended < MAX_NOTED)
		ended[nended++] = number;
	else
		all_ended = true;
}

/*
 * WakeupQueueNumber: what those who wait for a task of the queue wait for.
 */
int64
WakeupQueueNumber(const char *queue)
{
	return hash_bytes((const unsigned char *) queue, strlen(queue));
}

/*
 * WakeupAllEnded: whoever waits for something is to look.
 */
void
WakeupAllEnded(void)
{
	if (Shared == NULL)
		return;
	noted = all_ended = true;
}

/*
 * WakeupScan: more has become ready than can be told.
 */
void
WakeupScan(void)
{
	if (Shared == NULL)
		return;
	noted = scan_noted = true;
}

/*
 * WakeupInterrupt: what an instance is doing is not to go on.
 */
void
WakeupInterrupt(int64 iid)
{
	if (Shared == NULL)
		return;
	noted = true;
	/* who is not interrupted stops at its next primitive */
	if (ninterrupts < MAX_NOTED)
		interrupts[ninterrupts++] = iid;
}

/*
 * WakeupLauncher: an extension or a database came or went.
 */
void
WakeupLauncher(void)
{
	if (Shared == NULL)
		return;
	noted = launcher_noted = scheduler_noted = true;
}
