/*-------------------------------------------------------------------------
 *
 * work.c
 *	  Driving by SQL: durable_work and durable_run.
 *
 * Both run only instances of the session's own role: user's code never runs
 * in a session that has, or had, more rights.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/async.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/portal.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "engine/drive.h"
#include "engine/pin.h"
#include "engine/replay.h"
#include "runtime/dispatch.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "runtime/wakeup.h"
#include "runtime/work.h"
#include "storage/storage.h"

PG_FUNCTION_INFO_V1(durable_work);
PG_FUNCTION_INFO_V1(durable_run);
PG_FUNCTION_INFO_V1(durable_worker);

static void
check_driver(const char *function)
{
	if (CurrentContext != CONTEXT_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("%s() cannot be called in a workflow or an activity",
						function),
				 errhint("Start other instances with durable_start(); they run on their own.")));
	ClientEnter(function);
	if (!ClientIsOwnSession())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("%s() needs a session of the role itself", function),
				 errdetail("The session was opened by \"%s\", the current user is \"%s\".",
						   GetUserNameFromId(GetAuthenticatedUserId(), false),
						   GetUserNameFromId(GetUserId(), false)),
				 errhint("Connect as the role that the instances run as. SET ROLE and SET SESSION AUTHORIZATION are not enough: the code could undo them.")));
}

/* ------------------------------------------------------------------
 * CALL durable_work
 * ------------------------------------------------------------------
 */

/*
 * check_can_commit: durable_work must be called by the client itself.
 */
static void
check_can_commit(FunctionCallInfo fcinfo)
{
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic ||
		SPI_inside_nonatomic_context())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("durable_work() must be called outside of transactions, functions and other procedures"),
				 errdetail("It commits after each step."),
				 errhint("Say CALL durable_work() alone, or use durable_run(id), which runs in your transaction.")));
}

WorkerSlot *WorkSlot = NULL;
int64		WorkHint = 0;

/* How many instances are claimed together, at the most, and from when on. */
#define MAX_CLAIMED			8
#define CLAIMS_FOR_ONE_MORE	16

/*
 * WorkSoloEnd: the suspect that ran alone is done, and the others go on.
 */
void
WorkSoloEnd(WorkerSlot *slot)
{
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	if (slot->solo_iid != 0)
	{
		slot->solo_iid = 0;
		Shared->solo_iid = 0;
		for (int i = 0; i < MAX_DATABASES; i++)
		{
			if (Shared->schedulers[i].latch != NULL)
				SetLatch(Shared->schedulers[i].latch);
		}
	}
	LWLockRelease(Shared->lock);
}

/*
 * claim_hinted: the instance that we were told has a message, if it waits for
 * that.  What this cannot be decided for is the scheduler's, at our commit.
 */
static bool
claim_hinted(Oid role, int64 **iids)
{
	int64		chain = WorkHint;
	int64		iid = 0;
	MessageMeans means = MESSAGE_FOR_SCHEDULER;

	WorkHint = 0;
	if (WorkSlot->solo_iid == 0 && Shared->solo_iid == 0)
		means = MessageLook(chain, role, &iid);
	/* durable_run has it: to insert would be to wait for its transaction */
	if (means == MESSAGE_WAKES && LeaseIsInHand(iid))
		means = MESSAGE_FOR_SCHEDULER;
	if (means == MESSAGE_FOR_SCHEDULER)
		WakeupMessage(chain);
	if (means != MESSAGE_WAKES || !ReadyClaimWaiting(iid, LeaseTake()))
		return false;
	*iids = palloc(sizeof(int64));
	(*iids)[0] = iid;
	return true;
}

/*
 * leave_if_locked_out: a role that may not run any more since this worker was
 * started has its instances held, which is the scheduler's.  It looks at them
 * all when we have left, also at the one that we were told of.
 */
static bool
leave_if_locked_out(Oid role)
{
	if (WorkSlot == NULL)
		return false;
	/* the change may have come after the begin of our transaction */
	AcceptInvalidationMessages();
	if (ProcessWhyNot(role) == NULL)
		return false;
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	WorkSlot->leave = true;
	LWLockRelease(Shared->lock);
	return true;
}

/*
 * claim_any: the next instances, unless one is to run alone.
 *
 * One at a time, and more the longer the queue does not run dry: those that
 * are claimed together share a commit, but wait for each other.  Without the
 * background runtime suspects are run like all others.
 */
