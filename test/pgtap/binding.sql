-- JSON to arguments, results to JSON and back.
SELECT no_plan();

CREATE EXTENSION plpython3u;
SET durable.retry_max_attempts = 1;

CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE point2 AS (x int, y text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN label AS text NOT NULL;
CREATE DOMAIN object AS jsonb CHECK (jsonb_typeof(VALUE) = 'object');

-- The result of a workflow, or the error it ended with.
CREATE FUNCTION run(workflow text, input jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    id text := durable_start(workflow, input);
BEGIN
    PERFORM durable_run(id);
    RETURN durable_result(id);
END $$;

CREATE FUNCTION calls(activity text, args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call(activity, args);
END $$;
SELECT durable_register('calls') \g /dev/null

-- The result of an activity, or its error.
CREATE FUNCTION act(activity text, args jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
SELECT run('calls', jsonb_build_object('activity', activity, 'args', args));
$$;

-- SQLSTATE and message of a statement that fails.
CREATE FUNCTION err(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

-- The same for an activity.
CREATE FUNCTION act_err(activity text, args jsonb) RETURNS text LANGUAGE sql AS $$
SELECT err(format('SELECT act(%L, %L)', activity, args));
$$;

--
-- Parameters: by name, by position, scalar; defaults -- A16
--
CREATE FUNCTION typed(a int, b text DEFAULT 'b', c mood DEFAULT 'ok', d int[] DEFAULT '{1,2}',
                      e point2 DEFAULT ROW(1, 'q'), f positive DEFAULT 7)
RETURNS jsonb LANGUAGE sql AS $$
SELECT jsonb_build_array(a, b, c, d, e, f);
$$;

SELECT is(act('typed', args), expected, description)
  FROM (VALUES
    ('{"a": 1}'::jsonb, '[1, "b", "ok", [1, 2], {"x": 1, "y": "q"}, 7]'::jsonb, 'by name, the rest by default'),
    ('[1]', '[1, "b", "ok", [1, 2], {"x": 1, "y": "q"}, 7]', 'by position, the rest by default'),
    ('1', '[1, "b", "ok", [1, 2], {"x": 1, "y": "q"}, 7]', 'a scalar is the only parameter without a default'),
    ('"1"', '[1, "b", "ok", [1, 2], {"x": 1, "y": "q"}, 7]', 'a JSON string is read by the type'),
    ('{"f": 2, "a": 1, "c": "sad"}', '[1, "b", "sad", [1, 2], {"x": 1, "y": "q"}, 2]', 'names in any order; enum, domain'),
    ('{"a": 1, "d": [3, null], "e": {"y": "z"}}', '[1, "b", "ok", [3, null], {"x": null, "y": "z"}, 7]', 'array and composite'),
    ('{"a": 1, "d": [[1], [2]]}', '[1, "b", "ok", [[1], [2]], {"x": 1, "y": "q"}, 7]', 'array of two dimensions'),
    ('{"a": null, "b": null, "d": null, "e": null, "f": null}', '[null, null, "ok", null, null, null]', 'null is NULL, and no default'),
    ('[1, {"k": [1]}]', '[1, "{\"k\": [1]}", "ok", [1, 2], {"x": 1, "y": "q"}, 7]', 'JSON for a text parameter is its text')
  ) AS v (args, expected, description);

SELECT alike(act_err('typed', args), error, description)
  FROM (VALUES
    ('{"b": "x"}'::jsonb, '22023 parameter "a" of activity public.typed(%) is missing', 'missing, by name'),
    ('[]', '22023 parameter "a" of activity public.typed(%) is missing', 'missing, by position'),
    ('{"a": 1, "z": 2}', '22023 activity public.typed(%) has no parameter "z"', 'unknown key'),
    ('{"A": 1}', '22023 activity public.typed(%) has no parameter "A"', 'names are compared as they are stored'),
    ('[1, "b", "ok", [], {}, 1, 7]', '22023 too many arguments for activity public.typed(%): 7 given, 6 possible', 'too many'),
    ('{"a": "x"}', '22P02 parameter "a" of activity %: invalid input syntax for type integer: "x"', 'no integer'),
    ('{"a": 4.5}', '22P02 parameter "a" of activity %', 'no whole number'),
    ('{"a": 3000000000}', '22003 parameter "a" of activity %out of range%', 'too large'),
    ('{"a": true}', '22P02 parameter "a" of activity %', 'a boolean is no integer'),
    ('{"a": 1, "c": "mad"}', '22P02 parameter "c" of activity %enum mood: "mad"', 'no member of the enum'),
    ('{"a": 1, "d": 3}', '22P02 parameter "d" of activity %: expected JSON array', 'no array'),
    ('{"a": 1, "d": [[1, 2], [3]]}', '22P02 parameter "d" of activity %', 'ragged array'),
    ('{"a": 1, "e": 3}', '22023 parameter "e" of activity %', 'a scalar is no composite'),
    ('{"a": 1, "e": {"x": "z"}}', '22P02 parameter "e" of activity %', 'wrong type inside a composite'),
    ('{"a": 1, "f": 0}', '23514 parameter "f" of activity %constraint "positive_check"', 'CHECK of a domain')
  ) AS v (args, error, description);

SELECT is(hint, 'See the value of key "d".', 'the hint of the type names the parameter')
  FROM (SELECT error->>'hint' AS hint FROM durable.instances
         WHERE error->>'message' LIKE '%parameter "d"%expected JSON array') AS e;

CREATE FUNCTION no_names(int, int DEFAULT 2) RETURNS int LANGUAGE sql AS 'SELECT 10 * $1 + $2';
SELECT is(act('no_names', '[1, 3]'), '13', 'unnamed parameters by position');
SELECT is(act('no_names', '1'), '12', 'an unnamed parameter from a scalar');
SELECT is(act_err('no_names', '{}'),
          '22023 parameter $1 of activity public.no_names(integer,integer) has no name, it can only be given by position',
          'unnamed parameters have no names to be given by');
SELECT is(act_err('no_names', '["x"]'),
          '22P02 parameter $1 of activity public.no_names(integer,integer): invalid input syntax for type integer: "x"',
          'messages call an unnamed parameter by its number');

CREATE FUNCTION nothing() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT is(act('nothing', args), '1', 'no parameters take ' || args::text)
  FROM unnest(ARRAY['{}', '[]', 'null']::jsonb[]) AS args;
SELECT is(act_err('nothing', '1'), '22023 a single value cannot be the input of activity public.nothing()',
          'no parameters take no value');

CREATE FUNCTION total(VARIADIC n int[]) RETURNS int LANGUAGE sql AS 'SELECT sum(v)::int FROM unnest(n) v';
SELECT is(act('total', '{"n": [1, 2, 3]}'), '6', 'VARIADIC is one parameter, an array');
SELECT is(act_err('total', '[1, 2]'), '22023 too many arguments for activity public.total(integer[]): 2 given, 1 possible',
          'an array of arguments is not the array itself');

CREATE FUNCTION two(a int, b int) RETURNS int LANGUAGE sql AS 'SELECT a + b';
SELECT is(act_err('two', '1'), '22023 a single value cannot be the input of activity public.two(integer,integer)',
          'a scalar for two parameters');

-- Domains that refuse NULL, and JSON types
CREATE FUNCTION domains(l label DEFAULT 'l', o object DEFAULT '{}') RETURNS text LANGUAGE sql AS 'SELECT l || o';
SELECT is(act('domains'), '"l{}"', 'defaults of domains');
SELECT alike(act_err('domains', '{"l": null}'), '23502 parameter "l" of activity %', 'NOT NULL of a domain');
SELECT alike(act_err('domains', '{"o": [1]}'), '23514 parameter "o" of activity %', 'CHECK of a domain over jsonb');

CREATE FUNCTION as_text(j jsonb) RETURNS text LANGUAGE sql AS $$ SELECT coalesce(j::text, 'NULL') $$;
CREATE FUNCTION json_text(j json) RETURNS text LANGUAGE sql AS $$ SELECT coalesce(j::text, 'NULL') $$;
CREATE FUNCTION jsonb_second(a int, j jsonb DEFAULT NULL) RETURNS text LANGUAGE sql AS $$ SELECT coalesce(j::text, 'NULL') $$;
SELECT is(act('as_text', args) #>> '{}', args::text, 'one jsonb parameter gets all of ' || args::text)
  FROM unnest(ARRAY['{"j": 1}', '[1, 2]', '"x"', '{}', 'null']::jsonb[]) AS args;
SELECT is(act('json_text', '{"j": [1]}'), '"[1]"', 'one json parameter is bound as any other');
SELECT is(act('jsonb_second', '{"a": 1, "j": null}'), '"null"', 'JSON null for a jsonb parameter stays JSON null -- A3');
SELECT is(act('jsonb_second', '{"a": 1}'), '"NULL"', 'a default of NULL stays SQL NULL -- A3');

-- STRICT
CREATE FUNCTION strict_sum(a int, b int DEFAULT NULL) RETURNS int STRICT LANGUAGE sql AS 'SELECT a + b';
SELECT is(act('strict_sum', '[1, 2]'), '3', 'a STRICT function with values is called');
SELECT is(act_err('strict_sum', args), '22004 parameter "' || param || '" of activity public.strict_sum(integer,integer) must not be null',
          'STRICT with NULL is an error: ' || args::text)
  FROM (VALUES ('[null, 1]'::jsonb, 'a'), ('[1, null]', 'b'), ('[1]', 'b')) AS v (args, param);

--
-- Results -- A16, A3
--
CREATE FUNCTION r_void() RETURNS void LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION r_null() RETURNS int LANGUAGE sql AS 'SELECT NULL::int';
CREATE FUNCTION r_json_null() RETURNS jsonb LANGUAGE sql AS $$ SELECT 'null'::jsonb $$;
CREATE FUNCTION r_text() RETURNS text LANGUAGE sql AS $$ SELECT 'null'::text $$;
CREATE FUNCTION r_time() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2020-01-01 00:00+00'::timestamptz $$;
CREATE FUNCTION r_infinity() RETURNS float8 LANGUAGE sql AS $$ SELECT 'Infinity'::float8 $$;
CREATE FUNCTION r_array() RETURNS int[] LANGUAGE sql AS 'SELECT ARRAY[[1, 2], [3, NULL]]';
CREATE FUNCTION r_enum() RETURNS mood LANGUAGE sql AS $$ SELECT 'sad'::mood $$;
CREATE FUNCTION r_domain() RETURNS positive LANGUAGE sql AS 'SELECT 1::positive';
CREATE FUNCTION r_composite() RETURNS point2 LANGUAGE sql AS $$ SELECT 1, 'a' $$;
CREATE FUNCTION r_no_composite() RETURNS point2 LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION r_record() RETURNS record LANGUAGE plpgsql AS
    'DECLARE r record; BEGIN SELECT 1 AS a, 2 AS b INTO r; RETURN r; END';
CREATE FUNCTION r_out(OUT a int, OUT b text) LANGUAGE sql AS $$ SELECT 1, 'b'::text $$;
CREATE FUNCTION r_one_out(OUT a int) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION r_table() RETURNS TABLE (i int, t text) LANGUAGE sql AS $$ SELECT g, 't' || g FROM generate_series(1, 2) g $$;
CREATE FUNCTION r_empty() RETURNS TABLE (i int, t text) LANGUAGE plpgsql AS 'BEGIN RETURN; END';
CREATE FUNCTION r_column() RETURNS TABLE (i int) LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT generate_series(1, 2); END';
CREATE FUNCTION r_setof() RETURNS SETOF text LANGUAGE sql AS $$ SELECT unnest(ARRAY['a', NULL]) $$;
CREATE FUNCTION r_setof_composite() RETURNS SETOF point2 LANGUAGE plpgsql AS
    $$ BEGIN RETURN NEXT ROW(1, 'a')::point2; RETURN NEXT ROW(2, NULL)::point2; END $$;
CREATE FUNCTION r_atomic() RETURNS int BEGIN ATOMIC; SELECT 1 + 1; END;
CREATE FUNCTION r_return() RETURNS int RETURN 1 + 1;
CREATE FUNCTION r_python() RETURNS point2 LANGUAGE plpython3u AS $$ return {"x": 3, "y": "py"} $$;
CREATE FUNCTION r_python_set() RETURNS SETOF int LANGUAGE plpython3u AS $$
for i in range(3): yield i
$$;

SELECT is(act(function)::text, expected, description)
  FROM (VALUES
    ('r_void', NULL, 'void is NULL'),
    ('r_null', NULL, 'NULL stays NULL'),
    ('r_json_null', 'null', 'JSON null stays JSON null'),
    ('r_text', '"null"', 'text is a JSON string'),
    ('r_time', '"2020-01-01T00:00:00+00:00"', 'a time is an ISO string'),
    ('r_infinity', '"Infinity"', 'infinity is a string'),
    ('r_array', '[[1, 2], [3, null]]', 'an array'),
    ('r_enum', '"sad"', 'an enum'),
    ('r_domain', '1', 'a domain'),
    ('r_composite', '{"x": 1, "y": "a"}', 'a composite is an object'),
    ('r_no_composite', NULL, 'a NULL composite is NULL'),
    ('r_record', '{"a": 1, "b": 2}', 'record is an object'),
    ('r_out', '{"a": 1, "b": "b"}', 'OUT parameters are an object'),
    ('r_one_out', '1', 'one OUT parameter is its value'),
    ('r_table', '[{"i": 1, "t": "t1"}, {"i": 2, "t": "t2"}]', 'TABLE is an array of objects'),
    ('r_empty', '[]', 'no rows are an empty array'),
    ('r_column', '[1, 2]', 'TABLE of one column is an array of values'),
    ('r_setof', '["a", null]', 'SETOF is an array'),
    ('r_setof_composite', '[{"x": 1, "y": "a"}, {"x": 2, "y": null}]', 'SETOF composite is an array of objects'),
    ('r_atomic', '2', 'BEGIN ATOMIC'),
    ('r_return', '2', 'RETURN'),
    ('r_python', '{"x": 3, "y": "py"}', 'PL/Python, composite'),
    ('r_python_set', '[0, 1, 2]', 'PL/Python, set')
  ) AS v (function, expected, description);

-- Replayed, the two nulls are still apart, and neither is asked for again -- A3, A1
CREATE TABLE ran (activity text);
CREATE FUNCTION sql_null() RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO ran VALUES ('sql_null'); SELECT NULL::jsonb $$;
CREATE FUNCTION json_null() RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO ran VALUES ('json_null'); SELECT 'null'::jsonb $$;
CREATE FUNCTION both_nulls() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    a jsonb := durable_call('sql_null');
    b jsonb := durable_call('json_null');
BEGIN
    PERFORM durable_sleep('0');
    RETURN ARRAY[coalesce(a::text, 'NULL'), coalesce(b::text, 'NULL')];
END $$;
SELECT durable_register('both_nulls') \g /dev/null
SELECT is(run('both_nulls'), '["NULL", "null"]', 'SQL NULL and JSON null are told apart on replay -- A3');
SELECT bag_eq('TABLE ran', ARRAY['sql_null', 'json_null'], 'a null result is a hit on replay, not a miss -- A3');

--
-- Workflows of all shapes -- A16, A4
--
CREATE FUNCTION echo(j jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT j';

CREATE FUNCTION w_void() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_call('nothing'); END $$;
CREATE FUNCTION w_null() RETURNS int LANGUAGE sql AS 'SELECT NULL::int';
CREATE FUNCTION w_json_null() RETURNS jsonb LANGUAGE sql AS $$ SELECT durable_call('echo', 'null') $$;
CREATE FUNCTION w_whole(j jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('echo', j); END $$;
CREATE FUNCTION w_typed(p point2, d positive, m mood DEFAULT 'ok', l int[] DEFAULT '{}') RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('echo', jsonb_build_array(p, d, m, l));
END $$;
CREATE FUNCTION w_composite(p point2) RETURNS point2 LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call_as(p, 'echo', to_jsonb(p));
END $$;
CREATE FUNCTION w_set(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        RETURN NEXT durable_call_as(NULL::text, 'echo', to_jsonb('v' || i));
    END LOOP;
END $$;
CREATE FUNCTION w_table(n int) RETURNS TABLE (i int, j jsonb) LANGUAGE plpgsql AS $$
BEGIN
    FOR k IN 1..n LOOP
        i := k;
        j := durable_call('echo', to_jsonb(k));
        RETURN NEXT;
    END LOOP;
END $$;
CREATE FUNCTION w_out(a int, OUT b int, OUT c jsonb) LANGUAGE plpgsql AS $$
BEGIN
    b := a;
    c := durable_call('echo', '"c"');
END $$;
CREATE FUNCTION w_sql(a int) RETURNS jsonb LANGUAGE sql AS $$
SELECT durable_call('echo', to_jsonb(a)) || durable_call('echo', '[2]');
$$;
CREATE FUNCTION w_atomic(a int) RETURNS jsonb BEGIN ATOMIC; SELECT durable_call('echo', to_jsonb(a)); END;
CREATE FUNCTION w_return(a int) RETURNS jsonb RETURN durable_call('echo', to_jsonb(a));
CREATE FUNCTION w_python(a int) RETURNS int LANGUAGE plpython3u AS $$
return int(plpy.execute("SELECT durable_call('echo', '%d') AS v" % a)[0]["v"]) + 1
$$;
CREATE FUNCTION w_python_set(n int) RETURNS SETOF int LANGUAGE plpython3u AS $$
for i in range(n):
    plpy.execute("SELECT durable_call('nothing')")
    yield i
$$;
CREATE PROCEDURE w_procedure(a int) LANGUAGE plpgsql AS $$ BEGIN CALL durable_step('nothing'); END $$;
CREATE PROCEDURE w_inout(a int, INOUT b int DEFAULT 5) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('nothing');
    b := a + b;
END $$;
CREATE PROCEDURE w_step_result(a int, OUT r jsonb) LANGUAGE plpgsql AS $$
BEGIN
    CALL durable_step('echo', to_jsonb(a), r);
END $$;

CREATE TABLE shape (workflow text, input jsonb, expected jsonb, description text);
INSERT INTO shape VALUES
    ('w_void', '{}', NULL, 'void -- A4'),
    ('w_null', '{}', NULL, 'NULL -- A4'),
    ('w_json_null', '{}', 'null', 'JSON null -- A3'),
    ('w_whole', '{"j": [1]}', '{"j": [1]}', 'one jsonb parameter gets the whole input'),
    ('w_whole', '7', '7', 'a scalar too'),
    ('w_typed', '{"p": {"x": 1}, "d": 2}', '[{"x": 1, "y": null}, 2, "ok", []]', 'by name'),
    ('w_typed', '[{"y": "b"}, 2, "sad", [3]]', '[{"x": null, "y": "b"}, 2, "sad", [3]]', 'by position'),
    ('w_composite', '{"p": {"x": 1, "y": "b"}}', '{"x": 1, "y": "b"}', 'composite'),
    ('w_set', '3', '["v1", "v2", "v3"]', 'SETOF, by scalar'),
    ('w_set', '0', '[]', 'SETOF without rows'),
    ('w_table', '{"n": 2}', '[{"i": 1, "j": 1}, {"i": 2, "j": 2}]', 'TABLE'),
    ('w_out', '[4]', '{"b": 4, "c": "c"}', 'OUT parameters'),
    ('w_sql', '1', '[1, 2]', 'SQL'),
    ('w_atomic', '1', '1', 'BEGIN ATOMIC'),
    ('w_return', '1', '1', 'RETURN'),
    ('w_python', '1', '2', 'PL/Python'),
    ('w_python_set', '2', '[0, 1]', 'PL/Python set'),
    ('w_procedure', '1', NULL, 'procedure'),
    ('w_inout', '1', '{"b": 6}', 'procedure, INOUT with its default'),
    ('w_inout', '{"a": 1, "b": 2}', '{"b": 3}', 'procedure, INOUT'),
    ('w_step_result', '3', '{"r": 3}', 'procedure, OUT');
SELECT count(durable_register(workflow)) FROM (SELECT DISTINCT workflow FROM shape) AS s \g /dev/null

SELECT is(run(workflow, input), expected, workflow || ' in one transaction: ' || description) FROM shape;

SELECT count(durable_start(workflow, input, id => 'shape ' || ctid)) FROM shape \g /dev/null
CALL durable_work();
SELECT is(durable_status('shape ' || ctid), 'completed', workflow || ' completes: ' || description) FROM shape;
SELECT is(durable_result('shape ' || ctid), expected, workflow || ' with a commit a step: ' || description) FROM shape;

-- The input is checked at the start -- I1
CREATE FUNCTION w_strict(a int) RETURNS int STRICT LANGUAGE sql AS 'SELECT a';
SELECT durable_register('w_strict') \g /dev/null
SELECT is(err(format('SELECT durable_start(%L, %L)', workflow, input)), error, description)
  FROM (VALUES
    ('w_set', '{"m": 1}', '22023 workflow public.w_set(integer) has no parameter "m"', 'start: unknown key'),
    ('w_set', '{}', '22023 parameter "n" of workflow public.w_set(integer) is missing', 'start: missing'),
    ('w_set', '[1, 2]', '22023 too many arguments for workflow public.w_set(integer): 2 given, 1 possible', 'start: too many'),
    ('w_set', '"x"', '22P02 parameter "n" of workflow public.w_set(integer): invalid input syntax for type integer: "x"', 'start: wrong type'),
    ('w_strict', 'null', '22004 parameter "a" of workflow public.w_strict(integer) must not be null', 'start: STRICT with NULL')
  ) AS v (workflow, input, error, description);

-- Defaults are those of the start, whatever becomes of them
CREATE SEQUENCE default_seq;
CREATE FUNCTION defaults(a int, b int DEFAULT nextval('default_seq'), c jsonb DEFAULT NULL, d text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('nothing');
    RETURN concat_ws(' ', a, b, coalesce(c::text, 'NULL'), coalesce(d, 'NULL'));
END $$;
SELECT durable_register('defaults') \g /dev/null
SELECT is(run('defaults', input) #>> '{}', expected, 'defaults are evaluated once: ' || input::text)
  FROM (VALUES
    ('{"a": 1}'::jsonb, '1 1 NULL NULL'),
    ('[2]', '2 2 NULL NULL'),
    ('3', '3 3 NULL NULL'),
    ('{"a": 4, "c": null}', '4 4 null NULL'),
    ('[5, 50]', '5 50 NULL NULL')
  ) AS v (input, expected);

CREATE FUNCTION details(input jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint   text;
BEGIN
    PERFORM durable_start('defaults', input);
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN detail || ' | ' || hint;
END $$;
SELECT is(details('{"b": 1}'),
          'Its parameters are: "a" integer, "b" integer (has a default), "c" jsonb (has a default), "d" text (has a default).'
          ' | Add it to the input, or give it a default in the function.',
          'detail and hint tell what the function takes');

--
-- durable_call_as -- A18
--
CREATE FUNCTION as_type(type text, value jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    name text := 'as ' || type;
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION %I(j jsonb) RETURNS text LANGUAGE plpgsql AS $f$
                    BEGIN RETURN (durable_call_as(NULL::%s, ''echo'', j))::text; END $f$', name, type);
    PERFORM durable_register(quote_ident(name), name);
    RETURN run(name, value) #>> '{}';
END $$;

SELECT is(as_type(type, value), expected, format('%s as %s -- A18', value, type))
  FROM (VALUES
    ('text', '"abc"'::jsonb, 'abc'), ('text', '""', ''), ('text', '5', '5'), ('text', '{"a": 1}', '{"a": 1}'),
    ('text', 'null', NULL),
    ('uuid', '"9d2ef9f0-66ac-4c1c-bb0d-3a4f1c7e0f5e"', '9d2ef9f0-66ac-4c1c-bb0d-3a4f1c7e0f5e'),
    ('int', '5', '5'), ('int', '"5"', '5'), ('bool', 'true', 'true'), ('numeric', '1.50', '1.50'),
    ('float8', '"Infinity"', 'Infinity'),
    ('int[]', '[1, null, 3]', '{1,NULL,3}'), ('int[]', '[[1], [2]]', '{{1},{2}}'), ('text[]', '[]', '{}'),
    ('point2', '{"x": 1, "y": "q"}', '(1,q)'), ('point2', '{}', '(,)'), ('point2[]', '[{"x": 1}, {"y": "b"}]', '{"(1,)","(,b)"}'),
    ('mood', '"ok"', 'ok'), ('positive', '1', '1'),
    ('timestamptz', '"2020-01-01T00:00:00+00:00"', '2020-01-01 00:00:00+00'),
    ('interval', '"1 day"', '1 day'), ('int4range', '"[1,3)"', '[1,3)'), ('bytea', '"\\x00ff"', '\x00ff'),
    ('jsonb', 'null', 'null'), ('json', 'null', 'null'), ('jsonb', '{"a": 1}', '{"a": 1}')
  ) AS v (type, value, expected);

SELECT alike(err(format('SELECT as_type(%L, %L)', type, value)), error, format('%s is no %s -- A18', value, type))
  FROM (VALUES
    ('uuid', '"zz"'::jsonb, '22P02 result of activity "echo" is no uuid: invalid input syntax for type uuid: "zz"'),
    ('int', '5.5', '22P02 result of activity "echo" is no integer: %'),
    ('int', '{"a": 1}', '22P02 result of activity "echo" is no integer: %'),
    ('int[]', '1', '22P02 result of activity "echo" is no integer[]: expected JSON array'),
    ('int[]', '["a"]', '22P02 result of activity "echo" is no integer[]: %'),
    ('point2', '[1, 2]', '22023 result of activity "echo" is no point2: %'),
    ('point2', '{"x": "q"}', '22P02 result of activity "echo" is no point2: %'),
    ('mood', '"mad"', '22P02 result of activity "echo" is no mood: %'),
    ('positive', '0', '23514 result of activity "echo" is no positive: %'),
    ('record', '{"a": 1}', '42809 result of activity "echo" is no record: %')
  ) AS v (type, value, error);

-- SQL NULL is NULL of every type, jsonb's too -- A3, A18
CREATE FUNCTION null_as() RETURNS bool[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY[durable_call_as(NULL::int, 'r_null') IS NULL, durable_call_as(NULL::jsonb, 'sql_null') IS NULL,
                 durable_call_as(NULL::jsonb, 'json_null') IS NULL, durable_call_as(NULL::point2, 'r_no_composite') IS NULL];
END $$;
SELECT durable_register('null_as') \g /dev/null
SELECT is(run('null_as'), '[true, true, false, true]', 'NULL as a type; JSON null as jsonb is not NULL -- A3, A18');

--
-- durable_sql
--
CREATE TABLE item (id int PRIMARY KEY, price numeric, tags text[], more jsonb);
CREATE FUNCTION says(query text, args jsonb DEFAULT '[]') RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_sql(query, args);
END $$;
SELECT durable_register('says') \g /dev/null
CREATE FUNCTION sql(query text, args jsonb DEFAULT '[]') RETURNS jsonb LANGUAGE sql AS $$
SELECT run('says', jsonb_build_object('query', query, 'args', args));
$$;

SELECT is(sql(query, args), expected, 'durable_sql: ' || query)
  FROM (VALUES
    ('INSERT INTO item VALUES ($1, $2, $3, $4)', '[1, "2.5", ["a", "b"], {"k": null}]'::jsonb, '{"rows": 1}'::jsonb),
    ('INSERT INTO item (id) VALUES ($1), ($1 + 1) RETURNING id', '[2]', '[{"id": 2}, {"id": 3}]'),
    ('SELECT * FROM item WHERE id = $1', '[1]', '[{"id": 1, "price": 2.5, "tags": ["a", "b"], "more": {"k": null}}]'),
    ('SELECT id FROM item WHERE id = ANY ($1) ORDER BY id', '[[1, 3, 9]]', '[{"id": 1}, {"id": 3}]'),
    ('SELECT id FROM item WHERE id = $1', '[99]', '[]'),
    ('UPDATE item SET price = price + $1 WHERE tags @> $2', '[1, ["a"]]', '{"rows": 1}'),
    ('WITH gone AS (DELETE FROM item WHERE id = $1 RETURNING id) SELECT * FROM gone', '[3]', '[{"id": 3}]'),
    ('DELETE FROM item WHERE id > $1', '[100]', '{"rows": 0}'),
    ('SELECT $1 AS a', '["x"]', '[{"a": "x"}]'),
    ('SELECT $1::mood AS m, $2::point2 AS p', '["sad", {"x": 1}]', '[{"m": "sad", "p": {"x": 1, "y": null}}]'),
    ('SELECT $2::int AS b', '[null, 2]', '[{"b": 2}]'),
    ('SELECT $1::int IS NULL AS n', '[null]', '[{"n": true}]'),
    ('CREATE TABLE made (a int)', '[]', '{"rows": 0}'),
    ('SELECT', '[]', '[{}]')
  ) AS v (query, args, expected);

SELECT is(err(format('SELECT sql(%L, %L)', query, args)), error, 'durable_sql: ' || description)
  FROM (VALUES
    ('SELECT 1; SELECT 2', '[]', '42601 durable_sql() takes one statement, not 2', 'two statements'),
    ('-- nothing', '[]', '42601 durable_sql() takes one statement, not 0', 'no statement'),
    ('SELEC 1', '[]', '42601 syntax error at or near "SELEC"', 'no SQL'),
    ('SELECT * FROM missing', '[]', '42P01 relation "missing" does not exist', 'no such table'),
    ('SELECT $1::int, $2::int', '[1, 2, 3]', '22023 wrong number of arguments for durable_sql(): 3 given, 2 needed', 'too many'),
    ('SELECT $1::int, $2::int', '[]', '22023 wrong number of arguments for durable_sql(): 0 given, 2 needed', 'too few'),
    ('SELECT 1', '{"a": 1}', '22023 args of durable_sql() must be a JSON array, not object', 'args by name'),
    ('SELECT 1', '1', '22023 args of durable_sql() must be a JSON array, not number', 'args as a scalar'),
    ('SELECT 1 / 0', '[]', '22012 division by zero', 'an error of the statement')
  ) AS v (query, args, error, description);
SELECT alike(err(format('SELECT sql(%L)', query)), '0A000 durable_sql() cannot run this kind of statement%', 'durable_sql refuses ' || query)
  FROM unnest(ARRAY['COMMIT', 'ROLLBACK', 'SAVEPOINT a', 'COPY item TO STDOUT']) AS query;
SELECT alike(err($$SELECT sql('SELECT $1::int', '["x"]')$$), '22P02 %invalid input syntax for type integer: "x"',
             'durable_sql: an argument of the wrong type');

SELECT * FROM finish();
