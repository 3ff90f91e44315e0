/*-------------------------------------------------------------------------
 *
 * storage.h
 *	  How the extension reaches its tables, and the statements on them.
 *
 * Nothing outside src/storage says SQL about our tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORAGE_H
#define DURABLE_STORAGE_H

#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* ---- storage.c: the owner's session within a session ---- */

#define STATEMENT_MAX_ARGS	18

/* A statement, prepared at first use and kept for the process's life. */
typedef struct Statement
{
	const char *sql;
	int			nargs;
	Oid			types[STATEMENT_MAX_ARGS];
	struct _SPI_plan *plan;
} Statement;

typedef struct StorageScope
{
	Oid			user;
	int			security_context;
	int			guc_level;
} StorageScope;

extern void StorageEnter(StorageScope *scope);
extern void StorageLeave(StorageScope *scope);
extern uint64 StatementExecute(Statement *statement, Datum *values,
							   const bool *nulls);
extern uint64 StatementRun(Statement *statement, Datum *values,
						   const bool *nulls);
extern Datum StatementColumn(uint64 row, int column, bool *isnull);
extern char *StatementText(MemoryContext cxt, uint64 row, int column);
extern Jsonb *StatementJsonb(MemoryContext cxt, uint64 row, int column);
extern TimestampTz StatementTime(uint64 row, int column);
extern Datum TextDatum(const char *string);
extern Datum NameDatum(const char *string);
extern Datum NumberArray(const int64 *numbers, int count);
extern Datum TextArray(List *strings);
extern bool StorageInstalled(void);
extern int64 StorageNextNumber(const char *sequence);

/* ---- workflow.c ---- */

typedef struct WorkflowRow
{
	char	   *name;
	Oid			owner;
	char	   *owner_name;
	int			version;
	int			since;			/* first version of this registration */
	char	   *run_as;
	char	   *sandbox;		/* NULL: the setting's */
	char	   *on_change;		/* pin, continue or hold */
	Jsonb	   *activity_retry; /* NULL: none */
	Datum		capture_settings;	/* text[] */
	Jsonb	   *settings;		/* of the registration */
	Interval   *timeout;		/* of instances, NULL: none */
	char	   *start_on;		/* type of events, NULL: none */
	bool		hold_on_undo_failure;
	Jsonb	   *start_filter;	/* NULL: all of them */
	char	   *function;
	char	   *definition;
	char	   *hash;
	bool		whole;
} WorkflowRow;

extern WorkflowRow *WorkflowFind(const char *name);
extern void WorkflowLock(void);
extern void WorkflowStore(const WorkflowRow *row);
extern void WorkflowDelete(const char *name);
extern void WorkflowStoreVersion(const WorkflowRow *row);
extern int	WorkflowLastVersion(const char *name);
extern bool WorkflowHasLiveInstances(const char *name);

typedef struct ActivityRow
{
	char	   *name;
	Oid			owner;
	char	   *owner_name;
	char	   *function;
	Jsonb	   *retry;
	char	   *compensate;		/* the activity that undoes it, NULL: none */
	bool		compensate_attempted;	/* also if its outcome is not known */
	int64		start_to_close; /* ms, 0: no limit; so are the others */
	int64		schedule_to_close;
	int64		heartbeat;
	int64		schedule_to_start;
	char	   *queue;			/* NULL: a function does it */
	Oid			served_by;		/* whose members do it else */
	char	   *served_by_name;
} ActivityRow;

extern Oid	WorkflowOwner(int64 iid, Jsonb **activity_retry);
extern ActivityRow *ActivityFind(Oid workflow_owner, Oid run_as,
								 const char *name);
extern void ActivityStore(const ActivityRow *row);

/* ---- definition.c: what functions were, and the copies of them ---- */

typedef struct DefinitionRow
{
	char	   *function;		/* signature */
	char	   *name;			/* of a handler, as the body has it */
	Oid			owner;
	char	   *owner_name;
	char	   *definition;
	char	   *hash;
} DefinitionRow;

