-- What clients call, called in a body: commands that are done once.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA inbody;
SET search_path = inbody, public;

CREATE FUNCTION receives(n int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := '[]';
BEGIN
    FOR i IN 1..n LOOP
        got := got || jsonb_build_array(durable_wait_signal('x'));
    END LOOP;
    RETURN got;
END $$;
CREATE FUNCTION waits() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_event('e'); END $$;
SELECT durable_register('receives'), durable_register('waits');

-- E9: each once, however often the body is run
CREATE FUNCTION tells() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a text := durable_start('receives', '[3]', id => 'told', tags => '{"by": "body"}', priority => 3);
    b text := durable_start('receives', '[1]');
    event text;
    cancelled bool;
BEGIN
    PERFORM durable_signal(a, 'x', '1');
    PERFORM durable_signal(a, 'x', 'null');
    PERFORM durable_signal(a, 'x', '{"k": "v"}', dedup_key => 'k');
    PERFORM durable_signal(a, 'x', '{"k": "v"}', dedup_key => 'k');
    event := durable_publish('e', '{"d": 1}', source => '/body', event_id => 'id', subject => 's',
                             event_time => '2026-01-02 03:04:05+00', attributes => '{"ext": true}');
    cancelled := durable_cancel(b, reason => 'no need');
    PERFORM durable_signal_start('receives', '[1]', 'both', 'x', '"s"');
    FOR i IN 1..3 LOOP
        PERFORM durable_sleep('0');
    END LOOP;
    PERFORM durable_wait_signal('go');
    RETURN jsonb_build_array(a, b = durable_start('receives', '[1]', id => b, on_conflict => 'existing'), event, cancelled, durable_cancel(a));
END $$;
SELECT durable_register('tells');
SELECT durable_start('waits', id => 'waits');
CALL durable_work();
SELECT durable_start('tells', id => 'tells');
CALL durable_work();
SELECT durable_signal('tells', 'go');
CALL durable_work();
SELECT status, result, reason, error FROM durable.instances WHERE id = 'tells';
SELECT id, workflow, status, result, priority, tags FROM durable.instances WHERE id IN ('told', 'both', 'waits') ORDER BY id;
SELECT status, error ->> 'detail' AS detail, count(*) FROM durable.instances WHERE workflow = 'receives' AND id NOT IN ('told', 'both') GROUP BY 1, 2;
SELECT position, kind, name, state, attempts FROM durable.steps WHERE id = 'tells' ORDER BY position;

-- errors are the body's to catch, and the same on replay
CREATE FUNCTION errs(statement text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    caught text;
BEGIN
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        caught := SQLSTATE || ': ' || SQLERRM;
    END;
    PERFORM durable_sleep('0');
    RETURN to_jsonb(caught);
END $$;
SELECT durable_register('errs');
SELECT durable_start('errs', to_jsonb('SELECT ' || s), id => s) FROM unnest(ARRAY[
    'durable_signal(''told'', ''x'')', 'durable_signal(''nobody'', ''x'')', 'durable_signal(NULL, ''x'')',
    'durable_start(''nothing'')', 'durable_start(''receives'', ''{"no": 1}'')', 'durable_start(''receives'', ''[1]'', id => ''told'')',
    'durable_start(NULL)', 'durable_start(''receives'', NULL)', 'durable_signal_start(''receives'', ''[1]'', NULL, ''x'')',
    'durable_cancel(''nobody'')', 'durable_cancel(NULL)', 'durable_cancel(''told'')',
    'durable_publish(NULL)', 'durable_publish(''e'', attributes => ''[]'')']) s \g /dev/null
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE workflow = 'errs' ORDER BY created_at;

-- A17: an exception block does not undo them
CREATE FUNCTION in_block() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM durable_start('receives', '[1]', id => 'of block');
        PERFORM durable_signal('of block', 'x', '"kept"');
        RAISE EXCEPTION 'rolled back';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    PERFORM durable_sleep('0');
END $$;
SELECT durable_register('in_block');
SELECT durable_start('in_block', id => 'in block');
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE id IN ('in block', 'of block') ORDER BY id;

-- B1: matched as every command
CREATE FUNCTION changes() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_publish('one');
    PERFORM durable_wait_signal('go');
END $$;
SELECT durable_register('changes', on_change => 'continue');
SELECT durable_start('changes', id => 'changes');
CALL durable_work();
CREATE OR REPLACE FUNCTION changes() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_publish('another');
    PERFORM durable_wait_signal('go');
END $$;
SELECT durable_signal('changes', 'go');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'changes';

-- a workflow can signal and cancel itself
CREATE FUNCTION itself() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb;
BEGIN
    PERFORM durable_signal(durable_instance_id(), 'x', '"own"');
    got := durable_wait_signal('x');
    PERFORM durable_cancel(durable_instance_id());
    BEGIN
        PERFORM durable_wait_signal('x');
    EXCEPTION WHEN SQLSTATE 'WF002' THEN
        got := jsonb_build_array(got, SQLERRM);
    END;
    RETURN got;
END $$;
SELECT durable_register('itself');
SELECT durable_start('itself', id => 'itself');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'itself';

-- in a procedure, between steps; and in an activity, with its transaction
CREATE TABLE effect (n serial, what text);
CREATE FUNCTION note(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO effect (what) VALUES (what)';
CREATE FUNCTION sends_and_fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_start('receives', '[1]', id => 'by activity ' || durable_attempt());
    PERFORM durable_signal('by activity ' || durable_attempt(), 'x');
    IF durable_attempt() = 1 THEN
        RAISE EXCEPTION 'first attempt';
    END IF;
END $$;
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('note', '["one"]');
    PERFORM durable_start('receives', '[2]', id => 'by steps');
    CALL durable_step('note', '["two"]');
    PERFORM durable_signal('by steps', 'x', '1');
    CALL durable_step('sends_and_fails', retry => durable_retry_policy(initial => '0'));
    PERFORM durable_signal('by steps', 'x', '2');
    CALL durable_step('note', '["three"]');
END $$;
SELECT durable_register('steps');
SELECT durable_start('steps', id => 'steps');
CALL durable_work();
SELECT id, status, result, reason FROM durable.instances WHERE id IN ('steps', 'by steps') OR id LIKE 'by activity%' ORDER BY id;
SELECT what FROM effect ORDER BY n;

-- E9: what a transaction that is rolled back has cancelled goes on
SELECT durable_start('receives', '[1]', id => 'uncancelled');
CALL durable_work();
BEGIN;
SELECT durable_cancel('uncancelled');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT durable_cancel('uncancelled');
ROLLBACK TO s;
COMMIT;
CALL durable_work();
SELECT durable_signal('uncancelled', 'x', '1');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'uncancelled';
