/*-------------------------------------------------------------------------
 *
 * function.c
 *	  User's text to a function, and what can be run as what.
 *
 * Owns the rules by which a name becomes a function (the only place that
 * looks at search_path), and the refusal of functions that cannot be called
 * with JSON.
 * Takes no locks: a function that is dropped meanwhile is found missing by
 * FunctionDescribe or by the call.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "durable.h"
#include "engine/binding.h"

/*
 * kind_is_usable
 *		Can a function of this kind be run as what?
 *
 * A procedure returns at its own pace and may commit: only a workflow can
 * live with that, an activity is one transaction of ours.
 */
static bool
kind_is_usable(char prokind, const char *what)
{
	return prokind == PROKIND_FUNCTION ||
		(prokind == PROKIND_PROCEDURE && strcmp(what, "workflow") == 0);
}

static const char *
with_article(const char *what)
{
	return psprintf("%s %s", strchr("aeiou", what[0]) ? "an" : "a", what);
}

/*
 * refuse_kind
 *		name is as the user wrote it, or a signature.
 */
static void
refuse_kind(const char *name, char prokind, const char *what)
{
	const char *kind = "procedure";

	if (prokind == PROKIND_AGGREGATE)
		kind = "aggregate function";
	else if (prokind == PROKIND_WINDOW)
		kind = "window function";

	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("%s %s cannot be used as %s",
					kind, name, with_article(what)),
			 prokind == PROKIND_PROCEDURE ?
			 errhint("Only a workflow can be a procedure. Make it a function.") :
			 errhint("Write a function that calls it.")));
}

/*
 * as_detail
 *		A message of the server as a sentence for errdetail.
 */
static const char *
as_detail(const char *message)
{
	char	   *detail = psprintf("%s.", message);

	detail[0] = pg_ascii_toupper((unsigned char) detail[0]);
	return detail;
}

static void
report_undefined(const char *name, const char *what, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_UNDEFINED),
			 errmsg("%s function \"%s\" does not exist", what, name),
			 detail ? errdetail_internal("%s", as_detail(detail)) : 0,
			 strchr(name, '(') ?
			 errhint("Check the spelling, the types of the input parameters and search_path.") :
			 errhint("Check the spelling and search_path, or give the schema: schema.name.")));
}

static void
report_malformed(const char *name, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("invalid function name: \"%s\"", name),
			 detail ? errdetail_internal("%s", as_detail(detail)) : 0,
			 errhint("Write it as in SQL: name, schema.name, \"Quoted Name\" or name(type, ...).")));
}

static int
compare_strings(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

/*
 * report_ambiguous
 *		List what the name could mean, in the form that settles it.
 */
static void
report_ambiguous(const char *name, const char *what,
				 FuncCandidateList candidates)
{
	List	   *signatures = NIL;
	StringInfoData list;
	ListCell   *lc;

	for (; candidates != NULL; candidates = candidates->next)
	{
		if (kind_is_usable(get_func_prokind(candidates->oid), what))
			signatures = lappend(signatures,
								 format_procedure_qualified(candidates->oid));
	}
	list_sort(signatures, compare_strings);

	initStringInfo(&list);
	foreach(lc, signatures)
		appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "",
						 (char *) lfirst(lc));

	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_UNDEFINED),
			 errmsg("%s function \"%s\" is ambiguous", what, name),
			 errdetail("Candidates: %s.", list.data),
			 errhint("Give the full signature of one of them.")));
}

/*
 * parse_name
 *		'a', 'a.b', '"Odd Name"' to a list of String nodes.
 *
 * Done here because stringToQualifiedNameList changed between versions and
 * says nothing about the way out.
 */
static List *
parse_name(const char *name)
{
	List	   *parts;
	List	   *names = NIL;
	ListCell   *lc;

	if (!SplitIdentifierString(pstrdup(name), '.', &parts) ||
		parts == NIL || list_length(parts) > 3)
		report_malformed(name, NULL);

	foreach(lc, parts)
		names = lappend(names, makeString(pstrdup((char *) lfirst(lc))));
	return names;
}

/*
 * prefer_users
 *		Leave out the server's functions where others have the same name.
 *
 * Nobody knows all of their names, and pg_catalog is in every search_path.
 */
