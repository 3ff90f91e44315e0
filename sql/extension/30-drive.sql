/*
 * Drive, from any session.
 */
CREATE FUNCTION durable_start(
    workflow    text,
    input       jsonb DEFAULT '{}',
    id          text DEFAULT NULL,
    on_conflict text DEFAULT 'error',
    start_at    timestamptz DEFAULT NULL,
    priority    int DEFAULT 0,
    tags        jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_signal(
    id      text,
    name    text,
    payload jsonb DEFAULT '{}'
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_status(id text) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_result(
    id   text,
    wait interval DEFAULT '0'
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE PROCEDURE durable_wait(
    id           text,
    wait         interval,
    INOUT result jsonb DEFAULT NULL
)
LANGUAGE C AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_resume(id text) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_run(id text) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

-- What a worker calls, by its OID: no role can name it.
CREATE PROCEDURE durable_internal.worker()
LANGUAGE C AS 'MODULE_PATHNAME', 'durable_worker';

CREATE PROCEDURE durable_work(max_instances int DEFAULT NULL)
LANGUAGE C AS 'MODULE_PATHNAME';
