/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  What functions are now, and the versions of workflows made from it.
 *
 * A version is a definition of the workflow's function together with those of
 * its handlers.  Who changes one of them need not tell us: whoever starts an
 * instance, or moves one to the current definition, compares what is
 * registered with what the functions are, and a difference makes a new
 * version.  That is looked at once for each change of any function in the
 * database (FunctionGeneration), not once a start.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "digest.h"
#include "durable.h"
#include "engine/binding.h"
#include "engine/definition.h"
#include "engine/failure.h"
#include "engine/lint_handlers.h"
#include "engine/replay.h"
#include "engine/sandbox.h"
#include "engine/settings.h"
#include "engine/transaction.h"

/* The hash of a function's definition, known since some generation. */
typedef struct HashEntry
{
	Oid			function;
	char		hash[65];
} HashEntry;

/* A workflow whose registered version is what its functions are. */
typedef struct FreshEntry
{
	char		workflow[DURABLE_MAX_NAME + 1];
	int			version;
} FreshEntry;

static MemoryContext cache_cxt = NULL;
static HTAB *hashes = NULL;
static HTAB *fresh = NULL;
static uint64 cache_generation = 0;

/*
 * open_caches: what was known before a function changed is forgotten.
 */
static void
open_caches(void)
{
	HASHCTL		info = {0};
	HTAB	   *created;

	if (hashes != NULL && cache_generation == FunctionGeneration)
		return;
	if (cache_cxt == NULL)
		cache_cxt = AllocSetContextCreate(TopMemoryContext,
										  "durable definitions",
										  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(cache_cxt);
	hashes = NULL;
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(HashEntry);
	info.hcxt = cache_cxt;
	created = hash_create("durable hashes", 16, &info,
						  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	info.keysize = sizeof(((FreshEntry *) NULL)->workflow);
	info.entrysize = sizeof(FreshEntry);
	fresh = hash_create("durable fresh workflows", 16, &info,
						HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	hashes = created;
	cache_generation = FunctionGeneration;
}

/* ------------------------------------------------------------------
 * A function
 * ------------------------------------------------------------------
 */

/*
 * DefinitionText: the text that makes the function again, whatever the
 * session's settings.
 */
char *
DefinitionText(Oid function)
{
	int			level = NewGUCNestLevel();
	Datum		definition;

	DefinitionSettings();
	definition = OidFunctionCall1(F_PG_GET_FUNCTIONDEF,
								  ObjectIdGetDatum(function));
	AtEOXact_GUC(false, level);
	return TextDatumGetCString(definition);
}

/*
 * hash_of: the hash of that text.  Reading may let in the news that the
 * function was replaced: then it is read again, lest the old text counts for
 * the new function.
 */
static char *
hash_of(Oid function)
{
	TransactionId before,
				after;
	ItemPointerData old,
				tid;
	char	   *hash;

	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!FunctionRow(function, &before, &old))
			break;
		hash = DigestOf(DefinitionText(function));
		if (!FunctionRow(function, &after, &tid))
			break;
		if (before == after && ItemPointerEquals(&old, &tid))
			return hash;
	} while (true);
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_UNDEFINED),
			 errmsg("function with OID %u does not exist", function)));
	return NULL;				/* keep compiler quiet */
}

/*
 * DefinitionHash: the same from memory, to be used at once.
 */
const char *
DefinitionHash(Oid function)
{
	HashEntry  *entry;
	char	   *hash;

	open_caches();
	entry = hash_search(hashes, &function, HASH_FIND, NULL);
	if (entry != NULL)
		return entry->hash;
	hash = hash_of(function);
	/* other functions may have changed meanwhile */
	open_caches();
	entry = hash_search(hashes, &function, HASH_ENTER, NULL);
	strlcpy(entry->hash, hash, sizeof(entry->hash));
	return entry->hash;
}

/* ------------------------------------------------------------------
 * Handlers
 * ------------------------------------------------------------------
 */

