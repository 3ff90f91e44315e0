-- The source check: durable_internal.lint(source, language) -- A14
SELECT no_plan();

-- What it finds, as line:thing, or 'clean'.
CREATE FUNCTION lint(source text, language text DEFAULT 'plpgsql') RETURNS text LANGUAGE sql AS $$
SELECT coalesce(string_agg(format('%s:%s', line, found), ' | '), 'clean') FROM durable_internal.lint(source, language);
$$;

--
-- False alarms: bodies that must be clean
--
SELECT is(lint(source), 'clean', description)
  FROM (VALUES
('an order with approval', $$
DECLARE
    stock    jsonb;
    approval jsonb;
    deadline timestamptz := durable_now() + interval '3 days';
BEGIN
    stock := durable_call('reserve_stock', jsonb_build_object('order_id', order_id, 'from', warehouse));
    approval := durable_wait_signal('approval', timeout => '3 days');
    IF approval IS NULL OR approval->>'verdict' IS DISTINCT FROM 'yes' THEN
        RAISE EXCEPTION 'order % was not approved until %', order_id, deadline
              USING HINT = 'Insert the order again, or update it now.';
    END IF;
    PERFORM durable_sleep('1 hour');
    PERFORM durable_sql('UPDATE orders SET shipped_at = now() WHERE id = $1', jsonb_build_array(order_id));
    RETURN durable_call_as(NULL::uuid, 'ship', jsonb_build_object('order_id', order_id));
END $$),
('a loop over rows that a step has read', $$
DECLARE
    o    record;
    done int := 0;
BEGIN
    FOR o IN SELECT * FROM jsonb_to_recordset(durable_sql('SELECT id, total FROM orders WHERE NOT billed'))
                           AS t(id int, total numeric) ORDER BY id
    LOOP
        BEGIN
            PERFORM durable_call('bill', to_jsonb(o));
            done := done + 1;
        EXCEPTION
            WHEN unique_violation THEN
                CONTINUE;                       -- somebody's update came first
            WHEN OTHERS THEN
                PERFORM durable_log(format('order %s: %s', o.id, SQLERRM));
        END;
    END LOOP;
    RETURN jsonb_build_object('billed', done);
END $$),
('polling with a growing pause', $$
<<poll>>
DECLARE
    state text;
    pause interval := '1 second';
    start timestamptz := durable_now();
BEGIN
    LOOP
        state := durable_call('job_state', jsonb_build_object('job', job))->>'state';
        CASE state
            WHEN 'done', 'failed' THEN
                EXIT;
            WHEN 'now' THEN
                pause := '1 second';
            ELSE
                pause := least(pause * 2, interval '5 minutes');
        END CASE;
        IF extract(epoch FROM durable_now() - poll.start) > 86400 THEN
            RAISE EXCEPTION 'job % is too slow', job USING ERRCODE = 'query_canceled';
        END IF;
        PERFORM durable_sleep(pause);
    END LOOP;
    RETURN state;
END $$),
('sums of what came back, in SQL inside PL/pgSQL', $$
DECLARE
    parts jsonb[] := '{}';
    i     int;
BEGIN
    FOR i IN 1..coalesce(jsonb_array_length(items), 0) LOOP
        parts := parts || durable_call('price', items->(i - 1));
    END LOOP;
    WITH priced AS (SELECT (p->>'id')::int AS id, (p->>'price')::numeric AS price FROM unnest(parts) AS p),
         ranked AS (SELECT id, price, rank() OVER (ORDER BY price DESC) AS place FROM priced)
    SELECT jsonb_build_object('total', sum(r.price), 'first', min(r.id) FILTER (WHERE r.place = 1))
      INTO result
      FROM ranked r
      LEFT JOIN LATERAL (SELECT count(*) AS n FROM priced q WHERE q.price > r.price) AS better ON true;
    RETURN result;
END $$),
('a procedure that steps', $$
DECLARE
    r jsonb;
BEGIN
    FOR day IN 0..6 LOOP
        CALL durable_step('report', jsonb_build_object('day', first_day + day), r);
        IF (r->>'rows')::int = 0 THEN
            /* nothing to send
               on that day: no INSERT INTO outbox */
            CONTINUE;
        END IF;
        CALL durable_step('send', r || '{"when": "today", "table": "outbox"}');
    END LOOP;
END $$)
  ) AS v (description, source);

