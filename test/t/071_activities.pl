# Activities in the background: workers are killed or asked to leave, and the
# server is stopped, in the middle of an attempt, of a backoff, of a
# compensation and of a fan-out. All ends as it should, the effect of each step
# is there once, and nothing is undone twice or not at all (D6, D11, D17, F4,
# F5, F7, F8). Timeouts interrupt what they are for and nothing else (D9, D10);
# progress is seen at once; spawned activities overlap (D17).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

$PostgreSQL::Test::Utils::timeout_default = 90;

my $node = PostgreSQL::Test::Cluster->new('activities');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
restart_after_crash = on
durable.sweep_interval = '10 min'
durable.max_workers = 4
durable.max_crashes = 100
max_connections = 30
CONF
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE TABLE effect (id text, what text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE gate (open bool);
INSERT INTO gate VALUES (true);

CREATE FUNCTION wait_at_gate() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT (SELECT open FROM gate) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql
AS 'INSERT INTO effect VALUES (durable_instance_id(), what) RETURNING what';
CREATE FUNCTION undo_note(what text, result text) RETURNS void LANGUAGE sql
AS $$INSERT INTO effect VALUES (durable_instance_id(), 'undo ' || result)$$;
-- writes first, then waits: what it wrote must go with it
CREATE FUNCTION note_at_gate(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (durable_instance_id(), what);
	PERFORM wait_at_gate();
	RETURN what;
END $$;
CREATE FUNCTION undo_at_gate(what text, result text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (durable_instance_id(), 'undo ' || result);
	PERFORM wait_at_gate();
END $$;
-- the item of a fan-out that waits is in the middle
CREATE FUNCTION item(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES ('item', i);
	IF i % 100 = 50 THEN
		PERFORM wait_at_gate();
	END IF;
	RETURN i * 2;
END $$;
CREATE FUNCTION fails_thrice(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (durable_instance_id(), what);
	IF durable_attempt() < 4 THEN
		RAISE EXCEPTION 'not yet, attempt %', durable_attempt();
	END IF;
	RETURN what;
END $$;
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM durable_fail('no luck'); END$$;

CREATE FUNCTION attempts() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', '{"what": "a"}');
	PERFORM durable_call('note_at_gate', '{"what": "b"}');
	RETURN durable_call('note', '{"what": "c"}');
END $$;
CREATE FUNCTION backs_off() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', '{"what": "a"}');
	RETURN durable_call('fails_thrice', '{"what": "b"}',
		retry => durable_retry_policy(initial => '700 ms', backoff => 1));
END $$;
CREATE FUNCTION undoes() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo_note');
	PERFORM durable_call('note', '{"what": "b"}', compensate => 'undo_at_gate');
	PERFORM durable_call('note', '{"what": "c"}', compensate => 'undo_note');
	PERFORM durable_call('fails');
	RETURN durable_call('note', '{"what": "never"}');
END $$;
CREATE FUNCTION maps(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	items jsonb := (SELECT jsonb_agg(jsonb_build_object('i', i)) FROM generate_series(1, n) i);
BEGIN
	RETURN (SELECT sum(r::int) FROM jsonb_array_elements(durable_map('item', items)) r);
END $$;
CREATE FUNCTION spawns(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	handles int[];
BEGIN
	FOR i IN 1 .. n LOOP
		handles := handles || durable_spawn('item', jsonb_build_object('i', i));
	END LOOP;
	RETURN (SELECT sum(r::int) FROM jsonb_array_elements(durable_await_all(handles)) r);
END $$;
SELECT durable_register(w) FROM unnest('{attempts,backs_off,undoes,maps,spawns}'::text[]) w;

-- what one instance leaves, in the order of its commits
CREATE FUNCTION effects(text) RETURNS text LANGUAGE sql
AS $$SELECT string_agg(what, ',' ORDER BY at) FROM effect WHERE id = $1$$;
SQL

sub wait_for
{
	my ($query, $name) = @_;
	return $node->poll_query_until('postgres', $query)
	  || diag("$name: ",
		sql("SELECT id, run, status, reason FROM durable.instances WHERE ended_at IS NULL
			 UNION ALL SELECT i.id, i.run, 'raw ' || i.status, i.reason FROM durable_internal.instance i WHERE end_seq IS NULL
			 UNION ALL SELECT kind, pid, state, role FROM durable.workers LIMIT 40"));
}

sub close_gate { sql('UPDATE gate SET open = false'); return; }
sub open_gate { sql('UPDATE gate SET open = true'); return; }

# the worker that runs a step of that name just now
sub pid_at
{
	my ($step) = @_;
	my $where = "backend_type = 'durable worker' AND state = 'active' AND query LIKE 'workflow %, step $step'";
	wait_for("SELECT count(*) > 0 FROM pg_stat_activity WHERE $where", "at $step");
	return sql("SELECT pid FROM pg_stat_activity WHERE $where LIMIT 1");
}

sub any_worker
{
	return sql("SELECT pid FROM durable.workers WHERE kind = 'worker' LIMIT 1");
}

# Moments: start an instance, be there, and give the pid of a worker.
my %moments = (
	attempt => {
		workflow => 'attempts',
		reach => sub { return pid_at('note_at_gate:1'); },
		ends => 'completed|"c"|',
		effects => 'a,b,c'
	},
	backoff => {
		workflow => 'backs_off',
		reach => sub {
			my ($id) = @_;
			wait_for("SELECT state = 'retrying' AND attempts >= 2 FROM durable.steps WHERE id = '$id' AND position = 2", 'backoff');
			return any_worker();
		},
		ends => 'completed|"b"|',
		effects => 'a,b'
	},
	compensation => {
		workflow => 'undoes',
		reach => sub {
			my ($id) = @_;
			my $pid = pid_at('undo note:2');
			is(sql("SELECT status FROM durable.instances WHERE id = '$id'"), 'compensating', 'it is compensating');
			return $pid;
		},
		ends => 'failed||completed',
		effects => 'a,b,c,undo c,undo b,undo a'
	},
	map => {
		workflow => 'maps',
		input => '{"n": 400}',
		reach => sub { return pid_at('item:%'); },
		ends => 'completed|160400|',
		items => 400
	},
	spawn => {
		workflow => 'spawns',
		input => '{"n": 200}',
		reach => sub { return pid_at('item:%'); },
		ends => 'completed|40200|',
		items => 200
	});

sub restarts
{
	my $log = slurp_file($node->logfile);
	return scalar(() = $log =~ /all server processes terminated; reinitializing/g);
}

# What is done there.
my %faults = (
	SIGKILL => sub {
		my $before = restarts();
		kill 'KILL', $_[0];
		for (1 .. 500)
		{
			last if restarts() > $before;
			select undef, undef, undef, 0.02;
		}
		$node->poll_query_until('postgres', 'SELECT true');
	},
	SIGTERM => sub {
		kill 'TERM', $_[0];
		wait_for("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $_[0]", 'leaving');
	},
	'immediate stop' => sub { $node->stop('immediate'); $node->start; },
	'fast stop' => sub { $node->stop('fast'); $node->start; });

for my $fault ('SIGKILL', 'SIGTERM', 'immediate stop', 'fast stop')
{
	for my $name (qw(attempt backoff compensation map spawn))
	{
		my $moment = $moments{$name};
		my $test = "$fault in $name";
		my $id = "$name $fault";
		close_gate();
		my $input = $moment->{input} // '{}';
		sql("SELECT durable_start('$moment->{workflow}', '$input', id => '$id')");
		$faults{$fault}->($moment->{reach}->($id));
		open_gate();
		wait_for("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = '$id'", $test);
		is(sql("SELECT status, result, compensation FROM durable.instances WHERE id = '$id'"), $moment->{ends}, "$test: how it ends");
		is(sql("SELECT effects('$id')"), $moment->{effects}, "$test: each effect once, in order") if $moment->{effects};
		is(sql("SELECT count(*), count(DISTINCT what) FROM effect WHERE id = 'item'"), "$moment->{items}|$moment->{items}", "$test: each item once")
		  if $moment->{items};
		is(sql("SELECT attempts FROM durable.steps WHERE id = '$id' AND position = 2"), '4', "$test: no attempt is lost or counted twice (D6)")
		  if $name eq 'backoff';
		is(sql('SELECT (SELECT count(*) FROM durable_internal.ready), (SELECT count(*) FROM durable_internal.timer), (SELECT count(*) FROM durable_internal.inbox)'),
			'0|0|0', "$test: nothing is left in the queues");
		sql('TRUNCATE effect');
	}
}

# A cancel compensates, and a crash in the middle of that does not change how
# it ends (F7); what runs beside is closed before anything is undone (F8).
sql(<<'SQL');
CREATE FUNCTION cancelled() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo_note');
	PERFORM durable_call('note', '{"what": "b"}', compensate => 'undo_at_gate');
	PERFORM durable_spawn('note_at_gate', '{"what": "beside"}', compensate => 'undo_note');
	PERFORM durable_wait_signal('never');
END $$;
SELECT durable_register('cancelled');
SQL
for my $fault ('SIGKILL', 'immediate stop')
{
	my $id = "cancelled $fault";
	close_gate();
	sql("SELECT durable_start('cancelled', id => '$id')");
	pid_at('note_at_gate:1');
	wait_for("SELECT status = 'waiting_for_event' FROM durable.instances WHERE id = '$id'", 'waits');
	sql("SELECT durable_cancel('$id')");
	$faults{$fault}->(pid_at('undo note:2'));
	open_gate();
	wait_for("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = '$id'", $id);
	is(sql("SELECT status, compensation FROM durable.instances WHERE id = '$id'"), 'cancelled|completed', "$id: how it ends");
	is(sql("SELECT effects('$id')"), 'a,b,undo b,undo a', "$id: what is done is undone, once");
	is(sql("SELECT count(*) FROM effect WHERE what = 'beside'"), '0', "$id: what ran beside was interrupted");
	is(sql("SELECT state FROM durable.steps WHERE id = '$id' AND position = 3"), 'failed', "$id: and that is recorded");
	sql('TRUNCATE effect');
}

# A start-to-close timeout interrupts, again and again, and never hits what
# comes next in the same worker (D9, D10).
sql(<<'SQL');
CREATE FUNCTION takes(seconds float8) RETURNS text LANGUAGE sql
AS $$SELECT 'slept' FROM pg_sleep(seconds)$$;
CREATE FUNCTION times_out() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	PERFORM durable_call('takes', '[60]', timeout => '30 ms',
		retry => durable_retry_policy(max_attempts => 2, initial => '1 ms'));
EXCEPTION WHEN SQLSTATE 'WF003' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN durable_call_as(NULL::text, 'takes', '[0.1]') || ': ' || detail;
END $$;
-- the time is over at about the end of the activity
CREATE FUNCTION close_call() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	hit int := 0;
BEGIN
	FOR i IN 1 .. 20 LOOP
		BEGIN
			PERFORM durable_call('takes', jsonb_build_array(0.005), timeout => '5 ms',
				retry => durable_retry_policy(max_attempts => 1));
		EXCEPTION WHEN SQLSTATE 'WF003' THEN
			hit := hit + 1;
		END;
		PERFORM durable_call('takes', '[0.003]', retry => durable_retry_policy(max_attempts => 1));
	END LOOP;
	RETURN hit;
END $$;
SELECT durable_register('times_out'), durable_register('close_call');
SELECT durable_start('times_out', id => 'times out ' || i) FROM generate_series(1, 8) i;
SELECT durable_start('close_call', id => 'close call ' || i) FROM generate_series(1, 8) i;
SQL
wait_for("SELECT count(*) = 16 FROM durable.instances WHERE workflow IN ('times_out', 'close_call') AND ended_at IS NOT NULL", 'timeouts');
is(sql("SELECT DISTINCT status, result FROM durable.instances WHERE workflow = 'times_out'"),
	'completed|"slept: It took longer than its start_to_close timeout."', 'a timeout is caught, the next activity is not hit');
is(sql("SELECT DISTINCT attempts FROM durable.steps WHERE id LIKE 'times out%' AND position = 1"), '2', 'it is under the policy');
is(sql("SELECT DISTINCT status FROM durable.instances WHERE workflow = 'close_call'"), 'completed', 'however close it is');
note('hits of 20: ', sql("SELECT string_agg(result::text, ',') FROM durable.instances WHERE workflow = 'close_call'"));

# Progress is seen before the commit, and is gone afterwards.
sql(<<'SQL');
CREATE FUNCTION long_work() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_progress(3, 10, 'working');
	PERFORM wait_at_gate();
END $$;
CREATE FUNCTION shows_progress() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM durable_call('long_work'); END$$;
SELECT durable_register('shows_progress');
UPDATE gate SET open = false;
SELECT durable_start('shows_progress', id => 'progress');
SQL
ok($node->poll_query_until('postgres', "SELECT position, done, total, message FROM durable.progress WHERE id = 'progress'", '1|3|10|working'),
	'progress is seen while it works');
open_gate();
wait_for("SELECT durable_status('progress') = 'completed'", 'progress');
is(sql("SELECT count(*) FROM durable.progress WHERE id = 'progress'"), '0', 'and not when it is done');

# Spawned activities run at the same time, with each other and with a call.
sql(<<'SQL');
CREATE TABLE span (what text, during tstzrange);
CREATE FUNCTION span(what text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	PERFORM pg_sleep(0.7);
	INSERT INTO span VALUES (what, tstzrange(began, clock_timestamp()));
END $$;
CREATE FUNCTION overlaps() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	handles int[] := ARRAY[durable_spawn('span', '["a"]'), durable_spawn('span', '["b"]')];
BEGIN
	PERFORM durable_call('span', '["c"]');
	PERFORM durable_await_all(handles);
END $$;
SELECT durable_register('overlaps');
SELECT durable_start('overlaps', id => 'overlaps');
SQL
wait_for("SELECT durable_status('overlaps') = 'completed'", 'overlaps');
is(sql('SELECT count(*) FROM span a JOIN span b ON a.what < b.what AND a.during && b.during'), '3', 'three activities overlap');

$node->stop;
done_testing();
