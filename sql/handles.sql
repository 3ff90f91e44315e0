-- Handles: timers and signals that are begun, and awaited later.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE SCHEMA handles;
SET search_path = handles, public;

-- E13: signals in every order, by every way to await them
CREATE FUNCTION awaits(how text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    x int := durable_signal_handle('x');
    y int := durable_signal_handle('y');
    first int;
    got jsonb;
BEGIN
    CASE how
        WHEN 'all' THEN got := durable_await_all(ARRAY[x, y]);
        WHEN 'all, turned round' THEN got := durable_await_all(ARRAY[y, x]);
        WHEN 'one by one' THEN got := jsonb_build_array(durable_await(x), durable_await(y));
        WHEN 'any' THEN
            first := durable_await_any(ARRAY[x, y]);
            got := jsonb_build_array(CASE first WHEN x THEN 'x' ELSE 'y' END, durable_await(first));
            got := got || jsonb_build_array(durable_await(CASE first WHEN x THEN y ELSE x END));
    END CASE;
    PERFORM durable_sleep('0');
    RETURN got;
END $$;
SELECT durable_register('awaits');
SELECT durable_start('awaits', to_jsonb(how), id => how || ', ' || o)
  FROM unnest('{all,"all, turned round",one by one,any}'::text[]) how, unnest('{x first,y first,both}'::text[]) o \g /dev/null
CALL durable_work();
SELECT status, awaits, count(*) FROM durable.instances GROUP BY status, awaits ORDER BY awaits;
SELECT durable_signal(id, name, to_jsonb(name || '!')) FROM durable.instances, unnest('{x,y}'::text[]) name
 WHERE id LIKE '%' || name || ' first' OR id LIKE '%both' \g /dev/null
CALL durable_work();
SELECT durable_signal(id, name, to_jsonb(name || '!')) FROM durable.instances, unnest('{x,y}'::text[]) name
 WHERE id LIKE '%first' AND id NOT LIKE '%' || name || ' first' \g /dev/null
CALL durable_work();
SELECT id, status, result FROM durable.instances ORDER BY id COLLATE "C";

-- E13: a timer and a signal; who comes first is the same on replay
CREATE FUNCTION races(i interval) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    t int := durable_timer(i);
    x int := durable_signal_handle('x');
    winner int := durable_await_any(ARRAY[t, x]);
BEGIN
    PERFORM durable_wait_signal('go');
    RETURN jsonb_build_array(CASE winner WHEN t THEN 'timer' WHEN x THEN 'signal' END, durable_await(winner));
END $$;
SELECT durable_register('races');
SELECT durable_start('races', '["1 hour"]', id => 'signal'), durable_start('races', '["1 hour"]', id => 'timer'), durable_start('races', '["0"]', id => 'at once');
CALL durable_work();
SELECT id, status, awaits, wake_at > now() + '50 min' AS in_an_hour FROM durable.instances WHERE workflow = 'races' ORDER BY id;
SELECT durable_signal('signal', 'x', '"won"');
CALL durable_work();
UPDATE durable_internal.history h SET wake_at = now() FROM durable_internal.instance i WHERE i.iid = h.iid AND i.id = 'timer' AND h.wake_at IS NOT NULL;
UPDATE durable_internal.timer SET wake_at = now();
CALL durable_work();
SELECT durable_signal(id, 'x', '"too late"'), durable_signal(id, 'go') FROM durable.instances WHERE workflow = 'races' \g /dev/null
CALL durable_work();
SELECT id, status, result FROM durable.instances WHERE workflow = 'races' ORDER BY id;
-- an early winner leaves no timer behind
SELECT count(*) FROM durable.timers;

-- of several timers that are over, the one that was due first (E13)
CREATE FUNCTION overdue() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    later int := durable_timer('-1 s');
    first int := durable_timer('-2 s');
    open int := durable_timer('1 day');
BEGIN
    RETURN jsonb_build_array(durable_await_any(ARRAY[open, later, first]) = first, durable_await_any(ARRAY[open, later]) = later,
                             durable_await_any(ARRAY[later, first]) = first);
END $$;
SELECT durable_register('overdue');
SELECT durable_start('overdue', id => 'overdue');
CALL durable_work();
SELECT status, result, error FROM durable.instances WHERE id = 'overdue';

-- timeouts: WF003 of await and await_all, NULL of await_any; the handle can be awaited again
CREATE FUNCTION late(i interval) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    x int := durable_signal_handle('x');
    got jsonb := '[]';
BEGIN
    BEGIN
        PERFORM durable_await(x, i);
    EXCEPTION WHEN SQLSTATE 'WF003' THEN
        got := got || to_jsonb(SQLERRM);
    END;
    BEGIN
        PERFORM durable_await_all(ARRAY[x], i);
    EXCEPTION WHEN SQLSTATE 'WF003' THEN
        got := got || to_jsonb(SQLERRM);
    END;
    got := got || coalesce(to_jsonb(durable_await_any(ARRAY[x], i)), 'null');
    RETURN got || durable_await(x);
END $$;
SELECT durable_register('late');
SELECT durable_start('late', '["0"]', id => 'late');
CALL durable_work();
SELECT status FROM durable.instances WHERE id = 'late';
SELECT durable_signal('late', 'x', '"at last"');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'late';
SELECT position, kind, name, state FROM durable.steps WHERE id = 'late' ORDER BY position;
-- one that is not caught fails the workflow, and is no timeout of it
CREATE FUNCTION too_late() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_await(durable_signal_handle('x'), '0'); END $$;
SELECT durable_register('too_late');
SELECT durable_start('too_late', id => 'too late');
CALL durable_work();
SELECT status, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS error FROM durable.instances WHERE id = 'too late';

-- what was begun before it was awaited has its time from then
CREATE FUNCTION parallel() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a int := durable_timer('1 hour');
    b int := durable_timer('0');
    c int := durable_timer('-1 day');
    f int := durable_await_any(ARRAY[a, b, c]);
BEGIN
    RETURN jsonb_build_array(f <> a, durable_await_all(ARRAY[b, c]), durable_await_all('{}'), durable_await(b));
END $$;
SELECT durable_register('parallel');
SELECT durable_start('parallel', id => 'parallel');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'parallel';

-- the error of the lowest position, after all have ended
CREATE FUNCTION child(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_wait_signal('go');
    IF n > 1 THEN
        RAISE EXCEPTION 'child %', n USING ERRCODE = 'UX001';
    END IF;
    RETURN n;
END $$;
CREATE FUNCTION parent() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    c int[];
    s int;
    message text;
    one jsonb;
BEGIN
    FOR n IN 1..3 LOOP
        c := c || durable_spawn_child('child', to_jsonb(n), id => 'child ' || n);
    END LOOP;
    s := durable_signal_handle('x');
    BEGIN
        PERFORM durable_await_all(ARRAY[c[3], c[2], c[1], s]);
    EXCEPTION WHEN SQLSTATE 'UX001' THEN
        message := SQLERRM;
    END;
    one := durable_await(c[1]);
    RETURN jsonb_build_array(message, one, durable_await(s));
END $$;
SELECT durable_register('child'), durable_register('parent');
SELECT durable_start('parent', id => 'parent');
CALL durable_work();
SELECT durable_signal('child 3', 'go');
CALL durable_work();
SELECT durable_signal('child 2', 'go');
CALL durable_work();
SELECT durable_status('child 2'), durable_status('child 3'), durable_status('parent');
SELECT durable_signal('parent', 'x', '"x"');
CALL durable_work();
SELECT durable_signal('child 1', 'go');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'parent';

-- a handle that is not awaited is no leftover; a signal goes to who waits for it
CREATE FUNCTION unawaited() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    t int := durable_timer('1 hour');
    x int := durable_signal_handle('x');
    waited jsonb := durable_wait_signal('x');
BEGIN
    PERFORM durable_sleep('0');
    RETURN waited;
END $$;
SELECT durable_register('unawaited');
SELECT durable_start('unawaited', id => 'unawaited');
CALL durable_work();
SELECT durable_signal('unawaited', 'x', '1');
CALL durable_work();
SELECT status, result, reason FROM durable.instances WHERE id = 'unawaited';

-- A17: begun in an exception block that rolls back
CREATE FUNCTION in_block() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    x int;
BEGIN
    BEGIN
        x := durable_signal_handle('x');
        RAISE EXCEPTION 'rolled back';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    RETURN durable_await(x);
END $$;
SELECT durable_register('in_block');
SELECT durable_start('in_block', id => 'in block');
CALL durable_work();
SELECT durable_signal('in block', 'x', '"kept"');
CALL durable_work();
SELECT status, result FROM durable.instances WHERE id = 'in block';

-- in a procedure, between steps
CREATE TABLE effect (n serial, what text);
CREATE FUNCTION note(what text) RETURNS void LANGUAGE sql AS 'INSERT INTO effect (what) VALUES (what)';
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
DECLARE
    x int := durable_signal_handle('x');
    t int := durable_timer('0');
BEGIN
    CALL durable_step('note', '["begun"]');
    PERFORM durable_await(t);
    CALL durable_step('note', '["timer"]');
    CALL durable_step('note', jsonb_build_array(durable_await(x)));
END $$;
SELECT durable_register('steps');
SELECT durable_start('steps', id => 'steps');
CALL durable_work();
SELECT durable_signal('steps', 'x', '"signal"');
CALL durable_work();
SELECT status, reason FROM durable.instances WHERE id = 'steps';
SELECT what FROM effect ORDER BY n;

-- I6: no handles, bad handles
CREATE FUNCTION says(statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_sql('SELECT 1');
    EXECUTE statement;
END $$;
SELECT durable_register('says');
SELECT durable_start('says', to_jsonb('SELECT ' || s), id => s) FROM unnest(ARRAY[
    'durable_await(NULL)', 'durable_await(0)', 'durable_await(-1)', 'durable_await(1)', 'durable_await(2)', 'durable_await(2147483647)',
    'durable_await_all(NULL)', 'durable_await_all(''{NULL}'')', 'durable_await_all(''{7}'')',
    'durable_await_any(NULL)', 'durable_await_any(''{}'')', 'durable_await_any(''{NULL}'')',
    'durable_timer(NULL)', 'durable_signal_handle(NULL)', 'durable_signal_handle('''')']) s \g /dev/null
CALL durable_work();
SELECT id, status, coalesce(error ->> 'message', reason) AS why FROM durable.instances WHERE workflow = 'says' ORDER BY created_at;
SELECT durable_timer('0');
SELECT durable_await(1);
