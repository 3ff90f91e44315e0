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
SELECT pg_sleep(1) \g /dev/null
\set ECHO none

\echo
\echo '--- A worker of our role has run it, as far as it got: the bank answered at the second attempt,'
\echo '--- and now it waits, holding no process, no lock and no transaction.'
\set ECHO queries
SELECT id, status, awaits, wake_at - created_at > '2 days' AS for_days FROM durable.instances;
SELECT kind, role, state FROM durable.workers;
\set ECHO none

\echo
\echo '--- Ann approves, and we wait for the end.'
\set ECHO queries
SELECT durable_signal('order-42', 'approval', '{"by": "ann"}');
CALL durable_wait('order-42', '10 s');
\set ECHO none

\echo
\echo '--- What happened: each step once, though the function was run from the top several times.'
\set ECHO queries
SELECT position, step_id, kind, name, state, attempts, args,
       date_trunc('milliseconds', finished_at - started_at) AS took
  FROM durable.steps WHERE id = 'order-42' ORDER BY position;
SELECT seq, event, name, attempt, result, error ->> 'message' AS error
  FROM durable.events WHERE id = 'order-42' ORDER BY seq;
SELECT item, available FROM stock;
\set ECHO none

\echo
\echo '--- An order that cannot be paid: what was done for it is undone.'
\set ECHO queries
SELECT durable_start('order_workflow', '{"order_id": 43, "item": "book", "amount": 5000}', id => 'order-43');
SELECT pg_sleep(1) \g /dev/null
SELECT id, status, compensation, error ->> 'message' AS error FROM durable.instances WHERE id = 'order-43';
SELECT seq, event, step_id, name FROM durable.events WHERE id = 'order-43' ORDER BY seq;
SELECT item, available FROM stock;
