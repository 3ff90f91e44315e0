-- Timeouts of activities, heartbeats, progress.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA timeouts;
SET search_path = timeouts, public;

CREATE TABLE done (n serial, what text);
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO done (what) VALUES (what) RETURNING what';
-- Far longer than any test may take.
CREATE FUNCTION hangs() RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO done (what) VALUES ('lost'); PERFORM pg_sleep(600); RETURN 'slept'; END $$;
CREATE FUNCTION told(error jsonb) RETURNS text LANGUAGE sql AS $$ SELECT concat_ws(' / ', error ->> 'sqlstate', error ->> 'message', error ->> 'detail') $$;

-- D9, D10: start-to-close of a call interrupts it, is caught, and does not reach the next step
CREATE FUNCTION catches() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    PERFORM durable_call('hangs', timeout => '50 ms', retry => '{"max_attempts": 1}');
    RETURN 'not reached';
EXCEPTION WHEN SQLSTATE 'WF003' THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    PERFORM durable_call('note', '["next"]');
    PERFORM durable_sql('SELECT pg_sleep(0.1)');
    RETURN concat_ws(' / ', SQLSTATE, SQLERRM, detail);
END $$;
SELECT durable_register('catches');
SELECT durable_start('catches', id => 'catches');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'catches';
SELECT step_id, state, attempts, told(error) FROM durable.steps WHERE id = 'catches' ORDER BY position;
SELECT what FROM done ORDER BY n;
-- the session goes on as before, its own timeouts too
SELECT pg_sleep(0.1);
SET statement_timeout = '50 ms';
SELECT pg_sleep(600);
RESET statement_timeout;
-- in one transaction
SELECT durable_start('catches', id => 'run');
SELECT durable_run('run'), durable_result('run');
-- D10: one that catches the interrupt meets the next, and has failed if it gets to its end
CREATE FUNCTION stubborn(times int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO done (what) VALUES ('lost');
    FOR i IN 1 .. times LOOP
        BEGIN
            PERFORM pg_sleep(600);
        EXCEPTION WHEN query_canceled THEN
            NULL;
        END;
    END LOOP;
    IF times = 1 THEN
        PERFORM pg_sleep(600);
    END IF;
    RETURN 'late';
END $$;
CREATE FUNCTION suffers(times int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('stubborn', jsonb_build_array(times), timeout => '50 ms', retry => '{"max_attempts": 1}');
END $$;
SELECT durable_register('suffers');
SELECT durable_start('suffers', '[1]', id => 'caught once'), durable_start('suffers', '[2]', id => 'caught');
CALL durable_work();
SELECT id, status, result, told(error) FROM durable.instances WHERE workflow = 'suffers' ORDER BY id;
SELECT count(*) FROM done WHERE what = 'lost';
-- one that ends in time
CREATE FUNCTION in_time() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('note', '["in time"]', timeout => '5 min', schedule_to_close => '5 min');
END $$;
SELECT durable_register('in_time');
SELECT durable_start('in_time', id => 'in time');
CALL durable_work();
SELECT durable_result('in time');

-- it counts as a failed attempt: the policy says whether there is another
CREATE FUNCTION hangs_once() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF durable_attempt() = 1 THEN
        PERFORM pg_sleep(600);
    END IF;
    RETURN durable_attempt();
END $$;
SELECT durable_register_activity('hangs_once', start_to_close => '50 ms');
CREATE FUNCTION calls(retry jsonb DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('hangs_once', retry => retry); END $$;
SELECT durable_register('calls', activity_retry => durable_retry_policy(initial => '0'));
SELECT durable_start('calls', id => 'again'), durable_start('calls', '{"non_retryable": ["WF003"]}', id => 'not again');
CALL durable_work();
SELECT id, status, result, told(error) FROM durable.instances WHERE workflow = 'calls' ORDER BY id;
SELECT event, attempt, told(error) FROM durable.events WHERE id = 'again' AND position = 1 ORDER BY seq;
-- the call's own goes before the registered one's
CREATE FUNCTION takes_a_while() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN 'done'; END $$;
SELECT durable_register_activity('takes_a_while', start_to_close => '1 ms');
CREATE FUNCTION own_limit() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('takes_a_while', timeout => '5 min'); END $$;
SELECT durable_register('own_limit');
SELECT durable_start('own_limit', id => 'own limit');
CALL durable_work();
SELECT durable_result('own limit');

-- schedule-to-close covers all attempts and what lies between them
CREATE FUNCTION breaks() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
CREATE FUNCTION hangs_at_last() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF durable_attempt() = 1 THEN
        RAISE EXCEPTION 'broken';
    END IF;
    PERFORM pg_sleep(600);
END $$;
CREATE FUNCTION all_attempts(activity text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call(activity, schedule_to_close => '500 ms');
END $$;
SELECT durable_register('all_attempts', activity_retry => durable_retry_policy(initial => '0', max_attempts => 3));
SELECT durable_start('all_attempts', '["hangs_at_last"]', id => 'all attempts');
CALL durable_work();
SELECT status, told(error) FROM durable.instances WHERE id = 'all attempts';
SELECT event, attempt, told(error) FROM durable.events WHERE id = 'all attempts' AND position = 1 ORDER BY seq;
-- no attempt is planned for a time after it
SELECT durable_register('all_attempts', activity_retry => durable_retry_policy(initial => '1 s'));
SELECT durable_start('all_attempts', '["breaks"]', id => 'too late');
CALL durable_work();
SELECT status, told(error) FROM durable.instances WHERE id = 'too late';
SELECT event, attempt FROM durable.events WHERE id = 'too late' AND position = 1 ORDER BY seq;

-- D9, D12: a heartbeat that does not come; the next attempt has the details of the last one
CREATE FUNCTION beats(beats int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF durable_heartbeat_details() IS NOT NULL THEN
        RETURN jsonb_build_object('attempt', durable_attempt(), 'details', durable_heartbeat_details());
    END IF;
    FOR i IN 1..beats LOOP
        PERFORM durable_heartbeat(to_jsonb(i));
        PERFORM durable_heartbeat();
        PERFORM pg_sleep(0.05);
    END LOOP;
    PERFORM pg_sleep(600);
END $$;
SELECT durable_register_activity('beats', heartbeat => '1 s', retry => durable_retry_policy(initial => '0'));
CREATE FUNCTION lives() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('beats', '[30]'); END $$;
SELECT durable_register('lives');
SELECT durable_start('lives', id => 'lives');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'lives';
SELECT event, attempt, told(error), data FROM durable.events WHERE id = 'lives' AND position = 1 ORDER BY seq;
-- details of an attempt that failed by itself
CREATE FUNCTION fails_once() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF durable_attempt() = 1 THEN
        PERFORM durable_heartbeat('{"rows": 5}');
        RAISE EXCEPTION 'broken';
    END IF;
    RETURN durable_heartbeat_details();
END $$;
CREATE FUNCTION goes_on() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN jsonb_build_array(durable_call('fails_once'), durable_call('fails_once'));
END $$;
SELECT durable_register('goes_on', activity_retry => durable_retry_policy(initial => '0'));
SELECT durable_start('goes_on', id => 'goes on');
CALL durable_work();
SELECT status, result, told(error) FROM durable.instances WHERE id = 'goes on';

-- a procedure's steps
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
DECLARE
    got jsonb;
BEGIN
    CALL durable_step('note', '["first"]');
    CALL durable_step('hangs_once', '{}', got, timeout => '50 ms');
    CALL durable_step('note', '["after"]', timeout => '5 min');
    CALL durable_step('hangs', timeout => '50 ms', retry => '{"max_attempts": 1}');
END $$;
SELECT durable_register('steps', activity_retry => durable_retry_policy(initial => '0'));
SELECT durable_start('steps', id => 'steps');
CALL durable_work();
SELECT status, told(error) FROM durable.instances WHERE id = 'steps';
SELECT step_id, state, attempts FROM durable.steps WHERE id = 'steps' ORDER BY position;

-- D12: a heartbeat tells that the workflow was cancelled; here the exception block takes the cancel back
CREATE FUNCTION cancels_itself() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_cancel('cancelled');
    PERFORM durable_heartbeat();
    RETURN 'not reached';
EXCEPTION WHEN SQLSTATE 'WF002' THEN
    RAISE NOTICE 'heartbeat: %', SQLERRM;
    RETURN 'told';
END $$;
CREATE FUNCTION cancelled() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('cancels_itself'); END $$;
SELECT durable_register('cancelled');
SELECT durable_start('cancelled', id => 'cancelled');
CALL durable_work();
SELECT status, result, told(error) FROM durable.instances WHERE id = 'cancelled';

-- progress is harmless where there is no place to show it
CREATE FUNCTION progresses() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_progress(1);
    PERFORM durable_progress(2, 10, 'working');
    PERFORM durable_progress(3, 10, repeat('long ', 1000));
    RETURN 'done';
END $$;
CREATE FUNCTION shows() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('progresses'); END $$;
SELECT durable_register('shows');
SELECT durable_start('shows', id => 'shows');
CALL durable_work();
SELECT durable_result('shows');
SELECT count(*) FROM durable.progress;

-- outside of activities
SELECT durable_heartbeat();
SELECT durable_heartbeat_details();
SELECT durable_progress(1);
-- bad arguments
SELECT durable_register_activity('note', start_to_close => '0');
SELECT durable_register_activity('note', schedule_to_close => '-1 s');
SELECT durable_register_activity('note', heartbeat => '0.5 ms');
SELECT durable_register_activity('note', schedule_to_start => '0');
SELECT durable_register_activity('note', start_to_close => '100 years') AS at_most;
CREATE FUNCTION bad(timeout interval, schedule_to_close interval) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('note', '["x"]', timeout => timeout, schedule_to_close => schedule_to_close);
END $$;
SELECT durable_register('bad');
SELECT durable_start('bad', '["0", null]', id => 'zero'), durable_start('bad', '[null, "-1 s"]', id => 'negative'), durable_start('bad', '[null, null]', id => 'null');
CALL durable_work();
SELECT id, status, result, told(error) FROM durable.instances WHERE workflow = 'bad' ORDER BY id;
CREATE FUNCTION no_progress() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_progress(NULL); RETURN 'done'; END $$;
CREATE FUNCTION shows_nothing() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('no_progress', retry => '{"max_attempts": 1}'); END $$;
SELECT durable_register('shows_nothing');
SELECT durable_start('shows_nothing', id => 'no progress');
CALL durable_work();
SELECT status, told(error) FROM durable.instances WHERE id = 'no progress';

-- D12: details that were read are the reader's, whatever is said after it; many cost no memory
CREATE FUNCTION replaces() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    pair jsonb;
BEGIN
    PERFORM durable_heartbeat('"first"');
    SELECT jsonb_build_array(d, durable_heartbeat_details()) INTO pair
      FROM durable_heartbeat_details() d, LATERAL (SELECT durable_heartbeat('"second"') WHERE d IS NOT NULL) x;
    FOR i IN 1..20000 LOOP
        PERFORM durable_heartbeat(jsonb_build_object('padding', repeat('x', 1000)));
    END LOOP;
    RETURN pair || to_jsonb((SELECT sum(total_bytes) < 10000000 FROM pg_backend_memory_contexts WHERE name = 'durable history'));
END $$;
CREATE FUNCTION calls_replaces() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('replaces'); END $$;
SELECT durable_register('calls_replaces');
SELECT durable_start('calls_replaces', id => 'replaces');
CALL durable_work();
SELECT durable_result('replaces');

-- steps of a procedure have the same: retries, every timeout, details, and errors that can be caught
CREATE TABLE log (n serial, what text);
CREATE FUNCTION flawed(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF durable_attempt() < 3 THEN
        RAISE EXCEPTION 'attempt %', durable_attempt();
    END IF;
    INSERT INTO log (what) VALUES (what);
    RETURN what || ' at attempt ' || durable_attempt();
END $$;
CREATE PROCEDURE in_place() LANGUAGE plpgsql AS $$
DECLARE
    got jsonb;
    told text;
BEGIN
    CALL durable_step('flawed', '["a"]', got, retry => '{"initial": 0}');
    told := got ->> 0;
    CALL durable_step('hangs_once', '{}', got, retry => '{"initial": 0}');
    CALL durable_step('beats', '[3]', got);
    told := concat_ws(', ', told, got);
    BEGIN
        CALL durable_step('hangs', timeout => '50 ms', retry => '{"max_attempts": 2, "initial": 0}');
    EXCEPTION WHEN SQLSTATE 'WF003' THEN
        told := told || ', ' || SQLERRM;
    END;
    CALL durable_step('note', to_jsonb(told));
    CALL durable_step('hangs', schedule_to_close => '50 ms', retry => '{"initial": 0}');
END $$;
SELECT durable_register('in_place');
SELECT durable_start('in_place', id => 'in place');
CALL durable_work();
SELECT status, told(error) FROM durable.instances WHERE id = 'in place';
SELECT position, step_id, state, attempts, result, told(error) FROM durable.steps WHERE id = 'in place' ORDER BY position;
SELECT count(*) AS once FROM log;