/*
 * DefinitionOfHandler: what a handler is now.
 */
DefinitionRow *
DefinitionOfHandler(Oid function, const char *name)
{
	DefinitionRow *row = palloc0(sizeof(DefinitionRow));

	row->function = pstrdup(FunctionDescribe(function, "handler")->signature);
	row->name = pstrdup(name);
	row->owner = FunctionOwner(function);
	row->owner_name = GetUserNameFromId(row->owner, false);
	row->definition = DefinitionText(function);
	row->hash = DigestOf(row->definition);
	return row;
}

/* A handler that is looked up. */
typedef struct HandlerSearch
{
	const WorkflowRow *workflow;
	const char *name;
	Oid			function;		/* what was found */
} HandlerSearch;

static void
search_as_owner(void *arg)
{
	HandlerSearch *search = arg;
	Oid			user;
	int			security_context;

	GetUserIdAndSecContext(&user, &security_context);
	SetUserIdAndSecContext(search->workflow->owner,
						   security_context | SECURITY_LOCAL_USERID_CHANGE);
	search->function = FunctionTryResolve(search->name, "handler");
	SetUserIdAndSecContext(user, security_context);
}

/*
 * find_handler: the function of that name, as the workflow's owner sees it, or
 * InvalidOid.  Who happens to ask need not have the right to look into its
 * schema, and types that are gone are no error of the workflow.
 */
static Oid
find_handler(const WorkflowRow *workflow, const char *name)
{
	HandlerSearch search = {.workflow = workflow, .name = name};
	ErrorData  *error = TransactionTry(search_as_owner, &search);

	if (error == NULL)
		return search.function;
	if (ErrorIsCancel(error) || ErrorIsEnvironment(error))
		ReThrowError(error);
	return InvalidOid;
}

/*
 * store_handler: if the workflow's owner could have written it.  Others'
 * functions are bound when they are called: who is allowed to call one is not
 * allowed to keep it.
 */
static void
store_handler(const WorkflowRow *workflow, const char *function_name,
			  const char *name)
{
	Oid			function = find_handler(workflow, function_name);

	if (OidIsValid(function) && FunctionIsOf(function, workflow->owner))
		(void) HandlerStore(workflow->name, workflow->version,
							DefinitionOfHandler(function, name));
}

/*
 * DefinitionStoreHandlers: those that the body names, and those that turned
 * out to be used by the version before (known, NULL: none).
 */
void
DefinitionStoreHandlers(const WorkflowRow *row, Oid function,
						const WorkflowRow *known)
{
	ListCell   *lc;

	foreach(lc, LintHandlers(function))
		store_handler(row, lfirst(lc), lfirst(lc));
	if (known == NULL)
		return;
	foreach(lc, HandlersOf(known->name, known->version))
	{
		DefinitionRow *handler = lfirst(lc);

		store_handler(row, handler->function, handler->name);
	}
}

static bool
handlers_have_changed(const WorkflowRow *row)
{
	ListCell   *lc;

	foreach(lc, HandlersOf(row->name, row->version))
	{
		DefinitionRow *handler = lfirst(lc);
		Oid			function = find_handler(row, handler->function);

		if (!OidIsValid(function) ||
			strcmp(DefinitionHash(function), handler->hash) != 0)
			return true;
	}
	return false;
}

static bool
has_handler(List *handlers, const DefinitionRow *wanted)
{
	ListCell   *lc;

	foreach(lc, handlers)
	{
		DefinitionRow *handler = lfirst(lc);

		if (strcmp(handler->function, wanted->function) == 0)
			return strcmp(handler->hash, wanted->hash) == 0;
	}
	/* one that only the other version has come to use is no difference */
	return true;
}

/*
 * DefinitionHandlersAreSame: do the handlers that two versions have in common
 * have the same definitions?
 */
