/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  What functions are now, and the versions of workflows made from it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DEFINITION_H
#define DURABLE_DEFINITION_H

#include "storage/storage.h"

extern char *DefinitionText(Oid function);
extern const char *DefinitionHash(Oid function);
extern WorkflowRow *DefinitionRefresh(WorkflowRow *row);
extern void DefinitionCheckSame(const WorkflowRow *current, int version);
extern bool DefinitionIsFresh(const char *workflow, int version);
extern void DefinitionSet(WorkflowRow *row, Oid function,
						  const WorkflowRow *known);
extern void DefinitionStoreHandlers(const WorkflowRow *row, Oid function,
									const WorkflowRow *known);
extern DefinitionRow *DefinitionOfHandler(Oid function, const char *name);
extern bool DefinitionHandlersAreSame(const char *workflow, int version,
									  int other);

#endif							/* DURABLE_DEFINITION_H */
