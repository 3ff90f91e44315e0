/*-------------------------------------------------------------------------
 *
 * lint.c
 *	  The source check: what a workflow body must not contain.
 *
 * A workflow body runs again on every pass, so it must not look at the clock,
 * at chance, at the session or at tables, and must not leave effects of its
 * own.  This file finds the plain cases in the text of PL/pgSQL and SQL
 * bodies and names what to write instead.  It is help for the author, given
 * before anything has run; the sandbox is the net, and strict matching the
 * guarantee.  So a false alarm is worse than a miss, and every check here
 * looks for the exact shape of a thing, never for a bare word.
 *
 * One walk over the tokens (lint_tokens.c), front to back, so that findings
 * come in the order of the source.  No locks are taken, and no catalogs are
 * read but pg_proc and pg_language.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/formatting.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "engine/lint.h"
#include "engine/lint_tokens.h"

typedef struct Lint
{
	LintTokens	tokens;
	bool		plpgsql;
	bool		dynamic;		/* a piece of SQL that is put together */
	int			depth;			/* strings that are code, within strings */
	List	   *ctes;			/* names of common table expressions */

	/* where the walk is */
	int			cases;			/* open CASE expressions (not statements) */
	bool		declare;		/* in a DECLARE section */
	int			verb;			/* first token of the current statement */

	MemoryContext result;		/* the caller's */
	List	  **findings;
} Lint;

/* Dollar quotes nest without growing, so nesting needs a bound. */
#define LINT_MAX_DEPTH	8

#define USE_NOW \
	"Use durable_now(), which gives the same time on every pass."
#define USE_RANDOM \
	"Use durable_random(), which gives the same number on every pass."
#define USE_UUID \
	"Use durable_uuid(), which gives the same value on every pass."
#define USE_SLEEP \
	"Use durable_sleep(), which holds no worker and survives restarts."
#define USE_SLEEP_UNTIL \
	"Use durable_sleep_until(), which holds no worker and survives restarts."
#define USE_RECORDED \
	"Call it in an activity with durable_call(), " \
	"so that its value is recorded."
#define USE_ACTIVITY \
	"Put it in an activity and run that with durable_call(), " \
	"so that it happens once."
#define USE_WRITE \
	"Put it in an activity and run that with durable_call(), " \
	"or use durable_sql(), so that it happens once."
#define USE_READ \
	"Read it in an activity with durable_call(), or with durable_sql(), " \
	"so that the value is recorded."
#define USE_STEP \
	"Steps commit by themselves: use durable_call(), " \
	"or CALL durable_step() in a procedure."
#define USE_SETTINGS \
	"Set it before durable_start(), whose settings the instance keeps, " \
	"or in an activity."

#define MAX_RULE_NAMES	32

/* Names that get the same answer; a trailing '*' stands for any ending. */
typedef struct LintRule
{
	const char *replacement;
	const char *names[MAX_RULE_NAMES];	/* up to a NULL */
} LintRule;

/* Functions of the server, when followed by '('. */
static const LintRule function_rules[] = {
	{USE_NOW, {"now", "clock_timestamp", "statement_timestamp",
			"transaction_timestamp", "timeofday",
	"age" /* with one argument: see check_call */ }},
	{USE_RANDOM, {"random", "random_normal", "setseed"}},
	{USE_UUID, {"gen_random_uuid", "uuidv4", "uuidv7"}},
	{USE_SLEEP, {"pg_sleep", "pg_sleep_for"}},
	{USE_SLEEP_UNTIL, {"pg_sleep_until"}},
	{USE_SETTINGS, {"set_config"}},
	{USE_RECORDED, {"nextval", "currval", "lastval", "pg_backend_pid",
			"txid_current*", "pg_current_xact_id*", "pg_current_snapshot",
			"pg_current_wal_*", "pg_postmaster_start_time",
			"pg_conf_load_time", "pg_is_in_recovery", "pg_relation_size",
			"pg_table_size", "pg_total_relation_size", "pg_database_size",
			"current_setting", "inet_client_*", "inet_server_*",
			"pg_read_file", "pg_read_binary_file", "pg_stat_file",
	"pg_ls_*", "lo_get", "loread"}},
	{USE_ACTIVITY, {"setval", "pg_advisory_*", "pg_try_advisory_*",
			"pg_notify", "pg_cancel_backend", "pg_terminate_backend",
			"pg_reload_conf", "pg_logical_emit_message", "lo_creat",
			"lo_create", "lo_from_bytea", "lo_import", "lo_export",
			"lo_open", "lo_close", "lo_put", "lo_truncate", "lo_unlink",
	"lowrite"}},
	{NULL}
};

