-- Retry and fork: from the history of a run.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA again;
SET search_path = again, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO effect (what) VALUES ($1) RETURNING what';
CREATE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
CREATE FUNCTION tape(text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(event, ' ' ORDER BY run, seq) FROM durable.events WHERE id = $1 AND seq > 1 $$;
CREATE VIEW outcome AS
    SELECT id, status, result, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS message FROM durable.instances;

-- G7: retry goes on from the step whose error ended the run
CREATE FUNCTION orders() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := jsonb_build_array(durable_random());
BEGIN
    PERFORM durable_call('act', '["reserve"]');
    got := got || durable_call('charge', '[6]', retry => durable_retry_policy(max_attempts => 1));
    PERFORM durable_call('act', '["ship"]');
    RETURN got || to_jsonb(durable_random());
END $$;
SELECT durable_register('orders');
SELECT durable_start('orders', id => 'order');
CALL durable_work();
SELECT * FROM outcome;
-- not mended: it fails again
SELECT durable_retry('order');
SELECT durable_status('order');
SELECT durable_result('order');
CALL durable_work();
SELECT * FROM outcome;
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
BEGIN;
SELECT durable_retry('order');
ROLLBACK;
SELECT durable_status('order');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT durable_retry('order');
ROLLBACK;
SELECT durable_retry('order');
CALL durable_work();
SELECT status, result -> 1 AS charged FROM outcome;
SELECT tape('order');
SELECT position, name, state, attempts FROM durable.steps WHERE id = 'order' ORDER BY position;
SELECT what FROM effect ORDER BY n;
-- refused unless it has failed
SELECT durable_retry('order');
CREATE FUNCTION waits() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_signal('go'); END $$;
SELECT durable_register('waits');
SELECT durable_start('waits', id => 'waits');
SELECT durable_retry('waits');
CALL durable_work();
SELECT durable_retry('waits');
SELECT durable_terminate('waits');
SELECT durable_retry('waits');

-- in a procedure, and with durable_run
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
CREATE PROCEDURE orders_linear(INOUT r jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('act', '["linear"]');
    CALL durable_step('charge', '[6]', r, retry => durable_retry_policy(max_attempts => 1));
END $$;
SELECT durable_register('orders_linear');
SELECT durable_start('orders_linear', id => 'linear'), durable_start('orders', id => 'run');
SELECT durable_run('run');
CALL durable_work();
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('linear'), durable_retry('run');
SELECT durable_run('run');
CALL durable_work();
SELECT durable_result('linear');
SELECT id, tape(id) FROM outcome WHERE id IN ('linear', 'run') ORDER BY id;
SELECT count(*) FROM effect WHERE what = 'linear';

-- G7: an error of the body: it is run again with what is recorded
CREATE FUNCTION errs() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := durable_call('act', '["errs"]');
BEGIN
    RAISE EXCEPTION 'a bug';
END $$;
SELECT durable_register('errs');
SELECT durable_start('errs', id => 'errs');
CALL durable_work();
SELECT status, message FROM outcome WHERE id = 'errs';
CREATE OR REPLACE FUNCTION errs() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := durable_call('act', '["errs"]');
BEGIN
    RETURN got;
END $$;
SELECT durable_retry('errs');
CALL durable_work();
SELECT durable_result('errs');
SELECT count(*) FROM effect WHERE what = 'errs';

-- what the body did after the failure that it caught first is not there any more
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
CREATE FUNCTION tidies() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb;
BEGIN
    BEGIN
        got := durable_call('charge', '[6]', retry => durable_retry_policy(max_attempts => 1));
    EXCEPTION WHEN OTHERS THEN
        PERFORM durable_call('act', '["tidy"]');
        RAISE;
    END;
    PERFORM durable_call('act', '["untidy"]');
    RETURN got;
END $$;
SELECT durable_register('tidies');
SELECT durable_start('tidies', id => 'tidies');
CALL durable_work();
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('tidies');
CALL durable_work();
SELECT status, result, tape(id) FROM outcome WHERE id = 'tidies';

-- a child that failed is started again
CREATE FUNCTION child(n int DEFAULT 1) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call_as(0, 'charge', jsonb_build_array(n), retry => durable_retry_policy(max_attempts => 1)); END $$;
CREATE FUNCTION parent() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call_child('child', '[8]', id => 'child'); END $$;
SELECT durable_register('child'), durable_register('parent');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('parent', id => 'parent');
CALL durable_work();
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('parent');
CALL durable_work();
SELECT id, run, status, result, parent_id FROM durable.instances WHERE id IN ('parent', 'child') ORDER BY id, run;
-- one that was closed with its parent has an end for the parent that goes on
CREATE FUNCTION closes() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    handle int := durable_spawn_child('waits', id => 'closed');
BEGIN
    PERFORM durable_call('charge', '[2]', retry => durable_retry_policy(max_attempts => 1));
    RETURN durable_await(handle);
EXCEPTION WHEN SQLSTATE 'WF010' THEN
    RETURN to_jsonb(SQLERRM);
END $$;
SELECT durable_register('closes');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('closes', id => 'closes');
CALL durable_work();
SELECT id, status FROM outcome WHERE id IN ('closes', 'closed') ORDER BY id;
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('closes');
CALL durable_work();
SELECT status, result FROM outcome WHERE id = 'closes';
-- children begun after the one that failed are begun again, whatever became of them
CREATE FUNCTION siblings() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a int := durable_spawn_child('child', '[4]');
    b int := durable_spawn_child('errs');
    c int := durable_spawn_child('waits', id => 'siblings wait');
BEGIN
    PERFORM durable_await(b);
    RETURN durable_await_all(ARRAY[durable_await_any(ARRAY[a]), b]);
END $$;
SELECT durable_register('siblings');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('siblings', id => 'siblings');
CALL durable_work();
SELECT id, run, status FROM durable.instances WHERE id LIKE 'siblings%' ORDER BY id, run;
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('siblings');
CALL durable_work();
SELECT id, run, status, result, error ->> 'message' AS error FROM durable.instances WHERE id LIKE 'siblings%' ORDER BY id, run;

-- messages that were handled behind the step keep their effect, before those that come now
CREATE FUNCTION counts(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_object('n', coalesce((state ->> 'n')::int, 0) + 1) $$;
CREATE FUNCTION handles() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_on_signal('count', 'counts');
    BEGIN
        PERFORM durable_call('charge', '[6]', retry => durable_retry_policy(max_attempts => 1));
    EXCEPTION WHEN OTHERS THEN
        PERFORM durable_sleep('0 s');
        PERFORM durable_sleep('0 s');
        PERFORM durable_wait_signal('go');
        RAISE;
    END;
    PERFORM durable_wait_signal('go');
    PERFORM durable_call('act', jsonb_build_array('counted ' || (durable_state() ->> 'n')));
    RETURN durable_wait_signal('go');
END $$;
SELECT durable_register('handles');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('handles', id => 'handles');
CALL durable_work();
SELECT durable_signal('handles', 'count'), durable_signal('handles', 'go');
CALL durable_work();
SELECT status, message FROM outcome WHERE id = 'handles';
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('handles');
CALL durable_work();
SELECT durable_signal('handles', 'count'), durable_signal('handles', 'go');
CALL durable_work();
SELECT durable_signal('handles', 'go', '"end"');
CALL durable_work();
SELECT i.status, i.result, i.reason, durable_query('handles') FROM durable.instances i WHERE id = 'handles';
SELECT what FROM effect WHERE what LIKE 'counted %';

-- an activity that was spawned behind the step is terminated before its place is taken
CREATE FUNCTION spawns_late() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM durable_call('charge', '[6]', retry => durable_retry_policy(max_attempts => 1));
    EXCEPTION WHEN OTHERS THEN
        PERFORM durable_spawn('act', '["spawned before"]');
        PERFORM durable_sleep('0 s');
        RAISE;
    END;
    RETURN durable_await(durable_spawn('act', '["spawned behind"]'));
END $$;
SELECT durable_register('spawns_late');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('spawns_late', id => 'spawns late');
SELECT durable_run('spawns late');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('spawns late');
SELECT durable_run('spawns late');
CALL durable_work();
UPDATE durable_internal.timer SET wake_at = now() WHERE iid IN (SELECT iid FROM durable_internal.instance WHERE id = 'spawns late');
CALL durable_work();
SELECT status, result, tape(id) FROM outcome WHERE id = 'spawns late';
SELECT what FROM effect WHERE what LIKE 'spawned %';
-- a child of another position does not pass for one that is begun again
CREATE FUNCTION moves_child() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    handle int;
BEGIN
    BEGIN
        PERFORM durable_call('charge', '[6]', retry => durable_retry_policy(max_attempts => 1));
    EXCEPTION WHEN OTHERS THEN
        PERFORM durable_spawn_child('waits', id => 'moved', on_close => 'abandon');
        PERFORM durable_sleep('0 s');
        RAISE;
    END;
    PERFORM durable_sleep('0 s');
    RETURN durable_call_child('waits', id => 'moved');
EXCEPTION WHEN SQLSTATE 'WF008' THEN
    RETURN to_jsonb(SQLERRM);
END $$;
SELECT durable_register('moves_child');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('moves_child', id => 'moves child');
CALL durable_work();
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('moves child');
CALL durable_work();
SELECT status, result, tape(id) FROM outcome WHERE id = 'moves child';
SELECT durable_terminate('moved');

-- a cancel that came behind the step counts no more, either
CREATE FUNCTION cancelled_late() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM durable_call('charge', '[6]', retry => durable_retry_policy(max_attempts => 1));
    EXCEPTION WHEN OTHERS THEN
        BEGIN
            PERFORM durable_sleep('1 hour');
        EXCEPTION WHEN SQLSTATE 'WF002' THEN
            NULL;
        END;
        RAISE;
    END;
    RETURN durable_call('act', '["not cancelled"]');
END $$;
SELECT durable_register('cancelled_late');
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('cancelled_late', id => 'cancelled late');
CALL durable_work();
SELECT durable_cancel('cancelled late');
CALL durable_work();
SELECT * FROM outcome WHERE id = 'cancelled late';
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('cancelled late');
CALL durable_work();
SELECT status, result, tape(id) FROM outcome WHERE id = 'cancelled late';

-- one that goes on gets the events that it had subscribed to (E8)
CREATE FUNCTION subscribes(n int DEFAULT 1) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb;
BEGIN
    IF n = 0 THEN
        PERFORM durable_subscribe('one', 'competing');
        PERFORM durable_continue_as_new('[1]');
    END IF;
    PERFORM durable_subscribe('all', 'broadcast', '{"for": "us"}');
    got := jsonb_build_array(durable_wait_event('all', '0 s'), durable_wait_event('other', '1 day') -> 'data');
    PERFORM durable_call('charge', '[6]', retry => durable_retry_policy(max_attempts => 1));
    got := got || (durable_wait_event('all') -> 'data');
    RETURN got || (durable_wait_event('one', '1 day') -> 'data');
END $$;
CREATE FUNCTION publish(type text, data jsonb) RETURNS bool LANGUAGE sql AS 'SELECT durable_publish(type, data) IS NOT NULL';
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_register('subscribes');
SELECT durable_start('subscribes', '[0]', id => 'subscribes');
CALL durable_work();
SELECT publish('other', '"early"');
CALL durable_work();
SELECT status, (SELECT count(*) FROM durable.subscriptions) FROM outcome WHERE id = 'subscribes' AND status = 'failed';
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_retry('subscribes');
SELECT type, mode, filter FROM durable.subscriptions ORDER BY type;
SELECT publish('all', '{"for": "them"}'), publish('all', '{"for": "us"}'), publish('one', '1');
CALL durable_work();
SELECT status, result FROM outcome WHERE id = 'subscribes' AND status <> 'continued_as_new';
-- a fork, too, and that of one that waits for an event gets it
SELECT durable_fork('subscribes', 1, 'copy before'), durable_fork('subscribes', 4, 'copy behind');
SELECT id, type, mode, filter FROM durable.subscriptions ORDER BY id, type;
CALL durable_work();
SELECT publish('other', '"late"'), publish('all', '{"for": "us"}'), publish('one', '2'), publish('one', '3');
CALL durable_work();
SELECT publish('all', '{"for": "us", "n": 2}');
CALL durable_work();
SELECT id, status, jsonb_array_length(result), result -> 1 AS other FROM outcome WHERE id LIKE 'copy b%' ORDER BY id;
CREATE FUNCTION awaits_event() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_event('other') -> 'data'; END $$;
SELECT durable_register('awaits_event');
SELECT durable_start('awaits_event', id => 'awaits');
CALL durable_work();
SELECT durable_fork('awaits', 1, 'awaits too');
CALL durable_work();
SELECT publish('other', '"both"');
CALL durable_work();
SELECT id, status, result FROM outcome WHERE id LIKE 'awaits%' ORDER BY id;
-- unless the others of the role are of another mode by now
CREATE FUNCTION subscribes_other() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_subscribe('one', 'broadcast');
    PERFORM durable_wait_signal('go');
END $$;
SELECT durable_register('subscribes_other');
SELECT durable_start('subscribes_other', id => 'other mode');
CALL durable_work();
SELECT durable_fork('subscribes', 1, 'copy of other mode');
SELECT durable_terminate('other mode');

-- G7: a fork has the history up to there, and values of its own after it
CREATE FUNCTION draws() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := jsonb_build_array(durable_random());
BEGIN
    PERFORM durable_call('act', '["step 1"]');
    got := got || to_jsonb(durable_uuid());
    PERFORM durable_call('act', '["step 2"]');
    got := got || to_jsonb(durable_random());
    got := got || durable_wait_signal('go', '1 day');
    RETURN got || to_jsonb(durable_random());
END $$;
SELECT durable_register('draws');
SELECT durable_start('draws', id => 'draws', tags => '{"a": 1}');
CALL durable_work();
SELECT durable_signal('draws', 'go', '"original"');
CALL durable_work();
TRUNCATE effect;
SELECT durable_fork('draws', 0, 'fork 0'), durable_fork('draws', 1, 'fork 1'), durable_fork('draws', 2, 'fork 2'), durable_fork('draws', 3, 'fork 3');
CALL durable_work();
SELECT id, status, tape(id) FROM outcome WHERE id LIKE 'fork%' ORDER BY id;
SELECT what FROM effect ORDER BY n;
SELECT count(durable_signal(id, 'go', '"forked"')) FROM durable.instances WHERE id LIKE 'fork%' AND status = 'waiting_for_event';
CALL durable_work();
SELECT f.id, f.tags, ARRAY(SELECT f.result -> i = d.result -> i FROM generate_series(0, 4) i) AS same_as_original
  FROM durable.instances f JOIN durable.instances d ON d.id = 'draws' WHERE f.id LIKE 'fork%' ORDER BY f.id;
SELECT durable_fork('draws', 0, 'draws');
-- a fork of a fork keeps the values of both
SELECT durable_fork('fork 1', 2, 'fork of fork');
CALL durable_work();
SELECT durable_signal('fork of fork', 'go', '"forked"');
CALL durable_work();
SELECT ARRAY(SELECT f.result -> i = d.result -> i FROM generate_series(0, 4) i) AS same_as_fork
  FROM durable.instances f JOIN durable.instances d ON d.id = 'fork 1' WHERE f.id = 'fork of fork';
-- of one that runs still, and the original is as it was
SELECT durable_start('draws', id => 'open');
CALL durable_work();
SELECT durable_fork('open', 3, 'fork of open');
CALL durable_work();
SELECT id, status, tape(id) FROM outcome WHERE id LIKE '%open' ORDER BY id;
SELECT count(durable_terminate(id)) FROM durable.instances WHERE id LIKE '%open';
-- of a failed one before its failure
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 0';
SELECT durable_start('orders', id => 'failed');
CALL durable_work();
CREATE OR REPLACE FUNCTION charge(n int) RETURNS int LANGUAGE sql AS 'SELECT n / 2';
SELECT durable_fork('failed', 1, 'mended'), durable_fork('failed', 2, 'not mended');
CALL durable_work();
SELECT id, status, message FROM outcome WHERE id IN ('failed', 'mended', 'not mended') ORDER BY id;
-- of one that was cancelled: the copy is not
SELECT durable_start('draws', id => 'cancelled');
CALL durable_work();
SELECT durable_cancel('cancelled');
CALL durable_work();
SELECT durable_fork('cancelled', 2, 'not cancelled');
CALL durable_work();
SELECT id, status FROM outcome WHERE id IN ('cancelled', 'not cancelled') ORDER BY id;
-- but not with what came of that: the end of the wait, or clean-up
SELECT durable_fork('cancelled', 3);
SELECT durable_fork('cancelled late', 2, 'cancelled before the retry');
CALL durable_work();
SELECT status, result FROM outcome WHERE id = 'cancelled before the retry';
-- of one that was retried
SELECT durable_fork('tidies', 1, 'tidies again'), durable_fork('tidies', 2, 'tidies again 2');
CALL durable_work();
SELECT id, status, result, tape(id) FROM outcome WHERE id LIKE 'tidies again%' ORDER BY id;
-- not with an open child
CREATE FUNCTION has_child() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call_child('waits', id => 'open child'); END $$;
SELECT durable_register('has_child');
SELECT durable_start('has_child', id => 'has child');
CALL durable_work();
SELECT durable_fork('has child', 1);
-- nor with an activity that was spawned
CREATE FUNCTION has_spawned() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    handle int := durable_spawn('act', '["spawned"]');
BEGIN
    PERFORM durable_wait_signal('go');
    RETURN durable_await(handle);
END $$;
SELECT durable_register('has_spawned');
SELECT durable_start('has_spawned', id => 'has spawned');
CALL durable_work(1);
SELECT durable_fork('has spawned', 1);
CALL durable_work();
SELECT durable_signal('has spawned', 'go');
CALL durable_work();
SELECT durable_fork('has spawned', 2, 'has spawned, too');
CALL durable_work();
SELECT id, status, result FROM outcome WHERE id LIKE 'has spawned%' ORDER BY id;
SELECT durable_signal('open child', 'go', '1');
CALL durable_work();
SELECT durable_fork('has child', 1, 'has had child');
CALL durable_work();
SELECT durable_result('has had child');

-- I6: what is wrong with the arguments
SELECT durable_retry(NULL);
SELECT durable_retry('nobody');
SELECT durable_fork(NULL, 1);
SELECT durable_fork('nobody', 1);
SELECT durable_fork('draws', NULL);
SELECT durable_fork('draws', -1);
SELECT durable_fork('draws', 4);
SELECT durable_fork('draws', 1, 'order');
SELECT durable_fork('draws', 1, '');
BEGIN READ ONLY;
SELECT durable_fork('draws', 1);
ROLLBACK;
