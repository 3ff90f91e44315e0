/*-------------------------------------------------------------------------
 *
 * unblock.h
 *	  What a body waits for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_UNBLOCK_H
#define DURABLE_UNBLOCK_H

#include "engine/replay.h"

extern void UnblockFlush(Activation *a, const Command *before);
extern TimestampTz UnblockNap(Activation *a, int taken);
extern bool UnblockCommand(Activation *a, Command *command);

#endif							/* DURABLE_UNBLOCK_H */