/* The same, of contrib: these may be in other schemas. */
static const LintRule extension_rules[] = {
	{USE_UUID, {"gen_random_uuid", "uuid_generate_v1",
	"uuid_generate_v1mc", "uuid_generate_v4"}},
	{USE_RECORDED, {"gen_random_bytes", "gen_salt"}},
	{USE_ACTIVITY, {"dblink", "dblink_*"}},
	{NULL}
};

/* Reserved words of SQL that are values by themselves. */
static const LintRule value_rules[] = {
	{USE_NOW, {"current_timestamp", "current_date", "current_time",
	"localtime", "localtimestamp"}},
	{NULL}
};

/* Statements, by their first word. */
static const LintRule statement_rules[] = {
	{USE_WRITE, {"insert", "update", "delete", "merge", "truncate"}},
	{USE_STEP, {"commit", "rollback", "abort", "savepoint", "release",
	"start" /* TRANSACTION: see check_statement */ }},
	{USE_SETTINGS, {"set", "reset"}},
	{USE_RECORDED, {"show", "explain"}},
	{USE_ACTIVITY, {"copy", "create", "alter", "drop", "grant", "revoke",
			"comment", "security", "reassign", "import", "refresh",
			"reindex", "cluster", "vacuum", "analyze", "checkpoint", "load",
			"notify", "listen", "unlisten", "lock", "prepare", "deallocate",
	"discard"}},
	{NULL}
};

/* Types whose input function knows the words below. */
static const char *const clock_types[] = {
	"date", "time", "timetz", "timestamp", "timestamptz", "daterange",
	"tsrange", "tstzrange", "datemultirange", "tsmultirange",
	"tstzmultirange", NULL
};

static const char *const clock_words[] = {
	"now", "today", "tomorrow", "yesterday", NULL
};

/* What may follow a '(' that holds a query and not a list of tables. */
static const char *const query_words[] = {
	"select", "with", "values", "table", NULL
};

PG_FUNCTION_INFO_V1(durable_lint);

static void lint_text(Lint *lint, const char *source, int line,
					  bool count_lines);

static bool
text_in(const char *text, const char *const *list)
{
	for (; *list; list++)
	{
		if (strcmp(text, *list) == 0)
			return true;
	}
	return false;
}

static bool
name_matches(const char *name, const char *pattern)
{
	size_t		len = strlen(pattern) - 1;

	if (pattern[len] == '*')
		return strncmp(name, pattern, len) == 0;
	return strcmp(name, pattern) == 0;
}

/* What to say about that name, or NULL. */
static const char *
find_rule(const LintRule *rules, const char *name)
{
	for (; rules->replacement; rules++)
	{
		for (int i = 0; i < MAX_RULE_NAMES && rules->names[i]; i++)
		{
			if (name_matches(name, rules->names[i]))
				return rules->replacement;
		}
	}
	return NULL;
}

/*
 * LintAdvice
 *		What to write instead of a function of the server, or NULL if nothing
 *		is wrong with it.
 */
const char *
LintAdvice(const char *function, int nargs)
{
	if (strcmp(function, "age") == 0 && nargs != 1)
		return NULL;
	return find_rule(function_rules, function);
}

static void
report(Lint *lint, int line, const char *found, const char *replacement)
{
	MemoryContext old = MemoryContextSwitchTo(lint->result);
	LintFinding *finding = palloc(sizeof(LintFinding));

	finding->line = line;
	finding->found = pstrdup(found);
	finding->replacement = pstrdup(replacement);
	*lint->findings = lappend(*lint->findings, finding);
	MemoryContextSwitchTo(old);
}

/* ------------------------------------------------------------------------
 * Clock, chance, session: functions, values, and literals
 * ------------------------------------------------------------------------
 */

