# durable-worker: commands do the tasks of a queue (D18); a lost one's task is
# handed out again (D11, D15), failures follow the retry policy, a stop drains.
use strict;
use warnings;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'durable'\n");
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub becomes
{
	my ($query, $name) = @_;
	return ok($node->poll_query_until('postgres', $query), $name);
}

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE FUNCTION mails(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN durable_call('mail', args);
END $$;
SELECT durable_register('mails');
SELECT durable_register_activity('mail', queue => 'mail',
    retry => durable_retry_policy(max_attempts => 3, initial => '10 ms'));
SQL

# what the command of a task does is told by its arguments
my $dir = PostgreSQL::Test::Utils::tempdir;
my $script = "$dir/mail";
append_to_file($script, <<'SH');
#!/bin/sh
read -r args
case $args in
*slow*) echo $$ >>"$1/running"; sleep 60; echo '"woke up"' ;;
*fails*) echo 'no such address' >&2; exit 1 ;;
*never*) echo 'not this one' >&2; exit 100 ;;
*garbage*) echo 'this is no JSON' ;;
*nothing*) ;;
*) printf '{"sent": %s, "attempt": %s}\n' "$args" "$DURABLE_ATTEMPT" ;;
esac
SH
chmod 0755, $script or die;

my @workers;

sub start_worker
{
	my ($name, @options) = @_;
	my $log = "$dir/$name.log";
	my $handle = IPC::Run::start(
		[
			'durable-worker', '--dbname', $node->connstr('postgres'), '--queue', 'mail', '--name', $name,
			@options, '--', $script, $dir
		],
		'<', \undef, '>', "$dir/$name.out", '2>', $log);
	my $worker = { handle => $handle, log => $log, pid => $handle->{KIDS}[0]{PID} };
	push @workers, $worker;
	return $worker;
}

command_fails_like([ 'durable-worker', '--', 'true' ], qr/queue/, 'a queue must be given');
command_like([ 'durable-worker', '--version' ], qr/durable-worker/, 'it tells its version');

my $one = start_worker('one', '--concurrency', '4', '--lease', '3');

# results and failures
sql("SELECT durable_start('mails', jsonb_build_object('n', g), id => 'mail ' || g) FROM generate_series(1, 40) g");
becomes(q{SELECT count(*) = 40 FROM durable.instances WHERE id LIKE 'mail %' AND status = 'completed'}, 'forty tasks are done');
is(sql(q{SELECT durable_result('mail 7')}), '{"sent": {"n": 7}, "attempt": 1}', 'with what the command printed');
sql(q{SELECT durable_start('mails', to_jsonb(id), id => id) FROM unnest('{fails,never,garbage,nothing}'::text[]) id});
becomes(q{SELECT count(*) = 4 FROM durable.instances WHERE id IN ('fails', 'never', 'garbage', 'nothing') AND ended_at IS NOT NULL},
	'others end too');
is( sql(q{SELECT string_agg(id || ' ' || state || ' ' || attempts, ', ' ORDER BY id) FROM durable.steps
           WHERE id IN ('fails', 'never', 'garbage', 'nothing')}),
	'fails failed 3, garbage failed 3, never failed 1, nothing completed 1', 'by the retry policy');
like(sql(q{SELECT error FROM durable.instances WHERE id = 'fails'}), qr/no such address/, 'with what the command said');
is(sql(q{SELECT durable_result('nothing') IS NULL}), 't', 'no output is NULL');

# D11, D15: one of two is killed in the middle of a task
sql(q{SELECT durable_start('mails', '"slow"', id => 'slow')});
becomes(q{SELECT count(*) = 1 FROM durable.tasks WHERE worker = 'one'}, 'a task is under way');
my $two = start_worker('two', '--concurrency', '2', '--lease', '3');
kill 'KILL', $one->{pid};
becomes(q{SELECT count(*) = 1 FROM durable.tasks WHERE worker = 'two'}, 'it is handed out again when its lease is over');
is(sql(q{SELECT attempt FROM durable.tasks}), '1', 'as the same attempt');

# a cancel kills the command
sql(q{SELECT durable_cancel('slow')});
becomes(q{SELECT durable_status('slow') = 'cancelled'}, 'a cancel ends the workflow');
becomes(q{SELECT count(*) = 0 FROM durable.tasks}, 'and withdraws the task');

# it reconnects
$node->restart;
sql(q{SELECT durable_start('mails', '"after"', id => 'after')});
becomes(q{SELECT durable_status('after') = 'completed'}, 'after a restart of the server it goes on');

# and drains
kill 'TERM', $two->{pid};
ok($two->{handle}->finish, 'told to stop, it leaves in order') or diag(slurp_file($two->{log}));
eval { $one->{handle}->finish };

$node->stop;
done_testing();
