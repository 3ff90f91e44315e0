# Activities in the background: workers are killed or asked to leave, and the
# server is stopped, in the middle of an attempt, of a backoff, of a
# compensation and of a fan-out. All ends as it should, the effect of each step
# is there once, and nothing is undone twice or not at all (D6, D11, D17, F4,
# F5, F7, F8). Details of heartbeats outlive a worker (D12), clients the server
# (D15, D18), and a client's silence is noticed (D9, F1). Timeouts interrupt what they are for and nothing else (D9, D10);
# progress is seen at once; spawned activities overlap (D17).
use strict;
use warnings;
use DurableTest;
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

# What is done there.
my %faults = (
	SIGKILL => sub { crash_of($node, $_[0]); },
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

# What is being undone is not cancelled, not by force either: that costs it no
# attempt (F4, F7).
close_gate();
sql(<<'SQL');
CREATE FUNCTION undone_once() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo_at_gate');
	RAISE EXCEPTION 'enough';
END $$;
SELECT durable_register('undone_once', activity_retry => '{"max_attempts": 1}');
SELECT durable_start('undone_once', id => 'by force');
SQL
pid_at('undo note:1');
is(sql(q{SELECT durable_cancel('by force', force => true)}), 't', 'a compensation is cancelled by force');
wait_for(q{SELECT count(*) = 0 FROM durable.messages WHERE id = 'by force'}, 'that is taken note of');
open_gate();
wait_for(q{SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = 'by force'}, 'its end');
is(sql(q{SELECT status, compensation, effects(id) FROM durable.instances WHERE id = 'by force'}),
	'failed|completed|a,undo a', 'F7: it is undone all the same');
is(sql(q{SELECT attempts FROM durable.steps WHERE id = 'by force' AND kind = 'compensation'}), '1', 'F4: at the first attempt');
sql('TRUNCATE effect');

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

# Nor is it lost when the activity is just in our code, which is not
# interrupted: here, rehearsing a workflow whose input takes long to check.
sql(<<'SQL');
CREATE FUNCTION checks_long(i int) RETURNS boolean LANGUAGE sql AS $$SELECT true FROM pg_sleep(0.5)$$;
CREATE DOMAIN checked_long AS int CHECK (checks_long(VALUE));
CREATE FUNCTION rehearsed(i checked_long) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION rehearses() RETURNS text LANGUAGE sql AS $$SELECT verdict || ': ' || reason FROM durable_check('rehearsed')$$;
CREATE FUNCTION times_out_within() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable_call_as(NULL::text, 'rehearses', timeout => '200 ms',
		retry => durable_retry_policy(max_attempts => 1));
END $$;
SELECT durable_register('rehearsed'), durable_register('times_out_within');
SELECT durable_start('rehearsed', '1', id => 'rehearsed', start_at => now() + '1 day');
SELECT durable_start('times_out_within', id => 'times out within');
SQL
wait_for("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = 'times out within'", 'a timeout in our code');
is(sql("SELECT status, error ->> 'sqlstate', result FROM durable.instances WHERE id = 'times out within'"),
	'failed|WF003|', 'a timeout that comes while our code runs is acted upon after it');

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

# The details of a heartbeat outlive the worker that is told to leave (D12),
# and the server that is stopped; of a compensation, too.
sql(<<'SQL');
CREATE FUNCTION counts() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	known jsonb := durable_heartbeat_details();
BEGIN
	IF known IS NULL THEN
		PERFORM durable_heartbeat('{"row": 1}');
		PERFORM durable_heartbeat('{"row": 4711}');
		PERFORM wait_at_gate();
	END IF;
	RETURN jsonb_build_object('attempt', durable_attempt(), 'from', known);
END $$;
CREATE FUNCTION undo_counts(step jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT counts()';
CREATE FUNCTION beats() RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RETURN durable_call('counts'); END$$;
CREATE PROCEDURE beats_in_place() LANGUAGE plpgsql AS $$BEGIN CALL durable_step('counts'); END$$;
CREATE FUNCTION undoes_beats() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', '["x"]', compensate => 'undo_counts');
	PERFORM durable_call('fails');
END $$;
SELECT durable_register(w) FROM unnest('{beats,beats_in_place,undoes_beats}'::text[]) w;
SQL
for my $fault ('SIGTERM', 'fast stop')
{
	for my $workflow ('beats', 'beats_in_place', 'undoes_beats')
	{
		my $id = "$workflow $fault";
		my $step = $workflow eq 'undoes_beats' ? 'undo note:1' : 'counts:1';
		close_gate();
		sql("SELECT durable_start('$workflow', id => '$id')");
		$faults{$fault}->(pid_at($step));
		wait_for("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = '$id'", $id);
		open_gate();
		is(sql("SELECT result FROM durable.steps WHERE id = '$id' AND step_id = '$step'"), '{"from": {"row": 4711}, "attempt": 1}', "$id: the details are known");
		is(sql("SELECT string_agg(event || ' ' || coalesce(data::text, ''), ', ' ORDER BY seq) FROM durable.events WHERE id = '$id' AND event ~ 'Interrupted'"),
			($workflow eq 'undoes_beats' ? 'Compensation' : 'Activity') . 'Interrupted {"heartbeat": {"row": 4711}}', "$id: and recorded");
		is(sql("SELECT attempts FROM durable.steps WHERE id = '$id' AND step_id = '$step'"), '1', "$id: that is no failed attempt");
	}
}
# a crash loses them, and nothing else
close_gate();
sql("SELECT durable_start('beats', id => 'beats crash')");
$faults{SIGKILL}->(pid_at('counts:1'));
open_gate();
wait_for("SELECT durable_status('beats crash') = 'completed'", 'beats crash');
is(sql("SELECT durable_result('beats crash')"), '{"from": null, "attempt": 1}', 'a crash: it begins anew');

# Remote: the server is killed or stopped while a client has a step, or its
# compensation; the client's word counts, once (D11, D15, D18, F4, F5).
sql(<<'SQL');
SELECT durable_register_activity('send', queue => 'mail', start_to_close => '10 min'), durable_register_activity('unsend', queue => 'mail');
CREATE FUNCTION sends() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', '{"what": "a"}', compensate => 'undo_note');
	PERFORM durable_call('send', '["b"]', compensate => 'unsend');
	PERFORM durable_call('note', '{"what": "c"}', compensate => 'undo_note');
	PERFORM durable_call('fails');
END $$;
SELECT durable_register('sends');
CREATE TABLE client (token text, activity text, args jsonb, attempt int);
SQL
sub take_task
{
	wait_for("SELECT count(*) = 1 FROM durable.tasks WHERE started_at IS NULL", 'a task');
	sql("TRUNCATE client; INSERT INTO client SELECT token, activity, args, attempt FROM durable_task_poll('mail')");
	return sql('SELECT activity, args, attempt FROM client');
}
for my $fault ('SIGKILL', 'immediate stop', 'fast stop')
{
	my $id = "sends $fault";
	sql("SELECT durable_start('sends', id => '$id')");
	is(take_task(), 'send|["b"]|1', "$id: a client has the step");
	$faults{$fault}->(any_worker());
	is(sql("SELECT durable_task_heartbeat(token) FROM client"), 'f', "$id: it still has it");
	sql(q{SELECT durable_task_complete(token, '"sent"') FROM client});
	is(take_task(), 'unsend|{"args": ["b"], "result": "sent"}|1', "$id: a client has the compensation");
	is(sql("SELECT status FROM durable.instances WHERE id = '$id'"), 'compensating', "$id: it is compensating");
	$faults{$fault}->(any_worker());
	is(sql("SELECT count(*) FROM durable_task_poll('mail')"), '0', "$id: nobody else gets it");
	sql(q{SELECT durable_task_complete(token) FROM client});
	wait_for("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = '$id'", $id);
	is(sql("SELECT status, compensation FROM durable.instances WHERE id = '$id'"), 'failed|completed', "$id: how it ends");
	is(sql("SELECT effects('$id')"), 'a,c,undo c,undo a', "$id: each effect once");
	is(sql("SELECT string_agg(step_id || ' ' || state, ', ' ORDER BY position, kind) FROM durable.steps WHERE id = '$id' AND name IN ('send', 'unsend')"),
		'send:1 completed, undo send:1 completed', "$id: what durable.steps says");
	sql('TRUNCATE effect');
}

# Timers of remote attempts in the background: the heartbeat that does not come
# (D9), and an attempt of unknown outcome that is undone on request (F1).
sql(<<'SQL');
SELECT durable_register_activity('silent', queue => 'mail', heartbeat => '2 s', retry => durable_retry_policy(max_attempts => 2, initial => '1 ms'),
	compensate => 'undo_silent', compensate_attempted => true);
CREATE FUNCTION undo_silent(step jsonb) RETURNS void LANGUAGE sql
AS $$INSERT INTO effect VALUES (durable_instance_id(), 'undo ' || step::text)$$;
CREATE FUNCTION silences() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM durable_call('silent', '["s"]'); END$$;
SELECT durable_register('silences');
SELECT durable_start('silences', id => 'silences');
SQL
is(take_task(), 'silent|["s"]|1', 'a client has it');
# longer than the heartbeat, but it is heard of
for (1 .. 12)
{
	select undef, undef, undef, 0.2;
	sql('SELECT durable_task_heartbeat(token) FROM client');
}
is(sql("SELECT state, attempts FROM durable.steps WHERE id = 'silences'"), 'queued|0', 'who is heard of is left alone');
is(take_task(), 'silent|["s"]|2', 'who is not, loses the attempt');
wait_for("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = 'silences'", 'silences');
is(sql("SELECT status, error ->> 'sqlstate', error ->> 'detail', compensation FROM durable.instances WHERE id = 'silences'"),
	'failed|WF003|It took longer than its heartbeat timeout.|completed', 'twice is enough for the policy');
is(sql("SELECT effects('silences')"), 'undo {"args": ["s"], "result": null}', 'and what may have been done is undone');

# A worker does not wait for a client that does not commit; what that did is
# not lost.
sql("SELECT durable_start('sends', id => 'open')");
take_task();
my $client = $node->background_psql('postgres');
$client->query_safe(q{BEGIN; SELECT durable_task_complete(token, '"sent"') FROM client});
sql("SELECT durable_cancel('open')");
wait_for("SELECT count(*) = 1 FROM durable.timers WHERE id = 'open' AND wake_at < now() + interval '10 s'", 'a later look');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'durable worker' AND wait_event_type = 'Lock'"), '0', 'no worker waits for the client');
is(sql("SELECT status FROM durable.instances WHERE id = 'open'") =~ /^(waiting_for_activity|running|pending)$/ ? 'open' : '', 'open', 'it is not cancelled yet');
$client->query_safe('COMMIT');
$client->quit;
is(take_task(), 'unsend|{"args": ["b"], "result": "sent"}|1', 'what the client did is known, and undone');
sql(q{SELECT durable_task_complete(token) FROM client});
wait_for("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = 'open'", 'open');
is(sql("SELECT status, compensation FROM durable.instances WHERE id = 'open'"), 'cancelled|completed', 'then the cancel has its way');

$node->stop;
done_testing();
