# A8, A9, J8: a driver whose backend is terminated between two steps, or within
# one, leaves the steps it committed; the next driver goes on at once, and each
# effect is there once.
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# An activity waits at the gate of its step, if that is closed, after it wrote.
# A body waits in the function barrier(): it is not sandboxed here.
$node->safe_psql('postgres', q{
	CREATE EXTENSION durable;
	CREATE TABLE effect (id text, step int, pid int DEFAULT pg_backend_pid(), attempt int);
	CREATE FUNCTION act(id text, step int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect (id, step, attempt) VALUES (id, step, durable_attempt());
		PERFORM pg_advisory_xact_lock(step);
		RETURN step;
	END $$;
	CREATE FUNCTION steps(id text) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		total int := 0;
	BEGIN
		FOR i IN 1..4 LOOP
			total := total + durable_call_as(NULL::int, 'act', jsonb_build_object('id', id, 'step', i));
		END LOOP;
		RETURN total;
	END $$;
	CREATE PROCEDURE steps_in_place(id text) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..4 LOOP
			CALL durable_step('act', jsonb_build_object('id', id, 'step', i));
		END LOOP;
	END $$;
	CREATE FUNCTION steps_with_barrier(id text) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable_call('act', jsonb_build_object('id', id, 'step', 1));
		PERFORM durable_call('act', jsonb_build_object('id', id, 'step', 2));
		PERFORM pg_advisory_xact_lock(100);
		RETURN durable_call_as(NULL::int, 'act', jsonb_build_object('id', id, 'step', 3));
	END $$;
	SELECT durable_register('steps');
	SELECT durable_register('steps_in_place');
	SELECT durable_register('steps_with_barrier', sandbox => 'off');
});

sub start_driver
{
	my (@sql) = @_;
	my $driver = { out => '', err => '' };
	$driver->{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), map { ('-c', $_) } @sql ],
		'<', \undef, '>', \$driver->{out}, '2>', \$driver->{err});
	return $driver;
}

# The backend that waits for that gate.
sub wait_at_gate
{
	my ($gate) = @_;
	my $waits = qq{FROM pg_locks WHERE locktype = 'advisory' AND objid = $gate
		AND objsubid = 1 AND NOT granted};
	$node->poll_query_until('postgres', "SELECT count(*) = 1 $waits")
	  or die "nobody came to gate $gate";
	return $node->safe_psql('postgres', "SELECT pid $waits");
}

sub terminate
{
	my ($driver, $pid) = @_;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	$node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	$driver->{run}->finish;
	like($driver->{err}, qr/terminating connection due to administrator command/,
		'the driver was terminated');
}

# Terminates the driver of an instance at that gate; the next one ends it.
sub check_terminated
{
	my ($workflow, $id, $gate, $done, $steps) = @_;
	my $keeper = $node->background_psql('postgres');

	$keeper->query_safe("SELECT pg_advisory_lock($gate)");
	$node->safe_psql('postgres',
		qq{SELECT durable_start('$workflow', '"$id"', id => '$id')});
	my $driver = start_driver('CALL durable_work()');
	my $pid = wait_at_gate($gate);
	is($node->safe_psql('postgres', qq{SELECT durable_status('$id')}),
		'running', "$id: is running");
	terminate($driver, $pid);
	is( $node->safe_psql('postgres',
			"SELECT string_agg(step::text, ',' ORDER BY step) FROM effect WHERE id = '$id'"),
		$done,
		"$id: what was committed is there, and no more");
	$keeper->query_safe("SELECT pg_advisory_unlock($gate)");
	$keeper->quit;

	$node->safe_psql('postgres', 'CALL durable_work()');
	is($node->safe_psql('postgres', "SELECT durable_status('$id')"),
		'completed', "$id: the next driver ends it");
	is( $node->safe_psql('postgres',
			"SELECT string_agg(step::text, ',' ORDER BY step), max(attempt) FROM effect WHERE id = '$id'"),
		"$steps|1",
		"$id: each effect is there once, in the first attempt");
	is( $node->safe_psql('postgres',
			"SELECT count(*), max(seq) FROM durable.events WHERE id = '$id'"),
		(split(/,/, $steps) + 2) . '|' . (split(/,/, $steps) + 2),
		"$id: the history has each step once");
}

# within a step
check_terminated('steps', 'function 1', 1, '', '1,2,3,4');
check_terminated('steps', 'function 3', 3, '1,2', '1,2,3,4');
check_terminated('steps_in_place', 'procedure 1', 1, '', '1,2,3,4');
check_terminated('steps_in_place', 'procedure 3', 3, '1,2', '1,2,3,4');

# between steps: the body holds up a pass after step 2, which is then not yet
# committed
check_terminated('steps_with_barrier', 'between', 100, '1', '1,2,3');

# a session that drives in its own transaction leaves nothing at all (A9)
{
	my $keeper = $node->background_psql('postgres');
	$keeper->query_safe('SELECT pg_advisory_lock(3)');
	$node->safe_psql('postgres',
		q{SELECT durable_start('steps', '"inside"', id => 'inside')});
	my $driver = start_driver(q{SELECT durable_run('inside')});
	terminate($driver, wait_at_gate(3));
	is( $node->safe_psql('postgres',
			"SELECT durable_status('inside'), count(*) FROM effect WHERE id = 'inside'"),
		'pending|0',
		'durable_run leaves nothing');
	$keeper->quit;
	$node->safe_psql('postgres', 'CALL durable_work()');
	is( $node->safe_psql('postgres',
			"SELECT durable_result('inside'), count(*) FROM effect WHERE id = 'inside'"),
		'10|4',
		'it is run from the beginning');
}

# in a body, the server's own cleaning up is not what the body does
for my $run ('SELECT durable_run($$body$$)',
	'DO $$ BEGIN PERFORM durable_run(\'body\'); EXCEPTION WHEN division_by_zero THEN END $$')
{
	my $keeper = $node->background_psql('postgres');
	$keeper->query_safe('SELECT pg_advisory_lock(100)');
	$node->safe_psql('postgres',
		q{SELECT durable_start('steps_with_barrier', '"body"', id => 'body', on_conflict => 'existing')});
	my $driver = start_driver('CREATE TEMP TABLE left_behind ()', $run);
	terminate($driver, wait_at_gate(100));
	unlike($driver->{err}, qr/yields to durable/, 'that is all the session hears');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname = 'left_behind'}),
		'0', 'its temporary tables are gone');
	$keeper->quit;
}
$node->safe_psql('postgres', 'CALL durable_work()');

is($node->safe_psql('postgres', 'SELECT count(*) FROM durable_internal.ready'),
	'0', 'nothing is left in the queue');

$node->stop;
done_testing();
