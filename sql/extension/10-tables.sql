/*
 * Tables.  Functions and roles are kept as text (an OID beside the name), so
 * that pg_upgrade and restore work; no foreign keys, so that a message or a
 * history row never locks the instance it belongs to.
 */

-- A registered workflow: its name, its owner and how it runs.
CREATE TABLE durable_internal.workflow (
    name             text PRIMARY KEY,
    owner            oid NOT NULL,
    owner_name       name NOT NULL,
    version          int NOT NULL,
    since            int NOT NULL,      -- the first version since it was last unregistered
    run_as           text NOT NULL CHECK (run_as IN ('starter', 'owner')),
    sandbox          text CHECK (sandbox IN ('strict', 'warn', 'off')),
    on_change        text NOT NULL CHECK (on_change IN ('pin', 'continue', 'hold')),
    activity_retry   jsonb,
    capture_settings text[] NOT NULL,
    settings         jsonb NOT NULL,    -- of the registration, for run_as owner
    timeout          interval,          -- of its instances
    start_on         text,              -- type of the events that start one
    start_filter     jsonb,             -- what their data must contain
    hold_on_undo_failure bool NOT NULL,
    paused           bool NOT NULL DEFAULT false,
    registered_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Each definition a workflow has had.  What is pinned is made from this text.
CREATE TABLE durable_internal.workflow_version (
    workflow   text NOT NULL,
    version    int NOT NULL,
    owner      oid NOT NULL,            -- of the function
    owner_name name NOT NULL,
    function   text NOT NULL,           -- signature, read again by name
    definition text NOT NULL,
    hash       text NOT NULL,
    whole      bool NOT NULL,           -- one jsonb parameter gets the input
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workflow, version)
);

-- The functions that are in charge of messages, queries and conditions of a version.
CREATE TABLE durable_internal.workflow_handler (
    workflow   text NOT NULL,
    version    int NOT NULL,
    function   text NOT NULL,           -- signature
    name       text NOT NULL,           -- as the body has it
    owner      oid NOT NULL,
    owner_name name NOT NULL,
    definition text NOT NULL,
    hash       text NOT NULL,
    PRIMARY KEY (workflow, version, function)
);

-- The copies of functions, each in a schema of its own, and which instances need them.
CREATE TABLE durable_internal.pin (
    pin      name PRIMARY KEY,          -- of what it is a copy
    schema   name NOT NULL,
    function name NOT NULL
);
CREATE TABLE durable_internal.pin_use (
    iid  bigint NOT NULL,
    pin  name NOT NULL,
    PRIMARY KEY (iid, pin)
);
CREATE INDEX pin_use_pin ON durable_internal.pin_use (pin);

CREATE INDEX workflow_start_on ON durable_internal.workflow (start_on) WHERE start_on IS NOT NULL;

-- Activities registered by a role, for its workflows and its instances.
CREATE TABLE durable_internal.activity (
    owner         oid NOT NULL,
    owner_name    name NOT NULL,
    name          text NOT NULL,
    function      text,                 -- NULL: done by clients of the queue
    queue         text,
    served_by     oid,                  -- whose members these clients are
    served_by_name name,
    schedule_to_start bigint NOT NULL,
    retry         jsonb,
    compensate    text,                 -- the activity that undoes it
    compensate_attempted bool NOT NULL, -- also if its outcome is not known
    start_to_close    bigint NOT NULL,  -- ms, 0: no limit
    schedule_to_close bigint NOT NULL,
    heartbeat         bigint NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner, name)
);

/*
 * One row a run; the run of the highest number is the current one of its id.
 * What changes (status, awaits, suspended) is in no index and no predicate of
 * one, so that its updates are HOT.  While a row of ready stands for the
 * instance, that says pending or running, and status is what it was before.
 */
