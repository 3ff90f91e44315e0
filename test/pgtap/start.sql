-- durable_start, and looking at what was started: durable_status,
-- durable_result, durable_resume, durable_signal.
SELECT no_plan();

SET durable.retry_max_attempts = 1;

-- SQLSTATE and message of a statement that fails.
CREATE FUNCTION err(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

CREATE TABLE ran (nr int GENERATED ALWAYS AS IDENTITY, who text);
CREATE FUNCTION note(who text) RETURNS void LANGUAGE sql AS 'INSERT INTO ran (who) VALUES (who)';
CREATE FUNCTION noted() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('note', jsonb_build_object('who', durable_instance_id()));
    RETURN durable_instance_id();
END $$;
CREATE FUNCTION plain(a int DEFAULT 1) RETURNS int LANGUAGE sql AS 'SELECT a';
CREATE FUNCTION waits() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_signal('go'); END $$;
CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'boo' USING ERRCODE = 'XY123', DETAIL = 'the detail', HINT = 'the hint';
END $$;
SELECT count(durable_register(f)) FROM unnest(ARRAY['noted', 'plain', 'waits', 'fails']) AS f \g /dev/null

--
-- Start -- I2
--
SELECT is(durable_start('noted', id => 'first'), 'first', 'durable_start returns the id');
SELECT is(durable_status('first'), 'pending', 'the instance is pending -- I2');
SELECT is_empty('TABLE ran', 'the body has not run -- I2');
SELECT results_eq($$SELECT workflow, run, version, input, priority, tags, started_at IS NULL, wake_at IS NULL
                      FROM durable.instances WHERE id = 'first'$$,
                  $$VALUES ('noted', 1, 1, '{}'::jsonb, 0, '{}'::jsonb, true, true)$$, 'the view shows it');
SELECT is(durable_run('first'), 'completed', 'durable_run runs it');
SELECT is(durable_result('first'), '"first"', 'durable_result has what it returned');
SELECT is(durable_run('first'), 'completed', 'to run it once more is nothing');
SELECT results_eq('SELECT who FROM ran', $$VALUES ('first')$$, 'the activity ran once');

SELECT matches(durable_start('plain'), '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$', 'an id is made, a UUID');
SELECT isnt(durable_start('plain'), durable_start('plain', id => NULL), 'each time another');

SELECT is(durable_start('plain', id => id), id, format('an id may be %L', id))
  FROM unnest(ARRAY['A', 'a', ' ', 'it''s "odd"/\', 'é☃', repeat('é', 200)]) AS id;
SELECT is(durable_status('A'), 'pending', 'ids are compared as they are');

--
-- What is refused -- I1, I6
--
SELECT is(err(format('SELECT durable_start(%s)', arguments)), error, format('durable_start(%s) -- I6', arguments))
  FROM (VALUES
    ('NULL', '22004 workflow must not be null'),
    ('''missing''', 'WF004 workflow "missing" does not exist'),
    ('''''', 'WF004 workflow "" does not exist'),
    ('''PLAIN''', 'WF004 workflow "PLAIN" does not exist'),
    ('''plain'', NULL', '22004 input must not be null'),
    ('''plain'', ''{"b": 1}''', '22023 workflow public.plain(integer) has no parameter "b"'),
    ('''plain'', ''{"a": {}}''', '22P02 parameter "a" of workflow public.plain(integer): invalid input syntax for type integer: "{}"'),
    ('''plain'', ''[1, 2]''', '22023 too many arguments for workflow public.plain(integer): 2 given, 1 possible'),
    ('''plain'', id => ''''', '22023 id must not be empty'),
    ('''plain'', id => E''a\x01''', '22023 id must not contain control characters'),
    ('''plain'', id => E''a\nb''', '22023 id must not contain control characters'),
    ('''plain'', id => E''a\x7f''', '22023 id must not contain control characters'),
    ('''plain'', id => repeat(''x'', 401)', '22023 id is too long'),
    ('''plain'', id => repeat(''é'', 201)', '22023 id is too long'),
    ('''plain'', on_conflict => NULL', '22004 on_conflict must not be null'),
    ('''plain'', on_conflict => ''ERROR''', '22023 invalid value for on_conflict: "ERROR"'),
    ('''plain'', start_at => ''infinity''', '22023 start_at must not be infinite'),
    ('''plain'', start_at => ''-infinity''', '22023 start_at must not be infinite'),
    ('''plain'', priority => NULL', '22004 priority must not be null'),
    ('''plain'', tags => NULL', '22004 tags must not be null'),
    ('''plain'', tags => ''null''', '22023 tags must be a JSON object, not null'),
    ('''plain'', tags => ''[]''', '22023 tags must be a JSON object, not array'),
    ('''plain'', tags => ''"x"''', '22023 tags must be a JSON object, not string')
  ) AS v (arguments, error);
SELECT throws_ok($$SELECT durable_start('plain', '{"a":')$$, '22P02', NULL, 'input that is no JSON -- I6');

CREATE TABLE counts AS SELECT count(*) FROM durable.instances;
SELECT count(err(format('SELECT durable_start(''plain'', %L, id => ''half'')', input)))
  FROM unnest(ARRAY['{"b": 1}', '[1, 2]', '"x"']) AS input \g /dev/null
SELECT results_eq('SELECT count(*) FROM durable.instances', 'SELECT count FROM counts', 'nothing is half-done -- I6');

SELECT is(durable_start('plain', to_jsonb(repeat('9', 4)), id => 'scalar'), 'scalar', 'a scalar input');
CREATE FUNCTION echo(j jsonb) RETURNS int LANGUAGE sql AS 'SELECT length(j::text)';
SELECT durable_register('echo') \g /dev/null
SELECT durable_start('echo', to_jsonb(repeat('x', 5000000)), id => 'huge') \g /dev/null
SELECT durable_start('echo', (repeat('[', 1000) || repeat(']', 1000))::jsonb, id => 'deep') \g /dev/null
SELECT is(durable_run(id), 'completed', id || ' input -- I6') FROM unnest(ARRAY['huge', 'deep']) AS id;
SELECT is(durable_result('huge'), '5000002', 'huge input arrives whole');

--
-- The same id again -- I1
--
SELECT is(err($$SELECT durable_start('noted', id => 'first')$$), 'WF008 instance "first" already exists', 'error is the default -- I1');
SELECT is(err($$SELECT durable_start('noted', id => 'first', on_conflict => 'error')$$), 'WF008 instance "first" already exists',
          'error -- I1');
SELECT is(durable_start('noted', id => 'first', on_conflict => 'existing'), 'first', 'existing: the one that is there -- I1');
SELECT is(durable_start('noted', id => 'first', on_conflict => 'restart_failed'), 'first', 'restart_failed: it has not failed -- I1');
SELECT is((SELECT count(*) FROM durable.instances WHERE id = 'first'), 1::bigint, 'no second run was started -- I1');
SELECT is(durable_status('first'), 'completed', 'and the first is as it was');
SELECT is(err(format('SELECT durable_start(''plain'', id => ''first'', on_conflict => %L)', choice)),
          'WF008 instance "first" already exists', choice || ' is no way to another workflow''s instance -- I1')
  FROM unnest(ARRAY['existing', 'restart_failed']) AS choice;
SELECT alike(err($$SELECT durable_start('noted', '{"b": 1}', id => 'first', on_conflict => 'existing')$$), '22023 %',
             'the input must fit all the same -- I1');
SELECT is(durable_start('waits', id => 'new', on_conflict => choice), 'new', choice || ' starts what is not there, and only once')
  FROM unnest(ARRAY['existing', 'restart_failed']) AS choice;

SELECT durable_start('fails', id => 'bad') \g /dev/null
SELECT is(durable_run('bad'), 'failed', 'an instance fails');
SELECT is(durable_start('fails', id => 'bad', on_conflict => 'existing'), 'bad', 'existing leaves a failed one alone -- I1');
SELECT is(durable_status('bad'), 'failed', 'it is still failed');
SELECT is(err($$SELECT durable_start('fails', id => 'bad')$$), 'WF008 instance "bad" already exists', 'its id is in use -- I1');
CREATE OR REPLACE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN durable_run_number(); END $$;
SELECT durable_register('fails') \g /dev/null
SELECT is(durable_start('fails', id => 'bad', on_conflict => 'restart_failed'), 'bad', 'restart_failed starts it again -- I1');
SELECT is(durable_status('bad'), 'pending', 'the id means the new run');
SELECT is(durable_start('fails', id => 'bad', on_conflict => 'restart_failed'), 'bad', 'once: now it is pending -- I1');
SELECT is(durable_run('bad'), 'completed', 'the new run completes');
SELECT is(durable_result('bad'), '2', 'as run 2');
SELECT results_eq($$SELECT run, status FROM durable.instances WHERE id = 'bad' ORDER BY run$$,
                  $$VALUES (1, 'failed'), (2, 'completed')$$, 'the view has both runs');
SELECT is(durable_start('fails', id => 'bad', on_conflict => 'restart_failed'), 'bad', 'a completed one is not started again -- I1');
SELECT is((SELECT count(*) FROM durable.instances WHERE id = 'bad'), 2::bigint, 'there are still two runs');

--
-- Later, in order, with tags -- I2
--
TRUNCATE ran;
SELECT durable_start('noted', id => 'later', start_at => clock_timestamp() + interval '1 day', priority => 100) \g /dev/null
SELECT durable_start('noted', id => 'long ago', start_at => '0044-03-15 BC') \g /dev/null
SELECT durable_start('noted', id => 'epoch', start_at => '2000-01-01 00:00+00') \g /dev/null
SELECT durable_start('noted', id => 'far', start_at => '294276-12-31 23:59:59+00') \g /dev/null
SELECT is(durable_status('later'), 'pending', 'a later start is pending');
SELECT isnt((SELECT wake_at FROM durable.instances WHERE id = 'later'), NULL, 'the view shows when it will start');
SELECT is(durable_run('later'), 'pending', 'durable_run does not start it early -- I2');
SELECT is(durable_run('epoch'), 'completed', 'a start in the past is due -- I2');
CALL durable_work();
SELECT results_eq($$SELECT who FROM ran ORDER BY who$$, $$VALUES ('epoch'), ('long ago')$$, 'durable_work starts what is due -- I2');
SELECT is(durable_status(id), 'pending', id || ' is still pending -- I2') FROM unnest(ARRAY['later', 'far']) AS id;

TRUNCATE ran;
SELECT count(durable_start('noted', id => format('p%s.%s', priority, nr), priority => priority))
  FROM (VALUES (0, 1), (5, 1), (-5, 1), (5, 2), (2147483647, 1), (-2147483648, 1)) AS v (priority, nr) \g /dev/null
CALL durable_work(2);
SELECT results_eq('SELECT who FROM ran ORDER BY nr', $$VALUES ('p2147483647.1'), ('p5.1')$$,
                  'durable_work(2) runs the two first -- I2');
CALL durable_work();
SELECT results_eq('SELECT who FROM ran ORDER BY nr',
                  $$VALUES ('p2147483647.1'), ('p5.1'), ('p5.2'), ('p0.1'), ('p-5.1'), ('p-2147483648.1')$$,
                  'higher priority first, then the older -- I2');

SELECT durable_start('plain', id => 'tagged', tags => '{"customer": "42", "nested": {"a": [1]}}') \g /dev/null
SELECT results_eq($$SELECT id FROM durable.instances WHERE tags @> '{"customer": "42"}'$$, $$VALUES ('tagged')$$, 'search by tag -- I4');

--
-- Transactions: a start takes effect at the commit -- E9
--
BEGIN;
SELECT durable_start('noted', id => 'rolled back') \g /dev/null
SELECT is(durable_status('rolled back'), 'pending', 'a start is seen in its transaction');
ROLLBACK;
SELECT is(err($$SELECT durable_status('rolled back')$$), 'WF004 instance "rolled back" does not exist', 'and gone with it -- E9');
SELECT is((SELECT count(*) FROM durable_internal.history h WHERE NOT EXISTS
             (SELECT FROM durable_internal.instance i WHERE i.iid = h.iid)), 0::bigint, 'no history is left behind -- E9');

BEGIN;
SELECT durable_start('noted', id => 'kept') \g /dev/null
SAVEPOINT s;
SELECT durable_start('noted', id => 'lost') \g /dev/null
ROLLBACK TO s;
SELECT durable_start('noted', id => 'kept too') \g /dev/null
COMMIT;
SELECT results_eq($$SELECT id FROM durable.instances WHERE id IN ('kept', 'lost', 'kept too') ORDER BY id$$,
                  $$VALUES ('kept'), ('kept too')$$, 'savepoints too -- E9');

BEGIN;
SELECT durable_start('noted', id => 'twice') \g /dev/null
SELECT is(err($$SELECT durable_start('noted', id => 'twice')$$), 'WF008 instance "twice" already exists', 'an id twice in one transaction');
SELECT is(durable_start('noted', id => 'twice', on_conflict => 'existing'), 'twice', 'existing in the same transaction');
SELECT is(durable_run('twice'), 'completed', 'run in the transaction that starts it');
SELECT is(durable_result('twice'), '"twice"', 'with its result');
ROLLBACK;
SELECT is_empty($$SELECT FROM ran WHERE who = 'twice'$$, 'all of it is rolled back');
SELECT is(durable_start('noted', id => 'twice'), 'twice', 'the id is free again');

BEGIN;
SET TRANSACTION READ ONLY;
SELECT throws_ok($$SELECT durable_start('plain')$$, '25006', NULL, 'no start in a read-only transaction');
ROLLBACK;

BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(durable_start('plain', id => 'serializable'), 'serializable', 'a start in a serializable transaction');
SELECT is(err($$SELECT durable_run('serializable')$$), 'WF005 durable_run() needs isolation level READ COMMITTED', 'no run in it');
COMMIT;
SELECT is(durable_run('serializable'), 'completed', 'it runs afterwards');

--
-- Status, result, resume, signal: what they refuse -- I6
--
SELECT is(err(format('SELECT %s(NULL)', f)), '22004 id must not be null', f || '(NULL) -- I6')
  FROM unnest(ARRAY['durable_status', 'durable_result', 'durable_resume', 'durable_run']) AS f;
SELECT is(err(format('SELECT %s(''missing'')', f)), 'WF004 instance "missing" does not exist', f || ' of nothing')
  FROM unnest(ARRAY['durable_status', 'durable_result', 'durable_resume', 'durable_run']) AS f;

SELECT is(durable_run('new'), 'waiting_for_event', 'an instance waits');
SELECT is(err($$SELECT durable_result('new')$$), 'WF005 instance "new" has no result yet: it is waiting_for_event', 'no result yet');
SELECT is(durable_resume('new'), false, 'nothing to resume: it is not held');
SELECT is(err(format('SELECT durable_signal(%s)', arguments)), error, format('durable_signal(%s) -- I6', arguments))
  FROM (VALUES
    ('NULL, ''go''', '22004 id must not be null'),
    ('''missing'', ''go''', 'WF004 instance "missing" does not exist'),
    ('''new'', NULL', '22004 name must not be null'),
    ('''new'', ''''', '22023 name must not be empty'),
    ('''new'', E''a\nb''', '22023 name must not contain control characters'),
    ('''new'', repeat(''x'', 401)', '22023 name is too long'),
    ('''new'', ''go'', NULL', '22004 payload must not be null'),
    ('''first'', ''go''', 'WF005 instance "first" has ended: it is completed')
  ) AS v (arguments, error);
SELECT is_empty('SELECT FROM durable.messages', 'no message is left of these -- I6');
BEGIN;
SELECT durable_signal('new', 'go', '"lost"') \g /dev/null
ROLLBACK;
SELECT is(durable_run('new'), 'waiting_for_event', 'a signal that is rolled back does not arrive -- E9');
SELECT durable_signal('new', 'go', 'null') \g /dev/null
SELECT is(durable_run('new'), 'completed', 'one that is committed does');
SELECT is(durable_result('new'), 'null', 'a payload may be JSON null, which is not NULL -- A3');
SELECT is(err($$SELECT durable_resume('new')$$), 'WF005 instance "new" has ended: it is completed', 'nothing to resume: it has ended');

-- The error of a failed one, with all its fields
CREATE FUNCTION raises() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'boo' USING ERRCODE = 'XY123', DETAIL = 'the detail', HINT = 'the hint', TABLE = 't', CONSTRAINT = 'c';
END $$;
SELECT durable_register('raises') \g /dev/null
SELECT durable_start('raises', id => 'raises') \g /dev/null
SELECT durable_run('raises') \g /dev/null
CREATE FUNCTION fields(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
    tab text;
    con text;
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, tab = TABLE_NAME, con = CONSTRAINT_NAME;
    RETURN concat_ws('|', SQLSTATE, SQLERRM, detail, hint, tab, con);
END $$;
SELECT is(fields($$SELECT durable_result('raises')$$), 'XY123|boo|the detail|the hint|t|c', 'durable_result raises the recorded error');

-- Held, and resumed -- D13
CREATE FUNCTION calls_missing() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('not_there'); END $$;
SELECT durable_register('calls_missing') \g /dev/null
SELECT durable_start('calls_missing', id => 'held') \g /dev/null
SELECT is(durable_run('held'), 'held', 'an instance whose activity is missing is held -- D13');
SELECT alike((SELECT reason FROM durable.instances WHERE id = 'held'), 'WF004: activity function "not_there" does not exist%',
             'with the reason -- D13');
SELECT is(err($$SELECT durable_result('held')$$), 'WF005 instance "held" has no result yet: it is held', 'it has no result');
SELECT is(durable_run('held'), 'held', 'it does not run');
SELECT is(durable_start('calls_missing', id => 'held', on_conflict => 'restart_failed'), 'held', 'it has not failed -- I1');
SELECT is(err($$SELECT durable_unregister('calls_missing')$$), 'WF005 workflow "calls_missing" has instances that have not ended',
          'it has not ended');
CREATE FUNCTION not_there() RETURNS int LANGUAGE sql AS 'SELECT 2';
SELECT is(durable_resume('held'), true, 'mended, it is resumed -- D13');
SELECT is(durable_resume('held'), false, 'once');
SELECT is(durable_run('held'), 'completed', 'and goes on');
SELECT is(durable_result('held'), '2', 'to its end');

CREATE FUNCTION dropped() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT durable_register('dropped') \g /dev/null
DROP FUNCTION dropped();
SELECT is(err($$SELECT durable_start('dropped')$$), 'WF004 workflow function "public.dropped()" does not exist',
          'a workflow whose function is gone cannot be started -- I1');

-- Whose it is -- I7
CREATE ROLE start_outsider;
CREATE ROLE start_app;
GRANT USAGE ON SCHEMA durable TO start_app;
SET ROLE start_outsider;
SELECT is(err($$SELECT durable_start('plain')$$), '42501 permission denied for durable', 'no start without USAGE on durable -- I7');
SET ROLE start_app;
SELECT is(durable_start('plain', id => 'of app'), 'of app', 'with it there is -- I7');
SELECT is(err($$SELECT durable_status('first')$$), 'WF004 instance "first" does not exist', 'another role''s instance is not there -- I7');
SELECT is(err(format('SELECT durable_start(''noted'', id => ''first'', on_conflict => %L)', choice)),
          'WF008 instance "first" already exists', format('%s: but its id is taken -- I1, I7', choice))
  FROM unnest(ARRAY['error', 'existing', 'restart_failed']) AS choice;
SELECT is((SELECT count(*) FROM durable.instances), 1::bigint, 'the view shows one''s own -- I4');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION plain FROM PUBLIC;
SET ROLE start_app;
SELECT is(err($$SELECT durable_start('plain')$$), '42501 permission denied for function plain', 'a start needs EXECUTE on the function -- I8');
RESET ROLE;
SELECT is((SELECT run_as FROM durable.instances WHERE id = 'of app'), 'start_app', 'an instance runs as its starter');
SELECT alike(err($$SELECT durable_run('of app')$$), '42501 instance "of app" runs as role "start_app"', 'not even a superuser runs it -- I8');

--
-- durable_work
--
SELECT throws_ok('CALL durable_work()', '2D000', NULL, 'durable_work cannot run in a transaction of its caller');

SELECT * FROM finish();

DROP OWNED BY start_app;
DROP ROLE start_app, start_outsider;
