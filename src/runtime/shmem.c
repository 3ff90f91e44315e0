/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  What our processes share.
 *
 * One lock for all, held for a look or a change of a few fields, never while
 * anything else is waited for.  Latches are those of the processes; a process
 * takes its own out of its slot before it exits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "runtime/shmem.h"

DurableShared *Shared = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static Size
schedulers_offset(void)
{
	return MAXALIGN(sizeof(DurableShared));
}

static Size
workers_offset(void)
{
	return schedulers_offset() +
		MAXALIGN(sizeof(SchedulerSlot) * MAX_DATABASES);
}

static Size
shared_size(void)
{
	return workers_offset() +
		MAXALIGN(sizeof(WorkerSlot) * max_worker_processes);
}

static void
on_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche("durable", 1);
}

static void
on_shmem_startup(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	Shared = ShmemInitStruct("durable", shared_size(), &found);
	if (!found)
	{
		memset(Shared, 0, shared_size());
		Shared->lock = &(GetNamedLWLockTranche("durable"))->lock;
		Shared->nslots = max_worker_processes;
		Shared->schedulers = (SchedulerSlot *) ((char *) Shared + schedulers_offset());
		Shared->workers = (WorkerSlot *) ((char *) Shared + workers_offset());
		for (int i = 0; i < RESULT_CONDITIONS; i++)
			ConditionVariableInit(&Shared->ended[i]);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * SharedInstall: ask for the memory, when the library is preloaded.
 */
void
SharedInstall(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = on_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = on_shmem_startup;
}

/* How soon a scheduler that failed may be started again: twice that each time. */
#define RESTART_MS		500
#define MAX_RESTART_MS	60000

/*
 * SharedSchedulerFailed: its scheduler is gone.  Shared->lock is held.
 */
void
SharedSchedulerFailed(SchedulerSlot *slot)
{
	int64		delay = RESTART_MS << Min(slot->failures, 10);

	slot->state = SCHEDULER_FAILED;
	slot->failures++;
	slot->not_before = GetCurrentTimestamp() +
		Min(delay, MAX_RESTART_MS) * INT64CONST(1000);
}

/*
 * SharedScheduler: the slot of a database, or NULL.  Shared->lock is held.
 */
SchedulerSlot *
SharedScheduler(Oid database)
{
	for (int i = 0; i < MAX_DATABASES; i++)
	{
		if (Shared->schedulers[i].database == database)
			return &Shared->schedulers[i];
	}
	return NULL;
}