static int
claim_any(Oid role, int64 done, int64 **iids)
{
	if (leave_if_locked_out(role))
		return 0;
	if (WorkHint != 0 && claim_hinted(role, iids))
		return 1;
	if (WorkSlot != NULL && WorkSlot->solo_iid != 0)
	{
		*iids = palloc(sizeof(int64));
		(*iids)[0] = WorkSlot->solo_iid;
		return ReadyClaimOne((*iids)[0], LeaseTake()) ? 1 : 0;
	}
	if (Shared != NULL && Shared->solo_iid != 0)
		return 0;
	return ReadyClaim(role, LeaseTake(), Shared == NULL,
					  Min(1 + done / CLAIMS_FOR_ONE_MORE, MAX_CLAIMED), iids);
}

/*
 * claim: take instances, for good before any of their code runs.
 */
static int
claim(Transactions *tx, Oid role, int64 done, int64 **iids)
{
	int			count = claim_any(role, done, iids);

	if (count > 0)
	{
		/* lost with a crash, the claim could not tell of it */
		ForceSyncCommit();
		TransactionCommit(tx);
	}
	return count;
}

/*
 * clean_session: what an instance left in a worker's session must not meet
 * the next one.
 *
 * Its advisory locks can only be dropped together with the one of our lease.
 * Should somebody look just then, the rest of what we claimed together is
 * taken over, and the fence keeps us from it.
 */
static void
clean_session(void)
{
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	Async_UnlistenAll();
	LockReleaseSession(USER_LOCKMETHOD);
	(void) LeaseConfirm(LeaseTake());
	ResetTempTableNamespace();
	ResetSequenceCaches();
}

/*
 * find_work: what has become runnable since the last look.
 */
static void
find_work(Transactions *tx, Oid role)
{
	LeaseReleaseStale(role, false);
	ControlUnpark(NULL);
	TransactionCommit(tx);
	while (TimerFireDue(role) > 0)
		TransactionCommit(tx);
	DispatchAll(role);
	TransactionCommit(tx);
	if (PinSweep())
		TransactionCommit(tx);
}

/*
 * show_instance: who wants to interrupt an instance looks for its worker.
 */
static void
show_instance(int64 iid)
{
	if (WorkSlot == NULL)
		return;
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	WorkSlot->iid = iid;
	WorkSlot->progress_position = 0;
	LWLockRelease(Shared->lock);
}

/*
 * WorkShowProgress: how far the activity is.  Only workers can be seen.
 */
void
WorkShowProgress(int position, int64 done, int64 total, const char *message)
{
	if (WorkSlot == NULL)
		return;
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	WorkSlot->progress_position = position;
	WorkSlot->progress_done = done;
	WorkSlot->progress_total = total;
	WorkSlot->progress_at = GetCurrentTimestamp();
	strlcpy(WorkSlot->progress_message, message,
			pg_mbcliplen(message, strlen(message), PROGRESS_MAX_MESSAGE - 1) + 1);
	LWLockRelease(Shared->lock);
}

/*
 * work_some: claim and drive; how many there were.
 */
static int
work_some(Transactions *tx, Oid role, int64 done)
{
	int64	   *iids;
	int			count = claim(tx, role, done, &iids);

	for (int i = 0; i < count; i++)
	{
		show_instance(iids[i]);
		DriveInstance(tx, iids[i], LeaseTake());
		show_instance(0);
		if (WorkSlot == NULL)
			continue;
		clean_session();
		/* an abort in the next one must not bring it back */
		TransactionCommit(tx);
	}
	/* a suspect that could not be claimed is somebody else's by now */
	if (WorkSlot != NULL)
		WorkSoloEnd(WorkSlot);
	return count;
}

/*
 * work: drive until nothing can run, or that many activations are done.
 *
 * A worker does not look for what could become ready: that is the
 * scheduler's.
 */
static void
work(int64 max_instances)
{
	MemoryContext cxt = CurrentMemoryContext;
	MemoryContext turn = AllocSetContextCreate(cxt, "durable work",
											   ALLOCSET_SMALL_SIZES);
	Oid			role = GetUserId();
	Transactions tx;
	int64		done = 0;
	int64		done_before;

	MemoryContextSwitchTo(turn);
	TransactionsOpen(&tx, false);
	do
	{
		done_before = done;
		if (!IsDurableWorker)
			find_work(&tx, role);
		while (done < max_instances)
		{
			int			count = work_some(&tx, role, done - done_before);

			if (count == 0)
				break;
			done += count;
			MemoryContextReset(turn);
			/* another role's turn, once something was done for this one */
			if (WorkSlot != NULL && (WorkSlot->leave || PinHasMetMany()))
				max_instances = done;
		}
	} while (done > done_before && done < max_instances);
	TransactionsClose(&tx);
	MemoryContextSwitchTo(cxt);
	MemoryContextDelete(turn);
}

/*
 * drive: work, and leave all in order however it ends.
 */