CREATE TABLE durable_internal.instance (
    iid           bigint PRIMARY KEY,
    id            text NOT NULL,
    run           int NOT NULL,
    chain         bigint NOT NULL,      -- iid of the first run of the chain
    workflow      text NOT NULL,
    version       int NOT NULL,
    definition    text CHECK (definition IN ('pinned', 'current')),  -- asked for, whatever the policy
    status        text NOT NULL,
    awaits        text[],               -- kind:name of the messages it waits for
    awaits_filter jsonb,                -- what the data of such an event must contain
    suspended     text CHECK (suspended IN ('paused', 'held')),
    reason        text,                 -- why it is suspended
    run_as        oid NOT NULL,
    run_as_name   name NOT NULL,
    priority      int NOT NULL,
    body_failures int NOT NULL DEFAULT 0,   -- passes lost to the environment
    suspect       bool NOT NULL DEFAULT false,  -- ran when the server crashed
    crashes       int NOT NULL DEFAULT 0,   -- since then, while it ran alone
    seed          bigint NOT NULL,
    parent        bigint,               -- iid of the run that started it
    parent_chain  bigint,
    parent_position int,
    deadline      timestamptz,          -- of the whole run
    tags          jsonb NOT NULL,
    created_at    timestamptz NOT NULL,
    started_at    timestamptz,
    ended_at      timestamptz,
    end_seq       int,                  -- the history row with the outcome
    UNIQUE (id, run)
) WITH (fillfactor = 70);
CREATE INDEX instance_workflow ON durable_internal.instance (workflow, created_at);
CREATE INDEX instance_chain ON durable_internal.instance (chain, run) WHERE chain <> iid;
CREATE INDEX instance_parent ON durable_internal.instance (parent) WHERE parent IS NOT NULL;
CREATE INDEX instance_tags ON durable_internal.instance USING gin (tags) WHERE tags <> '{}';

/*
 * The queue of what can run or is running: a row with a lease is being run by
 * the driver of that incarnation.  Insert, one HOT update, delete.
 */
