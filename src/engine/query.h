/*-------------------------------------------------------------------------
 *
 * query.h
 *	  Running the handler of a query, outside of any activation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_QUERY_H
#define DURABLE_QUERY_H

#include "storage/storage.h"

extern Jsonb *QueryRun(InstanceRow *instance, const char *function,
					   Jsonb **args, int nargs);

#endif							/* DURABLE_QUERY_H */
