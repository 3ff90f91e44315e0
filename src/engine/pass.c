/*-------------------------------------------------------------------------
 *
 * pass.c
 *	  One run of a workflow's body from the top.
 *
 * A function is run in a subtransaction that is always rolled back: a body
 * leaves no effect.  A procedure may be run in the driver's transaction itself
 * (linear), so that its steps can commit in place; there the sandbox alone
 * keeps the body from having effects, and an error takes the transaction
 * down, in which nothing was done since the last step.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/binding.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/pin.h"
#include "engine/replay.h"
#include "engine/sandbox.h"
#include "engine/settings.h"
#include "runtime/process.h"

/*
 * PassIsLinear: can steps of the body commit in place?
 *
 * Then nothing may be uncommitted when the pass begins: an error in it takes
 * the whole transaction down.
 */
bool
PassIsLinear(const Activation *a)
{
	return !a->tx->inside && a->function->nonatomic_ok &&
		a->sandbox == SANDBOX_STRICT;
}

/*
 * no_state: what the state is before anybody has set it.
 */
static Jsonb *
no_state(Activation *a)
{
	MemoryContext old = MemoryContextSwitchTo(a->pass_cxt);
	Jsonb	   *state = JsonEmpty();

	MemoryContextSwitchTo(old);
	return state;
}

static void
begin(Activation *a)
{
	Pass	   *pass = &a->pass;

	ActivationForget(a);
	MemoryContextReset(a->pass_cxt);
	memset(pass, 0, sizeof(Pass));
	pass->now = a->started_at;
	pass->state = no_state(a);
	pass->linear = PassIsLinear(a);
	CurrentActivation = a;
	a->phase = PHASE_BODY;
}

static void
run_in_subtransaction(Activation *a)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Pass	   *pass = &a->pass;
	TransactionId top_xid = GetTopTransactionIdIfAny();
	bool		wrote;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(a->pass_cxt);
	PG_TRY();
	{
		(void) SettingsEnter(a->settings);
		if (a->sandbox == SANDBOX_STRICT || a->rehearsal)
			XactReadOnly = true;
		ContextSet(CONTEXT_BODY);
		pass->result = FunctionInvoke(a->function, a->arguments, false);
	}
	PG_CATCH();
	{
		ContextSet(CONTEXT_ENGINE);
		MemoryContextSwitchTo(a->pass_cxt);
		pass->error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();

	ContextSet(CONTEXT_ENGINE);
	wrote = TransactionIdIsValid(GetCurrentTransactionIdIfAny()) ||
		GetTopTransactionIdIfAny() != top_xid;
	/* settings and XactReadOnly go with it */
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;

	if (wrote && pass->outcome == PASS_OPEN && pass->error == NULL &&
		a->sandbox == SANDBOX_STRICT)
		ReplayCondemn(a, ERRCODE_DURABLE_SANDBOX,
					  "the body of a workflow wrote to the database",
					  "Write in an activity, with durable_call() or durable_sql().");
}

/*
 * PassArm: the body has the word, in a linear pass.
 */
void
PassArm(Activation *a)
{
	a->pass.settings_level = SettingsEnter(a->settings);
	XactReadOnly = true;
	a->phase = PHASE_BODY;
	ContextSet(CONTEXT_BODY);
}

/*
 * PassDisarm: the engine has it again.
 */
void
PassDisarm(Activation *a)
{
	ContextSet(CONTEXT_ENGINE);
	a->phase = PHASE_ENGINE;
	XactReadOnly = false;
	SettingsLeave(a->pass.settings_level);
}

static void
run_in_place(Activation *a)
{
	MemoryContext cxt = CurrentMemoryContext;
	Pass	   *pass = &a->pass;

	MemoryContextSwitchTo(a->pass_cxt);
	PG_TRY();
	{
		PassArm(a);
		pass->result = FunctionInvoke(a->function, a->arguments, true);
		if (pass->broken)
			TransactionAbort(a->tx);
		else
			PassDisarm(a);
	}
	PG_CATCH();
	{
		TimeoutDisarm();
		ContextSet(CONTEXT_ENGINE);
		MemoryContextSwitchTo(a->pass_cxt);
		pass->error = CopyErrorData();
		FlushErrorState();
		TransactionAbort(a->tx);
		/* a step that failed, not the body: the driver's to judge */
		if (a->phase != PHASE_BODY)
			ReThrowError(pass->error);
	}
	PG_END_TRY();

	ContextSet(CONTEXT_ENGINE);
	MemoryContextSwitchTo(cxt);
}

/*
 * conclude: what the pass has come to.
 *
 * A cancel of the session, or of the activity that rehearses, is nobody's
 * outcome.  A verdict or a wait stands, whatever the body made of it.
 */
