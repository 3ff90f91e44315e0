/*-------------------------------------------------------------------------
 *
 * client.c
 *	  What the functions for any session share: who may do what.
 *
 * The extension's functions are in a schema that everyone may use, so each
 * asks for USAGE on schema durable itself.  An instance is there for members
 * of the role it runs as; to all others it does not exist.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "client/client.h"
#include "compat.h"
#include "durable.h"
#include "engine/replay.h"

static void
check_usage(void)
{
	Oid			namespace = get_namespace_oid("durable", true);

	if (!OidIsValid(namespace))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"durable\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION durable.")));
	if (compat_namespace_aclcheck(namespace, GetUserId(), ACL_USAGE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for durable"),
				 errhint("A role needs USAGE on schema durable: GRANT USAGE ON SCHEMA durable TO %s.",
						 quote_identifier(GetUserNameFromId(GetUserId(), false)))));
}

/*
 * ClientEnter: every function for clients begins here.
 *
 * Called in a body it would have to be a command of the workflow.
 */
void
ClientEnter(const char *function)
{
	if (CurrentContext == CONTEXT_BODY)
	{
		(void) ReplayEnter(function);
		ReplayVerdict(CurrentActivation, ERRCODE_DURABLE_SANDBOX,
					  psprintf("the body of a workflow must not call %s()", function),
					  "Call it in an activity.");
	}
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("%s() cannot be called while the server is in recovery", function),
				 errhint("Call it on the primary. The views can be read here.")));
	check_usage();
}

/*
 * ClientEnterToWrite: the same for one that changes something.
 */
void
ClientEnterToWrite(const char *function)
{
	ClientEnter(function);
	PreventCommandIfReadOnly(psprintf("%s()", function));
}

/*
 * ClientIsOwnSession: is this a session of the current user and nobody else?
 * SET ROLE and SET SESSION AUTHORIZATION can be undone by the code it runs.
 */
bool
ClientIsOwnSession(void)
{
	return GetUserId() == GetSessionUserId() &&
		GetUserId() == GetAuthenticatedUserId() &&
		!InSecurityRestrictedOperation() && !InLocalUserIdChange();
}

/*
 * ClientMaySee: is the caller a member of the instance's role?
 *
 * The name must be the one of the start: after a restore into another cluster
 * the OID may be another role's.
 */
bool
ClientMaySee(const InstanceRow *instance)
{
	char	   *name;

	if (superuser())
		return true;
	name = GetUserNameFromId(instance->run_as, true);
	return name != NULL && strcmp(name, instance->run_as_name) == 0 &&
		has_privs_of_role(GetUserId(), instance->run_as);
}

/*
 * ClientFindInstance: the current run of an id that the caller may see.
 */
InstanceRow *
ClientFindInstance(const char *id)
{
	InstanceRow *instance = InstanceFind(id);

	if (instance == NULL || !ClientMaySee(instance))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("instance \"%s\" does not exist", id),
				 errhint("The view durable.instances shows those that you may see.")));
	return instance;
}

/*
 * ClientDefinition: which definition an instance is to go on with: "pinned",
 * "current", or NULL for what is usual.
 */
char *
ClientDefinition(FunctionCallInfo fcinfo, int i)
{
	char	   *definition;

	if (PG_ARGISNULL(i))
		return NULL;
	definition = ArgText(fcinfo, i, "definition");
	if (strcmp(definition, "pinned") != 0 && strcmp(definition, "current") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for definition: \"%s\"", definition),
				 errhint("It can be pinned or current.")));
	return definition;
}
