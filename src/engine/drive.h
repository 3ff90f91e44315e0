/*-------------------------------------------------------------------------
 *
 * drive.h
 *	  One activation: an instance is run until it waits or ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DRIVE_H
#define DURABLE_DRIVE_H

#include "engine/transaction.h"

extern void DriveInstance(Transactions *tx, int64 iid, int64 lease);

#endif							/* DURABLE_DRIVE_H */
