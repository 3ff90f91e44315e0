/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  A worker runs the instances of one role, connected as that role.
 *
 * It is durable_work() in a loop: the same driver, under a portal as a
 * client's CALL would have it.  When it leaves in any way but a crash, it
 * gives back what it had claimed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/cmdtag.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/syscache.h"

#include "compat.h"
#include "durable.h"
#include "engine/pin.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "runtime/shmem.h"
#include "runtime/work.h"
#include "storage/storage.h"

static WorkerSlot *my_slot;

/* Somebody wants us to leave; it may be the role's own code, again and again. */
static volatile sig_atomic_t told_to_leave = false;

static void
on_sigterm(SIGNAL_ARGS)
{
	told_to_leave = true;
	die(postgres_signal_arg);
}

/*
 * worker_exit: make room.  What we had claimed was given back before
 * (lease.c), or is stale now.
 *
 * The server tells the scheduler that started us; this may be another one.  It
 * looks at everything, and so at what we were told of and did not get to.
 */
static void
worker_exit(int code, Datum arg)
{
	SchedulerSlot *scheduler;

	LeaseDrop();
	WorkSoloEnd(my_slot);
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	scheduler = SharedScheduler(my_slot->database);
	if (scheduler != NULL)
	{
		scheduler->sweep = true;
		if (scheduler->latch != NULL)
			SetLatch(scheduler->latch);
	}
	my_slot->failed = my_slot->state == WORKER_STARTING ||
		(my_slot->state == WORKER_BUSY && code != 0);
	my_slot->told_to_leave = told_to_leave;
	my_slot->state = WORKER_FREE;
	my_slot->hint = 0;
	my_slot->latch = NULL;
	my_slot->pid = 0;
	LWLockRelease(Shared->lock);
}

/*
 * take_slot: the one that we were started for.  Who comes up so late that it was
 * given up (free_dead_slots) finds it free, or with another one: two in one slot
 * would take each other's state and latch.
 */
static void
take_slot(int i)
{
	WorkerSlot *slot = &Shared->workers[i];
	bool		is_ours;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	is_ours = slot->state == WORKER_STARTING && slot->pid == 0;
	if (is_ours)
		slot->pid = MyProcPid;
	LWLockRelease(Shared->lock);
	if (!is_ours)
		proc_exit(0);
	my_slot = slot;
	before_shmem_exit(worker_exit, (Datum) 0);
}

static void
set_state(WorkerState state)
{
	SchedulerSlot *scheduler;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->state = state;
	my_slot->since = GetCurrentTimestamp();
	/* a suspect waits for all to be idle */
	scheduler = SharedScheduler(Shared->solo_database);
	if (state == WORKER_IDLE && Shared->solo_iid != 0 &&
		scheduler != NULL && scheduler->latch != NULL)
		SetLatch(scheduler->latch);
	/* told of more than what we found: others have to look too */
	scheduler = SharedScheduler(my_slot->database);
	if (state == WORKER_BUSY && my_slot->woken &&
		scheduler != NULL && scheduler->latch != NULL)
		SetLatch(scheduler->latch);
	my_slot->woken = false;
	/* told to the idle only, so none comes between */
	if (state == WORKER_BUSY)
	{
		WorkHint = my_slot->hint;
		my_slot->hint = 0;
	}
	LWLockRelease(Shared->lock);
}

/*
 * find_procedure: durable_internal.worker(), which the role could not name.
 */
static Oid
find_procedure(void)
{
	Oid			namespace = get_namespace_oid("durable_internal", true);
	oidvector  *no_arguments = buildoidvector(NULL, 0);
	Oid			procedure;

	procedure = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
								CStringGetDatum("worker"),
								PointerGetDatum(no_arguments),
								ObjectIdGetDatum(namespace));
	if (!OidIsValid(procedure))
		proc_exit(0);
	return procedure;
}

static PlannedStmt *
make_call(Oid procedure)
{
	PlannedStmt *statement = makeNode(PlannedStmt);
	CallStmt   *call = makeNode(CallStmt);

	call->funcexpr = makeFuncExpr(procedure, VOIDOID, NIL, InvalidOid,
								  InvalidOid, COERCE_EXPLICIT_CALL);
	statement->commandType = CMD_UTILITY;
	statement->canSetTag = true;
	statement->utilityStmt = (Node *) call;
	return statement;
}

