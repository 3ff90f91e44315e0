# Real faults: processes are killed or asked to leave in the middle of an
# activity, between steps, in a wait and under load, and the server is stopped.
# Each time every instance completes and every step's effect is there exactly
# once (J1, A7, A8, A9), at once and not with the next sweep, and what is no
# crash counts as none (J8).
use strict;
use warnings;
use DurableTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# Nothing here takes long; what would take until the next sweep is a failure.
$PostgreSQL::Test::Utils::timeout_default = 90;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
restart_after_crash = on
durable.sweep_interval = '10 min'
durable.max_workers = 6
durable.max_crashes = 100
max_connections = 30
CONF
$node->start;

my @roles = qw(app_ann app_bob cleo);

$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE ROLE app_ann LOGIN;
CREATE ROLE app_bob LOGIN;
CREATE ROLE cleo LOGIN;
GRANT USAGE ON SCHEMA durable TO app_ann, app_bob, cleo;

CREATE TABLE effect (id text, step int);
CREATE TABLE gate (open bool);
INSERT INTO gate VALUES (true);
GRANT SELECT, INSERT ON effect, gate TO PUBLIC;

CREATE FUNCTION note(id text, step int) RETURNS int LANGUAGE sql
AS 'INSERT INTO effect VALUES (id, step) RETURNING step';
-- writes first, then waits: what it wrote must go with it (A9)
CREATE FUNCTION note_at_gate(id text, step int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (id, step);
	WHILE NOT (SELECT open FROM gate) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN step;
END $$;

CREATE FUNCTION steps(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	sum int := 0;
BEGIN
	FOR i IN 1 .. n LOOP
		sum := sum + durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', i))::int;
		IF i = n / 2 THEN
			PERFORM durable_sleep('30 ms');
		END IF;
	END LOOP;
	RETURN sum;
END $$;
CREATE PROCEDURE steps_in_place(n int, INOUT sum int DEFAULT 0) LANGUAGE plpgsql AS $$
DECLARE
	one jsonb;
BEGIN
	FOR i IN 1 .. n LOOP
		CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', i), one);
		sum := sum + one::int;
	END LOOP;
END $$;
-- at a gate in the second of three activities
CREATE FUNCTION in_activity() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	sum int := 0;
BEGIN
	FOR i IN 1 .. 3 LOOP
		sum := sum + durable_call(CASE i WHEN 2 THEN 'note_at_gate' ELSE 'note' END,
			jsonb_build_object('id', durable_instance_id(), 'step', i))::int;
	END LOOP;
	RETURN sum;
END $$;
CREATE PROCEDURE in_activity_in_place() LANGUAGE plpgsql AS $$
BEGIN
	CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', 1));
	CALL durable_step('note_at_gate', jsonb_build_object('id', durable_instance_id(), 'step', 2));
	CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', 3));
END $$;
-- the first step is recorded, not committed, while the next pass runs
CREATE FUNCTION in_pass() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	one int := durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 1));
BEGIN
	WHILE NOT (SELECT open FROM gate) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	PERFORM durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 2));
	RETURN one + durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 3))::int;
END $$;
-- the first step is committed; then some time passes in the body
CREATE PROCEDURE between_steps() LANGUAGE plpgsql AS $$
BEGIN
	CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', 1));
	PERFORM count(*) FROM generate_series(1, 2000000);
	CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', 2));
	CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', 3));
END $$;
CREATE FUNCTION in_wait() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 1));
	PERFORM durable_wait_signal('go');
	PERFORM durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 2));
	PERFORM durable_sleep('100 ms');
	RETURN durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 3));
END $$;
SELECT durable_register(w) FROM unnest('{steps,steps_in_place,in_activity,in_activity_in_place,between_steps,in_wait}'::text[]) w;
SELECT durable_register('in_pass', sandbox => 'off');

-- progress clears a suspect, so it is noted when one is made
CREATE TABLE suspected (id text);
CREATE FUNCTION note_suspect() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN INSERT INTO public.suspected VALUES (NEW.id); RETURN NULL; END';
CREATE TRIGGER note_suspect AFTER UPDATE ON durable_internal.instance
	FOR EACH ROW WHEN (NEW.suspect OR NEW.crashes > 0) EXECUTE FUNCTION note_suspect();
SQL

my $round = 0;
my %expected;    # of this round: steps by the beginning of the id