static void
conclude(Activation *a)
{
	Pass	   *pass = &a->pass;

	a->phase = PHASE_ENGINE;
	if (pass->error != NULL && ErrorIsCancel(pass->error) &&
		(!IsDurableWorker || a->rehearsal))
		ReThrowError(pass->error);
	if (pass->broken && pass->outcome == PASS_OPEN)
		ReplayCondemn(a, ERRCODE_DURABLE_SANDBOX,
					  "the body of a workflow must not say ROLLBACK",
					  "Steps commit by themselves.");
	if (pass->outcome == PASS_CONTINUED)
		ReplayCheckLeftover(a);
	if (pass->outcome != PASS_OPEN)
		return;

	ReplayDeliverAll(a);
	pass->outcome = pass->error == NULL ? PASS_RETURNED : PASS_RAISED;
	if (pass->outcome == PASS_RAISED && ErrorIsEnvironment(pass->error) &&
		!(pass->raised && FailureIs(pass->raised->error, pass->error)))
		return;
	ReplayCheckLeftover(a);
}

/*
 * PassRun: run the body and leave the outcome in a->pass.
 */
void
PassRun(Activation *a)
{
	begin(a);
	if (a->pass.linear)
		run_in_place(a);
	else
		run_in_subtransaction(a);
	conclude(a);
	a->log_through = Max(a->log_through,
						 a->pass.position - (a->pass.outcome == PASS_BLOCKED));
}

/* ------------------------------------------------------------------
 * Handlers
 * ------------------------------------------------------------------
 */

static Jsonb *
invoke_handler(DurableFunction *fn, Jsonb **args, int nargs)
{
	if (fn->nparams != nargs)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("handler %s has %d parameters", fn->signature,
						fn->nparams),
				 errhint(nargs == 1 ? "It gets the state." :
						 "It gets the state and the message.")));
	fn->whole = false;
	return FunctionInvoke(fn, ArgumentsBind(fn, JsonArray(args, nargs)), false);
}

/*
 * find_handler: in a subtransaction of its own, because what is found out is
 * to be kept, and errors are the handler's.
 */
static DurableFunction *
find_handler(Activation *a, const char *name, ErrorData **error)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	DurableFunction *volatile fn = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		fn = PinChooseHandler(a, name);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ContextSet(CONTEXT_ENGINE);
		MemoryContextSwitchTo(cxt);
		*error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return fn;
}

/*
 * call_handler: in a subtransaction that is rolled back.  A query (fn is NULL)
 * leaves nothing behind, a copy neither.
 */
static Jsonb *
call_handler(Activation *a, DurableFunction *volatile fn, const char *function,
			 Jsonb **args, int nargs, ErrorData **error)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Pass	   *pass = &a->pass;
	Jsonb	   *volatile result = NULL;

	pass->outcome = PASS_OPEN;
	pass->in_handler = true;
	CurrentActivation = a;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		XactReadOnly = false;
		if (fn == NULL)
			fn = PinChooseHandler(a, function);
		(void) SettingsEnter(a->settings);
		XactReadOnly = true;
		ContextSet(CONTEXT_BODY);
		result = invoke_handler(fn, args, nargs);
	}
	PG_CATCH();
	{
		ContextSet(CONTEXT_ENGINE);
		MemoryContextSwitchTo(cxt);
		*error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	ContextSet(CONTEXT_ENGINE);
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	pass->in_handler = false;
	return result;
}

/*
 * PassCallHandler: the result of a function of the state, run as the body is:
 * in the sandbox, without effect.  NULL with an error if it raised one.
 *
 * The pass is over when this is called; it keeps its outcome, unless the
 * handler did what it must not do.
 */
Jsonb *
PassCallHandler(Activation *a, const char *function, Jsonb **args, int nargs,
				ErrorData **error)
{
	Pass	   *pass = &a->pass;
	PassOutcome outcome = pass->outcome;
	DurableFunction *fn = NULL;
	uint64		generation;
	Jsonb	   *result;

	do
	{
		CHECK_FOR_INTERRUPTS();
		*error = NULL;
		generation = FunctionGeneration;
		if (a->tx != NULL)
			fn = PinKnownHandler(a, function);
		if (a->tx != NULL && fn == NULL)
			fn = find_handler(a, function, error);
		if (*error != NULL)
		{
			if (ErrorIsCancel(*error) || ErrorIsEnvironment(*error))
				ReThrowError(*error);
			return NULL;
		}
		result = call_handler(a, fn, function, args, nargs, error);
		/* replaced before it was called: that was another one's result */
	} while (fn != NULL && generation != FunctionGeneration &&
			 !FunctionIsSame(fn));

	if (pass->outcome == PASS_OPEN)
		pass->outcome = outcome;
	if (*error != NULL && (ErrorIsCancel(*error) || ErrorIsEnvironment(*error)) &&
		pass->outcome != PASS_VERDICT)
		ReThrowError(*error);
	return result;
}