static FuncCandidateList
prefer_users(FuncCandidateList candidates)
{
	FuncCandidateList users = NULL;
	FuncCandidateList candidate;

	for (candidate = candidates; candidate; candidate = candidate->next)
	{
		if (get_func_namespace(candidate->oid) != PG_CATALOG_NAMESPACE)
		{
			FuncCandidateList copy = palloc(sizeof(*copy));

			*copy = *candidate;
			copy->next = users;
			users = copy;
		}
	}
	return users != NULL ? users : candidates;
}

/*
 * resolve_name
 *		With missing_ok, InvalidOid for a name that means no function or not
 *		only one.
 */
static Oid
resolve_name(const char *name, const char *what, bool missing_ok)
{
	FuncCandidateList candidates;
	FuncCandidateList candidate;
	Oid			found = InvalidOid;
	char		unusable = '\0';
	int			nfound = 0;

	candidates = FuncnameGetCandidates(parse_name(name), -1, NIL,
									   false, false, false, true);

	candidates = prefer_users(candidates);
	for (candidate = candidates; candidate; candidate = candidate->next)
	{
		char		prokind = get_func_prokind(candidate->oid);

		if (kind_is_usable(prokind, what))
		{
			found = candidate->oid;
			nfound++;
		}
		else
			unusable = prokind;
	}

	if (missing_ok)
		return nfound == 1 ? found : InvalidOid;
	if (nfound > 1)
		report_ambiguous(name, what, candidates);
	if (nfound == 0 && unusable != '\0')
		refuse_kind(name, unusable, what);
	if (nfound == 0)
		report_undefined(name, what, NULL);
	return found;
}

/*
 * report_signature_error
 *		Say in our words why regprocedure did not take a signature.
 */
static void
report_signature_error(const char *name, const char *what, ErrorData *edata)
{
	switch (edata->sqlerrcode)
	{
		case ERRCODE_UNDEFINED_FUNCTION:
			report_undefined(name, what, NULL);
			break;
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_UNDEFINED_SCHEMA:
			report_undefined(name, what, edata->message);
			break;
		case ERRCODE_INVALID_TEXT_REPRESENTATION:
		case ERRCODE_INVALID_NAME:
		case ERRCODE_SYNTAX_ERROR:
			report_malformed(name, edata->message);
			break;
		default:
			ReThrowError(edata);
	}
}

/*
 * resolve_signature
 *		'f(int, text)', read by regprocedure itself.
 *
 * The error is caught only to be replaced by another one, so no
 * subtransaction is necessary.
 */
static Oid
resolve_signature(const char *name, const char *what)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		function = (Datum) 0;
	char		prokind;

	PG_TRY();
	{
		function = DirectFunctionCall1(regprocedurein, CStringGetDatum(name));
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		report_signature_error(name, what, edata);
	}
	PG_END_TRY();

	prokind = get_func_prokind(DatumGetObjectId(function));
	if (!kind_is_usable(prokind, what))
		refuse_kind(name, prokind, what);
	return DatumGetObjectId(function);
}

/*
 * find_parenthesis
 *		Where the types of a signature begin, or NULL.
 */
static const char *
find_parenthesis(const char *name)
{
	bool		quoted = false;

	for (; *name != '\0'; name++)
	{
		if (*name == '"')
			quoted = !quoted;
		else if (*name == '(' && !quoted)
			return name;
	}
	return NULL;
}

/*
 * FunctionResolve
 *		Find the function that the user's text means, by search_path.
 *
 * A bare name must mean one function only: all overloads that search_path
 * shows compete, whatever the arguments, because the choice must not depend
 * on the input of one call.
 */
Oid
FunctionResolve(const char *name, const char *what)
{
	if (find_parenthesis(name) != NULL)
		return resolve_signature(name, what);
	return resolve_name(name, what, false);
}

/*
 * FunctionTryResolve
 *		The same, InvalidOid if it means none that can be run as what.
 */
Oid
FunctionTryResolve(const char *name, const char *what)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		function;

	if (find_parenthesis(name) == NULL)
		return resolve_name(name, what, true);
	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(name);
	fcinfo->args[0].isnull = false;
	function = to_regprocedure(fcinfo);
	if (fcinfo->isnull ||
		!kind_is_usable(get_func_prokind(DatumGetObjectId(function)), what))
		return InvalidOid;
	return DatumGetObjectId(function);
}

