/*-------------------------------------------------------------------------
 *
 * step.h
 *	  Activities: one attempt, and what is recorded of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STEP_H
#define DURABLE_STEP_H

#include "engine/replay.h"

/* The activity that durable_subscribe() in a body is. */
#define SUBSCRIBE_ACTIVITY	"durable_subscribe"

/* An activity's name, and what it means; kept while no function changes. */
typedef struct ActivityEntry
{
	char		name[DURABLE_MAX_NAME + 16];
	uint64		generation;
	DurableFunction *function;	/* NULL: SQL_ACTIVITY */
	Jsonb	   *retry;			/* of its registration, NULL: none */
	char	   *compensate;		/* likewise */
	bool		compensate_attempted;	/* likewise */
	TimeLimits	limits;			/* likewise */
	char	   *queue;			/* NULL: it has a function */
	Oid			served_by;
	char	   *served_by_name;
	int64		schedule_to_start;
} ActivityEntry;

extern void StepRun(Activation *a, Command *command);
extern void StepRunInPlace(Activation *a, Command *command);
extern bool StepFail(Activation *a, Command *command, const ErrorData *error);
extern const ActivityEntry *StepResolve(Activation *a, const char *name);
extern void StepLimits(const ActivityEntry *entry, const Command *command,
					   TimeLimits *limits);
extern const char *StepCompensation(Activation *a, const Command *command);
extern const char *StepEvent(const Command *command, const char *activity,
							 const char *compensation);
extern char *StepKey(const InstanceRow *instance, const Command *command);
extern Jsonb *StepLeft(const Command *command);
extern void StepRecordFailure(Activation *a, Command *command, Jsonb *failure,
							  const char *sqlstate, bool retryable);
extern void StepComplete(Activation *a, Command *command, Jsonb *result,
						 TimestampTz started_at);
extern void StepInterrupted(Activation *a);
extern bool StepIsDue(const Command *command);

#endif							/* DURABLE_STEP_H */
