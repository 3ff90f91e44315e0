/*
 * Look.  Every view shows the instances of the roles the caller is a member
 * of; superusers see all, members of pg_monitor see all rows without payloads.
 */

-- What the caller may see, found out once a query.
CREATE VIEW durable_internal.caller AS
    SELECT r.rolsuper AS sees_all,
           r.rolsuper OR pg_catalog.pg_has_role('pg_monitor', 'USAGE') AS sees_rows,
           ARRAY(SELECT m.oid FROM pg_catalog.pg_roles m
                  WHERE pg_catalog.pg_has_role(m.oid, 'USAGE')) AS roles,
           ARRAY(SELECT m.rolname FROM pg_catalog.pg_roles m
                  WHERE pg_catalog.pg_has_role(m.oid, 'USAGE')) AS role_names
      FROM pg_catalog.pg_roles r
     WHERE r.rolname = current_user;

/*
 * The instances the caller may see, and whether their payloads too.  A role
 * must have both the OID and the name of the start: after a restore into
 * another cluster the OID alone may mean another role.
 */
CREATE VIEW durable_internal.visible_instance WITH (security_barrier) AS
    SELECT i.*,
           c.sees_all OR (i.run_as = ANY (c.roles) AND i.run_as_name = ANY (c.role_names)) AS payloads
      FROM durable_internal.instance i
     CROSS JOIN durable_internal.caller c
     WHERE c.sees_rows OR (i.run_as = ANY (c.roles) AND i.run_as_name = ANY (c.role_names));

CREATE VIEW durable.instances WITH (security_barrier) AS
    SELECT i.id, i.run, i.workflow, i.version,
           CASE WHEN i.end_seq IS NOT NULL THEN i.status
                WHEN r.lease IS NOT NULL THEN
                    CASE WHEN i.status = 'compensating' THEN i.status ELSE 'running' END
                WHEN i.suspended IS NOT NULL THEN i.suspended
                WHEN w.paused OR EXISTS (SELECT 1 FROM durable_internal.control) THEN 'paused'
                WHEN r.iid IS NULL THEN i.status
                ELSE 'pending'
           END AS status,
           (SELECT pg_catalog.array_agg(pg_catalog.substr(a.message, pg_catalog.strpos(a.message, ':') + 1))
              FROM pg_catalog.unnest(i.awaits) AS a (message)
             WHERE a.message NOT IN ('child:', 'task:')) AS awaits,
           CASE WHEN NOT i.payloads OR i.end_seq IS NOT NULL OR i.reason IS NOT NULL
                THEN CASE WHEN i.payloads THEN i.reason END
                -- an activity that runs beside it is held, and it will wait for that
                ELSE (SELECT 'position ' || h.parent_position || ': ' || h.reason
                        FROM durable_internal.instance h
                       WHERE h.parent = i.iid AND h.suspended = 'held' AND h.end_seq IS NULL
                         AND h.workflow LIKE 'durable:%'
                       ORDER BY h.parent_position LIMIT 1)
           END AS reason,
           CASE WHEN i.payloads THEN s.args END AS input,
           CASE WHEN i.payloads THEN e.result END AS result,
           CASE WHEN i.payloads THEN e.error END AS error,
           e.data ->> 'compensation' AS compensation,
           i.run_as_name AS run_as, i.priority, i.tags,
           i.created_at, i.started_at, i.ended_at, t.wake_at, i.deadline,
           -- not joined: a barrier lets no index be used for that
           (SELECT p.id FROM durable_internal.visible_instance p WHERE p.iid = i.parent) AS parent_id,
           (SELECT p.run FROM durable_internal.visible_instance p WHERE p.iid = i.parent) AS parent_run,
           i.parent_position
      FROM durable_internal.visible_instance i
      LEFT JOIN durable_internal.workflow w ON w.name = i.workflow
      LEFT JOIN durable_internal.history s ON s.iid = i.iid AND s.seq = 1
      LEFT JOIN durable_internal.history e ON e.iid = i.iid AND e.seq = i.end_seq
      LEFT JOIN durable_internal.ready r ON r.iid = i.iid
      LEFT JOIN durable_internal.timer t ON t.iid = i.iid
     -- activities that run beside a workflow are steps of it
     WHERE i.workflow NOT LIKE 'durable:%';

CREATE VIEW durable.events WITH (security_barrier) AS
    SELECT i.id, i.run, h.seq, h.position, h.event, h.name, h.step_id, h.attempt,
           CASE WHEN i.payloads THEN h.args END AS args,
           CASE WHEN i.payloads THEN h.result END AS result,
           CASE WHEN i.payloads THEN h.error END AS error,
           CASE WHEN i.payloads THEN h.data END AS data,
           h.wake_at, h.started_at, h.at
      FROM durable_internal.visible_instance i
      JOIN durable_internal.history h ON h.iid = i.iid;

