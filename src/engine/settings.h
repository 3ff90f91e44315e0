/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings of its start that an instance is run with.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SETTINGS_H
#define DURABLE_SETTINGS_H

#include "nodes/pg_list.h"
#include "utils/jsonb.h"

extern Jsonb *SettingsCapture(Datum additional);
extern List *SettingsRead(Jsonb *settings);
extern List *SettingsOfOthers(List *settings);
extern int	SettingsEnter(List *settings);
extern void SettingsLeave(int level);
extern void SettingsCheckName(const char *name);

#endif							/* DURABLE_SETTINGS_H */
