-- State: handlers, conditions, queries, updates.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA state;
SET search_path = state, public;

CREATE FUNCTION add(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('sum', coalesce((state ->> 'sum')::int, 0) + (message ->> 0)::int,
                              'seen', coalesce((state ->> 'seen')::int, 0) + 1, 'last', message)
$$;
CREATE FUNCTION enough(state jsonb) RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT (state ->> 'sum')::int >= 10 $$;
CREATE FUNCTION twice(state jsonb, args jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('twice', (state ->> 'sum')::int * 2, 'args', args)
$$;
CREATE FUNCTION sums(timeout interval DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    met bool;
    then_state jsonb;
BEGIN
    PERFORM durable_on_signal('add', 'add');
    PERFORM durable_on_query('twice', 'twice');
    met := durable_wait_until('enough', timeout);
    then_state := durable_state();
    PERFORM durable_sleep('0');
    PERFORM durable_wait_signal('end');
    RETURN jsonb_build_object('met', met, 'then', then_state, 'now', durable_state());
END $$;
SELECT durable_register('sums');

-- E12: handlers fold signals in their order; E11: the first that satisfies releases the wait, later ones come later
SELECT durable_start('sums', id => 'sums');
CALL durable_work();
SELECT durable_query('sums'), durable_query('sums', 'twice', '1');
SELECT durable_signal('sums', 'add', to_jsonb(n)) FROM generate_series(1, 3) n \g /dev/null
CALL durable_work();
SELECT durable_status('sums'), durable_query('sums'), durable_query('sums', 'twice', '["x"]');
SELECT durable_signal('sums', 'add', to_jsonb(n)) FROM generate_series(4, 6) n \g /dev/null
CALL durable_work();
SELECT durable_status('sums'), durable_query('sums');
SELECT event, position, args, data FROM durable.events WHERE id = 'sums' ORDER BY seq OFFSET 1;
SELECT durable_signal('sums', 'add', '100'), durable_signal('sums', 'end');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'sums';
-- of ended ones, too
SELECT durable_query('sums'), durable_query('sums', 'twice');

-- E11: false when the time is over; true at once
SELECT durable_start('sums', '["1 hour"]', id => 'late'), durable_start('sums', '["0"]', id => 'at once');
SELECT durable_signal('at once', 'add', '11');
CALL durable_work();
UPDATE durable_internal.history SET wake_at = now() WHERE event = 'ConditionAwaited';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT durable_signal('late', 'end'), durable_signal('at once', 'end');
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE id IN ('late', 'at once') ORDER BY id;

-- E12: many at once, each folded once
SELECT durable_start('sums', id => 'many');
CALL durable_work();
SELECT durable_signal('many', 'add', '0') FROM generate_series(1, 5000) \g /dev/null
CALL durable_work();
SELECT durable_query('many');
SELECT count(*) FROM durable.events WHERE id = 'many' AND event = 'SignalHandled';
SELECT durable_terminate('many');

-- set_state between deliveries is the same on replay; A17: also in an exception block
CREATE FUNCTION sets() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    states jsonb := '[]';
BEGIN
    PERFORM durable_on_signal('add', 'add');
    states := states || jsonb_build_array(durable_state());
    PERFORM durable_wait_signal('go');
    states := states || jsonb_build_array(durable_state());
    BEGIN
        PERFORM durable_set_state('{"sum": 1000}');
        RAISE EXCEPTION 'rolled back';
    EXCEPTION WHEN raise_exception THEN
        states := states || jsonb_build_array(durable_state());
    END;
    PERFORM durable_wait_signal('go');
    states := states || jsonb_build_array(durable_state());
    PERFORM durable_set_state('[]');
    RETURN states;
END $$;
SELECT durable_register('sets');
SELECT durable_start('sets', id => 'sets');
CALL durable_work();
SELECT durable_signal('sets', 'add', '1'), durable_signal('sets', 'go');
CALL durable_work();
SELECT durable_query('sets');
SELECT durable_signal('sets', 'add', '2');
CALL durable_work();
SELECT durable_signal('sets', 'go');
CALL durable_work();
SELECT result FROM durable.instances WHERE id = 'sets';
SELECT durable_query('sets');

-- what came in while the last step ran still has its effect
CREATE FUNCTION sends(id text) RETURNS void LANGUAGE sql AS $$ SELECT durable_signal(id, 'add', '7') $$;
CREATE FUNCTION ends() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_on_signal('add', 'add');
    PERFORM durable_call('sends', jsonb_build_array(durable_instance_id()));
    RETURN durable_state();
END $$;
SELECT durable_register('ends');
SELECT durable_start('ends', id => 'ends');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'ends';
SELECT durable_query('ends');

-- a handler that fails holds the instance, and the message waits until it is mended
CREATE FUNCTION bad(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'bad message %', message; END $$;
CREATE FUNCTION handles_badly(handler text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_on_signal('x', handler);
    PERFORM durable_wait_signal('end');
    RETURN durable_state();
END $$;
SELECT durable_register('handles_badly');
SELECT durable_start('handles_badly', '["bad"]', id => 'bad');
SELECT durable_signal('bad', 'x', '1'), durable_signal('bad', 'x', '2');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'bad';
SELECT payload FROM durable.messages WHERE id = 'bad' ORDER BY sent_at;
CREATE OR REPLACE FUNCTION bad(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT state || jsonb_build_object('m' || (message ->> 0), true) $$;
SELECT durable_resume('bad'), durable_signal('bad', 'end');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'bad';
-- the sandbox is around handlers and conditions: no primitives, no tables, no other effects
CREATE TABLE t (x int);
CREATE FUNCTION calls(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('bad'); END $$;
CREATE FUNCTION signals(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_signal('bad', 'x'); RETURN state; END $$;
CREATE FUNCTION asks(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_query('bad'); END $$;
CREATE FUNCTION reads(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT to_jsonb(count(*)) FROM t); END $$;
CREATE FUNCTION writes(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (1); RETURN state; END $$;
CREATE FUNCTION draws(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(random()); END $$;
CREATE FUNCTION one_parameter(state jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT state';
SELECT durable_start('handles_badly', to_jsonb(h), id => h), durable_signal(h, 'x')
  FROM unnest('{calls,signals,asks,reads,writes,draws,one_parameter,not_there}'::text[]) h \g /dev/null
CALL durable_work();
SELECT id, status, reason FROM durable.instances WHERE workflow = 'handles_badly' AND status = 'held' ORDER BY created_at;
SELECT count(*) FROM t;
CREATE FUNCTION not_there(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"there"'::jsonb $$;
SELECT durable_resume('not_there'), durable_signal('not_there', 'end');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'not_there';
-- a handler that returns NULL leaves the state
CREATE FUNCTION nothing(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
SELECT durable_start('handles_badly', '["nothing"]', id => 'nothing');
SELECT durable_signal('nothing', 'x'), durable_signal('nothing', 'end');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'nothing';

-- E12: queries write nothing, and are known by name
CREATE FUNCTION queried() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_set_state('{"n": 1}');
    PERFORM durable_on_query(q, q) FROM unnest('{writes,reads,calls,bad,nothing}'::text[]) q;
    PERFORM durable_wait_signal('end');
END $$;
SELECT durable_register('queried');
SELECT durable_start('queried', id => 'queried');
-- before it has run it has no state
SELECT durable_query('queried');
SELECT durable_query('queried', 'bad');
CALL durable_work();
SELECT durable_query('queried', 'bad', '["q"]'), durable_query('queried', 'nothing') IS NULL AS nothing;
SELECT durable_query('queried', 'writes');
SELECT durable_query('queried', 'reads');
SELECT durable_query('queried', 'calls');
SELECT durable_query('queried', 'unknown');
SELECT durable_query('nobody');
SELECT durable_query(NULL);
SELECT durable_query('queried', '');
SELECT durable_query('queried', 'bad', NULL);
SELECT count(*) FROM t;
SELECT durable_query('queried'), durable_status('queried');
SELECT count(*) FROM durable.events WHERE id = 'queried';

-- E12: updates are validated, applied once, answered
CREATE FUNCTION put(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'fail' THEN
        RAISE EXCEPTION 'cannot put %', message USING ERRCODE = 'UX001', DETAIL = 'Some detail.';
    END IF;
    RETURN jsonb_build_object('state', state || message, 'result', jsonb_build_object('was', state));
END $$;
CREATE FUNCTION no_state(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"result": 1}'::jsonb $$;
CREATE FUNCTION check_put(state jsonb, message jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'reject' THEN
        RAISE EXCEPTION 'rejected' USING ERRCODE = 'UX002';
    END IF;
END $$;
CREATE FUNCTION updated() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_on_update('put', 'put', 'check_put');
    PERFORM durable_on_update('no state', 'no_state');
    PERFORM durable_wait_signal('end');
    PERFORM durable_sleep('0');
    RETURN durable_state();
END $$;
SELECT durable_register('updated');
SELECT durable_start('updated', id => 'updated');
CALL durable_work();
SELECT durable_update('updated', 'put', '{"a": 1}') AS first \gset
SELECT durable_update('updated', 'put', '{"reject": 1}') AS rejected \gset
SELECT durable_update('updated', 'put', '{"fail": 1}') AS failing \gset
SELECT durable_update('updated', 'put', '{"b": 2}') AS second \gset
SELECT durable_update('updated', 'no state') AS no_state \gset
SELECT durable_update('updated', 'unknown') AS unknown \gset
SELECT durable_update_result(:first);
\echo :SQLSTATE
CALL durable_work();
SELECT durable_update_result(:first);
SELECT durable_update_result(:rejected);
\echo :SQLSTATE
SELECT durable_update_result(:failing);
\echo :SQLSTATE
SELECT durable_update_result(:second), durable_update_result(:first) AS again;
SELECT durable_update_result(:no_state);
SELECT durable_update_result(:unknown);
\echo :SQLSTATE
SELECT durable_query('updated');
-- a rejected one leaves no trace
SELECT event, name, args, result, error ->> 'message' AS error, data - 'update' AS data FROM durable.events WHERE id = 'updated' ORDER BY seq OFFSET 1;
-- E9: at the commit
BEGIN;
SELECT durable_update('updated', 'put', '{"c": 3}') AS gone \gset
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT durable_update('updated', 'put', '{"d": 4}') AS gone \gset
ROLLBACK TO s;
COMMIT;
SELECT durable_update_result(:gone) IS NULL AS gone;
\echo :SQLSTATE
SELECT durable_update('updated', 'put', '{"e": 5}') AS last \gset
SELECT durable_signal('updated', 'end');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'updated';
SELECT durable_update_result(:last);
-- none to one that has ended
SELECT durable_update('updated', 'put');
\echo :SQLSTATE
-- one that is pending when the instance ends is answered
SELECT durable_start('ends', id => 'ending');
SELECT durable_update('ending', 'x') AS early \gset
CREATE FUNCTION ends_at_once() RETURNS void LANGUAGE plpgsql AS $$ BEGIN NULL; END $$;
SELECT durable_register('ends_at_once');
SELECT durable_start('ends_at_once', id => 'at its end');
SELECT durable_update('at its end', 'x') AS pending \gset
CALL durable_work();
SELECT durable_update_result(:early);
\echo :SQLSTATE
SELECT durable_update_result(:pending);
\echo :SQLSTATE
-- one that no handler is there for is answered while the instance waits
SELECT durable_start('handles_badly', '["add"]', id => 'no handler');
CALL durable_work();
SELECT durable_update('no handler', 'x') AS unhandled \gset
CALL durable_work();
SELECT durable_update_result(:unhandled);
\echo :SQLSTATE
-- also while it waits for the next attempt of an activity
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fails'; END $$;
CREATE FUNCTION retries() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('fails', retry => durable_retry_policy(initial => '1 hour', max_interval => '1 hour'));
END $$;
SELECT durable_register('retries');
SELECT durable_start('retries', id => 'retries');
CALL durable_work();
SELECT durable_update('retries', 'x') AS unhandled \gset
SET statement_timeout = '20s';
CALL durable_work();
RESET statement_timeout;
SELECT durable_update_result(:unhandled);
\echo :SQLSTATE
SELECT durable_status('retries');
SELECT durable_terminate('retries');

-- in a procedure
CREATE FUNCTION note(what jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO t VALUES ((what ->> ''sum'')::int)';
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_on_signal('add', 'add');
    FOR i IN 1..3 LOOP
        CALL durable_step('note', jsonb_build_object('what', durable_state() -> 'sum'));
        CALL durable_step('sends', jsonb_build_array(durable_instance_id()));
    END LOOP;
    CALL durable_step('note', jsonb_build_object('what', durable_state()));
END $$;
SELECT durable_register('steps');
SELECT durable_start('steps', id => 'steps');
CALL durable_work();
SELECT status, reason, error FROM durable.instances WHERE id = 'steps';
SELECT durable_query('steps');
SELECT args FROM durable.steps WHERE id = 'steps' AND name = 'note' ORDER BY position;

-- I6: bad arguments
SELECT durable_update(NULL, 'x');
SELECT durable_update('queried', NULL);
SELECT durable_update('queried', 'x', NULL);
SELECT durable_update('nobody', 'x');
SELECT durable_update_result(NULL);
SELECT durable_update_result(0);
SELECT durable_update_result(:first, NULL);
SELECT durable_state();
SELECT durable_set_state('{}');
CREATE FUNCTION says(statement text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE statement; END $$;
SELECT durable_register('says');
SELECT durable_start('says', to_jsonb('SELECT ' || s), id => s) FROM unnest(ARRAY[
    'durable_set_state(NULL)', 'durable_on_signal(NULL, ''x'')', 'durable_on_signal(''x'', NULL)', 'durable_on_signal('''', ''x'')',
    'durable_on_update(NULL, ''x'')', 'durable_on_update(''x'', NULL)', 'durable_on_query(NULL, ''x'')', 'durable_on_query(''x'', NULL)',
    'durable_wait_until(NULL)', 'durable_wait_until(''not there'')',
    'durable_update(''queried'', ''x'')', 'durable_query(''queried'')', 'durable_update_result(1)']) s \g /dev/null
CALL durable_work();
SELECT id, status, coalesce(error ->> 'message', reason) AS why FROM durable.instances WHERE workflow = 'says' ORDER BY created_at;
