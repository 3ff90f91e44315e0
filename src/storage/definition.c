/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  Tables workflow_version and workflow_handler: what functions were; pin
 *	  and pin_use: the copies of them that are in use.
 *
 * A copy is made from the text that was stored at registration, when an
 * instance first needs it, and dropped when none does any more.  It has the
 * name of the function, because a body can name its parameters by it, and so
 * a schema of its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/alter.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_node.h"
#include "parser/parser.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "durable.h"
#include "storage/storage.h"

static Statement find_version = {
	"SELECT function, NULL, owner, owner_name::text, definition, hash"
	" FROM durable_internal.workflow_version WHERE workflow = $1 AND version = $2",
	2, {TEXTOID, INT4OID}, NULL
};

static Statement list_handlers = {
	"SELECT function, name, owner, owner_name::text, definition, hash"
	" FROM durable_internal.workflow_handler WHERE workflow = $1 AND version = $2",
	2, {TEXTOID, INT4OID}, NULL
};

static Statement store_handler = {
	"INSERT INTO durable_internal.workflow_handler"
	" (workflow, version, function, name, owner, owner_name, definition, hash)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
	8, {TEXTOID, INT4OID, TEXTOID, TEXTOID, OIDOID, NAMEOID, TEXTOID, TEXTOID}, NULL
};

static Statement use_pin = {
	"INSERT INTO durable_internal.pin_use (iid, pin) VALUES ($1, $2) ON CONFLICT DO NOTHING",
	2, {INT8OID, NAMEOID}, NULL
};

static Statement release_pins = {
	"DELETE FROM durable_internal.pin_use WHERE iid = $1 RETURNING pin::text",
	1, {INT8OID}, NULL
};

static Statement unused_pins = {
	"SELECT p.pin::text FROM durable_internal.pin p"
	" WHERE NOT EXISTS (SELECT 1 FROM durable_internal.pin_use u WHERE u.pin = p.pin)",
	0, {0}, NULL
};

static Statement pin_is_used = {
	"SELECT 1 FROM durable_internal.pin_use WHERE pin = $1 LIMIT 1",
	1, {NAMEOID}, NULL
};

static Statement find_pin = {
	"SELECT schema::text, function::text FROM durable_internal.pin WHERE pin = $1",
	1, {NAMEOID}, NULL
};

static Statement insert_pin = {
	"INSERT INTO durable_internal.pin (pin, schema, function) VALUES ($1, $2, $3)",
	3, {NAMEOID, NAMEOID, NAMEOID}, NULL
};

/* whoever got a right on it by the default privileges of its owner */
static Statement list_grantees = {
	"SELECT string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'"
	"  ELSE quote_ident(pg_get_userbyid(a.grantee)) END, ', ')"
	" FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a"
	" WHERE p.oid = $1 AND a.grantee <> p.proowner",
	1, {OIDOID}, NULL
};

static Statement delete_pin = {
	"DELETE FROM durable_internal.pin WHERE pin = $1",
	1, {NAMEOID}, NULL
};

static List *
find_definitions(Statement *statement, const char *workflow, int version)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	Datum		values[2] = {TextDatum(workflow), Int32GetDatum(version)};
	List	   *list = NIL;
	uint64		count;
	bool		isnull;

	StorageEnter(&scope);
	count = StatementExecute(statement, values, NULL);
	for (uint64 i = 0; i < count; i++)
	{
		DefinitionRow *row = MemoryContextAllocZero(cxt, sizeof(DefinitionRow));
		MemoryContext old;

		row->function = StatementText(cxt, i, 1);
		row->name = StatementText(cxt, i, 2);
		row->owner = DatumGetObjectId(StatementColumn(i, 3, &isnull));
		row->owner_name = StatementText(cxt, i, 4);
		row->definition = StatementText(cxt, i, 5);
		row->hash = StatementText(cxt, i, 6);
		old = MemoryContextSwitchTo(cxt);
		list = lappend(list, row);
		MemoryContextSwitchTo(old);
	}
	StorageLeave(&scope);
	return list;
}

/*
 * VersionFind: the definition of a version, or NULL.
 */
DefinitionRow *
VersionFind(const char *workflow, int version)
{
	List	   *list = find_definitions(&find_version, workflow, version);

	return list != NIL ? linitial(list) : NULL;
}

/*
 * HandlersOf: the definitions of its handlers, as far as they are known.
 */
List *
HandlersOf(const char *workflow, int version)
{
	return find_definitions(&list_handlers, workflow, version);
}

/*
 * HandlerStore: a version has that handler; false if it is known.
 */
bool
HandlerStore(const char *workflow, int version, const DefinitionRow *row)
{
	Datum		values[8] = {
		TextDatum(workflow), Int32GetDatum(version), TextDatum(row->function),
		TextDatum(row->name), ObjectIdGetDatum(row->owner),
		NameDatum(row->owner_name), TextDatum(row->definition),
		TextDatum(row->hash)
	};

	return StatementRun(&store_handler, values, NULL) == 1;
}

