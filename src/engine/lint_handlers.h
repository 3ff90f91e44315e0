/*-------------------------------------------------------------------------
 *
 * lint_handlers.h
 *	  Which handlers, validators and conditions the text of a body names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_LINT_HANDLERS_H
#define DURABLE_LINT_HANDLERS_H

#include "nodes/pg_list.h"

extern List *LintHandlers(Oid function);

#endif							/* DURABLE_LINT_HANDLERS_H */
