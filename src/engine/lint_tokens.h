/*-------------------------------------------------------------------------
 *
 * lint_tokens.h
 *	  A source as tokens, for the source check.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_LINT_TOKENS_H
#define DURABLE_LINT_TOKENS_H

/*
 * Token codes of the core scanner, from 258 on in the order that scanner.h
 * lays down for every parser built upon it.
 */
typedef enum LintTokenKind
{
	TOKEN_END = 0,
	TOKEN_IDENT = 258,
	TOKEN_UIDENT,
	TOKEN_FCONST,
	TOKEN_SCONST,
	TOKEN_USCONST,
	TOKEN_BCONST,
	TOKEN_XCONST,
	TOKEN_OP,
	TOKEN_ICONST,
	TOKEN_PARAM,
	TOKEN_TYPECAST,
	TOKEN_DOT_DOT,
	TOKEN_COLON_EQUALS
} LintTokenKind;

typedef struct LintToken
{
	int			kind;			/* a LintTokenKind, or a character */
	int			line;
	int			pos;			/* offset in the source */
	int			open;			/* the '(' around it, or -1 */
	int			close;			/* of a '(': its ')', or -1 */
	bool		word;			/* may be a keyword: unquoted, no label */
	bool		query;			/* of a '(': SELECT stands directly in it */
	const char *text;			/* of names, literals, operators; else "" */
	const char *from;			/* a FROM item begins here: "FROM", "JOIN" */
} LintToken;

typedef struct LintTokens
{
	const char *source;
	bool		count_lines;	/* else all is on the first line */
	LintToken  *array;
	int			count;

	/* while scanning */
	int			size;
	int			open;			/* innermost open '(', or -1 */
	int			line;			/* of line_pos */
	int			line_pos;
} LintTokens;

extern void LintTokensScan(LintTokens *tokens, const char *source,
						   int first_line, bool count_lines);

/* Any index may be asked for: outside the source stands TOKEN_END. */
extern const LintToken *TokenAt(const LintTokens *tokens, int i);
extern int	TokenKind(const LintTokens *tokens, int i);
extern bool TokenIsName(const LintTokens *tokens, int i);
extern bool TokenIsLiteral(const LintTokens *tokens, int i);
extern bool TokenIsWord(const LintTokens *tokens, int i, const char *word);
extern bool TokenIsOperator(const LintTokens *tokens, int i, const char *op);
extern int	TokenAfterParen(const LintTokens *tokens, int i);
extern int	TokenAfterName(const LintTokens *tokens, int i);
extern char *TokenNameText(const LintTokens *tokens, int i);

#endif							/* DURABLE_LINT_TOKENS_H */
