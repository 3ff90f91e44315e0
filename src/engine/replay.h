/*-------------------------------------------------------------------------
 *
 * replay.h
 *	  An instance in memory, and the pass over its workflow's body.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_REPLAY_H
#define DURABLE_REPLAY_H

#include "durable.h"
#include "compat.h"
#include "engine/binding.h"
#include "engine/timeout.h"
#include "engine/transaction.h"
#include "nodes/pg_list.h"
#include "storage/storage.h"
#include "utils/hsearch.h"

typedef enum CommandKind
{
	COMMAND_ACTIVITY,
	COMMAND_TIMER,
	COMMAND_SIGNAL,
	COMMAND_EVENT,
	COMMAND_CONDITION,
	COMMAND_CHILD,
	COMMAND_SPAWN,				/* an activity that runs beside the body */
	COMMAND_AWAIT,
	COMMAND_COMPENSATION,		/* to be run should the workflow fail */
	COMMAND_DISCARD,			/* of all compensations before it */
	COMMAND_UNDO				/* a compensation, when it has failed */
} CommandKind;

typedef enum CommandState
{
	COMMAND_ISSUED,
	COMMAND_COMPLETED,
	COMMAND_FAILED,
	COMMAND_TIMED_OUT,
	COMMAND_CANCELLED
} CommandState;

/* What a body asked for at one position, and what became of it. */
typedef struct Command
{
	int			position;
	CommandKind kind;
	const char *name;
	const char *step_id;		/* of activities */
	Jsonb	   *args;			/* NULL: none */

	bool		recorded;		/* is in the history */
	CommandState state;
	Jsonb	   *result;			/* NULL: SQL NULL */
	Jsonb	   *error;
	TimestampTz at;				/* when it came to its end */

	TimestampTz wake_at;		/* deadline or next attempt, 0: none */
	int			attempts;		/* that have failed */
	int			attempts_before;	/* of these, before durable_retry() */
	TimestampTz first_at;		/* begin of the first attempt */
	Jsonb	   *retry;			/* the call's policy, NULL: none */
	TimeLimits	limits;			/* the call's */
	Jsonb	   *heartbeat;		/* details of the last attempt, NULL: none */
	bool		beating;		/* they are of the attempt that runs here */
	const char *compensate;		/* the activity that undoes it, NULL: none */
	bool		compensate_attempted;	/* the call's */
	bool		attempted;		/* of some attempt nobody knows the outcome */
	const char *undo_attempted; /* what undoes that, NULL: nothing */
	int			seq;			/* of the row that says its state */
	struct Command *undoes;		/* of UNDO, NULL: it has its own arguments */
	bool		shielded;		/* is not interrupted by a cancel */
	Oid			function;		/* one of ours that is an activity */
	Jsonb	   *options;		/* of a child */
	bool		restarted;		/* it failed, and another one is to be started */
	const int  *handles;		/* what is awaited: positions, of this pass */
	int			nhandles;
	bool		any;			/* one of them is enough */
} Command;

/* What a primitive asks for. */
typedef struct CommandRequest
{
	CommandKind kind;
	const char *name;
	const char *step_id;		/* NULL: made from the name */
	Jsonb	   *args;
	Jsonb	   *retry;
	TimeLimits	limits;
	const char *compensate;		/* NULL: none */
	bool		compensate_attempted;
	TimestampTz wake_at;		/* of a timer, or a deadline; 0: none */
	bool		shielded;
	Oid			function;		/* one of ours that is an activity */
	Jsonb	   *options;		/* of a child */
	const int  *handles;		/* to be awaited */
	int			nhandles;
	bool		any;
} CommandRequest;

typedef enum PassOutcome
{
	PASS_OPEN,					/* nothing decided yet */
	PASS_RETURNED,				/* result */
	PASS_RAISED,				/* error */
	PASS_BLOCKED,				/* needs blocked_on to come to its end */
	PASS_CONTINUED,				/* as a new run: result is its input */
	PASS_CANCELLED,				/* but would not hear of it */
	PASS_VERDICT				/* must not go on: reason */
} PassOutcome;

