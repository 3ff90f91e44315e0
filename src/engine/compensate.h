/*-------------------------------------------------------------------------
 *
 * compensate.h
 *	  Undoing what a workflow did before it failed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_COMPENSATE_H
#define DURABLE_COMPENSATE_H

#include "engine/replay.h"

/* How an instance will end, when all is undone. */
typedef struct Closing
{
	char	   *status;
	char	   *event;
	Jsonb	   *error;
	Jsonb	   *data;
	bool		has_list;
	List	   *undo;			/* Commands, the first to be run first */
} Closing;

extern bool CompensateOrEnd(Activation *a, const char *status,
							HistoryRow *row);
extern bool CompensateNext(Activation *a);
extern void CompensationRead(Activation *a, const HistoryRow *row);
extern Command *CompensationFind(Activation *a, int position);
extern Jsonb *CompensationArguments(const Command *undoes,
									const DurableFunction *fn,
									const DurableFunction *step);
extern Jsonb *CompensationsToCarry(Activation *a);
extern List *CompensationReadCarried(const HistoryRow *row);

#endif							/* DURABLE_COMPENSATE_H */
