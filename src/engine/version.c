/*-------------------------------------------------------------------------
 *
 * version.c
 *	  Primitives by which a body tells old instances from new ones.
 *
 * A marker says which version of a change an instance has come to.  It takes
 * no position, so that one can be put anywhere in a body whose instances are
 * under way; it is known by the name of the change, however often the body
 * comes to it.
 *
 * An instance whose history has commands behind the place of a marker that it
 * does not have came by before the change was made.  It always will have, so
 * it need not be recorded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "arguments.h"
#include "engine/replay.h"

PG_FUNCTION_INFO_V1(durable_change_version);
PG_FUNCTION_INFO_V1(durable_patched);
PG_FUNCTION_INFO_V1(durable_deprecate_patch);

static bool
is_unmarked(Activation *a, const char *change)
{
	ListCell   *lc;

	foreach(lc, a->pass.unmarked)
	{
		if (strcmp(lfirst(lc), change) == 0)
			return true;
	}
	return false;
}

/*
 * version_of: of a change in this instance, the newest if it comes to it for
 * the first time now; 0 if it came by before there was one.
 *
 * Who was too late once is so for the rest of the body, in loops too.
 */
static int
version_of(Activation *a, const char *change, int newest)
{
	Marker	   *marker = ActivationMarker(a, change);
	MemoryContext old;

	if (marker != NULL)
		return marker->version;
	if (is_unmarked(a, change))
		return 0;
	if (!ReplayIsReplaying(a))
		return ActivationMark(a, change, newest)->version;

	old = MemoryContextSwitchTo(a->pass_cxt);
	a->pass.unmarked = lappend(a->pass.unmarked, pstrdup(change));
	MemoryContextSwitchTo(old);
	return 0;
}

static void
check_supported(Activation *a, const char *change, int version, int min,
				int max)
{
	if (version >= min && version <= max)
		return;
	ReplayVerdict(a, ERRCODE_DURABLE_DETERMINISM,
				  psprintf("the instance is of version %d of change \"%s\", but the workflow knows only %d to %d",
						   version, change, min, max),
				  "Bring the old branch back, or let the instance run on the definition it began on.");
}

static int
read_number(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	ArgNotNull(fcinfo, i, parameter);
	return PG_GETARG_INT32(i);
}

/*
 * durable_change_version: which version of a change this instance is to
 * follow.
 */
Datum
durable_change_version(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_change_version");
	char	   *change = ArgName(fcinfo, 0, "change");
	int			min = read_number(fcinfo, 1, "min");
	int			max = read_number(fcinfo, 2, "max");
	int			version;

	if (min < 0 || max < 1 || min > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid versions of change \"%s\": %d to %d", change,
						min, max),
				 errhint("max is the newest version, at least 1; min is the oldest that the workflow still has code for, 0 for that before the change.")));
	version = version_of(a, change, max);
	check_supported(a, change, version, min, max);
	PG_RETURN_INT32(version);
}

/*
 * durable_patched: does the change count for this instance?
 */
Datum
durable_patched(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_patched");

	PG_RETURN_BOOL(version_of(a, ArgName(fcinfo, 0, "change"), 1) > 0);
}

/*
 * durable_deprecate_patch: the branch before the change is gone.  Instances
 * go on being marked, so that the call can be taken back; whether one that
 * came by before the change can live without the branch is for the matching to
 * tell.
 */
Datum
durable_deprecate_patch(PG_FUNCTION_ARGS)
{
	Activation *a = ReplayEnter("durable_deprecate_patch");

	(void) version_of(a, ArgName(fcinfo, 0, "change"), 1);
	PG_RETURN_VOID();
}
