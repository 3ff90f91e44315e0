-- Replay: the body runs again on each pass, activities do not.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA replay;
SET search_path = replay, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql
    AS 'INSERT INTO effect (what) VALUES (what) RETURNING what';

-- A2: code between primitives runs on each pass, activities once
CREATE FUNCTION three_steps() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a jsonb; b jsonb; c jsonb;
BEGIN
    RAISE NOTICE 'pass begins, replaying: %', durable_is_replaying();
    a := durable_call('note', '{"what": "a"}');
    b := durable_call('note', jsonb_build_object('what', a ->> 0));
    c := durable_call('note', '["c"]');
    RETURN jsonb_build_array(a, b, c);
END $$;
SELECT durable_register('three_steps');
SELECT durable_start('three_steps', id => 'three');
SELECT status, result FROM durable.instances WHERE id = 'three';
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'three';
SELECT what FROM effect ORDER BY n;
SELECT seq, position, event, name, step_id, args, result FROM durable.events WHERE id = 'three' ORDER BY seq;
-- one row for each step
SELECT position, step_id, kind, name, state, attempts, args, result FROM durable.steps WHERE id = 'three' ORDER BY position;

-- driving again does nothing
CALL durable_work();
SELECT count(*) FROM effect;
SELECT durable_result('three');

-- A1: with its whole history an instance runs no activity and ends as before
UPDATE durable_internal.instance SET end_seq = NULL, ended_at = NULL, status = 'pending' WHERE id = 'three';
DELETE FROM durable_internal.history WHERE event = 'WorkflowCompleted';
SELECT durable_run('three');
SELECT durable_result('three');
SELECT count(*) FROM effect;

-- A3: SQL NULL and JSON null are hits, and told apart
CREATE FUNCTION give_null() RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO effect (what) VALUES ('null'); SELECT NULL::jsonb $$;
CREATE FUNCTION give_json_null() RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO effect (what) VALUES ('json null'); SELECT 'null'::jsonb $$;
CREATE FUNCTION nulls() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a jsonb := durable_call('give_null');
    b jsonb := durable_call('give_json_null');
    c jsonb := durable_call('note', '["after"]');
BEGIN
    RETURN jsonb_build_object('a is null', a IS NULL, 'b is null', b IS NULL, 'b', b);
END $$;
TRUNCATE effect;
SELECT durable_register('nulls');
SELECT durable_start('nulls', id => 'nulls');
CALL durable_work();
SELECT durable_result('nulls');
SELECT what FROM effect ORDER BY n;

-- A4: a workflow that returns NULL, or nothing, completes
CREATE FUNCTION returns_null() RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION returns_nothing() RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
SELECT durable_register('returns_null'), durable_register('returns_nothing');
SELECT durable_start('returns_null', id => 'null'), durable_start('returns_nothing', id => 'nothing');
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE id IN ('null', 'nothing') ORDER BY id;

-- A5: ids of steps
CREATE FUNCTION step_ids() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3 LOOP
        PERFORM durable_call('note', jsonb_build_array(i::text));
    END LOOP;
    PERFORM durable_call('note', '["mine"]', step_id => 'mine');
    PERFORM durable_call('note', '["five"]', step_id => 'note:5');
    PERFORM durable_call('note', '["six"]');
    PERFORM durable_sql('SELECT 1 AS one');
    BEGIN
        PERFORM durable_call('note', '["again"]', step_id => 'mine');
    EXCEPTION WHEN SQLSTATE 'WF008' THEN
        PERFORM durable_call('note', '["caught"]', step_id => 'caught');
    END;
END $$;
SELECT durable_register('step_ids');
SELECT durable_start('step_ids', id => 'ids');
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'ids';
SELECT position, step_id, args FROM durable.steps WHERE id = 'ids' ORDER BY position;

-- A6: the history has an order of its own
SELECT seq, seq = lag(seq) OVER (ORDER BY seq) + 1 AS next, at >= lag(at) OVER (ORDER BY seq) AS later
  FROM durable.events WHERE id = 'ids' AND seq BETWEEN 1 AND 4 ORDER BY seq;

-- A17: what was called in a block that is rolled back stays called
CREATE FUNCTION blocks() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a jsonb;
BEGIN
    BEGIN
        a := durable_call('note', '["in the block"]');
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        a := jsonb_build_array(a, durable_call('note', '["in the handler"]'));
    END;
    RETURN jsonb_build_array(a, durable_call('note', '["after it"]'));