typedef enum HandlerKind
{
	HANDLER_SIGNAL,
	HANDLER_UPDATE,
	HANDLER_QUERY
} HandlerKind;

/* A function that the body has put in charge of messages or queries. */
typedef struct Handler
{
	HandlerKind kind;
	char	   *name;			/* of the messages */
	char	   *function;
	char	   *validator;		/* of updates, NULL: none */
} Handler;

/* A state that messages led to, known from the position on. */
typedef struct Arrival
{
	int			position;		/* the command in which they were delivered */
	Jsonb	   *state;
} Arrival;

/* What durable_change_version() said of a change, the first time. */
typedef struct Marker
{
	const char *change;
	int			version;
	int			position;		/* the last one taken then */
	bool		recorded;
} Marker;

/* How a run ended, when it is read again. */
typedef struct End
{
	const char *event;			/* NULL: it has not */
	Jsonb	   *result;
	Jsonb	   *error;
} End;

/* The seed of positions that were copied from another instance. */
typedef struct Fork
{
	int			through;
	int64		seed;
} Fork;

/* One run of the body from the top. */
typedef struct Pass
{
	PassOutcome outcome;
	Jsonb	   *result;
	ErrorData  *error;
	Command    *blocked_on;
	char	   *reason;
	int			sqlerrcode;		/* of the verdict */

	int			position;		/* last one taken */
	int			draws;			/* random values since then */
	TimestampTz now;			/* of the last event the body knows of */
	Command    *raised;			/* the last failure it was given */
	int			swallowed;		/* how often it caught our signal */
	int			cancels;		/* how often it was told of a cancel */

	Jsonb	   *state;
	bool		has_state;		/* it is of interest to others */
	List	   *handlers;
	List	   *unmarked;		/* changes that came too late for it */
	int			next_arrival;
	bool		in_handler;		/* a handler runs, not the body */

	bool		linear;			/* steps run in place */
	bool		broken;			/* the body ended the transaction */
	int			live_queries;	/* under way, with functions in them */
	int			settings_level; /* of a linear pass */
} Pass;

/* What the driver is doing, so that an error can be judged. */
typedef enum Phase
{
	PHASE_ENGINE,
	PHASE_BODY,
	PHASE_RESOLVE,				/* of the activity's function */
	PHASE_ACTIVITY,
	PHASE_COMMIT
} Phase;

/* What durable_log() said; emitted at the next commit. */
typedef struct LogEntry
{
	int			level;
	char	   *message;
} LogEntry;

/* An instance that is being run. */
typedef struct Activation
{
	MemoryContext cxt;			/* lives as long as the activation */
	MemoryContext history_cxt;	/* the history */
	MemoryContext pass_cxt;		/* one pass */
	MemoryContext step_cxt;		/* one activity */
	MemoryContext work_cxt;		/* one turn of the driver */

	Transactions *tx;
	int64		lease;
	InstanceRow *instance;
	List	   *settings;
	Jsonb	   *settings_json;	/* the same */
	Jsonb	   *input;
	SandboxMode sandbox;
	bool		rehearsal;		/* nothing comes of it */
	TimestampTz began_at;

	DurableFunction *function;
	DurableArguments *arguments;
	uint64		function_generation;
	HTAB	   *activities;		/* by name, see step.c */
	List	   *handlers;		/* likewise, see pin.c */

	/* the history */
	Command   **commands;		/* by position - 1 */
	int			ncommands;
	int			size;
	HTAB	   *step_ids;
	Arrival    *arrivals;		/* in order */
	int			narrivals;
	int			arrivals_size;
	End			end;
	List	   *markers;		/* of changes of the workflow */
	int			cancel_after;	/* a cancel was delivered then, -1: none */
	int			cancel_in;		/* the command it ended the wait in, 0: none */
	char	   *cancel_reason;
	int			retried_through;	/* positions that were taken once before */
	int			fork_through;	/* positions that were copied */
	List	   *forks;			/* the seeds they were made with */
	bool		subscribed;		/* to events */
	bool		queued;			/* activities were left to clients */
	List	   *carried;		/* compensations of earlier runs, as JSON */
	struct Closing *closing;	/* how it will end, NULL: not decided */
	int			next_seq;
	TimestampTz started_at;		/* durable_now() at the start */
	TimestampTz last_at;		/* of the newest event */

	Pass		pass;
	Phase		phase;
	Command    *running;		/* the activity of phases RESOLVE, ACTIVITY */
	Command    *unconfirmed;	/* done, but not yet committed */
	bool		dirty;			/* history rows are not yet committed */
	int			conflicts;		/* attempts lost to others, one after another */
	bool		lost;			/* another driver has the instance */
	bool		later;			/* a client is in the way: look again soon */
	uint64		control_seen;	/* requests up to then are known of */
	bool		look;			/* there may be a request */
	bool		interrupted;	/* an activity was cancelled */
	bool		stuck;			/* a compensation failed for good: hold */
	ErrorData  *error;			/* to be recovered from */
	bool		desperate;		/* recovering has failed once */

	List	   *log;
	int			log_through;	/* the last position whose log we have */
} Activation;