/*
 * DefinitionSettings: those by which definitions are written and read, up to
 * the end of the current nest level.  Whoever does it must come to the same.
 */
void
DefinitionSettings(void)
{
	static const char *const settings[][2] = {
		/* temporary types last, so that they hide none */
		{"search_path", "pg_catalog, pg_temp"}, {"quote_all_identifiers", "off"},
		{"standard_conforming_strings", "on"}, {"array_nulls", "on"},
		{"transform_null_equals", "off"}, {"xmloption", "content"},
		{"TimeZone", "UTC"}, {"DateStyle", "ISO"},
		{"IntervalStyle", "postgres"}, {"bytea_output", "hex"},
		{"extra_float_digits", "1"}, {"lc_monetary", "C"}
	};

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
								 false);
}

/* ------------------------------------------------------------------
 * Copies
 * ------------------------------------------------------------------
 */

/*
 * PinUse: an instance needs a copy until it ends; false if that is known.
 */
bool
PinUse(int64 iid, const char *pin)
{
	Datum		values[2] = {Int64GetDatum(iid), NameDatum(pin)};

	return StatementRun(&use_pin, values, NULL) == 1;
}

static List *
list_pins(Statement *statement, Datum *values)
{
	MemoryContext cxt = CurrentMemoryContext;
	StorageScope scope;
	List	   *pins = NIL;
	uint64		count;

	StorageEnter(&scope);
	count = StatementExecute(statement, values, NULL);
	for (uint64 i = 0; i < count; i++)
	{
		char	   *pin = StatementText(cxt, i, 1);
		MemoryContext old = MemoryContextSwitchTo(cxt);

		pins = lappend(pins, pin);
		MemoryContextSwitchTo(old);
	}
	StorageLeave(&scope);
	return pins;
}

/*
 * PinRelease: it needs none any more; those that it had.
 */
List *
PinRelease(int64 iid)
{
	Datum		values[1] = {Int64GetDatum(iid)};

	return list_pins(&release_pins, values);
}

/*
 * PinsUnused: copies that no instance needs.
 */
List *
PinsUnused(void)
{
	return list_pins(&unused_pins, NULL);
}

bool
PinIsUsed(const char *pin)
{
	Datum		values[1] = {NameDatum(pin)};

	return StatementRun(&pin_is_used, values, NULL) > 0;
}

/*
 * find_copy: the function in that schema, InvalidOid if there is none.
 */
static Oid
find_copy(const char *schema, const char *function)
{
	Oid			namespace = get_namespace_oid(schema, true);
	CatCList   *list = SearchSysCacheList1(PROCNAMEARGSNSP,
										   CStringGetDatum(function));
	Oid			found = InvalidOid;

	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_proc form = (Form_pg_proc) GETSTRUCT(&list->members[i]->tuple);

		if (form->pronamespace == namespace)
			found = form->oid;
	}
	ReleaseSysCacheList(list);
	return found;
}

/*
 * PinFind: the copy that is known by that, InvalidOid if there is none.
 */
Oid
PinFind(const char *pin)
{
	MemoryContext cxt = CurrentMemoryContext;
	Datum		values[1] = {NameDatum(pin)};
	StorageScope scope;
	Oid			found = InvalidOid;

	StorageEnter(&scope);
	if (StatementExecute(&find_pin, values, NULL) > 0)
		found = find_copy(StatementText(cxt, 0, 1), StatementText(cxt, 0, 2));
	StorageLeave(&scope);
	return found;
}

/*
 * create_schema: of a name that nobody could have foreseen, with no rights on
 * it but its owner's (it is as temporary ones: without default privileges).
 */
