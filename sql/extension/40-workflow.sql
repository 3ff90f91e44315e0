/*
 * Inside a workflow.
 */
CREATE FUNCTION durable_call(
    activity text,
    args     jsonb DEFAULT '{}',
    step_id  text DEFAULT NULL,
    retry    jsonb DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_call_as(
    type     anyelement,
    activity text,
    args     jsonb DEFAULT '{}',
    step_id  text DEFAULT NULL,
    retry    jsonb DEFAULT NULL
) RETURNS anyelement
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE PROCEDURE durable_step(
    activity text,
    args     jsonb DEFAULT '{}',
    step_id  text DEFAULT NULL,
    retry    jsonb DEFAULT NULL
)
LANGUAGE C AS 'MODULE_PATHNAME';

CREATE PROCEDURE durable_step(
    activity     text,
    args         jsonb,
    INOUT result jsonb,
    step_id      text DEFAULT NULL,
    retry        jsonb DEFAULT NULL
)
LANGUAGE C AS 'MODULE_PATHNAME', 'durable_step_result';

CREATE FUNCTION durable_sql(
    query   text,
    args    jsonb DEFAULT '[]',
    step_id text DEFAULT NULL,
    retry   jsonb DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_sleep(duration interval) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_sleep_until(wake_at timestamptz) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_wait_signal(
    name    text,
    timeout interval DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_now() RETURNS timestamptz
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_random() RETURNS float8
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_uuid() RETURNS uuid
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_instance_id() RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_run_number() RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_is_replaying() RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_log(
    message text,
    level   text DEFAULT 'notice'
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

/*
 * Inside an activity.
 */
CREATE FUNCTION durable_attempt() RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_idempotency_key() RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_fail(
    message  text,
    sqlstate text DEFAULT 'P0001',
    detail   text DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
