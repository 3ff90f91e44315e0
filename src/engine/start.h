/*-------------------------------------------------------------------------
 *
 * start.h
 *	  Starting an instance, for a client or for a parent.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_START_H
#define DURABLE_START_H

#include "storage/storage.h"

typedef enum OnConflict
{
	CONFLICT_ERROR,
	CONFLICT_EXISTING,
	CONFLICT_RESTART_FAILED,
	CONFLICT_RESTART
} OnConflict;

typedef struct StartRequest
{
	const char *workflow;
	Jsonb	   *input;
	char	   *id;				/* NULL: one is made */
	OnConflict	on_conflict;
	TimestampTz start_at;		/* 0: now */
	int			priority;
	Interval   *timeout;		/* NULL: the workflow's */
	Jsonb	   *tags;
	bool		as_owner;		/* whatever the workflow says */
	Jsonb	   *settings;		/* NULL: as usual */
	int			version;		/* of the workflow, 0: the current one */
	const char *internal;		/* a workflow of ours, NULL: none */
	const InstanceRow *parent;	/* NULL: none */
	int			parent_position;

	bool		is_new;
	int64		iid;			/* of the run, new or existing */
	int64		chain;
	Jsonb	   *restart;		/* with CONFLICT_RESTART, of an existing one */
} StartRequest;

extern WorkflowRow *StartFindWorkflow(const char *name);
extern Jsonb *StartFreezeInput(const WorkflowRow *workflow, Jsonb *input);
extern int64 StartNewSeed(void);
extern Interval *StartReadTimeout(const char *text);
extern void StartCheckTimeout(const Interval *timeout);
extern void StartInstance(StartRequest *request);

#endif							/* DURABLE_START_H */
