/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  Loading of the library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "compat.h"
#include "durable.h"
#include "engine/sandbox.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	SettingsDefine();
	SandboxInstall();
}
