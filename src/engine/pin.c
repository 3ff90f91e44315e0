/*-------------------------------------------------------------------------
 *
 * pin.c
 *	  Which definition of its functions an instance runs on.
 *
 * While the functions are what they were when the instance began, they are
 * called themselves.  When one has changed, the policy of the workflow
 * decides: the instance goes on with a copy of what was (pin), with what is
 * (continue), or is held until somebody has chosen (hold).
 *
 * A copy is a function in a schema of its own, made from the text that was
 * stored with the version.  It belongs to the owner of the original, nobody
 * may call it but we, and we only for who may call the original.  It lasts as
 * long as instances need it (table pin_use).  Who uses one holds a lock on its
 * name in share mode until the use is committed, who makes or drops one in
 * exclusive mode (LeasePin).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "digest.h"
#include "durable.h"
#include "engine/definition.h"
#include "engine/failure.h"
#include "engine/json.h"
#include "engine/pin.h"
#include "engine/sandbox.h"
#include "engine/settle.h"
#include "engine/settings.h"
#include "engine/start.h"
#include "engine/transaction.h"
#include "runtime/lease.h"
#include "runtime/process.h"

/* How much of its hash tells one copy of a function from another. */
#define HASH_DIGITS	20

/* ------------------------------------------------------------------
 * Copies
 * ------------------------------------------------------------------
 */

/*
 * pin_name: a copy is known by the definition and the owner, so workflows and
 * versions that have both in common share it.
 */
static char *
pin_name(const DefinitionRow *row)
{
	const char *function = FunctionNamePart(row->function);
	const char *dot = strrchr(function, '.');
	const char *name = dot != NULL ? dot + 1 : function;
	char	   *hash = DigestOf(psprintf("%u %s", row->owner, row->definition));
	int			room = NAMEDATALEN - 2 - HASH_DIGITS;

	return psprintf("%.*s_%.*s", pg_mbcliplen(name, strlen(name), room), name,
					HASH_DIGITS, hash);
}

/*
 * check_same_owner: whose code is it?  Neither may the role have become
 * another, nor the copy another's.
 */
static void
check_same_owner(const DefinitionRow *row, Oid copy)
{
	char	   *name = GetUserNameFromId(row->owner, true);

	if (name == NULL || strcmp(name, row->owner_name) != 0 ||
		(OidIsValid(copy) && FunctionOwner(copy) != row->owner))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("the definition of function %s that the instance began on cannot be used",
						row->function),
				 errdetail("It belonged to role \"%s\", which is not there any more or has given it away.",
						   row->owner_name),
				 errhint("Let the instance go on with what the function is now: durable_resume(id, definition => 'current').")));
}

/*
 * find_copy: in the hand of this transaction, made if need be.
 *
 * It may have been dropped by others than us (DROP OWNED, say): what is left of
 * it goes first.  What is not to be kept is nobody else's business.
 */
static Oid
find_copy(const DefinitionRow *row, const char *pin, bool keep)
{
	Oid			copy;

	if (OidIsValid(PinFind(pin)))
	{
		(void) LeasePin(pin, false, true);
		copy = PinFind(pin);
		if (OidIsValid(copy))
			return copy;
		/* dropped while we waited; others who saw that want it as we do */
		LeaseUnpin(pin);
	}
	if (!keep)
		return PinCreate(NULL, row->definition, row->owner);
	(void) LeasePin(pin, true, true);
	copy = PinFind(pin);
	if (!OidIsValid(copy))
	{
		PinDrop(pin);
		copy = PinCreate(pin, row->definition, row->owner);
	}
	return copy;
}

/*
 * Copies that this worker has called.  PL/pgSQL keeps what it made of a
 * function until the process ends, though the function was dropped.
 */
#define MANY_COPIES	64

static List *met = NIL;

static void
meet(Oid copy)
{
	MemoryContext old;

	if (!IsDurableWorker)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	met = list_append_unique_oid(met, copy);
	MemoryContextSwitchTo(old);
}

/*
 * PinHasMetMany: should this worker make room for another one?
 */
bool
PinHasMetMany(void)
{
	return list_length(met) >= MANY_COPIES;
}

/*
 * describe_copy: what an instance is to run instead of a function.
 *
 * Outside of an activation (a query) nothing is kept: the transaction in which
 * the copy was made is rolled back.
 */
static DurableFunction *
describe_copy(Activation *a, const DefinitionRow *row, const char *what)
{
	char	   *pin = pin_name(row);
	DurableFunction *fn;
	Oid			copy;

	check_same_owner(row, InvalidOid);
	copy = find_copy(row, pin, a->tx != NULL);
	check_same_owner(row, copy);
	if (a->tx != NULL)
	{
		a->instance->pinned = true;
		if (PinUse(a->instance->iid, pin))
			a->dirty = true;
	}
	meet(copy);
	fn = FunctionDescribe(copy, what);
	fn->signature = row->function;
	fn->pinned = true;
	return fn;
}

static void
drop_if_unused(void *arg)
{
	const char *pin = arg;

	if (LeasePin(pin, true, false) && !PinIsUsed(pin))
		PinDrop(pin);
}

