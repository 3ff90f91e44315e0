# durable-worker: commands do the tasks of a queue (D18); a lost one's task is
# handed out again (D11, D15), failures follow the retry policy, a stop drains.
use strict;
use warnings;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

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
*kills*) # once: its work is done, but nobody tells the server
	trap '' TERM
	echo "$DURABLE_IDEMPOTENCY_KEY" >>"$1/done"
	if [ ! -e "$1/killed" ]; then : >"$1/killed"; kill -KILL $PPID; fi
	echo '"done"' ;;
*marked*) echo "$DURABLE_IDEMPOTENCY_KEY" >>"$1/marked"; echo "$args" ;;
*lingers*) sleep 2; echo "$DURABLE_ATTEMPT" ;;
*slow*) exec sleep 60 ;; # not as a child: that would outlive a killed worker
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

sub like_soon
{
	my ($worker, $pattern, $name) = @_;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if slurp_file($worker->{log}) =~ $pattern;
		usleep(100_000);
	}
	return like(slurp_file($worker->{log}), $pattern, $name);
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

# the time that the activity may be silent is shorter than a third of the lease
sql(q{SELECT durable_register_activity('quiet', queue => 'mail', heartbeat => '900 ms');
CREATE FUNCTION quiets(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_call('quiet', args); END $$;
SELECT durable_register('quiets'), durable_start('quiets', '"lingers"', id => 'lingers')});
becomes(q{SELECT durable_status('lingers') = 'completed'}, 'an activity with a heartbeat (D9)');
is(sql(q{SELECT durable_result('lingers')}), '1', 'is not given up: durable-worker goes by its time');

# Killed in other moments (D11, D15): before it has taken a task
sub lines { return -e "$dir/$_[0]" ? slurp_file("$dir/$_[0]") : ''; }
sub kill_worker
{
	my ($worker) = @_;
	kill 'KILL', $worker->{pid};
	eval { $worker->{handle}->finish };
	return;
}
kill_worker($two);
my $three = start_worker('three', '--lease', '2');
becomes(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%durable_task_wait%' AND state = 'active' AND pid <> pg_backend_pid()}, 'one waits for a task');
kill_worker($three);
sql(q{SELECT durable_start('mails', '"marked early"', id => 'marked early')});
my $four = start_worker('four', '--lease', '2');
becomes(q{SELECT durable_status('marked early') = 'completed'}, 'killed before it has taken a task: another one does it');
is(lines('marked'), "marked early/1/1\n", 'once');

# between the end of the command's work and the completion: it is done again,
# with the same key, by which the command could know that
sql(q{SELECT durable_start('mails', '"kills"', id => 'kills')});
eval { $four->{handle}->finish };
ok(-e "$dir/killed", 'the worker is killed by the command');
is(sql(q{SELECT state FROM durable.steps WHERE id = 'kills'}), 'queued', 'nobody knows that it is done');
my $five = start_worker('five', '--lease', '2');
becomes(q{SELECT durable_status('kills') = 'completed'}, 'killed before the completion: handed out again');
is(lines('done'), "kills/1/1\nkills/1/1\n", 'with the same key');
is(sql(q{SELECT attempts FROM durable.steps WHERE id = 'kills'}), '1', 'as the same attempt');

# after the completion: the result counts, and nothing is done again
sql(q{SELECT durable_start('mails', '"marked late"', id => 'marked late')});
becomes(q{SELECT durable_status('marked late') = 'completed'}, 'a task is completed');
kill_worker($five);
$two = start_worker('six', '--concurrency', '2', '--lease', '2');
sql(q{SELECT durable_start('mails', '"marked after"', id => 'marked after')});
becomes(q{SELECT durable_status('marked after') = 'completed'}, 'killed after the completion: the next one goes on');
is(lines('marked'), "marked early/1/1\nmarked late/1/1\nmarked after/1/1\n", 'and nothing is done twice');

# two serve one queue, one is killed in the middle of many tasks
my $seven = start_worker('seven', '--concurrency', '4', '--lease', '2');
sql(q{SELECT durable_start('mails', to_jsonb('marked ' || g), id => 'many ' || g) FROM generate_series(1, 200) g});
becomes(q{SELECT count(*) > 20 FROM durable.instances WHERE id LIKE 'many %' AND status = 'completed'}, 'two serve one queue');
kill_worker($seven);
becomes(q{SELECT count(*) = 200 FROM durable.instances WHERE id LIKE 'many %' AND status = 'completed'}, 'one is killed, and all tasks are done');
is(sql(q{SELECT count(*) FROM durable.steps WHERE id LIKE 'many %' AND attempts <> 1 OR id LIKE 'many %' AND result <> to_jsonb('marked ' || substr(id, 6))}), '0', 'each with its own result, in one attempt');
is(sql('SELECT count(*) FROM durable_internal.task') . sql('SELECT count(*) FROM durable_internal.inbox'), '00', 'and nothing is left');

# it reconnects
$node->restart;
sql(q{SELECT durable_start('mails', '"after"', id => 'after')});
becomes(q{SELECT durable_status('after') = 'completed'}, 'after a restart of the server it goes on');

# and drains: what is under way is ended, and nothing is taken any more
sub finishes
{
	my ($worker) = @_;
	return eval { $worker->{handle}->finish };
}
sql(q{SELECT durable_start('mails', '"lingers"', id => 'drained')});
becomes(q{SELECT count(*) = 1 FROM durable.tasks WHERE worker = 'six'}, 'a task is under way');
kill 'TERM', $two->{pid};
like_soon($two, qr/takes no more tasks; running: 1/, 'told to stop');
sql(q{SELECT durable_start('mails', '"later"', id => 'later')});
ok(finishes($two), 'it leaves in order') or diag(slurp_file($two->{log}));
becomes(q{SELECT durable_status('drained') = 'completed'}, 'when its task is done');
is(sql(q{SELECT worker IS NULL AND state = 'queued' FROM durable.tasks JOIN durable.steps s USING (id) WHERE id = 'later'}), 't', 'and has taken no other');

# told twice, it does not wait: the task is tried again by another one. What the
# role's settings say of statements and transactions is not for it.
my $eight = start_worker('eight', '--dbname', $node->connstr('postgres') .
	  q{ options='-c statement_timeout=300 -c default_transaction_isolation=serializable -c default_transaction_read_only=on'});
becomes(q{SELECT durable_status('later') = 'completed'}, 'a worker with unfit settings works');
becomes(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%durable_task_wait%' AND state = 'active' AND query_start < now() - interval '1 s' AND pid <> pg_backend_pid()}, 'and waits');
unlike(slurp_file($eight->{log}), qr/ERROR/, 'without errors');
sql(q{SELECT durable_start('mails', '"slow"', id => 'stopped')});
becomes(q{SELECT count(*) = 1 FROM durable.tasks WHERE worker = 'eight'}, 'a task is under way');
kill 'TERM', $eight->{pid};
like_soon($eight, qr/takes no more tasks/, 'told to stop');
kill 'TERM', $eight->{pid};
ok(!finishes($eight), 'told twice, it leaves at once, and says that not all is well');
becomes(q{SELECT count(*) = 1 FROM durable.events WHERE id = 'stopped' AND event = 'ActivityRetryScheduled' AND error ->> 'message' = 'durable-worker was stopped'}, 'the task is to be tried again');
eval { $one->{handle}->finish };

# a server that cannot wait is not bothered ten times a second
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
my $nine = start_worker('nine');
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if slurp_file($nine->{log}) =~ /next try in 0\.8 s/;
	usleep(100_000);
}
like(slurp_file($nine->{log}), qr/waiting needs durable in shared_preload_libraries.*next try in 0\.8 s/s,
	'the time between two tries grows, though connecting and polling work');
kill 'TERM', $nine->{pid};
ok($nine->{handle}->finish, 'and it can be told to stop') or diag(slurp_file($nine->{log}));

$node->stop;
done_testing();
