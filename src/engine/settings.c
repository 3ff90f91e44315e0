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

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "compat.h"
#include "engine/json.h"
#include "engine/settings.h"

/* What decides which objects a name means, and how values look. */
static const char *const pinned_settings[] = {
	"search_path", "TimeZone", "DateStyle", "IntervalStyle",
	"extra_float_digits", "lc_monetary", "lc_numeric", "lc_time",
	"bytea_output", "xmlbinary", "xmloption", "default_text_search_config",
	"array_nulls", NULL
};

typedef struct Setting
{
	char	   *name;
	char	   *value;			/* NULL: there was none */
} Setting;

/*
 * capture: a setting that is not there now must not come from the driver's
 * session later, so that is recorded too.
 */
static void
capture(JsonbParseState **state, const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	if (value != NULL)
		JsonObjectAddText(state, name, value);
	else
		JsonObjectAdd(state, name, JsonNull());
}

/*
 * SettingsCapture: the current values, as they go into the history; those
 * of an array of names as well.
 */
Jsonb *
SettingsCapture(Datum additional)
{
	JsonbParseState *state;
	Datum	   *names;
	int			count;

	JsonObjectBegin(&state);
	for (int i = 0; pinned_settings[i] != NULL; i++)
		capture(&state, pinned_settings[i]);
	deconstruct_array(DatumGetArrayTypeP(additional), TEXTOID, -1, false,
					  TYPALIGN_INT, &names, NULL, &count);
	for (int i = 0; i < count; i++)
		capture(&state, TextDatumGetCString(names[i]));
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
	Setting    *setting = palloc0(sizeof(Setting));

	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			setting = palloc0(sizeof(Setting));
			setting->name = pnstrdup(value.val.string.val,
									 value.val.string.len);
		}
		else if (token == WJB_VALUE)
		{
			if (value.type == jbvString)
				setting->value = pnstrdup(value.val.string.val,
										  value.val.string.len);
			list = lappend(list, setting);
		}
	}
	return list;
}

/*
 * SettingsOfOthers: of settings that somebody else has written down, those
 * that shape values.  Which objects names mean is the session's own affair.
 */
List *
SettingsOfOthers(List *settings)
{
	ListCell   *lc;

	foreach(lc, settings)
	{
		Setting    *setting = lfirst(lc);

		SettingsCheckName(setting->name);
		if (pg_strcasecmp(setting->name, "search_path") == 0)
			settings = foreach_delete_current(settings, lc);
	}
	return settings;
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
		const char *value = setting->value;

		if (value == NULL)
			value = now == NULL ? NULL : "";
		if (value != NULL && (now == NULL || strcmp(now, value) != 0))
			(void) set_config_option(setting->name, value,
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
	struct config_generic *setting = compat_find_setting(name);

	/* one of the user's own may come into being later */
	if (setting == NULL && strchr(name, '.') != NULL)
		return;
	if (setting == NULL || setting->context != PGC_USERSET ||
		(setting->flags & (GUC_SUPERUSER_ONLY | GUC_NO_RESET_ALL)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("setting \"%s\" cannot be captured", name),
				 errhint("Give names of settings that any role may set, such as work_mem.")));
}
