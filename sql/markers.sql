-- Versions of a change inside of a body
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA markers;
SET search_path = markers, public;

CREATE TABLE effect (id serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS $$ INSERT INTO effect (what) VALUES (what) RETURNING what $$;
CREATE FUNCTION deploy(body text) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION flow() RETURNS text LANGUAGE plpgsql AS %L', body);
    PERFORM durable_register('flow', on_change => 'continue');
END $f$;
CREATE VIEW marked AS
    SELECT id, seq, name, data FROM durable.events WHERE event = 'VersionMarked';
CREATE VIEW outcome AS
    SELECT id, status, reason, result FROM durable.instances ORDER BY created_at, id;

-- C1: there was no marker when the first one came by
SELECT deploy($$ BEGIN
    PERFORM durable_call('act', '["first"]');
    PERFORM durable_wait_signal('go');
    RETURN 'v0';
END $$);
SELECT durable_start('flow', id => 'zero');
CALL durable_work();

-- C1, C4: the newest is recorded by those who come to it, 0 is for who is past it; nothing is shifted
SELECT deploy($$ DECLARE v int := durable_change_version('pay', 0, 1); BEGIN
    IF v = 0 THEN
        PERFORM durable_call('act', '["first"]');
    ELSE
        PERFORM durable_call('act', '["one"]');
    END IF;
    PERFORM durable_wait_signal('go');
    RETURN 'v' || v;
END $$);
SELECT durable_start('flow', id => 'one');
CALL durable_work();

SELECT deploy($$ DECLARE v int := durable_change_version('pay', 0, 2); BEGIN
    PERFORM durable_call('act', jsonb_build_array((ARRAY['first', 'one', 'two'])[v + 1]));
    PERFORM durable_wait_signal('go');
    -- again, and in a loop: always the same
    FOR i IN 1 .. 3 LOOP
        IF durable_change_version('pay', 0, 2) <> v THEN
            RAISE EXCEPTION 'changed';
        END IF;
        PERFORM durable_call('act', jsonb_build_array('loop'));
    END LOOP;
    RETURN 'v' || v;
END $$);
SELECT durable_start('flow', id => 'two');
CALL durable_work();
SELECT durable_signal(id, 'go') FROM unnest('{zero,one,two}'::text[]) id;
CALL durable_work();
TABLE outcome;
TABLE marked;
-- a marker takes no position
SELECT position, name, state FROM durable.steps WHERE id = 'two';
SELECT what, count(*) FROM effect GROUP BY 1 ORDER BY 1;

-- C1: below min, and above max (the code was taken back)
SELECT deploy($$ DECLARE v int := durable_change_version('pay', 2, 2); BEGIN PERFORM durable_wait_signal('go'); RETURN 'v' || v; END $$);
SELECT durable_start('flow', id => 'too new');
CALL durable_work();
SELECT deploy($$ DECLARE v int := durable_change_version('pay', 0, 1); BEGIN PERFORM durable_wait_signal('go'); RETURN 'v' || v; END $$);
SELECT durable_signal('too new', 'go');
SELECT durable_start('flow', id => 'too old');
CALL durable_work();
SELECT deploy($$ DECLARE v int := durable_change_version('pay', 2, 3); BEGIN PERFORM durable_wait_signal('go'); RETURN 'v' || v; END $$);
SELECT durable_signal('too old', 'go');
CALL durable_work();
SELECT * FROM outcome WHERE id LIKE 'too %';
-- B5: mended, they go on
SELECT deploy($$ DECLARE v int := durable_change_version('pay', 1, 3); BEGIN PERFORM durable_wait_signal('go'); RETURN 'v' || v; END $$);
SELECT durable_resume(id) FROM unnest('{too new,too old}'::text[]) id;
CALL durable_work();
SELECT * FROM outcome WHERE id LIKE 'too %';

-- C2: patched: false for who is past it, true and recorded for new ones; B6: a timer of another length is fine then
SELECT deploy($$ BEGIN
    PERFORM durable_sleep('0');
    PERFORM durable_wait_signal('go');
    RETURN 'unpatched';
END $$);
SELECT durable_start('flow', id => 'before');
CALL durable_work();
SELECT deploy($$ BEGIN
    IF durable_patched('shorter') THEN
        PERFORM durable_sleep('-1 s');
        PERFORM durable_wait_signal('go');
        RETURN 'patched';
    END IF;
    PERFORM durable_sleep('0');
    PERFORM durable_wait_signal('go');
    RETURN 'unpatched';
END $$);
SELECT durable_start('flow', id => 'after');
CALL durable_work();
SELECT durable_signal('before', 'go');
CALL durable_work();
SELECT * FROM outcome WHERE id IN ('before', 'after');

-- C3: the branch is gone, marked instances stay valid; so they do when the call is gone as well
SELECT deploy($$ BEGIN
    PERFORM durable_deprecate_patch('shorter');
    PERFORM durable_sleep('-1 s');
    PERFORM durable_wait_signal('go');
    RETURN 'only patched';
END $$);
SELECT durable_start('flow', id => 'later');
CALL durable_work();
SELECT * FROM marked WHERE name = 'shorter';
SELECT durable_signal('after', 'go');
CALL durable_work();
SELECT deploy($$ BEGIN
    PERFORM durable_sleep('-1 s');
    PERFORM durable_wait_signal('go');
    RETURN 'no call';
END $$);
SELECT durable_signal('later', 'go');
CALL durable_work();
SELECT * FROM outcome WHERE id IN ('after', 'later');

-- C4: in a loop, who has begun without stays without; A17: exception blocks undo nothing
SELECT deploy($$ BEGIN
    FOR i IN 1 .. 4 LOOP
        PERFORM durable_call('act', jsonb_build_array('round'));
        PERFORM durable_wait_signal('go');
    END LOOP;
    RETURN 'plain';
END $$);
SELECT durable_start('flow', id => 'rounds');
CALL durable_work();
SELECT deploy($$ DECLARE seen text := ''; BEGIN
    FOR i IN 1 .. 4 LOOP
        BEGIN
            seen := seen || durable_patched('in the loop');
            RAISE EXCEPTION 'undone';
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
        seen := seen || durable_patched('in the loop');
        PERFORM durable_call('act', jsonb_build_array('round'));
        PERFORM durable_wait_signal('go');
    END LOOP;
    RETURN seen;
END $$);
SELECT durable_start('flow', id => 'new rounds');
SELECT durable_signal(id, 'go') FROM unnest('{rounds,new rounds}'::text[]) id, generate_series(1, 4);
CALL durable_work();
SELECT * FROM outcome WHERE id LIKE '%rounds';
SELECT id, name, data FROM marked WHERE name = 'in the loop';

-- a marker that nothing follows is recorded with the end
SELECT deploy($$ BEGIN RETURN durable_patched('last'); END $$);
SELECT durable_start('flow', id => 'last');
CALL durable_work();
SELECT seq, event, name FROM durable.events WHERE id = 'last' ORDER BY seq;

-- A13: a marker is no command: the body is not replaying behind the last one
SELECT deploy($$ BEGIN
    PERFORM durable_call('act', '["x"]');
    RETURN durable_is_replaying() || ' ' || durable_patched('p') || ' ' || durable_is_replaying();
END $$);
SELECT durable_start('flow', id => 'replaying');
CALL durable_work();
SELECT result FROM outcome WHERE id = 'replaying';

-- G7: a retry forgets the markers behind the step it goes on from, a fork takes over those before its position
CREATE TABLE broken (x bool);
INSERT INTO broken VALUES (true);
CREATE FUNCTION may_break() RETURNS text LANGUAGE plpgsql AS $$ BEGIN IF (SELECT x FROM broken) THEN RAISE EXCEPTION 'broken'; END IF; RETURN 'works'; END $$;
SELECT deploy($$ DECLARE result text := durable_change_version('a', 0, 1); BEGIN
    BEGIN
        PERFORM durable_call('may_break', retry => durable_retry_policy(max_attempts => 1));
    EXCEPTION WHEN OTHERS THEN
        PERFORM durable_change_version('b', 0, 1);
        PERFORM durable_call('act', '["cleaned up"]');
        RAISE;
    END;
    RETURN result || durable_change_version('b', 0, 2);
END $$);
SELECT durable_start('flow', id => 'breaks');
CALL durable_work();
UPDATE broken SET x = false;
SELECT durable_fork('breaks', 0, 'fork 0'), durable_fork('breaks', 1, 'fork 1'), durable_fork('breaks', 2, 'fork 2');
SELECT durable_retry('breaks');
CALL durable_work();
SELECT id, status, result FROM outcome WHERE id = 'breaks' OR id LIKE 'fork%';
SELECT id, name, data FROM marked WHERE id = 'breaks' OR id LIKE 'fork%' ORDER BY id, seq;

-- in a procedure
CREATE PROCEDURE linear() LANGUAGE plpgsql AS $$ BEGIN
    CALL durable_step('act', '["one"]');
    IF durable_patched('p') THEN
        CALL durable_step('act', '["patched"]');
    END IF;
    PERFORM durable_wait_signal('go');
END $$;
SELECT durable_register('linear');
SELECT durable_start('linear', id => 'linear');
CALL durable_work();
SELECT durable_signal('linear', 'go');
CALL durable_work();
SELECT seq, position, event, name FROM durable.events WHERE id = 'linear' ORDER BY seq;

-- I6: bad arguments are the body's error; outside of a body there are no markers
CREATE FUNCTION bad(call text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT ' || call; RETURN 'fine'; END $$;
SELECT durable_register('bad');
SELECT durable_start('bad', to_jsonb(call), id => call)
  FROM unnest(ARRAY['durable_patched(NULL)', 'durable_patched('''')', 'durable_change_version(''c'', 2, 1)', 'durable_change_version(''c'', -1, 1)',
                    'durable_change_version(''c'', 0, 0)', 'durable_change_version(''c'', NULL, 1)', 'durable_patched(repeat(''x'', 401))']) call;
CALL durable_work();
SELECT id, status, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS message FROM durable.instances WHERE workflow = 'bad' ORDER BY created_at;
SELECT durable_patched('x');
SELECT durable_change_version('x', 0, 1);
SELECT durable_deprecate_patch('x');
