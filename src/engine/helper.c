/*-------------------------------------------------------------------------
 *
 * helper.c
 *	  Deterministic helpers of a body: time, chance, identity, log.  They
 *	  take no position and leave no trace in the history.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#include "arguments.h"
#include "engine/replay.h"

PG_FUNCTION_INFO_V1(durable_now);
PG_FUNCTION_INFO_V1(durable_random);
PG_FUNCTION_INFO_V1(durable_uuid);
PG_FUNCTION_INFO_V1(durable_instance_id);
PG_FUNCTION_INFO_V1(durable_run_number);
PG_FUNCTION_INFO_V1(durable_is_replaying);
PG_FUNCTION_INFO_V1(durable_cancel_requested);
PG_FUNCTION_INFO_V1(durable_log);

/*
 * durable_now: the time of the last event the body knows of.
 */
Datum
durable_now(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(ReplayEnter("durable_now")->pass.now);
}

/* A well-known mixing function (splitmix64). */
static uint64
mix(uint64 x)
{
	x += UINT64CONST(0x9E3779B97F4A7C15);
	x = (x ^ (x >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

/*
 * seed_here: what was copied from another instance was drawn with its seed.
 */
static uint64
seed_here(Activation *a)
{
	ListCell   *lc;

	if (a->pass.position < a->fork_through)
	{
		foreach(lc, a->forks)
		{
			Fork	   *fork = lfirst(lc);

			if (a->pass.position < fork->through)
				return (uint64) fork->seed;
		}
	}
	return (uint64) a->instance->seed;
}

/*
 * draw: the same bits at the same place of each pass.
 */
static uint64
draw(Activation *a)
{
	uint64		bits = mix(seed_here(a));

	bits = mix(bits ^ (uint64) a->pass.position);
	return mix(bits ^ (uint64) a->pass.draws++);
}

/*
 * durable_random: a number from 0 to below 1.
 */
Datum
durable_random(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_random");

	PG_RETURN_FLOAT8((double) (draw(a) >> 11) / (double) (UINT64CONST(1) << 53));
}

/*
 * durable_uuid: a UUID of version 4.
 */
Datum
durable_uuid(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_uuid");
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));
	uint64		bits[2];

	bits[0] = draw(a);
	bits[1] = draw(a);
	memcpy(uuid->data, bits, UUID_LEN);
	uuid->data[6] = (uuid->data[6] & 0x0f) | 0x40;
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80;
	PG_RETURN_UUID_P(uuid);
}

Datum
durable_instance_id(PG_FUNCTION_ARGS)
{
	Activation *a = CurrentActivation;

	if (CurrentContext != CONTEXT_ACTIVITY)
		a = ReplayEnter("durable_instance_id");
	PG_RETURN_TEXT_P(cstring_to_text(a->instance->id));
}

Datum
durable_run_number(PG_FUNCTION_ARGS)
{
	Activation *a = CurrentActivation;

	if (CurrentContext != CONTEXT_ACTIVITY)
		a = ReplayEnter("durable_run_number");
	PG_RETURN_INT32(a->instance->run);
}

Datum
durable_is_replaying(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ReplayIsReplaying(ReplayEnter("durable_is_replaying")));
}

/*
 * durable_cancel_requested: has the body been told of a cancel?
 */
Datum
durable_cancel_requested(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ReplayIsCancelled(ReplayEnter("durable_cancel_requested")));
}

static int
level_from_text(const char *level)
{
	static const struct
	{
		const char *name;
		int			level;
	}			levels[] = {
		{"debug", DEBUG1}, {"log", LOG}, {"info", INFO},
		{"notice", NOTICE}, {"warning", WARNING}
	};

	for (int i = 0; i < lengthof(levels); i++)
	{
		if (strcmp(level, levels[i].name) == 0)
			return levels[i].level;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown level \"%s\"", level),
			 errhint("Levels are debug, log, info, notice and warning.")));
	return 0;					/* keep compiler quiet */
}

/*
 * durable_log: say something once, however often the body is replayed.
 */
Datum
durable_log(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_log");
	char	   *message = ArgText(fcinfo, 0, "message");
	int			level = level_from_text(ArgText(fcinfo, 1, "level"));

	if (!ReplayIsReplaying(a) && a->pass.position > a->log_through)
	{
		MemoryContext old = MemoryContextSwitchTo(a->cxt);
		LogEntry   *entry = palloc(sizeof(LogEntry) + strlen(message) + 1);

		entry->level = level;
		entry->message = (char *) (entry + 1);
		strcpy(entry->message, message);
		a->log = lappend(a->log, entry);
		MemoryContextSwitchTo(old);
	}
	PG_RETURN_VOID();
}
