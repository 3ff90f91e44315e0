-- Remote activities: of unknown outcome, silent, and as compensations.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA attempted;
SET search_path = attempted, public;

CREATE TABLE done (n serial, what text);
CREATE FUNCTION undo(step jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO done (what) VALUES ('undo ' || step::text) $$;
CREATE FUNCTION undo_named(what text, result text) RETURNS void LANGUAGE sql
    AS $$ INSERT INTO done (what) VALUES (format('undo %s, result %s', what, coalesce(result, 'unknown'))) $$;
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO done (what) VALUES (what) RETURNING upper(what)';
-- What was done, in the order in which it was.
CREATE FUNCTION told() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    all_of_it text := (SELECT string_agg(what, ', ' ORDER BY n) FROM done);
BEGIN
    DELETE FROM done;
    RETURN all_of_it;
END $$;
-- A client.
CREATE TABLE task (n serial, token text, activity text, args jsonb, attempt int, key text, details jsonb, heartbeat interval);
CREATE PROCEDURE take(queue text DEFAULT 'mail') LANGUAGE sql AS $$
    INSERT INTO task (token, activity, args, attempt, key, details, heartbeat) SELECT * FROM durable_task_poll(queue)
$$;
CREATE FUNCTION last() RETURNS text LANGUAGE sql AS 'SELECT token FROM task ORDER BY n DESC LIMIT 1';
-- Time passes: of leases, of limits, of the workflow, of a backoff.
CREATE PROCEDURE expire() LANGUAGE sql AS $$ UPDATE durable_internal.task SET lease_until = now() - interval '1 s' $$;
CREATE PROCEDURE pass() LANGUAGE sql AS $$
    UPDATE durable_internal.task SET scheduled_at = scheduled_at - interval '2 h', started_at = started_at - interval '2 h',
           alive_at = alive_at - interval '2 h';
    UPDATE durable_internal.history SET wake_at = now() WHERE event ~ 'RetryScheduled$' AND wake_at > now();
    UPDATE durable_internal.timer SET wake_at = now();
$$;
CREATE PROCEDURE end_time(text) LANGUAGE sql AS $$
    UPDATE durable_internal.instance SET deadline = now() WHERE id = $1;
    UPDATE durable_internal.timer SET wake_at = now();
$$;
CREATE VIEW steps AS
    SELECT id, position, step_id, kind, state, attempts, error ->> 'detail' AS detail FROM durable.steps;

SELECT durable_register_activity('send', queue => 'mail', retry => '{"max_attempts": 1}', schedule_to_start => '1 h', start_to_close => '1 h');
CREATE FUNCTION sends(attempted bool DEFAULT true, retry jsonb DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('send', '{"what": "x"}', retry => retry, compensate => 'undo', compensate_attempted => attempted);
END $$;
SELECT durable_register('sends');

-- F1: a client had it when its time was over: it may have done it
SELECT durable_start('sends', id => 'late');
CALL durable_work();
CALL take();
CALL pass();
CALL durable_work();
SELECT told();
SELECT status, error ->> 'detail' AS detail, compensation FROM durable.instances WHERE id = 'late';
SELECT position, step_id, kind, state, attempts, detail FROM steps WHERE id = 'late' ORDER BY position, kind;
SELECT event, attempt, data FROM durable.events WHERE id = 'late' AND position = 1 ORDER BY seq;
-- only on request
SELECT durable_start('sends', '{"attempted": false}', id => 'not asked for');
CALL durable_work();
CALL take();
CALL pass();
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'not asked for';
-- nobody had it
SELECT durable_start('sends', id => 'never taken');
CALL durable_work();
CALL pass();
CALL durable_work();
SELECT told();
SELECT status, error ->> 'detail' AS detail, compensation FROM durable.instances WHERE id = 'never taken';
-- the client said that it could not do it
SELECT durable_start('sends', id => 'failed');
CALL durable_work();
CALL take();
SELECT durable_task_fail(last(), 'no network');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'failed';
-- but one that had it before was not heard of again
SELECT durable_start('sends', id => 'lost');
CALL durable_work();
CALL take();
CALL expire();
CALL take();
SELECT durable_task_fail(last(), 'no network');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'lost';
-- of an earlier attempt nobody knows
SELECT durable_start('sends', '{"retry": {"max_attempts": 2, "initial": 0}}', id => 'earlier');
CALL durable_work();
CALL take();
CALL pass();
CALL durable_work();
CALL take();
SELECT durable_task_fail(last(), 'no network');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'earlier';
-- one that is known to be done has a result
SELECT durable_start('sends', '{"retry": {"max_attempts": 2, "initial": 0}}', id => 'done at last', timeout => '1 h');
CALL durable_work();
CALL take();
CALL pass();
CALL durable_work();
CALL take();
SELECT durable_task_complete(last(), '"sent"');
CALL durable_work();
SELECT told();
SELECT status, result, compensation FROM durable.instances WHERE id = 'done at last';

-- withdrawn by a cancel, with and without a client that has it
SELECT durable_start('sends', id => 'cancelled'), durable_start('sends', id => 'cancelled early');
CALL durable_work();
UPDATE durable_internal.task t SET scheduled_at = scheduled_at - interval '1 s' FROM durable_internal.instance i WHERE i.iid = t.iid AND i.id = 'cancelled';
CALL take();
SELECT durable_cancel('cancelled'), durable_cancel('cancelled early');
CALL durable_work();
SELECT told();
SELECT id, status, compensation FROM durable.instances WHERE id LIKE 'cancelled%' ORDER BY id;
SELECT id, step_id, kind, state FROM steps WHERE id LIKE 'cancelled%' ORDER BY id, position, kind;
SELECT durable_task_complete(last());

-- by the timeout of the workflow, of which the body does not hear
SELECT durable_start('sends', id => 'timed out', timeout => '1 h'), durable_start('sends', id => 'untaken', timeout => '1 h');
CALL durable_work();
UPDATE durable_internal.task t SET scheduled_at = scheduled_at - interval '1 s' FROM durable_internal.instance i WHERE i.iid = t.iid AND i.id = 'timed out';
CALL take();
CALL end_time('timed out');
CALL end_time('untaken');
CALL durable_work();
SELECT told();
SELECT id, status, compensation FROM durable.instances WHERE id IN ('timed out', 'untaken') ORDER BY id;
SELECT id, step_id, kind, state FROM steps WHERE id IN ('timed out', 'untaken') ORDER BY id, position, kind;
-- a client was faster: it is done, and is undone as such
SELECT durable_start('sends', '{"attempted": false}', id => 'in time', timeout => '1 h');
CALL durable_work();
CALL take();
SELECT durable_task_complete(last(), '"sent"');
CALL end_time('in time');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'in time';
SELECT step_id, kind, state FROM steps WHERE id = 'in time' ORDER BY position, kind;

-- of the registered activity, by name; in a procedure
SELECT durable_register_activity('sendf', queue => 'mail', retry => '{"max_attempts": 1}', start_to_close => '1 h',
    compensate => 'undo_named', compensate_attempted => true);
CREATE PROCEDURE sends_in_place() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('note', '["a"]', compensate => 'undo_named');
    CALL durable_step('sendf', '{"what": "y"}');
END $$;
SELECT durable_register('sends_in_place');
SELECT durable_start('sends_in_place', id => 'in place');
CALL durable_work();
CALL take();
CALL pass();
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'in place';
CREATE PROCEDURE sends_with_option() LANGUAGE plpgsql AS $$
DECLARE
    got jsonb;
BEGIN
    CALL durable_step('send', '{"what": "z"}', got, compensate => 'undo_named', compensate_attempted => true);
END $$;
SELECT durable_register('sends_with_option');
SELECT durable_start('sends_with_option', id => 'with option');
CALL durable_work();
CALL take();
SELECT durable_cancel('with option');
CALL durable_work();
SELECT told();

-- one that was spawned: failed by itself, and closed with its parent, with and without a client
CREATE FUNCTION spawns() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_await(durable_spawn('send', '{"what": "beside"}', compensate => 'undo_named', compensate_attempted => true));
END $$;
CREATE FUNCTION spawns_and_fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_spawn('sendf', '{"what": "first"}');
    PERFORM durable_spawn('sendf', '{"what": "second"}');
    PERFORM durable_wait_signal('go');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('spawns'), durable_register('spawns_and_fails');
SELECT durable_start('spawns', id => 'spawned');
CALL durable_work();
CALL take();
CALL pass();
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'spawned';
SELECT durable_start('spawns_and_fails', id => 'closed');
CALL durable_work();
UPDATE durable_internal.task SET scheduled_at = scheduled_at - interval '1 s' WHERE args = '{"what": "first"}';
CALL take();
SELECT durable_signal('closed', 'go');
CALL durable_work();
SELECT told();
SELECT status, compensation FROM durable.instances WHERE id = 'closed';
SELECT position, step_id, kind, state FROM steps WHERE id = 'closed' ORDER BY position, kind;
-- it was completed when its parent closed it: that is not lost, and undone with its result
CREATE FUNCTION closes_completed() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_spawn('send', '{"what": "completed"}', compensate => 'undo_named');
    PERFORM durable_wait_signal('go');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('closes_completed');
SELECT durable_start('closes_completed', id => 'completed');
CALL durable_work();
CALL take();
SELECT durable_task_complete(last(), '"sent"');
SELECT durable_terminate('completed/1.1');
SELECT durable_signal('completed', 'go');
CALL durable_work();
SELECT told();
SELECT position, step_id, kind, state FROM steps WHERE id = 'completed' ORDER BY position, kind;

-- carried into the next run
CREATE FUNCTION continues(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF n = 1 THEN
        BEGIN
            PERFORM durable_call('sendf', '{"what": "run 1"}');
        EXCEPTION WHEN SQLSTATE 'WF003' THEN
            NULL;
        END;
        PERFORM durable_continue_as_new('[2]');
    END IF;
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('continues');
SELECT durable_start('continues', '[1]', id => 'chain');
CALL durable_work();
CALL take();
CALL pass();
CALL durable_work();
SELECT told();

-- D9, D12: a client that is silent for longer than its heartbeat; what it said last is known to the next
SELECT durable_register_activity('beats', queue => 'mail', heartbeat => '1 h', retry => '{"max_attempts": 2, "initial": 0}');
CREATE FUNCTION alive() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('beats'); END $$;
SELECT durable_register('alive');
SELECT durable_start('alive', id => 'silent');
CALL durable_work();
SELECT wake_at IS NULL AS not_before_it_is_taken FROM durable.instances WHERE id = 'silent';
CALL take();
SELECT heartbeat FROM task ORDER BY n DESC LIMIT 1;
SELECT wake_at BETWEEN now() + interval '50 min' AND now() + interval '1 h' AS limited FROM durable.instances WHERE id = 'silent';
SELECT durable_task_heartbeat(last(), '{"row": 5}');
-- it was heard of: the look at it changes nothing
UPDATE durable_internal.task SET started_at = started_at - interval '3 h';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status, wake_at > now() + interval '50 min' AS limited FROM durable.instances WHERE id = 'silent';
CALL pass();
CALL durable_work();
SELECT durable_task_heartbeat(last());
CALL take();
SELECT attempt, details FROM task ORDER BY n DESC LIMIT 1;
CALL pass();
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS error, error ->> 'detail' AS detail FROM durable.instances WHERE id = 'silent';
SELECT event, attempt, error ->> 'detail' AS detail, data FROM durable.events WHERE id = 'silent' AND position = 1 ORDER BY seq;

-- F2, F4: a compensation that clients do: arguments, retries, its own key
SELECT durable_register_activity('unsend', queue => 'undo', retry => '{"max_attempts": 3, "initial": 3600, "max_interval": 3600}',
    start_to_close => '1 h', heartbeat => '1 h');
CREATE FUNCTION undone() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '["a"]', compensate => 'undo_named');
    PERFORM durable_call('note', '["b"]', compensate => 'unsend');
    PERFORM durable_add_compensation('unsend', '{"added": true}');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('undone');
SELECT durable_start('undone', id => 'undone');
CALL durable_work();
SELECT status, awaits FROM durable.instances WHERE id = 'undone';
SELECT position, compensation, queue, activity, attempt, args FROM durable.tasks WHERE id = 'undone';
CALL take('undo');
SELECT activity, args, attempt, key FROM task ORDER BY n DESC LIMIT 1;
-- neither a cancel nor a signal disturbs it
SELECT durable_cancel('undone'), durable_signal('undone', 'hello');
SELECT durable_task_heartbeat(last());
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'undone';
SELECT durable_task_complete(last());
CALL durable_work();
CALL take('undo');
SELECT activity, args, attempt, key FROM task ORDER BY n DESC LIMIT 1;
SELECT durable_task_heartbeat(last(), '{"row": 7}');
SELECT durable_task_fail(last(), 'not now');
CALL durable_work();
SELECT status, wake_at > now() + interval '50 min' AS later FROM durable.instances WHERE id = 'undone';
SELECT step_id, kind, state, attempts FROM steps WHERE id = 'undone' AND kind = 'compensation' ORDER BY position, state;
CALL pass();
CALL durable_work();
CALL take('undo');
SELECT attempt, key, details FROM task ORDER BY n DESC LIMIT 1;
-- a silent client, under the policy
CALL pass();
CALL durable_work();
CALL pass();
CALL durable_work();
CALL take('undo');
SELECT durable_task_complete(last(), '"unsent"');
CALL durable_work();
SELECT told();
SELECT status, error ->> 'message' AS error, compensation FROM durable.instances WHERE id = 'undone';
SELECT event, position, attempt, error ->> 'message' AS error, data FROM durable.events
 WHERE id = 'undone' AND event ~ '^Compensation' AND event <> 'CompensationStarted' ORDER BY seq;
SELECT step_id, kind, state, attempts FROM steps WHERE id = 'undone' AND kind = 'compensation' ORDER BY position, state;
SELECT count(*) AS left_over FROM durable_internal.task;

-- F1: of a remote step, the result of which is not taken for that of its compensation
SELECT durable_register_activity('send2', queue => 'mail', compensate => 'unsend', compensate_attempted => true);
CREATE FUNCTION sends_both() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_call('send2', '{"what": "both"}'); END $$;
SELECT durable_register('sends_both');
SELECT durable_start('sends_both', id => 'both', timeout => '1 h');
CALL durable_work();
CALL take();
CALL end_time('both');
CALL durable_work();
SELECT durable_task_complete(last(), '"too late"');
SELECT status FROM durable.instances WHERE id = 'both';
SELECT position, compensation, activity, args FROM durable.tasks WHERE id = 'both';
CALL take('undo');
SELECT durable_task_complete(last());
CALL durable_work();
SELECT status, compensation FROM durable.instances WHERE id = 'both';
SELECT step_id, kind, state FROM steps WHERE id = 'both' ORDER BY position, kind;

-- F6: one that fails for good, with the policy to hold
CREATE FUNCTION stuck() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '["c"]', compensate => 'unsend');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('stuck', on_compensation_failure => 'hold');
SELECT durable_start('stuck', id => 'stuck');
CALL durable_work();
CALL take('undo');
SELECT durable_task_fail(last(), 'cannot be undone', retryable => false);
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'stuck';
SELECT durable_resume('stuck');
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'stuck';
CALL take('undo');
SELECT attempt FROM task ORDER BY n DESC LIMIT 1;
SELECT durable_task_complete(last());
CALL durable_work();
SELECT status, compensation FROM durable.instances WHERE id = 'stuck';
-- terminated meanwhile: withdrawn
SELECT durable_start('stuck', id => 'terminated');
CALL durable_work();
CALL take('undo');
SELECT durable_terminate('terminated');
SELECT durable_task_complete(last());
SELECT status FROM durable.instances WHERE id = 'terminated';
SELECT count(*) AS left_over FROM durable_internal.task;
-- H4: of an earlier run
CREATE FUNCTION carries(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF n = 1 THEN
        PERFORM durable_call('note', '["d"]', compensate => 'unsend');
        PERFORM durable_add_compensation('unsend', '["e"]');
        PERFORM durable_continue_as_new('[2]');
    END IF;
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('carries');
SELECT durable_start('carries', '[1]', id => 'carries');
CALL durable_work();
CALL take('undo');
SELECT args, key FROM task ORDER BY n DESC LIMIT 1;
SELECT durable_task_complete(last());
CALL durable_work();
CALL take('undo');
SELECT args, key FROM task ORDER BY n DESC LIMIT 1;
SELECT durable_task_complete(last());
CALL durable_work();
SELECT run, status, compensation FROM durable.instances WHERE id = 'carries' ORDER BY run;
-- in a procedure, and in one transaction
CREATE PROCEDURE undone_in_place() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('note', '["f"]', compensate => 'unsend');
    CALL durable_step('note', '["g"]', compensate => 'undo_named');
    RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('undone_in_place');
SELECT durable_start('undone_in_place', id => 'undone in place'), durable_start('undone_in_place', id => 'run');
SELECT durable_run('run');
CALL durable_work();
CALL take('undo');
SELECT durable_task_complete(last());
CALL take('undo');
SELECT durable_task_complete(last());
SELECT durable_run('run');
CALL durable_work();
SELECT id, status, compensation FROM durable.instances WHERE id IN ('undone in place', 'run') ORDER BY id;
SELECT length(told()) > 0 AS told;

-- it was of a queue when it was begun, and is a function now
CREATE FUNCTION moved(what text) RETURNS text LANGUAGE sql AS $$ SELECT 'by a function' $$;
SELECT durable_register_activity('moved', queue => 'mail');
CREATE FUNCTION moves() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('moved', '["x"]'); END $$;
SELECT durable_register('moves');
SELECT durable_start('moves', id => 'moved');
CALL durable_work();
SELECT durable_register_activity('moved');
SELECT durable_run('moved'), durable_result('moved');
SELECT count(*) AS left_over FROM durable_internal.task;

-- G7: after durable_retry() the policy begins anew, and the numbers of the attempts go on
SELECT durable_register_activity('send', queue => 'mail', retry => '{"max_attempts": 2, "initial": 0}');
CREATE FUNCTION plain() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('send'); END $$;
CREATE FUNCTION flawed() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF durable_attempt() < 4 THEN
        RAISE EXCEPTION 'attempt %', durable_attempt();
    END IF;
    RETURN durable_attempt();
END $$;
CREATE FUNCTION local() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('flawed', retry => '{"max_attempts": 2, "initial": 0}');
END $$;
CREATE FUNCTION spawned() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_await(durable_spawn('flawed', retry => '{"max_attempts": 2, "initial": 0}'));
END $$;
SELECT durable_register('plain'), durable_register('local'), durable_register('spawned');
SELECT durable_start('local', id => 'local'), durable_start('spawned', id => 'spawned anew'), durable_start('plain', id => 'remote');
CALL durable_work();
SELECT durable_retry('local'), durable_retry('spawned anew');
CALL durable_work();
SELECT id, status, result, error ->> 'message' AS error FROM durable.instances WHERE id IN ('local', 'spawned anew') ORDER BY id;
SELECT id, step_id, state, attempts FROM steps WHERE id IN ('local', 'spawned anew') AND kind = 'activity' ORDER BY id;
SELECT seq, event, attempt FROM durable.events WHERE id = 'local' ORDER BY seq;
CALL take();
SELECT durable_task_fail(last(), 'no network', retryable => false);
CALL durable_work();
SELECT durable_retry('remote');
CALL durable_work();
CALL take();
SELECT attempt FROM task ORDER BY n DESC LIMIT 1;
SELECT durable_task_complete(last(), '"sent"');
CALL durable_work();
SELECT id, step_id, state, attempts FROM steps WHERE id = 'remote';
-- steps that were taken back are not mixed up with those in their place
CREATE TABLE weather (bad bool);
INSERT INTO weather VALUES (true);
CREATE FUNCTION charge() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT bad FROM weather) THEN
        PERFORM durable_fail('no money');
    END IF;
    RETURN 'charged';
END $$;
CREATE FUNCTION cleans_up() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM durable_call('charge');
    EXCEPTION WHEN raise_exception THEN
        PERFORM durable_call('note', '["sorry"]');
        RAISE;
    END;
    RETURN durable_call('note', '["thanks"]', step_id => 'thanks');
END $$;
SELECT durable_register('cleans_up');
SELECT durable_start('cleans_up', id => 'cleans up');
CALL durable_work();
UPDATE weather SET bad = false;
SELECT durable_retry('cleans up');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'cleans up';
SELECT position, step_id, state, attempts, args FROM durable.steps WHERE id = 'cleans up' ORDER BY position;
