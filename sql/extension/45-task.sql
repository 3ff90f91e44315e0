/*
 * Remote activities, from any client.
 */
CREATE FUNCTION durable_task_poll(
    queue  text,
    worker text DEFAULT NULL,
    max    int DEFAULT 1,
    lease  interval DEFAULT '60 s',
    OUT token text, OUT activity text, OUT args jsonb, OUT attempt int,
    OUT idempotency_key text, OUT heartbeat_details jsonb, OUT heartbeat_timeout interval
) RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE PROCEDURE durable_task_wait(
    queue       text,
    wait        interval,
    INOUT found bool DEFAULT NULL
)
LANGUAGE C AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_task_heartbeat(token text, details jsonb DEFAULT NULL) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_task_complete(token text, result jsonb DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_task_fail(
    token     text,
    message   text,
    retryable bool DEFAULT true,
    detail    text DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
