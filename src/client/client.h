/*-------------------------------------------------------------------------
 *
 * client.h
 *	  What the functions for any session share: who may do what.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CLIENT_H
#define DURABLE_CLIENT_H

#include "storage/storage.h"

extern void ClientEnter(const char *function);
extern void ClientEnterToWrite(const char *function);
extern bool ClientIsOwnSession(void);
extern bool ClientMaySee(const InstanceRow *instance);
extern char *ClientDefinition(FunctionCallInfo fcinfo, int i);
extern InstanceRow *ClientFindInstance(const char *id);

#endif							/* DURABLE_CLIENT_H */
