-- Remote activities.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
DROP ROLE IF EXISTS remote_clerk, remote_other;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA remote;
SET search_path = remote, public;
CREATE ROLE remote_clerk;
CREATE ROLE remote_other;
GRANT USAGE ON SCHEMA durable TO remote_clerk, remote_other;
GRANT USAGE ON SCHEMA remote TO remote_clerk, remote_other;

SELECT durable_register_activity('send', queue => 'mail', retry => durable_retry_policy(initial => '0', max_attempts => 3));
CREATE FUNCTION sends(what text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('send', jsonb_build_object('what', what)); END $$;
SELECT durable_register('sends');
CREATE TABLE task (n serial, token text, attempt int, key text, details jsonb);
CREATE PROCEDURE take(lease interval DEFAULT '60 s') LANGUAGE sql
    AS $$ INSERT INTO task (token, attempt, key, details) SELECT token, attempt, idempotency_key, heartbeat_details FROM durable_task_poll('mail', lease => lease) $$;
CREATE FUNCTION last() RETURNS text LANGUAGE sql AS 'SELECT token FROM task ORDER BY n DESC LIMIT 1';

-- D18: taken, alive, completed
SELECT durable_start('sends', '["a"]', id => 'a');
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'a';
SELECT step_id, state, attempts FROM durable.steps WHERE id = 'a';
SELECT id, position, queue, activity, attempt, args, worker FROM durable.tasks;
CALL durable_task_wait('mail', '0');
CALL take();
CALL durable_task_wait('mail', '0');
SELECT count(*) AS nothing_left FROM durable_task_poll('mail', 'me', 10);
SELECT durable_task_heartbeat(last(), '{"at": 1}');
SELECT durable_task_complete(last(), '"sent"');
SELECT durable_task_complete(last(), '"sent twice"');
CALL durable_work();
SELECT durable_result('a');
SELECT event, position, attempt, result FROM durable.events WHERE id = 'a' ORDER BY seq;
SELECT durable_task_heartbeat(last());

-- failed, and handed out again; D14: with the same key; D12: and the details
TRUNCATE task;
SELECT durable_start('sends', '["b"]', id => 'b');
CALL durable_work();
CALL take();
SELECT durable_task_heartbeat(last(), '{"at": 2}');
SELECT durable_task_fail(last(), 'no network', detail => 'cable');
CALL durable_work();
CALL take();
SELECT durable_task_fail(last(), 'no such address', retryable => false);
CALL durable_work();
SELECT attempt, key, details FROM task ORDER BY n;
SELECT status, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS error FROM durable.instances WHERE id = 'b';
SELECT step_id, state, attempts FROM durable.steps WHERE id = 'b';

-- D9: clients may be people: a time of months is not cut down to what the server's own timeouts can do
SELECT durable_register_activity('asks_someone', queue => 'desk', schedule_to_close => '200 days');
CREATE FUNCTION asks(timeout interval) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('asks_someone', timeout => timeout); END $$;
SELECT durable_register('asks');
SELECT durable_start('asks', '["60 days"]', id => 'asks'), durable_start('asks', '["1000000 years"]', id => 'asks for long');
CALL durable_work();
SELECT id, extract(day FROM wake_at - now()) AS days FROM durable.instances WHERE workflow = 'asks' ORDER BY id;
SELECT count(*) AS taken FROM durable_task_poll('desk', max => 2, lease => '90 days');
SELECT id, extract(day FROM wake_at - now()) AS days FROM durable.instances WHERE workflow = 'asks' ORDER BY id;
SELECT durable_terminate('asks'), durable_terminate('asks for long');

-- D15: a lease that is over: the task goes to the next one, and the old token is of no use
TRUNCATE task;
SELECT durable_start('sends', '["c"]', id => 'c');
CALL durable_work();
CALL take();
UPDATE durable_internal.task SET lease_until = now() - interval '1 s';
CALL take();
SELECT durable_task_complete((SELECT token FROM task ORDER BY n LIMIT 1), '"late"');
SELECT durable_task_heartbeat((SELECT token FROM task ORDER BY n LIMIT 1));
SELECT durable_task_complete(last(), '"in time"');
CALL durable_work();
SELECT durable_result('c');
SELECT attempt, key FROM task ORDER BY n;

-- D9: timeouts
SELECT durable_register_activity('send', queue => 'mail', retry => '{"max_attempts": 1}', schedule_to_start => '1 h', start_to_close => '1 h');
SELECT durable_start('sends', '["d"]', id => 'never taken'), durable_start('sends', '["e"]', id => 'never done');
CALL durable_work();
SELECT id, wake_at > now() + '50 min' AS limited FROM durable.instances WHERE id LIKE 'never%' ORDER BY id;
UPDATE durable_internal.task t SET scheduled_at = now() - interval '2 h' FROM durable_internal.instance i WHERE i.iid = t.iid AND i.id = 'never done';
TRUNCATE task;
CALL take();
UPDATE durable_internal.task SET scheduled_at = now() - interval '2 h', started_at = started_at - interval '2 h';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT id, status, error ->> 'sqlstate' AS sqlstate, error ->> 'detail' AS detail FROM durable.instances WHERE id LIKE 'never%' ORDER BY id;
SELECT durable_task_complete(last());
SELECT count(*) AS left_over FROM durable_internal.task;

-- a cancel withdraws the task, a terminate too
SELECT durable_register_activity('send', queue => 'mail');
SELECT durable_start('sends', '["f"]', id => 'cancelled'), durable_start('sends', '["g"]', id => 'terminated');
CALL durable_work();
TRUNCATE task;
CALL take();
CALL take();
SELECT durable_cancel('cancelled'), durable_terminate('terminated');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id IN ('cancelled', 'terminated') ORDER BY id;
SELECT durable_task_complete(last());
SELECT count(*) AS left_over FROM durable_internal.task;

-- F8: what times out is withdrawn before anything is undone
CREATE FUNCTION note(what text) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION undo(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not yet'; END $$;
CREATE FUNCTION saga() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '["x"]', compensate => 'undo');
    PERFORM durable_call('send', '["y"]');
END $$;
SELECT durable_register('saga');
SELECT durable_start('saga', id => 'saga', timeout => '1 h');
CALL durable_work();
CALL take();
UPDATE durable_internal.instance SET deadline = now() WHERE id = 'saga';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'saga';
SELECT count(*) AS left_over FROM durable_internal.task;
SELECT durable_task_complete(last());
SELECT durable_terminate('saga');

-- who serves the queue: the role that registered, unless it names another
SELECT durable_register_activity('send', queue => 'mail', served_by => 'remote_clerk');
SELECT durable_start('sends', '["h"]', id => 'h');
CALL durable_work();
-- an OID that is not the role it was, as in another cluster, is nobody's
UPDATE durable_internal.task SET served_by_name = 'remote_once';
SET ROLE remote_clerk;
SELECT count(*) FROM durable_task_poll('mail');
RESET ROLE;
UPDATE durable_internal.task SET served_by_name = 'remote_clerk';
SET ROLE remote_other;
SELECT count(*) FROM durable_task_poll('mail');
SELECT count(*) FROM durable.tasks;
SET ROLE remote_clerk;
CREATE TEMP TABLE mine AS SELECT * FROM durable_task_poll('mail', 'clerk');
GRANT SELECT ON mine TO remote_other;
SELECT activity, args, attempt FROM mine;
SET ROLE remote_other;
SELECT durable_task_complete(token, '"forged"') FROM mine;
SET ROLE remote_clerk;
SELECT durable_task_complete(token, '"by the clerk"') FROM mine;
RESET ROLE;
CALL durable_work();
SELECT durable_result('h');

-- several at once: the oldest first, each with a token of its own
SELECT durable_register_activity('send', queue => 'mail');
SELECT count(durable_start('sends', to_jsonb('n' || n), id => 'n' || n)) FROM generate_series(1, 5) n;
CALL durable_work();
CREATE TEMP TABLE several AS SELECT * FROM durable_task_poll('mail', 'me', 3);
SELECT args FROM several;
SELECT count(DISTINCT token) AS tokens FROM several;
SELECT durable_task_complete(token, args) FROM several;
SELECT count(*) AS rest FROM durable_task_poll('mail', 'me', 1000, '178000000 years');
SELECT isfinite(max(lease_until)) AS cut FROM durable.tasks WHERE id ~ '^n[45]$';
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE id ~ '^n[1-5]$' ORDER BY id;

-- bad arguments
SELECT * FROM durable_task_poll(NULL);
SELECT * FROM durable_task_poll('mail', max => 0);
SELECT * FROM durable_task_poll('mail', max => NULL);
SELECT * FROM durable_task_poll('mail', lease => '0');
SELECT * FROM durable_task_poll('mail', lease => NULL);
SELECT durable_task_complete(NULL);
SELECT durable_task_complete('forged');
SELECT durable_task_fail('forged', NULL);
SELECT durable_task_fail('forged', 'x', NULL);
SELECT durable_task_heartbeat(NULL);
SELECT durable_register_activity('send', 'note', queue => 'mail');
SELECT durable_register_activity('send', queue => 'mail', served_by => 'remote_nobody');
SELECT durable_register_activity('note', served_by => 'remote_nobody');
SELECT durable_register_activity('note', schedule_to_start => '1 h');
DROP OWNED BY remote_clerk, remote_other;
DROP ROLE remote_clerk, remote_other;

-- one that is held with a result that nobody can read any more ends when it is terminated
CREATE FUNCTION soon_gone(n int) RETURNS int LANGUAGE sql AS 'SELECT n';
CREATE FUNCTION gives_up() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_spawn('leaves', '[1]', compensate => 'undo_it');
    PERFORM durable_wait_signal('go');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register_activity('leaves', queue => 'mail'), durable_register('gives_up');
SELECT durable_start('gives_up', id => 'gives up');
CALL durable_work();
SELECT durable_task_complete(token, '2') FROM durable_task_poll('mail') WHERE activity = 'leaves';
SELECT durable_register_activity('leaves', 'soon_gone');
DROP FUNCTION soon_gone;
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'gives up';
SELECT durable_signal('gives up', 'go');
CALL durable_work();
SELECT status, compensation FROM durable.instances WHERE id = 'gives up';
SELECT step_id, state FROM durable.steps WHERE id = 'gives up' AND step_id IS NOT NULL;
