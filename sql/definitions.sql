-- What an instance runs on when its functions have changed
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
\set SHOW_CONTEXT never
CREATE SCHEMA definitions;
SET search_path = definitions, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION act(what text) RETURNS text LANGUAGE sql AS $$ INSERT INTO effect (what) VALUES (what) RETURNING what $$;
-- flow says which version it is: in an activity before the wait, and in its result
CREATE FUNCTION deploy(name text, version text) RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
    EXECUTE format($d$CREATE OR REPLACE FUNCTION %I() RETURNS text LANGUAGE plpgsql AS $b$
        BEGIN
            PERFORM durable_call('act', '["begun"]');
            PERFORM durable_wait_signal('go');
            RETURN %L;
        END $b$ $d$, name, version);
END $f$;
CREATE VIEW outcome AS
    SELECT i.id, i.status, i.version, i.result, i.reason FROM durable.instances i ORDER BY i.created_at, i.id;
CREATE VIEW versions AS
    SELECT name, version, current, instances, can_go FROM durable.workflows ORDER BY name, version;
CREATE VIEW copies AS
    SELECT p.proname AS copy_of, l.lanname AS language, p.prokind AS kind,
           p.provolatile AS volatility, p.prosecdef AS secdef, p.proconfig AS settings, pg_get_userbyid(p.proowner) = current_user AS mine
      FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%' ORDER BY 1;