-- One row a step, folded from its events: the last one tells how it stands.
CREATE VIEW durable.steps WITH (security_barrier) AS
    SELECT i.id, i.run, s.position, s.step_id, s.kind, s.name, s.state, s.attempts,
           CASE WHEN i.payloads THEN s.args END AS args,
           CASE WHEN i.payloads THEN s.result END AS result,
           CASE WHEN i.payloads THEN s.error END AS error,
           s.started_at, s.finished_at, s.wake_at
      FROM durable_internal.visible_instance i
     CROSS JOIN LATERAL (
        SELECT first.position, first.step_id, first.name, first.args,
               -- events of commands are named by kind and state
               pg_catalog.lower((pg_catalog.regexp_match(first.event, '^[A-Z][a-z]*'))[1]) AS kind,
               CASE WHEN last.event ~ '(Completed|Expired|Received|Met)$' THEN 'completed'
                    WHEN last.event ~ 'Failed$' THEN 'failed'
                    WHEN last.event ~ 'Cancelled$' THEN 'cancelled'
                    WHEN last.event ~ 'TimedOut$' THEN 'timed_out'
                    WHEN last.event ~ '(RetryScheduled|Interrupted)$' THEN 'retrying'
                    WHEN last.event ~ 'Queued$' THEN 'queued'
                    WHEN last.event = 'CompensationAdded' AND EXISTS (
                        SELECT 1 FROM durable_internal.history d
                         WHERE d.iid = i.iid AND d.seq > f.last_seq AND d.event = 'CompensationsDiscarded')
                    THEN 'discarded'
                    WHEN last.event = 'CompensationAdded' THEN 'added'
                    WHEN last.event = 'CompensationsDiscarded' THEN 'completed'
                    WHEN last.event = 'ActivityScheduled' AND beside.end_seq IS NOT NULL THEN beside.status
                    WHEN last.event = 'ActivityScheduled' THEN coalesce(beside.suspended, 'running')
                    WHEN last.event = 'ChildStarted' THEN 'running'
                    ELSE 'waiting'
               END AS state,
               CASE WHEN first.event = 'ActivityScheduled'
                    -- durable_retry() starts another instance for it
                    THEN (SELECT pg_catalog.count(*)::int FROM durable_internal.history s
                            JOIN durable_internal.history c ON c.iid = (s.data ->> 'chain')::bigint
                           WHERE s.iid = i.iid AND s.seq BETWEEN f.first_seq AND f.last_seq
                             AND s.position = first.position AND s.event = 'ActivityScheduled'
                             AND c.event IN ('ActivityCompleted', 'ActivityFailed', 'ActivityRetryScheduled'))
                    WHEN first.step_id IS NOT NULL
                    THEN f.failures + (last.event IN ('ActivityCompleted', 'CompensationCompleted'))::int
               END AS attempts,
               last.result,
               coalesce(last.error, CASE WHEN beside.suspended IS NOT NULL AND beside.end_seq IS NULL
                                     THEN pg_catalog.jsonb_build_object('message', beside.reason) END) AS error,
               coalesce(first.started_at, first.at) AS started_at,
               CASE WHEN last.event !~ '(Scheduled|Queued|Interrupted|Started|Awaited|Added)$' THEN last.at
                    ELSE beside.ended_at
               END AS finished_at,
               last.wake_at
          FROM (SELECT h.position, min(h.seq) AS first_seq, max(h.seq) AS last_seq,
                       coalesce(max(h.attempt), 0) AS failures
                  FROM durable_internal.history h
                  -- what came after the step that durable_retry() went on from was taken back
                  LEFT JOIN (SELECT r.seq, (r.data ->> 'position')::int AS position
                               FROM durable_internal.history r
                              WHERE r.iid = i.iid AND r.event = 'WorkflowRetried') r
                    ON h.seq < r.seq AND h.position > r.position AND r.position > 0
                 WHERE h.iid = i.iid AND h.position IS NOT NULL AND r.seq IS NULL
                 -- a compensation has the position of its step
                 GROUP BY h.position, h.event IN ('CompensationCompleted', 'CompensationFailed', 'CompensationQueued',
                                                  'CompensationInterrupted', 'CompensationRetryScheduled')) f
          JOIN durable_internal.history first ON first.iid = i.iid AND first.seq = f.first_seq
          JOIN durable_internal.history last ON last.iid = i.iid AND last.seq = f.last_seq
          -- what runs beside the body can be held, or end without the body being told
          LEFT JOIN durable_internal.instance beside
            ON last.event = 'ActivityScheduled' AND beside.iid = (last.data ->> 'chain')::bigint
     ) s
     WHERE i.workflow NOT LIKE 'durable:%';