extern DefinitionRow *VersionFind(const char *workflow, int version);
extern List *HandlersOf(const char *workflow, int version);
extern bool HandlerStore(const char *workflow, int version,
						 const DefinitionRow *row);
extern void DefinitionSettings(void);
extern bool PinUse(int64 iid, const char *pin);
extern List *PinRelease(int64 iid);
extern List *PinsUnused(void);
extern bool PinIsUsed(const char *pin);
extern Oid	PinFind(const char *pin);
extern Oid	PinCreate(const char *pin, const char *definition, Oid owner);
extern void PinDrop(const char *pin);

/* ---- instance.c ---- */

/*
 * SQL: join the last run i of a chain of runs.  Always by the index, however
 * many runs have ended: OFFSET 0 keeps the planner from reading them all.
 */
#define LAST_RUN_OF(chain_of) \
	" CROSS JOIN LATERAL (SELECT l.* FROM durable_internal.instance l WHERE l.iid = coalesce(" \
	"(SELECT n.iid FROM durable_internal.instance n WHERE n.chain = " chain_of \
	" AND n.chain <> n.iid ORDER BY n.run DESC LIMIT 1), " chain_of ") OFFSET 0) i"

typedef struct InstanceRow
{
	int64		iid;
	char	   *id;
	int			run;
	int64		chain;
	char	   *workflow;
	int			version;
	char	   *definition;		/* asked for: pinned, current, NULL: neither */
	bool		pinned;			/* it needs copies of functions */
	char	   *status;			/* as the views show it */
	char	   *reason;
	Oid			run_as;
	char	   *run_as_name;
	int			priority;
	int			body_failures;
	int64		seed;
	Jsonb	   *tags;
	bool		suspended;
	bool		suspect;
	bool		ended;
	bool		mine;			/* inserted by this transaction */
	int64		lease;			/* who runs it, 0: nobody */
	TimestampTz wake_at;		/* of its timer, 0: none */
	int64		parent;			/* iid of the run that started it, 0: none */
	int64		parent_chain;
	int			parent_position;
	TimestampTz deadline;		/* 0: none */
	bool		requested;		/* a cancel or terminate is in its inbox */
	bool		updates;		/* so are updates */
	bool		parked;			/* its workflow, or everything, is paused */

	/* from its version, NULL when the workflow is gone */
	char	   *function;
	char	   *hash;
	bool		whole;
	Oid			workflow_owner;

	/* from the workflow */
	int			current_version;
	char	   *on_change;
	char	   *sandbox;
	Jsonb	   *activity_retry;
	bool		hold_on_undo_failure;
} InstanceRow;

extern bool InstanceInsert(const InstanceRow *row, Jsonb *input,
						   Jsonb *settings, TimestampTz start_at);
extern InstanceRow *InstanceFind(const char *id);
extern InstanceRow *InstanceFindRun(const char *id, int run);
extern InstanceRow *InstanceLoad(int64 iid);
extern int	InstancesOf(const char *workflow, bool ended, int64 **iids);
extern void InstanceWait(int64 iid, const char *status, List *awaits,
						 Jsonb *filter, TimestampTz started_at);
extern bool InstanceHears(int64 iid);
extern bool InstancePause(int64 iid);
extern int	InstanceEndedChildren(int64 parent, int before, int64 **iids);
extern bool InstanceIsForLater(int64 iid);
extern bool InstanceReopen(int64 iid, int end_seq, TimestampTz deadline,
						   const char *definition);
extern void InstanceSetBodyFailures(int64 iid, int failures);
extern void InstanceHold(int64 iid, const char *reason, bool mend);
extern bool InstanceResume(int64 iid, const char *run_as_name,
						   const char *definition);
extern void InstancePauseBeside(int64 parent);
extern int	InstanceResumeBeside(int64 parent, const char *run_as_name,
								 int64 **iids);
extern void InstanceSwitch(int64 iid, int version);
extern void InstanceEnd(int64 iid, const char *status, int end_seq,
						TimestampTz started_at, TimestampTz ended_at);

/* The last row of an ended run; NULL where there is nothing. */
typedef struct Outcome
{
	int			seq;
	Jsonb	   *result;
	Jsonb	   *error;
	Jsonb	   *data;
} Outcome;

