\set QUIET on
\pset footer off
\pset null ''
SET client_min_messages = warning;
CREATE EXTENSION durable;
\ir order.sql
INSERT INTO stock VALUES ('book', 10);

\echo '--- An order comes in: the workflow is started in the same transaction.'
\set ECHO queries
SELECT durable_start('order_workflow', '{"order_id": 42, "item": "book", "amount": 10}', id => 'order-42');
CALL durable_work();
\set ECHO none

\echo
\echo '--- The bank did not answer, so the workflow waits for its next attempt,'
\echo '--- holding no process, no lock and no transaction.'
\set ECHO queries
SELECT id, status, wake_at > created_at AS tried_later FROM durable.instances;
SELECT pg_sleep_until(wake_at) FROM durable.timers \g /dev/null
CALL durable_work();
SELECT id, status, awaits FROM durable.instances;
\set ECHO none

\echo
\echo '--- A new session, as after a crash or a deployment. Ann approves.'
\c
\pset footer off
\pset null ''
\set ECHO queries
SELECT durable_signal('order-42', 'approval', '{"by": "ann"}');
CALL durable_work();
SELECT pg_sleep_until(wake_at) FROM durable.timers \g /dev/null
CALL durable_work();
\set ECHO none

\echo
\echo '--- What happened: each step once, though the function was run from the top several times.'
\set ECHO queries
SELECT id, status, jsonb_pretty(result) AS result FROM durable.instances;
SELECT position, step_id, kind, name, state, attempts, args,
       date_trunc('milliseconds', finished_at - started_at) AS took
  FROM durable.steps WHERE id = 'order-42' ORDER BY position;
SELECT seq, event, name, attempt, result, error ->> 'message' AS error
  FROM durable.events WHERE id = 'order-42' ORDER BY seq;
SELECT item, available FROM stock;
