/*-------------------------------------------------------------------------
 *
 * options.c
 *	  The command line of durable-worker.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libpq-fe.h"

#include "command.h"
#include "options.h"

#define EXIT_USAGE			2
#define MAX_CONCURRENCY		256

static void
usage(void)
{
	printf("durable-worker runs a command for each task of a queue of remote activities.\n\n"
		   "Usage:\n"
		   "  durable-worker --queue QUEUE [OPTION]... -- COMMAND [ARGUMENT]...\n\n"
		   "Options:\n"
		   "  -q, --queue=QUEUE        the queue to serve\n"
		   "  -c, --concurrency=N      commands at the same time (default: 1)\n"
		   "  -l, --lease=SECONDS      time after which the task of a lost worker is handed\n"
		   "                           out again (default: 60)\n"
		   "  -n, --name=NAME          name of this worker (default: host:pid)\n"
		   "  -w, --poll-wait=SECONDS  longest time between two looks at the queue\n"
		   "                           (default: 30)\n"
		   "  -d, --dbname=CONNINFO    database, or connection string; without it the\n"
		   "                           environment counts: PGHOST, PGDATABASE, ...\n"
		   "  -V, --version            show the version, then exit\n"
		   "  -h, --help               show this help, then exit\n\n"
		   "The command gets the arguments as JSON on standard input, and in its\n"
		   "environment DURABLE_TOKEN, DURABLE_ACTIVITY, DURABLE_ATTEMPT and\n"
		   "DURABLE_IDEMPOTENCY_KEY. With exit code 0 its standard output is the result,\n"
		   "as JSON (nothing: null). With another one the task has failed, and with 100\n"
		   "it is not tried again; standard error has the reason.\n\n"
		   "SIGTERM or SIGINT: take no more tasks, end when the running commands have.\n"
		   "A second one stops these.\n");
}

static void __attribute__((noreturn, format(printf, 1, 2)))
bad_usage(const char *format,...)
{
	va_list		values;

	fprintf(stderr, "durable-worker: ");
	va_start(values, format);
	vfprintf(stderr, format, values);
	va_end(values);
	fprintf(stderr, "\nTry \"durable-worker --help\" for more information.\n");
	exit(EXIT_USAGE);
}

/* A day is enough, and keeps the milliseconds in an int. */
static double
parse_seconds(const char *option, const char *text, double smallest)
{
	char	   *end;
	double		seconds = strtod(text, &end);

	if (end == text || (strcmp(end, "") != 0 && strcmp(end, "s") != 0) ||
		!(seconds >= smallest && seconds <= 86400))
		bad_usage("--%s must be between %g and 86400 seconds, not \"%s\"",
				  option, smallest, text);
	return seconds;
}

static int
parse_concurrency(const char *text)
{
	char	   *end;
	long		number = strtol(text, &end, 10);

	if (end == text || *end != '\0' || number < 1 || number > MAX_CONCURRENCY)
		bad_usage("--concurrency must be between 1 and %d, not \"%s\"",
				  MAX_CONCURRENCY, text);
	return (int) number;
}

static void
parse_option(Options *options, int option)
{
	switch (option)
	{
		case 'q':
			options->queue = optarg;
			break;
		case 'c':
			options->concurrency = parse_concurrency(optarg);
			break;
		case 'l':
			options->lease = parse_seconds("lease", optarg, 1);
			break;
		case 'n':
			options->name = optarg;
			break;
		case 'w':
			options->poll_wait = parse_seconds("poll-wait", optarg, 0.1);
			break;
		case 'd':
			options->conninfo = optarg;
			break;
		case 'V':
			printf("durable-worker %s\n", DURABLE_VERSION);
			exit(0);
		case 'h':
			usage();
			exit(0);
		default:
			bad_usage("unknown option, or one without its value");
	}
}

static void
parse_command_line(Options *options, int argc, char **argv)
{
	static const struct option names[] = {
		{"queue", required_argument, NULL, 'q'},
		{"concurrency", required_argument, NULL, 'c'},
		{"lease", required_argument, NULL, 'l'},
		{"name", required_argument, NULL, 'n'},
		{"poll-wait", required_argument, NULL, 'w'},
		{"dbname", required_argument, NULL, 'd'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	int			option;

	/* the first of our own arguments that is no option begins the command */
	opterr = 0;
	while ((option = getopt_long(argc, argv, "+q:c:l:n:w:d:Vh", names,
								 NULL)) != -1)
		parse_option(options, option);
	options->command = argv + optind;
	if (options->queue == NULL || *options->queue == '\0')
		bad_usage("no queue given");
	if (options->command[0] == NULL)
		bad_usage("no command given");
	if (!CommandIsThere(options->command[0]))
		bad_usage("cannot run command \"%s\": %s", options->command[0],
				  strerror(errno));
}

/* Something like a database name is no mistake; a broken string stays one. */
static void
check_conninfo(const char *conninfo)
{
	PQconninfoOption *parsed;
	char	   *error = NULL;

	if (conninfo == NULL || strpbrk(conninfo, "=:") == NULL)
		return;
	parsed = PQconninfoParse(conninfo, &error);
	if (parsed == NULL)
		bad_usage("--dbname: %.*s", error ? (int) strcspn(error, "\n") : 0,
				  error ? error : "");
	PQconninfoFree(parsed);
}

static const char *
default_name(void)
{
	static char name[300];
	char		host[256] = "";

	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "%s:%d", host, (int) getpid());
	return name;
}

/*
 * OptionsParse: does not return when there is nothing to do, or no way to.
 */
void
OptionsParse(Options *options, int argc, char **argv)
{
	*options = (Options) {.concurrency = 1, .lease = 60, .poll_wait = 30};
	parse_command_line(options, argc, argv);
	check_conninfo(options->conninfo);
	if (options->name == NULL)
		options->name = default_name();
}
