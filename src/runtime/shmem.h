/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  What our processes share.  All of it is hints: rows are the truth.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SHMEM_H
#define DURABLE_SHMEM_H

#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#define MAX_DATABASES		512
#define SCHEDULER_MAX_HINTS	64
#define RESULT_CONDITIONS	64
#define PROGRESS_MAX_MESSAGE	256

typedef enum SchedulerState
{
	SCHEDULER_UNKNOWN,			/* the database is to be probed */
	SCHEDULER_STARTING,
	SCHEDULER_RUNNING,
	SCHEDULER_ABSENT,			/* the database has no extension */
	SCHEDULER_FAILED,			/* try again at not_before */
	SCHEDULER_BARRED			/* until the command that barred it ends */
} SchedulerState;

/* One a database. */
typedef struct SchedulerSlot
{
	Oid			database;		/* InvalidOid: free */
	SchedulerState state;
	pid_t		pid;
	Latch	   *latch;
	TimestampTz not_before;
	int			failures;		/* one after another */
	bool		has_run;		/* since the server started */
	bool		probe_again;	/* the extension came or went meanwhile */

	bool		scan;			/* look at everything */
	bool		sweep;			/* a worker has left */
	TimestampTz next_wake;		/* when it will wake up by itself */
	int			nhints;
	int64		hints[SCHEDULER_MAX_HINTS]; /* chains with messages */
} SchedulerSlot;

typedef enum WorkerState
{
	WORKER_FREE,				/* no worker */
	WORKER_STARTING,
	WORKER_IDLE,
	WORKER_BUSY
} WorkerState;

typedef struct WorkerSlot
{
	WorkerState state;
	Oid			database;
	Oid			role;
	pid_t		pid;
	Latch	   *latch;
	bool		leave;			/* asked to make room */
	bool		failed;			/* ended before it was connected, or at work */
	bool		told_to_leave;	/* that was a SIGTERM */
	bool		woken;			/* told of work, and has not looked yet */
	int64		hint;			/* a chain with a message, for it; 0: none */
	int64		solo_iid;		/* to be run alone, 0: none */
	int64		iid;			/* the instance it runs, 0: none */
	int			progress_position;	/* of the activity that tells, 0: none */
	int64		progress_done;
	int64		progress_total; /* -1: not known */
	TimestampTz progress_at;
	char		progress_message[PROGRESS_MAX_MESSAGE];
	TimestampTz since;			/* when the state began */
} WorkerSlot;

typedef struct DurableShared
{
	LWLock	   *lock;			/* for all of this but the conditions */
	pid_t		launcher_pid;
	Latch	   *launcher_latch;
	int			nslots;			/* of workers */
	int64		solo_iid;		/* a suspect: nothing else is claimed */
	Oid			solo_database;
	SchedulerSlot *schedulers;
	WorkerSlot *workers;
	ConditionVariable ended[RESULT_CONDITIONS]; /* by chain or update */
} DurableShared;

/* NULL when the library is not preloaded. */
extern DurableShared *Shared;

extern void SharedInstall(void);
extern SchedulerSlot *SharedScheduler(Oid database);
extern void SharedSchedulerFailed(SchedulerSlot *slot);

#endif							/* DURABLE_SHMEM_H */
