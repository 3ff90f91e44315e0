/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  Loading of the library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "compat.h"
#include "durable.h"
#include "engine/sandbox.h"
#include "runtime/ddl.h"
#include "runtime/process.h"
#include "runtime/shmem.h"
#include "runtime/wakeup.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	SettingsDefine();
	SandboxInstall();
	WakeupInstall();
	if (process_shared_preload_libraries_in_progress)
	{
		SharedInstall();
		DdlInstall();
		if (!IsBinaryUpgrade)
			LauncherRegister();
	}
}
