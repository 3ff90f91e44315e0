-- Procedures as workflows: steps run in place and commit there.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA linear;
SET search_path = linear, public;

CREATE TABLE effect (n serial, what text, xid xid8 DEFAULT pg_current_xact_id());
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO effect (what) VALUES (what) RETURNING what';
CREATE FUNCTION breaks(times int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO effect (what) VALUES ('attempt ' || durable_attempt());
    IF durable_attempt() <= times THEN
        RAISE EXCEPTION 'attempt % breaks', durable_attempt() USING ERRCODE = 'UX001';
    END IF;
    RETURN 'unbroken';
END $$;

-- one pass, a transaction for each step
CREATE PROCEDURE steps(n int) LANGUAGE plpgsql AS $$
DECLARE
    said jsonb;
BEGIN
    PERFORM durable_log('a pass begins');
    RAISE NOTICE 'pass';
    FOR i IN 1..n LOOP
        CALL durable_step('note', jsonb_build_array('step ' || i), said);
        IF said <> to_jsonb('step ' || i) THEN
            RAISE EXCEPTION 'wrong result %', said;
        END IF;
    END LOOP;
    CALL durable_step('note', '["last"]', step_id => 'last');
END $$;
SELECT durable_register('steps');
SELECT durable_start('steps', '{"n": 3}', id => 'steps');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'steps';
SELECT what, count(*) OVER (PARTITION BY xid) AS in_transaction FROM effect ORDER BY n;
SELECT position, step_id, args, result FROM durable.steps WHERE id = 'steps' ORDER BY position;

-- INOUT and OUT parameters are the result
CREATE PROCEDURE sums(INOUT a int, b int, OUT total int) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('note', '["sum"]');
    a := a + 1;
    total := a + b;
END $$;
SELECT durable_register('sums');
SELECT durable_start('sums', '{"a": 1, "b": 2}', id => 'sums');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'sums';

-- waits, errors and their handlers, retries: the pass is left and begun again
TRUNCATE effect;
CREATE PROCEDURE mixed(INOUT said text[]) LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    CALL durable_step('note', '["one"]');
    PERFORM durable_sleep('0');
    CALL durable_step('note', '["two"]');
    CALL durable_step('breaks', '[2]', result, retry => durable_retry_policy(initial => '0'));
    said := said || (result ->> 0);
    BEGIN
        CALL durable_step('note', '["three, in a block"]', result);
        CALL durable_step('breaks', '[9]', result, retry => durable_retry_policy(max_attempts => 1));
    EXCEPTION WHEN SQLSTATE 'UX001' THEN
        said := said || SQLERRM;
    END;
    said := said || (durable_call('note', '["four, by durable_call"]') ->> 0);
    CALL durable_step('note', '["five"]');
    said := said || (durable_wait_signal('go') ->> 'by');
    CALL durable_step('note', '["six"]');
END $$;
SELECT durable_register('mixed');
SELECT durable_start('mixed', '{"said": []}', id => 'mixed');
CALL durable_work();
SELECT durable_status('mixed');
SELECT durable_signal('mixed', 'go', '{"by": "ann"}');
CALL durable_work();
SELECT status, result, reason, error FROM durable.instances WHERE id = 'mixed';
SELECT what FROM effect ORDER BY n;
SELECT position, step_id, kind, state, attempts FROM durable.steps WHERE id = 'mixed' ORDER BY position;

-- a step that fails for good fails the procedure
CREATE PROCEDURE breaking() LANGUAGE plpgsql AS $$
DECLARE
    said jsonb;
BEGIN
    CALL durable_step('note', '["before"]');
    CALL durable_step('breaks', '[9]', said, retry => durable_retry_policy(max_attempts => 2, initial => '0'));
    CALL durable_step('note', '["never"]');
END $$;
TRUNCATE effect;
SELECT durable_register('breaking');
SELECT durable_start('breaking', id => 'breaking');
CALL durable_work();
SELECT status, error ->> 'message' AS error FROM durable.instances WHERE id = 'breaking';
SELECT what FROM effect ORDER BY n;

-- loops over queries and nested procedures live over the commits
CREATE PROCEDURE inner_steps(prefix text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..2 LOOP
        CALL durable_step('note', jsonb_build_array(prefix || i));
    END LOOP;
END $$;
CREATE PROCEDURE loops() LANGUAGE plpgsql AS $$
DECLARE
    letter text;
BEGIN
    RAISE NOTICE 'pass';
    FOR letter IN SELECT chr(x) FROM generate_series(97, 99) x LOOP
        CALL inner_steps(letter);
    END LOOP;
END $$;
TRUNCATE effect;
SELECT durable_register('loops');
SELECT durable_start('loops', id => 'loops');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'loops';
SELECT string_agg(what, ' ' ORDER BY n) FROM effect;

-- where a commit is not possible the same call yields: a pass a step
CREATE FUNCTION in_function() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'pass of a function';
    CALL durable_step('note', '["function"]');
END $$;
CREATE PROCEDURE definer() LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RAISE NOTICE 'pass of a definer';
    CALL durable_step('note', '["definer"]');
END $$;
CREATE PROCEDURE with_set() LANGUAGE plpgsql SET work_mem = '1MB' AS $$
BEGIN
    RAISE NOTICE 'pass with SET';
    CALL durable_step('note', '["with SET"]');
END $$;
CREATE PROCEDURE loop_of_calls() LANGUAGE plpgsql AS $$
DECLARE
    said jsonb;
BEGIN
    RAISE NOTICE 'pass of a loop of calls';
    FOR said IN SELECT durable_call('note', jsonb_build_array('call ' || x)) FROM generate_series(1, 2) x LOOP
        CALL durable_step('note', jsonb_build_array('step after ' || (said ->> 0)));
    END LOOP;
END $$;
TRUNCATE effect;
SELECT durable_register(w), durable_start(w, id => w) FROM unnest('{in_function,definer,with_set,loop_of_calls}'::text[]) w;
CALL durable_work();
SELECT id, status, reason FROM durable.instances WHERE workflow IN ('in_function', 'definer', 'with_set', 'loop_of_calls') ORDER BY created_at;
SELECT what FROM effect ORDER BY n;
-- inside of a transaction everything yields
TRUNCATE effect;
SELECT durable_start('steps', '[2]', id => 'inside');
BEGIN;
SELECT durable_run('inside');
ROLLBACK;
SELECT durable_status('inside');
SELECT durable_run('inside');
SELECT what FROM effect ORDER BY n;

-- the sandbox stays armed after each commit
CREATE PROCEDURE says(statement text) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('note', jsonb_build_array('before ' || statement));
    EXECUTE statement;
    CALL durable_step('note', '["never"]');
END $$;
TRUNCATE effect;
SELECT durable_register('says');
SELECT durable_start('says', jsonb_build_array(s), id => s)
  FROM unnest('{INSERT INTO effect (what) VALUES (1),SELECT random(),SET work_mem = 99}'::text[]) s \g /dev/null
CALL durable_work();
SELECT id, status, substr(reason, 1, 90) AS reason FROM durable.instances WHERE workflow = 'says' ORDER BY created_at;
SELECT what FROM effect ORDER BY n;
-- a commit runs loop queries to their end: under the sandbox, too
CREATE FUNCTION writes(x int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE concat('INSE', 'RT INTO effect (what) VALUES (''by the body'')');
    RETURN true;
END $$;
CREATE DOMAIN writing AS int CHECK (writes(VALUE));
CREATE PROCEDURE hides_in_domain() LANGUAGE plpgsql AS $$
DECLARE
    x int;
BEGIN
    FOR x IN SELECT CASE WHEN g < 20 THEN g ELSE g::writing END FROM generate_series(1, 30) g LOOP
        CALL durable_step('note', '["step"]');
    END LOOP;
END $$;
TRUNCATE effect;
SELECT durable_register('hides_in_domain');
SELECT durable_start('hides_in_domain', id => 'domain');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'domain';
SELECT what, count(*) FROM effect GROUP BY what;
-- COMMIT and ROLLBACK are found by the source check, also in what is called
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
CREATE PROCEDURE calls_commits() LANGUAGE plpgsql AS $$ BEGIN CALL commits(); END $$;
SELECT durable_register('commits');
SELECT durable_register('calls_commits');
SELECT durable_start('calls_commits', id => 'calls_commits');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'calls_commits';

-- A10: a deferred constraint that fails at the step's end is a failed attempt
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION adopt(id int) RETURNS void LANGUAGE sql AS 'INSERT INTO child VALUES (id)';
CREATE PROCEDURE adopts(INOUT said jsonb) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('adopt', '[7]', said, retry => durable_retry_policy(max_attempts => 1));
END $$;
SELECT durable_register('adopts');
SELECT durable_start('adopts', '[null]', id => 'adopts');
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate FROM durable.instances WHERE id = 'adopts';
SELECT event FROM durable.events WHERE id = 'adopts' ORDER BY seq;
SELECT count(*) FROM child;
