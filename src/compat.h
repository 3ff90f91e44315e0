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

#include "catalog/pg_proc.h"
#include "utils/acl.h"

/* 16 replaced the functions for each object class by one for all. */
#if PG_VERSION_NUM >= 160000
#define compat_proc_aclcheck(function, role, mode) \
	object_aclcheck(ProcedureRelationId, (function), (role), (mode))
#else
#define compat_proc_aclcheck(function, role, mode) \
	pg_proc_aclcheck((function), (role), (mode))
#endif

#endif							/* DURABLE_COMPAT_H */
