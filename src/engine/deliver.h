/*-------------------------------------------------------------------------
 *
 * deliver.h
 *	  What reaches a running instance from outside.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DELIVER_H
#define DURABLE_DELIVER_H

#include "engine/replay.h"

typedef enum Delivery
{
	NOTHING_DELIVERED,
	DELIVERED,					/* the body is to be run again */
	DELIVERY_ENDS				/* the activation is over */
} Delivery;

extern bool DeliverHasRequest(Activation *a);
extern bool DeliverInsteadOfPass(Activation *a);
extern bool DeliverMustLook(Activation *a);
extern Delivery DeliverRequests(Activation *a, Command *command);
extern bool DeliverMessages(Activation *a, Command *command);
extern void DeliverRefuse(Activation *a);
extern bool DeliverIsMet(Activation *a, Command *condition, bool *met);

#endif							/* DURABLE_DELIVER_H */