/*
 * FunctionNamePart
 *		The name that the user's text gives, without types and spaces.
 */
char *
FunctionNamePart(const char *name)
{
	const char *end = find_parenthesis(name);

	if (end == NULL)
		end = name + strlen(name);
	while (name < end && isspace((unsigned char) *name))
		name++;
	while (end > name && isspace((unsigned char) end[-1]))
		end--;
	return pnstrdup(name, end - name);
}

/*
 * check_types
 *		Refuse what has no value in JSON.
 *
 * Pseudo-types are either known only to a caller that was parsed as SQL
 * (polymorphic ones, record as a parameter) or are no data (internal,
 * trigger).
 */
static void
check_types(const DurableFunction *fn)
{
	Oid			result = fn->result_type;

	for (int i = 0; i < fn->nparams; i++)
	{
		if (get_typtype(fn->param_types[i]) == TYPTYPE_PSEUDO)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("function %s cannot be used as %s",
							fn->signature, with_article(fn->what)),
					 errdetail("Its parameter %d has pseudo-type %s.",
							   i + 1, format_type_be(fn->param_types[i])),
					 errhint("Write a function that has parameters of concrete types and calls it.")));
	}

	if (get_typtype(result) == TYPTYPE_PSEUDO &&
		result != VOIDOID && result != RECORDOID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function %s cannot be used as %s",
						fn->signature, with_article(fn->what)),
				 errdetail("It returns pseudo-type %s.",
						   format_type_be(result)),
				 errhint("Write a function that has a result of a concrete type, such as jsonb.")));
}

/*
 * check_result_columns
 *		SETOF record takes its columns from the query around the call, and
 *		there is none.
 */
static void
check_result_columns(const DurableFunction *fn, HeapTuple tuple)
{
	if (fn->returns_set && fn->result_type == RECORDOID &&
		build_function_result_tupdesc_t(tuple) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function %s cannot be used as %s",
						fn->signature, with_article(fn->what)),
				 errdetail("It returns SETOF record without saying which columns."),
				 errhint("Declare the columns with RETURNS TABLE (...) or OUT parameters.")));
}

static void
describe_parameters(DurableFunction *fn, HeapTuple tuple)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);
	Datum		names;
	Datum		modes;
	bool		no_names;
	bool		no_modes;
	char	  **input_names = NULL;
	int			nnames = 0;

	names = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proargnames,
							&no_names);
	modes = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proargmodes,
							&no_modes);
	if (!no_names)
		nnames = get_func_input_arg_names(names,
										  no_modes ? (Datum) 0 : modes,
										  &input_names);

	fn->nparams = form->pronargs;
	fn->param_types = palloc(sizeof(Oid) * Max(fn->nparams, 1));
	fn->param_names = palloc(sizeof(char *) * Max(fn->nparams, 1));
	for (int i = 0; i < fn->nparams; i++)
	{
		fn->param_types[i] = form->proargtypes.values[i];
		fn->param_names[i] = i < nnames && input_names[i] != NULL ?
			input_names[i] : "";
	}

	fn->ndefaults = form->pronargdefaults;
	fn->variadic = OidIsValid(form->provariadic);
	fn->whole = fn->nparams == 1 && fn->param_types[0] == JSONBOID;
}

/*
 * signature_of
 *		The same for all sessions.
 */
static char *
signature_of(Oid function)
{
	bool		saved = quote_all_identifiers;
	char	   *volatile signature = NULL;

	PG_TRY();
	{
		quote_all_identifiers = false;
		signature = format_procedure_qualified(function);
	}
	PG_FINALLY();
	{
		quote_all_identifiers = saved;
	}
	PG_END_TRY();
	return signature;
}

/*
 * FunctionDescribe
 *		Read from pg_proc all that a call needs; refuse what cannot be run.
 *
 * The result is palloc'd in the current context and points to nothing
 * outside of it.  It may be kept while the function's pg_proc row is
 * unchanged: ALTER and CREATE OR REPLACE can change STRICT, the defaults and
 * the SET clauses, but never the types.
 */
