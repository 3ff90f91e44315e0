/*-------------------------------------------------------------------------
 *
 * lint_tokens.c
 *	  A source as tokens, for the source check.
 *
 * The tokens come from the server's own scanner, which knows comments,
 * strings, dollar quotes and quoted names, as PL/pgSQL's scanner does too.
 * It is given an empty keyword list: every word then comes as a case-folded
 * name, and whether it is a keyword is decided by where it stands.
 *
 * All memory is of the current context; nothing else is held.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/kwlookup.h"
#include "lib/stringinfo.h"
#include "parser/scanner.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "engine/lint_tokens.h"
#include "engine/replay.h"

/* Tokens come in order of position, so lines are counted as we go. */
static int
line_of(LintTokens *tokens, int pos)
{
	for (; tokens->line_pos < pos; tokens->line_pos++)
	{
		if (tokens->count_lines && tokens->source[tokens->line_pos] == '\n')
			tokens->line++;
	}
	return tokens->line;
}

/* Ties parentheses together and marks those that hold a query. */
static void
track_parens(LintTokens *tokens, int i)
{
	LintToken  *token = &tokens->array[i];

	token->open = tokens->open;
	token->close = -1;
	if (token->kind == '(')
		tokens->open = i;
	else if (token->kind == ')' && tokens->open >= 0)
	{
		tokens->array[tokens->open].close = i;
		tokens->open = tokens->array[tokens->open].open;
	}
	else if (token->kind == ';')
		tokens->open = -1;
	else if (tokens->open >= 0 && TokenIsWord(tokens, i, "select"))
		tokens->array[tokens->open].query = true;
}

static void
add_token(LintTokens *tokens, int kind, const char *text, int pos)
{
	int			i = tokens->count;
	LintToken  *token;

	if (i == tokens->size)
	{
		tokens->size *= 2;
		tokens->array = repalloc_huge(tokens->array,
									  tokens->size * sizeof(LintToken));
	}
	token = &tokens->array[i];
	memset(token, 0, sizeof(LintToken));
	token->kind = kind;
	token->text = text;
	token->pos = pos;
	token->line = line_of(tokens, pos);

	/* after a dot or AS every word is a plain name: rec.end, AS from */
	token->word = kind == TOKEN_IDENT && tokens->source[pos] != '"' &&
		TokenKind(tokens, i - 1) != '.' && !TokenIsWord(tokens, i - 1, "as");
	tokens->count++;
	track_parens(tokens, i);
}

static void
scan_source(LintTokens *tokens)
{
	/* max_kw_len is 0, so that no word is long enough to be looked up */
	static const ScanKeywordList no_keywords = {0};
	core_yy_extra_type extra;
	core_yyscan_t scanner;
	core_YYSTYPE value;
	YYLTYPE		pos;
	int			kind;

	scanner = scanner_init(tokens->source, &extra, &no_keywords, NULL);
	extra.escape_string_warning = false;
	/* what is found must not depend on who looks */
	extra.standard_conforming_strings = true;
	while ((kind = core_yylex(&value, &pos, scanner)) != TOKEN_END)
	{
		bool		has_text = kind >= TOKEN_IDENT && kind <= TOKEN_OP;

		add_token(tokens, kind, has_text ? value.str : "", pos);
	}
	scanner_finish(scanner);
}

/*
 * LintTokensScan
 *		Fills tokens from the source, whose first line has that number.
 *
 * A source that does not scan is the language's to complain about: what was
 * read up to there is still looked at.  Catching without a subtransaction is
 * safe here, because the scanner holds nothing but memory of the current
 * context; anything but its own complaints goes on.
 */
void
LintTokensScan(LintTokens *tokens, const char *source, int first_line,
			   bool count_lines)
{
	MemoryContext context = CurrentMemoryContext;

	memset(tokens, 0, sizeof(LintTokens));
	tokens->source = source;
	tokens->count_lines = count_lines;
	tokens->line = first_line;
	tokens->open = -1;
	tokens->size = 256;
	tokens->array = palloc(tokens->size * sizeof(LintToken));

	PG_TRY();
	{
		scan_source(tokens);
	}
	PG_CATCH();
	{
		int			code = geterrcode();

		if (code != ERRCODE_SYNTAX_ERROR &&
			code != ERRCODE_FEATURE_NOT_SUPPORTED &&
			ERRCODE_TO_CATEGORY(code) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		ContextSet(CurrentContext);
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
}

/*
 * TokenAt
 *		The token at i.
 */
const LintToken *
TokenAt(const LintTokens *tokens, int i)
{
	static const LintToken end = {
		.kind = TOKEN_END, .open = -1, .close = -1, .text = ""
	};

	return (i >= 0 && i < tokens->count) ? &tokens->array[i] : &end;
}

/*
 * TokenKind
 *		What kind of token stands at i.
 */
int
TokenKind(const LintTokens *tokens, int i)
{
	return TokenAt(tokens, i)->kind;
}

/*
 * TokenIsName
 *		Is it an identifier or a keyword, quoted or not?
 */
bool
TokenIsName(const LintTokens *tokens, int i)
{
	int			kind = TokenKind(tokens, i);

	return kind == TOKEN_IDENT || kind == TOKEN_UIDENT;
}

/*
 * TokenIsLiteral
 *		Is it a string, however quoted?
 */
bool
TokenIsLiteral(const LintTokens *tokens, int i)
{
	int			kind = TokenKind(tokens, i);

	return kind == TOKEN_SCONST || kind == TOKEN_USCONST;
}

/*
 * TokenIsWord
 *		Is it this keyword?
 */
bool
TokenIsWord(const LintTokens *tokens, int i, const char *word)
{
	const LintToken *token = TokenAt(tokens, i);

	return token->word && strcmp(token->text, word) == 0;
}

/*
 * TokenIsOperator
 *		Is it this operator of more than one character?
 */
bool
TokenIsOperator(const LintTokens *tokens, int i, const char *op)
{
	const LintToken *token = TokenAt(tokens, i);

	return token->kind == TOKEN_OP && strcmp(token->text, op) == 0;
}

/*
 * TokenAfterParen
 *		The index after the parenthesis that opens at i.
 */
int
TokenAfterParen(const LintTokens *tokens, int i)
{
	int			close = TokenAt(tokens, i)->close;

	return close < 0 ? tokens->count : close + 1;
}

/*
 * TokenAfterName
 *		The index after the possibly qualified name that begins at i.
 */
int
TokenAfterName(const LintTokens *tokens, int i)
{
	while (TokenKind(tokens, i + 1) == '.' && TokenIsName(tokens, i + 2))
		i += 2;
	return i + 1;
}

/*
 * TokenNameText
 *		The possibly qualified name at i, quoted as it is in the source.
 */
char *
TokenNameText(const LintTokens *tokens, int i)
{
	StringInfoData name;
	int			end = TokenAfterName(tokens, i);

	initStringInfo(&name);
	for (; i < end; i++)
	{
		const LintToken *token = TokenAt(tokens, i);

		if (token->kind == '.')
			appendStringInfoChar(&name, '.');
		else if (tokens->source[token->pos] == '"')
			appendStringInfoString(&name, quote_identifier(token->text));
		else
			appendStringInfoString(&name, token->text);
	}
	return name.data;
}
