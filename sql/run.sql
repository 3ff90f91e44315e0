-- durable_run: an instance driven inside of a transaction.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA run;
SET search_path = run, public;

CREATE TABLE effect (n serial, what text);
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO effect (what) VALUES (what) RETURNING what';
CREATE FUNCTION many(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        PERFORM durable_call('note', jsonb_build_array(i));
    END LOOP;
    RETURN n;
END $$;
SELECT durable_register('many');

-- all or nothing, with the caller's transaction
SELECT durable_start('many', '[2]', id => 'rollback');
BEGIN;
SELECT durable_run('rollback');
SELECT status, result FROM durable.instances WHERE id = 'rollback';
ROLLBACK;
SELECT status FROM durable.instances WHERE id = 'rollback';
SELECT count(*) FROM effect;
-- started and run in one transaction
BEGIN;
SELECT durable_start('many', '[2]', id => 'together');
SELECT durable_run('together');
COMMIT;
SELECT durable_result('together');
SELECT count(*) FROM effect;
-- a savepoint is enough
BEGIN;
SAVEPOINT s;
SELECT durable_run('rollback');
ROLLBACK TO s;
SELECT durable_status('rollback');
COMMIT;

-- it works in exception blocks and loops of the caller
DO $$
BEGIN
    BEGIN
        PERFORM durable_run('rollback');
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        RAISE NOTICE 'rolled back: %', durable_status('rollback');
    END;
    FOR i IN 1..3 LOOP
        RAISE NOTICE '%', durable_run(durable_start('many', '[1]', id => 'loop ' || i));
    END LOOP;
END $$;

-- an activity that fails is rolled back alone
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO effect (what) VALUES ('undone');
    RAISE EXCEPTION 'failed';
END $$;
CREATE FUNCTION goes_on() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '["done"]');
    PERFORM durable_call('fails', retry => durable_retry_policy(max_attempts => 1));
    RETURN 'never';
EXCEPTION WHEN raise_exception THEN
    RETURN durable_call('note', '["after"]') ->> 0;
END $$;
TRUNCATE effect;
SELECT durable_register('goes_on');
SELECT durable_start('goes_on', id => 'goes on');
SELECT durable_run('goes on'), durable_result('goes on');
SELECT what FROM effect ORDER BY n;

-- constraints of the caller that are deferred are not a step's fault
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
SELECT durable_start('many', '[1]', id => 'constraint');
BEGIN;
INSERT INTO child VALUES (1);
SELECT durable_run('constraint');
ROLLBACK;
-- A10: those of an activity are
CREATE FUNCTION adopt(id int) RETURNS void LANGUAGE sql AS 'INSERT INTO child VALUES (id)';
CREATE FUNCTION adopts() RETURNS void LANGUAGE plpgsql AS $$
BEGIN PERFORM durable_call('adopt', '[7]', retry => durable_retry_policy(max_attempts => 1)); END $$;
SELECT durable_register('adopts');
SELECT durable_start('adopts', id => 'adopts');
SELECT durable_run('adopts');
SELECT error ->> 'sqlstate' AS sqlstate FROM durable.instances WHERE id = 'adopts';
SELECT count(*) FROM child;

-- more steps than subtransactions are good for
TRUNCATE effect;
SELECT durable_start('many', '[100]', id => 'hundred');
SELECT durable_run('hundred');
SELECT durable_run('hundred');
SELECT count(*), count(DISTINCT what) FROM effect;

-- where it cannot run
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT durable_run('constraint');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable_run('constraint');
ROLLBACK;
BEGIN;
SELECT 1 / 0;
SELECT durable_run('constraint');
ROLLBACK;
SELECT durable_run('nobody');
SELECT durable_run(NULL);
SELECT durable_run('constraint');
-- at the end it says so
SELECT durable_run('constraint');

-- a step sees what the steps before it did, also when it is STABLE
CREATE FUNCTION count_effects() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM effect';
CREATE FUNCTION counts() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', '["one"]');
    PERFORM durable_call('note', '["two"]');
    RETURN durable_call('count_effects');
END $$;
TRUNCATE effect;
SELECT durable_register('counts');
SELECT durable_start('counts', id => 'counts');
SELECT durable_run('counts'), durable_result('counts');

-- what the caller deferred stays deferred
SELECT durable_start('many', '[1]', id => 'deferred');
BEGIN;
INSERT INTO child VALUES (5);
INSERT INTO parent VALUES (5);
SELECT durable_run('deferred');
INSERT INTO child VALUES (6);
INSERT INTO parent VALUES (6);
COMMIT;
SELECT * FROM child ORDER BY id;

-- a caller that catches an error of ours goes on in its own transaction
CREATE FUNCTION sleeps_long() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(60)';
CREATE FUNCTION calls_sleeps_long() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_call('sleeps_long'); END $$;
SELECT durable_register('calls_sleeps_long');
SELECT durable_start('calls_sleeps_long', id => 'long');
TRUNCATE effect;
SET statement_timeout = '200 ms';
DO $$
BEGIN
    INSERT INTO effect (what) VALUES ('kept');
    BEGIN
        INSERT INTO effect (what) VALUES ('undone');
        PERFORM durable_run('long');
    EXCEPTION WHEN query_canceled THEN
        RAISE NOTICE 'cancelled';
    END;
END $$;
RESET statement_timeout;
SELECT what FROM effect;
SELECT durable_status('long');
DELETE FROM durable_internal.ready;
