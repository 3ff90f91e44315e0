/*-------------------------------------------------------------------------
 *
 * control.c
 *	  Tables control and parked, and how drivers hear of requests.
 *
 * Whoever asks something of instances that may be running invalidates table
 * control: every driver hears of that at the begin of its next transaction,
 * and looks.  So nothing has to be looked up while nothing is asked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

#include "storage/storage.h"

static Statement pause_all = {
	"INSERT INTO durable_internal.control (paused_at) SELECT pg_catalog.clock_timestamp()"
	" WHERE NOT EXISTS (SELECT 1 FROM durable_internal.control)",
	0, {0}, NULL
};

static Statement resume_all = {
	"DELETE FROM durable_internal.control", 0, {0}, NULL
};

static Statement set_workflow_paused = {
	"UPDATE durable_internal.workflow SET paused = $2 WHERE name = $1 AND paused <> $2",
	2, {TEXTOID, BOOLOID}, NULL
};

/* What runs beside a body is parked with the body's workflow. */
static Statement park = {
	"INSERT INTO durable_internal.parked (iid, workflow)"
	" SELECT i.iid, coalesce((SELECT p.workflow FROM durable_internal.instance p"
	" WHERE p.iid = i.parent AND i.workflow LIKE 'durable:%'), i.workflow)"
	" FROM durable_internal.instance i WHERE i.iid = $1 ON CONFLICT DO NOTHING",
	1, {INT8OID}, NULL
};

/* What its own pause or a hold keeps back waits for its own resume. */
#define UNPARK(which) \
	"WITH gone AS (DELETE FROM durable_internal.parked p WHERE " which \
	" AND NOT EXISTS (SELECT 1 FROM durable_internal.control)" \
	" AND NOT coalesce((SELECT w.paused FROM durable_internal.workflow w WHERE w.name = p.workflow), false)" \
	" RETURNING p.iid)" \
	" INSERT INTO durable_internal.ready (iid, run_as, priority, suspect)" \
	" SELECT i.iid, i.run_as, i.priority, i.suspect FROM gone CROSS JOIN LATERAL" \
	" (SELECT l.* FROM durable_internal.instance l WHERE l.iid = gone.iid OFFSET 0) i" \
	" WHERE i.suspended IS NULL AND i.end_seq IS NULL ORDER BY i.iid" \
	" ON CONFLICT (iid) DO NOTHING"

static Statement unpark = {
	UNPARK("($1 IS NULL OR p.workflow = $1)"), 1, {TEXTOID}, NULL
};

static Statement unpark_one = {
	UNPARK("p.iid = $1"), 1, {INT8OID}, NULL
};

uint64		ControlGeneration = 1;

static Oid	control_table = InvalidOid;

static Oid
find_control_table(void)
{
	return get_relname_relid("control",
							 get_namespace_oid("durable_internal", false));
}

static void
on_relation_change(Datum arg, Oid relation)
{
	if (relation == control_table || !OidIsValid(relation))
		ControlGeneration++;
}

/*
 * ControlWatch: hear of requests from now on: at the begin of each transaction
 * ControlGeneration is up to date.
 */
void
ControlWatch(void)
{
	static bool watching = false;

	control_table = find_control_table();
	if (!watching)
		CacheRegisterRelcacheCallback(on_relation_change, (Datum) 0);
	watching = true;
}

/*
 * ControlChanged: when this transaction commits, all drivers are to look at
 * what is asked of their instances.
 */
void
ControlChanged(void)
{
	CacheInvalidateRelcacheByRelid(find_control_table());
}

/*
 * ControlPause: pause or resume a workflow or (NULL) everything; false if it
 * is so already.
 */
bool
ControlPause(const char *workflow, bool paused)
{
	Datum		one[2] = {TextDatum(workflow), BoolGetDatum(paused)};
	bool		changed;

	if (workflow != NULL)
		changed = StatementRun(&set_workflow_paused, one, NULL) > 0;
	else
		changed = StatementRun(paused ? &pause_all : &resume_all, NULL, NULL) > 0;
	if (changed)
		ControlChanged();
	return changed;
}

/*
 * ControlPark: an instance was to run, but is paused with its workflow.
 */
void
ControlPark(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	StatementRun(&park, values, NULL);
}

/*
 * ControlUnpark: make ready what was parked, of a workflow or (NULL) of all.
 */
void
ControlUnpark(const char *workflow)
{
	Datum		values[1] = {TextDatum(workflow)};
	bool		nulls[1] = {workflow == NULL};

	StatementRun(&unpark, values, nulls);
}

/*
 * ControlUnparkOne: the same for one instance, which was parked just now.
 */
void
ControlUnparkOne(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	StatementRun(&unpark_one, values, NULL);
}