-- names of copies and hashes are not the same in every run
CREATE FUNCTION readable(reason text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(reason, '\([0-9a-f]{64}\)', '(hash)', 'g') $$;

--
-- C5, C6: pin: who has begun on a definition finishes on it, new ones get the new one
--
SELECT deploy('pinned', 'one');
SELECT durable_register('pinned');
SELECT durable_start('pinned', id => 'p1'), durable_start('pinned', id => 'p1 too');
CALL durable_work();
SELECT count(*) FROM copies;
SELECT deploy('pinned', 'two');
SELECT durable_register('pinned');
SELECT durable_start('pinned', id => 'p2');
-- replaced without a word: the next start notices
SELECT deploy('pinned', 'three');
SELECT durable_start('pinned', id => 'p3');
CALL durable_work();
TABLE versions;
-- a copy is there when it is needed, and gone with the last one that needs it
SELECT durable_signal('p1', 'go');
CALL durable_work();
SELECT count(*) FROM copies;
SELECT durable_signal(id, 'go') FROM unnest('{p1 too,p2,p3}'::text[]) id;
CALL durable_work();
TABLE outcome;
SELECT count(*) FROM copies;
TABLE versions;
-- one that was ended by others leaves no copy either
SELECT durable_start('pinned', id => 'terminated');
CALL durable_work();
SELECT deploy('pinned', 'four');
SELECT durable_start('pinned', id => 'stays');
CALL durable_work();
SELECT durable_fork('terminated', 1, 'forked');
CALL durable_work();
SELECT version FROM durable.instances WHERE id = 'forked';
SELECT copy_of FROM copies;
SELECT durable_terminate(id) FROM unnest('{terminated,forked,stays}'::text[]) id;
CALL durable_work();
SELECT count(*) FROM copies;

-- taken back, it is the same definition again, and needs no copy
SELECT durable_start('pinned', id => 'back');
CALL durable_work();
SELECT deploy('pinned', 'other');
SELECT durable_register('pinned');
SELECT deploy('pinned', 'four');
SELECT durable_register('pinned');
SELECT durable_signal('back', 'go');
CALL durable_work();
SELECT id, version, result FROM outcome WHERE id = 'back';
SELECT count(*) FROM copies;

--
-- C5: the other policies, on every way by which an instance goes on
--
CREATE FUNCTION flaky() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    IF durable_attempt() = 1 THEN RAISE EXCEPTION 'once'; END IF; RETURN 'flaky'; END $$;
CREATE FUNCTION deploy_paths(version text) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
    policy text;
BEGIN
    FOREACH policy IN ARRAY '{pin,continue,hold}'::text[] LOOP
        EXECUTE format($d$CREATE OR REPLACE FUNCTION %I(how text) RETURNS text LANGUAGE plpgsql AS $b$
            BEGIN
                PERFORM durable_call('act', '["begun"]');
                IF how = 'signal' THEN
                    PERFORM durable_wait_signal('go');
                ELSIF how = 'timer' THEN
                    PERFORM durable_sleep_until('2001-01-01');
                    PERFORM durable_wait_signal('go', timeout => '2 s');
                ELSIF how = 'attempt' THEN
                    PERFORM durable_call('flaky', retry => durable_retry_policy(max_attempts => 2, initial => '1 s', jitter => 0));
                ELSIF how = 'missing' THEN
                    PERFORM durable_call('comes_later');
                ELSIF how = 'paused' THEN
                    PERFORM durable_wait_signal('go');
                ELSIF how = 'failed' THEN
                    PERFORM durable_call('breaks', retry => durable_retry_policy(max_attempts => 1));
                END IF;
                PERFORM durable_call('act', '["ended"]');
                RETURN %L;
            END $b$ $d$, policy, version);
        PERFORM durable_register(policy, on_change => policy);
    END LOOP;
END $f$;
CREATE FUNCTION breaks() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
SELECT deploy_paths('one');
SELECT count(durable_start(policy, to_jsonb(how), id => policy || ' ' || how))
  FROM unnest('{pin,continue,hold}'::text[]) policy, unnest('{signal,timer,attempt,missing,paused,failed}'::text[]) how;
CALL durable_work();
SELECT id, status FROM outcome WHERE id ~ '^(pin|continue|hold) ' ORDER BY 1;
SELECT durable_pause(policy || ' paused') FROM unnest('{pin,continue,hold}'::text[]) policy;
SELECT deploy_paths('two');
CREATE FUNCTION comes_later() RETURNS text LANGUAGE sql AS $$ SELECT 'later' $$;
CREATE OR REPLACE FUNCTION breaks() RETURNS void LANGUAGE sql AS '';
SELECT durable_signal(policy || ' ' || how, 'go') FROM unnest('{pin,continue,hold}'::text[]) policy, unnest('{signal,paused}'::text[]) how;
SELECT durable_resume(policy || ' ' || how) FROM unnest('{pin,continue,hold}'::text[]) policy, unnest('{missing,paused}'::text[]) how;
SELECT durable_retry(policy || ' failed') FROM unnest('{pin,continue,hold}'::text[]) policy;
DO $$ BEGIN
    -- until the timers are due
    WHILE EXISTS (SELECT 1 FROM durable.timers WHERE wake_at > clock_timestamp()) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
CALL durable_work();
SELECT id, status, version, result, readable(reason) AS reason FROM outcome WHERE id ~ '^(pin|continue|hold) ' ORDER BY 1;
-- the switch is an event
SELECT id, event, data - '{from_hash,to_hash}'::text[] AS data, data ->> 'from_hash' <> (data ->> 'to_hash') AS differ
  FROM durable.events WHERE event = 'WorkflowDefinitionChanged' ORDER BY id;
-- hold: somebody chooses
SELECT durable_resume('hold signal', definition => 'pinned'), durable_resume('hold timer', definition => 'current'), durable_resume('hold attempt');
SELECT durable_resume('hold missing', definition => 'no such thing');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id ~ '^hold ' AND status = 'completed' ORDER BY 1;
SELECT count(*) FROM copies;

-- a choice for 'pinned' lasts
SELECT deploy('held', 'one');
SELECT durable_register('held', on_change => 'hold');
SELECT durable_start('held', id => 'h');
CALL durable_work();
SELECT deploy('held', 'two');
SELECT durable_pause('h'), durable_resume('h', definition => 'pinned');
SELECT deploy('held', 'three');
SELECT durable_signal('h', 'go');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id = 'h';
-- what is the same again is not held
SELECT durable_start('held', id => 'h2');
CALL durable_work();
SELECT deploy('held', 'four');
SELECT durable_register('held', on_change => 'hold');
SELECT deploy('held', 'three');
SELECT durable_register('held', on_change => 'hold');
SELECT durable_signal('h2', 'go');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id = 'h2';

-- another function under the same name of a workflow
SELECT deploy('first_function', 'first'), deploy('second_function', 'second');
SELECT durable_register('first_function', 'moves', on_change => 'continue'), durable_register('first_function', 'stays');
SELECT durable_start('moves', id => 'm'), durable_start('stays', id => 's');
CALL durable_work();
SELECT durable_register('second_function', 'moves', on_change => 'continue'), durable_register('second_function', 'stays');
SELECT durable_signal('m', 'go'), durable_signal('s', 'go');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id IN ('m', 's');

--
-- durable_resume and durable_retry: current by default when the body is what was wrong (B5)
--
CREATE FUNCTION fails() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    RAISE EXCEPTION 'wrong';
END $$;
SELECT durable_register('fails');
CREATE FUNCTION gap() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    RETURN no_such_function();
END $$;
SELECT durable_register('gap');
SELECT durable_start('fails', id => 'fails'), durable_start('fails', id => 'fails pinned'), durable_start('gap', id => 'gap');
CALL durable_work();
SELECT id, status, version FROM outcome WHERE id ~ '^(fails|gap)';
CREATE OR REPLACE FUNCTION fails() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    RETURN 'mended';
END $$;
CREATE OR REPLACE FUNCTION gap() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_call('act', '["begun"]');
    RETURN 'mended';
END $$;
SELECT durable_retry('fails'), durable_retry('fails pinned', definition => 'pinned'), durable_resume('gap');
SELECT durable_retry('fails', definition => 'x');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id ~ '^(fails|gap)';

--
-- A dropped or renamed function
--
SELECT deploy('goes', 'went on'), deploy('goes_too', 'went on'), deploy('renamed', 'went on');
SELECT durable_register('goes'), durable_register('goes_too', on_change => 'continue'), durable_register('renamed', on_change => 'hold');
SELECT durable_start(name, id => name) FROM unnest('{goes,goes_too,renamed}'::text[]) name;
CALL durable_work();
DROP FUNCTION goes(), goes_too();
ALTER FUNCTION renamed() RENAME TO has_another_name;
SELECT durable_signal(name, 'go') FROM unnest('{goes,goes_too,renamed}'::text[]) name;
CALL durable_work();
SELECT id, status, result, reason FROM outcome WHERE id IN ('goes', 'goes_too', 'renamed');
SELECT durable_start('goes');
SELECT deploy('goes_too', 'is back');
ALTER FUNCTION has_another_name() RENAME TO renamed;
SELECT durable_resume('goes_too'), durable_resume('renamed');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id IN ('goes_too', 'renamed');

--
-- What a copy is: language, kind, attributes, arguments
--
CREATE FUNCTION in_sql(n int, OUT a int, OUT b text) LANGUAGE sql STABLE SET work_mem = '1MB' AS $$
    SELECT n + (durable_wait_signal('go'))::int, 'one' $$;
CREATE FUNCTION atomic(n int DEFAULT 41) RETURNS int LANGUAGE sql
    BEGIN ATOMIC SELECT n + (durable_wait_signal('go'))::int; END;
CREATE FUNCTION secure() RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
    BEGIN PERFORM durable_wait_signal('go'); RETURN 'one'; END $$;
CREATE FUNCTION several(n int) RETURNS SETOF int LANGUAGE plpgsql AS $$
    BEGIN PERFORM durable_wait_signal('go'); RETURN NEXT n; RETURN NEXT n + 1; END $$;
CREATE PROCEDURE "Odd (Name"(INOUT n int) LANGUAGE plpgsql AS $$
    BEGIN CALL durable_step('act', '["in place"]'); PERFORM durable_wait_signal('go'); n := n + 1; END $$;
-- a body may name its parameters by its own name
CREATE FUNCTION by_name(n int) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN PERFORM durable_wait_signal('go'); RETURN by_name.n; END $$;
CREATE FUNCTION by_name_in_sql(n int) RETURNS text LANGUAGE sql AS $$
    SELECT durable_wait_signal('go'); SELECT by_name_in_sql.n::text $$;
CREATE FUNCTION a_very_long_name_of_a_function_that_is_cut_when_a_copy_is_made_() RETURNS text LANGUAGE plpgsql AS $$
    BEGIN PERFORM durable_wait_signal('go'); RETURN 'one'; END $$;
SELECT durable_register(f, f)
  FROM unnest('{in_sql,atomic,secure,several,"\"Odd (Name\"",by_name,by_name_in_sql,a_very_long_name_of_a_function_that_is_cut_when_a_copy_is_made_}'::text[]) f;
SELECT durable_start('in_sql', '[1]', id => 'in_sql'), durable_start('atomic', id => 'atomic'), durable_start('secure', id => 'secure'),
       durable_start('by_name', '[6]', id => 'by_name'), durable_start('by_name_in_sql', '[7]', id => 'by_name_in_sql'),
       durable_start('several', '[5]', id => 'several'), durable_start('"Odd (Name"', '[5]', id => 'odd'),
       durable_start('a_very_long_name_of_a_function_that_is_cut_when_a_copy_is_made_', id => 'long');
CALL durable_work();
CREATE OR REPLACE FUNCTION in_sql(n int, OUT a int, OUT b text) LANGUAGE sql AS $$ SELECT 0, 'two' $$;
CREATE OR REPLACE FUNCTION atomic(n int DEFAULT 41) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 0; END;
CREATE OR REPLACE FUNCTION secure() RETURNS text LANGUAGE sql AS $$ SELECT 'two' $$;
CREATE OR REPLACE FUNCTION several(n int) RETURNS SETOF int LANGUAGE sql AS $$ SELECT 0 $$;
CREATE OR REPLACE FUNCTION by_name(n int) RETURNS text LANGUAGE sql AS $$ SELECT 'two' $$;
CREATE OR REPLACE FUNCTION by_name_in_sql(n int) RETURNS text LANGUAGE sql AS $$ SELECT 'two' $$;
CREATE OR REPLACE PROCEDURE "Odd (Name"(INOUT n int) LANGUAGE sql AS $$ SELECT 0 $$;
CREATE OR REPLACE FUNCTION a_very_long_name_of_a_function_that_is_cut_when_a_copy_is_made_() RETURNS text LANGUAGE sql AS $$ SELECT 'two' $$;
SELECT durable_signal(id, 'none') FROM unnest('{in_sql,atomic,secure,several,odd,by_name,by_name_in_sql,long}'::text[]) id;
-- woken without a reason: they look again, and wait on
SELECT durable_pause(id), durable_resume(id) FROM unnest('{in_sql,atomic,secure,several,odd,by_name,by_name_in_sql,long}'::text[]) id;
CALL durable_work();
TABLE copies;
-- nobody can call them
SELECT bool_or(has_schema_privilege('public', pronamespace, 'USAGE')),
       bool_or(has_function_privilege('public', p.oid, 'EXECUTE')) FROM pg_proc p WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%';
SELECT durable_signal(id, 'go', '1') FROM unnest('{in_sql,atomic,secure,several,odd,by_name,by_name_in_sql,long}'::text[]) id;
CALL durable_work();
SELECT id, status, result FROM outcome WHERE id IN ('in_sql', 'atomic', 'secure', 'several', 'odd', 'by_name', 'by_name_in_sql', 'long');
SELECT count(*) FROM copies;
SELECT what, count(*) FROM effect WHERE what = 'in place' GROUP BY 1;

--
-- C7: handlers, validators and conditions are pinned with the workflow; helpers and activities are not
--
CREATE FUNCTION add_item(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT coalesce(state, '{}') || jsonb_build_object('items', coalesce(state -> 'items', '[]') || payload, 'by', 'old') $$;
CREATE FUNCTION check_item(state jsonb, payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF payload = '"bad"' THEN RAISE EXCEPTION 'bad by old rules'; END IF; END $$;
CREATE FUNCTION replace_items(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('state', state || '{"replaced": "old"}', 'result', 'old') $$;
CREATE FUNCTION is_full(state jsonb) RETURNS bool LANGUAGE sql AS $$ SELECT jsonb_array_length(state -> 'items') >= 2 $$;
CREATE FUNCTION how_many(state jsonb, args jsonb) RETURNS text LANGUAGE sql AS $$ SELECT jsonb_array_length(state -> 'items') || ' old' $$;
CREATE FUNCTION helper() RETURNS text LANGUAGE sql AS $$ SELECT 'old helper' $$;
CREATE FUNCTION basket(computed text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_on_signal('item', computed);
    PERFORM durable_on_update('replace', validator => 'check_item', handler => 'replace_items');
    PERFORM durable_on_query('how_many', 'how_many');
    PERFORM durable_set_state('{"items": []}');
    PERFORM durable_wait_until('is_full');
    RETURN (durable_state() ->> 'by') || ', ' || helper() || ', ' || durable_call_as(NULL::text, 'says');
END $$;
CREATE FUNCTION says() RETURNS text LANGUAGE sql AS $$ SELECT 'old activity' $$;
SELECT durable_register('basket');
SELECT function, name FROM durable_internal.workflow_handler WHERE workflow = 'basket' ORDER BY 1;
SELECT durable_start('basket', '"add_item"', id => 'b1');
CALL durable_work();
SELECT durable_signal('b1', 'item', '1');
CALL durable_work();
-- one that the text does not name is known since it was used
SELECT function, name, version FROM durable_internal.workflow_handler WHERE workflow = 'basket' AND name = 'add_item';
CREATE OR REPLACE FUNCTION add_item(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT coalesce(state, '{}') || jsonb_build_object('items', coalesce(state -> 'items', '[]') || payload, 'by', 'new') $$;
CREATE OR REPLACE FUNCTION check_item(state jsonb, payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF payload = '"good"' THEN RAISE EXCEPTION 'bad by new rules'; END IF; END $$;
CREATE OR REPLACE FUNCTION replace_items(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('state', state || '{"replaced": "new"}', 'result', 'new') $$;
CREATE OR REPLACE FUNCTION is_full(state jsonb) RETURNS bool LANGUAGE sql AS $$ SELECT jsonb_array_length(state -> 'items') >= 1 $$;
CREATE OR REPLACE FUNCTION how_many(state jsonb, args jsonb) RETURNS text LANGUAGE sql AS $$ SELECT jsonb_array_length(state -> 'items') || ' new' $$;
CREATE OR REPLACE FUNCTION helper() RETURNS text LANGUAGE sql AS $$ SELECT 'new helper' $$;
CREATE OR REPLACE FUNCTION says() RETURNS text LANGUAGE sql AS $$ SELECT 'new activity' $$;
SELECT durable_start('basket', '"add_item"', id => 'b2');
SELECT name, version, current FROM versions WHERE name = 'basket';
SELECT durable_update('b1', 'replace', '"good"') AS good, durable_update('b1', 'replace', '"bad"') AS bad \gset
CALL durable_work();
SELECT durable_update_result(:good);
SELECT durable_update_result(:bad);
SELECT durable_query('b1', 'how_many');
BEGIN READ ONLY;
SELECT durable_query('b1', 'how_many');
COMMIT;
SELECT durable_query('b1');
SELECT durable_signal('b1', 'item', '2'), durable_signal('b2', 'item', '1');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id IN ('b1', 'b2');
-- an ended one is asked with the handler it had
SELECT durable_query('b1', 'how_many'), durable_query('b2', 'how_many');
SELECT count(*) FROM copies;
-- a dropped one is still there for those who began with it
SELECT durable_start('basket', '"add_item"', id => 'b3');
CALL durable_work();
DROP FUNCTION is_full(jsonb), add_item(jsonb, jsonb);
SELECT durable_signal('b3', 'item', '1');
CALL durable_work();
SELECT id, status, version, result FROM outcome WHERE id = 'b3';
-- a handler that fails is mended, and its instance goes on with the mended one
CREATE FUNCTION add_item(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
CREATE FUNCTION is_full(state jsonb) RETURNS bool LANGUAGE sql AS $$ SELECT jsonb_array_length(state -> 'items') >= 1 $$;
SELECT durable_start('basket', '"add_item"', id => 'b4');
SELECT durable_signal('b4', 'item', '1');
CALL durable_work();
SELECT id, status, reason FROM outcome WHERE id = 'b4';
CREATE OR REPLACE FUNCTION add_item(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT state || jsonb_build_object('items', '[1]'::jsonb, 'by', 'mended') $$;
SELECT durable_resume('b4');
CALL durable_work();
SELECT id, status, result, reason FROM outcome WHERE id = 'b4';

--
-- H4: the next run of a chain is on the current definition
--
CREATE FUNCTION chain(n int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_wait_signal('go');
    IF n < 2 THEN PERFORM durable_continue_as_new(jsonb_build_array(n + 1)); END IF;
    RETURN 'old';
END $$;
SELECT durable_register('chain');
SELECT durable_start('chain', '[1]', id => 'chain');
CALL durable_work();
CREATE OR REPLACE FUNCTION chain(n int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_wait_signal('go');
    RETURN 'new';
END $$;
SELECT durable_signal('chain', 'go'), durable_signal('chain', 'go');
CALL durable_work();
SELECT run, status, version, result FROM durable.instances WHERE id = 'chain' ORDER BY run;
SELECT count(*) FROM copies;

--
-- What makes a version is the same for all who look
--
-- settings by which definitions are written and read
CREATE FUNCTION literals(a text DEFAULT 'back\slash', b text[] DEFAULT '{NULL,null}') RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_wait_signal('go');
    RETURN a || coalesce(b[2], ' is null');
END $$;
SELECT durable_register('literals');
SELECT durable_start('literals', id => 'literals');
CALL durable_work();
SET standard_conforming_strings = off;
SET array_nulls = off;
SELECT durable_start('literals', id => 'no other version');
SELECT name, version FROM versions WHERE name = 'literals';
CREATE OR REPLACE FUNCTION literals(a text DEFAULT '', b text[] DEFAULT '{}') RETURNS text LANGUAGE sql AS $$ SELECT 'new' $$;
SELECT durable_signal('literals', 'go');
CALL durable_work();
RESET standard_conforming_strings;
RESET array_nulls;
SELECT id, version, result FROM outcome WHERE id IN ('literals', 'no other version') ORDER BY 1;
SELECT durable_terminate('no other version');
CREATE FUNCTION same(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT payload';
CREATE FUNCTION seen() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_signal('go'); END $$;
SELECT durable_register('seen');
-- a temporary type that has the name of one of the server's
CREATE TEMP TABLE jsonb ();
SELECT durable_start('seen', id => 'hidden type');
DROP TABLE jsonb;
SELECT durable_start('seen', id => 'shown type');
SELECT name, version FROM versions WHERE name = 'seen';
-- handlers are found by the settings of the registration, not of who notices the change
CREATE OR REPLACE FUNCTION seen() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_on_signal('same', 'same');
    RETURN durable_wait_signal('go');
END $$;
SET search_path = public;
SELECT durable_start('seen', id => 'noticed elsewhere');
SET search_path = definitions, public;
SELECT function, version FROM durable_internal.workflow_handler WHERE workflow = 'seen';
-- one whose types are gone is gone
CREATE TYPE mood AS ENUM ('good');
CREATE FUNCTION cheer(state jsonb, payload mood) RETURNS jsonb LANGUAGE sql AS 'SELECT state';
CREATE OR REPLACE FUNCTION seen() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
    PERFORM durable_on_signal('cheer', 'cheer');
    RETURN durable_wait_signal('go');
END $$;
SELECT durable_register('seen');
SET client_min_messages = warning;
DROP TYPE mood CASCADE;
RESET client_min_messages;
SELECT durable_start('seen', id => 'no type');
SELECT durable_register('seen');
SELECT name, version FROM versions WHERE name = 'seen';
SELECT durable_terminate(id) FROM outcome WHERE status = 'pending' OR id = 'hidden type';

--
-- A copy that cannot be dropped disturbs nobody, and event triggers do not disturb copies
--
CREATE FUNCTION no_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'nothing is changed here'; END $$;
SELECT deploy('pinned', 'kept');
SELECT durable_start('pinned', id => 'kept'), durable_start('pinned', id => 'kept too');
CALL durable_work();
SELECT deploy('pinned', 'other');
CREATE EVENT TRIGGER definitions_no_drop ON sql_drop EXECUTE FUNCTION no_ddl();
CREATE EVENT TRIGGER definitions_no_ddl ON ddl_command_end EXECUTE FUNCTION no_ddl();
SELECT durable_signal('kept', 'go');
CALL durable_work();
SELECT copy_of FROM copies;
DROP EVENT TRIGGER definitions_no_ddl;
DROP EVENT TRIGGER definitions_no_drop;
SELECT durable_pause('kept too'), durable_resume('kept too');
CALL durable_work();
DO $$ BEGIN EXECUTE (SELECT format('CREATE VIEW of_a_copy AS SELECT %I.%I()', schema, function) FROM durable_internal.pin); END $$;
SELECT durable_signal('kept too', 'go');
CALL durable_work();
SELECT durable_start('pinned', id => 'behind kept');
CALL durable_work();
SELECT id, status, result FROM outcome WHERE id ~ 'kept';
SELECT copy_of FROM copies;
DROP VIEW of_a_copy;
CALL durable_work();
SELECT count(*) FROM copies;

-- J4: DROP EXTENSION takes copies that are in use with it
SELECT deploy('pinned', 'five');
SELECT durable_start('pinned', id => 'in use');
CALL durable_work();
SELECT deploy('pinned', 'six');
SELECT durable_pause('in use'), durable_resume('in use');
CALL durable_work();
SELECT count(*) FROM copies;
DROP EXTENSION durable CASCADE;
SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'durable_pin%';
