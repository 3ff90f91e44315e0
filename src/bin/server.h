/*-------------------------------------------------------------------------
 *
 * server.h
 *	  The two connections of durable-worker, and what is said on them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SERVER_H
#define DURABLE_SERVER_H

#include <stdbool.h>

#include "libpq-fe.h"

#include "options.h"

/* What became of a statement that was to reach the server. */
typedef enum Answer
{
	ANSWER_OK,
	ANSWER_CANCEL,				/* heartbeat: a cancel was requested */
	ANSWER_TOKEN_INVALID,		/* WF005 */
	ANSWER_BAD_VALUE,			/* a result that is no JSON */
	ANSWER_REFUSED,				/* an error that will not go away */
	ANSWER_TRY_AGAIN			/* the connection is lost, or the like */
} Answer;

typedef enum WaitState
{
	WAIT_NONE,					/* nobody waits */
	WAIT_SENT,
	WAIT_OVER					/* there may be work now */
} WaitState;

typedef struct Server
{
	const Options *options;
	PGconn	   *control;		/* short statements */
	PGconn	   *waiting;		/* CALL durable_task_wait, most of the time */
	char	   *schema;			/* the extension's, quoted */
	char		error[1024];	/* the last one, in one line */
	WaitState	wait_state;
} Server;

extern void Log(const char *format,...)
			__attribute__((format(printf, 1, 2)));

extern bool ServerConnect(Server *server);
extern void ServerDisconnect(Server *server);
extern bool ServerIsUtf8(const Server *server);

extern PGresult *ServerPoll(Server *server, int max);
extern Answer ServerHeartbeat(Server *server, const char *token);
extern Answer ServerComplete(Server *server, const char *token,
							 const char *result);
extern Answer ServerFail(Server *server, const char *token,
						 const char *message, bool retryable,
						 const char *detail);

extern bool ServerStartWait(Server *server);
extern bool ServerAdvanceWait(Server *server);
extern void ServerStopWait(Server *server);

#endif
