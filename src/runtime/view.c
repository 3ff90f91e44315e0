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

/*
 * durable_workers: our processes of this database, and the launcher.
 */
Datum
durable_workers(PG_FUNCTION_ARGS)
{
	static const char *const states[] = {"free", "starting", "idle", "busy"};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SchedulerSlot *scheduler;

	InitMaterializedSRF(fcinfo, 0);
	if (Shared == NULL)
		return (Datum) 0;
	LWLockAcquire(Shared->lock, LW_SHARED);
	if (Shared->launcher_pid != 0)
		add_row(result, Shared->launcher_pid, "launcher", InvalidOid, "idle", 0);
	scheduler = SharedScheduler(MyDatabaseId);
	if (scheduler != NULL && scheduler->pid != 0)
		add_row(result, scheduler->pid, "scheduler", InvalidOid, "idle", 0);
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state != WORKER_FREE && worker->database == MyDatabaseId)
			add_row(result, worker->pid, "worker", worker->role,
					states[worker->state], worker->since);
	}
	LWLockRelease(Shared->lock);
	return (Datum) 0;
}

/*
 * durable_progress_of_all: what the activities that run in this database tell
 * of themselves.
 */
Datum
durable_progress_of_all(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	if (Shared == NULL)
		return (Datum) 0;
	LWLockAcquire(Shared->lock, LW_SHARED);
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];
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

		if (worker->state == WORKER_BUSY && worker->database == MyDatabaseId &&
			worker->iid != 0 && worker->progress_position != 0)
			tuplestore_putvalues(result->setResult, result->setDesc, values,
								 nulls);
	}
	LWLockRelease(Shared->lock);
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
