/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  Primitives of the state: what it is, who changes it, waiting for it.
 *
 * The state and its handlers are in the pass's memory, so exception blocks of
 * the body do not undo them, and each pass comes to them again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "arguments.h"
#include "engine/json.h"
#include "engine/replay.h"
#include "engine/wait.h"

PG_FUNCTION_INFO_V1(durable_state);
PG_FUNCTION_INFO_V1(durable_set_state);
PG_FUNCTION_INFO_V1(durable_on_signal);
PG_FUNCTION_INFO_V1(durable_on_update);
PG_FUNCTION_INFO_V1(durable_on_query);
PG_FUNCTION_INFO_V1(durable_wait_until);

/*
 * durable_state: the state as it is here.
 */
Datum
durable_state(PG_FUNCTION_ARGS)
{
	PG_RETURN_JSONB_P(ReplayEnter("durable_state")->pass.state);
}

/*
 * durable_set_state: it is this from now on.
 */
Datum
durable_set_state(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_set_state");
	Jsonb	   *state = ArgJsonb(fcinfo, 0, "state");
	MemoryContext old = MemoryContextSwitchTo(a->pass_cxt);

	a->pass.state = JsonCopy(state);
	a->pass.has_state = true;
	MemoryContextSwitchTo(old);
	PG_RETURN_VOID();
}

/*
 * set_handler: from now on; the last one of a name counts.
 */
static void
set_handler(Activation *a, HandlerKind kind, const char *name,
			const char *function, const char *validator)
{
	Handler    *handler = ReplayHandler(a, kind, name);
	MemoryContext old = MemoryContextSwitchTo(a->pass_cxt);

	if (handler == NULL)
	{
		handler = palloc0(sizeof(Handler));
		a->pass.handlers = lappend(a->pass.handlers, handler);
	}
	handler->kind = kind;
	handler->name = pstrdup(name);
	handler->function = pstrdup(function);
	handler->validator = validator ? pstrdup(validator) : NULL;
	a->pass.has_state = true;
	MemoryContextSwitchTo(old);
}

/*
 * durable_on_signal: signals of that name change the state.
 */
Datum
durable_on_signal(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_on_signal");

	set_handler(a, HANDLER_SIGNAL, ArgName(fcinfo, 0, "name"),
				ArgName(fcinfo, 1, "handler"), NULL);
	PG_RETURN_VOID();
}

/*
 * durable_on_update: the same for updates, which are answered.
 */
Datum
durable_on_update(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_on_update");

	set_handler(a, HANDLER_UPDATE, ArgName(fcinfo, 0, "name"),
				ArgName(fcinfo, 1, "handler"),
				ArgNameOrNull(fcinfo, 2, "validator"));
	PG_RETURN_VOID();
}

/*
 * durable_on_query: who answers queries of that name.
 */
Datum
durable_on_query(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_on_query");

	set_handler(a, HANDLER_QUERY, ArgName(fcinfo, 0, "name"),
				ArgName(fcinfo, 1, "handler"), NULL);
	PG_RETURN_VOID();
}

/*
 * durable_wait_until: go on when the condition is true of the state, or (with
 * false) when the time is over.
 */
Datum
durable_wait_until(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_wait_until");
	CommandRequest request = {.kind = COMMAND_CONDITION};

	request.name = ArgName(fcinfo, 0, "condition");
	if (!PG_ARGISNULL(1))
		request.wake_at = WaitFromNow(PG_GETARG_DATUM(1), "timeout");
	PG_RETURN_BOOL(ReplayFinished(a, ReplayCommand(a, &request))->state ==
				   COMMAND_COMPLETED);
}