/*
 * run_call: CALL durable_internal.worker(), as a client would.
 */
static void
run_call(MemoryContext cxt)
{
	Portal		portal;
	PlannedStmt *statement;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "CALL durable_work()");
	debug_query_string = "CALL durable_work()";
	MemoryContextSwitchTo(cxt);
	statement = make_call(find_procedure());
	portal = CreateNewPortal();
	portal->visible = false;
	PortalDefineQuery(portal, NULL, "CALL durable_work()", CMDTAG_CALL,
					  list_make1(statement), NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	(void) compat_portal_run(portal, None_Receiver, NULL);
	PortalDrop(portal, false);
	CommitTransactionCommand();
	debug_query_string = NULL;
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * has_work: looked at after we said that we are idle, so that whoever made
 * something ready since either finds us idle, or is found by us.
 */
static bool
has_work(void)
{
	bool		found;

	if (my_slot->hint != 0)
		return true;
	ProcessBegin();
	found = my_slot->solo_iid != 0 ||
		(Shared->solo_iid == 0 && StorageInstalled() && ReadyHas(my_slot->role));
	ProcessCommit();
	return found;
}

/*
 * may_stay: is this the last worker of its role?  If not it leaves, and is not
 * counted by the others any more.
 */
static bool
may_stay(void)
{
	bool		last = true;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker != my_slot && worker->state != WORKER_FREE &&
			!worker->leave && worker->database == my_slot->database &&
			worker->role == my_slot->role)
			last = false;
	}
	if (!last)
		my_slot->leave = true;
	LWLockRelease(Shared->lock);
	return last;
}

/*
 * rest: until there is something to do.  False: it is time to leave.
 */
static bool
rest(void)
{
	long		timeout = durable_worker_idle_timeout;
	TimestampTz since = GetCurrentTimestamp();

	while (!my_slot->leave && !PinHasMetMany())
	{
		long		waited = (GetCurrentTimestamp() - since) / 1000;

		/* what is made ready from now on wakes us again */
		my_slot->woken = false;
		if (has_work())
			return true;
		if (waited >= timeout && !may_stay())
			return false;
		if (waited >= timeout)
			timeout = durable_worker_idle_timeout * 10L;
		if (waited >= timeout)
			return false;
		/* who wakes us has something, mostly; the claim will tell */
		if (ProcessSleep(WAIT_WORKER, timeout - waited) && !my_slot->leave)
		{
			my_slot->woken = false;
			return true;
		}
	}
	return false;
}

/*
 * undo_role_settings: settings of the role that are for its clients, not for
 * the engine: another current user, and times after which the server would
 * end a transaction or a wait of ours.
 */
static void
undo_role_settings(void)
{
	static const char *const settings[][2] = {
		{"role", "none"}, {"lock_timeout", "0"}, {"transaction_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"exit_on_error", "off"}
	};

	for (int i = 0; i < lengthof(settings); i++)
	{
		if (GetConfigOption(settings[i][0], true, false) != NULL)
			SetConfigOption(settings[i][0], settings[i][1], PGC_USERSET,
							PGC_S_SESSION);
	}
}

void
DurableWorkerMain(Datum arg)
{
	MemoryContext cxt;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, on_sigterm);
	BackgroundWorkerUnblockSignals();

	take_slot(DatumGetInt32(arg));
	IsDurableWorker = true;
	WorkSlot = my_slot;
	BackgroundWorkerInitializeConnectionByOid(my_slot->database, my_slot->role,
											  COMPAT_WORKER_FLAGS);
	undo_role_settings();
	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	my_slot->state = WORKER_BUSY;
	my_slot->latch = MyLatch;
	LWLockRelease(Shared->lock);

	cxt = AllocSetContextCreate(TopMemoryContext, "durable worker",
								ALLOCSET_DEFAULT_SIZES);
	do
	{
		set_state(WORKER_BUSY);
		MemoryContextReset(cxt);
		run_call(cxt);
		MemoryContextSwitchTo(TopMemoryContext);
		set_state(WORKER_IDLE);
	} while (rest());
	proc_exit(0);
}