/* Whose code is running in this session. */
typedef enum DurableContext
{
	CONTEXT_NONE,				/* the client's */
	CONTEXT_ENGINE,				/* a driver's */
	CONTEXT_BODY,				/* a workflow's */
	CONTEXT_ACTIVITY			/* an activity's */
} DurableContext;

extern DurableContext CurrentContext;
extern void ContextSet(DurableContext context);
extern Activation *CurrentActivation;

/* activation.c */
extern Activation *ActivationCreate(Transactions *tx, int64 lease);
extern void ActivationForgetHistory(Activation *a);
extern const char *ActivationFlaw(const Activation *a, const HistoryRow *row);
extern void ActivationReadRow(const HistoryRow *row, void *arg);
extern void ActivationReadHistory(Activation *a);
extern TimestampTz ActivationStamp(Activation *a);
extern void ActivationRecord(Activation *a, Command *command,
							 HistoryRow *row);
extern int	ActivationStepPosition(Activation *a, const char *id);
extern void ActivationAddArrival(Activation *a, int position, Jsonb *state);
extern Jsonb *ActivationKeep(Activation *a, Jsonb *json);
extern Marker *ActivationMarker(Activation *a, const char *change);
extern Marker *ActivationMark(Activation *a, const char *change, int version);
extern void ActivationRecordMarkers(Activation *a);
extern Command *ActivationIssue(Activation *a, const CommandRequest *request);
extern void ActivationForget(Activation *a);
extern void ActivationCommitted(Activation *a);
pg_noreturn extern void ActivationLost(Activation *a);
pg_noreturn extern void ActivationLater(Activation *a);

/* pass.c */
extern bool PassIsLinear(const Activation *a);
extern void PassRun(Activation *a);
extern void PassDisarm(Activation *a);
extern void PassArm(Activation *a);
extern Jsonb *PassCallHandler(Activation *a, const char *function,
							  Jsonb **args, int nargs, ErrorData **error);

/* replay.c */
extern Activation *ReplayEnter(const char *primitive);
extern Command *ReplayCommand(Activation *a, const CommandRequest *request);
pg_noreturn extern void ReplayContinue(Activation *a, Jsonb *input);
extern Command *ReplayFinished(Activation *a, Command *command);
pg_noreturn extern void ReplayBlock(Activation *a, Command *command);
pg_noreturn extern void ReplayVerdict(Activation *a, int sqlerrcode, const char *reason,
						  const char *hint);
extern void ReplayCondemn(Activation *a, int sqlerrcode, const char *reason,
						  const char *hint);
extern void ReplayCheckLeftover(Activation *a);
extern char *ReplayDescribe(const Command *command);
extern bool ReplayIsReplaying(const Activation *a);
extern bool ReplayIsCancelled(const Activation *a);
extern void ReplayDeliverAll(Activation *a);
extern Handler *ReplayHandler(Activation *a, HandlerKind kind,
							  const char *name);

#endif							/* DURABLE_REPLAY_H */
