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
    tags        jsonb DEFAULT '{}',
    timeout     interval DEFAULT NULL
) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_signal(
    id        text,
    name      text,
    payload   jsonb DEFAULT '{}',
    dedup_key text DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_signal_start(
    workflow text,
    input    jsonb,
    id       text,
    name     text,
    payload  jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_publish(
    type       text,
    data       jsonb DEFAULT '{}',
    source     text DEFAULT '/durable',
    event_id   text DEFAULT NULL,
    subject    text DEFAULT NULL,
    event_time timestamptz DEFAULT NULL,
    attributes jsonb DEFAULT NULL
) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_query(
    id   text,
    name text DEFAULT NULL,
    args jsonb DEFAULT '{}'
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_update(
    id      text,
    name    text,
    payload jsonb DEFAULT '{}'
) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_update_result(
    update_id bigint,
    wait      interval DEFAULT '0'
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE PROCEDURE durable_update_wait(
    id           text,
    name         text,
    payload      jsonb,
    wait         interval,
    INOUT result jsonb DEFAULT NULL
)
LANGUAGE C AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_cancel(
    id     text,
    reason text DEFAULT NULL,
    force  bool DEFAULT false
) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_terminate(
    id     text,
    reason text DEFAULT NULL
) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_pause(id text) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_pause_workflow(name text) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_resume_workflow(name text) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_pause_all() RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_resume_all() RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_retry(
    id         text,
    definition text DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_fork(
    id          text,
    at_position int,
    new_id      text DEFAULT NULL,
    definition  text DEFAULT NULL
) RETURNS text
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

CREATE FUNCTION durable_resume(
    id         text,
    definition text DEFAULT NULL
) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_run(id text) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

-- What a worker calls, by its OID: no role can name it.
CREATE PROCEDURE durable_internal.worker()
LANGUAGE C AS 'MODULE_PATHNAME', 'durable_worker';

CREATE PROCEDURE durable_work(max_instances int DEFAULT NULL)
LANGUAGE C AS 'MODULE_PATHNAME';
