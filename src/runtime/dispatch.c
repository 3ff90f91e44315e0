/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  Messages to the instances they wake.
 *
 * What waits for a message that has come is made ready.  What comes for an
 * instance that has ended meanwhile is dropped, or starts the next run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "engine/restart.h"
#include "runtime/dispatch.h"
#include "runtime/lease.h"
#include "storage/storage.h"

/*
 * make_ready: not what durable_run has in hand: that would have to wait for
 * its transaction.
 */
static void
make_ready(int64 *iids, int count)
{
	int			kept = 0;

	for (int i = 0; i < count; i++)
	{
		if (!LeaseIsInHand(iids[i]))
			iids[kept++] = iids[i];
	}
	if (kept > 0)
		ReadyInsertMany(iids, kept);
	pfree(iids);
}

static void
drop_orphans(const int64 *chains, int count)
{
	int64	   *iids;
	int			found = InboxOrphans(chains, count, &iids);

	for (int i = 0; i < found; i++)
	{
		if (InboxLockEnded(iids[i]))
			RestartOrDrop(iids[i], true);
	}
	pfree(iids);
}

/*
 * DispatchAll: of a role, or of all (InvalidOid).
 */
void
DispatchAll(Oid role)
{
	int64	   *iids;
	int			count = MessagesFor(role, &iids);

	make_ready(iids, count);
	count = MessagesCompeting(role, &iids);
	make_ready(iids, count);
	drop_orphans(NULL, 0);
}

/*
 * DispatchAmong: of some chains that are known to have got messages; 0 is that
 * of events which several compete for.
 */
void
DispatchAmong(const int64 *chains, int count)
{
	int64	   *iids;
	int			woken = MessagesAmong(chains, count, &iids);
	bool		competing = false;

	make_ready(iids, woken);
	for (int i = 0; i < count; i++)
		competing = competing || chains[i] == 0;
	if (competing)
	{
		woken = MessagesCompeting(InvalidOid, &iids);
		make_ready(iids, woken);
	}
	/* what woke nobody may have come too late */
	else if (woken < count)
		drop_orphans(chains, count);
}
