/*-------------------------------------------------------------------------
 *
 * remote.h
 *	  Activities that clients of a queue do.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_REMOTE_H
#define DURABLE_REMOTE_H

#include "engine/replay.h"

extern bool RemoteIs(Activation *a, const Command *command);
extern bool RemoteAdvance(Activation *a, Command *command,
						  TimestampTz *deadline);
extern void RemoteWithdraw(Activation *a);
extern void RemoteForget(Activation *a);
extern void RemoteClose(Activation *a);
extern bool RemoteWasAttempted(const Activation *a);

#endif							/* DURABLE_REMOTE_H */
