/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Commands on databases and extensions that our processes must know of.
 *
 * CREATE and DROP EXTENSION are told to launcher and scheduler at their
 * commit.  DROP DATABASE, RENAME, SET TABLESPACE and a copy by CREATE DATABASE
 * need a database that nobody is connected to: our processes leave it first,
 * and are barred from it until the command is over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/syscache.h"

#include "compat.h"
#include "runtime/ddl.h"
#include "runtime/process.h"
#include "runtime/shmem.h"
#include "runtime/wakeup.h"

static ProcessUtility_hook_type prev_process_utility_hook = NULL;

/*
 * is_about_extension: does it create or drop ours?
 */
static bool
is_about_extension(Node *statement)
{
	ListCell   *lc;

	if (IsA(statement, CreateExtensionStmt))
		return strcmp(((CreateExtensionStmt *) statement)->extname, "durable") == 0;
	if (!IsA(statement, DropStmt) ||
		((DropStmt *) statement)->removeType != OBJECT_EXTENSION)
		return false;
	foreach(lc, ((DropStmt *) statement)->objects)
	{
		if (strcmp(strVal(lfirst(lc)), "durable") == 0)
			return true;
	}
	return false;
}

static const char *
template_of(CreatedbStmt *statement)
{
	ListCell   *lc;

	foreach(lc, statement->options)
	{
		DefElem    *option = lfirst(lc);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return NULL;
}

/*
 * database_to_leave: the one that must be empty for this command, or NULL.
 */
static const char *
database_to_leave(Node *statement)
{
	if (IsA(statement, DropdbStmt))
		return ((DropdbStmt *) statement)->dbname;
	if (IsA(statement, CreatedbStmt))
		return template_of((CreatedbStmt *) statement);
	if (IsA(statement, RenameStmt) &&
		((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
		return ((RenameStmt *) statement)->subname;
	if (IsA(statement, AlterDatabaseStmt))
	{
		ListCell   *lc;

		foreach(lc, ((AlterDatabaseStmt *) statement)->options)
		{
			if (strcmp(((DefElem *) lfirst(lc))->defname, "tablespace") == 0)
				return ((AlterDatabaseStmt *) statement)->dbname;
		}
	}
	return NULL;
}

static bool
has_createdb(void)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * may_succeed: the rights the command asks for.  Who has not got them must
 * not send our processes away either.
 */
static bool
may_succeed(Node *statement, Oid database, ProcessUtilityContext context)
{
	bool		owner = compat_database_ownercheck(database, GetUserId());

	if (IsA(statement, CreatedbStmt))
		return (superuser() || has_createdb()) && context == PROCESS_UTILITY_TOPLEVEL &&
			!IsTransactionBlock();
	if (database == MyDatabaseId || !owner)
		return false;
	if (IsA(statement, RenameStmt))
		return superuser() || has_createdb();
	return context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock();
}

/*
 * send_away: tell our processes in a database to leave; how many there are.
 */
static int
send_away(Oid database)
{
	SchedulerSlot *scheduler;
	int			count = 0;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	scheduler = SharedScheduler(database);
	if (scheduler != NULL)
	{
		count += scheduler->pid != 0 || scheduler->state == SCHEDULER_STARTING;
		if (scheduler->pid != 0)
			kill(scheduler->pid, SIGTERM);
		if (scheduler->state != SCHEDULER_STARTING || scheduler->pid != 0)
			scheduler->state = SCHEDULER_BARRED;
	}
	for (int i = 0; i < Shared->nslots; i++)
	{
		WorkerSlot *worker = &Shared->workers[i];

		if (worker->state == WORKER_FREE || worker->database != database)
			continue;
		if (worker->pid != 0)
			kill(worker->pid, SIGTERM);
		count++;
	}
	LWLockRelease(Shared->lock);
	return count;
}

/*
 * clear_database: until they have left, for ten seconds at the most.
 */
static void
clear_database(Oid database)
{
	for (int i = 0; i < 1000 && send_away(database) > 0; i++)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10000L);
	}
}

/*
 * admit: our processes may go there again.
 */
static void
admit(Oid database)
{
	SchedulerSlot *scheduler;

	LWLockAcquire(Shared->lock, LW_EXCLUSIVE);
	scheduler = SharedScheduler(database);
	if (scheduler != NULL && scheduler->state == SCHEDULER_BARRED)
		scheduler->state = SCHEDULER_UNKNOWN;
	if (Shared->launcher_latch != NULL)
		SetLatch(Shared->launcher_latch);
	LWLockRelease(Shared->lock);
}

static bool left_extension = false;

/*
 * on_transaction_event: DROP EXTENSION is over, or was undone.
 */
static void
on_transaction_event(XactEvent event, void *arg)
{
	if (!left_extension)
		return;
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
	{
		left_extension = false;
		admit(MyDatabaseId);
	}
}

/*
 * leave_extension: DROP EXTENSION locks our tables, which a step keeps until
 * its end.  Not when a worker says it: it would send itself away.
 */
static void
leave_extension(Node *statement)
{
	Oid			extension = get_extension_oid("durable", true);

	if (!IsA(statement, DropStmt) || !OidIsValid(extension) || IsDurableWorker ||
		!compat_extension_ownercheck(extension, GetUserId()))
		return;
	left_extension = true;
	clear_database(MyDatabaseId);
}

static void
run_command(PlannedStmt *statement, const char *source, bool read_only_tree,
			ProcessUtilityContext context, ParamListInfo params,
			QueryEnvironment *environment, DestReceiver *receiver,
			QueryCompletion *completion)
{
	if (prev_process_utility_hook)
		prev_process_utility_hook(statement, source, read_only_tree, context,
								  params, environment, receiver, completion);
	else
		standard_ProcessUtility(statement, source, read_only_tree, context,
								params, environment, receiver, completion);
}

static void
on_process_utility(PlannedStmt *statement, const char *source,
				   bool read_only_tree, ProcessUtilityContext context,
				   ParamListInfo params, QueryEnvironment *environment,
				   DestReceiver *receiver, QueryCompletion *completion)
{
	const char *name = database_to_leave(statement->utilityStmt);
	Oid			database = InvalidOid;

	if (is_about_extension(statement->utilityStmt))
	{
		WakeupLauncher();
		leave_extension(statement->utilityStmt);
	}
	if (IsA(statement->utilityStmt, CreatedbStmt))
		WakeupLauncher();
	if (name != NULL)
		database = get_database_oid(name, true);
	if (!OidIsValid(database) || !may_succeed(statement->utilityStmt, database, context))
	{
		run_command(statement, source, read_only_tree, context, params,
					environment, receiver, completion);
		return;
	}

	PG_TRY();
	{
		clear_database(database);
		run_command(statement, source, read_only_tree, context, params,
					environment, receiver, completion);
	}
	PG_FINALLY();
	{
		admit(database);
	}
	PG_END_TRY();
}

/*
 * DdlInstall: put the hook in its place, when we have processes.
 */
void
DdlInstall(void)
{
	prev_process_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = on_process_utility;
	RegisterXactCallback(on_transaction_event, NULL);
}
