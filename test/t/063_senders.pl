# The fault hits who sends: in the middle of a transaction that has sent, right
# after its commit, and while several send without a pause.  What was committed
# arrives once, what was not leaves no trace (E3, E6, E8, E9, E12, G2, J1).
use strict;
use warnings;
use IPC::Run;
use DurableTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# a wake-up that is lost would be found by the next sweep: too late
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
restart_after_crash = on
durable.sweep_interval = '10 min'
durable.max_workers = 3
durable.max_crashes = 100
CONF
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# shows QUERY, EXPECTED, NAME
sub shows
{
	my ($query, $expected, $name) = @_;
	return is(sql($query), $expected, $name);
}

sub becomes
{
	my ($query, $name) = @_;
	return ok($node->poll_query_until('postgres', $query), $name);
}

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE TABLE sent (kind text, n int, update_id bigint);
CREATE TABLE effect (id text, n int);
CREATE FUNCTION note(id text, n int) RETURNS void LANGUAGE sql AS 'INSERT INTO effect VALUES (id, n)';

-- folds numbers, by signals and updates
CREATE FUNCTION fold(state jsonb, n jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT state || n $$;
CREATE FUNCTION fold_update(state jsonb, n jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_object('state', state || n, 'result', n) $$;
CREATE FUNCTION folds() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_set_state('[]');
	PERFORM durable_on_signal('add', 'fold');
	PERFORM durable_on_update('add', 'fold_update');
	PERFORM durable_wait_signal('end');
	RETURN durable_state();
END $$;

-- notes events, each once, until the last
CREATE FUNCTION listens(type text, mode text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	n int;
BEGIN
	PERFORM durable_subscribe(type, mode);
	LOOP
		n := durable_wait_event(type) -> 'data';
		EXIT WHEN n < 0;
		PERFORM durable_call('note', jsonb_build_array(durable_instance_id(), n));
	END LOOP;
END $$;
CREATE FUNCTION waits() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable_wait_signal('go'); END $$;
SELECT durable_register(w) FROM unnest('{folds,listens,waits}'::text[]) w;

SELECT durable_start('folds', id => 'folds ' || g) FROM generate_series(1, 4) g;
SELECT durable_start('listens', '["news", "broadcast"]', id => 'news ' || g) FROM generate_series(1, 3) g;
SELECT durable_start('listens', '["job", "competing"]', id => 'job ' || g) FROM generate_series(1, 3) g;
SELECT durable_start('waits', id => 'waits ' || g) FROM generate_series(1, 20) g;
SQL
becomes(q{SELECT count(*) = 30 FROM durable.instances WHERE status = 'waiting_for_event'}, 'all wait');

sub kill_process { return crash_of($node, $_[0]); }

sub stop_at_once { $node->stop('immediate'); $node->start; return; }

# One of each in one transaction, to who else gets nothing.
sub one_of_each
{
	my ($n) = @_;
	return <<"SQL";
BEGIN;
SELECT durable_signal('waits $n', 'go', '$n', dedup_key => 'once');
SELECT durable_update('folds 1', 'add', '$n');
SELECT durable_publish('news', '$n', event_id => 'event $n');
SELECT durable_publish('job', '$n', event_id => 'job $n');
SELECT durable_cancel('waits ' || $n + 10);
SELECT durable_start('waits', id => 'started $n');
SELECT durable_signal_start('waits', '{}', 'both $n', 'go', '$n');
SQL
}

sub session_that
{
	my ($script) = @_;
	my $session = $node->background_psql('postgres', on_error_die => 1);
	my $pid = $session->query('SELECT pg_backend_pid()');
	$session->query($script);
	return ($session, $pid);
}

#
# E9: not committed: its own backend dies, another's does, the server is stopped
#
my @open = (
	sub { kill_process($_[0]); },
	sub { kill_process(sql(q{SELECT pid FROM durable.workers WHERE kind = 'worker' LIMIT 1}) || $_[0]); },
	sub { stop_at_once(); });
for my $fault (@open)
{
	my ($session, $pid) = session_that(one_of_each(1));
	$fault->($pid);
	eval { $session->{run}->kill_kill; };
}
shows(q{SELECT (SELECT count(*) FROM durable_internal.inbox), (SELECT count(*) FROM durable_internal.event_id),
		(SELECT count(*) FROM durable_internal.signal_key), (SELECT count(*) FROM durable_internal.answer),
		(SELECT count(*) FROM durable.instances), (SELECT count(*) FROM effect),
		(SELECT count(*) FROM durable.instances WHERE ended_at IS NOT NULL)},
	'0|0|0|0|30|0|0', 'what was not committed left no trace');

#
# committed just before the fault
#
my @faults = (
	sub { kill_process($_[0]); },
	sub { stop_at_once(); },
	sub { kill_process(sql(q{SELECT pid FROM durable.workers WHERE kind = 'scheduler'}) || $_[0]); });
for my $n (1 .. 3)
{
	my ($session, $pid) = session_that(one_of_each($n) . "COMMIT;\n");
	$faults[ $n - 1 ]->($pid);
	eval { $session->{run}->kill_kill; };
	# published again, as by who has got no answer
	sql("SELECT durable_publish('news', '$n', event_id => 'event $n'), durable_publish('job', '$n', event_id => 'job $n')");
}
becomes(q{SELECT count(*) = 9 FROM durable.instances WHERE status IN ('completed', 'cancelled')}, 'the committed arrived');
becomes(q{SELECT count(*) = 12 FROM effect}, 'and the events');
shows(q{SELECT id, status, result FROM durable.instances WHERE id ~ '^(waits|both)' AND ended_at IS NOT NULL ORDER BY id},
	join("\n", 'both 1|completed|1', 'both 2|completed|2', 'both 3|completed|3', 'waits 1|completed|1', 'waits 11|cancelled|',
		'waits 12|cancelled|', 'waits 13|cancelled|', 'waits 2|completed|2', 'waits 3|completed|3'),
	'each once');
shows(q{SELECT n, count(*) FILTER (WHERE id LIKE 'news%'), count(*) FILTER (WHERE id LIKE 'job%') FROM effect GROUP BY n ORDER BY n},
	"1|3|1\n2|3|1\n3|3|1", 'events once, also when published again');
shows(q{SELECT durable_query('folds 1')}, '[1, 2, 3]', 'updates once');

#
# several send without a pause, and note in the same transaction what.  It is
# more than they can send before the fault.
#
my $each = 3000;
sub sender_file
{
	my ($round, $sender) = @_;
	my $script = '';
	for my $i (1 .. $each)
	{
		my $n = $round * 100000 + $sender * 10000 + $i;
		my $to = 'folds ' . ($i % 4 + 1);
		$script .= "BEGIN; INSERT INTO sent VALUES ('signal', $n); SELECT durable_signal('$to', 'add', '$n'); COMMIT;\n";
		$script .= "INSERT INTO sent SELECT 'update', -$n, durable_update('$to', 'add', '-$n');\n";
		$script .= "BEGIN; INSERT INTO sent VALUES ('news', $n); SELECT durable_publish('news', '$n'); COMMIT;\n" if $i % 5 == 0;
		$script .= "BEGIN; INSERT INTO sent VALUES ('job', $n); SELECT durable_publish('job', '$n'); COMMIT;\n" if $i % 5 == 1;
		$script .= "BEGIN; INSERT INTO sent VALUES ('cancel', $n); SELECT durable_start('waits', id => 'cancel $n'); COMMIT;\n"
		  . "BEGIN; INSERT INTO sent VALUES ('cancelled', $n); SELECT durable_cancel('cancel $n'); COMMIT;\n" if $i % 10 == 2;
	}
	my $file = PostgreSQL::Test::Utils::tempdir() . "/sender_${round}_$sender.sql";
	append_to_file($file, $script);
	return $file;
}

sub sender_pid { return sql(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'sender' LIMIT 1}); }

my @hits = (
	sub { kill_process(sender_pid()); },
	sub { stop_at_once(); },
	sub { kill_process(sql(q{SELECT pid FROM durable.workers WHERE kind = 'worker' LIMIT 1})); },
	sub { kill_process(sender_pid()); });
my $interrupted = 0;
for my $round (1 .. @hits)
{
	my @senders = map {
		my $out = '';
		IPC::Run::start(
			[ 'psql', '-X', '-q', '-A', '-t', '-d', $node->connstr('postgres') . ' application_name=sender', '-f', sender_file($round, $_) ],
			'>', \$out, '2>', \$out)
	} 1 .. 3;
	$node->poll_query_until('postgres',
		"SELECT count(*) > 60 FROM sent WHERE kind = 'signal' AND n / 100000 = $round");
	$hits[ $round - 1 ]->();
	for my $sender (@senders)
	{
		$sender->finish;
		$interrupted++ if $sender->result(0) != 0;
	}
}
cmp_ok($interrupted, '>', 0, "senders were interrupted: $interrupted");
sql(q{SELECT durable_publish('news', '-1')});
sql(q{SELECT durable_publish('job', '-1') FROM generate_series(1, 3)});
becomes(q{SELECT count(*) = 0 FROM durable.instances WHERE id ~ '^(news|job) ' AND ended_at IS NULL}, 'the listeners end');
becomes(q{SELECT count(*) = 0 FROM durable_internal.inbox}, 'every message was taken');
becomes(q{SELECT count(*) = 0 FROM sent s WHERE kind = 'cancelled' AND durable_status('cancel ' || n) <> 'cancelled'}, 'every cancel');
shows(q{WITH got AS (SELECT v::int AS n FROM generate_series(1, 4) g, jsonb_array_elements_text(durable_query('folds ' || g)) v)
		SELECT (SELECT count(*) > 300 FROM got), (SELECT count(*) FROM got GROUP BY n HAVING count(*) > 1 LIMIT 1),
		(SELECT count(*) FROM got WHERE abs(n) > 100000 AND n NOT IN (SELECT n FROM sent)),
		(SELECT count(*) FROM sent WHERE kind IN ('signal', 'update') AND n NOT IN (SELECT n FROM got))},
	't||0|0', 'signals and updates: none twice, none that was not committed, none lost');
shows(q{SELECT count(*) FROM sent WHERE kind = 'update' AND durable_update_result(update_id)::int IS DISTINCT FROM n},
	0, 'every update has its answer');
shows(q{SELECT count(*) FROM (SELECT s.n, count(e.n) FROM sent s LEFT JOIN effect e ON e.n = s.n AND e.id LIKE 'news %'
		WHERE s.kind = 'news' GROUP BY s.n HAVING count(e.n) <> 3) x},
	0, 'every event reached every subscriber once');
shows(q{SELECT count(*) FROM (SELECT s.n, count(e.n) FROM sent s LEFT JOIN effect e ON e.n = s.n AND e.id LIKE 'job %'
		WHERE s.kind = 'job' GROUP BY s.n HAVING count(e.n) <> 1) x},
	0, 'every event for one reached one');
shows(q{SELECT count(*) FROM effect WHERE n > 100000 AND n NOT IN (SELECT n FROM sent WHERE kind IN ('news', 'job'))},
	0, 'no event that was not committed');
shows(q{SELECT count(*) FROM durable.instances WHERE id LIKE 'cancel %' AND status = 'cancelled'
		AND substr(id, 8)::int NOT IN (SELECT n FROM sent WHERE kind = 'cancelled')},
	0, 'no cancel that was not committed');
sql(q{SELECT durable_signal('folds ' || g, 'end') FROM generate_series(1, 4) g});
becomes(q{SELECT count(*) = 0 FROM durable.instances WHERE workflow = 'folds' AND ended_at IS NULL}, 'all end');
shows(q{SELECT count(*) FROM (SELECT FROM durable_internal.history GROUP BY iid HAVING count(*) <> max(seq)) x},
	0, 'no history has a gap');

$node->stop;
done_testing();
