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
extern bool StepIsDue(const Command *command);

#endif							/* DURABLE_STEP_H */
