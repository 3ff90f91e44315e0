-- Retries of activities.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA retries;
SET search_path = retries, public;

CREATE FUNCTION breaks() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
CREATE FUNCTION calls(retry jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('breaks', retry => retry);
    RETURN 'done';
EXCEPTION WHEN raise_exception THEN
    RETURN 'caught ' || SQLERRM;
END $$;
-- Lets the time of the next attempt come at once.
CREATE PROCEDURE drive(id text) LANGUAGE plpgsql AS $$
BEGIN
    WHILE durable_run(id) = 'waiting_for_activity' LOOP
        UPDATE durable_internal.history h SET wake_at = now() FROM durable_internal.instance i
         WHERE h.iid = i.iid AND i.id = drive.id AND h.event = 'ActivityRetryScheduled' AND h.wake_at > now();
    END LOOP;
END $$;
-- The delay that was planned after each attempt. The test shortens wake_at, so it is kept by a trigger.
CREATE TABLE delay (id text, attempt int, seconds numeric);
CREATE FUNCTION keep_delay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO retries.delay SELECT i.id, NEW.attempt, extract(epoch FROM NEW.wake_at - NEW.at)
      FROM durable_internal.instance i WHERE i.iid = NEW.iid;
    RETURN NULL;
END $$;
CREATE TRIGGER keep_delay AFTER INSERT ON durable_internal.history FOR EACH ROW
    WHEN (NEW.event = 'ActivityRetryScheduled') EXECUTE FUNCTION keep_delay();
CREATE FUNCTION delays(id text) RETURNS text LANGUAGE sql
    AS 'SELECT string_agg(round(seconds, 3)::text, '' '' ORDER BY attempt) FROM delay WHERE delay.id = delays.id';

SELECT durable_register('calls');
-- D1: built in: 5 attempts after 1, 2, 4, 8 seconds
SELECT durable_start('calls', '{}', id => 'built in');
CALL drive('built in');
SELECT durable_result('built in'), delays('built in');
SELECT state, attempts FROM durable.steps WHERE id = 'built in';
-- D7: each failed attempt is in the history
SELECT event, attempt, error ->> 'message' AS error FROM durable.events WHERE id = 'built in' ORDER BY seq;

-- D2: attempts count the first one; a duration ends them earlier
SELECT durable_start('calls', durable_retry_policy(max_attempts => 2), id => 'two');
CALL drive('two');
SELECT delays('two');
SELECT durable_start('calls', durable_retry_policy(max_duration => '3 s'), id => 'duration');
CALL drive('duration');
SELECT delays('duration');
-- D3: strategies, limits, jitter
SELECT durable_start('calls', durable_retry_policy(strategy => 'linear', initial => '2 s'), id => 'linear');
CALL drive('linear');
SELECT delays('linear');
SELECT durable_start('calls', durable_retry_policy(backoff => 10, max_interval => '30 s'), id => 'limit');
CALL drive('limit');
SELECT delays('limit');
SELECT durable_start('calls', durable_retry_policy(jitter => 0.5, max_attempts => 30, backoff => 1), id => 'jitter');
CALL drive('jitter');
SELECT count(DISTINCT seconds) > 10 AS differ, min(seconds) >= 0.5 AND max(seconds) <= 1 AS in_range FROM delay WHERE id = 'jitter';

-- D4: call, activity, workflow, settings, field by field
SELECT durable_register('calls', activity_retry => durable_retry_policy(max_attempts => 3, initial => '5 s'));
SELECT durable_start('calls', '{}', id => 'workflow');
CALL drive('workflow');
SELECT delays('workflow');
SELECT durable_register_activity('breaks', retry => durable_retry_policy(initial => '7 s'));
SELECT durable_start('calls', '{}', id => 'activity');
CALL drive('activity');
SELECT delays('activity');
SELECT durable_start('calls', '{"backoff": 3}', id => 'call');
CALL drive('call');
SELECT delays('call');
SET durable.retry_backoff = 1;
SELECT durable_start('calls', '{}', id => 'settings');
CALL drive('settings');
SELECT delays('settings');
RESET durable.retry_backoff;

-- D14: the key of a step is the same in each attempt, and no other's
CREATE TABLE keys (key text, attempt int);
CREATE FUNCTION tells_key() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% %', durable_idempotency_key(), durable_attempt();
END $$;
CREATE FUNCTION two_keys() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    twice jsonb := durable_retry_policy(max_attempts => 2, initial => '0');
BEGIN
    BEGIN PERFORM durable_call('tells_key', retry => twice); EXCEPTION WHEN OTHERS THEN NULL; END;
    BEGIN PERFORM durable_call('tells_key', retry => twice); EXCEPTION WHEN OTHERS THEN NULL; END;
END $$;
SELECT durable_register('two_keys');
SELECT durable_start('two_keys', id => 'keys');
CALL durable_work();
SELECT error ->> 'message' AS key_and_attempt FROM durable.events WHERE id = 'keys' AND error IS NOT NULL ORDER BY seq;
DROP TRIGGER keep_delay ON durable_internal.history;
