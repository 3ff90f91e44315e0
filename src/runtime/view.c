/*-------------------------------------------------------------------------
 *
 * view.c
 *	  What the view of workers shows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "runtime/lease.h"
#include "runtime/shmem.h"

PG_FUNCTION_INFO_V1(durable_workers);
PG_FUNCTION_INFO_V1(durable_lease_alive);
PG_FUNCTION_INFO_V1(durable_progress_of_all);

static void
add_row(ReturnSetInfo *result, int pid, const char *kind, Oid role,
		const char *state, TimestampTz since)
{
	Datum		values[5] = {
		Int32GetDatum(pid), CStringGetTextDatum(kind), ObjectIdGetDatum(role),
		CStringGetTextDatum(state), TimestampTzGetDatum(since)
	};
	bool		nulls[5] = {
		[2] = !OidIsValid(role), [4] = since == 0
	};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* What is shown, taken all at once: a row may have to wait for a file. */
typedef struct Processes
{
	pid_t		launcher;		/* 0: none */
	pid_t		scheduler;		/* likewise, of this database */
	int			nslots;
	WorkerSlot *workers;
} Processes;

static void
read_processes(Processes *processes)
{
	SchedulerSlot *scheduler;

	processes->nslots = Shared->nslots;
	processes->workers = palloc(sizeof(WorkerSlot) * Shared->nslots);
	LWLockAcquire(Shared->lock, LW_SHARED);
	scheduler = SharedScheduler(MyDatabaseId);
	processes->launcher = Shared->launcher_pid;
	processes->scheduler = scheduler != NULL ? scheduler->pid : 0;
	memcpy(processes->workers, Shared->workers,
		   sizeof(WorkerSlot) * Shared->nslots);
	LWLockRelease(Shared->lock);
}

/*
 * durable_workers: our processes of this database, and the launcher.
 */
Datum
durable_workers(PG_FUNCTION_ARGS)
{
	static const char *const states[] = {"free", "starting", "idle", "busy"};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Processes	processes;

	InitMaterializedSRF(fcinfo, 0);
	if (Shared == NULL)
		return (Datum) 0;
	read_processes(&processes);
	if (processes.launcher != 0)
		add_row(result, processes.launcher, "launcher", InvalidOid, "idle", 0);
	if (processes.scheduler != 0)
		add_row(result, processes.scheduler, "scheduler", InvalidOid, "idle", 0);
	for (int i = 0; i < processes.nslots; i++)
	{
		WorkerSlot *worker = &processes.workers[i];

		if (worker->state != WORKER_FREE && worker->database == MyDatabaseId)
			add_row(result, worker->pid, "worker", worker->role,
					states[worker->state], worker->since);
	}
	return (Datum) 0;
}

static void
add_progress(ReturnSetInfo *result, const WorkerSlot *worker)
{
	Datum		values[7] = {
		Int32GetDatum(worker->pid), Int64GetDatum(worker->iid),
		Int32GetDatum(worker->progress_position),
		Int64GetDatum(worker->progress_done),
		Int64GetDatum(worker->progress_total),
		CStringGetTextDatum(worker->progress_message),
		TimestampTzGetDatum(worker->progress_at)
	};
	bool		nulls[7] = {
		[4] = worker->progress_total < 0,
		[5] = worker->progress_message[0] == '\0'
	};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * durable_progress_of_all: what the activities that run in this database tell
 * of themselves.
 */
Datum
durable_progress_of_all(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Processes	processes;

	InitMaterializedSRF(fcinfo, 0);
	if (Shared == NULL)
		return (Datum) 0;
	read_processes(&processes);
	for (int i = 0; i < processes.nslots; i++)
	{
		WorkerSlot *worker = &processes.workers[i];

		if (worker->state == WORKER_BUSY && worker->database == MyDatabaseId &&
			worker->iid != 0 && worker->progress_position != 0)
			add_progress(result, worker);
	}
	return (Datum) 0;
}

/*
 * durable_lease_alive: does a process hold this lease?
 */
Datum
durable_lease_alive(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(LeaseIsAlive(PG_GETARG_INT64(0)));
}