extern void InstanceOutcome(int64 iid, Outcome *outcome);

/* ---- queue.c: what can run, what is running, what sleeps ---- */

extern void ReadyInsert(int64 iid);
extern void ReadyInsertMany(const int64 *iids, int count);
extern void ReadyWithdraw(int64 iid);
extern int	ReadyClaim(Oid run_as, int64 lease, bool suspects, int limit,
						int64 **iids);
extern bool ReadyClaimOne(int64 iid, int64 lease);
extern bool ReadyDelete(int64 iid, int64 lease);
extern bool ReadyRelease(int64 iid, int64 lease);
extern void ReadyReleaseAll(int64 lease);
extern void ReadyCountCrash(int64 lease, int max_crashes);
extern int64 ReadySuspect(Oid *run_as);
extern void SuspectClear(int64 iid);
extern int	ReadyLeases(Oid run_as, int64 **leases);
extern void TimerSet(int64 iid, Oid run_as, TimestampTz wake_at);
extern void TimerClear(int64 iid);
extern uint64 TimerFireDue(Oid run_as);
extern TimestampTz TimerNext(void);
extern int	MessagesFor(Oid run_as, int64 **iids);
extern int	MessagesAmong(const int64 *chains, int count, int64 **iids);
extern int	MessagesCompeting(Oid run_as, int64 **iids);
extern bool MessagesHas(int64 iid);
extern bool MessagesHasCompeting(int64 iid);

typedef enum MessageMeans
{
	MESSAGE_MEANS_NOTHING,		/* for now: it is left for later */
	MESSAGE_WAKES,
	MESSAGE_FOR_SCHEDULER
} MessageMeans;

extern MessageMeans MessageLook(int64 chain, Oid run_as, int64 *iid);
extern bool ReadyClaimWaiting(int64 iid, int64 lease);

/* A role with instances that nobody has claimed. */
typedef struct RoleReady
{
	Oid			role;
	int			unclaimed;		/* up to 100 */
} RoleReady;

extern bool ReadyHas(Oid run_as);
extern int	ReadyRoles(RoleReady **roles);
extern void RoleHold(Oid run_as, const char *reason);

/* ---- history.c ---- */

typedef struct HistoryRow
{
	int			seq;
	int			position;		/* 0: none */
	const char *event;
	const char *name;
	const char *step_id;
	Jsonb	   *args;
	Jsonb	   *result;
	Jsonb	   *error;
	Jsonb	   *data;
	int			attempt;		/* 0: none */
	TimestampTz wake_at;		/* 0: none */
	TimestampTz started_at;		/* 0: none */
	TimestampTz at;
} HistoryRow;

typedef void (*HistoryVisitor) (const HistoryRow *row, void *arg);

extern void HistoryAppend(int64 iid, const HistoryRow *row);
extern void HistoryScan(int64 iid, MemoryContext cxt, HistoryVisitor visitor,
						void *arg);
extern void HistoryFirst(int64 iid, MemoryContext cxt, HistoryVisitor visitor,
						 void *arg);
extern int	HistoryNextSeq(int64 iid);
extern uint64 HistoryCopy(int64 from, int64 to, int position);
extern bool HistoryIsFenceError(const ErrorData *error);

/* ---- inbox.c ---- */

typedef struct InboxRow
{
	int64		mid;
	const char *kind;
	const char *name;
	Jsonb	   *payload;
} InboxRow;

/* A signal that starts the next run. */
typedef struct RestartRow
{
	const char *name;
	Jsonb	   *payload;
	Jsonb	   *restart;
} RestartRow;

extern int64 InboxInsert(int64 chain, const char *kind, const char *name,
						 Jsonb *payload);
extern bool InboxUseKey(int64 chain, const char *key);
extern Jsonb *InboxTake(int64 chain, const char *kind, const char *name,
						MemoryContext cxt);
extern Jsonb *InboxTakeEvent(int64 chain, const char *type, Jsonb *filter,
							 bool *competing, MemoryContext cxt);
