/*-------------------------------------------------------------------------
 *
 * transaction.c
 *	  The transactions of a driver.
 *
 * A driver that may commit runs each step in a transaction of its own; one
 * inside of a caller's transaction (durable_run) in a subtransaction.  There is
 * always one open between TransactionsOpen and TransactionsClose.
 *
 * The former needs a portal (that of CALL, or a worker's) and no SPI level
 * below it: TransactionAbort takes down the whole SPI stack, so that an error
 * which came up through any number of user's functions can be left behind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "nodes/makefuncs.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/portal.h"

#include "engine/replay.h"
#include "engine/transaction.h"

/*
 * force_characteristics: the engine's transactions are read-write and READ
 * COMMITTED, whatever the role's or the session's defaults are.
 */
static void
force_characteristics(void)
{
	XactIsoLevel = XACT_READ_COMMITTED;
	XactReadOnly = false;
	XactDeferrable = false;
}

static void
begin_inside(Transactions *tx)
{
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(tx->cxt);
}

static void
connect(Transactions *tx)
{
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	MemoryContextSwitchTo(tx->cxt);
}

/*
 * TransactionsOpen: begin; the current context must outlive transactions.
 */
void
TransactionsOpen(Transactions *tx, bool inside)
{
	tx->inside = inside;
	tx->count = 0;
	tx->cxt = CurrentMemoryContext;
	tx->owner = CurrentResourceOwner;
	tx->level = GetCurrentTransactionNestLevel();

	if (inside)
		begin_inside(tx);
	else
	{
		connect(tx);
		TransactionCommit(tx);
	}
}

/*
 * TransactionsClose: commit the open one; the caller's is what is left.
 */
void
TransactionsClose(Transactions *tx)
{
	if (tx->inside)
	{
		ReleaseCurrentSubTransaction();
		CurrentResourceOwner = tx->owner;
	}
	else
	{
		TransactionCommit(tx);
		SPI_finish();
	}
	MemoryContextSwitchTo(tx->cxt);
}

/*
 * TransactionsLeave: roll back to the caller's, after an error.
 */
void
TransactionsLeave(Transactions *tx)
{
	while (GetCurrentTransactionNestLevel() > tx->level)
		RollbackAndReleaseCurrentSubTransaction();
	CurrentResourceOwner = tx->owner;
	MemoryContextSwitchTo(tx->cxt);
}

/*
 * TransactionCommit: commit the open transaction and begin another.
 *
 * An error leaves it to the caller to abort.
 */
void
TransactionCommit(Transactions *tx)
{
	tx->count++;
	if (tx->inside)
	{
		ReleaseCurrentSubTransaction();
		CurrentResourceOwner = tx->owner;
		begin_inside(tx);
	}
	else
	{
		SPI_commit();
		force_characteristics();
		MemoryContextSwitchTo(tx->cxt);
	}
}

/*
 * TransactionCommitInPlace: the same from within a procedure that a driver
 * with transactions of its own has called.
 */
void
TransactionCommitInPlace(void)
{
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	SPI_commit();
	SPI_finish();
	force_characteristics();
}

/*
 * TransactionAbort: abort the open transaction and begin another.
 *
 * To be called when an error was caught and flushed.  Cursors that a body
 * kept over commits go as they do when an error reaches the client.
 */
void
TransactionAbort(Transactions *tx)
{
	tx->count++;
	if (tx->inside)
	{
		TransactionsLeave(tx);
		begin_inside(tx);
	}
	else
	{
		AbortCurrentTransaction();
		PortalErrorCleanup();
		ActivePortal->portalSnapshot = NULL;
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		force_characteristics();
		connect(tx);
	}
}

static void
set_constraints_immediate(void)
{
	ConstraintsSetStmt *immediate = makeNode(ConstraintsSetStmt);

	immediate->constraints = NIL;
	immediate->deferred = false;
	AfterTriggerSetState(immediate);
}

/*
 * TransactionFireDeferred: a deferred constraint that fails is to fail now.
 *
 * Inside of a caller's transaction this is a trial which is rolled back:
 * there they are fired at its end, and what it said of them stays in force.
 */
void
TransactionFireDeferred(Transactions *tx)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	if (!tx->inside)
	{
		set_constraints_immediate();
		return;
	}
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	set_constraints_immediate();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
}

/*
 * TransactionTry: act in a subtransaction, which an error rolls back; that
 * error, or NULL.
 */
ErrorData *
TransactionTry(void (*act) (void *arg), void *arg)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	DurableContext context = CurrentContext;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		act(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ContextSet(context);
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return error;
}
