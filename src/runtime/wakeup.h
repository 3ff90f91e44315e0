/*-------------------------------------------------------------------------
 *
 * wakeup.h
 *	  Who is to be told when this transaction has committed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WAKEUP_H
#define DURABLE_WAKEUP_H

#include "utils/timestamp.h"

extern void WakeupInstall(void);
extern void WakeupReady(Oid role);
extern void WakeupMessage(int64 chain);
extern void WakeupMessageTo(int64 chain, Oid role);
extern void WakeupTaken(void);
extern void WakeupTimer(TimestampTz wake_at);
extern void WakeupEnded(int64 number);
extern int64 WakeupQueueNumber(const char *queue);
extern void WakeupAllEnded(void);
extern void WakeupScan(void);
extern void WakeupInterrupt(int64 iid);
extern void WakeupLauncher(void);

#endif							/* DURABLE_WAKEUP_H */
