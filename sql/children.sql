-- Instances that instances start.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA children;
SET search_path = children, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO effect (what) VALUES ($1) RETURNING what';
CREATE FUNCTION tape(text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(event, ' ' ORDER BY run, seq) FROM durable.events WHERE id = $1 AND seq > 1 $$;
CREATE VIEW outcome AS
    SELECT id, status, result, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS message, error ->> 'detail' AS detail
      FROM durable.instances;

CREATE FUNCTION doubles(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('act', jsonb_build_array('child ' || n));
    RETURN 2 * n;
END $$;
CREATE FUNCTION waits() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_signal('go'); END $$;
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'broken' USING ERRCODE = 'ZZ123', DETAIL = 'the detail', HINT = 'the hint';
END $$;
CREATE FUNCTION nothing() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
SELECT durable_register('doubles'), durable_register('waits'), durable_register('fails'), durable_register('nothing');

-- H1: started once, its result is the call's
CREATE FUNCTION calls(n int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := durable_call_child('doubles', jsonb_build_array(n));
BEGIN
    PERFORM durable_wait_signal('on');
    RETURN jsonb_build_array(got, durable_call_child('nothing', id => 'named'));
END $$;
SELECT durable_register('calls');
SELECT durable_start('calls', '21', id => 'calls', priority => 3);
CALL durable_work();
SELECT durable_signal('calls', 'on');
CALL durable_work();
SELECT id, status, result, priority, parent_id, parent_run, parent_position FROM durable.instances ORDER BY id;
SELECT tape('calls');
SELECT kind, name, state, result FROM durable.steps WHERE id = 'calls' ORDER BY position;
SELECT count(*) FROM effect;
-- with its history it is not started again, in a procedure neither
CREATE PROCEDURE calls_linear(INOUT r jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('act', '["linear 1"]');
    r := durable_call_child('doubles', '[4]');
    CALL durable_step('act', '["linear 2"]');
END $$;
SELECT durable_register('calls_linear');
SELECT durable_start('calls_linear', id => 'linear');
CALL durable_work();
SELECT status, result, tape(id) FROM outcome WHERE id = 'linear';
SELECT id, result FROM durable.instances WHERE parent_id = 'linear';
-- driven by durable_run, in one transaction
BEGIN;
SELECT durable_start('calls', '1', id => 'run');
SELECT durable_run('run');
SELECT durable_run('run/1.1');
SELECT durable_run('run');
ROLLBACK;
SELECT count(*) FROM durable.instances WHERE id LIKE 'run%';

-- H2: failed, cancelled and timed out are told apart
CREATE FUNCTION catches(workflow text, id text, timeout interval DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    d text;
    h text;
BEGIN
    RETURN durable_call_child(workflow, id => id, timeout => timeout);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
    RETURN jsonb_build_array(SQLSTATE, SQLERRM, d, h);
END $$;
SELECT durable_register('catches');
SELECT durable_start('catches', '["fails", "f"]', id => 'of failed'), durable_start('catches', '["waits", "c"]', id => 'of cancelled'),
       durable_start('catches', '["waits", "t"]', id => 'of terminated'), durable_start('catches', '["waits", "o", "1 hour"]', id => 'of timed out');
CALL durable_work();
SELECT durable_cancel('c', 'not wanted'), durable_terminate('t', 'enough');
UPDATE durable_internal.instance SET deadline = now() WHERE id = 'o';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT id, status, result FROM outcome WHERE id LIKE 'of %' ORDER BY id;
SELECT id, tape(id) FROM outcome WHERE id LIKE 'of %' ORDER BY id;
-- not caught, it is the parent's own error
CREATE FUNCTION lets(workflow text, id text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call_child(workflow, id => id); END $$;
SELECT durable_register('lets');
SELECT durable_start('lets', '["fails", "f2"]', id => 'lets fail'), durable_start('lets', '["waits", "c2"]', id => 'lets cancel');
CALL durable_work();
SELECT durable_cancel('c2');
CALL durable_work();
SELECT * FROM outcome WHERE id LIKE 'lets%' ORDER BY id;

-- a bad input and a taken id can be caught; a workflow that is not there holds
SELECT durable_start('catches', '["waits", "f"]', id => 'of taken'), durable_start('catches', '["calls", "bad input"]', id => 'of bad input'),
       durable_start('lets', '["not_there", "n"]', id => 'of missing');
CALL durable_work();
SELECT id, status, result FROM outcome WHERE id IN ('of taken', 'of bad input', 'of missing') ORDER BY id;
SELECT reason FROM durable.instances WHERE id = 'of missing';
SELECT tape('of taken'), tape('of missing');
SELECT count(*) FROM durable.instances WHERE id IN ('bad input', 'n');
CREATE FUNCTION not_there() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN 'there'; END $$;
SELECT durable_register('not_there');
SELECT durable_resume('of missing');
CALL durable_work();
SELECT durable_result('of missing');

-- H3: in parallel
CREATE FUNCTION spawns() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a int := durable_spawn_child('doubles', '[1]');
    b int := durable_spawn_child('waits', id => 'slow child');
    c int := durable_spawn_child('doubles', '[3]');
    got jsonb := '[]';
BEGIN
    BEGIN
        PERFORM durable_await(b, '1 hour');
    EXCEPTION WHEN SQLSTATE 'WF003' THEN
        got := got || to_jsonb(SQLERRM);
    END;
    got := got || to_jsonb(durable_await_any(ARRAY[b, c]));
    got := got || durable_await(c) || durable_await(c);
    RETURN got || durable_await_all(ARRAY[c, b, a]);
END $$;
SELECT durable_register('spawns');
SELECT durable_start('spawns', id => 'spawns');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id = 'spawns' OR parent_id = 'spawns' ORDER BY id;
CREATE TABLE deadline AS SELECT wake_at FROM durable.timers WHERE id = 'spawns';
SELECT durable_run('spawns');
SELECT wake_at = (SELECT wake_at FROM deadline) AS unmoved FROM durable.timers WHERE id = 'spawns';
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'AwaitStarted';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT durable_status('spawns'), durable_signal('slow child', 'go', '"slow"');
CALL durable_work();
SELECT durable_result('spawns');
SELECT position, kind, name, state FROM durable.steps WHERE id = 'spawns' ORDER BY position;
-- of several errors that of the lowest position, when all are done
CREATE FUNCTION gathers() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a int := durable_spawn_child('waits', id => 'gathered');
    b int := durable_spawn_child('fails');
BEGIN
    RETURN durable_await_all(ARRAY[b, a]);
END $$;
SELECT durable_register('gathers');
SELECT durable_start('gathers', id => 'gathers');
CALL durable_work();
SELECT durable_status('gathers'), durable_cancel('gathered');
CALL durable_work();
SELECT * FROM outcome WHERE id = 'gathers';

-- A17: an exception block that is rolled back does not undo a spawn
CREATE FUNCTION undoes() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    child int;
BEGIN
    BEGIN
        child := durable_spawn_child('doubles', '[5]', id => 'undone');
        PERFORM durable_set_state('{"set": 1}');
        PERFORM durable_timer('0');
        RAISE EXCEPTION 'undo';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    RETURN jsonb_build_array(durable_await(child), durable_state());
END $$;
SELECT durable_register('undoes');
SELECT durable_start('undoes', id => 'undoes');
CALL durable_work();
SELECT durable_result('undoes');
SELECT position, kind, state FROM durable.steps WHERE id = 'undoes' ORDER BY position;

-- G4: what becomes of children when their parent is cancelled, ends, is terminated or times out
CREATE FUNCTION leaves(on_cancel text, on_close text, how text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_spawn_child('waits', id => durable_instance_id() || '.child', on_cancel => on_cancel, on_close => on_close);
    PERFORM durable_wait_signal('go');
    IF how = 'fails' THEN RAISE EXCEPTION 'failed'; END IF;
    RETURN 'left';
END $$;
SELECT durable_register('leaves');
SELECT count(durable_start('leaves', jsonb_build_array(CASE how WHEN 'cancelled' THEN policy ELSE 'abandon' END,
                                                      CASE how WHEN 'cancelled' THEN 'abandon' ELSE policy END, how),
                           id => format('%s %s', how, policy)))
  FROM unnest('{cancelled,returns,fails,terminated,timed out}'::text[]) how, unnest('{cancel,terminate,abandon}'::text[]) policy;
CALL durable_work();
SELECT count(durable_cancel(id)) FROM durable.instances WHERE workflow = 'leaves' AND id LIKE 'cancelled%';
SELECT count(durable_signal(id, 'go')) FROM durable.instances WHERE workflow = 'leaves' AND id ~ '^(returns|fails)';
SELECT count(durable_terminate(id)) FROM durable.instances WHERE workflow = 'leaves' AND id LIKE 'terminated%';
UPDATE durable_internal.instance SET deadline = now() WHERE id LIKE 'timed out%' AND workflow = 'leaves';
INSERT INTO durable_internal.timer SELECT iid, run_as, now() FROM durable_internal.instance WHERE id LIKE 'timed out%' AND workflow = 'leaves';
CALL durable_work();
SELECT p.id, p.status AS parent, c.status AS child, tape(c.id) AS child_tape
  FROM durable.instances p JOIN durable.instances c ON c.parent_id = p.id WHERE p.workflow = 'leaves' ORDER BY p.id;
SELECT count(*) FROM durable_internal.inbox;
SELECT count(durable_signal(id, 'go', '"abandoned"')) FROM durable.instances WHERE workflow = 'waits' AND status = 'waiting_for_event';
CALL durable_work();
SELECT id, result FROM outcome WHERE id LIKE '% abandon.child' ORDER BY id;
-- grandchildren follow
CREATE FUNCTION nests(depth int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF depth = 0 THEN RETURN durable_wait_signal('go'); END IF;
    RETURN durable_call_child('nests', jsonb_build_array(depth - 1));
END $$;
SELECT durable_register('nests');
SELECT durable_start('nests', '[3]', id => 'nest');
CALL durable_work();
SELECT id, parent_id, status FROM durable.instances WHERE id LIKE 'nest%' ORDER BY id;
SELECT durable_cancel('nest');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id LIKE 'nest%' ORDER BY id;

-- E9: durable_start in a body is a command, done once; what it starts is no child
CREATE FUNCTION starts() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    started text := durable_start('doubles', '[7]', id => 'started');
BEGIN
    PERFORM durable_wait_signal('go');
    RETURN started;
END $$;
SELECT durable_register('starts');
SELECT durable_start('starts', id => 'starts');
CALL durable_work();
SELECT durable_signal('starts', 'go');
CALL durable_work();
SELECT id, result, parent_id FROM durable.instances WHERE id IN ('starts', 'started') ORDER BY id;

-- B3: another child at the position
CREATE FUNCTION changes() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call_child('waits', id => 'changed'); END $$;
SELECT durable_register('changes', on_change => 'continue');
SELECT durable_start('changes', id => 'changes');
CALL durable_work();
CREATE OR REPLACE FUNCTION changes() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call_child('nothing', id => 'changed'); END $$;
SELECT durable_signal('changed', 'go');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'changes';

-- I6: what is wrong with the arguments
CREATE FUNCTION bad(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    CASE what
        WHEN 'workflow' THEN PERFORM durable_spawn_child(NULL);
        WHEN 'input' THEN PERFORM durable_spawn_child('waits', NULL);
        WHEN 'on_cancel' THEN PERFORM durable_spawn_child('waits', on_cancel => 'panic');
        WHEN 'on_close' THEN PERFORM durable_spawn_child('waits', on_close => 'panic');
        WHEN 'null on_close' THEN PERFORM durable_spawn_child('waits', on_close => NULL);
        WHEN 'empty id' THEN PERFORM durable_spawn_child('waits', id => '');
        WHEN 'timeout' THEN PERFORM durable_spawn_child('waits', timeout => '0');
        WHEN 'handle' THEN PERFORM durable_await(1);
        WHEN 'null handle' THEN PERFORM durable_await(NULL);
        WHEN 'null handles' THEN PERFORM durable_await_all(NULL);
        WHEN 'null in handles' THEN PERFORM durable_await_all(ARRAY[durable_timer('0'), NULL]);
        WHEN 'no handles' THEN PERFORM durable_await_any('{}');
        WHEN 'no handle' THEN PERFORM durable_call('act', '["x"]'); PERFORM durable_await(1);
        WHEN 'infinite timer' THEN PERFORM durable_sleep_until('infinity');
        WHEN 'null timer' THEN PERFORM durable_timer(NULL);
        WHEN 'null signal' THEN PERFORM durable_signal_handle(NULL);
        WHEN 'none is all' THEN RETURN durable_await_all('{}');
    END CASE;
    RETURN 'no error';
END $$;
SELECT durable_register('bad');
SELECT count(durable_start('bad', to_jsonb(what), id => 'bad ' || what))
  FROM unnest('{workflow,input,on_cancel,on_close,null on_close,empty id,timeout,handle,null handle,null handles,null in handles,no handles,no handle,infinite timer,null timer,null signal,none is all}'::text[]) what;
CALL durable_work();
SELECT id, status, sqlstate, coalesce(message, result::text) AS message FROM outcome WHERE id LIKE 'bad %' ORDER BY id;
SELECT durable_spawn_child('waits');
SELECT durable_call_child('waits');
SELECT durable_await(1);
