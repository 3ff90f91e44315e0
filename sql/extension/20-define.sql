/*
 * Define: workflows, activities, retry policies.
 */
CREATE FUNCTION durable_register(
    workflow                text,
    name                    text DEFAULT NULL,
    run_as                  text DEFAULT 'starter',
    sandbox                 text DEFAULT NULL,
    on_change               text DEFAULT 'pin',
    activity_retry          jsonb DEFAULT NULL,
    timeout                 interval DEFAULT NULL,
    capture_settings        text[] DEFAULT '{}',
    start_on                text DEFAULT NULL,
    start_filter            jsonb DEFAULT NULL,
    on_compensation_failure text DEFAULT 'continue'
) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_unregister(name text) RETURNS bool
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_register_activity(
    activity          text,
    function          text DEFAULT NULL,
    retry             jsonb DEFAULT NULL,
    compensate        text DEFAULT NULL,
    start_to_close    interval DEFAULT NULL,
    schedule_to_close interval DEFAULT NULL,
    heartbeat         interval DEFAULT NULL,
    queue             text DEFAULT NULL,
    served_by         text DEFAULT NULL,
    schedule_to_start interval DEFAULT NULL,
    compensate_attempted bool DEFAULT false
) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_retry_policy(
    max_attempts  int DEFAULT NULL,
    initial       interval DEFAULT NULL,
    backoff       float8 DEFAULT NULL,
    max_interval  interval DEFAULT NULL,
    max_duration  interval DEFAULT NULL,
    strategy      text DEFAULT NULL,
    jitter        float8 DEFAULT NULL,
    retryable     text[] DEFAULT NULL,
    non_retryable text[] DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

/*
 * Rehearse: would a function do for the histories there are?
 */
CREATE FUNCTION durable_check(
    workflow      text,
    function      text DEFAULT NULL,
    history       jsonb DEFAULT NULL,
    include_ended bool DEFAULT false,
    OUT id text, OUT run int, OUT verdict text, OUT "position" int, OUT reason text
) RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_export(
    id  text,
    run int DEFAULT NULL
) RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

CREATE FUNCTION durable_internal.lint(
    source          text,
    language        text,
    OUT line        int,
    OUT found       text,
    OUT replacement text
) RETURNS SETOF record
LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'durable_lint';