-- Statement by statement
SELECT is(lint('BEGIN ' || statement || ' END'), 'clean', trim(statement))
  FROM unnest(ARRAY[
    $$ x := 1; $$,
    $$ -- now()
 /* random() /* nested */ clock_timestamp() */ NULL; $$,
    $$ RAISE NOTICE 'now() % select * from t', x; $$,
    $$ x := $q$ update t set a = now() $q$; $$,
    $$ x := "now"; y := r."random"; $$,
    $$ x := r.now; x := now; $$,
    $$ x := app.now(); y := app.random(); $$,
    $$ x := extract(epoch FROM durable_now() - started); $$,
    $$ x := substring(s FROM 2 FOR 3); y := trim(both ' ' FROM s); z := overlay(s PLACING 'x' FROM 2); p := position('a' IN b); $$,
    $$ IF a IS DISTINCT FROM b THEN NULL; END IF; $$,
    $$ IF a IS NOT DISTINCT FROM b THEN NULL; END IF; $$,
    $$ FOR item IN SELECT * FROM jsonb_array_elements(items) LOOP PERFORM durable_call('x', item); END LOOP; $$,
    $$ FOR item IN SELECT value FROM jsonb_array_elements(items) WITH ORDINALITY AS t(value, n) ORDER BY n LOOP NULL; END LOOP; $$,
    $$ FOR i IN REVERSE 10..1 BY 2 LOOP CONTINUE WHEN i = 3; EXIT; END LOOP; $$,
    $$ FOREACH x IN ARRAY arr LOOP NULL; END LOOP; $$,
    $$ SELECT sum(v) INTO total FROM unnest(arr) v; $$,
    $$ SELECT a, b INTO x, y FROM (VALUES (1, 2), (3, 4)) AS v(a, b) WHERE a = 1; $$,
    $$ WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT max(n) INTO x FROM r; $$,
    $$ WITH a AS (SELECT 1 AS i), b AS MATERIALIZED (SELECT i FROM a) SELECT count(*) INTO x FROM a JOIN b USING (i); $$,
    $$ x := (SELECT count(*) FROM jsonb_object_keys(j)); $$,
    $$ x := ARRAY(SELECT e->>'id' FROM jsonb_array_elements(j) e ORDER BY 1); $$,
    $$ x := CASE WHEN a THEN 'update' ELSE 'delete' END; $$,
    $$ x := CASE kind WHEN 'a' THEN insert ELSE update END; $$,
    $$ CASE x WHEN 1 THEN y := 2; ELSE y := 3; END CASE; $$,
    $$ comment := 'x'; lock.id := 2; set[3] := 4; copy = 3; update := 3; release := true; start := 1; show := 2; load := 1; analyze := 1; $$,
    $$ <<update>> LOOP EXIT update; END LOOP; $$,
    $$ PERFORM durable_sql('UPDATE t SET a = now()'); $$,
    $$ PERFORM durable_sql($s$INSERT INTO t SELECT random() FROM u$s$, '[1]'); $$,
    $$ PERFORM durable_sql('DELETE FROM ' || quote_ident(t)); $$,
    $$ EXECUTE 'SELECT $1 + 1' INTO x USING y; $$,
    $$ EXECUTE format('SELECT %L::int', x) INTO y; $$,
    $$ EXECUTE 'SELECT sum(v) FROM unnest($1) v' INTO x USING arr; $$,
    $$ OPEN c FOR SELECT g FROM generate_series(1, 3) g; FETCH NEXT FROM c INTO x; FETCH c INTO x; MOVE FORWARD 2 FROM c; CLOSE c; $$,
    $$ GET DIAGNOSTICS n = ROW_COUNT; $$,
    $$ BEGIN x := durable_call('a'); EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS m = MESSAGE_TEXT; RAISE; END; $$,
    $$ RETURN jsonb_build_object('from', x, 'now', y, 'table', z); $$,
    $$ RETURN QUERY SELECT v.a FROM (VALUES (1)) v(a); $$,
    $$ RETURN QUERY SELECT * FROM unnest(a, b) AS t(x, y); $$,
    $$ SELECT * INTO r FROM jsonb_to_record(j) AS x(a int, b text, "from" date); $$,
    $$ SELECT * INTO r FROM jsonb_populate_record(NULL::orders, j); $$,
    $$ SELECT * INTO r FROM ROWS FROM (generate_series(1,2), unnest(a)) AS t(a, b); $$,
    $$ SELECT max(g) INTO x FROM generate_series(1, 3) g, LATERAL unnest(arr) u, jsonb_each(j) AS e(k, v); $$,
    $$ SELECT max(g) INTO x FROM generate_series(1, 3) g CROSS JOIN LATERAL (SELECT u FROM unnest(arr) u LIMIT 1) s; $$,
    $$ SELECT max(g) INTO x FROM generate_series(1, 3) g LEFT JOIN unnest(arr) u ON u = g; $$,
    $$ x := 'now'; y := 'today'; kind text := 'tomorrow'; $$,
    $$ IF mode = 'now' THEN NULL; END IF; $$,
    $$ x := 'see you tomorrow'::text; y := '{"when": "now"}'::jsonb; $$,
    $$ x := age(a, b); y := date '2020-01-01'; z := interval '1 day'; w := timestamptz '2020-01-01'; $$,
    $$ PERFORM durable_sleep('1 day'); PERFORM durable_sleep_until(durable_now() + interval '1 hour'); $$,
    $$ PERFORM durable_sleep_until(date_trunc('day', durable_now()) + interval '1 day'); $$,
    $$ x := durable_random() * 5; y := durable_uuid(); $$,
    $$ CALL durable_step('charge', jsonb_build_object('id', id)); $$,
    $$ ASSERT x > 0, 'now() must be'; $$,
    $$ x := to_char(durable_now(), 'YYYY'); y := make_interval(days => 3); $$,
    $$ x := regexp_replace(s, 'from (\w+)', '\1'); $$,
    $$ x := (a).b; y := (r.x).now; $$,
    $$ x := E'it''s \'now\' from t'; $$,
    $$ x := U&'\0041'; $$,
    $$ x := row_to_json(r); y := string_agg(v, ',' ORDER BY v) FROM unnest(a) v; $$,
    $$ IF NOT FOUND THEN RETURN NULL; END IF; $$,
    $$ IF (SELECT bool_and((e->>'ok')::bool) FROM jsonb_array_elements(r) e) THEN NULL; END IF; $$,
    $$ x := current_user; y := session_user; $$,
    $$ x := a - b; y := a/*c*/ + b; z := a @> b; $$,
    $$ x := nullif(a, 'now'); y := greatest(a, durable_now()); z := coalesce(a, 'today'); $$,
    $$ x := count(*) FILTER (WHERE v > 1) FROM unnest(a) v; $$,
    $$ DECLARE update text; delete int := 3; insert text DEFAULT 'x'; BEGIN NULL; END; $$,
    $$ DECLARE c CURSOR FOR SELECT g FROM generate_series(1,3) g; BEGIN FOR r IN c LOOP NULL; END LOOP; END; $$,
    $$ x := jsonb_path_query_array(j, '$.a ? (@.b > 1)'); $$,
    $$ SELECT array_agg(x ORDER BY n) INTO l FROM unnest(a) WITH ORDINALITY t(x, n); $$,
    $$ x := xmlelement(name foo); $$,
    $$ x := j #>> '{a,from}'; x := j -> 'table' -> 'join'; $$,
    $$ x := s LIKE '%update t set%' ESCAPE '\'; $$,
    $$ RETURN (SELECT t FROM jsonb_to_recordset(j) AS t(id int, update text, "delete" bool) WHERE t.update = 'x'); $$,
    $$ x := random; y := now + interval '1 day'; $$,
    $$ x := (SELECT min(random) FROM unnest(a) AS random); $$,
    $$ x := (SELECT min(d.current_date) FROM f() AS d(x int)); $$,
    $$ SELECT x INTO y FROM f() AS random(x int); $$,
    $$ PERFORM durable_log('select from table'); $$,
    $$ FOR k, v IN SELECT * FROM jsonb_each_text(j) LOOP NULL; END LOOP; $$,
    $$ FOR r IN EXECUTE 'SELECT * FROM generate_series(1, $1)' USING n LOOP NULL; END LOOP; $$,
    $$ x := (WITH u AS (SELECT 1 AS a) SELECT a FROM u); $$,
    $$ x := EXISTS (SELECT FROM unnest(a) e WHERE e > 3); $$,
    $$ x := a IN (SELECT * FROM unnest(b)); $$,
    $$ x := ('now' = mode)::int; $$,
    $$ x := mode || ' today'; y := date || 'today'; $$,
    $$ x := (a, b) OVERLAPS (c, d); z := a AT TIME ZONE 'UTC'; $$,
    $$ RETURN QUERY SELECT id, status FROM json_to_recordset(durable_sql('SELECT id, status FROM orders')::json) AS o(id int, status text); $$,
    $$ FOR r IN SELECT * FROM jsonb_to_recordset(durable_sql('SELECT * FROM orders')) AS o(id int) LOOP NULL; END LOOP; $$,
    $$ SELECT o.* INTO r FROM jsonb_populate_recordset(NULL::orders, durable_call('read')) o ORDER BY o.id LIMIT 1; $$,
    $$ SELECT x FROM unnest(a) AS x UNION ALL SELECT y FROM unnest(b) AS y INTO z; $$,
    $$ IF x THEN /* c */ UPDATE := 3; END IF; $$,
    $$ WHILE i < 3 LOOP i := i + 1; END LOOP; $$,
    $$ x := array_length(a, 1); x := a[1:2]; x := a[i]; $$,
    $$ x := pg_typeof(y); $$,
    $$ x := (SELECT e FROM (SELECT unnest(a) AS e) AS s ORDER BY e DESC LIMIT 1); $$,
    $$ x := 1; RETURN; $$,
    $$ RAISE EXCEPTION USING ERRCODE = 'P0001', MESSAGE = 'now() failed', HINT = format('see %s from %I', a, b); $$,
    $$ SELECT x.from, x.to INTO a, b FROM jsonb_to_record(j) AS x("from" text, "to" text); $$,
    $$ x := timestamptz(p_when); y := date(p_when); $$,
    $$ today := date(durable_now()); now := durable_now(); $$,
    $$ x := 'tomorrow' || date '2020-01-01'; $$,
    $$ x := date_part('day', a) = 3 AND mode = 'today'; $$,
    $$ PERFORM f(a => 'now', b => date '2020-01-01'); $$,
    $$ x := (time, 'now'); $$,
    $$ x := t.date = 'today'; $$,
    $$ IF r.date = 'today' OR period = 'now' THEN NULL; END IF; $$,
    $$ x := jsonb_build_object('date', 'today', 'time', 'now'); $$,
    $$ EXECUTE 'SELECT ''from '' || $1' INTO x USING y; $$,
    $$ EXECUTE 'CALL durable_step($1)' USING 'x'; $$,
    $$ EXECUTE format('SELECT %I($1)', fn) INTO r USING x; $$,
    $$ EXECUTE format('SELECT %s FROM generate_series(1, %s)', a, b) INTO r; $$,
    $$ EXECUTE 'SELECT extract(epoch FROM $1)' INTO x USING y; $$,
    $$ EXECUTE format('SELECT extract(%s FROM $1)', part) INTO x USING y; $$,
    $$ EXECUTE format('SELECT %L IS DISTINCT FROM %L', a, b) INTO x; $$,
    $$ EXECUTE 'SELECT substring($1 from ' || n || ')' INTO x USING y; $$,
    $$ EXECUTE 'SELECT $1 ->> ''from ''' INTO x USING y; $$,
    $$ x := (SELECT max(extract(day FROM e)) FROM unnest(a) e); $$,
    $$ x := extract(epoch FROM (SELECT max(x) FROM unnest(a) x)); $$,
    $$ x := (SELECT (SELECT substring(b from 2)) FROM unnest(c) b); $$,
    $$ x := (SELECT trim(FROM b) FROM unnest(c) b); $$,
    $$ SELECT count(*) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) INTO x FROM unnest(c) AS t(a); $$,
    $$ SELECT x.* INTO r FROM xmltable('/a' PASSING d COLUMNS b int PATH 'from', c text PATH 'now') AS x; $$,
    $$ SELECT t.a INTO x FROM f() t NATURAL JOIN (SELECT 1 AS a) s; $$,
    $$ SELECT max(a) INTO x FROM ((SELECT 1 AS a) UNION (SELECT 2)) s; $$,
    $$ SELECT max(a) INTO x FROM (SELECT 1 AS a UNION SELECT 2) s, (VALUES (1)) AS w(b), f(s.a); $$,
    $$ IF update THEN RETURN delete; END IF; $$,
    $$ DECLARE is_today bool := input->>'date' = 'today'; u text := 'now'; v varchar(20) := 'now'; BEGIN NULL; END; $$,
    $$ DECLARE label varchar(10) = 'today'; BEGIN NULL; END; $$,
    $$ DECLARE r record; o orders; p orders%ROWTYPE; q orders.id%TYPE; BEGIN NULL; END; $$,
    $$ x := o.from_date; y := o.until; z := now_ts; w := f_now(); v := is_now(x); u := randomize(3); $$,
    $$ x := s.random(3); y := mylib.gen_random_uuid(); $$,
    $$ x := my_now() + durable_now(); $$,
    $$ IF TG_OP = 'INSERT' THEN NULL; END IF; $$,
    $$ RETURN QUERY SELECT d.key, d.value FROM jsonb_each(j) d WHERE d.key <> 'now' ORDER BY d.key; $$,
    $$ PERFORM durable_call(CASE WHEN x THEN 'insert_a' ELSE 'delete_b' END); $$,
    $$ RETURN CASE WHEN x IS NULL THEN NULL ELSE x END; $$,
    $$ PERFORM durable_call('a', CASE kind WHEN 'x' THEN '{}'::jsonb ELSE j END); PERFORM 1; $$,
    $$ x := j->>'start'; IF x = 'start' THEN start := 1; END IF; $$,
    $$ SELECT * FROM durable_call_as(NULL::orders, 'read', '{}') INTO r; $$,
    $$ SELECT (durable_call_as(NULL::orders, 'read')).* INTO r; $$,
    $$ SELECT r1.a, r2.b INTO x, y FROM jsonb_to_record(j) AS r1(a int) FULL OUTER JOIN jsonb_to_record(k) AS r2(b int) ON r1.a = r2.b; $$,
    $$ SELECT e INTO x FROM jsonb_array_elements(j) AS e WHERE e->>'from' = 'x' ORDER BY e->>'a', e->>'b'; $$,
    $$ SELECT a INTO x FROM unnest(arr) a GROUP BY a, b HAVING count(*) > 1; $$,
    $$ SELECT a INTO x FROM unnest(arr) ORDER BY a, b; $$,
    $$ FOR x, y IN SELECT a, b FROM unnest(arr) LIMIT 5 LOOP NULL; END LOOP; $$,
    $$ SELECT a INTO x FROM unnest(arr) t WINDOW w AS (ORDER BY a), v AS (ORDER BY b); $$,
    $$ WITH t(a) AS (VALUES (1)), u AS NOT MATERIALIZED (SELECT a FROM t) SELECT max(u.a) INTO x FROM u, t; $$,
    $$ WITH "T" AS (SELECT 1 AS a) SELECT a INTO x FROM "T"; $$,
    $$ WITH t AS (SELECT 1 AS a) SELECT a INTO x FROM T; $$,
    $$ x := (select count(*) from regexp_split_to_table(s, ',') as from_x); $$,
    $$ x := d + time '10:00'; y := timestamp '2020-01-01 10:00'; $$,
    $$ PERFORM durable_sleep_until((durable_now() + interval '1 day')::date + time '09:00'); $$,
    $$ x := to_timestamp(s, 'YYYY'); y := to_date('today', 'x'); $$
  ]) AS statement;

