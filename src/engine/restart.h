/*-------------------------------------------------------------------------
 *
 * restart.h
 *	  Messages that come behind the end of their instance.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_RESTART_H
#define DURABLE_RESTART_H

#include "storage/storage.h"

extern Jsonb *RestartDescribe(const InstanceRow *row, Jsonb *input,
							  Jsonb *settings, const Interval *timeout);
extern void RestartOrDrop(int64 iid, bool restart);

#endif							/* DURABLE_RESTART_H */
