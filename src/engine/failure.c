/*-------------------------------------------------------------------------
 *
 * failure.c
 *	  Errors as they are kept in the history: all fields, as JSON.
 *
 * A recorded error is thrown again with every field that a handler can ask
 * for, so that a body sees the same on each replay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "durable.h"
#include "engine/failure.h"
#include "engine/json.h"

/* Messages can be of any length, and so can the contexts of recursion. */
#define MAX_TEXT_LENGTH		65536
#define MAX_CONTEXT_LENGTH	8192

static const char *
clipped(const char *text, int limit)
{
	if (text == NULL || strlen(text) <= limit)
		return text;
	return psprintf("%.*s...", pg_mbcliplen(text, strlen(text), limit), text);
}

static Jsonb *
build(const ErrorData *error, const char *sqlstate, const char *message,
	  const char *detail)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	JsonObjectAddText(&state, "sqlstate", sqlstate);
	JsonObjectAddText(&state, "message", clipped(message, MAX_TEXT_LENGTH));
	JsonObjectAddText(&state, "detail", clipped(detail, MAX_TEXT_LENGTH));
	JsonObjectAddText(&state, "hint", clipped(error->hint, MAX_TEXT_LENGTH));
	JsonObjectAddText(&state, "context", 
					  clipped(error->context, MAX_CONTEXT_LENGTH));
	JsonObjectAddText(&state, "schema", error->schema_name);
	JsonObjectAddText(&state, "table", error->table_name);
	JsonObjectAddText(&state, "column", error->column_name);
	JsonObjectAddText(&state, "datatype", error->datatype_name);
	JsonObjectAddText(&state, "constraint", error->constraint_name);
	return JsonObjectEnd(&state);
}

static const char *
message_of(const ErrorData *error)
{
	return error->message != NULL ? error->message : "missing error text";
}

/*
 * FailureFromError: an error as JSON.
 */
Jsonb *
FailureFromError(const ErrorData *error)
{
	return build(error, unpack_sql_state(error->sqlerrcode),
				 message_of(error), error->detail);
}

/*
 * FailureMake: an error that nobody has raised.
 */
Jsonb *
FailureMake(const char *sqlstate, const char *message, const char *detail)
{
	ErrorData	error = {0};

	return build(&error, sqlstate, message, detail);
}

/*
 * FailureFromActivity: the same for an error that a body should be able to
 * catch.
 *
 * PL/pgSQL's OTHERS does not catch query_canceled and assert_failure: they
 * arrive as WF009, the original in the detail.
 */
Jsonb *
FailureFromActivity(const ErrorData *error)
{
	if (error->sqlerrcode != ERRCODE_QUERY_CANCELED &&
		error->sqlerrcode != ERRCODE_ASSERT_FAILURE)
		return FailureFromError(error);

	return build(error, "WF009", message_of(error),
				 psprintf("SQLSTATE %s%s%s",
						  unpack_sql_state(error->sqlerrcode),
						  error->detail ? ": " : "",
						  error->detail ? error->detail : ""));
}

/*
 * ErrorCodeFromText: "22012" to an error code, or 0 if it is none.
 */
int
ErrorCodeFromText(const char *sqlstate)
{
	if (strlen(sqlstate) != 5 ||
		strspn(sqlstate, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5 ||
		strncmp(sqlstate, "00", 2) == 0)
		return 0;
	return MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2], sqlstate[3],
						 sqlstate[4]);
}

/*
 * FailureThrow: raise a recorded error again, with all its fields.
 */
void
FailureThrow(Jsonb *failure)
{
	ErrorData	error = {0};
	char	   *sqlstate = JsonGetText(failure, "sqlstate");

	error.elevel = ERROR;
	error.sqlerrcode = sqlstate != NULL ? ErrorCodeFromText(sqlstate) : 0;
	if (error.sqlerrcode == 0)
		error.sqlerrcode = ERRCODE_INTERNAL_ERROR;
	error.message = JsonGetText(failure, "message");
	error.detail = JsonGetText(failure, "detail");
	error.hint = JsonGetText(failure, "hint");
	error.context = JsonGetText(failure, "context");
	error.schema_name = JsonGetText(failure, "schema");
	error.table_name = JsonGetText(failure, "table");
	error.column_name = JsonGetText(failure, "column");
	error.datatype_name = JsonGetText(failure, "datatype");
	error.constraint_name = JsonGetText(failure, "constraint");
	error.assoc_context = CurrentMemoryContext;
	ThrowErrorData(&error);
	pg_unreachable();
}

/*
 * FailureIs: is this error the recorded one, thrown again?
 */
bool
FailureIs(Jsonb *failure, const ErrorData *error)
{
	char	   *message = JsonGetText(failure, "message");
	char	   *sqlstate = JsonGetText(failure, "sqlstate");

	return message != NULL && sqlstate != NULL && error->message != NULL &&
		strcmp(message, error->message) == 0 &&
		strcmp(sqlstate, unpack_sql_state(error->sqlerrcode)) == 0;
}

/*
 * ErrorIsCancel: did somebody cancel what this session is doing?
 *
 * Code that raises 57014 by itself, or our own yield, is no cancel: the
 * server's comes from one place only.
 */
bool
ErrorIsCancel(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		error->funcname != NULL &&
		strcmp(error->funcname, "ProcessInterrupts") == 0;
}

/*
 * ErrorIsEnvironment: an error that says nothing about the code that met it:
 * conflicts with others, lack of resources, operators, disks, bugs.
 */
bool
ErrorIsEnvironment(const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'):
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):
		case MAKE_SQLSTATE('5', '8', '0', '0', '0'):
		case MAKE_SQLSTATE('X', 'X', '0', '0', '0'):
			return true;
		default:
			return false;
	}
}

/*
 * ErrorIsGap: something the code needs is not there, or not for this role, as
 * in the middle of a migration.
 */
bool
ErrorIsGap(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_UNDEFINED_FUNCTION ||
		error->sqlerrcode == ERRCODE_AMBIGUOUS_FUNCTION ||
		error->sqlerrcode == ERRCODE_UNDEFINED_SCHEMA ||
		error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE;
}

/*
 * ErrorIsConflict: one that a new transaction may not meet.
 */
bool
ErrorIsConflict(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}
