-- Define: durable_register, durable_unregister, durable_register_activity,
-- durable_retry_policy.

-- An instance that is started while the setting it captures does not exist:
-- this needs a session where it has never been set.
CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS $$ SELECT current_setting('app.tenant', true) $$;
CREATE FUNCTION for_tenant() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('tenant'); END $$;
SET app.tenant = 'a';
SELECT durable_register('for_tenant', capture_settings => '{app.tenant,statement_timeout}') \g /dev/null
\connect
SELECT durable_start('for_tenant', id => 'no tenant') \g /dev/null

SELECT no_plan();

SET client_min_messages = warning;

-- SQLSTATE and message of a statement that fails.
CREATE FUNCTION err(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

-- Its detail and hint.
CREATE FUNCTION advice(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint   text;
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' ', nullif(detail, ''), nullif(hint, ''));
END $$;

CREATE FUNCTION version_of(workflow text) RETURNS int LANGUAGE sql AS $$
SELECT version FROM durable.workflows WHERE name = workflow AND current;
$$;

--
-- Names
--
CREATE FUNCTION one(a int DEFAULT 0) RETURNS int LANGUAGE sql AS 'SELECT a';
SELECT is(durable_register('one'), 'one', 'the name is the function''s');
SELECT is(durable_register('one', name => 'Another Name'), 'Another Name', 'or the one that is given');
SELECT is(durable_register('public.one'), 'public.one', 'a schema that is said is part of the name');
SELECT is(durable_register('one(int)', name => NULL), 'one', 'the types are not');
SELECT is(durable_register('one (integer)'), 'one', 'however they are written');
SELECT results_eq($$SELECT function, count(*) FROM durable.workflows WHERE function LIKE '%one(%' GROUP BY 1$$,
                  $$VALUES ('public.one(integer)', 3::bigint)$$, 'one function may be several workflows');

CREATE SCHEMA "Odd Schema";
CREATE FUNCTION "Odd Schema"."Odd(Name"() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT is(durable_register('"Odd Schema"."Odd(Name"'), '"Odd Schema"."Odd(Name"', 'quoted identifiers, a parenthesis in one');
SELECT is(durable_register('"Odd Schema"."Odd(Name"()'), '"Odd Schema"."Odd(Name"', 'the same with its types');
SELECT is((SELECT function FROM durable.workflows WHERE name LIKE '"Odd Schema"%'), '"Odd Schema"."Odd(Name"()',
          'the view shows its signature');
SELECT err($$SELECT durable_register(E' one\n')$$) \g /dev/null
SELECT is_empty($$SELECT name FROM durable.workflows WHERE name ~ '^\s|\s$|[[:cntrl:]]'$$,
                'a name taken from the text has no space around it and no control characters -- I6');

SELECT is(err(format('SELECT durable_register(%L)', text)), error, format('no function name: %L -- I6', text))
  FROM (VALUES
    ('', '42601 invalid function name: ""'),
    (' ', '42601 invalid function name: " "'),
    ('a.b.c.d', '42601 invalid function name: "a.b.c.d"'),
    ('"one', '42601 invalid function name: ""one"'),
    ('one(', '42601 invalid function name: "one("'),
    ('one(int) x', '42601 invalid function name: "one(int) x"'),
    ('(int)', '42601 invalid function name: "(int)"'),
    ('one; DROP TABLE x', '42601 invalid function name: "one; DROP TABLE x"'),
    ('missing', 'WF004 workflow function "missing" does not exist'),
    ('"One"', 'WF004 workflow function ""One"" does not exist'),
    ('missing.one', 'WF004 workflow function "missing.one" does not exist'),
    ('one(text)', 'WF004 workflow function "one(text)" does not exist'),
    ('one(missing)', 'WF004 workflow function "one(missing)" does not exist')
  ) AS v (text, error);
SELECT is(err($$SELECT durable_register('one', name => '')$$), '22023 name must not be empty', 'an empty name -- I6');
SELECT is(err($$SELECT durable_register('one', name => E'a\nb')$$), '22023 name must not contain control characters',
          'control characters in a name -- I6');
SELECT is(err($$SELECT durable_register('one', name => repeat('x', 401))$$), '22023 name is too long', 'a long name -- I6');

--
-- Overloads
--
CREATE FUNCTION over(a int) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION over(a point) RETURNS int LANGUAGE sql AS 'SELECT 2';
CREATE SCHEMA other;
CREATE FUNCTION other.over(a bool) RETURNS int LANGUAGE sql AS 'SELECT 3';
SELECT is(err($$SELECT durable_register('over')$$), 'WF004 workflow function "over" is ambiguous', 'overloads are ambiguous');
SELECT alike(advice($$SELECT durable_register('over')$$),
             'Candidates: public.over(integer), public.over(%point). Give the full signature of one of them.',
             'the candidates are listed');
SELECT is(durable_register('over(int)', 'over_int'), 'over_int', 'a signature settles it');
SELECT is(durable_register('other.over'), 'other.over', 'so does a schema that has one only');
SET search_path = public, other;
SELECT alike(advice($$SELECT durable_register('over')$$), '%other.over(boolean)%', 'overloads in all of search_path compete');
RESET search_path;

--
-- Kinds and types
--
CREATE AGGREGATE summed(int) (SFUNC = int4pl, STYPE = int);
CREATE PROCEDURE proc(a int) LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION on_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION poly(a anyelement) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION any_row(a record) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION rows() RETURNS SETOF record LANGUAGE sql AS 'SELECT 1, 2';

SELECT is(err(format('SELECT %s(%L)', function, text)), error, format('%s(%L) is refused', function, text))
  FROM (VALUES
    ('durable_register', 'summed', '42809 aggregate function summed cannot be used as a workflow'),
    ('durable_register', 'summed(int)', '42809 aggregate function summed(int) cannot be used as a workflow'),
    ('durable_register', 'row_number', '42809 window function row_number cannot be used as a workflow'),
    ('durable_register_activity', 'summed', '42809 aggregate function summed cannot be used as an activity'),
    ('durable_register_activity', 'proc', '42809 procedure proc cannot be used as an activity'),
    ('durable_register', 'on_change', '0A000 function public.on_change() cannot be used as a workflow'),
    ('durable_register', 'rows', '0A000 function public.rows() cannot be used as a workflow'),
    ('durable_register_activity', 'rows', '0A000 function public.rows() cannot be used as an activity')
  ) AS v (function, text, error);
SELECT alike(err(format('SELECT durable_register(%L)', text)), '0A000 function public.% cannot be used as a workflow',
             text || ' has a pseudo-type and is refused')
  FROM unnest(ARRAY['poly', 'any_row']) AS text;
SELECT alike(advice($$SELECT durable_register('poly')$$), '%parameter 1 has pseudo-type anyelement%', 'the pseudo-type is named');
SELECT is(durable_register('proc'), 'proc', 'a workflow may be a procedure');
CREATE FUNCTION proc(a bool) RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT is(durable_register_activity('proc'), 'proc', 'for an activity a procedure of the same name does not count');
SELECT is(err($$SELECT durable_register('proc')$$), 'WF004 workflow function "proc" is ambiguous', 'for a workflow it does');

--
-- Versions
--
CREATE FUNCTION versioned(a int, at timestamptz DEFAULT '2020-01-01 00:00+00') RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT durable_register('versioned') \g /dev/null
SELECT is(version_of('versioned'), 1, 'versions begin with 1');
SELECT matches((SELECT hash FROM durable.workflows WHERE current AND name = 'versioned'), '^[0-9a-f]{64}$', 'the definition has a hash');
CREATE TABLE first_hash AS SELECT hash FROM durable.workflows WHERE current AND name = 'versioned';
SELECT durable_register('versioned', run_as => 'owner', sandbox => 'warn', activity_retry => '{"max_attempts": 2}') \g /dev/null
SELECT results_eq($$SELECT version, run_as, sandbox, activity_retry FROM durable.workflows WHERE current AND name = 'versioned'$$,
                  $$VALUES (1, 'owner', 'warn', '{"max_attempts": 2}'::jsonb)$$, 'other options make no new version, but count');
SELECT durable_register('versioned') \g /dev/null
SELECT results_eq($$SELECT version, run_as, sandbox, activity_retry FROM durable.workflows WHERE current AND name = 'versioned'$$,
                  $$VALUES (1, 'starter', NULL::text, NULL::jsonb)$$, 'options that are not given again are the defaults');

-- The definition is the same, whatever the session's settings
SET TimeZone = 'Asia/Tokyo';
SELECT durable_register('versioned') \g /dev/null
RESET TimeZone;
SELECT is(version_of('versioned'), 1, 'another TimeZone makes no new version');
SET quote_all_identifiers = on;
SELECT durable_register('versioned') \g /dev/null
RESET quote_all_identifiers;
SELECT is((SELECT hash FROM durable.workflows WHERE current AND name = 'versioned'), (SELECT hash FROM first_hash),
          'quote_all_identifiers makes no other hash');

CREATE TABLE before AS SELECT version_of('versioned') AS version;
CREATE OR REPLACE FUNCTION versioned(a int, at timestamptz DEFAULT '2020-01-01 00:00+00') RETURNS int LANGUAGE sql AS 'SELECT 2';
SELECT is(version_of('versioned'), (SELECT version FROM before), 'CREATE OR REPLACE alone changes nothing');
SELECT durable_register('versioned') \g /dev/null
SELECT is(version_of('versioned'), (SELECT version + 1 FROM before), 'a changed body is a new version');
SELECT isnt((SELECT hash FROM durable.workflows WHERE current AND name = 'versioned'), (SELECT hash FROM first_hash), 'with another hash');
ALTER FUNCTION versioned(int, timestamptz) STRICT;
SELECT durable_register('versioned') \g /dev/null
SELECT is(version_of('versioned'), (SELECT version + 2 FROM before), 'a changed attribute is a new version');
SELECT durable_register('one', 'versioned') \g /dev/null
SELECT is(version_of('versioned'), (SELECT version + 3 FROM before), 'another function is a new version');

--
-- durable_unregister
--
SELECT is(durable_unregister('missing'), false, 'there is nothing to unregister');
SELECT durable_start('one', id => 'live') \g /dev/null
SELECT is(err($$SELECT durable_unregister('one')$$), 'WF005 workflow "one" has instances that have not ended',
          'a workflow with a live instance stays');
SELECT durable_run('live') \g /dev/null
SELECT is(durable_unregister('one'), true, 'one whose instances have ended goes');
SELECT is(durable_unregister('one'), false, 'once');
SELECT is(durable_result('live'), '0', 'its instances can still be looked at');
SELECT is(err($$SELECT durable_start('one')$$), 'WF004 workflow "one" does not exist', 'but not be started');
SELECT durable_register('one') \g /dev/null
SELECT is(version_of('one'), 2, 'registered again, it goes on with the next version');

--
-- Options
--
SELECT is(err(format('SELECT durable_register(''one'', %s)', option)), error, option || ' -- I6')
  FROM (VALUES
    ('run_as => ''me''', '22023 invalid value for run_as: "me"'),
    ('run_as => NULL', '22004 run_as must not be null'),
    ('sandbox => ''Strict''', '22023 invalid value for sandbox: "Strict"'),
    ('sandbox => ''''', '22023 invalid value for sandbox: ""'),
    ('activity_retry => ''[]''', '22023 activity_retry must be a JSON object, not array'),
    ('activity_retry => ''null''', '22023 activity_retry must be a JSON object, not null'),
    ('activity_retry => ''{"max_attempt": 1}''', '22023 activity_retry has an unknown field "max_attempt"'),
    ('activity_retry => ''{"max_attempts": 0}''', '22023 field "max_attempts" of activity_retry must be a whole number from 1'),
    ('activity_retry => ''{"max_attempts": null}''', '22023 field "max_attempts" of activity_retry must be a whole number from 1'),
    ('activity_retry => ''{"initial": "1 s"}''', '22023 field "initial" of activity_retry must be a number of seconds from 0'),
    ('capture_settings => NULL', '22004 capture_settings must not be null'),
    ('capture_settings => ''{NULL}''', '22004 capture_settings must not contain nulls'),
    ('capture_settings => ''{missing}''', '22023 setting "missing" cannot be captured'),
    ('capture_settings => ''{role}''', '22023 setting "role" cannot be captured'),
    ('capture_settings => ''{session_authorization}''', '22023 setting "session_authorization" cannot be captured'),
    ('capture_settings => ''{transaction_isolation}''', '22023 setting "transaction_isolation" cannot be captured')
  ) AS v (option, error);
SELECT is(err('SELECT durable_register(NULL)'), '22004 workflow must not be null', 'NULL for the workflow -- I6');
SELECT is(advice($$SELECT durable_register('one', run_as => 'me')$$), 'It can be starter or owner.', 'the hint has the choices of run_as');
SELECT is(advice($$SELECT durable_register('one', sandbox => 'me')$$), 'It can be strict, warn or off.', 'and of sandbox');
SELECT isnt(err($$SELECT durable_register('one', capture_settings => '{log_statement}')$$), 'no error',
            'a setting that not every role may set cannot be captured');
SELECT isnt(err($$SELECT durable_register('one', capture_settings => '{server_version}')$$), 'no error',
            'nor one that nobody may set');

-- Captured settings are those of the start -- A19
SELECT is(err($$SELECT durable_register('for_tenant', capture_settings => '{app.tenant,app.later,statement_timeout}')$$),
          'no error', 'a setting of the user''s own need not exist yet');
SELECT is((SELECT capture_settings FROM durable.workflows WHERE name = 'for_tenant'), '{app.tenant,app.later,statement_timeout}',
          'the view shows what is captured');
SET app.tenant = 'b';
SELECT durable_start('for_tenant', id => 'tenant b') \g /dev/null
SET app.tenant = 'driver';
SELECT count(durable_run(id)) FROM unnest(ARRAY['tenant b', 'no tenant']) AS id \g /dev/null
SELECT is(durable_result('tenant b'), '"b"', 'an activity sees the setting of the start -- A19');
SELECT is(coalesce(durable_result('no tenant') #>> '{}', ''), '', 'one that did not exist at the start is not the driver''s -- A19');
SELECT is(current_setting('app.tenant'), 'driver', 'the driver''s own is as before -- A19');

--
-- The sandbox, at registration -- A14
--
CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    RETURN now();
END $$;
SELECT is(err($$SELECT durable_register('clock')$$), 'WF006 workflow public.clock() must not contain now() (line 3)',
          'strict refuses what the source check finds');
SELECT alike(advice($$SELECT durable_register('clock')$$), '%Use durable_now()%', 'and says what to write instead');
SET client_min_messages = error;
SELECT is(durable_register('clock', sandbox => 'warn'), 'clock', 'warn only warns');
SET durable.sandbox = 'warn';
SELECT is(durable_register('clock'), 'clock', 'so does the setting');
RESET durable.sandbox;
SELECT is(durable_register('clock', sandbox => 'off'), 'clock', 'off does not look');
SET client_min_messages = warning;
SELECT is(err($$SELECT durable_register('clock', sandbox => 'strict')$$), 'WF006 workflow public.clock() must not contain now() (line 3)',
          'strict can be said');
SELECT is((SELECT sandbox FROM durable.workflows WHERE name = 'clock'), 'off', 'a refused registration leaves the old one');

--
-- Retry policies
--
SELECT is(durable_retry_policy(), '{}', 'a policy of nothing is sparse');
SELECT is(durable_retry_policy(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), '{}', 'NULL means not given -- I6');
SELECT is(durable_retry_policy(max_attempts => 3, initial => '1.5 s', backoff => 3, max_interval => '1 min', max_duration => '1 day',
                               strategy => 'linear', jitter => 0.5, retryable => '{22,40001}', non_retryable => '{}'),
          '{"max_attempts": 3, "initial": 1.5, "backoff": 3, "max_interval": 60, "max_duration": 86400, "strategy": "linear",
            "jitter": 0.5, "retryable": ["22", "40001"], "non_retryable": []}', 'all fields');
SELECT is(err(format('SELECT durable_retry_policy(%s)', argument)),
          format('22023 field "%s" of the retry policy must be %s', split_part(argument, ' ', 1), expected), argument || ' -- I6')
  FROM (VALUES
    ('max_attempts => 0', 'a whole number from 1'),
    ('max_attempts => -1', 'a whole number from 1'),
    ('initial => ''-1 s''', 'a number of seconds from 0'),
    ('initial => ''1 month -31 days''', 'a number of seconds from 0'),
    ('max_interval => ''-1 s''', 'a number of seconds from 0'),
    ('max_duration => ''1000000 years''', 'a number of seconds from 0'),
    ('backoff => 0.5', 'a number from 1'),
    ('backoff => ''NaN''', 'a number from 1'),
    ('backoff => ''Infinity''', 'a number from 1'),
    ('strategy => ''quadratic''', '"exponential" or "linear"'),
    ('jitter => 1.1', 'a number from 0 to 1'),
    ('jitter => -0.1', 'a number from 0 to 1'),
    ('retryable => ''{22P}''', 'an array of SQLSTATEs or their two-character classes'),
    ('retryable => ''{22,NULL}''', 'an array of SQLSTATEs or their two-character classes'),
    ('retryable => ''{{22,23}}''', 'an array of SQLSTATEs or their two-character classes'),
    ('non_retryable => ''{22p02}''', 'an array of SQLSTATEs or their two-character classes')
  ) AS v (argument, expected);

--
-- Activities
--
CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
SELECT is(durable_register_activity('fails'), 'fails', 'an activity by its function''s name');
SELECT is(durable_register_activity('fails()'), 'fails', 'or its signature');
SELECT is(durable_register_activity('Charge the card', 'public.fails', '{"max_attempts": 2, "initial": 0}'), 'Charge the card',
          'a name of its own, and a policy');
SELECT is(durable_register_activity('"Odd Schema"."Odd(Name"()'), '"Odd Schema"."Odd(Name"', 'quoted identifiers');
CREATE FUNCTION pays() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('Charge the card'); END $$;
SELECT durable_register('pays') \g /dev/null
SELECT durable_start('pays', id => 'pays') \g /dev/null
SELECT is(durable_run('pays'), 'failed', 'a workflow calls it by that name');
SELECT is((SELECT attempts FROM durable.steps WHERE id = 'pays'), 2, 'under its policy -- D4');

SELECT is(err(format('SELECT durable_register_activity(%s)', arguments)), error, format('durable_register_activity(%s) -- I6', arguments))
  FROM (VALUES
    ('NULL', '22004 activity must not be null'),
    ('''''', '22023 activity must not be empty'),
    ('''x'', ''''', '42601 invalid function name: ""'),
    ('''x'', ''missing''', 'WF004 activity function "missing" does not exist'),
    ('''missing''', 'WF004 activity function "missing" does not exist'),
    ('E''a\tb'', ''fails''', '22023 activity must not contain control characters'),
    ('repeat(''x'', 401), ''fails''', '22023 activity is too long'),
    ('''fails'', retry => ''[]''', '22023 retry must be a JSON object, not array'),
    ('''fails'', retry => ''{"jitter": 2}''', '22023 field "jitter" of retry must be a number from 0 to 1')
  ) AS v (arguments, error);
SELECT is(err('SELECT durable_unregister(NULL)'), '22004 name must not be null', 'durable_unregister(NULL) -- I6');

--
-- Who may -- I7, I8
--
CREATE ROLE register_outsider;
CREATE ROLE register_app;
GRANT USAGE ON SCHEMA durable TO register_app;
CREATE SCHEMA app AUTHORIZATION register_app;
SET ROLE register_outsider;
SELECT is(err($$SELECT durable_register('one')$$), '42501 permission denied for durable', 'without USAGE on durable nothing -- I7');
SELECT alike(advice($$SELECT durable_register('one')$$), '%GRANT USAGE ON SCHEMA durable TO register_outsider%', 'the hint has the way out -- I7');
SET ROLE register_app;
CREATE FUNCTION app.own() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT is(err($$SELECT durable_register('one')$$), '42501 must be owner of function public.one(integer)', 'only one''s own functions');
SELECT is(err($$SELECT durable_register_activity('fails')$$), '42501 must be owner of function public.fails()', 'activities too');
SELECT is(err($$SELECT durable_register('app.own', 'one')$$), '42501 must be owner of workflow one', 'nobody takes another''s name');
SELECT is(err($$SELECT durable_unregister('one')$$), '42501 must be owner of workflow one', 'or unregisters another''s');
SELECT is(durable_register('app.own', run_as => 'owner'), 'app.own', 'one''s own is fine');
RESET ROLE;
SELECT durable_start('app.own', id => 'as owner') \g /dev/null
SELECT durable_start('one', id => 'as starter') \g /dev/null
SELECT results_eq($$SELECT id, run_as FROM durable.instances WHERE id LIKE 'as %' ORDER BY id$$,
                  $$VALUES ('as owner', 'register_app'::name), ('as starter', current_user)$$, 'run_as: owner and starter -- I8');
SELECT results_eq($$SELECT owner, run_as FROM durable.workflows WHERE name = 'app.own'$$, $$VALUES ('register_app'::name, 'owner')$$,
                  'the view shows owner and run_as');

SELECT * FROM finish();

DROP OWNED BY register_app;
DROP ROLE register_app, register_outsider;
