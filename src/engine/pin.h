/*-------------------------------------------------------------------------
 *
 * pin.h
 *	  Which definition of its functions an instance runs on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_PIN_H
#define DURABLE_PIN_H

#include "engine/replay.h"

extern bool PinChooseWorkflow(Activation *a);
extern DurableFunction *PinKnownHandler(Activation *a, const char *name);
extern DurableFunction *PinChooseHandler(Activation *a, const char *name);
extern void PinDropUnused(List *pins);
extern bool PinSweep(void);
extern bool PinHasMetMany(void);

#endif							/* DURABLE_PIN_H */
