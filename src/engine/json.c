/*-------------------------------------------------------------------------
 *
 * json.c
 *	  Building and reading jsonb values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

#include "engine/json.h"

/*
 * JsonCopy: a copy in the current context.
 */
Jsonb *
JsonCopy(const Jsonb *json)
{
	Jsonb	   *copy = palloc(VARSIZE(json));

	memcpy(copy, json, VARSIZE(json));
	return copy;
}

/*
 * JsonNull: JSON's null.
 */
Jsonb *
JsonNull(void)
{
	JsonbValue	null;

	null.type = jbvNull;
	return JsonbValueToJsonb(&null);
}

/*
 * JsonEqual: are they equal, as the operator says?
 *
 * Equal values are mostly the same bytes.
 */
bool
JsonEqual(Jsonb *a, Jsonb *b)
{
	if (VARSIZE(a) == VARSIZE(b) &&
		memcmp(VARDATA(a), VARDATA(b), VARSIZE(a) - VARHDRSZ) == 0)
		return true;
	return compareJsonbContainers(&a->root, &b->root) == 0;
}

/*
 * JsonAsValue: to be pushed as a part of another value.
 */
void
JsonAsValue(Jsonb *json, JsonbValue *value)
{
	if (JB_ROOT_IS_SCALAR(json))
		(void) JsonbExtractScalar(&json->root, value);
	else
	{
		value->type = jbvBinary;
		value->val.binary.data = &json->root;
		value->val.binary.len = VARSIZE(json) - VARHDRSZ;
	}
}

/*
 * JsonStringAsValue: the same for a string, which is copied.
 */
void
JsonStringAsValue(const char *string, JsonbValue *value)
{
	value->type = jbvString;
	value->val.string.val = pstrdup(string);
	value->val.string.len = strlen(string);
}

void
JsonObjectBegin(JsonbParseState **state)
{
	*state = NULL;
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
}

static void
add_value(JsonbParseState **state, const char *key, JsonbValue *value)
{
	JsonbValue	key_value;

	JsonStringAsValue(key, &key_value);
	pushJsonbValue(state, WJB_KEY, &key_value);
	pushJsonbValue(state, WJB_VALUE, value);
}

void
JsonObjectAdd(JsonbParseState **state, const char *key, Jsonb *value)
{
	JsonbValue	element;

	if (value == NULL)
		return;
	JsonAsValue(value, &element);
	add_value(state, key, &element);
}

void
JsonObjectAddText(JsonbParseState **state, const char *key, const char *value)
{
	JsonbValue	element;

	if (value == NULL)
		return;
	JsonStringAsValue(value, &element);
	add_value(state, key, &element);
}

void
JsonObjectAddNumber(JsonbParseState **state, const char *key, int64 value)
{
	JsonbValue	element;

	element.type = jbvNumeric;
	element.val.numeric = int64_to_numeric(value);
	add_value(state, key, &element);
}

Jsonb *
JsonObjectEnd(JsonbParseState **state)
{
	return JsonbValueToJsonb(pushJsonbValue(state, WJB_END_OBJECT, NULL));
}

/*
 * JsonGet: the value of a key, or NULL.
 */
Jsonb *
JsonGet(Jsonb *object, const char *key)
{
	JsonbValue	buffer;
	JsonbValue *value;

	if (object == NULL || !JB_ROOT_IS_OBJECT(object))
		return NULL;
	value = getKeyJsonValueFromContainer(&object->root, key, strlen(key),
										 &buffer);
	return value == NULL ? NULL : JsonbValueToJsonb(value);
}

/*
 * JsonGetText: the string that a key has, or NULL.
 */
char *
JsonGetText(Jsonb *object, const char *key)
{
	JsonbValue	buffer;
	JsonbValue *value;

	if (object == NULL || !JB_ROOT_IS_OBJECT(object))
		return NULL;
	value = getKeyJsonValueFromContainer(&object->root, key, strlen(key),
										 &buffer);
	if (value == NULL || value->type != jbvString)
		return NULL;
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/*
 * JsonGetInt: the whole number that a key has, or 0.
 */
int64
JsonGetInt(Jsonb *object, const char *key)
{
	JsonbValue	buffer;
	JsonbValue *value;

	if (object == NULL || !JB_ROOT_IS_OBJECT(object))
		return 0;
	value = getKeyJsonValueFromContainer(&object->root, key, strlen(key),
										 &buffer);
	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return DatumGetInt64(DirectFunctionCall1(numeric_int8,
											 NumericGetDatum(value->val.numeric)));
}

/*
 * JsonArray: of these; NULL becomes JSON's null.
 */
Jsonb *
JsonArray(Jsonb **elements, int count)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < count; i++)
	{
		JsonbValue	element;

		if (elements[i] != NULL)
			JsonAsValue(elements[i], &element);
		else
			element.type = jbvNull;
		pushJsonbValue(&state, WJB_ELEM, &element);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/*
 * JsonEmpty: an object without keys.
 */
Jsonb *
JsonEmpty(void)
{
	JsonbParseState *state;

	JsonObjectBegin(&state);
	return JsonObjectEnd(&state);
}

/*
 * JsonTypeName: what it is, for messages.
 */
const char *
JsonTypeName(Jsonb *json)
{
	JsonbValue	value;

	if (JB_ROOT_IS_OBJECT(json))
		return "object";
	if (!JB_ROOT_IS_SCALAR(json))
		return "array";
	(void) JsonbExtractScalar(&json->root, &value);
	switch (value.type)
	{
		case jbvNull:
			return "null";
		case jbvString:
			return "string";
		case jbvNumeric:
			return "number";
		default:
			return "boolean";
	}
}
