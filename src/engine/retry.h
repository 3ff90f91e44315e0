/*-------------------------------------------------------------------------
 *
 * retry.h
 *	  Retry policies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_RETRY_H
#define DURABLE_RETRY_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"

typedef struct RetryPolicy
{
	int			max_attempts;
	double		initial;		/* seconds, as all times here */
	double		backoff;
	double		max_interval;
	double		max_duration;	/* 0: no limit */
	double		jitter;			/* part of the interval, 0 to 1 */
	bool		linear;			/* else exponential */
	Jsonb	   *retryable;		/* SQLSTATEs and classes; NULL: all */
	Jsonb	   *non_retryable;	/* NULL: none */
} RetryPolicy;

extern void RetryCheck(Jsonb *policy, const char *parameter);
extern void RetryDefaults(RetryPolicy *policy);
extern void RetryApply(RetryPolicy *policy, Jsonb *given);
extern bool RetryIsFor(const RetryPolicy *policy, const char *sqlstate);
extern bool RetryNext(const RetryPolicy *policy, int attempt,
					  TimestampTz first_at, TimestampTz now,
					  TimestampTz *next_at);

#endif							/* DURABLE_RETRY_H */
