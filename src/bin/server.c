/*-------------------------------------------------------------------------
 *
 * server.c
 *	  The two connections of durable-worker, and what is said on them.
 *
 * The control connection has short statements, which are waited for. The
 * other one is for CALL durable_task_wait, which takes as long as there is no
 * work, so its answer is received when it comes.
 *
 * If one of them fails both are closed: one way to begin anew is enough, and
 * no task is lost by it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

#define STATEMENT_SIZE 512

/*
 * Log: one line to standard error, whatever is in the values.
 */
void
Log(const char *format,...)
{
	char		line[2048];
	va_list		values;

	va_start(values, format);
	vsnprintf(line, sizeof(line), format, values);
	va_end(values);
	for (char *c = line; *c != '\0'; c++)
		if ((unsigned char) *c < ' ')
			*c = ' ';
	fprintf(stderr, "durable-worker: %s\n", line);
}

/* libpq's messages end in a newline and may have several lines. */
static void
keep_error(Server *server, const char *message)
{
	size_t		length;

	snprintf(server->error, sizeof(server->error), "%s", message);
	length = strlen(server->error);
	while (length > 0 && server->error[length - 1] == '\n')
		server->error[--length] = '\0';
}

static void
log_notice(void *arg, const char *message)
{
	(void) arg;
	Log("%.*s", (int) strcspn(message, "\n"), message);
}

/*
 * Settings of the role or the database are for others: they would end the
 * wait for work, refuse it, or refuse to take tasks.
 */
static bool
make_session(Server *server, PGconn *connection)
{
	PGresult   *result = PQexec(connection,
								"SELECT pg_catalog.set_config(s.name, v.value, false)"
								" FROM (VALUES ('statement_timeout', '0'), ('transaction_timeout', '0'),"
								" ('idle_session_timeout', '0'), ('default_transaction_read_only', 'off'),"
								" ('default_transaction_isolation', 'read committed')) v (name, value)"
								" JOIN pg_catalog.pg_settings s ON s.name OPERATOR(pg_catalog.=) v.name");
	bool		ok = PQresultStatus(result) == PGRES_TUPLES_OK;

	if (!ok)
		keep_error(server, PQerrorMessage(connection));
	PQclear(result);
	return ok;
}

static PGconn *
open_connection(Server *server)
{
	/* what stands before dbname gives way to what the user has in it */
	const char *keywords[] = {"fallback_application_name", "connect_timeout",
	"dbname", "client_encoding", NULL};
	const char *values[] = {"durable-worker",
		getenv("PGCONNECT_TIMEOUT") == NULL ? "10" : NULL,
	server->options->conninfo, "UTF8", NULL};
	PGconn	   *connection = PQconnectdbParams(keywords, values, 1);

	if (PQstatus(connection) != CONNECTION_OK)
	{
		keep_error(server, PQerrorMessage(connection));
		PQfinish(connection);
		return NULL;
	}
	PQsetNoticeProcessor(connection, log_notice, NULL);
	if (make_session(server, connection))
		return connection;
	PQfinish(connection);
	return NULL;
}

