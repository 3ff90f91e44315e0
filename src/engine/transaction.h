/*-------------------------------------------------------------------------
 *
 * transaction.h
 *	  The transactions of a driver.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_TRANSACTION_H
#define DURABLE_TRANSACTION_H

#include "utils/resowner.h"

typedef struct Transactions
{
	bool		inside;			/* of the caller's: subtransactions only */
	int			count;			/* of those that ended */
	MemoryContext cxt;			/* current after each of the calls below */
	ResourceOwner owner;		/* the caller's, if inside */
	int			level;			/* the caller's, of nesting */
} Transactions;

extern void TransactionsOpen(Transactions *tx, bool inside);
extern void TransactionsClose(Transactions *tx);
extern void TransactionsLeave(Transactions *tx);
extern void TransactionCommit(Transactions *tx);
extern void TransactionAbort(Transactions *tx);
extern void TransactionCommitInPlace(void);
extern void TransactionFireDeferred(Transactions *tx);
extern ErrorData *TransactionTry(void (*act) (void *arg), void *arg);

#endif							/* DURABLE_TRANSACTION_H */
