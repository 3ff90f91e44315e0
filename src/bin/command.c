/*-------------------------------------------------------------------------
 *
 * command.c
 *	  Running a command with its standard input, output and error in pipes.
 *
 * Nothing here waits: CommandAdvance does what can be done now, and
 * CommandEvents tells poll() what to wait for. The caller gets SIGCHLD and
 * ignores SIGPIPE.
 *
 * A command is the leader of a process group of its own. So an interrupt from
 * the terminal does not reach it, and stopping it stops what it has started.
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
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "command.h"

#define OUTPUT_LIMIT	(64 * 1024 * 1024)
#define ERRORS_KEPT		8192
#define GRACE_TIME		5000	/* between SIGTERM and SIGKILL */
#define CHUNK			65536
#define CHUNKS_AT_ONCE	16		/* then it is another command's turn */

Time
TimeNow(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (Time) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void
out_of_memory(void)
{
	fprintf(stderr, "durable-worker: out of memory\n");
	exit(1);
}

void
BufferAppend(Buffer *buffer, const char *data, size_t length)
{
	size_t		size = buffer->size > 0 ? buffer->size : 64;

	while (size < buffer->length + length + 1)
		size *= 2;
	if (size > buffer->size)
	{
		buffer->data = realloc(buffer->data, size);
		if (buffer->data == NULL)
			out_of_memory();
		buffer->size = size;
	}
	memcpy(buffer->data + buffer->length, data, length);
	buffer->length += length;
	buffer->data[buffer->length] = '\0';
}

static void
keep_end(Buffer *buffer, size_t length)
{
	if (buffer->length <= length)
		return;
	memmove(buffer->data, buffer->data + buffer->length - length, length + 1);
	buffer->length = length;
}

/*
 * CommandIsThere: would execvp find it?
 */
bool
CommandIsThere(const char *name)
{
	const char *path = getenv("PATH");

	if (strchr(name, '/') != NULL || path == NULL)
		return access(name, X_OK) == 0;
	for (;;)
	{
		size_t		length = strcspn(path, ":");
		char		file[4096];

		snprintf(file, sizeof(file), "%.*s/%s", length > 0 ? (int) length : 1,
				 length > 0 ? path : ".", name);
		if (access(file, X_OK) == 0)
			return true;
		if (path[length] == '\0')
			return false;
		path += length + 1;
	}
}

static void
close_pipe(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/*
 * No other command may inherit an end: it would not see the end of its input.
 */
static bool
make_pipe(int ends[2])
{
	if (pipe(ends) != 0)
	{
		ends[0] = ends[1] = -1;
		return false;
	}
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	return true;
}

static void
restore_signals(void)
{
	sigset_t	none;

	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * A command must not outlive its worker, whose task will be handed out again.
 */
static void
die_with(pid_t parent)
{
#ifdef __linux__
	prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
	if (getppid() != parent)
		_exit(1);
}

static void
run_command(char **argv, const Variable *variables, pid_t parent,
			int in, int out, int err)
{
	setpgid(0, 0);
	die_with(parent);
	restore_signals();
	if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
		dup2(err, STDERR_FILENO) < 0)
		_exit(126);
	for (; variables->name != NULL; variables++)
		setenv(variables->name, variables->value, 1);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "could not run \"%s\": %s\n", argv[0],
			strerror(errno));
	_exit(127);
}

static int
keep_our_end(int *ours, int *theirs)
{
	close_pipe(theirs);
	fcntl(*ours, F_SETFL, fcntl(*ours, F_GETFL) | O_NONBLOCK);
	return *ours;
}

/*
 * CommandStart: false, with errno, if there is no process to be had.
 */
bool
CommandStart(Command *command, char **argv, const Variable *variables,
			 const char *input)
{
	int			pipes[COMMAND_PIPES][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
	pid_t		parent = getpid();

	memset(command, 0, sizeof(*command));
	command->in = command->out = command->err = -1;
	command->pid = -1;
	if (make_pipe(pipes[0]) && make_pipe(pipes[1]) && make_pipe(pipes[2]))
		command->pid = fork();
	if (command->pid < 0)
	{
		int			error = errno;

		for (int i = 0; i < COMMAND_PIPES; i++)
		{
			close_pipe(&pipes[i][0]);
			close_pipe(&pipes[i][1]);
		}
		errno = error;
		return false;
	}
	if (command->pid == 0)
		run_command(argv, variables, parent, pipes[0][0], pipes[1][1],
					pipes[2][1]);
	/* the child does it too: whoever comes first */
	setpgid(command->pid, command->pid);
	command->in = keep_our_end(&pipes[0][1], &pipes[0][0]);
	command->out = keep_our_end(&pipes[1][0], &pipes[1][1]);
	command->err = keep_our_end(&pipes[2][0], &pipes[2][1]);
	command->kill_at = NEVER;
	BufferAppend(&command->input, input, strlen(input));
	BufferAppend(&command->output, "", 0);
	BufferAppend(&command->errors, "", 0);
	return true;
}

static bool
would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* A command need not read its input. */
static void
send_input(Command *command)
{
	while (command->in >= 0)
	{
		size_t		left = command->input.length - command->sent;
		ssize_t		written = 0;

		if (left > 0)
			written = write(command->in, command->input.data + command->sent,
							left);
		if (written > 0)
			command->sent += written;
		else if (written < 0 && would_block())
			return;
		else
			close_pipe(&command->in);
	}
}

/*
 * False when there is nothing more, now or ever.
 */
static bool
receive_chunk(int *fd, Buffer *buffer)
{
	char		chunk[CHUNK];
	ssize_t		length;

	if (*fd < 0)
		return false;
	length = read(*fd, chunk, sizeof(chunk));
	if (length > 0)
		BufferAppend(buffer, chunk, length);
	else if (length == 0 || !would_block())
		close_pipe(fd);
	return length > 0;
}

/*
 * When more output than the limit arrives the rest is not kept, but read: the
 * command is not to hang before it gets our signal.
 */
static bool
receive_output(Command *command)
{
	if (!receive_chunk(&command->out, &command->output))
		return false;
	if (command->output.length > OUTPUT_LIMIT)
	{
		command->too_long = true;
		command->output.length = 0;
		CommandStop(command);
	}
	return true;
}

static bool
receive_errors(Command *command)
{
	if (!receive_chunk(&command->err, &command->errors))
		return false;
	keep_end(&command->errors, ERRORS_KEPT);
	return true;
}

static void
receive(Command *command, int chunks)
{
	for (int i = 0; i < chunks && receive_output(command); i++)
		;
	for (int i = 0; i < chunks && receive_errors(command); i++)
		;
}

/*
 * All that the command itself has written is in the pipes when it has exited.
 * We do not wait for the end of the pipes, which a process that it has left
 * behind may hold.
 */
static bool
has_exited(Command *command)
{
	siginfo_t	info = {0};

	if (waitid(P_PID, command->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		info.si_pid == 0)
		return false;
	/* while the process is not waited for its group cannot be another's */
	if (command->stopping)
		kill(-command->pid, SIGKILL);
	waitpid(command->pid, &command->status, 0);
	receive(command, OUTPUT_LIMIT / CHUNK);
	close_pipe(&command->in);
	close_pipe(&command->out);
	close_pipe(&command->err);
	return true;
}

/*
 * CommandAdvance: do what can be done without waiting; true: it has ended.
 */
bool
CommandAdvance(Command *command)
{
	send_input(command);
	receive(command, CHUNKS_AT_ONCE);
	if (TimeNow() >= command->kill_at)
		CommandKill(command);
	return has_exited(command);
}

/*
 * CommandStop: SIGTERM now, SIGKILL if it does not help.
 */
void
CommandStop(Command *command)
{
	if (command->stopping)
		return;
	command->stopping = true;
	command->kill_at = TimeNow() + GRACE_TIME;
	kill(-command->pid, SIGTERM);
}

void
CommandKill(Command *command)
{
	command->stopping = true;
	command->kill_at = NEVER;
	kill(-command->pid, SIGKILL);
}

/*
 * CommandEvents: what to wait for; entries of closed pipes have a negative
 * descriptor, which poll() passes over.
 */
int
CommandEvents(const Command *command, struct pollfd *events)
{
	events[0] = (struct pollfd) {.fd = command->in, .events = POLLOUT};
	events[1] = (struct pollfd) {.fd = command->out, .events = POLLIN};
	events[2] = (struct pollfd) {.fd = command->err, .events = POLLIN};
	return COMMAND_PIPES;
}

void
CommandFree(Command *command)
{
	free(command->input.data);
	free(command->output.data);
	free(command->errors.data);
	memset(command, 0, sizeof(*command));
}
