-- Timers and signals.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA waits;
SET search_path = waits, public;

CREATE FUNCTION sleeps(i interval) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_sleep(i); RETURN 'awake'; END $$;
CREATE FUNCTION sleeps_until(t timestamptz) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_sleep_until(t); RETURN 'awake'; END $$;
SELECT durable_register('sleeps'), durable_register('sleeps_until');

-- E1: the deadline is fixed when it is reached first
SELECT durable_start('sleeps', '["1 hour"]', id => 'hour');
CALL durable_work();
SELECT status, wake_at - created_at BETWEEN '1 h' AND '1 h 1 min' AS in_an_hour FROM durable.instances WHERE id = 'hour';
CREATE TABLE deadline AS SELECT wake_at FROM durable.timers WHERE id = 'hour';
SELECT durable_run('hour');
SELECT wake_at = (SELECT wake_at FROM deadline) AS unmoved FROM durable.timers WHERE id = 'hour';
-- E2: no process, lock or lease is left
SELECT count(*) FROM durable_internal.ready;
-- due: fired by the next look
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'TimerStarted';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'hour';
SELECT event, name, args FROM durable.events WHERE id = 'hour' ORDER BY seq;
-- zero, negative and past ones complete and are recorded; infinite ones are refused
SELECT durable_start('sleeps', '["0"]', id => 'zero'), durable_start('sleeps', '["-1 day"]', id => 'negative'),
       durable_start('sleeps_until', '["2001-02-03"]', id => 'past'), durable_start('sleeps_until', '["2000-01-01 00:00:00+00"]', id => 'epoch'),
       durable_start('sleeps_until', '["infinity"]', id => 'infinity'),
       durable_start('sleeps', '[null]', id => 'no time');
CALL durable_work();
SELECT id, status, error ->> 'message' AS error,
       (SELECT string_agg(event, ' ' ORDER BY seq) FROM durable.events e WHERE e.id = i.id AND position IS NOT NULL) AS events
  FROM durable.instances i WHERE id IN ('zero', 'negative', 'past', 'epoch', 'infinity', 'no time') ORDER BY created_at;

-- E6: buffered before the wait, first in first out for a name, others are left
CREATE FUNCTION receives(names text[], timeout interval DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := '[]';
    name text;
BEGIN
    FOREACH name IN ARRAY names LOOP
        got := got || jsonb_build_array(durable_wait_signal(name, timeout));
    END LOOP;
    PERFORM durable_sleep('0');
    RETURN got;
END $$;
SELECT durable_register('receives');
SELECT durable_start('receives', '{"names": ["x", "x", "y", "x"]}', id => 'fifo');
SELECT durable_signal('fifo', 'x', '1'), durable_signal('fifo', 'z', '"unread"'), durable_signal('fifo', 'x', '2');
CALL durable_work();
SELECT status, awaits FROM durable.instances WHERE id = 'fifo';
SELECT durable_signal('fifo', 'x', '3');
CALL durable_work();
SELECT status, awaits FROM durable.instances WHERE id = 'fifo';
SELECT name, payload FROM durable.messages WHERE id = 'fifo' ORDER BY sent_at;
SELECT durable_signal('fifo', 'y');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'fifo';
-- none to one that has ended, or that is not there
SELECT durable_signal('fifo', 'x');
SELECT durable_signal('nobody', 'x');

-- E9: a signal is sent when its transaction commits
SELECT durable_start('receives', '{"names": ["x"]}', id => 'transaction');
CALL durable_work();
BEGIN;
SELECT durable_signal('transaction', 'x', '"rolled back"');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT durable_signal('transaction', 'x', '"rolled back, too"');
ROLLBACK TO s;
SELECT durable_signal('transaction', 'x', '"sent"');
COMMIT;
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'transaction';

-- E7: NULL after the timeout, recorded; an early signal leaves no timer behind
SELECT durable_start('receives', '{"names": ["x", "y"], "timeout": "1 hour"}', id => 'timeout');
CALL durable_work();
SELECT durable_signal('timeout', 'x', 'null');
CALL durable_work();
SELECT status, awaits, wake_at IS NOT NULL AS has_deadline FROM durable.instances WHERE id = 'timeout';
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'SignalAwaited' AND name = 'y';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'timeout';
SELECT name, state FROM durable.steps WHERE id = 'timeout' ORDER BY position;
SELECT count(*) FROM durable.timers;
-- a timeout of nothing still takes what is there
SELECT durable_start('receives', '{"names": ["x", "y"], "timeout": "0"}', id => 'at once');
SELECT durable_signal('at once', 'y', '"there"');
SELECT durable_run('at once'), durable_result('at once');

-- I2: a start for later is not begun before its time
SELECT durable_start('sleeps', '["0"]', id => 'tomorrow', start_at => now() + '1 day');
CALL durable_work();
SELECT durable_run('tomorrow');
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT durable_status('tomorrow');

-- words such as now in the input mean the time of the start, on each replay
CREATE FUNCTION keeps_time(t timestamptz) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_sql('SELECT $1::timestamptz', jsonb_build_array(t));
    PERFORM durable_wait_signal('go');
    RETURN t < durable_now();
END $$;
SELECT durable_register('keeps_time');
SELECT durable_start('keeps_time', '["now"]', id => 'keeps');
CALL durable_work();
SELECT durable_signal('keeps', 'go');
CALL durable_work();
SELECT status, result, input ->> 0 <> 'now' AS frozen FROM durable.instances WHERE id = 'keeps';
