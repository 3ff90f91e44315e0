-- Continue-as-new.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA continue;
SET search_path = continue, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO effect (what) VALUES ($1) RETURNING what';
CREATE FUNCTION tape(text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(run || ':' || event, ' ' ORDER BY run, seq) FROM durable.events WHERE id = $1 $$;

-- H4: the old run is closed, the next one begins, under the same id
CREATE FUNCTION counts(n int, randoms jsonb DEFAULT '[]') RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('act', jsonb_build_array(format('run %s: %s', durable_run_number(), n)));
    IF n > 0 THEN
        BEGIN
            PERFORM durable_continue_as_new(jsonb_build_object('n', n - 1, 'randoms', randoms || to_jsonb(durable_random()) || to_jsonb(durable_uuid())));
        EXCEPTION WHEN OTHERS THEN
            RETURN '"A15: caught"';
        END;
    END IF;
    RETURN randoms || to_jsonb(durable_random()) || to_jsonb(durable_uuid());
END $$;
SELECT durable_register('counts');
SELECT durable_start('counts', '{"n": 2}', id => 'counts', tags => '{"a": 1}', priority => 2);
CALL durable_work();
SELECT id, run, status, input -> 'n' AS n, tags, priority, result IS NOT NULL AS result, error FROM durable.instances ORDER BY run;
SELECT tape('counts');
SELECT what FROM effect ORDER BY n;
SELECT durable_status('counts');
-- A12: random values differ
SELECT count(*), count(DISTINCT value) FROM jsonb_array_elements(durable_result('counts'));
-- by durable_run, a run at a time; in a procedure
SELECT durable_start('counts', '{"n": 1}', id => 'run');
SELECT durable_run('run');
SELECT durable_run('run');
CREATE PROCEDURE counts_linear(n int, INOUT r int DEFAULT 0) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('act', jsonb_build_array('linear ' || n));
    IF n > 0 THEN PERFORM durable_continue_as_new(jsonb_build_object('n', n - 1)); END IF;
    r := durable_run_number();
END $$;
SELECT durable_register('counts_linear');
SELECT durable_start('counts_linear', '{"n": 2}', id => 'linear');
CALL durable_work();
SELECT durable_result('linear'), tape('linear');

-- H4: unread signals and subscriptions are carried over
CREATE FUNCTION collects(seen jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    message jsonb;
BEGIN
    IF durable_run_number() = 1 THEN PERFORM durable_subscribe('it'); END IF;
    message := durable_wait_signal('s');
    seen := seen || message;
    IF jsonb_array_length(seen) < 3 THEN
        PERFORM durable_continue_as_new(seen);
    END IF;
    RETURN seen || (durable_wait_event('it') -> 'data');
END $$;
SELECT durable_register('collects');
SELECT durable_start('collects', '[]', id => 'collects');
CALL durable_work();
SELECT durable_publish('it', '"early"') IS NOT NULL AS published;
SELECT durable_signal('collects', 's', '1'), durable_signal('collects', 's', '2'), durable_signal('collects', 'other', '0');
CALL durable_work();
SELECT id, run, status FROM durable.instances WHERE id = 'collects' ORDER BY run;
SELECT id, run, kind, name FROM durable.messages ORDER BY kind;
SELECT id, run, type FROM durable.subscriptions;
-- the id means the last run, also for a key that was used in an earlier one
SELECT durable_signal('collects', 's', '3', dedup_key => 'k'), durable_signal('collects', 's', '4', dedup_key => 'k');
CALL durable_work();
SELECT durable_result('collects');
SELECT event, name, args FROM durable.events WHERE id = 'collects' AND event = 'MessageDropped';
SELECT count(*) FROM durable_internal.inbox;
SELECT count(*) FROM durable_internal.subscription;

-- a cancel that came before is the next run's; so is a pause of the workflow
CREATE FUNCTION continues(n int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF n = 0 THEN PERFORM durable_continue_as_new('[1]'); END IF;
    PERFORM durable_call('act', '["continued"]');
    RETURN 'not cancelled';
END $$;
CREATE FUNCTION cancels(id text) RETURNS bool LANGUAGE sql AS 'SELECT durable_cancel(id)';
CREATE FUNCTION continues_cancelled(n int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF n = 0 THEN
        PERFORM durable_call('cancels', jsonb_build_array(durable_instance_id()));
        PERFORM durable_continue_as_new('[1]');
    END IF;
    PERFORM durable_call('act', '["continued"]');
    RETURN 'not cancelled';
END $$;
SELECT durable_register('continues'), durable_register('continues_cancelled');
SELECT durable_start('continues_cancelled', id => 'cancelled');
CALL durable_work();
SELECT run, status FROM durable.instances WHERE id = 'cancelled' ORDER BY run;
-- the next run has a say in that, as the one before would have had
CREATE FUNCTION continues_caught(n int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF n = 0 THEN
        PERFORM durable_call('cancels', jsonb_build_array(durable_instance_id()));
        PERFORM durable_continue_as_new('[1]');
    END IF;
    PERFORM durable_wait_signal('s');
    RETURN 'not cancelled';
EXCEPTION WHEN SQLSTATE 'WF002' THEN
    PERFORM durable_call('act', '["cleaned up"]', shielded => true);
    RETURN 'caught';
END $$;
SELECT durable_register('continues_caught');
SELECT durable_start('continues_caught', id => 'caught');
CALL durable_work();
SELECT run, status, result FROM durable.instances WHERE id = 'caught' ORDER BY run;
SELECT event, name FROM durable.events WHERE id = 'caught' AND run = 2 ORDER BY seq;
-- its own pause, too
CREATE FUNCTION pauses(id text) RETURNS bool LANGUAGE sql AS 'SELECT durable_pause(id)';
CREATE FUNCTION continues_paused(n int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF n = 0 THEN
        PERFORM durable_call('pauses', jsonb_build_array(durable_instance_id()));
        PERFORM durable_continue_as_new('[1]');
    END IF;
    RETURN 'resumed';
END $$;
SELECT durable_register('continues_paused');
SELECT durable_start('continues_paused', id => 'paused');
CALL durable_work();
SELECT run, status FROM durable.instances WHERE id = 'paused' ORDER BY run;
SELECT durable_resume('paused');
CALL durable_work();
SELECT durable_result('paused');

-- G5: the timeout is that of all runs
SELECT durable_start('collects', '[1]', id => 'timeout', timeout => '1 hour');
CALL durable_work();
SELECT durable_signal('timeout', 's');
CALL durable_work();
SELECT count(*), count(DISTINCT deadline) FROM durable.instances WHERE id = 'timeout';
SELECT durable_terminate('timeout');

-- H2: a child that continues as new tells its parent when the last run ends
CREATE FUNCTION parent() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call_child('counts', '{"n": 1}', id => 'child'); END $$;
SELECT durable_register('parent');
SELECT durable_start('parent', id => 'parent');
CALL durable_work();
SELECT status, jsonb_array_length(result) FROM durable.instances WHERE id = 'parent';
SELECT id, run, parent_id FROM durable.instances WHERE id = 'child' ORDER BY run;

-- H4: not with open children
CREATE FUNCTION open_child() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_spawn_child('collects', '[]', id => 'open');
    PERFORM durable_continue_as_new();
EXCEPTION WHEN SQLSTATE 'WF005' THEN
    RETURN SQLERRM;
END $$;
SELECT durable_register('open_child');
SELECT durable_start('open_child', id => 'open child');
CALL durable_work();
SELECT durable_result('open child');

-- the definition is the current one; an input that does not fit, or a workflow that is gone, holds
CREATE FUNCTION renewed(n int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_wait_signal('go');
    PERFORM durable_continue_as_new(jsonb_build_object('n', n + 1));
END $$;
SELECT durable_register('renewed');
SELECT durable_start('renewed', id => 'renewed');
CALL durable_work();
SELECT durable_signal('renewed', 'go');
CALL durable_work();
SELECT run, status FROM durable.instances WHERE id = 'renewed' ORDER BY run;
CREATE FUNCTION misfits(n int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_continue_as_new('{"m": 1}'); END $$;
SELECT durable_register('misfits');
SELECT durable_start('misfits', id => 'misfits');
CALL durable_work();
SELECT run, status, reason FROM durable.instances WHERE id = 'misfits';
CREATE OR REPLACE FUNCTION misfits(n int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF n = 0 THEN PERFORM durable_continue_as_new('{"n": 1}'); END IF;
    RETURN 'fits';
END $$;
SELECT durable_resume('misfits');
CALL durable_work();
SELECT durable_result('misfits');

-- I6
CREATE FUNCTION continues_null() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_continue_as_new(NULL); END $$;
SELECT durable_register('continues_null');
SELECT durable_start('continues_null', id => 'null');
CALL durable_work();
SELECT durable_result('null');
SELECT durable_continue_as_new();
