/*-------------------------------------------------------------------------
 *
 * binding.h
 *	  Names to functions, JSON to arguments, results to JSON.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_BINDING_H
#define DURABLE_BINDING_H

#include "storage/itemptr.h"
#include "utils/jsonb.h"

/* Everything needed to call a user's function, taken from pg_proc. */
typedef struct DurableFunction
{
	Oid			oid;
	TransactionId row_xmin;		/* which row of pg_proc this is from */
	ItemPointerData row_tid;
	bool		pinned;			/* it is a copy of ours */
	const char *what;			/* "workflow" or "activity", for messages */
	const char *signature;		/* schema-qualified, as regprocedure reads it */
	char		prokind;		/* PROKIND_FUNCTION or PROKIND_PROCEDURE */
	bool		strict;
	bool		returns_set;
	Oid			result_type;
	bool		whole;			/* the single jsonb parameter gets the input
								 * as it is */
	bool		nonatomic_ok;	/* a procedure that may commit: neither
								 * SECURITY DEFINER nor with a SET clause */
	int			nparams;		/* input parameters, in order */
	Oid		   *param_types;
	char	  **param_names;	/* "" when it has none */
	int			ndefaults;		/* the last ndefaults have a default */
	bool		variadic;
} DurableFunction;

/* Arguments made ready for one call. */
typedef struct DurableArguments
{
	Datum	   *values;
	bool	   *nulls;
} DurableArguments;

extern Oid	FunctionResolve(const char *name, const char *what);
extern Oid	FunctionTryResolve(const char *name, const char *what);
extern bool FunctionIsSame(const DurableFunction *fn);
extern DurableFunction *FunctionDescribe(Oid function, const char *what);
extern bool FunctionRow(Oid function, TransactionId *xmin, ItemPointer tid);
extern Oid	FunctionOwner(Oid function);
extern bool FunctionIsOf(Oid function, Oid role);
extern void FunctionRefuseOwner(const DurableFunction *fn, Oid owner);
extern void FunctionCheckOwner(const DurableFunction *fn, Oid owner);
extern char *FunctionNamePart(const char *name);
extern void FunctionCheckExecute(const DurableFunction *fn);

extern DurableArguments *ArgumentsBind(const DurableFunction *fn, Jsonb *input);
extern Jsonb *ArgumentsFreezeDefaults(const DurableFunction *fn, Jsonb *input);

extern Jsonb *FunctionInvoke(const DurableFunction *fn, DurableArguments *args,
							 bool nonatomic);

extern Jsonb *DatumToJsonb(Datum value, bool isnull, Oid type);
extern Datum JsonbToDatum(Jsonb *json, Oid type, int32 typmod, bool *isnull);

#endif							/* DURABLE_BINDING_H */
