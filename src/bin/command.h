/*-------------------------------------------------------------------------
 *
 * command.h
 *	  Running a command with its standard input, output and error in pipes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_COMMAND_H
#define DURABLE_COMMAND_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Milliseconds of a clock that nobody sets. */
typedef int64_t Time;

#define NEVER INT64_MAX

/* Always followed by a zero byte, which length does not count. */
typedef struct Buffer
{
	char	   *data;
	size_t		length;
	size_t		size;
} Buffer;

typedef struct Variable
{
	const char *name;
	const char *value;
} Variable;

typedef struct Command
{
	pid_t		pid;
	int			status;			/* as of waitpid, when it has ended */
	int			in;				/* our ends of the pipes, -1 when closed */
	int			out;
	int			err;
	Buffer		input;
	size_t		sent;
	Buffer		output;
	Buffer		errors;			/* the end of it */
	bool		too_long;		/* more output than we take: it was stopped */
	bool		stopping;
	Time		kill_at;
} Command;

#define COMMAND_PIPES 3

extern Time TimeNow(void);
extern void BufferAppend(Buffer *buffer, const char *data, size_t length);

extern bool CommandIsThere(const char *name);
extern bool CommandStart(Command *command, char **argv,
						 const Variable *variables, const char *input);
extern bool CommandAdvance(Command *command);
extern void CommandStop(Command *command);
extern void CommandKill(Command *command);
extern int	CommandEvents(const Command *command, struct pollfd *events);
extern void CommandFree(Command *command);

#endif