/*
 * What to say about the function name at i, by its schema: app.now() is the
 * user's own.  Contrib functions are also known in public and in
 * "extensions", where hosted services put them.
 */
static const char *
function_rule(const LintTokens *t, int i)
{
	const char *name = TokenAt(t, i)->text;
	const char *schema = TokenAt(t, i - 2)->text;
	const char *replacement = NULL;

	if (TokenKind(t, i - 1) != '.')
	{
		replacement = find_rule(function_rules, name);
		return replacement ? replacement : find_rule(extension_rules, name);
	}
	if (TokenKind(t, i - 3) == '.')
		return NULL;
	if (strcmp(schema, "pg_catalog") == 0)
		return find_rule(function_rules, name);
	if (strcmp(schema, "public") == 0 || strcmp(schema, "extensions") == 0)
		return find_rule(extension_rules, name);
	return NULL;
}

static int
count_arguments(const LintTokens *t, int open)
{
	int			end = TokenAfterParen(t, open) - 1;
	int			n = end > open + 1 ? 1 : 0;

	for (int i = open + 1; i < end; i++)
	{
		if (TokenKind(t, i) == ',' && TokenAt(t, i)->open == open)
			n++;
	}
	return n;
}

static void
check_call(Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;
	const LintToken *token = TokenAt(t, i);
	const char *replacement;

	/* FROM f() AS random(a int): a column list, not a call */
	if (TokenKind(t, i + 1) != '(' || TokenIsWord(t, i - 1, "as"))
		return;
	replacement = function_rule(t, i);
	if (replacement == NULL)
		return;
	if (strcmp(token->text, "age") != 0)
		report(lint, token->line, psprintf("%s()", token->text), replacement);
	else if (count_arguments(t, i + 1) == 1)
		report(lint, token->line, "age() with one argument", replacement);
}

static void
check_value(Lint *lint, int i)
{
	const LintToken *token = TokenAt(&lint->tokens, i);
	const char *replacement = find_rule(value_rules, token->text);

	if (replacement && token->word)
		report(lint, token->line, token->text, replacement);
}

static bool
has_clock_word(const char *text)
{
	while (*text)
	{
		char		word[10];	/* the longest has nine letters */
		size_t		len = 0;

		for (; isalpha((unsigned char) *text); text++)
		{
			if (len < sizeof(word))
				word[len++] = pg_tolower((unsigned char) *text);
		}
		if (len > 0 && len < sizeof(word))
		{
			word[len] = '\0';
			if (text_in(word, clock_words))
				return true;
		}
		if (*text)
			text++;
	}
	return false;
}

static bool
is_clock_type(const LintTokens *t, int i)
{
	if (strcmp(TokenAt(t, i)->text, "pg_catalog") == 0 &&
		TokenKind(t, i + 1) == '.')
		i += 2;
	return TokenIsName(t, i) && text_in(TokenAt(t, i)->text, clock_types);
}

/* timestamp, timestamp(3), timestamp with time zone: does one end at i? */
static bool
clock_type_ends(const LintTokens *t, int i)
{
	if (TokenIsWord(t, i, "zone"))
		return TokenIsWord(t, i - 1, "time");
	if (TokenKind(t, i) == ')')
		return is_clock_type(t, TokenAt(t, i)->open - 1);
	return is_clock_type(t, i);
}

/* 'now'::timestamptz, and 'now'::text::timestamptz */
static bool
is_cast_to_clock_type(const LintTokens *t, int i)
{
	for (i++; TokenKind(t, i) == TOKEN_TYPECAST; i = TokenAfterName(t, i + 1))
	{
		if (is_clock_type(t, i + 1))
			return true;
	}
	return false;
}

/*
 * A literal counts only if a date/time type stands beside it: the text 'now'
 * or 'today' alone is most often just text.
 */