END $$;
TRUNCATE effect;
SELECT durable_register('blocks');
SELECT durable_start('blocks', id => 'blocks');
CALL durable_work();
SELECT durable_result('blocks');
SELECT what FROM effect ORDER BY n;

-- A15: OTHERS swallows no wait; it does catch an activity's error
CREATE FUNCTION broken() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
CREATE FUNCTION others() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    said text[];
BEGIN
    FOR i IN 1..2 LOOP
        BEGIN
            PERFORM durable_call('note', jsonb_build_array('round ' || i));
            PERFORM durable_sleep('0');
            PERFORM durable_call('broken', retry => durable_retry_policy(max_attempts => 1));
        EXCEPTION WHEN OTHERS THEN
            said := said || (SQLERRM || ' ' || i);
        END;
    END LOOP;
    RETURN said;
END $$;
TRUNCATE effect;
SELECT durable_register('others');
SELECT durable_start('others', id => 'others');
CALL durable_work();
SELECT durable_result('others');
SELECT what FROM effect ORDER BY n;

-- a body that catches the yield all the same comes to the same end
CREATE FUNCTION swallows() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a jsonb;
BEGIN
    BEGIN
        a := durable_call('note', '["swallowed"]');
    EXCEPTION WHEN query_canceled THEN
        RETURN 'not yet';
    END;
    RETURN 'done ' || (a ->> 0);
END $$;
TRUNCATE effect;
SELECT durable_register('swallows');
SELECT durable_start('swallows', id => 'swallows');
CALL durable_work();
SELECT durable_result('swallows');
SELECT what FROM effect ORDER BY n;

-- one that does so for ever is held
CREATE FUNCTION insists() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        BEGIN
            PERFORM durable_wait_signal('never');
        EXCEPTION WHEN query_canceled THEN
            NULL;
        END;
    END LOOP;
END $$;
SELECT durable_register('insists');
SELECT durable_start('insists', id => 'insists');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'insists';

-- a function pass leaves no effect: not even that of NOTIFY or a temporary table
CREATE FUNCTION litters() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY durable_test;
    CREATE TEMP TABLE litter ();
    INSERT INTO effect (what) VALUES ('body');
    PERFORM durable_call('note', '["activity"]');
END $$;
TRUNCATE effect;
SELECT durable_register('litters', sandbox => 'off');
SELECT durable_start('litters', id => 'litters');
LISTEN durable_test;
CALL durable_work();
UNLISTEN durable_test;
SELECT status FROM durable.instances WHERE id = 'litters';
SELECT what FROM effect ORDER BY n;
SELECT to_regclass('pg_temp.litter');

-- primitives outside, drivers inside
SELECT durable_call('note', '["no"]');
SELECT three_steps();
SELECT durable_now();
CALL durable_step('note', '["no"]');
SELECT durable_attempt();
CREATE FUNCTION calls_inside() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('note', '["no"]'); END $$;
CREATE FUNCTION runs_inside() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN durable_run('three'); END $$;
CREATE FUNCTION starts_inside() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN durable_start('three_steps', id => 'child'); END $$;
CREATE FUNCTION nests() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    said jsonb := '[]';
    activity text;
BEGIN
    FOREACH activity IN ARRAY '{calls_inside,runs_inside,starts_inside}'::text[] LOOP
        BEGIN
            said := said || durable_call(activity, retry => durable_retry_policy(max_attempts => 1));
        EXCEPTION WHEN OTHERS THEN
            said := said || to_jsonb(SQLSTATE || ' ' || SQLERRM);
        END;
    END LOOP;
    RETURN said;
END $$;
SELECT durable_register('nests');
SELECT durable_start('nests', id => 'nests');
CALL durable_work(1);
SELECT jsonb_pretty(durable_result('nests'));
SELECT durable_status('child');
SET client_min_messages = warning;
CALL durable_work();
RESET client_min_messages;

-- CALL durable_work() commits, so it must stand alone
DO 'BEGIN CALL durable_work(); END';
BEGIN;
CALL durable_work();
ROLLBACK;
CALL durable_work(0);

-- A11: one activation reads the history once (and each of its other tables)
CREATE FUNCTION history_scans() RETURNS bigint LANGUAGE sql
    AS $$ SELECT seq_scan + idx_scan FROM pg_stat_xact_all_tables WHERE relname = 'history' $$;
SELECT durable_start('three_steps', id => 'scans');
CREATE TABLE scans AS SELECT 0::bigint AS before, 0::bigint AS after;
BEGIN;
UPDATE scans SET before = history_scans();
SELECT durable_run('scans');
UPDATE scans SET after = history_scans();
COMMIT;
SELECT after - before AS scans FROM scans;
