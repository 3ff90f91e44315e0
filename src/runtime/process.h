/*-------------------------------------------------------------------------
 *
 * process.h
 *	  Our background processes, and how they are started.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_PROCESS_H
#define DURABLE_PROCESS_H

#include "postmaster/bgworker.h"

/* What a process waits for, as pg_stat_activity shows it. */
typedef enum ProcessWait
{
	WAIT_LAUNCHER,
	WAIT_SCHEDULER,
	WAIT_WORKER,
	WAIT_RESULT
} ProcessWait;

extern void LauncherRegister(void);
extern bool ProcessStart(const char *name, const char *type,
						 const char *entry, Datum arg,
						 BackgroundWorkerHandle **handle);
extern void ProcessBegin(void);
extern void ProcessCommit(void);
extern uint32 ProcessWaitEvent(ProcessWait wait);
extern bool ProcessSleep(ProcessWait wait, long milliseconds);
extern char *ProcessWhyNot(Oid role);
extern bool IsDurableWorker;

extern PGDLLEXPORT void DurableLauncherMain(Datum arg);
extern PGDLLEXPORT void DurableSchedulerMain(Datum arg);
extern PGDLLEXPORT void DurableWorkerMain(Datum arg);

#endif							/* DURABLE_PROCESS_H */
