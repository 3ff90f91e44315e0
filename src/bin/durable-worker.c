/*-------------------------------------------------------------------------
 *
 * durable-worker.c
 *	  Runs a command for each task of a queue of remote activities.
 *
 * One process and one loop: look what signals, commands and the server have
 * to say, do what is due, and wait in poll() for more. A task is a slot of an
 * array. It runs, then its outcome is delivered, then the slot is free:
 *
 *	  FREE -> RUNNING -> ENDED -> FREE
 *
 * An outcome stays in its slot until the server has accepted or rejected it,
 * through as many connections as that takes. Heartbeats go on until then.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "options.h"
#include "server.h"

#define EXIT_NO_RETRY		100 /* of a command: do not try again */
#define MIN_BACKOFF			100
#define MAX_BACKOFF			10000
#define REDELIVER_AFTER		1000
#define MESSAGE_SIZE		1024

typedef enum TaskState
{
	TASK_FREE,
	TASK_RUNNING,
	TASK_ENDED
} TaskState;

typedef struct Task
{
	TaskState	state;
	char	   *token;
	char	   *label;			/* for the log: activity and key */
	Command		command;
	int			heartbeat_every;	/* ms */
	Time		heartbeat_at;
	bool		cancelled;		/* the server wants it to end */
	bool		lost;			/* the token is not valid any more */

	/* the outcome */
	bool		failed;
	bool		retryable;
	char		message[MESSAGE_SIZE];
	Time		deliver_at;
} Task;

static Server server;
static Options options;

static Task *tasks;
static struct pollfd *events;

static Time reconnect_at = 0;
static Time poll_at = 0;
static int	backoff = 0;
static int	empty_polls = 0;	/* in a row, each after a hint of work */
static bool unsuccessful = false;

/* Signals: what they ask for, and a pipe to wake poll(). */
static volatile sig_atomic_t stop_requests = 0;
static int	stop_requests_seen = 0;
static int	wakeup[2];

/*
 * Signals
 */
static void
handle_signal(int signal_number)
{
	int			saved_errno = errno;

	/* the third one does not wait for a server that does not answer */
	if (signal_number != SIGCHLD && ++stop_requests > 2)
		_exit(1);
	/* a full pipe wakes as well */
	if (write(wakeup[1], "", 1) < 0)
	{
	}
	errno = saved_errno;
}

