-- The sandbox: what a body must not do is refused, in nested helpers too (A14).
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA sandbox;
SET search_path = sandbox, public;

CREATE TABLE t (x int);
INSERT INTO t VALUES (1);
CREATE SEQUENCE s;

-- The source check at registration names line and replacement.
CREATE FUNCTION clocks() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_sleep('1 s');
    RETURN now();
END $$;
SELECT durable_register('clocks');
SELECT durable_register('clocks', sandbox => 'warn');
SELECT durable_register('clocks', sandbox => 'off');
SET durable.sandbox = off;
SELECT durable_register('clocks');
RESET durable.sandbox;

-- What the source does not show is refused when it runs. Each of these hides
-- in a helper that the source check cannot read, or in a string.
CREATE FUNCTION hidden(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    EXECUTE statement INTO said;
    RETURN said;
END $$;
CREATE FUNCTION hides(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN hidden(statement);
END $$;
SELECT durable_register('hides');
SELECT durable_start('hides', jsonb_build_array(statement), id => statement)
  FROM unnest(ARRAY[
    'INSERT INTO t VALUES (2)',
    'WITH w AS (INSERT INTO t VALUES (2) RETURNING x) SELECT x FROM w',
    'SELECT x FROM t',
    'SELECT x FROM t FOR UPDATE',
    'SELECT count(*) FROM pg_class',
    'SELECT nextval(''s'')',
    'SELECT random()',
    'SELECT clock_timestamp()',
    'SELECT now()',
    'SELECT statement_timestamp()',
    'SELECT gen_random_uuid()',
    'SELECT pg_backend_pid()',
    'SELECT txid_current()',
    'SELECT current_setting(''work_mem'')',
    'SELECT set_config(''work_mem'', ''1MB'', false)',
    'SELECT pg_notify(''a'', ''b'')',
    'SELECT pg_advisory_lock(1)',
    'SELECT pg_sleep(0)',
    'SELECT lo_create(0)',
    'SET work_mem = ''1MB''',
    'SET TRANSACTION READ WRITE',
    'NOTIFY a',
    'LISTEN a',
    'LOCK TABLE t',
    'COPY t TO PROGRAM ''true''',
    'CREATE TEMP TABLE u ()',
    'TRUNCATE t',
    'SHOW work_mem',
    'SELECT durable_status(''helper'')',
    -- and these are fine
    'SELECT 1 + 1',
    'SELECT string_agg(x::text, '','') FROM generate_series(1, 3) x',
    'SELECT jsonb_build_object(''a'', upper(''b''))',
    'SELECT md5(format(''%s'', ''2020-01-01''::date))'
  ]) AS statement \g /dev/null
CALL durable_work();
SELECT id, status, coalesce(substr(reason, 1, 100), result #>> '{}') AS outcome FROM durable.instances
 WHERE workflow = 'hides' ORDER BY created_at;
SELECT * FROM t;

-- helpers are checked when they are entered
CREATE FUNCTION helper() RETURNS date LANGUAGE plpgsql AS $$
BEGIN
    RETURN CURRENT_DATE;
END $$;
CREATE FUNCTION uses_helper() RETURNS date LANGUAGE plpgsql AS $$ BEGIN RETURN helper(); END $$;
SELECT durable_register('uses_helper');
SELECT durable_start('uses_helper', id => 'helper');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'helper';
-- a corrected helper is looked at again
CREATE OR REPLACE FUNCTION helper() RETURNS date LANGUAGE plpgsql AS $$ BEGIN RETURN durable_now()::date; END $$;
SELECT durable_resume('helper'), durable_run('helper');
-- so is the workflow itself, when it was replaced without being registered
CREATE OR REPLACE FUNCTION uses_helper() RETURNS date LANGUAGE plpgsql AS $$ BEGIN RETURN 'today'::date; END $$;
SELECT durable_start('uses_helper', id => 'replaced');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'replaced';

-- A15: nor does catching help
CREATE FUNCTION catches() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN hidden('SELECT random()');
EXCEPTION
    WHEN query_canceled THEN RETURN 'caught';
    WHEN OTHERS THEN RETURN 'caught by others';
END $$;
SELECT durable_register('catches');
SELECT durable_start('catches', id => 'catches');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'catches';

-- warn tells and goes on; the writes of a body are rolled back all the same
CREATE FUNCTION careless() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hidden('INSERT INTO t VALUES (3) RETURNING x');
    RETURN hidden('SELECT count(*) FROM t');
END $$;
SELECT durable_register('careless', sandbox => 'warn');
SELECT durable_start('careless', id => 'warned');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'warned';
SELECT durable_register('careless', sandbox => 'off');
SELECT durable_start('careless', id => 'off');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'off';
SELECT * FROM t;

-- activities may do all of it
CREATE FUNCTION free() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM now(), random(), nextval('s');
    PERFORM set_config('work_mem', '1MB', false);
    INSERT INTO t VALUES (4);
    RETURN 'free';
END $$;
CREATE FUNCTION calls_free() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('free'); END $$;
SELECT durable_register('calls_free');
SELECT durable_start('calls_free', id => 'free');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'free';
SELECT * FROM t;
-- A19: and what they set is undone
SHOW work_mem;
