/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings of its start that an instance is run with.
 *
 * They are in force in each pass and each activity, in a nest level that is
 * undone afterwards together with whatever the code set itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "engine/json.h"
#include "engine/settings.h"

/* What decides which objects a name means, and how values look. */
static const char *const pinned_settings[] = {
	"search_path", "TimeZone", "DateStyle", "IntervalStyle",
	"extra_float_digits", "lc_monetary", "lc_numeric", "lc_time",
	"bytea_output", "xmlbinary", "xmloption", "default_text_search_config",
	"array_nulls", "plpgsql.variable_conflict", NULL
};

typedef struct Setting
{
	char	   *name;
	char	   *value;
} Setting;

static void
capture(JsonbParseState **state, const char *name)
{
	JsonObjectAddText(state, name, GetConfigOption(name, true, false));
}

/*
 * SettingsCapture: the current values, as they go into the history.
 */
Jsonb *
SettingsCapture(List *additional)
{
	JsonbParseState *state;
	ListCell   *lc;

	JsonObjectBegin(&state);
	for (int i = 0; pinned_settings[i] != NULL; i++)
		capture(&state, pinned_settings[i]);
	foreach(lc, additional)
		capture(&state, lfirst(lc));
	return JsonObjectEnd(&state);
}

/*
 * SettingsRead: from the history to a list for SettingsEnter.
 */
List *
SettingsRead(Jsonb *settings)
{
	JsonbIterator *it = JsonbIteratorInit(&settings->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	List	   *list = NIL;
	Setting    *setting = NULL;

	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			setting = palloc0(sizeof(Setting));
			setting->name = pnstrdup(value.val.string.val,
									 value.val.string.len);
		}
		else if (token == WJB_VALUE && value.type == jbvString)
		{
			setting->value = pnstrdup(value.val.string.val,
									  value.val.string.len);
			list = lappend(list, setting);
		}
	}
	return list;
}

/*
 * SettingsEnter: put them in force, in a new nest level.
 *
 * Setting costs much more than looking, and mostly nothing differs.
 */
int
SettingsEnter(List *settings)
{
	int			level = NewGUCNestLevel();
	ListCell   *lc;

	foreach(lc, settings)
	{
		Setting    *setting = lfirst(lc);
		const char *now = GetConfigOption(setting->name, true, false);

		if (now == NULL || strcmp(now, setting->value) != 0)
			(void) set_config_option(setting->name, setting->value,
									 superuser() ? PGC_SUSET : PGC_USERSET,
									 PGC_S_SESSION, GUC_ACTION_SAVE,
									 true, 0, false);
	}
	return level;
}

/*
 * SettingsLeave: undo that, and all that was set since.
 */
void
SettingsLeave(int level)
{
	AtEOXact_GUC(false, level);
}

/*
 * SettingsCheckName: may a workflow ask for this setting to be captured?
 *
 * Only what any role may read and set: the value is kept where those who see
 * the instance see it, and set again by the role that the instance runs as.
 */
void
SettingsCheckName(const char *name)
{
	const char *value = GetConfigOption(name, true, true);

	if (value == NULL || pg_strcasecmp(name, "role") == 0 ||
		pg_strcasecmp(name, "session_authorization") == 0 ||
		pg_strncasecmp(name, "transaction_", 12) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("setting \"%s\" cannot be captured", name),
				 errhint("Give names of settings that any role may set, such as statement_timeout.")));

	/* a trial that changes nothing, with no more rights than anybody's */
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, false, ERROR, false);
}
