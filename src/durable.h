/*-------------------------------------------------------------------------
 *
 * durable.h
 *	  What every file of the extension shares: SQLSTATEs and settings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_H
#define DURABLE_H

#include "utils/elog.h"
#include "utils/timestamp.h"

/* SQLSTATE class WF: see docs/reference.md */
#define ERRCODE_DURABLE_DETERMINISM		MAKE_SQLSTATE('W','F','0','0','1')
#define ERRCODE_DURABLE_CANCELLED		MAKE_SQLSTATE('W','F','0','0','2')
#define ERRCODE_DURABLE_TIMED_OUT		MAKE_SQLSTATE('W','F','0','0','3')
#define ERRCODE_DURABLE_UNDEFINED		MAKE_SQLSTATE('W','F','0','0','4')
#define ERRCODE_DURABLE_WRONG_STATE		MAKE_SQLSTATE('W','F','0','0','5')
#define ERRCODE_DURABLE_SANDBOX			MAKE_SQLSTATE('W','F','0','0','6')
#define ERRCODE_DURABLE_RETRIES			MAKE_SQLSTATE('W','F','0','0','7')
#define ERRCODE_DURABLE_DUPLICATE		MAKE_SQLSTATE('W','F','0','0','8')
#define ERRCODE_DURABLE_UNCATCHABLE		MAKE_SQLSTATE('W','F','0','0','9')
#define ERRCODE_DURABLE_CHILD_CANCELLED	MAKE_SQLSTATE('W','F','0','1','0')
#define ERRCODE_DURABLE_CHILD_TIMED_OUT	MAKE_SQLSTATE('W','F','0','1','1')

/* Longest name or id of anything, in bytes. */
#define DURABLE_MAX_NAME	400

/* guc.c */
typedef enum SandboxMode
{
	SANDBOX_OFF,
	SANDBOX_WARN,
	SANDBOX_STRICT
} SandboxMode;

extern int	durable_sandbox;	/* a SandboxMode */
extern int	durable_argument_mismatch;	/* ERROR or WARNING */
extern bool durable_log_failed_attempts;
extern int	durable_retry_max_attempts;
extern int	durable_retry_initial;	/* ms */
extern double durable_retry_backoff;
extern int	durable_retry_max_interval; /* ms */
extern int	durable_retry_max_duration; /* ms, 0: no limit */

/* those of the background runtime */
extern char *durable_databases;
extern int	durable_max_workers;
extern int	durable_worker_idle_timeout;	/* ms */
extern int	durable_sweep_interval; /* ms */
extern int	durable_max_crashes;

extern void SettingsDefine(void);

#endif							/* DURABLE_H */