static void
catch_signals(void)
{
	struct sigaction action = {.sa_handler = handle_signal,.sa_flags = SA_RESTART};

	if (pipe(wakeup) != 0)
	{
		Log("could not make a pipe: %s", strerror(errno));
		exit(1);
	}
	for (int i = 0; i < 2; i++)
	{
		fcntl(wakeup[i], F_SETFD, FD_CLOEXEC);
		fcntl(wakeup[i], F_SETFL, O_NONBLOCK);
	}
	sigemptyset(&action.sa_mask);
	sigaction(SIGCHLD, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int
count_tasks(void)
{
	int			count = 0;

	for (int i = 0; i < options.concurrency; i++)
		if (tasks[i].state != TASK_FREE)
			count++;
	return count;
}

static void
stop_commands(void)
{
	for (int i = 0; i < options.concurrency; i++)
		if (tasks[i].state == TASK_RUNNING)
		{
			unsuccessful = true;
			CommandStop(&tasks[i].command);
		}
}

static void
answer_signals(void)
{
	char		drain[64];

	while (read(wakeup[0], drain, sizeof(drain)) > 0)
		;
	if (stop_requests == stop_requests_seen)
		return;
	stop_requests_seen = stop_requests;
	if (stop_requests_seen == 1)
	{
		Log("takes no more tasks; running: %d", count_tasks());
		ServerStopWait(&server);
	}
	else
	{
		Log("stops the running commands");
		stop_commands();
	}
}

/*
 * Connections
 */

static int
heartbeat_interval(void)
{
	return (int) (options.lease * 1000 / 3);
}

/*
 * An activity may be registered with a time that it must not be silent for,
 * and that can be shorter than the lease.
 */
static int
heartbeat_interval_of(const PGresult *row, int i)
{
	long long	timeout;

	if (PQgetisnull(row, i, 5))
		return heartbeat_interval();
	timeout = atoll(PQgetvalue(row, i, 5)) / 3;
	if (timeout < 1)
		timeout = 1;
	return timeout < heartbeat_interval() ? (int) timeout : heartbeat_interval();
}

/* Running tasks need their heartbeats: not so long that leases run out. */
static int
longest_backoff(void)
{
	return heartbeat_interval() < MAX_BACKOFF ? heartbeat_interval() : MAX_BACKOFF;
}

/*
 * Connecting is not yet a success, as the statement that fails may be the
 * next one: the time grows until there is a task, or a wait comes to its end.
 */
static void
connection_lost(void)
{
	backoff = backoff == 0 ? MIN_BACKOFF : backoff * 2;
	if (backoff > longest_backoff())
		backoff = longest_backoff();
	reconnect_at = TimeNow() + backoff;
	Log("%s; next try in %.1f s", server.error, backoff / 1000.0);
}

static void
keep_connected(void)
{
	if (server.control != NULL || TimeNow() < reconnect_at)
		return;
	if (!ServerConnect(&server))
	{
		connection_lost();
		return;
	}
	poll_at = 0;
	Log("connected to database \"%s\", serves queue \"%s\" as \"%s\"",
		PQdb(server.control), options.queue, options.name);
}

/*
 * Outcomes
 */
static void
free_task(Task *task)
{
	CommandFree(&task->command);
	free(task->token);
	free(task->label);
	memset(task, 0, sizeof(*task));
}

static void
fail_task(Task *task, bool retryable, const char *message)
{
	task->failed = true;
	task->retryable = retryable;
	snprintf(task->message, sizeof(task->message), "%s", message);
}

/*
 * Bytes of the character at the beginning of text, 0 if it is no UTF-8.
 */
static size_t
character_size(const unsigned char *text, size_t length)
{
	static const unsigned char first[] = {0, 0xC2, 0xE0, 0xF0, 0xF5};
	unsigned char c = text[0];
	size_t		size = 2;

	if (c < 0x80)
		return c == '\0' ? 0 : 1;
	if (c < first[1] || c >= first[4])
		return 0;
	while (c >= first[size])
		size++;
	if (size > length)
		return 0;
	for (size_t i = 1; i < size; i++)
		if ((text[i] & 0xC0) != 0x80)
			return 0;
	/* overlong forms, surrogates, beyond the last character */
	if ((c == 0xE0 && text[1] < 0xA0) || (c == 0xED && text[1] > 0x9F) ||
		(c == 0xF0 && text[1] < 0x90) || (c == 0xF4 && text[1] > 0x8F))
		return 0;
	return size;
}

/*
 * Replaces what is not UTF-8, or all that is not ASCII, by question marks: a
 * command can write anything, and was clipped anywhere.
 */
static void
make_valid(char *text, size_t length, bool utf8)
{
	for (size_t i = 0; i < length;)
	{
		size_t		size = character_size((unsigned char *) text + i, length - i);

		if (size == 0 || (size > 1 && !utf8))
		{
			text[i++] = '?';
			continue;
		}
		i += size;
	}
}

/* The last line that says something is the error, most of the time. */
static const char *
last_line(const char *text, int *length)
{
	const char *end = text + strlen(text);
	const char *begin;

	while (end > text && strchr(" \t\r\n", end[-1]) != NULL)
		end--;
	begin = end;
	while (begin > text && begin[-1] != '\n')
		begin--;
	*length = (int) (end - begin);
	return begin;
}

static void
fail_by_status(Task *task)
{
	int			status = task->command.status;
	int			length;
	const char *line;
	char		how[64];
	char		message[MESSAGE_SIZE];

	make_valid(task->command.errors.data, task->command.errors.length, true);
	line = last_line(task->command.errors.data, &length);
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "command was killed by signal %d",
				 WTERMSIG(status));
	else
		snprintf(how, sizeof(how), "command exited with code %d",
				 WEXITSTATUS(status));
	snprintf(message, sizeof(message), "%s%s%.*s", how,
			 length > 0 ? ": " : "", length, line);
	fail_task(task, !(WIFEXITED(status) &&
					  WEXITSTATUS(status) == EXIT_NO_RETRY), message);
}

static void
check_output(Task *task)
{
	Buffer	   *output = &task->command.output;

	if (memchr(output->data, '\0', output->length) != NULL)
		fail_task(task, true, "output of the command is not JSON: it has a zero byte");
}

static void
log_errors(Task *task)
{
	char	   *rest = task->command.errors.data;
	char	   *line;

	while ((line = strsep(&rest, "\n")) != NULL)
		if (*line != '\0')
			Log("%s: %s", task->label, line);
}

/*
 * A command that has ended well counts as done, even if it was told to stop.
 */
static void
conclude_task(Task *task)
{
	int			status = task->command.status;

	task->state = TASK_ENDED;
	if (task->command.too_long)
		fail_task(task, true, "command wrote more output than durable-worker takes");
	else if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		check_output(task);
	else if (task->cancelled)
		fail_task(task, false, "cancelled");
	else if (task->command.stopping && stop_requests_seen > 1)
		fail_task(task, true, "durable-worker was stopped");
	else
		fail_by_status(task);
}

static Answer
send_failure(Task *task)
{
	Buffer	   *errors = &task->command.errors;
	bool		utf8 = ServerIsUtf8(&server);

	make_valid(errors->data, errors->length, utf8);
	make_valid(task->message, strlen(task->message), utf8);
	return ServerFail(&server, task->token, task->message, task->retryable,
					  errors->length > 0 ? errors->data : NULL);
}

static Answer
send_result(Task *task)
{
	const char *output = task->command.output.data;
	Answer		answer;
	char		message[MESSAGE_SIZE];

	if (output[strspn(output, " \t\r\n")] == '\0')
		output = NULL;
	answer = ServerComplete(&server, task->token, output);
	if (answer != ANSWER_BAD_VALUE)
		return answer;
	snprintf(message, sizeof(message), "output of the command is not JSON: %s",
			 server.error);
	fail_task(task, true, message);
	return send_failure(task);
}

static void
end_task(Task *task)
{
	if (task->command.errors.data != NULL)
		log_errors(task);
	free_task(task);
}

static void
deliver(Task *task)
{
	Answer		answer = task->failed ? send_failure(task) : send_result(task);

	switch (answer)
	{
		case ANSWER_TRY_AGAIN:
			if (server.control == NULL)
				connection_lost();
			else
				Log("%s: the server did not take the outcome yet: %s",
					task->label, server.error);
			task->deliver_at = TimeNow() + REDELIVER_AFTER;
			return;
		case ANSWER_OK:
		case ANSWER_CANCEL:
			if (task->failed)
				Log("%s: failed: %s", task->label, task->message);
			else
				Log("%s: done", task->label);
			break;
		default:
			Log("%s: the server rejected the outcome: %s", task->label,
				server.error);
			break;
	}
	end_task(task);
}

/*
 * Heartbeats
 */
static void
heartbeat(Task *task)
{
	Answer		answer = ServerHeartbeat(&server, task->token);

	if (answer == ANSWER_TRY_AGAIN && server.control == NULL)
	{
		connection_lost();
		return;
	}
	task->heartbeat_at = TimeNow() + task->heartbeat_every;
	if (answer == ANSWER_CANCEL && !task->cancelled)
	{
		Log("%s: a cancel was requested", task->label);
		task->cancelled = true;
	}
	else if (answer == ANSWER_TOKEN_INVALID)
	{
		Log("%s: the task is no longer ours: %s", task->label, server.error);
		task->lost = true;
		task->heartbeat_at = NEVER;
	}
	else if (answer != ANSWER_OK && answer != ANSWER_CANCEL)
		Log("%s: heartbeat failed: %s", task->label, server.error);
	if ((task->cancelled || task->lost) && task->state == TASK_RUNNING)
		CommandStop(&task->command);
}

/*
 * Tasks
 */
static void
advance_task(Task *task)
{
	if (task->state == TASK_RUNNING && CommandAdvance(&task->command))
		conclude_task(task);
	if (task->state == TASK_ENDED && task->lost)
		end_task(task);
	if (task->state == TASK_ENDED && server.control != NULL &&
		TimeNow() >= task->deliver_at)
		deliver(task);
	if (task->state != TASK_FREE && server.control != NULL &&
		TimeNow() >= task->heartbeat_at)
		heartbeat(task);
}

static char *
copy(const char *text)
{
	Buffer		buffer = {0};

	BufferAppend(&buffer, text, strlen(text));
	return buffer.data;
}

static void
start_task(Task *task, const PGresult *row, int i)
{
	const char *activity = PQgetvalue(row, i, 1);
	const char *args = PQgetvalue(row, i, 2);
	const char *key = PQgetvalue(row, i, 4);
	Variable	variables[] = {
		{"DURABLE_TOKEN", PQgetvalue(row, i, 0)},
		{"DURABLE_ACTIVITY", activity},
		{"DURABLE_ATTEMPT", PQgetvalue(row, i, 3)},
		{"DURABLE_IDEMPOTENCY_KEY", key},
		{NULL, NULL}
	};
	char		label[512];

	snprintf(label, sizeof(label), "%s %s", activity, key);
	task->token = copy(PQgetvalue(row, i, 0));
	task->label = copy(label);
	task->heartbeat_every = heartbeat_interval_of(row, i);
	task->heartbeat_at = TimeNow() + task->heartbeat_every;
	task->state = TASK_RUNNING;
	if (!CommandStart(&task->command, options.command, variables,
					  PQgetisnull(row, i, 2) ? "null" : args))
	{
		snprintf(label, sizeof(label), "could not start the command: %s",
				 strerror(errno));
		task->state = TASK_ENDED;
		fail_task(task, true, label);
	}
}

static Task *
free_slot(void)
{
	for (int i = 0; i < options.concurrency; i++)
		if (tasks[i].state == TASK_FREE)
			return &tasks[i];
	return NULL;
}

/*
 * A hint of work of which others take all is not followed too eagerly.
 */
static void
plan_next_poll(int asked, int got)
{
	empty_polls = got > 0 || server.wait_state != WAIT_OVER ? 0 : empty_polls + 1;
	poll_at = empty_polls < 2 ? 0 :
		TimeNow() + (empty_polls < 8 ? 8 << empty_polls : 1000);
	server.wait_state = WAIT_NONE;
	if (got < asked && !ServerStartWait(&server))
		connection_lost();
}

static void
take_tasks(void)
{
	int			asked = options.concurrency - count_tasks();
	PGresult   *rows;

	if (asked == 0 || stop_requests_seen > 0 || server.control == NULL ||
		server.wait_state == WAIT_SENT || TimeNow() < poll_at)
		return;
	rows = ServerPoll(&server, asked);
	if (rows == NULL)
	{
		connection_lost();
		return;
	}
	if (PQntuples(rows) > 0 || server.wait_state == WAIT_OVER)
		backoff = 0;
	for (int i = 0; i < PQntuples(rows); i++)
		start_task(free_slot(), rows, i);
	plan_next_poll(asked, PQntuples(rows));
	PQclear(rows);
}

/*
 * The loop
 */
static void
earlier(Time *when, Time other)
{
	if (other < *when)
		*when = other;
}

static Time
task_due(const Task *task)
{
	Time		when = NEVER;

	if (task->state == TASK_RUNNING)
		earlier(&when, task->command.kill_at);
	if (task->state != TASK_FREE && server.control != NULL)
		earlier(&when, task->heartbeat_at);
	if (task->state == TASK_ENDED && server.control != NULL)
		earlier(&when, task->deliver_at);
	return when;
}

static int
time_to_wait(void)
{
	Time		when = NEVER;
	Time		now = TimeNow();

	for (int i = 0; i < options.concurrency; i++)
		earlier(&when, task_due(&tasks[i]));
	if (server.control == NULL)
		earlier(&when, reconnect_at);
	else if (stop_requests_seen == 0 && server.wait_state != WAIT_SENT &&
			 free_slot() != NULL)
		earlier(&when, poll_at);
	if (when == NEVER)
		return -1;
	if (when <= now)
		return 0;
	return when - now > 60000 ? 60000 : (int) (when - now);
}

static void
wait_for_events(void)
{
	int			count = 0;

	events[count++] = (struct pollfd) {.fd = wakeup[0],.events = POLLIN};
	if (server.wait_state == WAIT_SENT)
		events[count++] = (struct pollfd) {.fd = PQsocket(server.waiting),.events = POLLIN};
	for (int i = 0; i < options.concurrency; i++)
		if (tasks[i].state == TASK_RUNNING)
			count += CommandEvents(&tasks[i].command, events + count);
	poll(events, count, time_to_wait());
	if (server.wait_state == WAIT_SENT && !ServerAdvanceWait(&server))
		connection_lost();
}

/*
 * Nothing is waited for when we are to end at once.
 */
static void
give_up_outcomes(void)
{
	if (stop_requests_seen < 2 || server.control != NULL)
		return;
	for (int i = 0; i < options.concurrency; i++)
		if (tasks[i].state == TASK_ENDED)
		{
			Log("%s: the outcome could not be delivered", tasks[i].label);
			unsuccessful = true;
			end_task(&tasks[i]);
		}
}

static void
serve(void)
{
	for (;;)
	{
		answer_signals();
		if (stop_requests_seen == 0 || count_tasks() > 0)
			keep_connected();
		for (int i = 0; i < options.concurrency; i++)
			advance_task(&tasks[i]);
		give_up_outcomes();
		if (stop_requests_seen > 0 && count_tasks() == 0)
			return;
		take_tasks();
		wait_for_events();
	}
}

static void
allocate_tasks(void)
{
	tasks = calloc(options.concurrency, sizeof(Task));
	events = calloc(2 + options.concurrency * COMMAND_PIPES,
					sizeof(struct pollfd));
	if (tasks == NULL || events == NULL)
	{
		Log("out of memory");
		exit(1);
	}
}

int
main(int argc, char **argv)
{
	OptionsParse(&options, argc, argv);
	server.options = &options;
	allocate_tasks();
	catch_signals();
	serve();
	ServerDisconnect(&server);
	Log("ended");
	return unsuccessful ? 1 : 0;
}
