-- Pause and resume: an instance, a workflow, everything.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA pause;
SET search_path = pause, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO effect (what) VALUES ($1) RETURNING what';
CREATE FUNCTION never() RETURNS text LANGUAGE sql AS 'SELECT (1 / 0)::text';
CREATE FUNCTION receives() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := jsonb_build_array(durable_wait_signal('go', '1 hour'));
BEGIN
    RETURN got || durable_call('act', jsonb_build_array('after ' || durable_instance_id()));
END $$;
CREATE FUNCTION begins() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('act', jsonb_build_array('begun ' || durable_instance_id()));
END $$;
SELECT durable_register('receives'), durable_register('begins');

-- G6: a paused instance keeps its messages; what lies under the pause is unchanged
SELECT durable_start('receives', id => 'x');
CALL durable_work();
SELECT durable_pause('x');
SELECT durable_pause('x') AS again;
SELECT durable_status('x'), durable_run('x');
SELECT status, awaits FROM durable.instances;
SELECT status, suspended FROM durable_internal.instance;
SELECT durable_signal('x', 'go', '1');
CALL durable_work();
SELECT durable_status('x');
SELECT name, payload FROM durable.messages;
SELECT durable_resume('x');
SELECT durable_resume('x') AS again;
CALL durable_work();
SELECT durable_result('x');
SELECT durable_pause('x') AS ended;
SELECT durable_resume('x');

-- G6: and its deadlines
SELECT durable_start('receives', id => 'deadline');
CALL durable_work();
CREATE TABLE deadline AS SELECT wake_at FROM durable.timers;
SELECT durable_pause('deadline');
SELECT count(*) FROM durable.timers;
SELECT durable_resume('deadline');
CALL durable_work();
SELECT wake_at = (SELECT wake_at FROM deadline) AS unmoved FROM durable.timers;
SELECT durable_pause('deadline');
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'SignalAwaited';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT durable_status('deadline');
SELECT durable_resume('deadline');
CALL durable_work();
SELECT durable_result('deadline');

-- before it has begun; a start for later stays for later
SELECT durable_start('begins', id => 'pending'), durable_start('begins', id => 'later', start_at => now() + '1 day');
SELECT durable_pause('pending'), durable_pause('later');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE workflow = 'begins' ORDER BY id;
SELECT durable_resume('pending'), durable_resume('later');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE workflow = 'begins' ORDER BY id;
SELECT durable_pause('later');
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT durable_status('later');
SELECT durable_resume('later');
CALL durable_work();
SELECT durable_status('later');

-- a retry that is waited for, a hold, a cancel
CREATE FUNCTION tries() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('never', retry => durable_retry_policy(initial => '1 hour', max_attempts => 2));
END $$;
CREATE FUNCTION lacks() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('no_such_activity'); END $$;
SELECT durable_register('tries'), durable_register('lacks');
SELECT durable_start('tries', id => 'tries'), durable_start('lacks', id => 'lacks'), durable_start('receives', id => 'cancelled');
CALL durable_work();
SELECT durable_pause('tries'), durable_pause('lacks') AS held, durable_pause('cancelled');
SELECT durable_cancel('cancelled');
CALL durable_work();
SELECT id, status, reason IS NOT NULL AS has_reason FROM durable.instances WHERE id IN ('tries', 'lacks', 'cancelled') ORDER BY id;
SELECT durable_resume('tries'), durable_resume('cancelled');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id IN ('tries', 'cancelled') ORDER BY id;
SELECT attempts, wake_at > now() AS later FROM durable.steps WHERE id = 'tries';

-- E9: with its transaction
BEGIN;
SELECT durable_pause('tries');
ROLLBACK;
SELECT durable_status('tries');

-- G6: while it runs: at its next primitive, the step that runs is finished
CREATE FUNCTION pauses(id text) RETURNS bool LANGUAGE sql AS 'SELECT durable_pause(id)';
CREATE FUNCTION running() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('pauses', jsonb_build_array(durable_instance_id()));
    RETURN durable_call('act', jsonb_build_array('behind ' || durable_instance_id()));
END $$;
CREATE PROCEDURE running_linear() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('pauses', jsonb_build_array(durable_instance_id()));
    CALL durable_step('act', jsonb_build_array('behind ' || durable_instance_id()));
END $$;
SELECT durable_register('running'), durable_register('running_linear');
SELECT durable_start('running', id => 'runs'), durable_start('running_linear', id => 'runs linear'), durable_start('running', id => 'runs inside');
SELECT durable_run('runs inside');
CALL durable_work();
SELECT id, status, (SELECT string_agg(event, ' ' ORDER BY seq) FROM durable.events e WHERE e.id = i.id) AS tape
  FROM durable.instances i WHERE id LIKE 'runs%' ORDER BY id;
SELECT what FROM effect WHERE what LIKE 'behind%';
SELECT bool_and(durable_resume(id)) FROM durable.instances WHERE id LIKE 'runs%';
CALL durable_work();
SELECT id, status FROM durable.instances i WHERE id LIKE 'runs%' ORDER BY id;
SELECT what FROM effect WHERE what LIKE 'behind%' ORDER BY what;

