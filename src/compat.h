/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  The differences between the server versions we build for: the only
 *	  file that looks at PG_VERSION_NUM.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_COMPAT_H
#define DURABLE_COMPAT_H

#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "utils/acl.h"
#include "utils/wait_event.h"
#include "utils/guc_tables.h"

/* 16 replaced the functions for each object class by one for all. */
#if PG_VERSION_NUM >= 160000
#define compat_proc_aclcheck(function, role, mode) \
	object_aclcheck(ProcedureRelationId, (function), (role), (mode))
#define compat_namespace_aclcheck(namespace, role, mode) \
	object_aclcheck(NamespaceRelationId, (namespace), (role), (mode))
#define compat_database_aclcheck(database, role, mode) \
	object_aclcheck(DatabaseRelationId, (database), (role), (mode))
#define compat_extension_ownercheck(extension, role) \
	object_ownercheck(ExtensionRelationId, (extension), (role))
#define compat_database_ownercheck(database, role) \
	object_ownercheck(DatabaseRelationId, (database), (role))
#else
#define compat_proc_aclcheck(function, role, mode) \
	pg_proc_aclcheck((function), (role), (mode))
#define compat_namespace_aclcheck(namespace, role, mode) \
	pg_namespace_aclcheck((namespace), (role), (mode))
#define compat_database_aclcheck(database, role, mode) \
	pg_database_aclcheck((database), (role), (mode))
#define compat_extension_ownercheck(extension, role) \
	pg_extension_ownercheck((extension), (role))
#define compat_database_ownercheck(database, role) \
	pg_database_ownercheck((database), (role))
#endif

/* 16 made the look-up of settings public. */
#if PG_VERSION_NUM >= 160000
#define compat_find_setting(name)	find_option((name), false, true, ERROR)
#else
static inline struct config_generic *
compat_find_setting(const char *name)
{
	struct config_generic **settings = get_guc_variables();

	for (int i = 0; i < GetNumConfigOptions(); i++)
	{
		if (pg_strcasecmp(settings[i]->name, name) == 0)
			return settings[i];
	}
	return NULL;
}
#endif

/* 18 has this in place of pg_attribute_noreturn(), and in another one. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn		__attribute__((noreturn))
#endif

/* 17 lets extensions name what they wait for. */
#if PG_VERSION_NUM >= 170000
#define compat_wait_event(name)		WaitEventExtensionNew(name)
#else
#define compat_wait_event(name)		PG_WAIT_EXTENSION
#endif

/* 17 lets a worker be of a role that may not log in. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_WORKER_FLAGS		BGWORKER_BYPASS_ROLELOGINCHECK
#define COMPAT_LOGIN_NEEDED		false
#else
#define COMPAT_WORKER_FLAGS		0
#define COMPAT_LOGIN_NEEDED		true
#endif

/* 18 took out run_once. */
#if PG_VERSION_NUM >= 180000
#define compat_portal_run(portal, dest, completion) \
	PortalRun((portal), FETCH_ALL, true, (dest), (dest), (completion))
#else
#define compat_portal_run(portal, dest, completion) \
	PortalRun((portal), FETCH_ALL, true, true, (dest), (dest), (completion))
#endif

/* 17 asks whether a stronger lock counts too. */
#if PG_VERSION_NUM >= 170000
#define compat_lock_held_by_me(tag, mode)	LockHeldByMe((tag), (mode), false)
#else
#define compat_lock_held_by_me(tag, mode)	LockHeldByMe((tag), (mode))
#endif

#endif							/* DURABLE_COMPAT_H */
