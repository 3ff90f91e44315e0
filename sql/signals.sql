-- Signals: once for a key, to a start, to one that ends.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA signals;
SET search_path = signals, public;

CREATE FUNCTION receives(n int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := '[]';
BEGIN
    FOR i IN 1..n LOOP
        got := got || jsonb_build_array(durable_wait_signal('x'));
    END LOOP;
    RETURN got;
END $$;
SELECT durable_register('receives');

-- E6: of one key there is one signal, also when the first was received long ago
SELECT durable_start('receives', '[3]', id => 'key');
SELECT durable_signal('key', 'x', '1', dedup_key => 'a'), durable_signal('key', 'x', '2', dedup_key => 'a'),
       durable_signal('key', 'x', '3', dedup_key => 'b');
SELECT payload FROM durable.messages WHERE id = 'key' ORDER BY sent_at;
CALL durable_work();
SELECT durable_signal('key', 'x', '4', dedup_key => 'a'), durable_signal('key', 'y', '5', dedup_key => 'b');
CALL durable_work();
SELECT status, awaits FROM durable.instances WHERE id = 'key';
-- a key is an instance's own, and is free again when its signal was rolled back
SELECT durable_start('receives', '[1]', id => 'other');
SELECT durable_signal('other', 'x', '"other"', dedup_key => 'a');
BEGIN;
SELECT durable_signal('key', 'x', '6', dedup_key => 'c');
ROLLBACK;
SELECT durable_signal('key', 'x', '7', dedup_key => 'c');
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE id IN ('key', 'other') ORDER BY id;

-- E6: what nobody has read at the end is recorded as dropped
SELECT durable_start('receives', '[1]', id => 'dropping');
SELECT durable_signal('dropping', 'x', '1'), durable_signal('dropping', 'x', '2'), durable_signal('dropping', 'y', '3');
CALL durable_work();
SELECT event, name, args, result, data FROM durable.events WHERE id = 'dropping' ORDER BY seq OFFSET 1;
SELECT count(*) FROM durable.messages WHERE id = 'dropping';
SELECT durable_signal('dropping', 'x', '4');
\echo :SQLSTATE
SELECT count(*) FROM durable_internal.inbox;

-- E10: starts the instance, or signals the one that runs
SELECT durable_signal_start('receives', '[2]', 'both', 'x', '"first"');
SELECT durable_signal_start('receives', '[9]', 'both', 'x', '"second"');
CALL durable_work();
SELECT run, status, input, result FROM durable.instances WHERE id = 'both';
-- one that has ended is started again, as the next run
SELECT durable_signal_start('receives', '[1]', 'both', 'x', '"third"');
CALL durable_work();
SELECT run, status, result FROM durable.instances WHERE id = 'both' ORDER BY run;
-- not at all when rolled back (E9)
BEGIN;
SELECT durable_signal_start('receives', '[1]', 'rolled back', 'x');
ROLLBACK;
SELECT durable_status('rolled back');
-- another workflow's id is not signalled
CREATE FUNCTION another() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_wait_signal('x'); END $$;
SELECT durable_register('another');
SELECT durable_start('another', id => 'taken');
SELECT durable_signal_start('receives', '[1]', 'taken', 'x');
SELECT count(*) FROM durable.messages WHERE id = 'taken';

-- E6, E7: in a procedure
CREATE TABLE effect (n serial, what jsonb);
CREATE FUNCTION note(what jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO effect (what) VALUES (what)';
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('note', jsonb_build_object('what', durable_wait_signal('x')));
    CALL durable_step('note', jsonb_build_object('what', coalesce(durable_wait_signal('x', timeout => '0'), '"none"')));
    CALL durable_step('note', jsonb_build_object('what', durable_wait_signal('x')));
END $$;
SELECT durable_register('steps');
SELECT durable_start('steps', id => 'steps');
SELECT durable_signal('steps', 'x', '1');
CALL durable_work();
SELECT durable_signal('steps', 'x', '2');
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'steps';
SELECT what FROM effect ORDER BY n;

-- E3, E6: a signal during a sleep is there for a later wait, and does not wake
CREATE FUNCTION sleeps() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_sleep('1 hour');
    RETURN durable_wait_signal('x');
END $$;
SELECT durable_register('sleeps');
SELECT durable_start('sleeps', id => 'sleeps');
CALL durable_work();
SELECT durable_signal('sleeps', 'x', '"early"');
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'sleeps';
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'TimerStarted';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'sleeps';

-- I6: bad arguments
SELECT durable_signal(NULL, 'x');
SELECT durable_signal('taken', NULL);
SELECT durable_signal('taken', '');
SELECT durable_signal('taken', 'x', NULL);
SELECT durable_signal('taken', 'x', '1', '');
SELECT durable_signal_start(NULL, '{}', 'i', 'x');
SELECT durable_signal_start('nothing', '{}', 'i', 'x');
SELECT durable_signal_start('receives', '{"no": 1}', 'i', 'x');
SELECT durable_signal_start('receives', '[1]', NULL, 'x');
SELECT durable_signal_start('receives', '[1]', 'i', NULL);
SELECT durable_signal_start('receives', '[1]', 'i', 'x', NULL);
SELECT count(*) FROM durable.instances WHERE id = 'i';
SELECT durable_wait_signal('x');
SELECT durable_signal_handle('x');
