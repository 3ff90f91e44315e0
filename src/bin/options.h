/*-------------------------------------------------------------------------
 *
 * options.h
 *	  The command line of durable-worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_OPTIONS_H
#define DURABLE_OPTIONS_H

typedef struct Options
{
	const char *conninfo;		/* NULL: the environment counts */
	const char *queue;
	const char *name;
	int			concurrency;
	double		lease;			/* seconds */
	double		poll_wait;
	char	  **command;
} Options;

extern void OptionsParse(Options *options, int argc, char **argv);

#endif
