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

extern void StepRun(Activation *a, Command *command);
extern void StepRunInPlace(Activation *a, Command *command);
extern bool StepFail(Activation *a, Command *command, const ErrorData *error);
extern const char *StepCompensation(Activation *a, const char *activity);
extern void StepRecordFailure(Activation *a, Command *command, Jsonb *failure,
							  const char *sqlstate, bool retryable);
extern bool StepIsRemote(Activation *a, const Command *command);
extern void StepRemoteLimits(Activation *a, const Command *command,
							 TimeLimits *limits, int64 *schedule_to_start);
extern void StepEnqueue(Activation *a, Command *command);
extern void StepComplete(Activation *a, Command *command, Jsonb *result,
						 TimestampTz started_at);
extern bool StepIsDue(const Command *command);

#endif							/* DURABLE_STEP_H */