bool
DefinitionHandlersAreSame(const char *workflow, int version, int other)
{
	List	   *handlers = HandlersOf(workflow, version);
	ListCell   *lc;

	foreach(lc, HandlersOf(workflow, other))
	{
		if (!has_handler(handlers, lfirst(lc)))
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------
 * Versions
 * ------------------------------------------------------------------
 */

static bool
has_changed(const WorkflowRow *row, Oid function)
{
	return strcmp(DefinitionHash(function), row->hash) != 0 ||
		handlers_have_changed(row);
}

/*
 * DefinitionSet: the row is to be of the function as it is now: of the version
 * that is known, or of a new one.
 */
void
DefinitionSet(WorkflowRow *row, Oid function, const WorkflowRow *known)
{
	DurableFunction *fn = FunctionDescribe(function, "workflow");

	row->function = pstrdup(fn->signature);
	row->whole = fn->whole;
	row->owner = FunctionOwner(function);
	row->owner_name = GetUserNameFromId(row->owner, false);
	row->definition = DefinitionText(function);
	row->hash = DigestOf(row->definition);
	if (known != NULL && strcmp(known->function, row->function) == 0 &&
		known->owner == row->owner && !has_changed(known, function))
		row->version = known->version;
	else
		row->version = WorkflowLastVersion(row->name) + 1;
}

static Oid
find_function(const WorkflowRow *row)
{
	Oid			function = FunctionResolve(row->function, "workflow");

	FunctionCheckOwner(FunctionDescribe(function, "workflow"), row->owner);
	return function;
}

/*
 * add_version: the function was replaced without a word to us.
 *
 * Others who notice the same wait here for our transaction.
 */
static WorkflowRow *
add_version(const char *workflow)
{
	WorkflowRow *row;
	WorkflowRow known;
	Oid			function;
	int			level;

	WorkflowLock();
	row = WorkflowFind(workflow);
	if (row == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("workflow \"%s\" does not exist", workflow)));
	function = find_function(row);
	known = *row;
	DefinitionSet(row, function, &known);
	if (row->version == known.version)
		return row;
	WorkflowStoreVersion(row);
	/* names mean what they do to the workflow, whoever has noticed */
	level = SettingsEnter(SettingsRead(row->settings));
	DefinitionStoreHandlers(row, function, &known);
	SettingsLeave(level);
	/* the version is its function's owner's, the workflow is whose it was */
	row->owner = known.owner;
	row->owner_name = known.owner_name;
	return row;
}

/*
 * DefinitionCheckSame: a workflow that was unregistered, and a new one of its
 * name, perhaps of a stranger, have nothing to do with each other.
 */
void
DefinitionCheckSame(const WorkflowRow *current, int version)
{
	if (version < current->since)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("workflow \"%s\" is not the one that the instance was started with",
						current->name),
				 errdetail("That was unregistered."),
				 errhint("Let the instance run on the definition it began on, with definition => 'pinned', or start another one.")));
}

/*
 * DefinitionIsFresh: was the version found to be what the functions are, since
 * any function changed?
 */
bool
DefinitionIsFresh(const char *workflow, int version)
{
	FreshEntry *entry;

	open_caches();
	entry = hash_search(fresh, workflow, HASH_FIND, NULL);
	return entry != NULL && entry->version == version;
}

/*
 * remember_fresh: it was, when it was looked at; a function may have changed
 * meanwhile.
 */
static void
remember_fresh(const WorkflowRow *row, uint64 generation)
{
	FreshEntry *entry;

	if (generation != FunctionGeneration)
		return;
	open_caches();
	entry = hash_search(fresh, row->name, HASH_ENTER, NULL);
	entry->version = row->version;
}

/*
 * DefinitionRefresh: the workflow with a version that is what its functions
 * are now.
 */
WorkflowRow *
DefinitionRefresh(WorkflowRow *row)
{
	uint64		generation = FunctionGeneration;

	if (DefinitionIsFresh(row->name, row->version))
		return row;
	if (has_changed(row, find_function(row)))
		row = add_version(row->name);
	remember_fresh(row, generation);
	return row;
}
