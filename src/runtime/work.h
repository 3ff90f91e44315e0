/*-------------------------------------------------------------------------
 *
 * work.h
 *	  Drivers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WORK_H
#define DURABLE_WORK_H

#include "runtime/shmem.h"

extern WorkerSlot *WorkSlot;	/* of this process, if it is a worker */
extern int64 WorkHint;			/* what it was told of when it was idle */

extern void WorkSoloEnd(WorkerSlot *slot);
extern void WorkShowProgress(int position, int64 done, int64 total,
							 const char *message);

#endif							/* DURABLE_WORK_H */
