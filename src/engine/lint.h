/*-------------------------------------------------------------------------
 *
 * lint.h
 *	  The source check: what a workflow body must not contain.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_LINT_H
#define DURABLE_LINT_H

#include "nodes/pg_list.h"

typedef struct LintFinding
{
	int			line;			/* of the function's body, from 1 */
	char	   *found;			/* what stands there, e.g. "now()" */
	char	   *replacement;	/* what to write instead, a whole sentence */
} LintFinding;

extern List *LintFunction(Oid function);
extern char *LintSourceOf(Oid function, char **language);
extern const char *LintAdvice(const char *function, int nargs);
extern List *LintSource(const char *source, const char *language);

#endif							/* DURABLE_LINT_H */