DurableFunction *
FunctionDescribe(Oid function, const char *what)
{
	DurableFunction *fn;
	HeapTuple	tuple;
	Form_pg_proc form;

	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_UNDEFINED),
				 errmsg("%s function with OID %u does not exist",
						what, function)));
	form = (Form_pg_proc) GETSTRUCT(tuple);

	if (!kind_is_usable(form->prokind, what))
		refuse_kind(format_procedure_qualified(function), form->prokind, what);

	fn = palloc0(sizeof(DurableFunction));
	fn->oid = function;
	fn->row_xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	fn->row_tid = tuple->t_self;
	fn->what = pstrdup(what);
	fn->signature = signature_of(function);
	fn->prokind = form->prokind;
	fn->strict = form->proisstrict;
	fn->returns_set = form->proretset;
	fn->result_type = form->prorettype;
	fn->nonatomic_ok = form->prokind == PROKIND_PROCEDURE &&
		!form->prosecdef &&
		heap_attisnull(tuple, Anum_pg_proc_proconfig, NULL);
	describe_parameters(fn, tuple);
	check_types(fn);
	check_result_columns(fn, tuple);

	ReleaseSysCache(tuple);
	return fn;
}

/*
 * FunctionRow
 *		Which row of pg_proc is the function now?  False: there is none.
 */
bool
FunctionRow(Oid function, TransactionId *xmin, ItemPointer tid)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));

	if (!HeapTupleIsValid(tuple))
		return false;
	*xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	*tid = tuple->t_self;
	ReleaseSysCache(tuple);
	return true;
}

/*
 * FunctionIsSame
 *		Is its row of pg_proc still the one it was described from?
 */
bool
FunctionIsSame(const DurableFunction *fn)
{
	ItemPointerData old = fn->row_tid;
	ItemPointerData tid;
	TransactionId xmin;

	return FunctionRow(fn->oid, &xmin, &tid) && xmin == fn->row_xmin &&
		ItemPointerEquals(&tid, &old);
}

/*
 * FunctionOwner
 *		Whose function is it?
 */
Oid
FunctionOwner(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * FunctionIsOf
 *		Is it the role's own, or one of a role that it is a member of?
 *
 * A superuser has the rights of all roles, and so would vouch for what anybody
 * has written: here only memberships count that were granted.
 */
bool
FunctionIsOf(Oid function, Oid role)
{
	Oid			owner = FunctionOwner(function);

	return owner == role ||
		(is_member_of_role_nosuper(role, owner) &&
		 has_privs_of_role(role, owner));
}

/*
 * FunctionRefuseOwner
 *		It is not, or not any more, one of the role that registered it.
 */
void
FunctionRefuseOwner(const DurableFunction *fn, Oid owner)
{
	ereport(ERROR,
			(errcode(ERRCODE_DURABLE_UNDEFINED),
			 errmsg("function %s does not belong to role \"%s\", which registered it as %s",
					fn->signature, GetUserNameFromId(owner, true),
					with_article(fn->what)),
			 strcmp(fn->what, "workflow") == 0 ?
			 errhint("Its owner can register it again. Instances that are held go on with durable_resume(id, definition => 'current') then.") :
			 errhint("Its owner can register it again.")));
}

/*
 * FunctionCheckOwner
 *		The function must still belong to that role: the name alone could be
 *		another's by now.
 *
 * Its own role, not one that it is a member of: a workflow may run as its
 * owner, and the other members of a group have no right to that.
 */
void
FunctionCheckOwner(const DurableFunction *fn, Oid owner)
{
	if (FunctionOwner(fn->oid) != owner)
		FunctionRefuseOwner(fn, owner);
}

/*
 * FunctionCheckExecute
 *		The current user must have EXECUTE, as for a call in SQL.
 */
void
FunctionCheckExecute(const DurableFunction *fn)
{
	AclResult	result;

	result = compat_proc_aclcheck(fn->oid, GetUserId(), ACL_EXECUTE);
	if (result != ACLCHECK_OK)
		aclcheck_error(result,
					   fn->prokind == PROKIND_PROCEDURE ?
					   OBJECT_PROCEDURE : OBJECT_FUNCTION,
					   get_func_name(fn->oid));
}
