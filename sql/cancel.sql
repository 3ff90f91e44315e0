-- Cancel, terminate, the timeout of a workflow.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA cancel;
SET search_path = cancel, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO effect (what) VALUES ($1) RETURNING what';
CREATE FUNCTION never() RETURNS text LANGUAGE sql AS 'SELECT (1 / 0)::text';
CREATE FUNCTION is_set(state jsonb) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT state ? ''set''';
-- all that happened to an instance behind its start
CREATE FUNCTION tape(text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(event, ' ' ORDER BY run, seq) FROM durable.events WHERE id = $1 AND seq > 1 $$;
CREATE VIEW outcome AS
    SELECT id, status, result, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS message, error ->> 'detail' AS detail
      FROM durable.instances;

-- G1: one that waits is cancelled at once, whatever it waits for
CREATE FUNCTION child() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_wait_signal('go'); RETURN 'child'; END $$;
CREATE FUNCTION waits(kind text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    CASE kind
        WHEN 'timer' THEN PERFORM durable_sleep('1 hour');
        WHEN 'signal' THEN PERFORM durable_wait_signal('go');
        WHEN 'event' THEN PERFORM durable_wait_event('it');
        WHEN 'condition' THEN PERFORM durable_wait_until('is_set');
        WHEN 'child' THEN PERFORM durable_call_child('child');
        WHEN 'await' THEN PERFORM durable_await(durable_timer('1 hour'));
        WHEN 'any' THEN PERFORM durable_await_any(ARRAY[durable_timer('1 hour'), durable_signal_handle('go')]);
        WHEN 'backoff' THEN PERFORM durable_call('never', retry => durable_retry_policy(initial => '1 hour'));
    END CASE;
    RETURN 'not cancelled';
END $$;
SELECT durable_register('child'), durable_register('waits');
SELECT count(durable_start('waits', to_jsonb(kind), id => kind))
  FROM unnest('{timer,signal,event,condition,child,await,any,backoff}'::text[]) kind;
CALL durable_work();
SELECT id, status FROM durable.instances ORDER BY id;
SELECT bool_and(durable_cancel(id, 'not wanted')) AS requested FROM durable.instances WHERE workflow = 'waits';
SELECT id, kind, payload FROM durable.messages WHERE id = 'timer';
CALL durable_work();
SELECT *, tape(id) FROM outcome ORDER BY id;
-- E2, G2: nothing is left behind
SELECT (SELECT count(*) FROM durable_internal.ready) AS ready, (SELECT count(*) FROM durable_internal.timer) AS timers,
       (SELECT count(*) FROM durable_internal.inbox) AS messages, (SELECT count(*) FROM durable_internal.subscription) AS subscriptions;
SELECT id, kind, state FROM durable.steps WHERE id IN ('timer', 'backoff', 'child') ORDER BY id;
SELECT durable_result('timer');

-- G2: no change to what has ended, and twice is once
SELECT durable_cancel('timer'), durable_terminate('timer');
SELECT tape('timer');
SELECT durable_start('waits', '"signal"', id => 'twice');
CALL durable_work();
SELECT durable_cancel('twice', 'first'), durable_cancel('twice', 'second');
CALL durable_work();
SELECT detail, tape(id) FROM outcome WHERE id = 'twice';
-- durable: with its transaction, or not at all
SELECT durable_start('waits', '"signal"', id => 'kept');
CALL durable_work();
BEGIN;
SELECT durable_cancel('kept'), durable_terminate('kept');
ROLLBACK;
CALL durable_work();
SELECT durable_status('kept');
SELECT durable_signal('kept', 'go');
CALL durable_work();
SELECT durable_result('kept');

-- G1: before it has begun: at its first primitive
CREATE FUNCTION begins() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('act', '["begun"]');
    RETURN 'begun';
END $$;
SELECT durable_register('begins');
SELECT durable_start('begins', id => 'begins'), durable_start('begins', id => 'later', start_at => now() + '1 day');
SELECT durable_cancel('begins'), durable_cancel('later');
CALL durable_work();
SELECT id, status, tape(id) FROM outcome WHERE id IN ('begins', 'later') ORDER BY id;
SELECT count(*) FROM effect;
-- driven by durable_run, too
SELECT durable_start('begins', id => 'run'), durable_start('waits', '"timer"', id => 'run waits');
SELECT durable_run('run waits');
SELECT durable_cancel('run'), durable_cancel('run waits');
SELECT durable_run('run'), durable_run('run waits');
SELECT count(*) FROM effect;

-- G1: one that runs: at its next primitive
CREATE FUNCTION cancels(id text) RETURNS bool LANGUAGE sql AS 'SELECT durable_cancel(id, ''by a step'')';
CREATE FUNCTION running() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('cancels', jsonb_build_array(durable_instance_id()));
    PERFORM durable_call('act', '["not reached"]');
    RETURN 'not cancelled';
END $$;
CREATE PROCEDURE running_linear() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('cancels', jsonb_build_array(durable_instance_id()));
    CALL durable_step('act', '["not reached"]');
END $$;
SELECT durable_register('running'), durable_register('running_linear');
SELECT durable_start('running', id => 'running'), durable_start('running_linear', id => 'linear'), durable_start('running', id => 'running inside');
SELECT durable_run('running inside');
CALL durable_work();
SELECT id, status, detail, tape(id) FROM outcome WHERE id IN ('running', 'linear', 'running inside') ORDER BY id;
SELECT count(*) FROM effect;

-- G3: WF002 again at each primitive that is not shielded; clean-up steps; caught and returned is completed
CREATE FUNCTION cleans_up(mode text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got text[] := '{}';
BEGIN
    got := got || durable_cancel_requested()::text;
    BEGIN
        PERFORM durable_wait_signal('never');
    EXCEPTION WHEN SQLSTATE 'WF002' THEN
        got := got || format('wait: %s', SQLERRM);
    END;
    got := got || durable_cancel_requested()::text;
    BEGIN PERFORM durable_call('act', '["unshielded"]'); EXCEPTION WHEN OTHERS THEN got := got || format('call: %s', SQLSTATE); END;
    BEGIN PERFORM durable_sql('SELECT 1'); EXCEPTION WHEN OTHERS THEN got := got || format('sql: %s', SQLSTATE); END;
    BEGIN PERFORM durable_sleep('0'); EXCEPTION WHEN OTHERS THEN got := got || format('sleep: %s', SQLSTATE); END;
    BEGIN PERFORM durable_sleep_until('2001-01-01'); EXCEPTION WHEN OTHERS THEN got := got || format('sleep_until: %s', SQLSTATE); END;
    BEGIN PERFORM durable_wait_event('never'); EXCEPTION WHEN OTHERS THEN got := got || format('event: %s', SQLSTATE); END;
    BEGIN PERFORM durable_subscribe('never'); EXCEPTION WHEN OTHERS THEN got := got || format('subscribe: %s', SQLSTATE); END;
    BEGIN PERFORM durable_wait_until('is_set'); EXCEPTION WHEN OTHERS THEN got := got || format('until: %s', SQLSTATE); END;
    BEGIN PERFORM durable_timer('0'); EXCEPTION WHEN OTHERS THEN got := got || format('timer: %s', SQLSTATE); END;
    BEGIN PERFORM durable_signal_handle('x'); EXCEPTION WHEN OTHERS THEN got := got || format('signal_handle: %s', SQLSTATE); END;
    BEGIN PERFORM durable_spawn_child('child'); EXCEPTION WHEN OTHERS THEN got := got || format('spawn: %s', SQLSTATE); END;
    BEGIN PERFORM durable_call_child('child'); EXCEPTION WHEN OTHERS THEN got := got || format('call_child: %s', SQLSTATE); END;
    BEGIN PERFORM durable_await_all('{}'); EXCEPTION WHEN OTHERS THEN got := got || format('await_all: %s', SQLSTATE); END;
    BEGIN PERFORM durable_start('child'); EXCEPTION WHEN OTHERS THEN got := got || format('start: %s', SQLSTATE); END;
    BEGIN PERFORM durable_signal('x', 'y'); EXCEPTION WHEN OTHERS THEN got := got || format('signal: %s', SQLSTATE); END;
    PERFORM durable_call('act', to_jsonb(ARRAY['clean up ' || mode]), shielded => true);
    PERFORM durable_sql('INSERT INTO effect (what) VALUES ($1)', to_jsonb(ARRAY['and sql ' || mode]), shielded => true);
    IF mode = 'raises' THEN
        PERFORM durable_sleep('0');
    ELSIF mode = 'own error' THEN
        RAISE EXCEPTION 'after the clean-up';
    ELSIF mode = 'raises its own' THEN
        RAISE EXCEPTION 'cancelled by me' USING ERRCODE = 'WF002';
    END IF;
    RETURN to_jsonb(got);
END $$;
SELECT durable_register('cleans_up');
SELECT count(durable_start('cleans_up', to_jsonb(mode), id => mode)) FROM unnest('{returns,raises,own error,raises its own}'::text[]) mode;
CALL durable_work();
SELECT bool_and(durable_cancel(id)) FROM durable.instances WHERE workflow = 'cleans_up';
CALL durable_work();
SELECT id, status, sqlstate, message FROM outcome WHERE id IN (SELECT id FROM durable.instances WHERE workflow = 'cleans_up') ORDER BY id;
SELECT unnest(ARRAY(SELECT jsonb_array_elements_text(durable_result('returns')))) AS got;
SELECT what FROM effect ORDER BY what;
SELECT tape('returns');

-- G3: a shielded step that has to be tried again is not interrupted
CREATE FUNCTION second_time() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF durable_attempt() < 2 THEN RAISE EXCEPTION 'not yet'; END IF;
    RETURN 'done';
END $$;
CREATE FUNCTION shielded() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := durable_call('second_time', retry => durable_retry_policy(initial => '1 hour'), shielded => true);
BEGIN
    RETURN format('%s, %s', got, durable_cancel_requested());
END $$;
SELECT durable_register('shielded');
SELECT durable_start('shielded', id => 'shielded');
CALL durable_work();
SELECT durable_cancel('shielded');
CALL durable_work();
SELECT durable_status('shielded');
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'ActivityRetryScheduled';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status, result, tape(id) FROM outcome WHERE id = 'shielded';

-- G3: in a procedure
CREATE PROCEDURE cleans_linear() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('act', '["linear before"]');
    BEGIN
        PERFORM durable_sleep('1 hour');
    EXCEPTION WHEN SQLSTATE 'WF002' THEN
        NULL;
    END;
    CALL durable_step('act', '["linear clean up"]', shielded => true);
    CALL durable_step('act', '["linear after"]');
END $$;
SELECT durable_register('cleans_linear');
SELECT durable_start('cleans_linear', id => 'cleans linear');
CALL durable_work();
SELECT durable_cancel('cleans linear');
CALL durable_work();
SELECT status, tape(id) FROM outcome WHERE id = 'cleans linear';
SELECT what FROM effect WHERE what LIKE 'linear%' ORDER BY n;

-- G3: a body that swallows it in a loop does not run for ever
CREATE FUNCTION stubborn() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        BEGIN
            PERFORM durable_wait_signal('never');
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
END $$;
SELECT durable_register('stubborn');
SELECT durable_start('stubborn', id => 'stubborn');
CALL durable_work();
SELECT durable_cancel('stubborn');
CALL durable_work();
SELECT status, sqlstate, message, detail FROM outcome WHERE id = 'stubborn';

-- G4: terminate runs no code
CREATE FUNCTION unstoppable() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM durable_wait_signal('never');
    EXCEPTION WHEN SQLSTATE 'WF002' THEN
        PERFORM durable_call('act', '["code ran"]', shielded => true);
    END;
    RETURN 'survived';
END $$;
CREATE FUNCTION diverges() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_call('no_such_activity'); RETURN 'x'; END $$;
SELECT durable_register('unstoppable'), durable_register('diverges');
SELECT durable_start('unstoppable', id => 'terminated'), durable_start('unstoppable', id => 'terminated paused'),
       durable_start('diverges', id => 'terminated held');
CALL durable_work();
SELECT durable_start('begins', id => 'terminated pending'), durable_start('begins', id => 'terminated delayed', start_at => now() + '1 day');
SELECT durable_pause('terminated paused');
SELECT id, status FROM outcome WHERE id LIKE 'terminated%' ORDER BY id;
SELECT id, durable_terminate(id, 'enough') FROM durable.instances WHERE id LIKE 'terminated%' ORDER BY id;
SELECT *, tape(id) FROM outcome WHERE id LIKE 'terminated%' ORDER BY id;
CALL durable_work();
SELECT count(*) FROM effect WHERE what IN ('code ran', 'begun');
SELECT durable_terminate('terminated'), durable_resume('terminated paused');
SELECT (SELECT count(*) FROM durable_internal.ready) AS ready, (SELECT count(*) FROM durable_internal.timer) AS timers;
-- by a step of its own
CREATE FUNCTION terminates(id text) RETURNS bool LANGUAGE sql AS 'SELECT durable_terminate(id)';
CREATE FUNCTION suicidal() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('terminates', jsonb_build_array(durable_instance_id()));
    PERFORM durable_call('act', '["code ran"]', shielded => true);
    RETURN 'survived';
END $$;
SELECT durable_register('suicidal');
SELECT durable_start('suicidal', id => 'suicidal');
CALL durable_work();
SELECT status, message, tape(id) FROM outcome WHERE id = 'suicidal';

-- G5: the timeout of a start, and of a workflow
CREATE FUNCTION slow(what text) RETURNS text LANGUAGE sql AS 'SELECT pg_sleep(0.2); SELECT what';
CREATE FUNCTION times_out() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_wait_signal('never', '1 day'); RETURN 'x'; END $$;
CREATE FUNCTION slow_steps() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('slow', '["1"]');
    PERFORM durable_call('act', '["after the deadline"]', shielded => true);
    RETURN 'x';
END $$;
CREATE PROCEDURE slow_linear() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('slow', '["1"]');
    CALL durable_step('act', '["after the deadline"]', shielded => true);
END $$;
SELECT durable_register('times_out', timeout => '1 hour'), durable_register('slow_steps'), durable_register('slow_linear');
SELECT durable_start('times_out', id => 'hour'), durable_start('times_out', id => 'minute', timeout => '1 minute');
CALL durable_work();
SELECT id, status, (deadline - created_at)::interval(0) AS timeout, wake_at = deadline AS wakes_then
  FROM durable.instances WHERE workflow = 'times_out' ORDER BY id;
UPDATE durable_internal.instance SET deadline = now() WHERE workflow = 'times_out';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT *, tape(id) FROM outcome WHERE id IN ('hour', 'minute') ORDER BY id;
SELECT durable_result('hour');
-- a step that runs is let finish, the next one does not begin
SELECT durable_start('slow_steps', id => 'slow steps', timeout => '150 ms');
CALL durable_work();
SELECT durable_start('slow_linear', id => 'slow linear', timeout => '150 ms');
CALL durable_work();
SELECT id, status, tape(id) FROM outcome WHERE id LIKE 'slow%' ORDER BY id;
SELECT count(*) FROM effect WHERE what = 'after the deadline';
-- what was late before it began does not begin
SELECT durable_start('begins', id => 'late', timeout => '1 ms');
SELECT pg_sleep(0.01);
CALL durable_work();
SELECT status, tape(id) FROM outcome WHERE id = 'late';

-- I6: what is wrong with the arguments
SELECT durable_cancel(NULL);
SELECT durable_cancel('nobody');
SELECT durable_cancel('hour', force => NULL);
SELECT durable_terminate(NULL);
SELECT durable_terminate('nobody');
SELECT durable_start('begins', timeout => '0');
SELECT durable_start('begins', timeout => '-1 s');
SELECT durable_register('begins', timeout => '0');
SELECT durable_cancel_requested();
BEGIN READ ONLY;
SELECT durable_cancel('hour');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable_terminate('hour');
ROLLBACK;
