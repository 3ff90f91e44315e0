/*-------------------------------------------------------------------------
 *
 * control.c
 *	  An instance from outside: durable_signal, durable_status,
 *	  durable_resume.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "client/client.h"
#include "durable.h"
#include "runtime/wakeup.h"

PG_FUNCTION_INFO_V1(durable_signal);
PG_FUNCTION_INFO_V1(durable_status);
PG_FUNCTION_INFO_V1(durable_resume);

static void
refuse_ended(const InstanceRow *instance)
{
	if (instance->ended)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("instance \"%s\" has ended: it is %s", instance->id,
						instance->status)));
}

/*
 * durable_signal: leave a message for an instance.
 */
Datum
durable_signal(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	char	   *name = ArgName(fcinfo, 1, "name");
	Jsonb	   *payload = ArgJsonb(fcinfo, 2, "payload");
	InstanceRow *instance;

	ClientEnterToWrite("durable_signal");
	instance = ClientFindInstance(id);
	refuse_ended(instance);
	InboxInsert(instance->chain, "signal", name, payload);
	WakeupMessage(instance->iid);
	PG_RETURN_VOID();
}

/*
 * durable_status: what it is doing.
 */
Datum
durable_status(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");

	ClientEnter("durable_status");
	PG_RETURN_TEXT_P(cstring_to_text(ClientFindInstance(id)->status));
}

/*
 * durable_resume: let an instance that is held go on.
 *
 * If its role has another name now, only a superuser gets here, and says by
 * this that it is the right one.
 */
Datum
durable_resume(PG_FUNCTION_ARGS)
{
	char	   *id = ArgText(fcinfo, 0, "id");
	InstanceRow *instance;
	char	   *role;
	bool		resumed;

	ClientEnterToWrite("durable_resume");
	instance = ClientFindInstance(id);
	refuse_ended(instance);
	role = GetUserNameFromId(instance->run_as, true);
	if (role == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DURABLE_WRONG_STATE),
				 errmsg("the role of instance \"%s\" does not exist any more", id),
				 errdetail("Its role was \"%s\".", instance->run_as_name)));
	resumed = InstanceResume(instance->iid, role);
	if (resumed)
	{
		ReadyInsert(instance->iid);
		WakeupReady(instance->run_as);
	}
	PG_RETURN_BOOL(resumed);
}