static void
drive(int64 max_instances)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext,
											  "durable driver",
											  ALLOCSET_DEFAULT_SIZES);

	ContextSet(CONTEXT_ENGINE);
	PG_TRY();
	{
		MemoryContextSwitchTo(cxt);
		work(max_instances);
	}
	PG_FINALLY();
	{
		ContextSet(CONTEXT_NONE);
		CurrentActivation = NULL;
		/* what we leave unfinished is stale from now on, and taken by others */
		if (!IsDurableWorker)
			LeaseDrop();
		MemoryContextSwitchTo(caller);
		MemoryContextDelete(cxt);
	}
	PG_END_TRY();
}

/*
 * durable_work: run all that can run now, a commit after each step.
 */
Datum
durable_work(PG_FUNCTION_ARGS)
{
	int64		max_instances = PG_ARGISNULL(0) ? PG_INT64_MAX : PG_GETARG_INT32(0);

	check_driver("durable_work");
	check_can_commit(fcinfo);
	if (max_instances < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_instances must be at least 1")));
	drive(max_instances);
	PG_RETURN_VOID();
}

/*
 * durable_worker: the same, called by a worker.
 */
Datum
durable_worker(PG_FUNCTION_ARGS)
{
	if (!IsDurableWorker)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("only a worker can call this procedure"),
				 errhint("CALL durable_work().")));
	check_can_commit(fcinfo);
	drive(PG_INT64_MAX);
	PG_RETURN_VOID();
}

/* ------------------------------------------------------------------
 * durable_run
 * ------------------------------------------------------------------
 */

static void
check_can_run(const InstanceRow *instance)
{
	if (instance->run_as != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("instance \"%s\" runs as role \"%s\"", instance->id,
						instance->run_as_name),
				 errhint("Connect as that role.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("durable_run() needs isolation level READ COMMITTED"),
				 errhint("Begin the transaction with that level, or CALL durable_work().")));
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("durable_run() cannot run in a read-only transaction"),
				 errhint("Begin the transaction with READ WRITE.")));
}

/*
 * is_too_early: a start or another try that is for later.
 */
static bool
is_too_early(const InstanceRow *instance)
{
	return strcmp(instance->status, "pending") == 0 &&
		instance->wake_at > GetCurrentTimestamp();
}

static void
refuse_running(const InstanceRow *instance)
{
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_WRONG_STATE),
			 errmsg("instance \"%s\" is being run by another session",
					instance->id),
			 errhint("The view durable.leases shows what is running.")));
}

/*
 * take: make the instance ours until the end of the transaction.
 */
static void
take(const InstanceRow *instance)
{
	if (instance->lease != 0 && !LeaseIsAlive(instance->lease))
		ReadyReleaseAll(instance->lease);
	if (!LeaseTakeInHand(instance->iid))
		refuse_running(instance);
	/* in the order of locks: see queue.c */
	if (instance->wake_at != 0)
		TimerClear(instance->iid);
	ReadyInsert(instance->iid);
	if (!ReadyClaimOne(instance->iid, LEASE_INSIDE))
		refuse_running(instance);
}

static void
run(int64 iid)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext cxt;
	Transactions tx;

	cxt = AllocSetContextCreate(CurTransactionContext, "durable driver",
								ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(cxt);
	TransactionsOpen(&tx, true);
	ContextSet(CONTEXT_ENGINE);
	PG_TRY();
	{
		/* constraints of the caller that fail are not a step's fault */
		TransactionFireDeferred(&tx);
		DriveInstance(&tx, iid, LEASE_INSIDE);
		TransactionsClose(&tx);
	}
	PG_CATCH();
	{
		ContextSet(CONTEXT_NONE);
		CurrentActivation = NULL;
		/* whoever catches this must find its own transaction, not ours */
		TransactionsLeave(&tx);
		MemoryContextSwitchTo(caller);
		PG_RE_THROW();
	}
	PG_END_TRY();
	ContextSet(CONTEXT_NONE);
	CurrentActivation = NULL;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(cxt);
}

/*
 * durable_run: run one instance as far as it gets, in this transaction.
 */
Datum
durable_run(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	InstanceRow *instance;

	check_driver("durable_run");
	instance = ClientFindInstance(id);
	check_can_run(instance);
	if (!instance->ended && !instance->suspended && !is_too_early(instance))
	{
		take(instance);
		run(instance->iid);
		/* others passed it over while we had it: let them look again */
		WakeupMessage(instance->chain);
		/* and what it took and gave back, in a part that was rolled back */
		WakeupMessage(0);
		/* it may have continued as new */
		instance = ClientFindInstance(id);
	}
	PG_RETURN_TEXT_P(cstring_to_text(instance->status));
}
