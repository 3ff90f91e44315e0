/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  Tables workflow_version and workflow_handler: what functions were; pin,
 *	  pin_use and schema durable_pin: the copies of them that are in use.
 *
 * A copy is made from the text that was stored at registration, when an
 * instance first needs it, and dropped when none does any more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/alter.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_node.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/guc.h"
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

static Statement insert_pin = {
	"INSERT INTO durable_internal.pin (pin) VALUES ($1) ON CONFLICT DO NOTHING",
	1, {NAMEOID}, NULL
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
 * PinFind: the copy of that name, InvalidOid if there is none.
 */
Oid
PinFind(const char *pin)
{
	Oid			namespace = get_namespace_oid("durable_pin", false);
	CatCList   *list = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(pin));
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

static void
execute(const char *command)
{
	int			rc = SPI_execute(command, false, 0);

	if (rc != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\": %s", command,
			 SPI_result_code_string(rc));
}

/*
 * create_as_owner: run the command as the owner, as far as possible from all
 * else, and put what it made into that schema.
 *
 * To read it can run code of the owner's: a default that is a constant is read
 * by the input function of its type, and that calls the CHECK of a domain.
 * The command is one of the server's own making (pg_get_functiondef), so no
 * check of its body is needed.
 */
static void
create_as_owner(const char *pin, const char *command, Oid owner,
				const char *schema)
{
	RawStmt    *raw = linitial_node(RawStmt, raw_parser(command, RAW_PARSE_DEFAULT));
	CreateFunctionStmt *statement = castNode(CreateFunctionStmt, raw->stmt);
	ParseState *pstate = make_parsestate(NULL);
	ObjectAddress function;
	Oid			user;
	int			security_context;
	int			level;

	statement->funcname = list_make2(makeString(pstrdup(schema)),
									 makeString(pstrdup(pin)));
	pstate->p_sourcetext = command;
	GetUserIdAndSecContext(&user, &security_context);
	SetUserIdAndSecContext(owner,
						   (security_context & ~SECURITY_NOFORCE_RLS) |
						   SECURITY_RESTRICTED_OPERATION);
	level = NewGUCNestLevel();
	(void) set_config_option("check_function_bodies", "off", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	function = CreateFunction(pstate, statement);
	PopActiveSnapshot();
	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, security_context);
	free_parsestate(pstate);
	CommandCounterIncrement();
	(void) AlterObjectNamespace_oid(ProcedureRelationId, function.objectId,
									get_namespace_oid("durable_pin", false),
									new_object_addresses());
	CommandCounterIncrement();
}

/*
 * new_schema: a name that nobody could have foreseen.
 */
static char *
new_schema(void)
{
	uint64		number;

	if (!pg_strong_random(&number, sizeof(number)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random name")));
	return psprintf("durable_pin_" UINT64_FORMAT, number);
}

/*
 * PinCreate: make a copy by that command.
 *
 * Nobody may create anything in schema durable_pin, so the owner gets a schema
 * to make it in, which nobody else ever sees.  Nobody can call the copy but
 * we.
 */
void
PinCreate(const char *pin, const char *command, Oid owner)
{
	const char *name = quote_identifier(pin);
	char	   *schema = new_schema();
	Datum		values[1] = {NameDatum(pin)};
	ObjectAddress address;
	StorageScope scope;

	StorageEnter(&scope);
	ObjectAddressSet(address, NamespaceRelationId,
					 NamespaceCreate(schema, owner, false));
	CommandCounterIncrement();
	create_as_owner(pin, command, owner, schema);
	performDeletion(&address, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	execute(psprintf("REVOKE ALL ON ROUTINE durable_pin.%s FROM PUBLIC", name));
	execute(psprintf("ALTER ROUTINE durable_pin.%s DEPENDS ON EXTENSION durable",
					 name));
	(void) StatementExecute(&insert_pin, values, NULL);
	StorageLeave(&scope);
}

/*
 * PinDrop: nobody needs the copy.
 */
void
PinDrop(const char *pin)
{
	Datum		values[1] = {NameDatum(pin)};
	StorageScope scope;

	StorageEnter(&scope);
	if (OidIsValid(PinFind(pin)))
		execute(psprintf("DROP ROUTINE durable_pin.%s", quote_identifier(pin)));
	(void) StatementExecute(&delete_pin, values, NULL);
	StorageLeave(&scope);
}