static bool
is_clock_literal(const Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;

	if (!has_clock_word(TokenAt(t, i)->text))
		return false;
	if (clock_type_ends(t, i - 1) || is_cast_to_clock_type(t, i))
		return true;

	/* date('now'), durable_sleep_until('tomorrow'), CAST('now' AS date) */
	if (TokenKind(t, i - 1) == '(')
	{
		if (TokenKind(t, i + 1) == ')')
			return is_clock_type(t, i - 2) ||
				strcmp(TokenAt(t, i - 2)->text, "durable_sleep_until") == 0;
		return TokenIsWord(t, i - 2, "cast") &&
			TokenIsWord(t, i + 1, "as") && is_clock_type(t, i + 2);
	}

	/* started timestamptz := 'now' */
	return lint->declare && clock_type_ends(t, i - 2) &&
		(TokenKind(t, i - 1) == TOKEN_COLON_EQUALS ||
		 TokenKind(t, i - 1) == '=' || TokenIsWord(t, i - 1, "default"));
}

/* ------------------------------------------------------------------------
 * Table reads
 * ------------------------------------------------------------------------
 */

/* WITH a AS (...), b (x, y) AS MATERIALIZED (...): remembers a and b. */
static void
collect_ctes(Lint *lint)
{
	const LintTokens *t = &lint->tokens;

	for (int i = 0; i < t->count; i++)
	{
		int			j = i + 1;

		if (!TokenIsName(t, i) ||
			!(TokenKind(t, i - 1) == ',' || TokenIsWord(t, i - 1, "with") ||
			  TokenIsWord(t, i - 1, "recursive")))
			continue;
		if (TokenKind(t, j) == '(')
			j = TokenAfterParen(t, j);
		if (!TokenIsWord(t, j, "as"))
			continue;
		j++;
		if (strcmp(TokenAt(t, j)->text, "not") == 0)
			j++;
		if (strcmp(TokenAt(t, j)->text, "materialized") == 0)
			j++;
		if (TokenKind(t, j) == '(')
			lint->ctes = lappend(lint->ctes, pstrdup(TokenAt(t, i)->text));
	}
}

static bool
is_cte(const Lint *lint, const char *name)
{
	ListCell   *lc;

	foreach(lc, lint->ctes)
	{
		if (strcmp(name, lfirst(lc)) == 0)
			return true;
	}
	return false;
}

/* Remembers that a FROM item begins at i, for when the walk gets there. */
static void
expect_from_item(Lint *lint, int i, const char *from)
{
	LintTokens *t = &lint->tokens;

	if (i < t->count)
		t->array[i].from = from;
	else if (lint->dynamic)		/* EXECUTE 'SELECT a FROM ' || t */
		report(lint, t->line, from, USE_READ);
}

/*
 * The keyword at i if tables come after it, or NULL.  FROM also belongs to IS
 * DISTINCT FROM, ROWS FROM (...), FETCH and MOVE, and to functions such as
 * extract(x FROM y): in parentheses it needs a SELECT.
 */
static const char *
from_keyword(const Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;
	int			open = TokenAt(t, i)->open;

	if (TokenIsWord(t, i, "join"))
		return "JOIN";
	if (TokenIsWord(t, i, "table"))
		return (lint->verb == i || TokenKind(t, i - 1) == '(') ? "TABLE" : NULL;
	if (!TokenIsWord(t, i, "from") || TokenIsWord(t, i - 1, "distinct"))
		return NULL;
	if (TokenIsWord(t, i - 1, "rows") && TokenKind(t, i + 1) == '(')
		return NULL;
	if (TokenIsWord(t, lint->verb, "fetch") ||
		TokenIsWord(t, lint->verb, "move"))
		return NULL;
	return (open < 0 || TokenAt(t, open)->query) ? "FROM" : NULL;
}

static bool
is_table(const Lint *lint, int i, int end)
{
	const LintTokens *t = &lint->tokens;
	const LintToken *token = TokenAt(t, i);

	if (end == i + 1 && is_cte(lint, token->text))
		return false;
	if (token->word && find_rule(value_rules, token->text))
		return false;			/* FROM current_date: is reported as such */
	return !(TokenIsWord(t, i, "rows") && TokenIsWord(t, end, "from"));
}

static int
after_alias(const LintTokens *t, int i)
{
	if (TokenIsWord(t, i, "with") && TokenIsWord(t, i + 1, "ordinality"))
		i += 2;
	if (TokenIsWord(t, i, "as"))
		i++;
	if (TokenIsName(t, i))
		i++;
	return TokenKind(t, i) == '(' ? TokenAfterParen(t, i) : i;
}

