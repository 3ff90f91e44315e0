-- Activities beside the body: durable_spawn, durable_map.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA parallel;
SET search_path = parallel, public;

CREATE TABLE done (n serial, what text);
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO done (what) VALUES (what) RETURNING upper(what)';
CREATE FUNCTION undo(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO done (what) VALUES ('undo ' || what) $$;
CREATE FUNCTION fails(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_fail('cannot ' || what, 'P0042'); END $$;
CREATE FUNCTION told() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    all_of_it text := (SELECT string_agg(what, ', ' ORDER BY n) FROM done);
BEGIN
    DELETE FROM done;
    RETURN all_of_it;
END $$;

-- D17: awaited in any order; the same on replay, and nothing is spawned twice
CREATE FUNCTION spawns() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a int := durable_spawn('note', '["a"]');
    b int := durable_spawn('note', '["b"]');
    c int := durable_spawn('note', '["c"]', step_id => 'third');
    called jsonb := durable_call('note', '["called"]');
    got jsonb;
BEGIN
    got := jsonb_build_array(called, durable_await(b), durable_await(a), durable_await_all(ARRAY[c, a, b]));
    PERFORM durable_wait_signal('go');
    RETURN got || to_jsonb(durable_await_any(ARRAY[a, b]) IN (a, b)) || durable_await(a);
END $$;
SELECT durable_register('spawns');
SELECT durable_start('spawns', id => 'spawns');
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'spawns';
SELECT durable_signal('spawns', 'go');
CALL durable_work();
SELECT durable_result('spawns');
SELECT count(*), string_agg(what, ' ' ORDER BY what) FROM done;
SELECT length(told()) > 0 AS told;
SELECT position, step_id, kind, name, state, attempts FROM durable.steps WHERE id = 'spawns' AND step_id IS NOT NULL ORDER BY position;
-- they are steps, not instances
SELECT id FROM durable.instances WHERE id LIKE 'spawns%';

-- errors are raised by who awaits, and can be caught
CREATE FUNCTION catches() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    good int := durable_spawn('note', '["good"]');
    bad int := durable_spawn('fails', '["x"]');
    got text;
BEGIN
    BEGIN
        PERFORM durable_await(bad);
    EXCEPTION WHEN SQLSTATE 'P0042' THEN
        got := SQLERRM;
    END;
    BEGIN
        PERFORM durable_await_all(ARRAY[good, bad]);
    EXCEPTION WHEN SQLSTATE 'P0042' THEN
        got := concat_ws(', all: ', got, SQLERRM);
    END;
    RETURN jsonb_build_array(got, durable_await(good));
END $$;
SELECT durable_register('catches');
SELECT durable_start('catches', id => 'catches');
CALL durable_work();
SELECT durable_result('catches');
SELECT told();

-- durable_map: results in the order of the items, whatever the bound
CREATE FUNCTION maps(activity text, items jsonb, max_parallel int DEFAULT NULL, on_error text DEFAULT 'fail') RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_map(activity, items, max_parallel, on_error, retry => '{"max_attempts": 1}');
END $$;
CREATE FUNCTION odd(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF n % 2 = 0 THEN
        RAISE EXCEPTION '% is even', n;
    END IF;
    RETURN nullif(n, 5);
END $$;
SELECT durable_register('maps');
CREATE FUNCTION start_map(id text, args jsonb) RETURNS text LANGUAGE sql AS $$ SELECT durable_start('maps', args, id => id) $$;
SELECT start_map('one', '["odd", [1, 3, 5, 7, 9], 1]'), start_map('two', '["odd", [1, 3, 5, 7, 9], 2]'), start_map('many', '["odd", [1, 3, 5, 7, 9], 100]'),
       start_map('default', '["odd", [1, 3, 5, 7, 9]]'), start_map('empty', '["odd", []]');
SELECT start_map('fail', '["odd", [1, 2, 3, 4], 2]'), start_map('collect', '["odd", [1, 2, 5, 4], 2, "collect"]'),
       start_map('no array', '["odd", {"a": 1}]'), start_map('scalar', '["odd", 1]'), start_map('zero', '["odd", [1], 0]'),
       start_map('choice', '["odd", [1], 1, "ignore"]'), start_map('null', '{"activity": null, "items": [1]}');
CALL durable_work();
SELECT id, status, result #- '{1,error,context}' #- '{3,error,context}' AS result, error ->> 'message' AS error FROM durable.instances WHERE workflow = 'maps' ORDER BY id;
SELECT id, count(*) FROM durable.steps WHERE id IN ('one', 'two', 'many', 'empty') AND kind = 'activity' GROUP BY id ORDER BY id;
-- what is not there holds, and goes on when mended
SELECT start_map('unknown', '["later", [1]]');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'unknown';
CREATE FUNCTION later(n int) RETURNS int LANGUAGE sql AS 'SELECT n + 1';
SELECT durable_resume('unknown');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'unknown';

-- F1: a spawned step is undone too, by its completion; what failed is not
CREATE FUNCTION saga() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    a int := durable_spawn('note', '["a"]', compensate => 'undo');
    b int := durable_spawn('fails', '["b"]', compensate => 'undo');
BEGIN
    PERFORM durable_await(a);
    PERFORM durable_call('note', '["c"]', compensate => 'undo');
    PERFORM durable_await(b);
END $$;
SELECT durable_register('saga');
SELECT durable_start('saga', id => 'saga');
CALL durable_work();
SELECT told();
SELECT status, error ->> 'message' AS error, compensation FROM durable.instances WHERE id = 'saga';

-- F8: siblings that are open are closed before anything is undone
CREATE FUNCTION retries(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not yet'; END $$;
CREATE FUNCTION closes() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '["a"]', compensate => 'undo');
    PERFORM durable_spawn('retries', '["b"]', compensate => 'undo', retry => durable_retry_policy(initial => '1 h', max_interval => '1 h'));
    PERFORM durable_wait_signal('go');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('closes');
SELECT durable_start('closes', id => 'closes'), durable_start('closes', id => 'cancelled');
CALL durable_work();
SELECT id, step_id, state FROM durable.steps WHERE id IN ('closes', 'cancelled') AND name = 'retries' ORDER BY id;
SELECT durable_signal('closes', 'go'), durable_cancel('cancelled');
CALL durable_work();
SELECT told();
SELECT id, status, compensation FROM durable.instances WHERE workflow = 'closes' ORDER BY id;
SELECT id, step_id, state FROM durable.steps WHERE id IN ('closes', 'cancelled') AND step_id IS NOT NULL ORDER BY id, position, step_id;
SELECT count(*) AS open FROM durable_internal.instance WHERE workflow LIKE 'durable:%' AND end_seq IS NULL;

-- D13: one that is held says so where its step is, and is resumed with its instance
CREATE FUNCTION waits_beside() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    missing int;
BEGIN
    PERFORM durable_call('note', '["a"]', compensate => 'undo');
    missing := durable_spawn('missing', '["m"]', compensate => 'undo',
                             retry => durable_retry_policy(initial => '10 ms'));
    PERFORM durable_wait_signal('go', timeout => '1 day');
    RETURN durable_await(missing);
END $$;
SELECT durable_register('waits_beside');
CREATE FUNCTION missing(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not yet'; END $$;
SELECT durable_start('waits_beside', id => 'mended'), durable_start('waits_beside', id => 'given up');
CALL durable_work();
DROP FUNCTION missing;
SELECT pg_sleep(0.05);
CALL durable_work();
SELECT id, status, reason FROM durable.instances WHERE workflow = 'waits_beside' ORDER BY id;
SELECT id, step_id, state, error FROM durable.steps WHERE id IN ('mended', 'given up') AND name = 'missing' ORDER BY id;
SELECT durable_signal('mended', 'go');
CALL durable_work();
CREATE FUNCTION missing(what text) RETURNS text LANGUAGE sql AS $$ SELECT 'found ' || what $$;
SELECT durable_resume('mended'), durable_resume('mended') AS again;
CALL durable_work();
SELECT status, reason, result FROM durable.instances WHERE id = 'mended';
-- F8: and is closed with it though it is held
SELECT told();
SELECT durable_cancel('given up');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'given up';
SELECT step_id, state FROM durable.steps WHERE id = 'given up' AND step_id IS NOT NULL ORDER BY position, step_id;
-- so is a child of any kind that is to be terminated, whether it is held or paused
CREATE FUNCTION lost() RETURNS jsonb LANGUAGE sql AS $$ SELECT durable_call('nowhere') $$;
CREATE FUNCTION forgets(child text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_spawn_child(child, id => child, on_close => 'terminate');
    PERFORM durable_wait_signal('go');
END $$;
SELECT durable_register('lost'), durable_register('forgets');
SELECT durable_start('forgets', '"lost"', id => 'forgets 1'), durable_start('forgets', '"waits_beside"', id => 'forgets 2');
CALL durable_work();
SELECT durable_pause('waits_beside');
SELECT id, status FROM durable.instances WHERE id IN ('lost', 'waits_beside') ORDER BY id;
SELECT durable_signal('forgets 1', 'go'), durable_signal('forgets 2', 'go');
CALL durable_work();
SELECT id, status, error ->> 'detail' AS detail FROM durable.instances WHERE id IN ('lost', 'waits_beside') ORDER BY id;
DELETE FROM done;
-- D14: it is the same step, with the same key, when its parent is retried
CREATE SEQUENCE keyed;
CREATE FUNCTION tells_key(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '%: attempt %, %', what, durable_attempt(), durable_idempotency_key();
    IF nextval('keyed') <= 2 THEN
        RAISE EXCEPTION 'broken';
    END IF;
END $$;
CREATE FUNCTION keys() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_await(durable_spawn('tells_key', '["key"]', retry => '{"max_attempts": 2, "initial": 0}'));
END $$;
SELECT durable_register('keys');
SELECT durable_start('keys', id => 'keys');
CALL durable_work();
SELECT durable_retry('keys');
CALL durable_work();
SELECT durable_status('keys');
-- G4: one that is terminated while nobody runs it takes its siblings along
CREATE FUNCTION leaves() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_spawn('note', '["left"]');
    PERFORM durable_wait_signal('go');
END $$;
SELECT durable_register('leaves');
SELECT durable_start('leaves', id => 'leaves');
CALL durable_work(1);
SELECT durable_status('leaves'), durable_terminate('leaves');
CALL durable_work();
SELECT told();
SELECT count(*) AS open FROM durable_internal.instance WHERE workflow LIKE 'durable:%' AND end_seq IS NULL;

-- E13: one of an activity, a child, a timer and a signal; the same on replay
CREATE FUNCTION waits() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_signal('go'); END $$;
CREATE FUNCTION one_of(first text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    handles int[] := ARRAY[
        durable_spawn(CASE first WHEN 'activity' THEN 'note' ELSE 'retries' END, '["x"]',
                      retry => durable_retry_policy(initial => '1 h', max_interval => '1 h')),
        durable_spawn_child('waits', id => 'child of ' || first),
        durable_timer(CASE first WHEN 'timer' THEN '0 s' ELSE '1 hour' END::interval),
        durable_signal_handle('s')];
    winner text := (ARRAY['activity', 'child', 'timer', 'signal'])[array_position(handles, durable_await_any(handles))];
BEGIN
    PERFORM durable_wait_signal('end');
    RETURN winner;
END $$;
SELECT durable_register('waits'), durable_register('one_of');
SELECT count(durable_start('one_of', jsonb_build_array(first), id => first)) FROM unnest('{activity,child,timer,signal}'::text[]) first;
SELECT durable_signal('signal', 's');
CALL durable_work();
SELECT id, status, awaits FROM durable.instances WHERE workflow = 'one_of' ORDER BY id;
SELECT durable_signal('child of child', 'go');
CALL durable_work();
SELECT count(durable_signal(first, 'end')) FROM unnest('{activity,child,timer,signal}'::text[]) first;
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE workflow = 'one_of' ORDER BY id;
SELECT id, status FROM durable.instances WHERE workflow = 'waits' ORDER BY id;

-- the names of what runs spawned activities are not to be had: their input is trusted
SELECT durable_register('spawns', name => 'durable:activity');
SELECT durable_start('durable:activity', '{"activity": "note", "args": ["x"]}');
