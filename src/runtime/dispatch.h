/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  Messages to the instances they wake.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DISPATCH_H
#define DURABLE_DISPATCH_H

extern void DispatchAll(Oid role);
extern void DispatchAmong(const int64 *chains, int count);

#endif							/* DURABLE_DISPATCH_H */
