/*-------------------------------------------------------------------------
 *
 * sandbox.h
 *	  The net under workflow bodies: what they must not do is refused.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SANDBOX_H
#define DURABLE_SANDBOX_H

#include "durable.h"

extern void SandboxInstall(void);
extern SandboxMode SandboxModeFromText(const char *mode);

/* Counts changes of functions, for those who keep what they know of them. */
extern uint64 FunctionGeneration;

#endif							/* DURABLE_SANDBOX_H */
