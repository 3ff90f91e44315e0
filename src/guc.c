/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  The extension's settings.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>
#include <limits.h>

#include "utils/guc.h"

#include "durable.h"

int			durable_sandbox = SANDBOX_STRICT;
int			durable_argument_mismatch = ERROR;
bool		durable_log_failed_attempts = true;
int			durable_retry_max_attempts = 5;
int			durable_retry_initial = 1000;
double		durable_retry_backoff = 2.0;
int			durable_retry_max_interval = 60000;
int			durable_retry_max_duration = 0;
char	   *durable_databases = "*";
int			durable_max_workers = 4;
int			durable_worker_idle_timeout = 60000;
int			durable_sweep_interval = 60000;
int			durable_max_crashes = 3;

static const struct config_enum_entry sandbox_options[] = {
	{"strict", SANDBOX_STRICT, false},
	{"warn", SANDBOX_WARN, false},
	{"off", SANDBOX_OFF, false},
	{NULL, 0, false}
};

static const struct config_enum_entry mismatch_options[] = {
	{"error", ERROR, false},
	{"warning", WARNING, false},
	{NULL, 0, false}
};

/*
 * SettingsDefine: make the settings known to the server.
 */
void
SettingsDefine(void)
{
	DefineCustomEnumVariable("durable.sandbox",
							 "How workflow bodies are kept deterministic.",
							 "For workflows that were registered without a sandbox of their own.",
							 &durable_sandbox, SANDBOX_STRICT, sandbox_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("durable.argument_mismatch",
							 "What to do when a step is replayed with other arguments.",
							 NULL,
							 &durable_argument_mismatch, ERROR, mismatch_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("durable.log_failed_attempts",
							 "Writes failed attempts of activities to the server's log.",
							 NULL,
							 &durable_log_failed_attempts, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.retry_max_attempts",
							"How often an activity is tried, the first time included.",
							NULL,
							&durable_retry_max_attempts, 5, 1, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.retry_initial",
							"Time between the first attempt of an activity and the second.",
							NULL,
							&durable_retry_initial, 1000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomRealVariable("durable.retry_backoff",
							 "Factor by which the time between attempts grows.",
							 NULL,
							 &durable_retry_backoff, 2.0, 1.0, DBL_MAX,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.retry_max_interval",
							"Longest time between two attempts of an activity.",
							NULL,
							&durable_retry_max_interval, 60000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.retry_max_duration",
							"Time after which an activity is not tried again.",
							"Zero means no limit.",
							&durable_retry_max_duration, 0, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomStringVariable("durable.databases",
							   "Databases whose instances are run in the background.",
							   "A list of names, or * for all that have the extension.",
							   &durable_databases, "*",
							   PGC_SIGHUP, GUC_LIST_INPUT, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.max_workers",
							"Most workers that a database has at a time.",
							NULL,
							&durable_max_workers, 4, 1, 1024,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.worker_idle_timeout",
							"Time after which a worker that has nothing to do leaves.",
							"The last one of a role stays ten times as long.",
							&durable_worker_idle_timeout, 60000, 0, INT_MAX / 10,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.sweep_interval",
							"Time between two looks for what was missed.",
							NULL,
							&durable_sweep_interval, 60000, 100, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.max_crashes",
							"Crashes of the server, run alone, after which an instance is held.",
							NULL,
							&durable_max_crashes, 3, 1, 1000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	MarkGUCPrefixReserved("durable");
}
