# The background runtime through the life of a server: databases and the
# extension come and go under busy workers, settings are reloaded, processes
# run out, hints are lost (J3, J4, J8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('life');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
max_prepared_transactions = 10
max_connections = 40
fsync = off
CONF
$node->start;

sub sql { my ($db, $sql, @more) = @_; return $node->safe_psql($db, $sql, @more); }

sub as
{
	my ($role, $db, $sql) = @_;
	return $node->safe_psql($db, $sql, extra_params => [ '-U', $role ]);
}

# soon DB, SQL, EXPECTED, NAME [, SECONDS]
sub soon
{
	my ($db, $sql, $expected, $name, $seconds) = @_;
	local $PostgreSQL::Test::Utils::timeout_default = $seconds // 40;
	return ok($node->poll_query_until($db, $sql, $expected), $name);
}

# at_once LIMIT, NAME, CODE: runs it, which must not take longer.
sub at_once
{
	my ($limit, $name, $code) = @_;
	my $begin = time;
	$code->();
	return cmp_ok(time - $begin, '<', $limit, "$name is prompt");
}

sub logged { my ($pattern, $offset) = @_; my @all = substr(slurp_file($node->logfile), $offset) =~ /$pattern/g; return scalar @all; }
sub log_end { return -s $node->logfile; }

sub reload
{
	my (%settings) = @_;
	sql('postgres', "ALTER SYSTEM SET $_ = $settings{$_}") for sort keys %settings;
	$node->reload;
	return;
}

# A gate keeps workers as busy as is wanted: gated runs until it is open.
my $workflows = <<'SQL';
CREATE EXTENSION durable;
CREATE TABLE gate (name text PRIMARY KEY);
CREATE TABLE done (id text, role name DEFAULT current_user, pid int DEFAULT pg_backend_pid(), at timestamptz DEFAULT clock_timestamp());
GRANT ALL ON gate, done TO PUBLIC;
CREATE FUNCTION pass_gate(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		EXIT WHEN EXISTS (SELECT FROM gate g WHERE g.name = pass_gate.name);
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
CREATE FUNCTION note(id text) RETURNS void LANGUAGE sql AS 'INSERT INTO done VALUES (id)';
CREATE FUNCTION nap(seconds float8) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(seconds)';
CREATE FUNCTION gated(name text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('public.pass_gate', jsonb_build_object('name', name));
	PERFORM durable_call('public.note', jsonb_build_object('id', durable_instance_id()));
	RETURN to_jsonb(name);
END $$;
CREATE FUNCTION quick(seconds float8 DEFAULT 0) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF seconds > 0 THEN
		PERFORM durable_call('public.nap', jsonb_build_object('seconds', seconds));
	END IF;
	PERFORM durable_call('public.note', jsonb_build_object('id', durable_instance_id()));
	RETURN '1';
END $$;
CREATE FUNCTION signalled() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_wait_signal('go');
	PERFORM durable_call('public.note', jsonb_build_object('id', durable_instance_id()));
	RETURN '1';
END $$;
SELECT durable_register('gated'), durable_register('quick'), durable_register('signalled');
SQL

sub busy_database
{
	my ($db) = @_;
	sql('postgres', "CREATE DATABASE $db");
	sql($db, $workflows);
	sql($db, q{SELECT durable_start('gated', '{"name": "g"}', id => 'g' || i) FROM generate_series(1, 3) i});
	soon($db, q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '3', "$db: workers are busy");
	return;
}

#
# CREATE EXTENSION is noticed at its commit, not when it is rolled back.
#
sql('postgres', 'CREATE DATABASE late');
sql('late', 'BEGIN; CREATE EXTENSION durable; ROLLBACK');
is(sql('late', q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'late' AND backend_type = 'durable scheduler'}),
	'0', 'CREATE EXTENSION rolled back: no scheduler stays');
sql('late', 'CREATE EXTENSION durable');
soon('late', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1',
	'CREATE EXTENSION starts a scheduler at its commit', 5);

#
# Databases that must be empty of sessions (J4).
#
busy_database('one');
my $offset = log_end();
at_once(4, 'ALTER DATABASE RENAME', sub { sql('postgres', 'ALTER DATABASE one RENAME TO two') });
soon('two', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '3', 'renamed: the instances go on');
is(sql('two', q{SELECT count(*) FROM durable_internal.instance WHERE crashes > 0 OR suspect}), '0',
	'no crash is counted (J8)');

at_once(6, 'CREATE DATABASE TEMPLATE', sub { sql('postgres', 'CREATE DATABASE three TEMPLATE two') });
soon('two', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '3', 'copied: the instances of the original go on');
soon('three', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1',
	'the copy has a scheduler');
sql('two', q{INSERT INTO gate VALUES ('g')});
soon('two', q{SELECT count(*) FROM durable.instances WHERE status = 'completed'}, '3', 'and complete');
is(sql('two', 'SELECT count(*), count(DISTINCT id) FROM done'), '3|3', 'each step once');

# One that may not do it does no harm either.
sql('postgres', 'CREATE ROLE nobody LOGIN');
sql('two', q{DELETE FROM gate; SELECT durable_start('gated', '{"name": "g"}', id => 'h' || i) FROM generate_series(1, 3) i});
soon('two', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '3', 'busy again');
my $pids = q{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM durable.workers WHERE kind <> 'launcher'};
my $before = sql('two', $pids);
for my $command ('DROP DATABASE two', 'DROP DATABASE two WITH (FORCE)', 'ALTER DATABASE two RENAME TO mine',
	'CREATE DATABASE mine TEMPLATE two', 'ALTER DATABASE two SET TABLESPACE pg_default',
	'BEGIN; DROP DATABASE two')
{
	my ($status, $out, $err) = $node->psql('postgres', $command, extra_params => [ '-U', 'nobody' ]);
	isnt($err, '', "nobody: $command is refused");
	is(sql('two', $pids), $before, "nobody: $command sends no process away");
}
{
	my ($status, $out, $err) = $node->psql('two', 'DROP DATABASE two');
	like($err, qr/currently open database/, 'the current database cannot be dropped');
	is(sql('two', $pids), $before, 'and nobody left it');
}

# A command that gives up lets our processes in again.
{
	my $other = $node->background_psql('two');
	my ($status, $out, $err) = $node->psql('postgres', 'DROP DATABASE two');
	like($err, qr/being accessed by other users/, 'a database with other sessions is not dropped');
	soon('two', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '3', 'the workers come back');
	$other->quit;
}
# given up in any moment; the other session sees to it that it is not dropped
{
	my $other = $node->background_psql('two');
	for my $try (1 .. 20)
	{
		$node->psql('postgres', "SET statement_timeout = $try; DROP DATABASE two");
	}
	soon('two', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '3',
		'a cancelled DROP DATABASE lets the workers come back', 5);
	soon('two', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1', 'and a scheduler', 5);
	is(sql('two', q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'two' AND backend_type = 'durable scheduler'}), '1',
		'just one');
	$other->quit;
}

at_once(4, 'DROP DATABASE', sub { $node->psql('postgres', 'DROP DATABASE two') });
is(sql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'two'}), '0', 'dropped with busy workers');
soon('three', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '3', 'workers of the copy are busy');
at_once(4, 'DROP DATABASE WITH FORCE', sub { sql('postgres', 'DROP DATABASE three WITH (FORCE)') });
cmp_ok(logged(qr/PANIC|TRAP|was terminated by signal/, $offset), '==', 0, 'no process crashed');