extern int	InboxTakeAll(int64 chain, const char *kind, Jsonb ***payloads);
extern int	InboxList(int64 chain, Datum names, int limit, InboxRow **rows);
extern void InboxDelete(const int64 *mids, int count);
extern const char *InboxControl(int64 chain, Jsonb **payload);
extern int64 InboxDrop(int64 iid, bool keep_restarts, bool *restarts);
extern bool InboxLockEnded(int64 iid);
extern void InboxInsertRestart(int64 chain, const char *name, Jsonb *payload,
							   Jsonb *restart);
extern int	InboxTakeRestarts(int64 iid, RestartRow **rows);
extern int	InboxCloseChildren(int64 parent, int64 **chains,
							   bool **terminated);
extern int	InboxOrphans(const int64 *chains, int count, int64 **iids);

/* ---- control.c: requests to what may be running ---- */

/* Counts them, for drivers. */
extern uint64 ControlGeneration;

extern void ControlWatch(void);
extern void ControlChanged(void);
extern bool ControlPause(const char *workflow, bool paused);
extern void ControlPark(int64 iid);
extern void ControlUnpark(const char *workflow);
extern void ControlUnparkOne(int64 iid);

/* ---- state.c ---- */

typedef struct Answer
{
	int64		iid;			/* of the run, or its chain */
	bool		given;
	Jsonb	   *result;
	Jsonb	   *error;
} Answer;

extern void StateStore(int64 iid, Jsonb *state, Jsonb *queries);
extern bool StateFind(int64 iid, Jsonb **state, Jsonb **queries);
extern void AnswerStore(int64 mid, int64 iid, Jsonb *result, Jsonb *error);
extern Answer *AnswerFind(int64 mid);

/* ---- task.c ---- */

typedef struct TaskRow
{
	int64		iid;
	int			position;
	bool		undo;			/* it is the compensation of that position */
	bool		shielded;		/* a cancel is not its business */
	int64		chain;
	Oid			run_as;
	const char *queue;
	Oid			served_by;
	const char *served_by_name;
	const char *activity;
	Jsonb	   *args;
	int			attempt;
	const char *key;
	int64		start_to_close; /* ms, 0: no limit */
	Jsonb	   *heartbeat;		/* NULL: none */
	TimestampTz scheduled_at;
	TimestampTz started_at;		/* 0: nobody has begun it */
	TimestampTz alive_at;		/* the client's last word, 0: none */
	int64		heartbeat_timeout;	/* ms, 0: no limit */
	int			clients;		/* that it was given to */
} TaskRow;

typedef enum TaskLockResult
{
	TASK_NONE,					/* there is none, or none any more */
	TASK_LOCKED,
	TASK_BUSY					/* a client is just working on it */
} TaskLockResult;

extern void TaskInsert(const TaskRow *row);
extern TaskLockResult TaskLock(int64 iid, bool wait, TaskRow *row);
extern void TaskDelete(int64 iid);
extern int	TaskClaim(const char *queue, Oid role, List *token_hashes,
					  const char *worker, Interval *lease, TaskRow **rows);
extern void TaskLimit(int64 iid, Oid run_as, TimestampTz until);
extern bool TaskHas(const char *queue, Oid role);
extern TimestampTz TaskNextExpiry(const char *queue, Oid role);
extern bool TaskFinish(const char *token_hash, Oid role, TaskRow *row);
extern bool TaskExtend(const char *token_hash, Oid role, Jsonb *details,
					   bool *cancelled);

/* ---- event.c ---- */

extern bool SubscriptionInsert(int64 chain, const char *type,
							   const char *mode, Jsonb *filter, Oid run_as);
extern bool SubscriptionExists(int64 chain, const char *type);
extern void SubscriptionDelete(int64 chain);
extern bool EventUseId(Oid publisher, const char *source, const char *id);
extern int	EventFanOut(const char *type, Jsonb *event, Oid publisher,
						int64 **chains);
extern bool EventIsCompetedFor(const char *type, Jsonb *event, Oid publisher);
extern int	EventStarts(const char *type, Jsonb *event, Oid publisher,
						char ***names);

#endif							/* DURABLE_STORAGE_H */
