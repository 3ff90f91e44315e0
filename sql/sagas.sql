-- Compensations.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA sagas;
SET search_path = sagas, public;

CREATE TABLE done (n serial, what text);
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO done (what) VALUES (what) RETURNING upper(what)';
CREATE FUNCTION undo(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO done (what) VALUES ('undo ' || what) $$;
CREATE FUNCTION undo_whole(step jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO done (what) VALUES ('undo ' || step::text) $$;
CREATE FUNCTION undo_named(result text, what text DEFAULT 'nothing') RETURNS void LANGUAGE sql
    AS $$ INSERT INTO done (what) VALUES (format('undo what=%s result=%s', what, result)) $$;
CREATE FUNCTION breaks() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
-- What was done, in the order in which it was.
CREATE FUNCTION told() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    all_of_it text := (SELECT string_agg(what, ', ' ORDER BY n) FROM done);
BEGIN
    DELETE FROM done;
    RETURN all_of_it;
END $$;
CREATE VIEW steps AS
    SELECT id, run, position, step_id, kind, name, state, attempts, error ->> 'message' AS error FROM durable.steps;

-- F1: the newest first; what failed or was not reached has none
CREATE FUNCTION three() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo');
    PERFORM durable_call('note', '{"what": "plain"}');
    PERFORM durable_call('note', '{"what": "b"}', compensate => 'undo');
    PERFORM durable_call('breaks', retry => '{"max_attempts": 1}', compensate => 'undo');
    PERFORM durable_call('note', '{"what": "c"}', compensate => 'undo');
END $$;
SELECT durable_register('three');
SELECT durable_start('three', id => 'three');
CALL durable_work();
SELECT told();
SELECT status, error ->> 'message' AS error, compensation FROM durable.instances WHERE id = 'three';
SELECT position, step_id, kind, name, state, attempts FROM steps WHERE id = 'three' ORDER BY position, kind;
SELECT event, position, name, step_id, data FROM durable.events WHERE id = 'three' AND event ~ 'Comp.*n|Failed' ORDER BY seq;
-- the error is that of the workflow
SELECT durable_result('three');
-- G7: nothing to go on from once something was undone
SELECT durable_retry('three');
-- one that completes undoes nothing
CREATE FUNCTION completes() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo');
    PERFORM durable_add_compensation('undo', '{"what": "added"}');
END $$;
SELECT durable_register('completes');
SELECT durable_start('completes', id => 'completes');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'completes';

-- F2: arguments and result, whole or by name, however the step got them
CREATE FUNCTION arguments() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '{"what": "object"}', compensate => 'undo_whole');
    PERFORM durable_call('note', '["array"]', compensate => 'undo_whole');
    PERFORM durable_call('note', '"scalar"', compensate => 'undo_whole');
    PERFORM durable_call('note', '{"what": "object"}', compensate => 'undo_named');
    PERFORM durable_call('note', '["array"]', compensate => 'undo_named');
    PERFORM durable_call('note', '"scalar"', compensate => 'undo_named');
    PERFORM durable_call('note', '[null]', compensate => 'undo_named');
    PERFORM durable_sql('INSERT INTO sagas.done (what) VALUES ($1)', '["sql"]', compensate => 'undo_whole');
    PERFORM durable_sql('INSERT INTO sagas.done (what) VALUES ($1)', '["sql"]', compensate => 'undo_named');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('arguments');
SELECT durable_start('arguments', id => 'arguments');
CALL durable_work();
SELECT n - min(n) OVER () AS n, what FROM done WHERE what LIKE 'undo%' ORDER BY n;
SELECT status, compensation FROM durable.instances WHERE id = 'arguments';
SELECT length(told()) > 0 AS told;

-- a registered activity's compensation; that of the call goes before it
SELECT durable_register_activity('noted', 'note', compensate => 'undo');
CREATE FUNCTION registered() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('noted', '{"what": "activity"}');
    PERFORM durable_call('noted', '{"what": "call"}', compensate => 'undo_named');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('registered');
SELECT durable_start('registered', id => 'registered');
CALL durable_work();
SELECT told();

-- F3: registered in the body once, however often it is run; A17: an exception block does not take it back
CREATE FUNCTION added() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM durable_add_compensation('undo', '{"what": "added"}');
        PERFORM durable_call('note', '{"what": "in block"}', compensate => 'undo');
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        NULL;
    END;
    PERFORM durable_call('note', '{"what": "a"}');
    PERFORM durable_wait_signal('go');
    PERFORM durable_call('note', '{"what": "b"}');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('added');
SELECT durable_start('added', id => 'added');
CALL durable_work();
SELECT durable_run('added');
SELECT durable_signal('added', 'go');
CALL durable_work();
SELECT told();
SELECT position, step_id, kind, name, state FROM steps WHERE id = 'added' ORDER BY position, step_id;
-- right before the end, too
CREATE FUNCTION added_last() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_add_compensation('undo', '{"what": "last"}');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('added_last');
SELECT durable_start('added_last', id => 'added_last');
CALL durable_work();
SELECT told();

-- F3: the point of no return
CREATE FUNCTION discards() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo');
    PERFORM durable_add_compensation('undo', '{"what": "added"}');
    PERFORM durable_discard_compensations();
    PERFORM durable_call('note', '{"what": "b"}', compensate => 'undo');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('discards');
SELECT durable_start('discards', id => 'discards');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'discards';
SELECT position, kind, name, state FROM durable.steps WHERE id = 'discards' ORDER BY position, started_at;

-- F4: it is known that undoing has begun before anything is undone; each is retried
CREATE FUNCTION undo_slowly(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO done (what) SELECT format('undo %s, status %s', what, durable_status('retries'));
    IF durable_attempt() < 3 THEN
        RAISE EXCEPTION 'not yet';
    END IF;
    RETURN durable_idempotency_key() || ' at attempt ' || durable_attempt();
END $$;
CREATE FUNCTION retries() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo_slowly');
    PERFORM durable_call('note', '{"what": "b"}', compensate => 'undo');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('retries', activity_retry => durable_retry_policy(initial => '1 h', max_interval => '1 h'));
SELECT durable_start('retries', id => 'retries');
CALL durable_work();
SELECT status, wake_at > now() + '50 min' AS later, awaits FROM durable.instances WHERE id = 'retries';
SELECT position, step_id, state, attempts, error FROM steps WHERE id = 'retries' AND kind = 'compensation';
-- it can be paused meanwhile
SELECT durable_pause('retries');
SELECT status FROM durable.instances WHERE id = 'retries';
SELECT durable_resume('retries');
SELECT status FROM durable.instances WHERE id = 'retries';
CREATE PROCEDURE hurry() LANGUAGE plpgsql AS $$
BEGIN
    UPDATE durable_internal.history SET wake_at = now() WHERE event ~ 'RetryScheduled$' AND wake_at > now();
    UPDATE durable_internal.timer SET wake_at = now();
END $$;
CALL hurry();
CALL durable_work();
CALL hurry();
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'retries';
SELECT step_id, state, attempts, result FROM durable.steps WHERE id = 'retries' AND kind = 'compensation' ORDER BY position;

-- F6: one that fails for good: the others run, and the end tells
CREATE FUNCTION undo_never(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_fail('cannot undo ' || what); END $$;
CREATE FUNCTION fails(compensations text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c text;
BEGIN
    FOREACH c IN ARRAY compensations LOOP
        PERFORM durable_call('note', '{"what": "x"}', compensate => c);
    END LOOP;
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('fails');
SELECT durable_start('fails', '[["undo", "undo_never", "undo"]]', id => 'partial'),
       durable_start('fails', '[["undo_never", "undo_never"]]', id => 'none');
CALL durable_work();
SELECT told();
SELECT id, status, error ->> 'message' AS error, compensation FROM durable.instances WHERE workflow = 'fails' ORDER BY id;
SELECT id, position, step_id, state, attempts, error FROM steps WHERE id IN ('partial', 'none') AND kind = 'compensation' ORDER BY id, position;
SELECT id, data FROM durable.events WHERE id IN ('partial', 'none') AND event = 'WorkflowFailed' ORDER BY id;
-- or the instance is held until that was seen to
SELECT durable_register('fails', on_compensation_failure => 'hold');
SELECT durable_start('fails', '[["undo", "undo_never", "undo"]]', id => 'hold');
CALL durable_work();
SELECT told();
SELECT status, reason, compensation FROM durable.instances WHERE id = 'hold';
-- nothing was mended
SELECT durable_resume('hold');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'hold';
SELECT position, step_id, state, attempts FROM steps WHERE id = 'hold' AND kind = 'compensation' ORDER BY position;
CREATE OR REPLACE FUNCTION undo_never(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO done (what) VALUES ('mended ' || what) $$;
SELECT durable_resume('hold');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'hold';

-- D13: a compensation that is not there holds the instance, which goes on when it is
SELECT durable_register('fails');
SELECT durable_start('fails', '[["undo", "undo_later"]]', id => 'unknown');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'unknown';
CREATE FUNCTION undo_later(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO done (what) VALUES ('undo later') $$;
SELECT durable_resume('unknown');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'unknown';
-- one whose parameters do not fit fails without further attempts
CREATE FUNCTION undo_other(other text) RETURNS void LANGUAGE sql AS '';
SELECT durable_start('fails', '[["undo", "undo_other"]]', id => 'misfit');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'misfit';
SELECT step_id, state, attempts, error FROM steps WHERE id = 'misfit' AND kind = 'compensation' ORDER BY position;

-- F7: cancelled and timed out ones are undone too
CREATE FUNCTION waits() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo');
    PERFORM durable_wait_signal('go');
END $$;
SELECT durable_register('waits');
SELECT durable_start('waits', id => 'cancelled'), durable_start('waits', id => 'late', timeout => '1 h'), durable_start('waits', id => 'terminated');
CALL durable_work();
SELECT durable_cancel('cancelled', 'no need'), durable_terminate('terminated');
UPDATE durable_internal.instance SET deadline = now() WHERE id = 'late';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT told();
SELECT id, status, error ->> 'message' AS error, compensation FROM durable.instances WHERE workflow = 'waits' ORDER BY id;
-- a body that catches the cancel and returns has completed
CREATE FUNCTION catches() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo');
    PERFORM durable_wait_signal('go');
EXCEPTION WHEN SQLSTATE 'WF002' THEN
    RETURN 'caught';
END $$;
SELECT durable_register('catches');
SELECT durable_start('catches', id => 'catches');
CALL durable_work();
SELECT durable_cancel('catches');
CALL durable_work();
SELECT told();
SELECT status, result, compensation FROM durable.instances WHERE id = 'catches';

-- H4: carried into the next run, after that one's own
CREATE FUNCTION continues(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', jsonb_build_object('what', 'run ' || n), compensate => 'undo_named');
    PERFORM durable_add_compensation('undo', jsonb_build_object('what', 'added ' || n));
    IF n < 3 THEN
        PERFORM durable_continue_as_new(jsonb_build_object('n', n + 1));
    END IF;
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('continues');
SELECT durable_start('continues', '{"n": 1}', id => 'chain');
CALL durable_work();
SELECT told();
SELECT run, status, compensation FROM durable.instances WHERE id = 'chain' ORDER BY run;
SELECT run, position, step_id, state FROM steps WHERE id = 'chain' AND kind = 'compensation' AND state <> 'added' ORDER BY run, position, step_id;
-- one that discards, discards those as well
CREATE FUNCTION discards_carried(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF n = 1 THEN
        PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo');
        PERFORM durable_continue_as_new('{"n": 2}');
    END IF;
    PERFORM durable_discard_compensations();
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('discards_carried');
SELECT durable_start('discards_carried', '{"n": 1}', id => 'discards carried');
CALL durable_work();
SELECT told();

-- G7: a fork has none of what it was copied with
SELECT durable_fork('added', 4, 'fork');
SELECT durable_signal('fork', 'go');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'fork';

-- in a procedure
CREATE PROCEDURE saga() LANGUAGE plpgsql AS $$
DECLARE
    got jsonb;
BEGIN
    CALL durable_step('note', '{"what": "a"}', compensate => 'undo');
    CALL durable_step('note', '{"what": "b"}', got, compensate => 'undo_named');
    PERFORM durable_add_compensation('undo', '{"what": "added"}');
    CALL durable_step('noted', '{"what": "c"}');
    CALL durable_step('breaks', retry => '{"max_attempts": 1}');
END $$;
SELECT durable_register('saga');
SELECT durable_start('saga', id => 'saga');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'saga';
-- all in one transaction
SELECT durable_start('saga', id => 'run');
SELECT durable_run('run');
SELECT told();

-- bad arguments, and outside of a body
SELECT durable_add_compensation('undo');
SELECT durable_discard_compensations();
CREATE FUNCTION bad(activity text, args jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_add_compensation(activity, args); END $$;
SELECT durable_register('bad');
SELECT durable_start('bad', '[null, {}]', id => 'no activity'), durable_start('bad', '["", {}]', id => 'no name'),
       durable_start('bad', '{"activity": "undo", "args": null}', id => 'no args');
CALL durable_work();
SELECT id, status, error ->> 'message' AS error FROM durable.instances WHERE workflow = 'bad' ORDER BY id;
SELECT durable_register('three', on_compensation_failure => 'despair');
