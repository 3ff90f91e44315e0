/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  Leases: the right of a driver to run instances, alive as long as its
 *	  process is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_LEASE_H
#define DURABLE_LEASE_H

/* The lease of durable_run: never seen outside of its transaction. */
#define LEASE_INSIDE	(-1)

extern int64 LeaseTake(void);
extern void LeaseDrop(void);
extern bool LeaseConfirm(int64 lease);
extern bool LeaseIsAlive(int64 lease);
extern bool LeaseTakeInHand(int64 iid);
extern bool LeaseIsInHand(int64 iid);
extern bool LeasePin(const char *pin, bool exclusive, bool wait);
extern void LeaseUnpin(const char *pin);
extern void LeaseCondemn(int64 iid, const char *reason);
extern void LeaseReleaseStale(Oid run_as, bool crashed);

#endif							/* DURABLE_LEASE_H */