/* %I, %1$I.%2$I: placeholders of format() that make up one name */
static int
after_placeholder(const LintTokens *t, int i)
{
	while (TokenKind(t, i) == '%')
	{
		i++;
		while (TokenKind(t, i) == TOKEN_ICONST || TokenKind(t, i) == '$' ||
			   TokenKind(t, i) == TOKEN_PARAM)
			i++;
		if (TokenIsName(t, i))
			i++;
		if (TokenKind(t, i) == '.' && TokenKind(t, i + 1) == '%')
			i++;
	}
	return i;
}

static void
check_from_item(Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;
	const LintToken *token = TokenAt(t, i);
	int			end = i + 1;

	if (TokenIsWord(t, i, "only") || TokenIsWord(t, i, "lateral"))
	{
		expect_from_item(lint, i + 1, token->from);
		return;
	}
	if (token->kind == '(')
	{
		if (!text_in(TokenAt(t, i + 1)->text, query_words))
			expect_from_item(lint, i + 1, token->from);
		end = TokenAfterParen(t, i);
	}
	else if (TokenIsName(t, i))
	{
		end = TokenAfterName(t, i);
		if (TokenKind(t, end) == '(')
			end = TokenAfterParen(t, end);
		else if (is_table(lint, i, end))
			report(lint, token->line,
				   psprintf("%s %s", token->from, TokenNameText(t, i)),
				   USE_READ);
	}
	else if (lint->dynamic && token->kind == '%')	/* format('FROM %I') */
	{
		const char *placeholder = t->source + token->pos;

		end = after_placeholder(t, i);
		if (TokenKind(t, end) == '(')
			end = TokenAfterParen(t, end);
		else
			report(lint, token->line,
				   psprintf("%s %.*s", token->from,
							pg_mbcliplen(placeholder, strlen(placeholder), 2),
							placeholder),
				   USE_READ);
	}
	end = after_alias(t, end);
	if (TokenKind(t, end) == ',')
		expect_from_item(lint, end + 1, token->from);
}

/* ------------------------------------------------------------------------
 * Statements
 * ------------------------------------------------------------------------
 */

/* Does a statement begin at i, by what stands before it? */
static bool
starts_statement(const Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;

	if (i == 0 || TokenKind(t, i - 1) == ';')
		return !lint->declare;
	if (!lint->plpgsql)
		return TokenIsWord(t, i - 1, "atomic");
	if (TokenIsOperator(t, i - 1, ">>"))
		return TokenIsOperator(t, i - 3, "<<");
	if (TokenIsWord(t, i - 1, "then") || TokenIsWord(t, i - 1, "else"))
		return lint->cases == 0;
	if (TokenIsWord(t, i - 1, "loop"))
		return !TokenIsWord(t, i - 2, "end");
	return TokenIsWord(t, i - 1, "begin");
}

/*
 * Follows the structure of the body up to token i.  CASE is a statement of
 * PL/pgSQL when it begins one and an expression elsewhere; what comes after
 * THEN and ELSE depends on it.
 */
static bool
track_statement(Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;
	bool		starts = starts_statement(lint, i);

	if (starts)
		lint->verb = i;
	if (TokenKind(t, i) == ';')
		lint->cases = 0;
	else if (TokenIsWord(t, i, "case") && !starts &&
			 !TokenIsWord(t, i - 1, "end"))
		lint->cases++;
	else if (TokenIsWord(t, i, "end") && lint->cases > 0)
		lint->cases--;
	else if (lint->plpgsql && TokenIsWord(t, i, "declare"))
		lint->declare = true;
	else if (TokenIsWord(t, i, "begin"))
		lint->declare = false;
	return starts;
}

/* In PL/pgSQL copy := 1, lock.id = 2, set[3] := 4 are assignments. */
static bool
is_assignment(const Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;
	int			next = TokenKind(t, i + 1);

	if (!lint->plpgsql || TokenIsName(t, i + 1))
		return false;
	if (next == '(')			/* COPY (SELECT ...) TO */
		return !text_in(TokenAt(t, i + 2)->text, query_words);
	return next != ';' && next != TOKEN_END;
}

