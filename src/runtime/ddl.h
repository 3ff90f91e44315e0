/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  Commands on databases and extensions that our processes must know of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DDL_H
#define DURABLE_DDL_H

extern void DdlInstall(void);

#endif							/* DURABLE_DDL_H */
