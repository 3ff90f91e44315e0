/*-------------------------------------------------------------------------
 *
 * settle.h
 *	  How an activation ends: the instance waits, is held, or has ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SETTLE_H
#define DURABLE_SETTLE_H

#include "engine/replay.h"

extern void SettleCommit(Activation *a);
extern void SettleWait(Activation *a, const char *status, List *awaits,
					   Jsonb *filter, TimestampTz wake_at);
extern void SettleHold(Activation *a, const char *reason);
extern void SettleHoldToMend(Activation *a, const char *reason);
extern void SettleHoldForError(Activation *a, const ErrorData *error);
extern char *SettleReason(const ErrorData *error);
extern void SettlePostpone(Activation *a, const ErrorData *error);
extern void SettleLater(Activation *a);
extern void SettleStop(Activation *a);
extern void SettleEnd(Activation *a, const char *status, HistoryRow *row);
extern void SettleEndByRequest(Activation *a, const char *status,
							   const char *event, const char *sqlstate,
							   const char *message, const char *detail);
extern void SettleContinue(Activation *a);

#endif							/* DURABLE_SETTLE_H */
