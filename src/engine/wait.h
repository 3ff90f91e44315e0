/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  Times to wait until.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WAIT_H
#define DURABLE_WAIT_H

#include "utils/timestamp.h"

extern TimestampTz WaitCheckFinite(TimestampTz time, const char *parameter);
extern TimestampTz WaitFromNow(Datum interval, const char *parameter);

#endif							/* DURABLE_WAIT_H */