/*
 * try_drop: a copy that cannot be dropped (a superuser has made a view of it,
 * say) is litter, and no reason to stop whoever would tidy up.
 */
static void
try_drop(char *pin)
{
	ErrorData  *error = TransactionTry(drop_if_unused, pin);

	if (error == NULL)
		return;
	if (ErrorIsCancel(error))
		ReThrowError(error);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("copy \"%s\" of a function, which is not needed any more, could not be dropped: %s",
					pin, error->message)));
}

/*
 * PinDropUnused: drop those copies that nobody needs.  What others have in
 * hand now is theirs to drop, or the next sweep's.
 */
void
PinDropUnused(List *pins)
{
	ListCell   *lc;

	foreach(lc, pins)
		try_drop(lfirst(lc));
}

/*
 * PinSweep: the same for all; false if there was none.
 */
bool
PinSweep(void)
{
	List	   *pins = PinsUnused();

	PinDropUnused(pins);
	return pins != NIL;
}

/* ------------------------------------------------------------------
 * The right to run it
 * ------------------------------------------------------------------
 */

/*
 * check_right: a copy is run only for who may run the original.  When that is
 * gone, nobody can say who might have, but its owner.
 */
static void
check_right(const DefinitionRow *row, Oid original, const char *what)
{
	if (OidIsValid(original))
	{
		DurableFunction *fn = FunctionDescribe(original, what);

		FunctionCheckOwner(fn, row->owner);
		FunctionCheckExecute(fn);
	}
	else if (!has_privs_of_role(GetUserId(), row->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("function %s was dropped, and role \"%s\" is no member of its owner \"%s\"",
						row->function, GetUserNameFromId(GetUserId(), true),
						row->owner_name),
				 errhint("Create the function again: who may execute that may go on.")));
}

/* ------------------------------------------------------------------
 * The workflow
 * ------------------------------------------------------------------
 */

static bool
is_policy(const InstanceRow *instance, const char *policy)
{
	return instance->definition == NULL &&
		strcmp(instance->on_change, policy) == 0;
}

/*
 * is_pinned: is it to stay on what it began on?
 */
static bool
is_pinned(const InstanceRow *instance)
{
	return (instance->definition != NULL &&
			strcmp(instance->definition, "pinned") == 0) ||
		is_policy(instance, "pin");
}

/*
 * record_switch: from here on its history is made by another definition.
 */
static void
record_switch(Activation *a, const WorkflowRow *to)
{
	HistoryRow	row = {.event = "WorkflowDefinitionChanged"};
	Phase		phase = a->phase;
	JsonbParseState *data;

	JsonObjectBegin(&data);
	JsonObjectAddNumber(&data, "from", a->instance->version);
	JsonObjectAddText(&data, "from_hash", a->instance->hash);
	JsonObjectAddNumber(&data, "to", to->version);
	JsonObjectAddText(&data, "to_hash", to->hash);
	row.data = JsonObjectEnd(&data);
	a->phase = PHASE_ENGINE;
	ActivationRecord(a, NULL, &row);
	a->phase = phase;
}

static void
switch_to(Activation *a, const WorkflowRow *current)
{
	InstanceRow *instance = a->instance;

	if (current->version != instance->version)
		record_switch(a, current);
	else if (instance->definition == NULL)
		return;
	InstanceSwitch(instance->iid, current->version);
	a->dirty = true;
	a->handlers = NIL;
	instance->version = instance->current_version = current->version;
	instance->definition = NULL;
	instance->function = current->function;
	instance->hash = current->hash;
	instance->whole = current->whole;
	instance->workflow_owner = current->owner;
}

static bool
is_same(const InstanceRow *instance, const WorkflowRow *current)
{
	return instance->version == current->version ||
		(strcmp(instance->hash, current->hash) == 0 &&
		 strcmp(instance->function, current->function) == 0 &&
		 DefinitionHandlersAreSame(instance->workflow, instance->version,
								   current->version));
}

/*
 * follow_policy: move to the current definition, if that is what is wanted.
 * False: the instance is held.
 */
static bool
follow_policy(Activation *a)
{
	InstanceRow *instance = a->instance;
	WorkflowRow *current;

	if (is_pinned(instance) ||
		(instance->definition == NULL &&
		 instance->version == instance->current_version &&
		 DefinitionIsFresh(instance->workflow, instance->version)))
		return true;
	current = StartFindWorkflow(instance->workflow);
	DefinitionCheckSame(current, instance->version);
	current = DefinitionRefresh(current);
	if (!is_policy(instance, "hold"))
		switch_to(a, current);
	else if (!is_same(instance, current))
	{
		SettleHoldToMend(a, psprintf("WF005: workflow \"%s\" has changed: the instance began on version %d (%s), the current one is %d (%s). Call durable_resume() with definition => 'pinned' or 'current'.",
									 instance->workflow, instance->version,
									 instance->hash, current->version,
									 current->hash));
		return false;
	}
	return true;
}

/*
 * describe_if_same: the function, if it is what has that hash, else NULL.
 *
 * Described before and looked at after its hash is found out: what is called
 * must be what was compared.
 */