SELECT is(lint(source, 'sql'), 'clean', 'SQL: ' || source)
  FROM unnest(ARRAY[
    'SELECT durable_call(''a'')', 'SELECT $1 + 1', 'SELECT 1 AS now', 'VALUES (1)', 'SELECT sum(v) FROM unnest($1) v',
    'WITH x AS (SELECT durable_call(''a'') AS r) SELECT r FROM x', 'SELECT f(a) FROM g() AS r(a, b) CROSS JOIN h(r.b)',
    'SELECT durable_sql(''DELETE FROM t'')'
  ]) AS source;

--
-- What must be found
--
SELECT is(lint('BEGIN ' || statement || ' END'), '1:' || found, statement)
  FROM (VALUES
    -- clock
    ('x := now();', 'now()'), ('x := NOW ();', 'now()'), ('x := pg_catalog.now();', 'now()'), ('x := "now"();', 'now()'),
    ('x := clock_timestamp();', 'clock_timestamp()'), ('x := statement_timestamp();', 'statement_timestamp()'),
    ('x := timeofday();', 'timeofday()'), ('x := age(b);', 'age() with one argument'),
    ('x := current_timestamp;', 'current_timestamp'), ('x := CURRENT_DATE + 1;', 'current_date'),
    ('x := localtimestamp(3);', 'localtimestamp'), ('IF a THEN x := now(); END IF;', 'now()'),
    ('RETURN date_trunc(''day'', now());', 'now()'), ('x := extract(year FROM now());', 'now()'),
    ('DECLARE t timestamptz := now(); BEGIN NULL; END;', 'now()'),
    -- clock in literals
    ('x := ''now''::timestamptz;', '''now'''), ('x := ''today''::date;', '''today'''), ('x := DATE ''tomorrow'';', '''tomorrow'''),
    ('x := timestamp with time zone ''now'';', '''now'''), ('x := timestamptz(3) ''now'';', '''now'''),
    ('x := ''NOW''::timestamp(0);', '''NOW'''), ('x := CAST(''now'' AS timestamptz);', '''now'''),
    ('x := ''now''::pg_catalog.timestamptz;', '''now'''), ('x := E''now''::date;', '''now'''), ('x := $q$now$q$::date;', '''now'''),
    ('x := ''now''::text::timestamptz;', '''now'''), ('x := ''[now,)''::tstzrange;', '''[now,)'''),
    ('PERFORM durable_sleep_until(''tomorrow 09:00'');', '''tomorrow 09:00'''), ('x := date(''today'');', '''today'''),
    ('DECLARE t timestamptz := ''now''; BEGIN NULL; END;', '''now'''), ('DECLARE t date DEFAULT ''today''; BEGIN NULL; END;', '''today'''),
    -- chance, sequences, session
    ('x := random();', 'random()'), ('x := floor(random() * 10);', 'random()'), ('x := gen_random_uuid();', 'gen_random_uuid()'),
    ('x := public.uuid_generate_v4();', 'uuid_generate_v4()'), ('x := nextval(''s'');', 'nextval()'), ('x := currval(''s'');', 'currval()'),
    ('PERFORM setval(''s'', 1);', 'setval()'), ('x := pg_backend_pid();', 'pg_backend_pid()'), ('x := txid_current();', 'txid_current()'),
    ('x := current_setting(''a.b'');', 'current_setting()'), ('PERFORM set_config(''a.b'', ''c'', true);', 'set_config()'),
    ('PERFORM pg_sleep(1);', 'pg_sleep()'), ('PERFORM pg_notify(''a'', ''b'');', 'pg_notify()'),
    ('PERFORM pg_advisory_xact_lock(1);', 'pg_advisory_xact_lock()'), ('PERFORM dblink_exec(''x'');', 'dblink_exec()'),
    -- reads
    ('SELECT * INTO r FROM orders;', 'FROM orders'), ('x := (SELECT count(*) FROM orders);', 'FROM orders'),
    ('x := count(*) FROM orders;', 'FROM orders'), ('PERFORM 1 FROM public.orders WHERE id = 1;', 'FROM public.orders'),
    ('IF EXISTS (SELECT 1 FROM orders) THEN NULL; END IF;', 'FROM orders'), ('FOR r IN SELECT * FROM orders LOOP NULL; END LOOP;', 'FROM orders'),
    ('SELECT 1 INTO x FROM ONLY orders;', 'FROM orders'), ('SELECT 1 INTO x FROM f() a, orders;', 'FROM orders'),
    ('SELECT 1 INTO x FROM f() a JOIN orders o ON true;', 'JOIN orders'), ('SELECT 1 INTO x FROM (orders o JOIN f() ON true);', 'FROM orders'),
    ('SELECT 1 INTO x FROM (SELECT * FROM orders) s;', 'FROM orders'), ('SELECT 1 INTO x FROM a, b;', 'FROM a | 1:FROM b'),
    ('RETURN QUERY SELECT * FROM "Odd Table";', 'FROM "Odd Table"'), ('OPEN c FOR SELECT * FROM orders;', 'FROM orders'),
    ('x := (TABLE orders);', 'TABLE orders'), ('x := ARRAY(SELECT id FROM orders);', 'FROM orders'),
    ('WITH o AS (SELECT * FROM orders) SELECT 1 INTO x FROM o;', 'FROM orders'),
    ('DECLARE c CURSOR FOR SELECT * FROM orders; BEGIN NULL; END;', 'FROM orders'),
    ('DECLARE n int := (SELECT count(*) FROM orders); BEGIN NULL; END;', 'FROM orders'),
    -- writes, and what is inside them is not told of
    ('INSERT INTO t SELECT now() FROM u;', 'INSERT INTO t'), ('UPDATE t SET a = random();', 'UPDATE t'), ('DELETE FROM ONLY s.t;', 'DELETE FROM s.t'),
    ('MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE;', 'MERGE INTO t'), ('TRUNCATE t;', 'TRUNCATE'),
    ('IF a THEN UPDATE t SET a = 1; END IF;', 'UPDATE t'), ('IF a THEN NULL; ELSE DELETE FROM t; END IF;', 'DELETE FROM t'),
    ('LOOP INSERT INTO t VALUES (1); END LOOP;', 'INSERT INTO t'), ('<<l>> UPDATE t SET a = 1;', 'UPDATE t'),
    ('CASE x WHEN 1 THEN INSERT INTO t VALUES (1); ELSE DELETE FROM t; END CASE;', 'INSERT INTO t | 1:DELETE FROM t'),
    ('BEGIN NULL; EXCEPTION WHEN OTHERS THEN INSERT INTO log VALUES (1); END;', 'INSERT INTO log'),
    ('WITH x AS (DELETE FROM t RETURNING *) SELECT 1 INTO y FROM x;', 'DELETE FROM t'),
    ('WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x;', 'INSERT INTO t'), ('RETURN QUERY UPDATE t SET a = 1 RETURNING *;', 'UPDATE t'),
    ('FOR r IN DELETE FROM t RETURNING * LOOP x := now(); END LOOP;', 'DELETE FROM t | 1:now()'),
    ('PERFORM f(); INSERT INTO t VALUES (1); x := random();', 'INSERT INTO t | 1:random()'),
    -- other statements
    ('CREATE TEMP TABLE t (a int);', 'CREATE'), ('DROP TABLE t;', 'DROP'), ('COPY t FROM ''/x'';', 'COPY'), ('COPY (SELECT 1) TO ''/x'';', 'COPY'),
    ('LOCK t;', 'LOCK'), ('NOTIFY a, ''b'';', 'NOTIFY'), ('LISTEN a;', 'LISTEN'), ('SET LOCAL x TO 1;', 'SET'), ('RESET ALL;', 'RESET'),
    ('COMMIT;', 'COMMIT'), ('COMMIT AND CHAIN;', 'COMMIT'), ('ROLLBACK;', 'ROLLBACK'), ('SET TRANSACTION READ ONLY;', 'SET TRANSACTION'),
    ('ANALYZE;', 'ANALYZE'), ('GRANT SELECT ON t TO u;', 'GRANT'), ('SHOW work_mem;', 'SHOW'),
    -- code in strings
    ('EXECUTE ''UPDATE t SET a = 1'';', 'UPDATE t'), ('EXECUTE ''SELECT now()'' INTO x;', 'now()'), ('EXECUTE ''SELECT a FROM '' || t INTO x;', 'FROM'),
    ('EXECUTE format(''SELECT * FROM %I'', t) INTO x;', 'FROM %I'), ('EXECUTE format(''SELECT * FROM %é'', t) INTO x;', 'FROM %'),
    ('EXECUTE format(''INSERT INTO %I VALUES (1)'', t);', 'INSERT INTO'),
    ('EXECUTE (''DROP TABLE t'');', 'DROP'), ('EXECUTE $q$ DELETE FROM t $q$;', 'DELETE FROM t'), ('RETURN QUERY EXECUTE ''SELECT * FROM t'';', 'FROM t'),
    ('FOR r IN EXECUTE ''SELECT * FROM t'' LOOP NULL; END LOOP;', 'FROM t'), ('OPEN c FOR EXECUTE ''SELECT * FROM t'';', 'FROM t'),
    ('DO ''BEGIN UPDATE t SET a = 1; END'';', 'UPDATE t'), ('DO LANGUAGE plpgsql $d$ BEGIN PERFORM now(); END $d$;', 'now()'),
    ('DO $d$ BEGIN EXECUTE ''SELECT now()''; END $d$;', 'now()')
  ) AS v (statement, found);

