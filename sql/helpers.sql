-- Deterministic helpers: time, chance, identity, log.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA helpers;
SET search_path = helpers, public;

CREATE TABLE seen (pass serial, what text);
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO seen (what) VALUES (what) RETURNING what';

-- A12: the same on each pass. The first body tells the values to an activity,
-- which the replay compares.
CREATE FUNCTION values_of_helpers() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    started timestamptz := durable_now();
    first jsonb;
    later timestamptz;
BEGIN
    first := jsonb_build_object('what', concat_ws(' ', durable_now(), durable_random(), durable_random(), durable_uuid(),
                                                  durable_instance_id(), durable_run_number()));
    PERFORM durable_call('note', first);
    PERFORM durable_sleep('0');
    later := durable_now();
    PERFORM durable_call('note', jsonb_build_object('what', concat_ws(' ', durable_now(), durable_random(), durable_uuid())));
    PERFORM durable_wait_signal('go');
    RETURN jsonb_build_object(
        'time goes on', later > started AND durable_now() > later,
        'two differ', durable_random() <> durable_random() AND durable_uuid() <> durable_uuid(),
        'in range', durable_random() BETWEEN 0 AND 1,
        'version 4', substr(durable_uuid()::text, 15, 1),
        'id', durable_instance_id(), 'run', durable_run_number());
END $$;
SELECT durable_register('values_of_helpers');
SELECT durable_start('values_of_helpers', id => 'h1'), durable_start('values_of_helpers', id => 'h2');
CALL durable_work();
SELECT durable_signal('h1', 'go'), durable_signal('h2', 'go');
CALL durable_work();
SELECT durable_result('h1');
SELECT durable_result('h2');
-- four notes, all of them different
SELECT count(*), count(DISTINCT what) FROM seen;
-- durable_now() is the time of the start, then of the events
SELECT s.what LIKE i.created_at::text || ' %' AS at_start FROM durable.instances i, seen s WHERE i.id = 'h1' AND s.pass = 1;
-- uuids do not repeat at all
CREATE FUNCTION many_uuids() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found uuid[];
BEGIN
    FOR i IN 1..1000 LOOP
        found := found || durable_uuid();
    END LOOP;
    RETURN (SELECT count(DISTINCT u) FROM unnest(found) u);
END $$;
SELECT durable_register('many_uuids');
SELECT durable_start('many_uuids', id => 'many');
SELECT durable_run('many'), durable_result('many');

-- A13: replaying up to the frontier; durable_log speaks once
CREATE FUNCTION talks() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    flags jsonb := '[]';
BEGIN
    PERFORM durable_log('one');
    flags := flags || to_jsonb(durable_is_replaying());
    PERFORM durable_call('note', '["a"]');
    PERFORM durable_log('two', 'warning');
    flags := flags || to_jsonb(durable_is_replaying());
    PERFORM durable_call('note', '["b"]');
    PERFORM durable_log('three', level => 'info');
    PERFORM durable_wait_signal('go');
    PERFORM durable_log('four');
    RETURN flags || to_jsonb(durable_is_replaying());
END $$;
SELECT durable_register('talks');
SELECT durable_start('talks', id => 'talks');
CALL durable_work();
SELECT durable_signal('talks', 'go');
CALL durable_work();
SELECT durable_result('talks');

-- bad arguments
CREATE FUNCTION bad_log(level text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_log('x', level); END $$;
SELECT durable_register('bad_log');
SELECT durable_start('bad_log', '["loud"]', id => 'loud'), durable_start('bad_log', '[null]', id => 'null');
CALL durable_work();
SELECT id, status, error ->> 'message' AS error, error ->> 'hint' AS hint FROM durable.instances WHERE workflow = 'bad_log' ORDER BY id;