CREATE VIEW durable.messages WITH (security_barrier) AS
    SELECT i.id, i.run, m.kind, m.name,
           CASE WHEN i.payloads THEN m.payload END AS payload,
           m.sent_at
      FROM durable_internal.visible_instance i
      JOIN durable_internal.inbox m ON m.chain = i.chain
     WHERE i.run = (SELECT max(n.run) FROM durable_internal.instance n WHERE n.id = i.id);

CREATE VIEW durable.subscriptions WITH (security_barrier) AS
    SELECT i.id, i.run, s.type, s.mode,
           CASE WHEN i.payloads THEN s.filter END AS filter
      FROM durable_internal.visible_instance i
      JOIN durable_internal.subscription s ON s.chain = i.chain
     WHERE i.run = (SELECT max(n.run) FROM durable_internal.instance n WHERE n.id = i.id);

CREATE VIEW durable.timers WITH (security_barrier) AS
    SELECT i.id, i.run, i.workflow, t.wake_at
      FROM durable_internal.visible_instance i
      JOIN durable_internal.timer t ON t.iid = i.iid;

-- Who runs what, since when; one that is not alive is taken over by the next driver.
CREATE FUNCTION durable_internal.lease_alive(lease bigint) RETURNS bool
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'durable_lease_alive';

CREATE VIEW durable.leases WITH (security_barrier) AS
    SELECT i.id, i.run, i.workflow, i.run_as_name AS run_as, r.lease,
           durable_internal.lease_alive(r.lease) AS alive, r.leased_at
      FROM durable_internal.visible_instance i
      JOIN durable_internal.ready r ON r.iid = i.iid
     WHERE r.lease IS NOT NULL;

-- The processes of the background runtime in this database.
CREATE FUNCTION durable_internal.workers(
    OUT pid int, OUT kind text, OUT role oid, OUT state text, OUT since timestamptz
) RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'durable_workers';

CREATE VIEW durable.workers WITH (security_barrier) AS
    SELECT w.pid, w.kind, r.rolname AS role, w.state, w.since
      FROM durable_internal.workers() w
      LEFT JOIN pg_catalog.pg_roles r ON r.oid = w.role
     CROSS JOIN durable_internal.caller c
     WHERE w.role IS NULL OR c.sees_rows OR w.role = ANY (c.roles);

-- How far running activities are, as they say themselves, before any commit.
CREATE FUNCTION durable_internal.progress(
    OUT pid int, OUT iid bigint, OUT "position" int, OUT done bigint, OUT total bigint,
    OUT message text, OUT at timestamptz
) RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'durable_progress_of_all';

CREATE VIEW durable.progress WITH (security_barrier) AS
    SELECT i.id, i.run, i.workflow, p.position, p.pid, p.done, p.total,
           CASE WHEN i.payloads THEN p.message END AS message, p.at
      FROM durable_internal.progress() p
      JOIN durable_internal.visible_instance i ON i.iid = p.iid;

CREATE VIEW durable.tasks WITH (security_barrier) AS
    SELECT i.id, i.run, t.position, t.undo AS compensation, t.queue, t.activity, t.attempt,
           CASE WHEN i.payloads THEN t.args END AS args,
           t.worker, t.scheduled_at, t.started_at, t.lease_until
      FROM durable_internal.visible_instance i
      JOIN durable_internal.task t ON t.iid = i.iid;

/*
 * Workflows are no secret, as functions are none: one row a version.  How many
 * instances are on it is told to the members of its owner.
 */
CREATE VIEW durable.workflows WITH (security_barrier) AS
    SELECT w.name, w.owner_name AS owner, v.version, v.version = w.version AS current,
           v.function, v.hash, w.run_as, w.on_change,
           w.sandbox, w.activity_retry, w.capture_settings, w.timeout, w.start_on,
           w.start_filter, w.paused, v.created_at, w.registered_at,
           n.instances,
           v.version <> w.version AND n.instances = 0 AS can_go
      FROM durable_internal.workflow w
     CROSS JOIN durable_internal.caller c
      JOIN durable_internal.workflow_version v ON v.workflow = w.name
      LEFT JOIN LATERAL (
            SELECT pg_catalog.count(*) AS instances
              FROM durable_internal.instance i
             WHERE i.workflow = w.name AND i.version = v.version AND i.end_seq IS NULL
           ) n ON c.sees_rows OR w.owner = ANY (c.roles);

GRANT SELECT ON durable.instances, durable.events, durable.steps, durable.messages,
                durable.subscriptions, durable.timers, durable.leases, durable.workers, durable.progress, durable.tasks,
                durable.workflows TO PUBLIC;
