/*-------------------------------------------------------------------------
 *
 * lint_handlers.c
 *	  Which handlers, validators and conditions the text of a body names.
 *
 * Those that are written as literals, which is how they are written.  What a
 * body puts together is found out when it is first used.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "engine/lint.h"
#include "engine/lint_handlers.h"
#include "engine/lint_tokens.h"

/* Follows COLON_EQUALS in scanner.h's order, see lint_tokens.h. */
#define TOKEN_EQUALS_GREATER	(TOKEN_COLON_EQUALS + 1)

/* A primitive that is given functions, and the arguments that are such. */
static const struct
{
	const char *primitive;
	const char *parameters[3];	/* by position, NULL: no function */
}			takers[] = {
	{"durable_on_signal", {NULL, "handler", NULL}},
	{"durable_on_update", {NULL, "handler", "validator"}},
	{"durable_on_query", {NULL, "handler", NULL}},
	{"durable_wait_until", {"condition", NULL, NULL}}
};

/*
 * is_function: is the literal at i, the argument of that number, a function's
 * name?
 */
static bool
is_function(const LintTokens *tokens, int i, int taker, int argument)
{
	int			before = TokenKind(tokens, i - 1);

	if (before == TOKEN_EQUALS_GREATER || before == TOKEN_COLON_EQUALS)
	{
		const char *name = TokenAt(tokens, i - 2)->text;

		for (int n = 0; n < lengthof(takers[taker].parameters); n++)
		{
			if (takers[taker].parameters[n] != NULL &&
				strcmp(takers[taker].parameters[n], name) == 0)
				return true;
		}
		return false;
	}
	return argument < lengthof(takers[taker].parameters) &&
		takers[taker].parameters[argument] != NULL &&
		(before == '(' || before == ',');
}

/*
 * read_call: the functions that are named in the call whose '(' is at open.
 */
static List *
read_call(const LintTokens *tokens, int open, int taker, List *names)
{
	int			end = TokenAfterParen(tokens, open);
	int			argument = 0;

	for (int i = open + 1; i < end; i++)
	{
		if (TokenAt(tokens, i)->open != open)
			continue;
		if (TokenKind(tokens, i) == ',')
			argument++;
		else if (TokenIsLiteral(tokens, i) &&
				 is_function(tokens, i, taker, argument))
			names = lappend(names, pstrdup(TokenAt(tokens, i)->text));
	}
	return names;
}

static int
find_taker(const LintTokens *tokens, int i)
{
	if (!TokenIsName(tokens, i) || TokenKind(tokens, i + 1) != '(')
		return -1;
	for (int n = 0; n < lengthof(takers); n++)
	{
		if (strcmp(TokenAt(tokens, i)->text, takers[n].primitive) == 0)
			return n;
	}
	return -1;
}

/*
 * LintHandlers: the names, as the body has them.
 */
List *
LintHandlers(Oid function)
{
	char	   *language;
	char	   *source = LintSourceOf(function, &language);
	LintTokens	tokens = {0};
	List	   *names = NIL;

	if (source == NULL ||
		(strcmp(language, "plpgsql") != 0 && strcmp(language, "sql") != 0))
		return NIL;
	LintTokensScan(&tokens, source, 1, false);
	for (int i = 0; i < tokens.count; i++)
	{
		int			taker = find_taker(&tokens, i);

		if (taker >= 0)
			names = read_call(&tokens, i + 1, taker, names);
	}
	return names;
}
