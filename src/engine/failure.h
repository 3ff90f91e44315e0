/*-------------------------------------------------------------------------
 *
 * failure.h
 *	  Errors as they are kept in the history.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_FAILURE_H
#define DURABLE_FAILURE_H

#include "utils/elog.h"
#include "utils/jsonb.h"

#include "compat.h"

extern Jsonb *FailureFromError(const ErrorData *error);
extern Jsonb *FailureMake(const char *sqlstate, const char *message,
						  const char *detail);
extern Jsonb *FailureFromActivity(const ErrorData *error);
pg_noreturn extern void FailureThrow(Jsonb *failure);
extern bool FailureIs(Jsonb *failure, const ErrorData *error);
extern bool ErrorIsCancel(const ErrorData *error);
extern bool ErrorIsEnvironment(const ErrorData *error);
extern bool ErrorIsGap(const ErrorData *error);
extern bool ErrorIsConflict(const ErrorData *error);
extern int	ErrorCodeFromText(const char *sqlstate);

#endif							/* DURABLE_FAILURE_H */
