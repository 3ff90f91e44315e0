-- Divergence: what the history has and the workflow asks for must agree.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA divergence;
SET search_path = divergence, public;

CREATE FUNCTION a(x int) RETURNS int LANGUAGE sql AS 'SELECT x';
CREATE FUNCTION b(x int) RETURNS int LANGUAGE sql AS 'SELECT x';
CREATE FUNCTION c(x numeric) RETURNS numeric LANGUAGE sql AS 'SELECT x';

-- Runs an instance of the first body up to its wait for "go", then the second one.
CREATE FUNCTION deploy(body text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION changing() RETURNS text LANGUAGE plpgsql AS %L', body);
END $$;
CREATE PROCEDURE diverge(name text, before text, after text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM deploy(before);
    PERFORM durable_register('changing', sandbox => 'strict', on_change => 'continue');
    PERFORM durable_start('changing', id => name);
    PERFORM durable_run(name);
    PERFORM deploy(after);
    PERFORM durable_signal(name, 'go');
    PERFORM durable_run(name);
END $$;
CREATE VIEW outcome AS SELECT id, status, reason, result FROM durable.instances ORDER BY created_at DESC LIMIT 1;
\x on

-- B1: another step
CALL diverge('another step',
    $$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN PERFORM durable_call('b', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'new'; END $$);
TABLE outcome;
-- B2: the same with other arguments
CALL diverge('other arguments',
    $$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN PERFORM durable_call('a', '[2]'); PERFORM durable_wait_signal('go'); RETURN 'new'; END $$);
TABLE outcome;
-- B3: swapped, and of another kind
CALL diverge('swapped',
    $$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_sleep('0'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN PERFORM durable_sleep('0'); PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'new'; END $$);
TABLE outcome;
CALL diverge('another signal',
    $$ BEGIN PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN PERFORM durable_wait_signal('went'); RETURN 'new'; END $$);
TABLE outcome;
-- B4: left over when it returns, and when it raises
CALL diverge('left over',
    $$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN RETURN 'new'; END $$);
TABLE outcome;
CALL diverge('raises early',
    $$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN RAISE EXCEPTION 'new'; END $$);
TABLE outcome;
-- B6: a timer of another length
CALL diverge('longer',
    $$ BEGIN PERFORM durable_sleep('0'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN PERFORM durable_sleep('1 s'); PERFORM durable_wait_signal('go'); RETURN 'new'; END $$);
TABLE outcome;
-- A15: OTHERS does not swallow a verdict, nor does the body get anywhere by catching it
CALL diverge('swallowed',
    $$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN BEGIN PERFORM durable_call('b', '[1]'); EXCEPTION WHEN OTHERS THEN RETURN 'others'; WHEN query_canceled THEN RETURN 'caught'; END; END $$);
TABLE outcome;
-- what is not compared: policies, timeouts, the form of equal arguments
CALL diverge('compatible',
    $$ BEGIN PERFORM durable_call('c', '{"x": 1.0}'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN PERFORM durable_call('c', '{"x": 1}', retry => durable_retry_policy(max_attempts => 9)); PERFORM durable_wait_signal('go', timeout => '1 h'); RETURN 'new'; END $$);
TABLE outcome;

-- B5: corrected, it goes on with the corrected code
SELECT deploy($$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'corrected'; END $$);
SELECT durable_resume('another step'), durable_run('another step'), durable_result('another step');
SELECT durable_resume('left over'), durable_run('left over'), durable_result('left over');
-- not corrected, it is held again
SELECT durable_resume('longer'), durable_run('longer');

-- B2: a setting makes a warning of other arguments
SET durable.argument_mismatch = warning;
CALL diverge('tolerated',
    $$ BEGIN PERFORM durable_call('a', '[1]'); PERFORM durable_wait_signal('go'); RETURN 'old'; END $$,
    $$ BEGIN PERFORM durable_call('a', '[2]'); PERFORM durable_wait_signal('go'); RETURN 'new'; END $$);
TABLE outcome;
RESET durable.argument_mismatch;