#
# DROP EXTENSION with busy workers, and CREATE again (J4).
#
busy_database('again');
at_once(5, 'DROP EXTENSION', sub {
	my ($status, $out, $err) = $node->psql('again', q{SET statement_timeout = '8 s'; DROP EXTENSION durable});
	is($err, '', 'DROP EXTENSION with busy workers');
});
sql('again', 'DROP EXTENSION IF EXISTS durable; DROP TABLE gate, done; DROP FUNCTION gated, quick, signalled, pass_gate, note, nap')
  if !$node->psql('again', q{INSERT INTO gate VALUES ('g')});
soon('again', q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'again' AND backend_type LIKE 'durable%'}, '0',
	'no process of ours stays without the extension', 5);
$offset = log_end();
sql('again', $workflows);
sql('again', q{SELECT durable_start('quick', id => 'q' || i) FROM generate_series(1, 20) i});
soon('again', q{SELECT count(*) FROM durable.instances WHERE status = 'completed'}, '20', 'created again: instances run');
is(logged(qr/ERROR|FATAL/, $offset), 0, 'without an error');
for my $i (1 .. 5)
{
	sql('again', 'DROP EXTENSION durable');
	sql('again', 'CREATE EXTENSION durable');
}
soon('again', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1', 'drop and create in a row', 5);
sql('postgres', 'DROP DATABASE again');

#
# Several databases at once; durable.databases narrows it by a reload.
#
for my $db (qw(db1 db2 db3))
{
	sql('postgres', "CREATE DATABASE $db");
	sql($db, $workflows);
	sql($db, q{SELECT durable_start('quick', id => 'q' || i) FROM generate_series(1, 50) i});
}
soon($_, q{SELECT count(*) FROM durable.instances WHERE status = 'completed'}, '50', "$_: all complete") for qw(db1 db2 db3);
reload('durable.databases' => q{'db1, db3'});
soon('db2', q{SELECT count(*) FROM durable.workers WHERE kind <> 'launcher'}, '0',
	'durable.databases without db2: our processes leave it');
sql($_, q{SELECT durable_start('quick', id => 'narrow')}) for qw(db1 db2 db3);
soon($_, q{SELECT durable_status('narrow')}, 'completed', "$_ goes on") for qw(db1 db3);
is(sql('db2', q{SELECT durable_status('narrow')}), 'pending', 'nothing runs in db2');
reload('durable.databases' => q{'*'});
soon('db2', q{SELECT durable_status('narrow')}, 'completed', 'until it is let in again');

#
# Reloads (each setting that a reload can change).
#
sql('db1', q{SELECT durable_start('gated', '{"name": "r"}', id => 'r' || i) FROM generate_series(1, 8) i});
soon('db1', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '4', 'durable.max_workers is 4');
reload('durable.max_workers' => 6);
soon('db1', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '6', 'reloaded: 6', 5);
reload('durable.max_workers' => 2);
sql('db1', q{SELECT durable_start('quick', '{"seconds": 0.05}') FROM generate_series(1, 100) i; INSERT INTO gate VALUES ('r')});
soon('db1', q{SELECT count(*) <= 2 FROM durable.workers WHERE kind = 'worker'}, 't',
	'reloaded: 2, though there is work', 2);
soon('db1', q{SELECT count(*) FROM durable.instances WHERE status <> 'completed'}, '0', 'all of it is done', 20);

reload('durable.max_workers' => 4);
sql('db1', q{SELECT durable_start('quick', '{"seconds": 0.05}') FROM generate_series(1, 20) i});
soon('db1', q{SELECT count(*) FROM durable.instances WHERE status <> 'completed'}, '0', 'work for four');
cmp_ok(sql('db1', q{SELECT count(*) FROM durable.workers WHERE kind = 'worker'}), '>', 1, 'several workers rest');
reload('durable.worker_idle_timeout' => q{'1 s'});
soon('db1', q{SELECT count(*) FROM durable.workers WHERE kind = 'worker'}, '1',
	'reloaded idle timeout: workers that rest leave, and one stays warm', 4);
my $warm = q{SELECT pid FROM durable.workers WHERE kind = 'worker'};
my $pid = sql('db1', $warm);
# when all the others of other roles and databases have left too
soon('db2', q{SELECT count(*) <= 1 FROM durable.workers WHERE kind = 'worker'}, 't', 'in the other database as well', 4);
is(sql('db1', $warm), $pid, 'the warm one is still there');

# A lost hint is found by the sweep: COMMIT PREPARED tells nobody.
sql('db1', q{SELECT durable_start('signalled', id => 's1')});
soon('db1', q{SELECT durable_status('s1')}, 'waiting_for_event', 'an instance waits for a signal');
reload('durable.sweep_interval' => q{'1 s'});
sql('db1', q{BEGIN; SELECT durable_start('quick', id => 'prepared'); PREPARE TRANSACTION 'p1'});
sql('db1', q{COMMIT PREPARED 'p1'});
soon('db1', q{SELECT durable_status('prepared')}, 'completed', 'a prepared durable_start is found by the sweep', 5);
sql('db1', q{BEGIN; SELECT durable_signal('s1', 'go'); PREPARE TRANSACTION 'p2'});
sql('db1', q{COMMIT PREPARED 'p2'});
soon('db1', q{SELECT durable_status('s1')}, 'completed', 'a prepared durable_signal too', 5);
reload('durable.max_crashes' => 7);
soon('db1', 'SHOW durable.max_crashes', '7', 'durable.max_crashes is reloaded');
reload('durable.sweep_interval' => q{'60 s'}, 'durable.worker_idle_timeout' => q{'60 s'});

#
# Others take the place of launcher and scheduler, and are told all the same (J8).
#
sub terminate { my ($db, $kind) = @_; return sql($db, "SELECT count(pg_terminate_backend(pid)) FROM durable.workers WHERE kind = '$kind'"); }
terminate('db1', 'scheduler');
soon('db1', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1', 'a terminated scheduler is replaced', 5);
sql('db1', q{SELECT durable_start('gated', '{"name": "t"}', id => 't1')});
soon('db1', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '1', 'a worker is busy');
terminate('db1', 'scheduler');
soon('db1', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1', 'the scheduler is replaced again', 5);
terminate('db1', 'worker');
soon('db1', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '1',
	'a worker that the former scheduler had started is replaced', 5);
sql('db1', q{INSERT INTO gate VALUES ('t')});
soon('db1', q{SELECT durable_status('t1')}, 'completed', 'its instance completes');
terminate('db1', 'launcher');
soon('db1', q{SELECT count(*) FROM durable.workers WHERE kind = 'launcher'}, '1', 'a terminated launcher is replaced', 5);
terminate('db1', 'scheduler');
soon('db1', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1',
	'a scheduler that the former launcher had started is replaced', 5);

#
# Fairness: two workers, three roles with work; one of them has a lot.
#
reload('durable.max_workers' => 2);
sql('db3', qq{CREATE ROLE $_ LOGIN; GRANT USAGE ON SCHEMA durable TO $_}) for qw(a b c d);
as('a', 'db3', q{SELECT durable_start('quick', '{"seconds": 0.05}', id => 'a' || i) FROM generate_series(1, 250) i});
soon('db3', q{SELECT count(*) > 5 FROM done WHERE role = 'a'}, 't', 'a role has work for long');
as($_, 'db3', qq{SELECT durable_start('quick', '{"seconds": 0.01}', id => '$_' || i) FROM generate_series(1, 5) i}) for qw(b c);
soon('db3', q{SELECT count(*) FROM done WHERE role IN ('b', 'c')}, '10', 'the others have their turn', 4);
soon('db3', q{SELECT count(*) FROM durable.instances WHERE run_as = 'a' AND status <> 'completed'}, '0', 'and it ends as well', 20);
is(sql('db3', q{SELECT count(*) > 0 FROM done x WHERE role = 'a' AND at > (SELECT max(at) FROM done WHERE role IN ('b', 'c'))}),
	't', 'they did not have to wait for all of it');
# all workers rest now, those of two roles
as('d', 'db3', q{SELECT durable_start('quick', id => 'd1')});
soon('db3', q{SELECT status FROM durable.instances WHERE id = 'd1'}, 'completed', 'resting workers of other roles make room', 4);

#
# A fast stop with busy workers is prompt, and counts no crash (J8).
#
reload('durable.max_workers' => 4);
sql('db1', q{SELECT durable_start('gated', '{"name": "f"}', id => 'f' || i) FROM generate_series(1, 4) i});
soon('db1', q{SELECT count(*) FROM durable.workers WHERE state = 'busy'}, '4', 'busy before the stop');
at_once(5, 'fast stop', sub { $node->stop('fast') });
$node->append_conf('postgresql.conf', "max_worker_processes = 8\n");
$offset = log_end();
$node->start;
sql('db1', q{INSERT INTO gate VALUES ('f')});
soon('db1', q{SELECT count(*) FROM durable.instances WHERE id ~ '^f[1-4]$' AND status = 'completed'}, '4', 'they go on after the start');
is(sql('db1', q{SELECT count(*) FROM durable_internal.instance WHERE crashes > 0 OR suspect}), '0', 'no crash is counted');

#
# max_worker_processes exhausted (J3): four schedulers (late, db1, db2, db3), the launcher and
# the server's own leave two workers for all.
#
sql($_, q{SELECT durable_start('quick', '{"seconds": 0.05}', id => 'x' || i) FROM generate_series(1, 20) i}) for qw(db1 db2 db3);
soon($_, q{SELECT count(*) FROM durable.instances WHERE id ~ '^x' AND status = 'completed'}, '20', "$_: few processes, all complete", 15)
  for qw(db1 db2 db3);
cmp_ok(logged(qr/no room for another worker.*?\n.*?HINT:  Increase max_worker_processes/, $offset), '>=', 1, 'the log says so, with a hint');
cmp_ok(logged(qr/no room for another worker/, $offset), '<', 30, 'not all the time');
as('a', 'db3', q{SELECT durable_start('quick', id => 'xa')});
soon('db3', q{SELECT status FROM durable.instances WHERE id = 'xa'}, 'completed', 'a role without a worker gets one from those that rest', 10);

# More databases than processes, most of them without the extension.
sql('postgres', "CREATE DATABASE empty$_ STRATEGY file_copy") for 1 .. 6;
sql('postgres', 'DROP DATABASE late');
soon('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'durable scheduler'}, '3', 'schedulers of three databases');
$node->restart;
$offset = log_end();
soon('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'durable scheduler'}, '3',
	'databases without the extension take no place from those that have it');
sql('empty6', 'CREATE EXTENSION durable');
soon('empty6', q{SELECT count(*) FROM durable.workers WHERE kind = 'scheduler'}, '1', 'nor from one that gets it');
cmp_ok(logged(qr/no room for the scheduler/, $offset), '<', 5, 'the log is not filled');

$node->stop('fast');
done_testing();