/* A write after WITH ..., within WITH, in RETURN QUERY, in FOR r IN? */
static bool
is_embedded_write(const LintTokens *t, int i)
{
	int			prev = TokenKind(t, i - 1);
	int			next;

	if (prev != '(' && prev != ')' && !TokenIsWord(t, i - 1, "query") &&
		!TokenIsWord(t, i - 1, "in"))
		return false;
	if (TokenIsWord(t, i, "insert") || TokenIsWord(t, i, "merge"))
		return TokenIsWord(t, i + 1, "into");
	if (TokenIsWord(t, i, "delete"))
		return TokenIsWord(t, i + 1, "from");
	if (!TokenIsWord(t, i, "update"))
		return false;
	next = TokenIsWord(t, i + 1, "only") ? i + 2 : i + 1;
	next = TokenAfterName(t, next);
	return TokenIsWord(t, next, "set") ||
		TokenIsWord(t, after_alias(t, next), "set");
}

/* INSERT INTO x, DELETE FROM x, UPDATE x, SET TRANSACTION, or the verb. */
static char *
statement_text(const LintTokens *t, int i)
{
	const char *text = TokenAt(t, i)->text;
	char	   *verb = asc_toupper(text, strlen(text));
	int			name = i + 1;

	if (TokenIsWord(t, i + 1, "transaction"))
		return psprintf("%s TRANSACTION", verb);
	if (TokenIsWord(t, i + 1, "into") || TokenIsWord(t, i + 1, "from"))
	{
		text = TokenAt(t, i + 1)->text;
		verb = psprintf("%s %s", verb, asc_toupper(text, strlen(text)));
		name++;
	}
	else if (strcmp(text, "update") != 0)
		return verb;
	if (TokenIsWord(t, name, "only"))
		name++;
	if (!TokenIsName(t, name))
		return verb;
	return psprintf("%s %s", verb, TokenNameText(t, name));
}

/*
 * Reports a forbidden statement at i and returns true.  What stands inside it
 * (now(), tables) moves with it and is not told of.
 */
static bool
check_statement(Lint *lint, int i, bool starts)
{
	const LintTokens *t = &lint->tokens;
	const LintToken *token = TokenAt(t, i);
	bool		transaction = TokenIsWord(t, i + 1, "transaction");
	const char *replacement;

	if (!token->word)
		return false;
	replacement = find_rule(statement_rules, token->text);
	if (replacement == NULL)
		return false;
	if (starts ? is_assignment(lint, i) : !is_embedded_write(t, i))
		return false;
	if (TokenIsWord(t, i, "start") && !transaction)
		return false;
	report(lint, token->line, statement_text(t, i),
		   transaction ? USE_STEP : replacement);
	return true;
}

/* The end of the statement: its ';', or the LOOP of FOR r IN INSERT ... */
static int
skip_statement(const Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;

	while (i < t->count && TokenKind(t, i) != ';' &&
		   !(lint->plpgsql && TokenIsWord(t, i, "loop")))
		i++;
	return i;
}

/* ------------------------------------------------------------------------
 * Code in strings
 * ------------------------------------------------------------------------
 */

static void
check_nested(Lint *outer, int i, bool plpgsql)
{
	const LintToken *token = TokenAt(&outer->tokens, i);
	char		quote = outer->tokens.source[token->pos];
	Lint		lint = {0};

	if (outer->depth >= LINT_MAX_DEPTH)
		return;
	lint.depth = outer->depth + 1;
	lint.plpgsql = plpgsql;
	lint.dynamic = !plpgsql;
	lint.result = outer->result;
	lint.findings = outer->findings;

	/* the \n of E'...' is not a line of the source */
	lint_text(&lint, token->text, token->line, outer->tokens.count_lines &&
			  (quote == '\'' || quote == '$'));
}

/*
 * EXECUTE '...', EXECUTE format('...', ...) and DO '...'.  Other strings are
 * data, or SQL for durable_sql(), where all of it is fine.
 */