static Oid
create_schema(Oid owner, char **name)
{
	uint64		number;
	Oid			schema;

	if (!pg_strong_random(&number, sizeof(number)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random name")));
	*name = psprintf("durable_pin_%016llx", (unsigned long long) number);
	schema = NamespaceCreate(*name, owner, true);
	CommandCounterIncrement();
	return schema;
}

/*
 * parse_definition: the command that makes the function in that schema.  The
 * text is of the server's own making (pg_get_functiondef).
 */
static CreateFunctionStmt *
parse_definition(const char *definition, char *schema)
{
	RawStmt    *raw = linitial_node(RawStmt, raw_parser(definition, RAW_PARSE_DEFAULT));
	CreateFunctionStmt *statement = (CreateFunctionStmt *) raw->stmt;

	if (!IsA(statement, CreateFunctionStmt))
		elog(ERROR, "the definition of a function cannot be read");
	statement->funcname = list_make2(makeString(schema),
									 llast(statement->funcname));
	return statement;
}

/*
 * create_as_owner: make the function as the owner, as far as possible from all
 * else.
 *
 * To read the definition can run code of the owner's: a default that is a
 * constant is read by the input function of its type, and that calls the CHECK
 * of a domain.  The body was checked when it was new.
 */
static Oid
create_as_owner(const char *definition, Oid owner, char *schema)
{
	CreateFunctionStmt *statement;
	ParseState *pstate = make_parsestate(NULL);
	ObjectAddress function;
	Oid			user;
	int			security_context;
	int			level;

	GetUserIdAndSecContext(&user, &security_context);
	SetUserIdAndSecContext(owner,
						   (security_context & ~SECURITY_NOFORCE_RLS) |
						   SECURITY_RESTRICTED_OPERATION);
	level = NewGUCNestLevel();
	DefinitionSettings();
	(void) set_config_option("check_function_bodies", "off", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	statement = parse_definition(definition, schema);
	pstate->p_sourcetext = definition;
	PushActiveSnapshot(GetTransactionSnapshot());
	function = CreateFunction(pstate, statement);
	PopActiveSnapshot();
	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, security_context);
	free_parsestate(pstate);
	CommandCounterIncrement();
	return function.objectId;
}

/*
 * move_to_own_schema: out of the owner's reach.
 *
 * The schema it was made in was the owner's, who may have done anything there:
 * it is not kept.
 */
static char *
move_to_own_schema(Oid function, Oid from)
{
	ObjectAddress schema;
	char	   *name;

	ObjectAddressSet(schema, NamespaceRelationId,
					 create_schema(GetUserId(), &name));
	(void) AlterObjectNamespace_oid(ProcedureRelationId, function,
									schema.objectId, new_object_addresses());
	CommandCounterIncrement();
	ObjectAddressSet(schema, NamespaceRelationId, from);
	performDeletion(&schema, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	return name;
}

static void
revoke_from_all(Oid function, const char *name)
{
	Datum		values[1] = {ObjectIdGetDatum(function)};
	char	   *grantees;
	RawStmt    *raw;

	(void) StatementExecute(&list_grantees, values, NULL);
	grantees = StatementText(CurrentMemoryContext, 0, 1);
	if (grantees == NULL)
		return;
	raw = linitial_node(RawStmt,
						raw_parser(psprintf("REVOKE ALL ON ROUTINE %s FROM %s",
											name, grantees),
								   RAW_PARSE_DEFAULT));
	ExecuteGrantStmt(castNode(GrantStmt, raw->stmt));
}

/*
 * depend_on_extension: DROP EXTENSION takes the copy along, though it is no
 * member: pg_dump is to see it.
 */
static void
depend_on_extension(Oid function, Oid schema)
{
	ObjectAddress extension,
				object;

	ObjectAddressSet(extension, ExtensionRelationId,
					 get_extension_oid("durable", false));
	ObjectAddressSet(object, ProcedureRelationId, function);
	recordDependencyOn(&object, &extension, DEPENDENCY_AUTO_EXTENSION);
	ObjectAddressSet(object, NamespaceRelationId, schema);
	recordDependencyOn(&object, &extension, DEPENDENCY_AUTO);
}

/*
 * PinCreate: make a copy of that definition.  Without a pin nobody else is to
 * find it.
 *
 * Nobody else can call it but its owner, and the owner cannot either, as long
 * as the schema is out of reach.
 *
 * No command is executed, so that no event trigger has a say: it would be run
 * in the middle of an instance, with none of the settings it expects.
 */
Oid
PinCreate(const char *pin, const char *definition, Oid owner)
{
	char	   *schema;
	char	   *name;
	Oid			workshop;
	Oid			function;
	StorageScope scope;

	StorageEnter(&scope);
	workshop = create_schema(owner, &schema);
	function = create_as_owner(definition, owner, schema);
	schema = move_to_own_schema(function, workshop);
	name = get_func_name(function);
	revoke_from_all(function, quote_qualified_identifier(schema, name));
	depend_on_extension(function, get_namespace_oid(schema, false));
	if (pin != NULL)
	{
		Datum		values[3] = {NameDatum(pin), NameDatum(schema), NameDatum(name)};

		(void) StatementExecute(&insert_pin, values, NULL);
	}
	StorageLeave(&scope);
	return function;
}

/*
 * drop_copy: and its schema, if they are still there.  What others have made
 * of them stays.
 */
static void
drop_copy(const char *schema, const char *function)
{
	ObjectAddresses *objects = new_object_addresses();
	ObjectAddress object;

	ObjectAddressSet(object, ProcedureRelationId, find_copy(schema, function));
	if (OidIsValid(object.objectId))
		add_exact_object_address(&object, objects);
	ObjectAddressSet(object, NamespaceRelationId, get_namespace_oid(schema, true));
	if (OidIsValid(object.objectId))
		add_exact_object_address(&object, objects);
	performMultipleDeletions(objects, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	free_object_addresses(objects);
	CommandCounterIncrement();
}

/*
 * PinDrop: nobody needs the copy.
 */
void
PinDrop(const char *pin)
{
	MemoryContext cxt = CurrentMemoryContext;
	Datum		values[1] = {NameDatum(pin)};
	StorageScope scope;

	StorageEnter(&scope);
	if (StatementExecute(&find_pin, values, NULL) > 0)
		drop_copy(StatementText(cxt, 0, 1), StatementText(cxt, 0, 2));
	(void) StatementExecute(&delete_pin, values, NULL);
	StorageLeave(&scope);
}
