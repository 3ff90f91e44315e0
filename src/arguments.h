/*-------------------------------------------------------------------------
 *
 * arguments.h
 *	  Arguments of our SQL functions, checked.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ARGUMENTS_H
#define DURABLE_ARGUMENTS_H

#include "fmgr.h"
#include "utils/jsonb.h"

/* A name is not empty, of limited length, without control characters. */
extern char *ArgName(FunctionCallInfo fcinfo, int i, const char *parameter);
extern char *ArgNameOrNull(FunctionCallInfo fcinfo, int i,
						   const char *parameter);
extern void ArgCheckName(const char *name, const char *parameter);
extern char *ArgText(FunctionCallInfo fcinfo, int i, const char *parameter);
extern Jsonb *ArgJsonb(FunctionCallInfo fcinfo, int i, const char *parameter);
extern Jsonb *ArgJsonbOrNull(FunctionCallInfo fcinfo, int i);
extern void ArgNotNull(FunctionCallInfo fcinfo, int i, const char *parameter);

#endif							/* DURABLE_ARGUMENTS_H */