-- and its state is what it was when it stopped (E12)
CREATE FUNCTION sets(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT payload';
CREATE FUNCTION folds() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_on_signal('set', 'sets');
    PERFORM durable_wait_signal('go');
    PERFORM durable_call('pauses', jsonb_build_array(durable_instance_id()));
    PERFORM durable_sleep('1 ms');
    RETURN durable_state();
END $$;
SELECT durable_register('folds');
SELECT durable_start('folds', id => 'folds');
CALL durable_work();
SELECT durable_signal('folds', 'set', '1'), durable_signal('folds', 'go');
CALL durable_work();
SELECT durable_status('folds'), durable_query('folds');
SELECT durable_terminate('folds');

-- G6: a workflow
SELECT durable_start('receives', id => 'w waits'), durable_start('receives', id => 'w signalled');
CALL durable_work();
SELECT durable_pause_workflow('receives'), durable_pause_workflow('receives') AS again;
SELECT durable_start('receives', id => 'w new'), durable_start('begins', id => 'w other');
SELECT durable_signal('w signalled', 'go', '2');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id LIKE 'w %' ORDER BY id;
SELECT name, paused FROM durable.workflows WHERE paused;
SELECT durable_run('w signalled');
-- the timeout of a wait that came during the pause
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'SignalAwaited';
UPDATE durable_internal.timer SET wake_at = now() WHERE iid = (SELECT iid FROM durable_internal.instance WHERE id = 'w waits');
CALL durable_work();
SELECT durable_status('w waits');
SELECT durable_resume_workflow('receives'), durable_resume_workflow('receives') AS again;
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE id LIKE 'w %' ORDER BY id;
SELECT count(*) FROM durable_internal.parked;

-- G6: everything; an instance's own pause outlasts it
SELECT durable_start('begins', id => 'all 1'), durable_start('begins', id => 'all paused');
SELECT durable_pause('all paused'), durable_pause_all(), durable_pause_all() AS again;
CALL durable_work();
SELECT durable_pause_workflow('receives');
SELECT durable_signal('w new', 'go', '3');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id LIKE 'all%' OR id = 'w new' ORDER BY id;
SELECT durable_resume_all(), durable_resume_all() AS again;
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id LIKE 'all%' OR id = 'w new' ORDER BY id;
SELECT durable_resume('all paused'), durable_resume_workflow('receives');
CALL durable_work();
SELECT id, status FROM durable.instances WHERE id LIKE 'all%' OR id = 'w new' ORDER BY id;
-- terminated while its workflow is paused
SELECT durable_pause_workflow('receives');
SELECT durable_start('receives', id => 'parked');
CALL durable_work();
SELECT durable_terminate('parked');
SELECT durable_resume_workflow('receives');
CALL durable_work();
SELECT durable_status('parked');

-- I6, I7: what is wrong with the arguments, and who may not
SELECT durable_pause(NULL);
SELECT durable_pause('nobody');
SELECT durable_resume(NULL);
SELECT durable_resume('nobody');
SELECT durable_pause_workflow(NULL);
SELECT durable_pause_workflow('nothing');
SELECT durable_resume_workflow('nothing');
BEGIN READ ONLY;
SELECT durable_pause('tries');
ROLLBACK;
CREATE ROLE regress_durable_pause;
GRANT USAGE ON SCHEMA durable, pause TO regress_durable_pause;
SET ROLE regress_durable_pause;
SELECT durable_pause('tries');
SELECT durable_pause_workflow('receives');
SELECT durable_pause_all();
SELECT durable_resume_all();
RESET ROLE;
DROP OWNED BY regress_durable_pause;
DROP ROLE regress_durable_pause;

-- G6: what runs beside a body is paused and resumed with it, by itself or with its workflow
CREATE FUNCTION beside() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    spawned int := durable_spawn('act', jsonb_build_array('beside ' || durable_instance_id()));
BEGIN
    RETURN durable_await(spawned);
END $$;
SELECT durable_register('beside');
TRUNCATE effect;
SELECT durable_start('beside', id => 'alone'), durable_start('beside', id => 'with it');
CALL durable_work(2);
SELECT durable_pause('alone'), durable_pause_workflow('beside');
CALL durable_work();
SELECT id, state FROM durable.steps WHERE id IN ('alone', 'with it') AND step_id IS NOT NULL ORDER BY id;
SELECT count(*) FROM effect;
SELECT durable_resume_workflow('beside');
CALL durable_work();
SELECT what FROM effect;
SELECT id, status FROM durable.instances WHERE id IN ('alone', 'with it') ORDER BY id;
SELECT durable_resume('alone');
CALL durable_work();
SELECT what FROM effect ORDER BY n;
SELECT id, status, result FROM durable.instances WHERE id IN ('alone', 'with it') ORDER BY id;
SELECT count(*) FROM durable_internal.parked;
