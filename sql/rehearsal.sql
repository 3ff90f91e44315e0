-- Rehearsal: would a function do for the histories there are?
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
\set SHOW_CONTEXT never
CREATE SCHEMA rehearsal;
SET search_path = rehearsal, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS $$ INSERT INTO effect (what) VALUES (what) RETURNING what $$;
CREATE FUNCTION breaks() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
CREATE FUNCTION flow(how text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    IF how = 'waits' THEN
        PERFORM durable_wait_signal('go');
    ELSIF how = 'sleeps' THEN
        PERFORM durable_sleep('1 day');
    ELSIF how = 'fails' THEN
        PERFORM durable_call('breaks', retry => durable_retry_policy(max_attempts => 1));
    ELSIF how = 'continues' THEN
        PERFORM durable_continue_as_new('"waits"');
    END IF;
    RETURN how || durable_random();
END $$;
SELECT durable_register('flow');
SELECT count(durable_start('flow', to_jsonb(how), id => how)) FROM unnest('{waits,sleeps,fails,continues,completes}'::text[]) how;
CALL durable_work();
SELECT durable_start('flow', '"waits"', id => 'not begun', start_at => now() + interval '1 day');
CREATE TABLE before AS SELECT i.*, (SELECT count(*) FROM durable_internal.history h WHERE h.iid = i.iid) AS rows FROM durable_internal.instance i;

-- the function itself fits, for those that have ended too
SELECT * FROM durable_check('flow');
SELECT id, run, verdict, position, reason FROM durable_check('flow', include_ended => true) ORDER BY id, run;

-- candidates: one that goes on differently, one that diverges early, one late, one that fails, one that does not fit, one that is not deterministic
CREATE FUNCTION good(how text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    IF durable_patched('new') THEN
        PERFORM durable_call('act', '["new"]');
    ELSIF how = 'sleeps' THEN
        PERFORM durable_sleep('1 day');
    ELSE
        PERFORM durable_wait_signal('go');
    END IF;
    RETURN 'good';
END $$;
SELECT * FROM durable_check('flow', 'good');
CREATE FUNCTION early(how text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["other"]');
    RETURN 'early';
END $$;
SELECT * FROM durable_check('flow', 'early');
CREATE FUNCTION late(how text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    RETURN 'late';
END $$;
SELECT * FROM durable_check('flow', 'late');
CREATE FUNCTION failing(how text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    RETURN 1 / (length(how) - length(how));
END $$;
SELECT * FROM durable_check('flow', 'failing');
CREATE FUNCTION misfit(a int, b int) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
SELECT * FROM durable_check('flow', 'misfit');
CREATE FUNCTION sandboxed(how text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    INSERT INTO effect (what) VALUES ('from the body');
    RETURN 'x';
END $$;
SELECT * FROM durable_check('flow', 'sandboxed');
CREATE PROCEDURE steps(how text) LANGUAGE plpgsql AS $$ BEGIN
    CALL durable_step('act', '["begun"]');
    CALL durable_step('act', '["next"]');
END $$;
SELECT * FROM durable_check('flow', 'steps');
-- ended ones: another result, another end
CREATE FUNCTION differs(how text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    IF how = 'fails' THEN
        BEGIN
            PERFORM durable_call('breaks');
        EXCEPTION WHEN OTHERS THEN
            RETURN 'caught';
        END;
    END IF;
    RETURN 'other';
END $$;
SELECT id, run, verdict, position, reason FROM durable_check('flow', 'differs', include_ended => true) WHERE id IN ('fails', 'continues', 'completes') ORDER BY id, run;

-- nothing has changed
SELECT count(*) FROM (SELECT i.*, (SELECT count(*) FROM durable_internal.history h WHERE h.iid = i.iid) AS rows FROM durable_internal.instance i
                      EXCEPT TABLE before) x;
SELECT what, count(*) FROM effect GROUP BY 1;

-- an exported history, checked where the instance is not
SELECT durable_export('waits') AS waits, durable_export('completes') AS completes, durable_export('continues', 1) AS first_run \gset
SELECT :'waits'::jsonb - 'events' - 'hash' - 'seed' AS head, jsonb_array_length(:'waits'::jsonb -> 'events') AS events;
SELECT e ->> 'seq' AS seq, e ->> 'event' AS event, e ->> 'position' AS position, e -> 'args' AS args, e -> 'result' AS result
  FROM jsonb_array_elements(:'waits'::jsonb -> 'events') e;
SELECT * FROM durable_check('flow', history => :'waits');
SELECT * FROM durable_check('flow', 'early', history => :'waits');
SELECT * FROM durable_check('flow', history => :'completes');
SELECT * FROM durable_check('flow', history => :'first_run');
-- the workflow need not be registered where it is checked
SELECT * FROM durable_check('elsewhere', 'good', history => :'waits');
-- a long one is exported whole
CREATE FUNCTION long(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    FOR i IN 1..n LOOP PERFORM durable_call('act', jsonb_build_array(repeat('long ', i))); END LOOP;
    RETURN n;
END $$;
SELECT durable_register('long'), durable_start('long', '300', id => 'long');
CALL durable_work();
SELECT jsonb_array_length(e -> 'events') AS events, jsonb_path_query_array(e, '$.events[300].args') = jsonb_build_array(jsonb_build_array(repeat('long ', 300))) AS same,
       (SELECT verdict FROM durable_check('long', history => e)) AS verdict
  FROM durable_export('long') e;
DELETE FROM effect WHERE what LIKE 'long%';

-- as in a body that was compensated, or has handlers, or was forked or cancelled
CREATE FUNCTION undo() RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION add(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(state::int + payload::int) $$;
CREATE FUNCTION many(how text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_set_state('0');
    PERFORM durable_on_signal('add', 'add');
    PERFORM durable_call('act', '["undoable"]', compensate => 'undo');
    IF how = 'undone' THEN RAISE EXCEPTION 'undone'; END IF;
    PERFORM durable_wait_signal('go');
    RETURN durable_state();
END $$;
SELECT durable_register('many');
SELECT count(durable_start('many', to_jsonb(how), id => how)) FROM unnest('{undone,handles,cancelled}'::text[]) how;
SELECT durable_signal('handles', 'add', '2'), durable_signal('handles', 'add', '3');
CALL durable_work();
SELECT durable_fork('handles', 1, 'forked');
SELECT durable_signal('handles', 'go'), durable_cancel('cancelled');
CALL durable_work();
SELECT id, verdict, position, reason FROM durable_check('many', include_ended => true) ORDER BY id;

-- I6, I7
SELECT * FROM durable_check('no such workflow');
SELECT * FROM durable_check('flow', 'no_such_function');
SELECT * FROM durable_check(NULL);
SELECT * FROM durable_check('flow', include_ended => NULL);
SELECT durable_export('no such instance');
SELECT durable_export('waits', 7);
SELECT durable_export(NULL);
SELECT durable_check('flow', history => '1');
SELECT durable_check('flow', history => '{}');
SELECT durable_check('flow', history => '{"format": 1}');
SELECT durable_check('flow', history => '{"format": 1, "id": "x", "workflow": "x", "status": "x"}');
SELECT durable_check('flow', history => '{"format": 1, "id": "x", "workflow": "x", "status": "x", "events": [1]}');
SELECT durable_check('flow', history => '{"format": 1, "id": "x", "workflow": "x", "status": "x", "events": [{"seq": 1, "event": "WorkflowStarted", "at": "2020-01-01"}]}');
SELECT durable_check('flow', history => '{"format": 1, "id": "x", "workflow": "x", "status": "x", "events": [{"seq": 99999999999}]}');
SELECT durable_check('flow', history => jsonb_set(:'waits', '{events,1,position}', '7'));
SELECT durable_check('flow', history => jsonb_set(:'waits', '{events,1,event}', '"NoSuchEvent"'));
SELECT durable_check('flow', history => jsonb_set(:'waits', '{events,0,data}', '{"role": "postgres"}'));
-- what was tampered with is refused, whatever it is, before anything relies on it
CREATE FUNCTION tamper(history jsonb, event text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
    events jsonb := history -> 'events';
BEGIN
    events := events || (jsonb_build_object('seq', jsonb_array_length(events) + 1, 'at', '2020-01-01') || event::jsonb);
    SELECT verdict INTO said FROM durable_check('flow', history => jsonb_set(history, '{events}', events));
    RETURN said;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS said = PG_EXCEPTION_DETAIL;
    RETURN said;
END $$;
SELECT event, tamper(:'waits', event) FROM unnest(ARRAY[
    '{"event": "VersionMarked", "data": {"version": 1}}',
    '{"event": "WorkflowRetried", "data": {"position": -2}}',
    '{"event": "WorkflowRetried", "data": {"position": 3000000000}}',
    '{"event": "WorkflowForked", "data": {"through": -7}}',
    '{"event": "CompensationsCarried", "data": {}}',
    '{"event": "ActivityCompleted", "position": 3, "name": "act"}',
    '{"event": "ActivityCompleted", "position": 3, "step_id": "act"}',
    '{"event": "ActivityCompleted", "position": -1, "name": "act", "step_id": "act"}',
    '{"event": "ActivityFailed", "position": 3, "name": "act", "step_id": "act", "error": 1}',
    '{"event": "TimerExpired", "position": 2, "name": "go"}',
    '{"event": "SignalReceived", "position": 2, "name": "go"}',
    '{"event": "WorkflowCompleted", "position": 2, "name": "go"}',
    '{"event": "WorkflowCompleted", "at": "infinity"}',
    '{"event": "WorkflowStarted"}'
]) event;
-- results that primitives of ours take apart may be none, or others
CREATE FUNCTION maps() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_map('act', '["a", "b", "c"]', max_parallel => 2); END $$;
CREATE FUNCTION asks() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_sql('SELECT 1 AS one'); END $$;
SELECT durable_register(w) FROM unnest('{maps,asks}'::text[]) w;
SELECT durable_start('maps', id => 'maps'), durable_start('asks', id => 'asks');
CALL durable_work();
SELECT durable_export('maps') AS maps, durable_export('asks') AS asks \gset
SELECT id, verdict, position, reason FROM durable_check('maps', history => :'maps');
SELECT result, (durable_check('maps', history => jsonb_set(:'maps', path, result))).reason
  FROM (SELECT ARRAY['events', o - 1, 'result']::text[] FROM jsonb_array_elements(:'maps'::jsonb -> 'events') WITH ORDINALITY AS e (event, o)
         WHERE event ->> 'event' = 'ActivityCompleted' ORDER BY o LIMIT 1) AS p (path),
       unnest('{null,1,[],[1],"{}"}'::jsonb[]) result;
SELECT (durable_check('maps', history => jsonb_set(:'maps', '{events}', (SELECT jsonb_agg(event - 'result' ORDER BY o) FROM jsonb_array_elements(:'maps'::jsonb -> 'events') WITH ORDINALITY AS e (event, o))))).reason;
SELECT (durable_check('asks', history => :'asks'::jsonb #- '{events,1,result}')).reason;

-- in a session that is not the role's alone nothing of others is run
CREATE ROLE regress_durable_checks;
GRANT USAGE ON SCHEMA durable, rehearsal TO regress_durable_checks;
SET ROLE regress_durable_checks;
SELECT * FROM durable_check('flow');
SELECT durable_export('waits');
SELECT durable_start('flow', '"waits"', id => 'theirs');
SELECT * FROM durable_check('flow');
RESET ROLE;
SELECT id, verdict, reason FROM durable_check('flow') WHERE id = 'theirs';
DROP EXTENSION durable CASCADE;
DROP OWNED BY regress_durable_checks;
DROP ROLE regress_durable_checks;
