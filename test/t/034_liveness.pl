# Nothing waits for the sweep, nothing spins and nobody is starved, whatever
# was restarted, locked or refused (J1, J3, J7, J8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

$PostgreSQL::Test::Utils::timeout_default = 45;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
durable.sweep_interval = '10 min'
durable.max_workers = 3
CONF
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub as
{
	my ($role, $sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

sub wait_for
{
	my ($query, $name) = @_;
	return ok($node->poll_query_until('postgres', $query), $name)
	  || diag(sql("SELECT 'instance', status, run_as, count(*)::text, min(id) FROM durable.instances GROUP BY 1, 2, 3
			 UNION ALL SELECT 'process', kind, role, state, pid::text FROM durable.workers
			 UNION ALL SELECT 'lease', id, run_as, alive::text, lease::text FROM durable.leases LIMIT 30"));
}

# ticks PID: of processor time used
sub ticks
{
	my ($pid) = @_;
	my @stat = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;
	return $stat[11] + $stat[12];
}

sub pid_of { return sql("SELECT pid FROM durable.workers WHERE kind = '$_[0]'"); }

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE ROLE app_ann LOGIN;
CREATE ROLE app_bob LOGIN;
CREATE ROLE cleo LOGIN;
GRANT USAGE ON SCHEMA durable TO app_ann, app_bob, cleo;
CREATE FUNCTION takes(seconds float) RETURNS int LANGUAGE sql AS 'SELECT 1 FROM pg_sleep(seconds)';
CREATE FUNCTION takes_time(seconds float) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable_call('takes', jsonb_build_array(seconds));
END $$;
CREATE FUNCTION sleeps(seconds float) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_sleep(make_interval(secs => seconds));
	RETURN 1;
END $$;
CREATE FUNCTION stubborn() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		BEGIN
			PERFORM durable_wait_signal('go');
		EXCEPTION
			WHEN OTHERS OR query_canceled OR assert_failure THEN NULL;
		END;
	END LOOP;
END $$;
SELECT durable_register(w) FROM unnest('{takes_time,sleeps,stubborn}'::text[]) w;
SQL

# A scheduler is missed by a launcher that did not start it.
wait_for("SELECT count(*) = 2 FROM durable.workers", 'launcher and scheduler');
my $launcher = pid_of('launcher');
kill 'TERM', $launcher;
wait_for("SELECT count(*) = 1 FROM durable.workers WHERE kind = 'launcher' AND pid <> $launcher", 'another launcher');
my $scheduler = pid_of('scheduler');
kill 'TERM', $scheduler;
wait_for("SELECT count(*) = 1 FROM durable.workers WHERE kind = 'scheduler' AND pid <> $scheduler",
	'another scheduler, started by another launcher')
  or $node->restart;

# Two that are started one after the other run side by side.
sql('ALTER SYSTEM SET durable.max_workers = 4');
sql('SELECT pg_reload_conf()');
as('app_ann', "SELECT durable_start('takes_time', '[0.3]', id => 'warm-' || i) FROM generate_series(1, 4) i");
wait_for("SELECT count(*) = 4 FROM durable.workers WHERE kind = 'worker' AND role = 'app_ann' AND state = 'idle'", 'four idle workers');
for my $i (1 .. 5)
{
	as('app_ann', join ';', map { "SELECT durable_start('takes_time', '[0.3]', id => 'beside-$i-$_')" } 1 .. 4);
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM durable.instances WHERE status <> 'completed'");
}
my $late = sql("SELECT round(max(extract(epoch FROM started_at - created_at) * 1000)) FROM durable.instances WHERE id LIKE 'beside-%'");
note("the last of four starts waited for $late ms");
cmp_ok($late, '<', 250, 'four idle workers take four instances at once');

# A role that has no worker gets one, however busy another role is.
as('app_ann', "SELECT durable_start('takes_time', '[0.2]', id => 'greedy-' || i) FROM generate_series(1, 80) i");
wait_for("SELECT count(*) = 4 FROM durable.workers WHERE role = 'app_ann' AND state = 'busy'", 'one role has all workers');
as('app_bob', "SELECT durable_start('takes_time', '[0]', id => 'modest')");
$node->poll_query_until('postgres', "SELECT status = 'completed' FROM durable.instances WHERE id = 'modest'");
my $waited = sql("SELECT round(extract(epoch FROM coalesce(ended_at, clock_timestamp()) - created_at) * 1000) FROM durable.instances WHERE id = 'modest'");
note("modest waited $waited ms");
cmp_ok($waited, '<', 2500, 'another one gets its turn');
wait_for("SELECT count(*) = 0 FROM durable.instances WHERE status <> 'completed'", 'all complete');

# A timer that somebody has locked is waited for, not asked for all the time.
as('app_bob', "SELECT durable_start('sleeps', '[2]', id => 'in-hand')");
wait_for("SELECT count(*) = 1 FROM durable.timers", 'it sleeps');
my $session = $node->background_psql('postgres', extra_params => [ '-U', 'app_bob' ], on_error_die => 1);
$session->query_safe("BEGIN");
$session->query_safe("SELECT durable_run('in-hand')");
wait_for("SELECT count(*) = 1 FROM durable.timers WHERE wake_at < now()", 'its timer is due');
$scheduler = pid_of('scheduler');
my $before = ticks($scheduler);
select undef, undef, undef, 1.0;
my $used = ticks($scheduler) - $before;
note("the scheduler used $used ticks in a second");
cmp_ok($used, '<', 20, 'the scheduler does not spin on a locked timer');
$session->query_safe("COMMIT");
wait_for("SELECT durable_status('in-hand') = 'completed'", 'it goes on when the lock is gone');

# A database that lets no worker in costs little and stops nobody.
sql('CREATE DATABASE side');
$node->safe_psql('side', <<'SQL');
CREATE EXTENSION durable;
GRANT USAGE ON SCHEMA durable TO cleo;
CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT durable_register('one');
SQL
my $holder = $node->background_psql('side', extra_params => [ '-U', 'cleo' ], on_error_die => 1);
ok($node->poll_query_until('side', "SELECT count(*) > 0 FROM durable.workers WHERE kind = 'scheduler'"), 'side has a scheduler');
sql('ALTER DATABASE side ALLOW_CONNECTIONS false');
my $offset = -s $node->logfile;
$holder->query_safe("SELECT durable_start('one', id => 'no-entry')");
select undef, undef, undef, 1.0;
my $refused = () = slurp_file($node->logfile, $offset) =~ /FATAL:.*not currently accepting connections/g;
note("$refused connections refused in a second");
cmp_ok($refused, '<', 10, 'a worker that cannot connect is not tried all the time');
as('app_bob', "SELECT durable_start('takes_time', '[0]', id => 'next-to-it')");
wait_for("SELECT durable_status('next-to-it') = 'completed'", 'others are served');
sql('ALTER DATABASE side ALLOW_CONNECTIONS true');
$holder->query_safe("SELECT durable_start('one', id => 'entry')");
ok($node->poll_query_until('side', "SELECT count(*) = 2 FROM durable.instances WHERE status = 'completed'"), 'it is tried again');
$holder->quit;

# A body that cannot be stopped is held, not tried for ever.
$offset = -s $node->logfile;
as('app_bob', "SELECT durable_start('stubborn', id => 'stubborn')");
wait_for("SELECT durable_status('stubborn') IN ('held', 'waiting_for_event')", 'a body that catches everything does not spin');
my $fatal = () = slurp_file($node->logfile, $offset) =~ /FATAL/g;
note("$fatal workers gone");
sql("DELETE FROM durable_internal.ready WHERE iid = (SELECT iid FROM durable_internal.instance WHERE id = 'stubborn')");

# A suspect that a session has in hand stops nobody.
as('app_bob', "SELECT durable_start('sleeps', '[3600]', id => 'suspect')");
wait_for("SELECT count(*) = 1 FROM durable.timers", 'the suspect sleeps');
sql(<<'SQL');
BEGIN;
UPDATE durable_internal.instance SET suspect = true WHERE id = 'suspect';
INSERT INTO durable_internal.ready (iid, run_as, priority, suspect)
SELECT iid, run_as, priority, true FROM durable_internal.instance WHERE id = 'suspect';
COMMIT;
SQL
$session->query_safe('BEGIN');
$session->query_safe("SELECT durable_run('suspect')");
# it looks at the queue when it is told to read its settings
kill 'HUP', pid_of('scheduler');
as('app_bob', "SELECT durable_start('takes_time', '[0]', id => 'beside-suspect-' || i) FROM generate_series(1, 2) i");
wait_for("SELECT count(*) = 2 FROM durable.instances WHERE id LIKE 'beside-suspect-%' AND status = 'completed'", 'others run while a session has a suspect in hand');
$session->query_safe('COMMIT');
as('app_bob', "SELECT durable_start('takes_time', '[0]', id => 'after-suspect-' || i) FROM generate_series(1, 2) i");
wait_for("SELECT count(*) = 2 FROM durable.instances WHERE id LIKE 'after-suspect-%' AND status = 'completed'", 'and afterwards');
my @pids = split /\n/, sql("SELECT pid FROM durable.workers");
$before = 0;
$before += ticks($_) for @pids;
select undef, undef, undef, 0.5;
$used = -$before;
$used += ticks($_) for @pids;
note("all used $used ticks in half a second");
cmp_ok($used, '<', 10, 'nobody spins');
$session->quit;

$node->stop;
done_testing();