SELECT is(lint(source, 'sql'), '1:' || found, 'SQL: ' || source)
  FROM (VALUES
    ('SELECT now()', 'now()'), ('SELECT date ''today''', '''today'''), ('SELECT * FROM t', 'FROM t'), ('TABLE t', 'TABLE t'),
    ('SELECT 1; UPDATE t SET a = 1; SELECT 2', 'UPDATE t'), ('BEGIN ATOMIC INSERT INTO t VALUES (1); END', 'INSERT INTO t'),
    ('WITH d AS (DELETE FROM t RETURNING 1) SELECT 1', 'DELETE FROM t'), ('SELECT (SELECT x FROM t)', 'FROM t'),
    ('SELECT count(*) FROM (VALUES (1)) v, generate_series(1, 2), (SELECT 1) s, t', 'FROM t'), ('SET x = 1', 'SET')
  ) AS v (source, found);

-- Other languages are the sandbox's affair; NULL is nothing
SELECT is(lint('now()', language), 'clean', language || ' is not looked at') FROM unnest(ARRAY['plpython3u', 'c', 'internal', '']) AS language;
SELECT is_empty($$SELECT * FROM durable_internal.lint(NULL, 'sql')$$, 'NULL has no findings -- I6');

--
-- Lines
--
SELECT is(lint($$
DECLARE
    a timestamptz := now();         -- 3

BEGIN
    /* a comment
       of two lines */
    x := random();                  -- 8
    y := 'a
b
c'; z := current_date;              -- 11
    EXECUTE '
        SELECT
            clock_timestamp()';     -- 14
    EXECUTE E'SELECT\n\n now()';    -- 15
    EXECUTE $q$

        DELETE FROM t               -- 18
    $q$;
    DO $d$
    BEGIN
        PERFORM nextval('s');       -- 22
        EXECUTE 'UPDATE t
            SET a = 1';             -- 23
    END $d$;
    PERFORM 1
       FROM
            orders;                 -- 28
END $$),
    '3:now() | 8:random() | 11:current_date | 14:clock_timestamp() | 15:now() | 18:DELETE FROM t | 22:nextval() | 23:UPDATE t | 28:FROM orders',
    'findings come in the order of the source, with their lines');