sub sql { return $node->safe_psql('postgres', $_[0]); }

# start ROLE, WORKFLOW, COUNT, STEPS [, INPUT]: ids WORKFLOW-ROLE-ROUND-I
sub start
{
	my ($role, $workflow, $count, $steps, $input) = @_;
	$input //= '{}';
	$node->safe_psql('postgres',
		"SELECT count(durable_start('$workflow', '$input', id => concat_ws('-', '$workflow', '$role', $round, i))) FROM generate_series(1, $count) i",
		extra_params => [ '-U', $role ]);
	$expected{"$workflow-$role"} += $count * $steps;
	return;
}

sub load
{
	my ($count) = @_;
	for my $role (@roles)
	{
		start($role, 'steps', $count, 6, '{"n": 6}');
		start($role, 'steps_in_place', $count, 6, '{"n": 6}');
	}
	return;
}

sub wait_for
{
	my ($query, $name) = @_;
	return $node->poll_query_until('postgres', $query)
	  || diag("$name: ",
		$node->safe_psql('postgres',
			"SELECT 'instance', status, run_as, count(*)::text, min(id) FROM durable.instances GROUP BY 1, 2, 3
			 UNION ALL SELECT 'process', kind, role, state, pid::text FROM durable.workers
			 UNION ALL SELECT 'lease', id, run_as, alive::text, lease::text FROM durable.leases LIMIT 30"));
}

sub pid_of
{
	my ($kind, $which) = @_;
	return sql("SELECT pid FROM durable.workers WHERE kind = '$kind' ORDER BY "
		  . ($which // 'pid') . ' LIMIT 1');
}

# the worker that runs a step of a workflow just now
sub pid_at
{
	my ($workflow, $step) = @_;
	my $where = "backend_type = 'durable worker' AND query LIKE 'workflow $workflow, instance $workflow-%-$round-%, step %$step'";
	wait_for("SELECT count(*) > 0 FROM pg_stat_activity WHERE $where", "at $workflow");
	return sql("SELECT pid FROM pg_stat_activity WHERE $where LIMIT 1");
}

# round NAME, FAULT, IS_CRASH: a load with the fault in the middle of it.
sub round
{
	my ($name, $fault, $is_crash, $count) = @_;
	$round++;
	%expected = ();
	my $restarts = restarts();
	load($count // 12);
	my $from = $fault->() // time;
	my $ended = wait_for(
		"SELECT count(*) = 0 FROM durable.instances WHERE status <> 'completed'",
		$name);
	note(sprintf '%s: %.0f ms after the fault', $name, (time - $from) * 1000);
	is($ended, 1, "$name: all instances complete");

	my $steps = 0;
	$steps += $_ for values %expected;
	is(sql("SELECT count(*), count(DISTINCT (id, step)) FROM effect"),
		"$steps|$steps", "$name: the effect of each step is there once");
	is( sql("SELECT count(*), count(DISTINCT (iid, position)) FROM durable_internal.history WHERE event = 'ActivityCompleted'
			 AND iid IN (SELECT iid FROM durable_internal.instance WHERE id LIKE '%-$round-%')"),
		"$steps|$steps",
		"$name: each step is recorded once");
	is(sql('SELECT (SELECT count(*) FROM durable_internal.ready), (SELECT count(*) FROM durable_internal.timer), (SELECT count(*) FROM durable_internal.inbox)'),
		'0|0|0', "$name: nothing is left in the queues");
	if ($is_crash)
	{
		is(sql('SELECT count(*) FROM durable_internal.instance WHERE suspect OR crashes > 0'),
			'0', "$name: progress has cleared all suspects");
	}
	else
	{
		is(sql("SELECT count(*), min(id) FROM suspected"), '0|', "$name: counts as no crash");
		is(restarts(), $restarts, "$name: the server did not restart");
	}
	sql('TRUNCATE effect, suspected');
	return;
}

sub restarts { return restarts_of($node); }

sub open_gate { sql('UPDATE gate SET open = true'); return; }
sub close_gate { sql('UPDATE gate SET open = false'); return; }

# crash PID: kill it and wait until the server is there again
sub crash { return crash_of($node, $_[0]); }

sub leave { kill 'TERM', $_[0]; return; }

# terminate PID: and wait until it is gone
sub terminate
{
	my ($pid) = @_;
	leave($pid);
	wait_for("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'leaving');
	return;
}

# Moments: each gives the worker that is there.
sub at_activity
{
	close_gate();
	start('app_bob', 'in_activity', 1, 3);
	return pid_at('in_activity', 'note_at_gate:1');
}

sub at_activity_in_place
{
	close_gate();
	start('cleo', 'in_activity_in_place', 1, 3);
	return pid_at('in_activity_in_place', 'note_at_gate:1');
}

sub at_pass
{
	close_gate();
	start('app_ann', 'in_pass', 1, 3);
	my $pid = pid_at('in_pass', 'note:1');
	return $pid;
}

sub at_between_steps
{
	start('app_bob', 'between_steps', 1, 3);
	wait_for("SELECT count(*) > 0 FROM effect WHERE id LIKE 'between_steps-%'", 'between steps');
	return sql("SELECT pid FROM pg_stat_activity WHERE query LIKE 'workflow between_steps%' AND backend_type = 'durable worker' LIMIT 1");
}

sub at_wait
{
	start('app_ann', 'in_wait', 3, 3);
	wait_for("SELECT count(*) = 3 FROM durable.instances WHERE status = 'waiting_for_event'", 'waiting');
	return sql("SELECT pid FROM durable.workers WHERE role = 'app_ann' LIMIT 1");
}

sub signal_all
{
	my $result = sql("SELECT count(durable_signal(id, 'go')) FROM durable.instances WHERE status = 'waiting_for_event'");
	is($result, 3, 'three wait');
	return;
}

my @moments = (
	[ 'in an activity', \&at_activity, \&open_gate ],
	[ 'in an activity of a procedure', \&at_activity_in_place, \&open_gate ],
	[ 'in a pass', \&at_pass, \&open_gate ],
	[ 'between steps', \&at_between_steps, sub { } ],
	[ 'in a wait', \&at_wait, \&signal_all ]);

# SIGKILL of a worker (J1): the server restarts.
for my $moment (@moments)
{
	my ($name, $reach, $go_on) = @$moment;
	round(
		"SIGKILL $name",
		sub {
			crash($reach->());
			my $now = time;
			$go_on->();
			return $now;
		},
		1);
}

# SIGTERM of workers, scheduler and launcher (J8): it does not.
for my $moment (@moments)
{
	my ($name, $reach, $go_on) = @$moment;
	round("SIGTERM of the worker $name",
		sub { terminate($reach->()); $go_on->(); return; });
	round("pg_terminate_backend of all workers $name",
		sub {
			$reach->();
			sql("SELECT count(pg_terminate_backend(pid)) FROM durable.workers WHERE kind = 'worker'");
			$go_on->();
			return;
		});
	round("SIGTERM of the scheduler $name",
		sub { $reach->(); terminate(pid_of('scheduler')); $go_on->(); return; });
	round("SIGTERM of the launcher $name",
		sub { $reach->(); terminate(pid_of('launcher')); $go_on->(); return; });
	round("SIGTERM of all $name",
		sub {
			$reach->();
			leave($_) for split /\n/, sql('SELECT pid FROM durable.workers WHERE pid > 0');
			$go_on->();
			return;
		});
}

# A worker of a scheduler that is gone is missed by the one that is there now.
round(
	'SIGTERM of the scheduler, then of its worker',
	sub {
		my $worker = at_activity();
		my $scheduler = pid_of('scheduler');
		terminate($scheduler);
		wait_for("SELECT count(*) > 0 FROM durable.workers WHERE kind = 'scheduler'", 'scheduler');
		wait_for("SELECT count(*) = 0 FROM durable_internal.ready WHERE lease IS NULL", 'load');
		terminate($worker);
		open_gate();
		return;
	});

# Stops under load.
for my $stop ([ 'fast', 'in an activity', \&at_activity ],
	[ 'immediate', 'in an activity', \&at_activity ],
	[ 'fast', 'in a pass', \&at_pass ],
	[ 'fast', 'between steps', \&at_between_steps ],
	[ 'immediate', 'in a pass', \&at_pass ])
{
	my ($mode, $name, $reach) = @$stop;
	round(
		"stop $mode $name",
		sub {
			$reach->();
			my $from = time;
			$node->stop($mode);
			cmp_ok(time - $from, '<', 5, "stop $mode is prompt");
			$node->start;
			my $now = time;
			open_gate();
			return $now;
		},
		$mode eq 'immediate', 60);
}

$node->stop;
done_testing();