static DurableFunction *
describe_if_same(Oid function, const char *hash, const char *what)
{
	DurableFunction *fn;
	bool		same;

	do
	{
		CHECK_FOR_INTERRUPTS();
		fn = FunctionDescribe(function, what);
		same = strcmp(DefinitionHash(function), hash) == 0;
	} while (!FunctionIsSame(fn));
	return same ? fn : NULL;
}

static DurableFunction *
describe_workflow(Activation *a)
{
	InstanceRow *instance = a->instance;
	Oid			original = FunctionTryResolve(instance->function, "workflow");
	DurableFunction *fn = NULL;
	DefinitionRow *row;

	if (OidIsValid(original))
		fn = describe_if_same(original, instance->hash, "workflow");
	if (fn != NULL)
	{
		FunctionCheckOwner(fn, instance->workflow_owner);
		FunctionCheckExecute(fn);
		return fn;
	}
	row = VersionFind(instance->workflow, instance->version);
	if (row == NULL)
		elog(ERROR, "version %d of workflow \"%s\" is not there",
			 instance->version, instance->workflow);
	check_right(row, original, "workflow");
	return describe_copy(a, row, "workflow");
}

/*
 * PinChooseWorkflow: the function that is the instance's body.  False: the
 * instance is held.
 */
bool
PinChooseWorkflow(Activation *a)
{
	if (a->instance->function == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("workflow \"%s\" is not registered",
						a->instance->workflow)));
	if (!follow_policy(a))
		return false;
	a->function = describe_workflow(a);
	a->function->whole = a->instance->whole;
	return true;
}

/* ------------------------------------------------------------------
 * Handlers
 * ------------------------------------------------------------------
 */

/* A handler that was looked up, and when. */
typedef struct HandlerEntry
{
	char	   *name;
	uint64		generation;
	DurableFunction *function;
} HandlerEntry;

/*
 * find_known: what the version has under that name: the function that the
 * name means now or, if it means none, the one that it meant.
 */
static DefinitionRow *
find_known(const InstanceRow *instance, Oid function, const char *name)
{
	const char *signature = OidIsValid(function) ?
		FunctionDescribe(function, "handler")->signature : NULL;
	ListCell   *lc;

	foreach(lc, HandlersOf(instance->workflow, instance->version))
	{
		DefinitionRow *row = lfirst(lc);

		if (signature != NULL ? strcmp(row->function, signature) == 0 :
			strcmp(row->name, name) == 0)
			return row;
	}
	return NULL;
}

/*
 * learn: the body has named a handler that its text does not.  From now on it
 * is the version's, if the workflow's owner could have written it.
 */
static void
learn(Activation *a, Oid function, const char *name)
{
	InstanceRow *instance = a->instance;

	if (a->tx != NULL && FunctionIsOf(function, instance->workflow_owner) &&
		HandlerStore(instance->workflow, instance->version,
					 DefinitionOfHandler(function, name)))
		a->dirty = true;
}

static DurableFunction *
describe_handler(Activation *a, const char *name)
{
	InstanceRow *instance = a->instance;
	Oid			function = FunctionTryResolve(name, "handler");
	DefinitionRow *known = NULL;
	DurableFunction *fn = NULL;

	if (instance->function != NULL)
		known = find_known(instance, function, name);
	if (known == NULL || !is_pinned(instance))
		fn = FunctionDescribe(FunctionResolve(name, "handler"), "handler");
	else if (OidIsValid(function))
		fn = describe_if_same(function, known->hash, "handler");
	if (fn == NULL)
	{
		check_right(known, function, "handler");
		return describe_copy(a, known, "handler");
	}
	FunctionCheckExecute(fn);
	if (known == NULL && instance->function != NULL)
		learn(a, fn->oid, name);
	return fn;
}

static HandlerEntry *
find_entry(Activation *a, const char *name)
{
	ListCell   *lc;

	foreach(lc, a->handlers)
	{
		HandlerEntry *entry = lfirst(lc);

		if (strcmp(entry->name, name) == 0)
			return entry;
	}
	return NULL;
}

/*
 * PinKnownHandler: the function that a handler, validator or condition is, if
 * that is known already, or NULL.
 */
DurableFunction *
PinKnownHandler(Activation *a, const char *name)
{
	HandlerEntry *entry = find_entry(a, name);

	return entry != NULL && entry->generation == FunctionGeneration ?
		entry->function : NULL;
}

/*
 * PinChooseHandler: find out.
 */
DurableFunction *
PinChooseHandler(Activation *a, const char *name)
{
	MemoryContext old = MemoryContextSwitchTo(a->cxt);
	HandlerEntry *entry = find_entry(a, name);
	uint64		generation = FunctionGeneration;
	int			level = SettingsEnter(a->settings);
	DurableFunction *fn = describe_handler(a, name);

	SettingsLeave(level);
	if (entry == NULL)
	{
		entry = palloc0(sizeof(HandlerEntry));
		entry->name = pstrdup(name);
		a->handlers = lappend(a->handlers, entry);
	}
	entry->function = fn;
	entry->generation = generation;
	MemoryContextSwitchTo(old);
	return fn;
}
