/*-------------------------------------------------------------------------
 *
 * arguments.c
 *	  Arguments of our SQL functions, checked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "arguments.h"
#include "durable.h"

/*
 * ArgNotNull: most of our parameters have no use for NULL.
 */
void
ArgNotNull(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	if (PG_ARGISNULL(i))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", parameter)));
}

char *
ArgText(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	ArgNotNull(fcinfo, i, parameter);
	return text_to_cstring(PG_GETARG_TEXT_PP(i));
}

/*
 * ArgCheckName: refuse what is not fit to be a name.
 */
void
ArgCheckName(const char *name, const char *parameter)
{
	size_t		length = strlen(name);

	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", parameter)));
	if (length > DURABLE_MAX_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", parameter),
				 errdetail("It has %zu bytes; %d are possible.", length,
						   DURABLE_MAX_NAME)));
	for (const char *c = name; *c; c++)
	{
		if ((unsigned char) *c < 0x20 || *c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not contain control characters",
							parameter)));
	}
}

char *
ArgName(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	char	   *name = ArgText(fcinfo, i, parameter);

	ArgCheckName(name, parameter);
	return name;
}

char *
ArgNameOrNull(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	return PG_ARGISNULL(i) ? NULL : ArgName(fcinfo, i, parameter);
}

Jsonb *
ArgJsonb(FunctionCallInfo fcinfo, int i, const char *parameter)
{
	ArgNotNull(fcinfo, i, parameter);
	return PG_GETARG_JSONB_P(i);
}

Jsonb *
ArgJsonbOrNull(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : PG_GETARG_JSONB_P(i);
}
