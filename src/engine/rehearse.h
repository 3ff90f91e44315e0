/*-------------------------------------------------------------------------
 *
 * rehearse.h
 *	  Would a function do for a history?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_REHEARSE_H
#define DURABLE_REHEARSE_H

#include "engine/replay.h"

typedef struct Rehearsal
{
	const char *verdict;		/* ok, diverges, differs, fails */
	int			position;		/* how far it came, or where it went astray */
	char	   *reason;
} Rehearsal;

extern Jsonb *RehearseExport(const InstanceRow *instance);
extern Activation *RehearseLoad(Transactions *tx, InstanceRow *instance);
extern Activation *RehearseImport(Transactions *tx, Jsonb *export);
extern void RehearseRun(Activation *a, DurableFunction *candidate,
						Rehearsal *rehearsal);

#endif							/* DURABLE_REHEARSE_H */
