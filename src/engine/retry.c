/*-------------------------------------------------------------------------
 *
 * retry.c
 *	  Retry policies: sparse JSON objects, merged field by field.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/numeric.h"

#include "durable.h"
#include "engine/binding.h"
#include "engine/json.h"
#include "engine/retry.h"

PG_FUNCTION_INFO_V1(durable_retry_policy);

typedef enum FieldType
{
	FIELD_COUNT,				/* whole number from 1 */
	FIELD_SECONDS,				/* from 0 */
	FIELD_FACTOR,				/* from 1 */
	FIELD_PART,					/* 0 to 1 */
	FIELD_STRATEGY,
	FIELD_CODES					/* array of SQLSTATEs and classes */
} FieldType;

typedef struct Field
{
	const char *name;
	FieldType	type;
	const char *expected;
} Field;

/* In the order of durable_retry_policy's parameters. */
static const Field fields[] = {
	{"max_attempts", FIELD_COUNT, "a whole number from 1"},
	{"initial", FIELD_SECONDS, "a number of seconds from 0"},
	{"backoff", FIELD_FACTOR, "a number from 1"},
	{"max_interval", FIELD_SECONDS, "a number of seconds from 0"},
	{"max_duration", FIELD_SECONDS, "a number of seconds from 0"},
	{"strategy", FIELD_STRATEGY, "\"exponential\" or \"linear\""},
	{"jitter", FIELD_PART, "a number from 0 to 1"},
	{"retryable", FIELD_CODES, "an array of SQLSTATEs or their two-character classes"},
	{"non_retryable", FIELD_CODES, "an array of SQLSTATEs or their two-character classes"},
	{NULL}
};

static double
number_of(const JsonbValue *value)
{
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
											  NumericGetDatum(value->val.numeric)));
}

static bool
is_code(const JsonbValue *value)
{
	if (value->type != jbvString ||
		(value->val.string.len != 2 && value->val.string.len != 5))
		return false;
	for (int i = 0; i < value->val.string.len; i++)
	{
		char		c = value->val.string.val[i];

		if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z'))
			return false;
	}
	return true;
}

static bool
codes_are_valid(const JsonbValue *value)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	element;

	if (value->type != jbvBinary ||
		!JsonContainerIsArray(value->val.binary.data))
		return false;
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM && !is_code(&element))
			return false;
	}
	return true;
}

static bool
field_is_valid(const Field *field, const JsonbValue *value)
{
	double		number;

	if (field->type == FIELD_CODES)
		return codes_are_valid(value);
	if (field->type == FIELD_STRATEGY)
		return value->type == jbvString &&
			((value->val.string.len == 11 &&
			  memcmp(value->val.string.val, "exponential", 11) == 0) ||
			 (value->val.string.len == 6 &&
			  memcmp(value->val.string.val, "linear", 6) == 0));
	if (value->type != jbvNumeric)
		return false;

	number = number_of(value);
	switch (field->type)
	{
		case FIELD_COUNT:
			return number >= 1 && number <= PG_INT32_MAX && rint(number) == number;
		case FIELD_FACTOR:
			return number >= 1 && number <= 1e9;
		case FIELD_PART:
			return number >= 0 && number <= 1;
		default:
			return number >= 0 && number <= 1e10;
	}
}

static const Field *
find_field(const JsonbValue *key)
{
	for (const Field *field = fields; field->name; field++)
	{
		if (strlen(field->name) == key->val.string.len &&
			memcmp(field->name, key->val.string.val, key->val.string.len) == 0)
			return field;
	}
	return NULL;
}

static void
check_field(const JsonbValue *key, const JsonbValue *value,
			const char *parameter)
{
	const Field *field = find_field(key);

	if (field == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s has an unknown field \"%.*s\"", parameter,
						key->val.string.len, key->val.string.val),
				 errhint("Make retry policies with durable_retry_policy().")));
	if (!field_is_valid(field, value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("field \"%s\" of %s must be %s", field->name,
						parameter, field->expected)));
}

/*
 * RetryCheck: refuse what is no retry policy; parameter is its name.
 */
void
RetryCheck(Jsonb *policy, const char *parameter)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	key = {0};
	JsonbValue	value;

	if (policy == NULL)
		return;
	if (!JB_ROOT_IS_OBJECT(policy))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be a JSON object, not %s", parameter,
						JsonTypeName(policy)),
				 errhint("Make retry policies with durable_retry_policy().")));

	it = JsonbIteratorInit(&policy->root);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = value;
		else if (token == WJB_VALUE)
			check_field(&key, &value, parameter);
	}
}

/*
 * RetryDefaults: what the settings say.
 */
