-- Events: who gets which, how often, and as what.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA events;
SET search_path = events, public;

CREATE FUNCTION subscribes(type text, mode text DEFAULT 'broadcast', filter jsonb DEFAULT NULL, n int DEFAULT 1) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    got jsonb := '[]';
BEGIN
    PERFORM durable_subscribe(type, mode, filter);
    PERFORM durable_wait_signal('go');
    FOR i IN 1..n LOOP
        got := got || jsonb_build_array(durable_wait_event(type) -> 'data');
    END LOOP;
    PERFORM durable_sleep('0');
    RETURN got;
END $$;
CREATE FUNCTION waits(type text, timeout interval DEFAULT NULL, filter jsonb DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    event jsonb := durable_wait_event(type, timeout, filter);
BEGIN
    PERFORM durable_sleep('0');
    RETURN event;
END $$;
SELECT durable_register('subscribes'), durable_register('waits');

-- E8: each subscriber gets a broadcast event once; one of before is not received
SELECT durable_publish('paid', '"before"') IS NOT NULL AS published;
SELECT durable_start('subscribes', '{"type": "paid"}', id => 'one'), durable_start('subscribes', '{"type": "paid"}', id => 'two'),
       durable_start('waits', '{"type": "paid"}', id => 'three');
CALL durable_work();
SELECT id, status, awaits FROM durable.instances ORDER BY id;
SELECT id, type, mode, filter FROM durable.subscriptions ORDER BY id;
SELECT durable_publish('paid', '{"order": 1}') IS NOT NULL AS published, durable_publish('unpaid', '{"order": 1}') IS NOT NULL AS published;
SELECT id, kind, name, payload -> 'data' AS data FROM durable.messages ORDER BY id;
CALL durable_work();
SELECT durable_signal('one', 'go'), durable_signal('two', 'go');
CALL durable_work();
SELECT id, status, CASE WHEN id = 'three' THEN result -> 'data' ELSE result END AS result FROM durable.instances ORDER BY id;
-- subscriptions end with their instances
SELECT count(*) FROM durable.subscriptions;

-- E8: attributes are on replay as they were received
SELECT durable_start('waits', '{"type": "made"}', id => 'attributes');
CALL durable_work();
SELECT durable_publish('made', '{"n": 1}', source => '/shop', event_id => 'e-1', subject => 'order 1',
                       event_time => '2026-01-02 03:04:05+00', attributes => '{"trace": "t", "level": 3, "list": [1]}');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'attributes';
SELECT e.result = i.result AS same FROM durable.events e JOIN durable.instances i USING (id) WHERE id = 'attributes' AND event = 'EventReceived';

-- E8: an event id is published once for a source
SELECT durable_start('subscribes', '{"type": "twice", "n": 2}', id => 'twice');
CALL durable_work();
SELECT durable_publish('twice', '1', event_id => 'e-1'), durable_publish('twice', '2', event_id => 'e-1'), durable_publish('twice', '3', event_id => 'e-1', source => '/else');
BEGIN;
SELECT durable_publish('twice', '4', event_id => 'e-2');
ROLLBACK;
SELECT durable_signal('twice', 'go');
CALL durable_work();
SELECT durable_publish('twice', '5', event_id => 'e-1') AS again;
SELECT status, result FROM durable.instances WHERE id = 'twice';

-- E9: at the commit, not at all after a rollback
SELECT durable_start('waits', '{"type": "tx"}', id => 'tx');
CALL durable_work();
BEGIN;
SELECT durable_publish('tx', '1') IS NOT NULL AS published;
SAVEPOINT s;
SELECT durable_publish('tx', '2') IS NOT NULL AS published;
ROLLBACK TO s;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT durable_publish('tx', '3') IS NOT NULL AS published;
ROLLBACK TO s;
SELECT durable_publish('tx', '4') IS NOT NULL AS published;
COMMIT;
CALL durable_work();
SELECT status, result -> 'data' AS data FROM durable.instances WHERE id = 'tx';

-- E8: filters of the subscription and of the wait
SELECT durable_start('subscribes', '{"type": "f", "filter": {"big": true}, "n": 2}', id => 'filtered'),
       durable_start('waits', '{"type": "f", "filter": {"n": 3}}', id => 'third');
CALL durable_work();
SELECT durable_signal('filtered', 'go');
SELECT n, durable_publish('f', jsonb_build_object('n', n, 'big', n % 2 = 0)) IS NOT NULL AS published FROM generate_series(1, 2) n;
-- what does not match wakes nobody, again and again
CALL durable_work();
SELECT id, status, awaits FROM durable.instances WHERE id IN ('filtered', 'third') ORDER BY id;
SELECT id, payload -> 'data' AS data FROM durable.messages WHERE name = 'f' ORDER BY sent_at;
SELECT n, durable_publish('f', jsonb_build_object('n', n, 'big', n % 2 = 0)) IS NOT NULL AS published FROM generate_series(3, 4) n;
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE id = 'filtered';
SELECT id, status, result -> 'data' AS data FROM durable.instances WHERE id = 'third';
-- what a wait did not want is there for a later one
CREATE FUNCTION picks() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a jsonb := durable_wait_event('p', filter => '{"n": 2}') -> 'data';
    b jsonb := durable_wait_event('p') -> 'data';
    c jsonb := durable_wait_event('p', timeout => '0', filter => '{"n": 7}');
BEGIN
    RETURN jsonb_build_array(a, b, c);
END $$;
SELECT durable_register('picks');
SELECT durable_start('picks', id => 'picks');
CALL durable_work();
SELECT n, durable_publish('p', jsonb_build_object('n', n)) IS NOT NULL AS published FROM generate_series(1, 3) n;
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'picks';
SELECT event, args -> 'data' AS data FROM durable.events WHERE id = 'picks' AND event = 'MessageDropped';

-- E7: NULL after the timeout
SELECT durable_start('waits', '{"type": "never", "timeout": "1 hour"}', id => 'timeout');
CALL durable_work();
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'EventAwaited';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'timeout';
SELECT name, state FROM durable.steps WHERE id = 'timeout' ORDER BY position;

-- E8: one of those who compete gets it
SELECT durable_start('subscribes', '{"type": "job", "mode": "competing"}', id => 'worker ' || n) FROM generate_series(1, 3) n;
CALL durable_work();
SELECT durable_signal('worker ' || n, 'go') FROM generate_series(1, 3) n;
CALL durable_work();
SELECT durable_publish('job', '1') IS NOT NULL AS published;
CALL durable_work();
SELECT status, result, count(*) FROM durable.instances WHERE id LIKE 'worker %' GROUP BY status, result ORDER BY status;
SELECT durable_publish('job', '2') IS NOT NULL AS published, durable_publish('job', '3') IS NOT NULL AS published, durable_publish('job', '4') IS NOT NULL AS published;
CALL durable_work();
SELECT result FROM durable.instances WHERE id LIKE 'worker %' ORDER BY result;

-- E8: a type has one mode
SELECT durable_start('subscribes', '{"type": "mode", "mode": "competing"}', id => 'competes');
CALL durable_work();
SELECT durable_start('subscribes', '{"type": "mode"}', id => 'conflict'), durable_start('waits', '{"type": "mode"}', id => 'conflict of a wait');
CALL durable_work();
SELECT id, status, error ->> 'sqlstate' AS sqlstate, coalesce(error ->> 'message', reason) AS why
  FROM durable.instances WHERE id LIKE 'conflict%' ORDER BY id;

-- A17: a subscription survives the exception block in which it was made
CREATE FUNCTION in_block() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM durable_subscribe('b');
        RAISE EXCEPTION 'rolled back';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    PERFORM durable_wait_signal('go');
    RETURN durable_wait_event('b', timeout => '0') -> 'data';
END $$;
SELECT durable_register('in_block');
SELECT durable_start('in_block', id => 'in block');
CALL durable_work();
SELECT durable_publish('b', '"kept"') IS NOT NULL AS published;
SELECT durable_signal('in block', 'go');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'in block';

-- in a procedure, between steps
CREATE TABLE effect (n serial, what jsonb);
CREATE FUNCTION note(what jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO effect (what) VALUES (what)';
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_subscribe('s');
    FOR i IN 1..2 LOOP
        CALL durable_step('note', jsonb_build_object('what', durable_wait_event('s') -> 'data'));
    END LOOP;
END $$;
SELECT durable_register('steps');
SELECT durable_start('steps', id => 'steps');
CALL durable_work();
SELECT durable_publish('s', '1') IS NOT NULL AS published;
CALL durable_work();
SELECT durable_publish('s', '2') IS NOT NULL AS published;
CALL durable_work();
SELECT durable_status('steps');
SELECT what FROM effect ORDER BY n;

-- E8: workflows that events start, as who registered them
CREATE FUNCTION started(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN (event - 'time' - 'id') || (durable_sql('SELECT current_user <> ''regress_publisher'' AS other_role') -> 0);
END $$;
CREATE FUNCTION not_one(a jsonb, b jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN NULL; END $$;
CREATE FUNCTION not_jsonb(a text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN NULL; END $$;
SELECT durable_register('not_one', start_on => 'begin');
SELECT durable_register('not_jsonb', start_on => 'begin');
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_publisher, regress_stranger;
RESET client_min_messages;
CREATE ROLE regress_publisher;
CREATE ROLE regress_stranger;
GRANT USAGE ON SCHEMA durable TO regress_publisher, regress_stranger;
GRANT USAGE ON SCHEMA events TO regress_publisher, regress_stranger;
REVOKE EXECUTE ON FUNCTION started FROM PUBLIC;
GRANT EXECUTE ON FUNCTION started TO regress_publisher;
SELECT durable_register('started', start_filter => '{"go": true}');
SELECT durable_register('started', start_on => 'begin', start_filter => '{"go": true}');
SET ROLE regress_publisher;
SELECT durable_publish('begin', '{"go": true, "n": 1}') IS NOT NULL AS published, durable_publish('begin', '{"go": false}') IS NOT NULL AS published;
-- nobody else's waits are reached
SELECT durable_publish('mode', '"private"') IS NOT NULL AS published;
-- nor does one start what it may not run
SET ROLE regress_stranger;
SELECT durable_publish('begin', '{"go": true, "n": 2}') IS NOT NULL AS published;
RESET ROLE;
SELECT count(*) FROM durable_internal.inbox WHERE name = 'mode';
CALL durable_work();
SELECT status, result, run_as = current_user AS as_registrar FROM durable.instances WHERE workflow = 'started';

-- I6: bad arguments
SELECT durable_publish(NULL);
SELECT durable_publish('');
SELECT durable_publish('t', NULL);
SELECT durable_publish('t', source => NULL);
SELECT durable_publish('t', event_id => '');
SELECT durable_publish('t', event_time => 'infinity');
SELECT durable_publish('t', attributes => '[1]');
SELECT durable_publish('t', attributes => '{"id": 1}');
SELECT durable_subscribe('t');
SELECT durable_wait_event('t');
SELECT durable_start('subscribes', '{"type": "t", "mode": "loud"}', id => 'bad mode'), durable_start('subscribes', '{"type": null}', id => 'bad type'),
       durable_start('subscribes', '{"type": "t", "mode": null}', id => 'no mode'), durable_start('waits', '{"type": null}', id => 'bad wait');
CALL durable_work();
SELECT id, status, error ->> 'message' AS error FROM durable.instances WHERE id LIKE 'bad%' OR id = 'no mode' ORDER BY id;
DROP OWNED BY regress_publisher, regress_stranger;
DROP ROLE regress_publisher, regress_stranger;
