/*-------------------------------------------------------------------------
 *
 * json.h
 *	  Building and reading jsonb values.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_JSON_H
#define DURABLE_JSON_H

#include "utils/jsonb.h"

extern Jsonb *JsonCopy(const Jsonb *json);
extern Jsonb *JsonNull(void);
extern bool JsonEqual(Jsonb *a, Jsonb *b);
extern void JsonAsValue(Jsonb *json, JsonbValue *value);
extern void JsonStringAsValue(const char *string, JsonbValue *value);

/* An object, key by key; what is NULL is left out. */
extern void JsonObjectBegin(JsonbParseState **state);
extern void JsonObjectAdd(JsonbParseState **state, const char *key,
						  Jsonb *value);
extern void JsonObjectAddText(JsonbParseState **state, const char *key,
							  const char *value);
extern void JsonObjectAddNumber(JsonbParseState **state, const char *key,
								int64 value);
extern Jsonb *JsonObjectEnd(JsonbParseState **state);

extern Jsonb *JsonGet(Jsonb *object, const char *key);
extern int64 JsonGetInt(Jsonb *object, const char *key);
extern Jsonb *JsonArray(Jsonb **elements, int count);
extern Jsonb *JsonEmpty(void);
extern char *JsonGetText(Jsonb *object, const char *key);
extern const char *JsonTypeName(Jsonb *json);

#endif							/* DURABLE_JSON_H */