void
RetryDefaults(RetryPolicy *policy)
{
	memset(policy, 0, sizeof(RetryPolicy));
	policy->max_attempts = durable_retry_max_attempts;
	policy->initial = durable_retry_initial / 1000.0;
	policy->backoff = durable_retry_backoff;
	policy->max_interval = durable_retry_max_interval / 1000.0;
	policy->max_duration = durable_retry_max_duration / 1000.0;
}

static void
take_number(Jsonb *given, const char *name, double *number)
{
	JsonbValue	buffer;
	JsonbValue *value;

	value = getKeyJsonValueFromContainer(&given->root, name, strlen(name),
										 &buffer);
	if (value != NULL)
		*number = number_of(value);
}

/*
 * RetryApply: take over the fields that a checked policy gives.
 */
void
RetryApply(RetryPolicy *policy, Jsonb *given)
{
	double		attempts = policy->max_attempts;
	char	   *strategy;
	Jsonb	   *codes;

	if (given == NULL)
		return;
	take_number(given, "max_attempts", &attempts);
	policy->max_attempts = (int) attempts;
	take_number(given, "initial", &policy->initial);
	take_number(given, "backoff", &policy->backoff);
	take_number(given, "max_interval", &policy->max_interval);
	take_number(given, "max_duration", &policy->max_duration);
	take_number(given, "jitter", &policy->jitter);
	strategy = JsonGetText(given, "strategy");
	if (strategy != NULL)
		policy->linear = strcmp(strategy, "linear") == 0;
	codes = JsonGet(given, "retryable");
	if (codes != NULL)
		policy->retryable = codes;
	codes = JsonGet(given, "non_retryable");
	if (codes != NULL)
		policy->non_retryable = codes;
}

static bool
codes_contain(Jsonb *codes, const char *sqlstate)
{
	JsonbIterator *it = JsonbIteratorInit(&codes->root);
	JsonbIteratorToken token;
	JsonbValue	code;

	while ((token = JsonbIteratorNext(&it, &code, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM &&
			strncmp(sqlstate, code.val.string.val, code.val.string.len) == 0)
			return true;
	}
	return false;
}

/*
 * RetryIsFor: is an error of this SQLSTATE to be retried at all?
 */
bool
RetryIsFor(const RetryPolicy *policy, const char *sqlstate)
{
	if (policy->non_retryable != NULL &&
		codes_contain(policy->non_retryable, sqlstate))
		return false;
	return policy->retryable == NULL ||
		codes_contain(policy->retryable, sqlstate);
}

/*
 * RetryNext: when to try again after that many attempts, if at all.
 */
bool
RetryNext(const RetryPolicy *policy, int attempt, TimestampTz first_at,
		  TimestampTz now, TimestampTz *next_at)
{
	double		delay;

	if (attempt >= policy->max_attempts)
		return false;
	if (policy->initial == 0)
		delay = 0;
	else if (policy->linear)
		delay = policy->initial * attempt;
	else
		delay = policy->initial * pow(policy->backoff, attempt - 1);
	delay = Min(delay, policy->max_interval);
	delay -= delay * policy->jitter * pg_prng_double(&pg_global_prng_state);

	*next_at = now + (TimestampTz) (delay * USECS_PER_SEC);
	return policy->max_duration == 0 ||
		*next_at <= first_at + (TimestampTz) (policy->max_duration * USECS_PER_SEC);
}

/* ------------------------------------------------------------------
 * durable_retry_policy
 * ------------------------------------------------------------------
 */

static Jsonb *
seconds_json(Interval *interval)
{
	double		seconds = interval->time / (double) USECS_PER_SEC +
		interval->day * (double) SECS_PER_DAY +
		interval->month * (double) DAYS_PER_MONTH * SECS_PER_DAY;

	return DatumToJsonb(Float8GetDatum(seconds), false, FLOAT8OID);
}

/*
 * durable_retry_policy: a policy of the given fields.
 */
Datum
durable_retry_policy(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {
		INT4OID, INTERVALOID, FLOAT8OID, INTERVALOID, INTERVALOID, TEXTOID,
		FLOAT8OID, TEXTARRAYOID, TEXTARRAYOID
	};
	JsonbParseState *state;
	Jsonb	   *policy;

	JsonObjectBegin(&state);
	for (int i = 0; fields[i].name != NULL; i++)
	{
		Jsonb	   *value;

		if (PG_ARGISNULL(i))
			continue;
		if (types[i] == INTERVALOID)
			value = seconds_json(PG_GETARG_INTERVAL_P(i));
		else
			value = DatumToJsonb(PG_GETARG_DATUM(i), false, types[i]);
		JsonObjectAdd(&state, fields[i].name, value);
	}
	policy = JsonObjectEnd(&state);
	RetryCheck(policy, "the retry policy");
	PG_RETURN_JSONB_P(policy);
}
