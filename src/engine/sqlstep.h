/*-------------------------------------------------------------------------
 *
 * sqlstep.h
 *	  durable_sql: one statement as a step.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SQLSTEP_H
#define DURABLE_SQLSTEP_H

#include "utils/jsonb.h"

/* The activity that durable_sql() calls. */
#define SQL_ACTIVITY	"durable_sql"

extern Jsonb *SqlStepRun(Jsonb *args, bool *preparing);

#endif							/* DURABLE_SQLSTEP_H */