static bool
find_schema(Server *server)
{
	PGresult   *result = PQexecParams(server->control,
									  "SELECT n.nspname FROM pg_catalog.pg_extension e"
									  " JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace"
									  " WHERE e.extname = $1", 1, NULL,
									  (const char *const[]) {"durable"},
									  NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		keep_error(server, PQerrorMessage(server->control));
	else if (PQntuples(result) == 0)
		snprintf(server->error, sizeof(server->error),
				 "extension durable is not installed in database \"%s\"",
				 PQdb(server->control));
	else
		server->schema = PQescapeIdentifier(server->control,
											PQgetvalue(result, 0, 0),
											PQgetlength(result, 0, 0));
	PQclear(result);
	return server->schema != NULL;
}

bool
ServerConnect(Server *server)
{
	server->control = open_connection(server);
	if (server->control != NULL && find_schema(server))
		server->waiting = open_connection(server);
	if (server->waiting != NULL)
		return true;
	ServerDisconnect(server);
	return false;
}

void
ServerDisconnect(Server *server)
{
	ServerStopWait(server);
	PQfinish(server->waiting);
	PQfinish(server->control);
	PQfreemem(server->schema);
	server->waiting = server->control = NULL;
	server->schema = NULL;
}

/* Only then the server takes every character. */
bool
ServerIsUtf8(const Server *server)
{
	const char *encoding = PQparameterStatus(server->control,
											 "server_encoding");

	return encoding != NULL && strcmp(encoding, "UTF8") == 0;
}

/*
 * Calls a function of the extension; call has %s for its schema.
 */
static PGresult *
call_function(Server *server, const char *call, int count,
			  const char *const *values)
{
	char		statement[STATEMENT_SIZE];
	PGresult   *result;

	snprintf(statement, sizeof(statement), call, server->schema);
	result = PQexecParams(server->control, statement, count, NULL, values,
						  NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		keep_error(server, PQerrorMessage(server->control));
	return result;
}

/*
 * Errors of these classes are of the server's state and not of what it was
 * told: connection, transaction state (a standby), rollback, resources,
 * object state, operator intervention, system, internal.
 */
static bool
may_go_away(const char *sqlstate)
{
	static const char *const classes[] = {"08", "25", "40", "53", "55", "57",
	"58", "XX", NULL};

	for (int i = 0; classes[i] != NULL; i++)
		if (strncmp(sqlstate, classes[i], 2) == 0)
			return true;
	return false;
}

static Answer
classify_error(Server *server, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (PQstatus(server->control) != CONNECTION_OK)
	{
		ServerDisconnect(server);
		return ANSWER_TRY_AGAIN;
	}
	if (sqlstate == NULL || may_go_away(sqlstate))
		return ANSWER_TRY_AGAIN;
	if (strcmp(sqlstate, "WF005") == 0)
		return ANSWER_TOKEN_INVALID;
	if (strncmp(sqlstate, "22", 2) == 0 || strncmp(sqlstate, "54", 2) == 0)
		return ANSWER_BAD_VALUE;
	return ANSWER_REFUSED;
}

static Answer
answer_of(Server *server, PGresult *result)
{
	Answer		answer = ANSWER_OK;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		answer = classify_error(server, result);
	PQclear(result);
	return answer;
}

/*
 * ServerPoll: tasks that are now ours; NULL, without connections, if that did
 * not work.
 */
PGresult *
ServerPoll(Server *server, int max)
{
	char		max_text[16];
	char		lease[32];
	const char *values[] = {server->options->queue, server->options->name,
	max_text, lease};
	PGresult   *result;

	snprintf(max_text, sizeof(max_text), "%d", max);
	snprintf(lease, sizeof(lease), "%.3f s", server->options->lease);
	result = call_function(server,
						   "SELECT token, activity, args, attempt, idempotency_key,"
						   " (extract(epoch FROM heartbeat_timeout) * 1000)::bigint"
						   " FROM %s.durable_task_poll($1, $2, $3, $4)",
						   4, values);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	PQclear(result);
	ServerDisconnect(server);
	return NULL;
}

Answer
ServerHeartbeat(Server *server, const char *token)
{
	PGresult   *result = call_function(server,
									   "SELECT %s.durable_task_heartbeat($1)",
									   1, &token);

	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
		strcmp(PQgetvalue(result, 0, 0), "t") == 0)
	{
		PQclear(result);
		return ANSWER_CANCEL;
	}
	return answer_of(server, result);
}

Answer
ServerComplete(Server *server, const char *token, const char *result)
{
	const char *values[] = {token, result};

	return answer_of(server, call_function(server,
										   "SELECT %s.durable_task_complete($1, $2)",
										   2, values));
}

Answer
ServerFail(Server *server, const char *token, const char *message,
		   bool retryable, const char *detail)
{
	const char *values[] = {token, message, retryable ? "t" : "f", detail};

	return answer_of(server, call_function(server,
										   "SELECT %s.durable_task_fail($1, $2, $3, $4)",
										   4, values));
}

/*
 * ServerStartWait: false, without connections, if that did not work.
 */
bool
ServerStartWait(Server *server)
{
	char		statement[STATEMENT_SIZE];
	char		wait[32];
	const char *values[] = {server->options->queue, wait};

	snprintf(wait, sizeof(wait), "%.3f s", server->options->poll_wait);
	snprintf(statement, sizeof(statement),
			 "CALL %s.durable_task_wait($1, $2, NULL)", server->schema);
	if (PQsendQueryParams(server->waiting, statement, 2, NULL, values, NULL,
						  NULL, 0))
	{
		server->wait_state = WAIT_SENT;
		return true;
	}
	keep_error(server, PQerrorMessage(server->waiting));
	ServerDisconnect(server);
	return false;
}

/*
 * Whether there was work or only the time is over: a look at the queue is
 * next in any case.
 */
static bool
receive_answer(Server *server)
{
	PGresult   *result;
	bool		ok = true;

	while ((result = PQgetResult(server->waiting)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
		{
			keep_error(server, PQresultErrorMessage(result));
			ok = false;
		}
		PQclear(result);
	}
	return ok;
}

/*
 * ServerAdvanceWait: look whether the wait is over, without waiting for it;
 * false, without connections, if it failed.
 */
bool
ServerAdvanceWait(Server *server)
{
	bool		ok = PQconsumeInput(server->waiting) == 1;

	if (!ok)
		keep_error(server, PQerrorMessage(server->waiting));
	else if (PQisBusy(server->waiting))
		return true;
	else
	{
		server->wait_state = WAIT_OVER;
		ok = receive_answer(server);
	}
	if (!ok)
	{
		server->wait_state = WAIT_NONE;
		ServerDisconnect(server);
	}
	return ok;
}

/*
 * ServerStopWait: the server does not notice that nobody waits any more, so
 * it has to be told, unless it seems to be gone. The connection is of no use
 * after it.
 */
void
ServerStopWait(Server *server)
{
	WaitState	state = server->wait_state;

	server->wait_state = WAIT_NONE;
	if (state != WAIT_SENT)
		return;
	if (PQstatus(server->control) == CONNECTION_OK &&
		PQstatus(server->waiting) == CONNECTION_OK)
	{
		char		error[256];
		PGcancel   *cancel = PQgetCancel(server->waiting);

		PQcancel(cancel, error, sizeof(error));
		PQfreeCancel(cancel);
	}
	PQfinish(server->waiting);
	server->waiting = NULL;
}
