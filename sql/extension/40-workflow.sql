/*
 * Inside a workflow.
 */
CREATE FUNCTION durable_call(
    activity          text,
    args              jsonb DEFAULT '{}',
    step_id           text DEFAULT NULL,
    retry             jsonb DEFAULT NULL,
    timeout           interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL,
    compensate        text DEFAULT NULL,
    shielded          bool DEFAULT false,
    compensate_attempted bool DEFAULT false
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_call_as(
    type              anyelement,
    activity          text,
    args              jsonb DEFAULT '{}',
    step_id           text DEFAULT NULL,
    retry             jsonb DEFAULT NULL,
    timeout           interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL,
    compensate        text DEFAULT NULL,
    shielded          bool DEFAULT false,
    compensate_attempted bool DEFAULT false
) RETURNS anyelement
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE PROCEDURE durable_step(
    activity          text,
    args              jsonb DEFAULT '{}',
    step_id           text DEFAULT NULL,
    retry             jsonb DEFAULT NULL,
    timeout           interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL,
    compensate        text DEFAULT NULL,
    shielded          bool DEFAULT false,
    compensate_attempted bool DEFAULT false
)
LANGUAGE C AS 'MODULE_PATHNAME';

CREATE PROCEDURE durable_step(
    activity          text,
    args              jsonb,
    INOUT result      jsonb,
    step_id           text DEFAULT NULL,
    retry             jsonb DEFAULT NULL,
    timeout           interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL,
    compensate        text DEFAULT NULL,
    shielded          bool DEFAULT false,
    compensate_attempted bool DEFAULT false
)
LANGUAGE C AS 'MODULE_PATHNAME', 'durable_step_result';

CREATE FUNCTION durable_sql(
    query             text,
    args              jsonb DEFAULT '[]',
    step_id           text DEFAULT NULL,
    retry             jsonb DEFAULT NULL,
    timeout           interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL,
    compensate        text DEFAULT NULL,
    shielded          bool DEFAULT false
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

CREATE FUNCTION durable_subscribe(
    type   text,
    mode   text DEFAULT 'broadcast',
    filter jsonb DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_wait_event(
    type    text,
    timeout interval DEFAULT NULL,
    filter  jsonb DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_state() RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_set_state(state jsonb) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_on_signal(name text, handler text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_on_update(name text, handler text, validator text DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_on_query(name text, handler text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_wait_until(
    condition text,
    timeout   interval DEFAULT NULL
) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

-- A handle is the position of what was begun.
CREATE FUNCTION durable_spawn(
    activity          text,
    args              jsonb DEFAULT '{}',
    step_id           text DEFAULT NULL,
    retry             jsonb DEFAULT NULL,
    timeout           interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL,
    compensate        text DEFAULT NULL,
    compensate_attempted bool DEFAULT false
) RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_map(
    activity          text,
    items             jsonb,
    max_parallel      int DEFAULT NULL,
    on_error          text DEFAULT 'fail',
    retry             jsonb DEFAULT NULL,
    timeout           interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

-- The bodies of what these two start.
CREATE FUNCTION durable_internal.run_activity(input jsonb) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'durable_run_activity';

CREATE FUNCTION durable_internal.run_share(input jsonb) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'durable_run_share';

CREATE FUNCTION durable_timer(duration interval) RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_signal_handle(name text) RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_spawn_child(
    workflow  text,
    input     jsonb DEFAULT '{}',
    id        text DEFAULT NULL,
    on_cancel text DEFAULT 'cancel',
    on_close  text DEFAULT 'cancel',
    timeout   interval DEFAULT NULL
) RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_call_child(
    workflow  text,
    input     jsonb DEFAULT '{}',
    id        text DEFAULT NULL,
    on_cancel text DEFAULT 'cancel',
    on_close  text DEFAULT 'cancel',
    timeout   interval DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_await(handle int, timeout interval DEFAULT NULL) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_await_all(handles int[], timeout interval DEFAULT NULL) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_await_any(handles int[], timeout interval DEFAULT NULL) RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_continue_as_new(input jsonb DEFAULT '{}') RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_add_compensation(activity text, args jsonb DEFAULT '{}') RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_discard_compensations() RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_cancel_requested() RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_change_version(change text, min int, max int) RETURNS int
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_patched(change text) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_deprecate_patch(change text) RETURNS void
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

CREATE FUNCTION durable_heartbeat(details jsonb DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_heartbeat_details() RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_progress(
    done    bigint,
    total   bigint DEFAULT NULL,
    message text DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_fail(
    message  text,
    sqlstate text DEFAULT 'P0001',
    detail   text DEFAULT NULL
) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
