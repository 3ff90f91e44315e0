-- Errors of activities: recorded with all fields, and raised again.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA errors;
SET search_path = errors, public;

CREATE TABLE account (id int PRIMARY KEY, balance int CONSTRAINT balance_positive CHECK (balance >= 0));
INSERT INTO account VALUES (1, 10);
CREATE FUNCTION withdraw(id int, amount int) RETURNS int LANGUAGE sql
    AS 'UPDATE account SET balance = balance - amount WHERE account.id = withdraw.id RETURNING balance';
CREATE FUNCTION complain(code text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'complaint' USING ERRCODE = code, DETAIL = 'the detail', HINT = 'the hint',
        SCHEMA = 'the schema', TABLE = 'the table', COLUMN = 'the column', DATATYPE = 'the type', CONSTRAINT = 'the constraint';
END $$;

-- D8: the handler sees all fields, at first and on replay
CREATE FUNCTION catches() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    said jsonb := '[]';
    once jsonb := durable_retry_policy(max_attempts => 1);
    message text; detail text; hint text; context text;
    schema_ text; table_ text; column_ text; type_ text; constraint_ text;
BEGIN
    BEGIN
        PERFORM durable_call('complain', '["22012"]', retry => once);
    EXCEPTION WHEN division_by_zero THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
            context = PG_EXCEPTION_CONTEXT, schema_ = SCHEMA_NAME, table_ = TABLE_NAME, column_ = COLUMN_NAME,
            type_ = PG_DATATYPE_NAME, constraint_ = CONSTRAINT_NAME;
        said := said || jsonb_build_array(SQLSTATE, message, detail, hint, schema_, table_, column_, type_, constraint_)
                     || to_jsonb(split_part(context, E'\n', 1));
    END;
    BEGIN
        PERFORM durable_call('withdraw', '[1, 11]', retry => once);
    EXCEPTION WHEN check_violation THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, constraint_ = CONSTRAINT_NAME, table_ = TABLE_NAME;
        said := said || jsonb_build_array(message, constraint_, table_);
    END;
    -- what OTHERS would not catch arrives as WF009
    BEGIN
        PERFORM durable_call('complain', '["57014"]', retry => once);
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        said := said || jsonb_build_array(SQLSTATE, SQLERRM, detail);
    END;
    BEGIN
        PERFORM durable_call('complain', '["P0004"]', retry => once);
    EXCEPTION WHEN SQLSTATE 'WF009' THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        said := said || jsonb_build_array(SQLSTATE, SQLERRM, detail);
    END;
    PERFORM durable_sleep('0');
    RETURN said;
END $$;
SELECT durable_register('catches');
SELECT durable_start('catches', id => 'catches');
CALL durable_work();
SELECT jsonb_pretty(durable_result('catches'));
SELECT position, step_id, state, attempts, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS message
  FROM durable.steps WHERE id = 'catches' ORDER BY position;
SELECT * FROM account;

-- an error that nobody catches fails the workflow, and is what its result gives
CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('withdraw', '{"id": 1, "amount": 99}', retry => durable_retry_policy(max_attempts => 1));
END $$;
SELECT durable_register('fails');
SELECT durable_start('fails', id => 'fails');
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate, error ->> 'constraint' AS "constraint" FROM durable.instances WHERE id = 'fails';
SELECT event, error ->> 'message' AS message FROM durable.events WHERE id = 'fails' ORDER BY seq;
\set VERBOSITY terse
SELECT durable_result('fails');
\set VERBOSITY default

-- so does an error of its own
CREATE FUNCTION raises() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('withdraw', '[1, 1]');
    RAISE EXCEPTION 'own error' USING ERRCODE = 'P0002', HINT = 'do not';
END $$;
SELECT durable_register('raises');
SELECT durable_start('raises', id => 'raises');
CALL durable_work();
SELECT status, error - 'context' AS error FROM durable.instances WHERE id = 'raises';
SELECT * FROM account;

-- D5: errors that are not to be retried, by class, by SQLSTATE, by durable_fail
CREATE FUNCTION gives_up() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_fail('no use', sqlstate => 'UX001', detail => 'really');
END $$;
CREATE FUNCTION not_retried() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    said text[];
BEGIN
    BEGIN
        PERFORM durable_call('complain', '["22012"]', retry => durable_retry_policy(non_retryable => '{22}'));
    EXCEPTION WHEN OTHERS THEN said := said || SQLSTATE::text; END;
    BEGIN
        PERFORM durable_call('complain', '["22012"]', retry => durable_retry_policy(non_retryable => '{P0002,22012}'));
    EXCEPTION WHEN OTHERS THEN said := said || SQLSTATE::text; END;
    BEGIN
        PERFORM durable_call('complain', '["22012"]', retry => durable_retry_policy(retryable => '{40,23505}'));
    EXCEPTION WHEN OTHERS THEN said := said || SQLSTATE::text; END;
    BEGIN
        PERFORM durable_call('gives_up');
    EXCEPTION WHEN OTHERS THEN said := said || (SQLSTATE || ' ' || SQLERRM); END;
    RETURN said;
END $$;
SELECT durable_register('not_retried');
SELECT durable_start('not_retried', id => 'not_retried');
CALL durable_work();
SELECT durable_result('not_retried');
SELECT step_id, state, attempts FROM durable.steps WHERE id = 'not_retried' ORDER BY position;

-- D16: conflicts with other transactions are retried at once, and count for nothing
CREATE SEQUENCE tries;
CREATE FUNCTION conflicts(times int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') <= times THEN
        RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN currval('tries');
END $$;
CREATE FUNCTION meets_conflicts(times int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('conflicts', jsonb_build_array(times), retry => durable_retry_policy(max_attempts => 1));
END $$;
SELECT durable_register('meets_conflicts');
SELECT durable_start('meets_conflicts', '[3]', id => 'three conflicts');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'three conflicts';
SELECT state, attempts FROM durable.steps WHERE id = 'three conflicts';
SELECT setval('tries', 1, false);
SELECT durable_start('meets_conflicts', '[4]', id => 'four conflicts');
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate FROM durable.instances WHERE id = 'four conflicts';

-- D5: unless it says that it is not to be tried again
SELECT setval('tries', 1, false);
CREATE FUNCTION says_conflict() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('tries');
    PERFORM durable_fail('no use', sqlstate => '40001');
END $$;
CREATE FUNCTION fails_for_good() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('says_conflict'); END $$;
SELECT durable_register('fails_for_good');
SELECT durable_start('fails_for_good', id => 'no conflict');
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate FROM durable.instances WHERE id = 'no conflict';
SELECT currval('tries') AS once;

-- D13: what cannot be found or called holds the instance, which goes on when that is mended
CREATE FUNCTION needs_later() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('later'); END $$;
SELECT durable_register('needs_later');
SELECT durable_start('needs_later', id => 'later');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'later';
CREATE FUNCTION later() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION later(int) RETURNS int LANGUAGE sql AS 'SELECT 2';
SELECT durable_resume('later');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'later';
DROP FUNCTION later(int);
SELECT durable_resume('later');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'later';
SELECT durable_resume('later');

-- a workflow's function that is gone
CREATE FUNCTION goes() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_wait_signal('go'); RETURN 'gone'; END $$;
SELECT durable_register('goes', on_change => 'continue');
SELECT durable_start('goes', id => 'goes');
CALL durable_work();
ALTER FUNCTION goes RENAME TO went;
SELECT durable_signal('goes', 'go');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'goes';
ALTER FUNCTION went RENAME TO goes;
SELECT durable_resume('goes');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'goes';

-- B7: the environment's errors repeat the pass, and at last hold; they fail nothing
CREATE FUNCTION unlucky() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('later');
    RAISE EXCEPTION 'out of luck' USING ERRCODE = 'disk_full';
END $$;
SELECT durable_register('unlucky');
SELECT durable_start('unlucky', id => 'unlucky');
CALL durable_work();
SELECT status, error, wake_at > now() AS tried_later FROM durable.instances WHERE id = 'unlucky';
UPDATE durable_internal.instance SET body_failures = 5 WHERE id = 'unlucky';
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT status, reason, error FROM durable.instances WHERE id = 'unlucky';
-- an activity's own error of such a class does fail it
CREATE FUNCTION unlucky_activity() RETURNS void LANGUAGE plpgsql AS $$
BEGIN PERFORM durable_call('complain', '["53100"]', retry => durable_retry_policy(max_attempts => 1)); END $$;
SELECT durable_register('unlucky_activity');
SELECT durable_start('unlucky_activity', id => 'unlucky activity');
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate FROM durable.instances WHERE id = 'unlucky activity';

-- a message of any length is cut, and blocks nothing
CREATE FUNCTION shouts() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '%', repeat('x', 100000000); END $$;
CREATE FUNCTION hears() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('shouts', retry => durable_retry_policy(max_attempts => 1));
EXCEPTION WHEN OTHERS THEN
    RETURN length(SQLERRM);
END $$;
SELECT durable_register('hears');
SELECT durable_start('hears', id => 'hears');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'hears';

-- an activity cannot pretend that another driver has the instance
CREATE FUNCTION pretends() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE unique_violation USING SCHEMA = 'durable_internal', TABLE = 'history', CONSTRAINT = 'history_pkey';
END $$;
CREATE FUNCTION calls_pretends() RETURNS void LANGUAGE plpgsql AS $$
BEGIN PERFORM durable_call('pretends', retry => durable_retry_policy(max_attempts => 1)); END $$;
SELECT durable_register('calls_pretends');
SELECT durable_start('calls_pretends', id => 'pretends');
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate FROM durable.instances WHERE id = 'pretends';

-- a step that drops the workflow is done once; the rest waits for its return
CREATE FUNCTION drop_workflow() RETURNS void LANGUAGE sql AS 'DROP FUNCTION dropped()';
CREATE FUNCTION dropped() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_call('drop_workflow'); RETURN 'back'; END $$;
SELECT durable_register('dropped', on_change => 'continue');
SELECT durable_start('dropped', id => 'dropped');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'dropped';
CREATE FUNCTION dropped() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_call('drop_workflow'); RETURN 'back'; END $$;
SELECT durable_resume('dropped'), durable_run('dropped'), durable_result('dropped');

-- an instance whose role is not what it was is held
CREATE ROLE regress_durable_before;
SELECT durable_start('needs_later', id => 'renamed');
UPDATE durable_internal.instance SET run_as_name = 'regress_durable_before' WHERE id = 'renamed';
CALL durable_work();
SELECT status, replace(regexp_replace(reason, '\d+ ', 'N '), quote_ident(current_user), 'me') AS reason FROM durable.instances WHERE id = 'renamed';
-- until a superuser says that it is the right one
SELECT durable_resume('renamed'), durable_run('renamed');
DROP ROLE regress_durable_before;

-- a helper that is missing holds as well, in the body itself
CREATE FUNCTION needs_helper() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN missing_helper(); END $$;
SELECT durable_register('needs_helper');
SELECT durable_start('needs_helper', id => 'helper');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'helper';
CREATE FUNCTION missing_helper() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT durable_resume('helper'), durable_run('helper'), durable_result('helper');

-- mistakes in durable_sql are not retried
CREATE FUNCTION bad_sql(query text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_sql(query); END $$;
SELECT durable_register('bad_sql');
SELECT durable_start('bad_sql', '["SELEC 1"]', id => 'syntax'), durable_start('bad_sql', '["SELECT 1; SELECT 2"]', id => 'two'),
       durable_start('bad_sql', '["SELECT $1::int"]', id => 'argument');
CALL durable_work();
SELECT i.id, i.status, i.error ->> 'message' AS error, s.attempts FROM durable.instances i JOIN durable.steps s USING (id)
 WHERE i.workflow = 'bad_sql' ORDER BY i.id;