CREATE TABLE durable_internal.ready (
    iid       bigint PRIMARY KEY,
    run_as    oid NOT NULL,
    priority  int NOT NULL,
    suspect   bool NOT NULL DEFAULT false,  -- is to run alone
    lease     bigint,
    leased_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ready_order ON durable_internal.ready (run_as, priority DESC, iid);
CREATE INDEX ready_suspect ON durable_internal.ready (priority DESC, iid) WHERE suspect;

-- When a waiting instance must be looked at again: its earliest deadline.
CREATE TABLE durable_internal.timer (
    iid     bigint PRIMARY KEY,
    run_as  oid NOT NULL,
    wake_at timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX timer_due ON durable_internal.timer (wake_at);

/*
 * Instances that were to run when their workflow, or everything, was paused.
 * Resuming makes them ready.
 */
CREATE TABLE durable_internal.parked (
    iid      bigint PRIMARY KEY,
    workflow text NOT NULL
);
CREATE INDEX parked_workflow ON durable_internal.parked (workflow);

/*
 * A row says that everything is paused.  Every change, and every request to a
 * running instance, invalidates the table in all sessions: that is how
 * drivers hear of it.
 */
CREATE TABLE durable_internal.control (
    paused_at timestamptz NOT NULL
);

/*
 * The history, appended only.  Row 1 holds what the run was started with
 * (args: the input, data: its settings), row end_seq what it ended with.  The
 * primary key is the fence: of two executors of an instance, the second
 * cannot insert its next row.
 */
CREATE TABLE durable_internal.history (
    iid        bigint NOT NULL,
    seq        int NOT NULL,
    position   int,
    event      text NOT NULL,
    name       text,
    step_id    text,
    args       jsonb,
    result     jsonb,
    error      jsonb,
    data       jsonb,
    attempt    int,                     -- of an activity that failed
    wake_at    timestamptz,             -- deadline, or time of the next attempt
    started_at timestamptz,
    at         timestamptz NOT NULL,
    PRIMARY KEY (iid, seq)
);

/*
 * Messages that no instance has taken yet, by the chain of runs they are for;
 * chain 0 has the events that one of several subscribers is to take.
 */
CREATE TABLE durable_internal.inbox (
    mid     bigint PRIMARY KEY,
    chain   bigint NOT NULL,
    kind    text NOT NULL CHECK (kind IN ('signal', 'event', 'update', 'child', 'task', 'cancel', 'terminate')),
    name    text NOT NULL,
    payload jsonb NOT NULL,
    sent_at timestamptz NOT NULL,
    restart jsonb                       -- of durable_signal_start: the run to start if this one has ended
) WITH (autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX inbox_chain ON durable_internal.inbox (chain, kind, name, mid);

/*
 * Activities that clients are to do, or are doing.  The token a client has is
 * not kept, only its hash.
 */
CREATE TABLE durable_internal.task (
    iid          bigint NOT NULL,
    position     int NOT NULL,
    undo         bool NOT NULL,         -- it is the compensation of that position
    shielded     bool NOT NULL,         -- a cancel is not its business
    chain        bigint NOT NULL,
    run_as       oid NOT NULL,
    queue        text NOT NULL,
    served_by    oid NOT NULL,
    served_by_name name NOT NULL,
    activity     text NOT NULL,
    args         jsonb NOT NULL,
    attempt      int NOT NULL,
    key          text NOT NULL,         -- of idempotency
    start_to_close bigint NOT NULL,     -- ms, 0: no limit
    heartbeat_timeout bigint NOT NULL,  -- likewise
    heartbeat    jsonb,
    scheduled_at timestamptz NOT NULL,
    started_at   timestamptz,
    alive_at     timestamptz,           -- when the client was heard of last
    clients      int NOT NULL DEFAULT 0,    -- how many have had it
    lease_until  timestamptz,           -- NULL: nobody has it
    lease        interval,
    token_hash   text,
    worker       text,
    PRIMARY KEY (iid, position)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_queue ON durable_internal.task (queue, scheduled_at);
CREATE INDEX task_token ON durable_internal.task (token_hash) WHERE token_hash IS NOT NULL;

-- Keys of signals that were sent with one: each is sent once.
CREATE TABLE durable_internal.signal_key (
    chain bigint NOT NULL,
    key   text NOT NULL,
    PRIMARY KEY (chain, key)
);

-- What became of updates.
CREATE TABLE durable_internal.answer (
    mid    bigint PRIMARY KEY,
    iid    bigint NOT NULL,
    result jsonb,
    error  jsonb,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX answer_iid ON durable_internal.answer (iid);

-- The state of a workflow as queries see it, and who answers them.
CREATE TABLE durable_internal.state (
    iid     bigint PRIMARY KEY,
    state   jsonb NOT NULL,
    queries jsonb NOT NULL              -- name to function
);

-- Who is to get events of a type.
CREATE TABLE durable_internal.subscription (
    chain   bigint NOT NULL,
    type    text NOT NULL,
    mode    text NOT NULL CHECK (mode IN ('broadcast', 'competing')),
    filter  jsonb,
    run_as  oid NOT NULL,
    PRIMARY KEY (chain, type)
);
CREATE INDEX subscription_type ON durable_internal.subscription (type, run_as);

-- Events that were published with an id of their own.
CREATE TABLE durable_internal.event_id (
    publisher oid NOT NULL,
    source    text NOT NULL,
    id        text NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (publisher, source, id)
);

CREATE SEQUENCE durable_internal.iid_seq;
CREATE SEQUENCE durable_internal.mid_seq;
CREATE SEQUENCE durable_internal.incarnation_seq;

REVOKE ALL ON ALL TABLES IN SCHEMA durable_internal FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA durable_internal FROM PUBLIC;

-- pg_dump carries everything.
DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN SELECT c.oid FROM pg_catalog.pg_class c
                     WHERE c.relnamespace = 'durable_internal'::regnamespace
                       AND c.relkind IN ('r', 'S')
    LOOP
        PERFORM pg_catalog.pg_extension_config_dump(relation, '');
    END LOOP;
END $$;
