/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Leases: the right of a driver to run instances, alive as long as its
 *	  process is.
 *
 * A driver has an incarnation number and holds one session-level advisory
 * lock on it, in a class of locks of our own.  The rows of ready that it runs
 * carry the number.  A process that is gone holds no lock: whoever gets the
 * lock in share mode knows that all rows of that number are stale.
 *
 * The lock tells who is alive, no more.  User's code can drop it
 * (pg_advisory_unlock_all), so it is confirmed after user's code; what keeps
 * two executors of one instance apart is the key of the history and the
 * number in the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/inval.h"

#include "compat.h"
#include "durable.h"
#include "engine/replay.h"
#include "engine/step.h"
#include "runtime/lease.h"
#include "runtime/process.h"
#include "storage/storage.h"

/*
 * The classes of our locks: SQL's advisory locks are of class 1 and 2, those
 * of storage/event.c of class 0x4459.
 */
#define LEASE_LOCK_CLASS	0x4457	/* key: the lease */
#define INSTANCE_LOCK_CLASS	0x4458	/* key: the iid */
#define PIN_LOCK_CLASS		0x445A	/* key: hash of the name */

/*
 * The upper bits of a lease are the timeline it was taken on: a lease of
 * another one tells of a failover, not of a crash.
 */
#define TIMELINE_SHIFT	40

static int64 my_lease = 0;
static bool exit_registered = false;

/* An instance that ends this process, and why it is to be held. */
static int64 condemned_iid = 0;
static const char *condemned_reason = NULL;

static void
set_tag(LOCKTAG *tag, uint16 class, int64 key)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (key >> 32),
						 (uint32) key, class);
}

/*
 * is_locked: does another process hold this lock?
 *
 * In share mode, so that two who ask at once do not take each other for the
 * holder.
 */
static bool
is_locked(uint16 class, int64 key)
{
	LOCKTAG		tag;

	set_tag(&tag, class, key);
	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, ShareLock, false);
	return false;
}

static bool
try_lock(int64 lease)
{
	LOCKTAG		tag;

	set_tag(&tag, LEASE_LOCK_CLASS, lease);
	return LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * lease_exit: give back what we had claimed, however the process ends.
 *
 * Others would find the lease stale; but what is stale when the server starts
 * is taken for a crash.  As for temporary tables, a transaction at this point
 * is possible.
 */
static void
lease_exit(int code, Datum arg)
{
	Activation *interrupted =
		CurrentContext == CONTEXT_ACTIVITY ? CurrentActivation : NULL;

	if (my_lease == 0)
		return;
	AbortOutOfAnyTransaction();
	/* if this was a body's, the sandbox would take our statements for its */
	CurrentContext = CONTEXT_NONE;
	CurrentActivation = NULL;
	ProcessBegin();
	if (interrupted != NULL && interrupted->lease == my_lease &&
		ReadyRelease(interrupted->instance->iid, my_lease))
		StepInterrupted(interrupted);
	if (condemned_iid != 0 && ReadyDelete(condemned_iid, my_lease))
		InstanceHold(condemned_iid, condemned_reason, true);
	ReadyReleaseAll(my_lease);
	ProcessCommit();
	my_lease = 0;
}

/*
 * LeaseCondemn: this process cannot but end because of an instance; the next
 * one must not run it.  The reason is a constant.
 */
void
LeaseCondemn(int64 iid, const char *reason)
{
	condemned_iid = iid;
	condemned_reason = reason;
}

/*
 * LeaseTake: this process's lease, a new one if it has none.
 */
int64
LeaseTake(void)
{
	/* user's code may have dropped the lock, and others seen that */
	if (my_lease != 0 && !LeaseConfirm(my_lease))
		my_lease = 0;
	if (my_lease == 0)
	{
		int64		lease = StorageNextNumber("incarnation_seq") |
			((int64) GetWALInsertionTimeLine() << TIMELINE_SHIFT);

		if (!try_lock(lease))
			elog(ERROR, "lease " INT64_FORMAT " is held by another process", lease);
		if (!exit_registered)
			before_shmem_exit(lease_exit, (Datum) 0);
		exit_registered = true;
		my_lease = lease;
	}
	return my_lease;
}

/*
 * LeaseDrop: give it up; what it still holds is stale from now on.
 */
void
LeaseDrop(void)
{
	LOCKTAG		tag;

	if (my_lease == 0)
		return;
	set_tag(&tag, LEASE_LOCK_CLASS, my_lease);
	if (compat_lock_held_by_me(&tag, ExclusiveLock))
		LockRelease(&tag, ExclusiveLock, true);
	my_lease = 0;
}

/*
 * LeaseConfirm: do we still hold it?
 *
 * If user's code dropped the lock it is taken again, unless somebody is
 * finding out just now that we are dead: then we have lost.
 */
bool
LeaseConfirm(int64 lease)
{
	LOCKTAG		tag;

	if (lease == LEASE_INSIDE)
		return true;
	set_tag(&tag, LEASE_LOCK_CLASS, lease);
	return compat_lock_held_by_me(&tag, ExclusiveLock) || try_lock(lease);
}

/*
 * LeaseIsAlive: is there a process that holds it?
 */
bool
LeaseIsAlive(int64 lease)
{
	return lease == my_lease || is_locked(LEASE_LOCK_CLASS, lease);
}

/*
 * LeaseTakeInHand: an instance is run inside of this transaction, until its
 * end.  False: of another one.
 */
bool
LeaseTakeInHand(int64 iid)
{
	LOCKTAG		tag;

	set_tag(&tag, INSTANCE_LOCK_CLASS, iid);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * LeaseIsInHand: is an instance run inside of another transaction?
 */
bool
LeaseIsInHand(int64 iid)
{
	return is_locked(INSTANCE_LOCK_CLASS, iid);
}

static void
set_pin_tag(LOCKTAG *tag, const char *pin)
{
	uint64		key = DatumGetUInt64(hash_any_extended((const unsigned char *) pin,
													   strlen(pin), 0));

	set_tag(tag, PIN_LOCK_CLASS, (int64) key);
}

/*
 * LeasePin: until the end of the transaction a copy of a function is not
 * dropped, or (exclusive) is ours alone to make or drop.  False: without
 * waiting it cannot be had.
 */
bool
LeasePin(const char *pin, bool exclusive, bool wait)
{
	LOCKTAG		tag;

	set_pin_tag(&tag, pin);
	if (LockAcquire(&tag, exclusive ? ExclusiveLock : ShareLock, false,
					!wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	AcceptInvalidationMessages();
	return true;
}

/*
 * LeaseUnpin: give up the share that we have taken.
 */
void
LeaseUnpin(const char *pin)
{
	LOCKTAG		tag;

	set_pin_tag(&tag, pin);
	LockRelease(&tag, ShareLock, false);
}

/*
 * release: what a dead process had claimed can be run by others.
 */
static void
release(int64 lease, bool crashed)
{
	if (crashed &&
		(lease >> TIMELINE_SHIFT) == (int64) GetWALInsertionTimeLine())
		ReadyCountCrash(lease, durable_max_crashes);
	else
		ReadyReleaseAll(lease);
}

/*
 * LeaseReleaseStale: the same for all of a role, or all (InvalidOid).
 *
 * crashed: these are left from before the server started.
 */
void
LeaseReleaseStale(Oid run_as, bool crashed)
{
	int64	   *leases;
	int			count = ReadyLeases(run_as, &leases);

	for (int i = 0; i < count; i++)
	{
		if (!LeaseIsAlive(leases[i]))
			release(leases[i], crashed);
	}
	pfree(leases);
}
