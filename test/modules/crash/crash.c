/*-------------------------------------------------------------------------
 *
 * crash.c
 *	  A function that takes the server down, for the tests.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(crash);

/*
 * crash: write where nothing is, as a bug in C code would.
 */
Datum
crash(PG_FUNCTION_ARGS)
{
	volatile int *volatile nowhere = NULL;	/* not known to the compiler */

	*nowhere = 0;
	PG_RETURN_VOID();
}