SELECT is(lint(E'BEGIN\r\n\r\nx := now();\r\nEND'), '3:now()', 'lines that end with CR LF');

-- Each finding says what to write instead
SELECT matches(replacement, advice, source || ' has advice')
  FROM (VALUES ('now()', 'durable_now\(\)'), ('random()', 'durable_random\(\)'), ('gen_random_uuid()', 'durable_uuid\(\)'),
               ('pg_sleep(1)', 'durable_sleep\(\)'), ('pg_sleep_until(x)', 'durable_sleep_until\(\)'), ('nextval(''s'')', 'durable_call\(\)'),
               ('''now''::date', 'durable_now\(\)'), ('a FROM t', 'durable_sql\(\)')) AS v (source, advice),
       durable_internal.lint('SELECT ' || source, 'sql');
SELECT matches((SELECT replacement FROM durable_internal.lint('BEGIN COMMIT; END', 'plpgsql')), 'durable_step\(\)', 'COMMIT has advice');
SELECT matches((SELECT replacement FROM durable_internal.lint('DELETE FROM t', 'sql')), 'durable_sql\(\)', 'DELETE has advice');

--
-- Sources that do not scan, and large ones
--
SELECT is(lint(source), found, format('broken source: %s', source))
  FROM (VALUES
    ('', 'clean'), (';;;', 'clean'), ('BEGIN x := ''now()', 'clean'), ('BEGIN x := now(); /* no end', '1:now()'),
    ('BEGIN x := now(); y := $a$ no end', '1:now()'), ('BEGIN x := now(); y := "no end', '1:now()'), ('BEGIN x := now(); y := E''\u12''', '1:now()'),
    (')))) now()', '1:now()'), ('EXECUTE', 'clean'), ('DO', 'clean'), ('SELECT * FROM', 'clean'), ('x := ''now''::', 'clean'), ('(', 'clean')
  ) AS v (source, found);
SELECT is(lint('BEGIN x := ' || repeat('(', 50000) || '1' || repeat(')', 50000) || '; END'), 'clean', 'deeply nested parentheses');
SELECT is((SELECT count(*) FROM durable_internal.lint(repeat(E'x := (SELECT count(*) FROM orders);\n', 5000), 'plpgsql')), 5000::bigint,
          'a long source');
SELECT is(lint(E'BEGIN\n' || repeat(E'PERFORM durable_call(''a'');\n', 5000) || 'x := now(); END'), '5002:now()', 'its last line');

SELECT * FROM finish();