static void
check_dynamic(Lint *lint, int i, bool starts)
{
	const LintTokens *t = &lint->tokens;
	int			j = i + 1;

	if (lint->plpgsql && TokenIsWord(t, i, "execute"))
	{
		while (TokenKind(t, j) == '(' || TokenIsWord(t, j, "format"))
			j++;
		if (TokenIsLiteral(t, j))
			check_nested(lint, j, false);
	}
	else if (starts && TokenIsWord(t, i, "do"))
	{
		const char *language = "plpgsql";

		if (TokenIsWord(t, j, "language"))
		{
			language = TokenAt(t, j + 1)->text;
			j += 2;
		}
		else if (TokenIsWord(t, j + 1, "language"))
			language = TokenAt(t, j + 2)->text;
		if (TokenIsLiteral(t, j) && strcmp(language, "plpgsql") == 0)
			check_nested(lint, j, true);
	}
}

/* ------------------------------------------------------------------------
 * The walk
 * ------------------------------------------------------------------------
 */

/* Looks at token i and returns the index to go on from. */
static int
check_token(Lint *lint, int i)
{
	const LintTokens *t = &lint->tokens;
	const LintToken *token = TokenAt(t, i);
	bool		starts = track_statement(lint, i);

	if (check_statement(lint, i, starts))
		return skip_statement(lint, i);
	if (token->from)
		check_from_item(lint, i);
	if (TokenIsLiteral(t, i))
	{
		if (is_clock_literal(lint, i))
			report(lint, token->line, psprintf("'%s'", token->text), USE_NOW);
	}
	else if (TokenIsName(t, i))
	{
		const char *from = from_keyword(lint, i);

		check_call(lint, i);
		check_value(lint, i);
		check_dynamic(lint, i, starts);
		if (from)
			expect_from_item(lint, i + 1, from);
	}
	return i + 1;
}

static void
lint_text(Lint *lint, const char *source, int line, bool count_lines)
{
	int			i = 0;

	LintTokensScan(&lint->tokens, source, line, count_lines);
	collect_ctes(lint);
	while (i < lint->tokens.count)
		i = check_token(lint, i);
}

/*
 * LintSource
 *		What a body in that language should not contain, in its order.
 *
 * Languages other than PL/pgSQL and SQL are left to the sandbox.
 */
List *
LintSource(const char *source, const char *language)
{
	List	   *findings = NIL;
	Lint		lint = {0};
	MemoryContext scratch;

	lint.plpgsql = strcmp(language, "plpgsql") == 0;
	if (!lint.plpgsql && strcmp(language, "sql") != 0)
		return NIL;
	lint.findings = &findings;
	scratch = AllocSetContextCreate(CurrentMemoryContext, "durable lint",
									ALLOCSET_DEFAULT_SIZES);
	lint.result = MemoryContextSwitchTo(scratch);
	lint_text(&lint, source, 1, true);
	MemoryContextSwitchTo(lint.result);
	MemoryContextDelete(scratch);
	return findings;
}

/*
 * LintSourceOf
 *		The text of a function's body and its language; NULL if it has none.
 *
 * A BEGIN ATOMIC or RETURN body is kept as a parse tree; its lines are those
 * of the text the server makes of it.
 */
char *
LintSourceOf(Oid function, char **language)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;
	Datum		body;
	bool		isnull;
	char	   *source = NULL;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	*language = get_language_name(proc->prolang, false);
	(void) SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosqlbody, &isnull);
	if (!isnull)
		body = OidFunctionCall1(F_PG_GET_FUNCTION_SQLBODY,
								ObjectIdGetDatum(function));
	else
		body = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	if (!isnull)
		source = TextDatumGetCString(body);
	ReleaseSysCache(tuple);
	return source;
}

/*
 * LintFunction
 *		The check, for a function of the catalog.
 */
List *
LintFunction(Oid function)
{
	char	   *language;
	char	   *source = LintSourceOf(function, &language);

	return source ? LintSource(source, language) : NIL;
}

/*
 * durable_lint
 *		durable_internal.lint(source, language): the check, for tests.
 */
Datum
durable_lint(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *language = text_to_cstring(PG_GETARG_TEXT_PP(1));
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, LintSource(source, language))
	{
		LintFinding *finding = lfirst(lc);
		Datum		values[3];
		bool		nulls[3] = {false};

		values[0] = Int32GetDatum(finding->line);
		values[1] = CStringGetTextDatum(finding->found);
		values[2] = CStringGetTextDatum(finding->replacement);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
