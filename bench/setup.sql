CREATE EXTENSION durable;
CREATE TABLE plain (id bigserial PRIMARY KEY, x int);
CREATE FUNCTION nothing(x int) RETURNS int LANGUAGE sql AS 'SELECT x';

CREATE FUNCTION steps(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        PERFORM durable_call('nothing', jsonb_build_array(i));
    END LOOP;
END $$;
SELECT durable_register('steps');

CREATE PROCEDURE linear_steps(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        CALL durable_step('nothing', jsonb_build_array(i));
    END LOOP;
END $$;
SELECT durable_register('linear_steps');

CREATE FUNCTION sleeps(milliseconds int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_sleep(milliseconds * interval '1 ms');
END $$;
SELECT durable_register('sleeps');

-- A step that is slow once, and when somebody sent the fault it is to survive.
CREATE TABLE pace (slow bool);
INSERT INTO pace VALUES (false);
CREATE TABLE fault (id text, at timestamptz);
CREATE FUNCTION slow_step() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT slow FROM pace) THEN
        PERFORM pg_sleep(60);
    END IF;
END $$;
CREATE FUNCTION slow() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_call('slow_step');
END $$;
SELECT durable_register('slow');

-- Tell how long each replayed call took, so they look at the clock.
CREATE FUNCTION replays(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    args jsonb := '{"x": 1}';
    result jsonb;
    began timestamptz := clock_timestamp();
BEGIN
    FOR i IN 1..n LOOP
        result := durable_call('nothing', args);
    END LOOP;
    RAISE NOTICE 'replayed in % us', round(extract(epoch FROM clock_timestamp() - began) * 1000000 / n, 2);
    PERFORM durable_wait_signal('never');
END $$;
CREATE FUNCTION replays_perform(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    args jsonb := '{"x": 1}';
    began timestamptz := clock_timestamp();
BEGIN
    FOR i IN 1..n LOOP
        PERFORM durable_call('nothing', args);
    END LOOP;
    RAISE NOTICE 'replayed in % us', round(extract(epoch FROM clock_timestamp() - began) * 1000000 / n, 2);
    PERFORM durable_wait_signal('never');
END $$;
SELECT durable_register('replays', sandbox => 'off'), durable_register('replays_perform', sandbox => 'off');

CREATE FUNCTION receives(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        PERFORM durable_wait_signal('go');
    END LOOP;
END $$;

CREATE FUNCTION counted(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('goal', state -> 'goal', 'n', coalesce((state ->> 'n')::int, 0) + 1)
$$;
CREATE FUNCTION is_counted(state jsonb) RETURNS bool LANGUAGE sql AS $$
    SELECT (state ->> 'n')::int >= (state ->> 'goal')::int
$$;
CREATE FUNCTION counts(n int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_set_state(jsonb_build_object('goal', n));
    PERFORM durable_on_signal('add', 'counted');
    PERFORM durable_wait_until('is_counted');
    RETURN durable_state();
END $$;

CREATE FUNCTION listens() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_subscribe('news');
    RETURN durable_wait_event('news');
END $$;
SELECT durable_register(name) FROM unnest('{receives,counts,listens}'::text[]) name;

-- Fan-out, and clients of a queue.
CREATE FUNCTION maps(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_map('nothing', (SELECT jsonb_agg(jsonb_build_array(i)) FROM generate_series(1, n) i));
END $$;
CREATE FUNCTION spawns(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    handles int[] := '{}';
    began timestamptz;
BEGIN
    began := clock_timestamp();
    FOR i IN 1..n LOOP
        handles[i] := durable_spawn('nothing', jsonb_build_array(i));
    END LOOP;
    PERFORM durable_await_all(handles);
    RAISE NOTICE 'replayed in % us', round(extract(epoch FROM clock_timestamp() - began) * 1000000 / n, 2);
    PERFORM durable_wait_signal('never');
END $$;
CREATE FUNCTION asks(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        PERFORM durable_call('remote', jsonb_build_array(i));
    END LOOP;
END $$;
SELECT durable_register('maps'), durable_register('asks'), durable_register('spawns', sandbox => 'off');
SELECT durable_register_activity('remote', queue => 'bench');

-- Many steps behind a wait, so that the function can be replaced in between.
CREATE FUNCTION later_steps(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durable_wait_signal('go');
    FOR i IN 1..n LOOP
        PERFORM durable_call('nothing', jsonb_build_array(i));
    END LOOP;
END $$;
SELECT durable_register('later_steps');
