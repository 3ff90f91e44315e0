# J1, A8, A9: the server crashes while instances run: because a backend was
# killed within an activity, and by a stop of mode immediate while several
# sessions work.  Afterwards all go on, and each effect is there once.
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $instances = 150;    # of each workflow
my $steps = 6;
my $sessions = 6;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->start;

$node->safe_psql('postgres', qq{
	CREATE EXTENSION durable;
	CREATE TABLE effect (id text, step int);
	CREATE FUNCTION act(id text, step int) RETURNS int LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO effect VALUES (id, step);
		PERFORM pg_advisory_xact_lock_shared(1) WHERE id = 'gate' AND step = 3;
		RETURN step;
	END \$\$;

	-- each waits once in the middle, for a message or for a moment
	CREATE FUNCTION steps(id text) RETURNS int LANGUAGE plpgsql AS \$\$
	DECLARE
		sum int := 0;
	BEGIN
		FOR i IN 1..$steps LOOP
			sum := sum + durable_call_as(NULL::int, 'act', jsonb_build_object('id', id, 'step', i));
			IF i = 3 THEN
				PERFORM durable_wait_signal('go');
			ELSIF i = 4 THEN
				PERFORM durable_sleep('1 ms');
			END IF;
		END LOOP;
		RETURN sum;
	END \$\$;
	CREATE PROCEDURE steps_in_place(id text) LANGUAGE plpgsql AS \$\$
	DECLARE
		go jsonb;
	BEGIN
		FOR i IN 1..$steps LOOP
			CALL durable_step('act', jsonb_build_object('id', id, 'step', i));
			IF i = 3 THEN
				go := durable_wait_signal('go');
			ELSIF i = 4 THEN
				PERFORM durable_sleep('1 ms');
			END IF;
		END LOOP;
	END \$\$;
	SELECT durable_register('steps');
	SELECT durable_register('steps_in_place');
});

sub start_session
{
	my (@commands) = @_;
	my $session = { out => '', err => '' };
	$session->{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), map { ('-c', $_) } @commands ],
		'<', \undef, '>', \$session->{out}, '2>', \$session->{err});
	return $session;
}

sub query
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Drives until nothing is left to do.
sub drive_to_the_end
{
	for (1 .. 1000)
	{
		query('CALL durable_work()');
		return 1 if query('SELECT count(*) FROM durable.instances WHERE ended_at IS NULL') eq '0';
	}
	return 0;
}

sub check_all
{
	my ($what) = @_;
	ok(drive_to_the_end(), "$what: all go on to their end");
	is(query('SELECT status, count(*) FROM durable.instances GROUP BY status'),
		'completed|' . query('SELECT count(*) FROM durable.instances'),
		"$what: all are completed");
	is( query('SELECT count(*), count(DISTINCT (id, step)) FROM effect'),
		join('|', (query('SELECT count(*) FROM durable.instances') * $steps) x 2),
		"$what: each effect is there once");
	is(query(q{SELECT count(*) FROM (SELECT id FROM durable.events GROUP BY id
				HAVING max(seq) <> count(*) OR count(*) FILTER (WHERE event = 'ActivityCompleted') <> } . $steps . q{
				OR count(*) FILTER (WHERE event = 'SignalReceived') <> 1
				OR count(*) FILTER (WHERE event = 'TimerExpired') <> 1) bad}),
		'0', "$what: the histories are complete");
	is(query('SELECT (SELECT count(*) FROM durable_internal.ready), (SELECT count(*) FROM durable_internal.timer),
			(SELECT count(*) FROM durable_internal.inbox)'),
		'0|0|0', "$what: nothing is left over");
}

#
# A backend is killed within an activity
#
for my $workflow (qw(steps steps_in_place))
{
	my $keeper = $node->background_psql('postgres');
	$keeper->query_safe('SELECT pg_advisory_lock(1)');
	query(qq{SELECT durable_start('$workflow', '"gate"', id => 'gate')});
	query(q{SELECT durable_signal('gate', 'go')});
	my $driver = start_session('CALL durable_work()');
	my $waits = q{FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted};
	$node->poll_query_until('postgres', "SELECT count(*) = 1 $waits");
	my $pid = query("SELECT pid $waits");

	my $offset = -s $node->logfile;
	kill 'KILL', $pid;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
	$driver->{run}->finish;
	eval { $keeper->quit };
	$node->poll_query_until('postgres', 'SELECT 1', '1')
	  or die 'the server did not come back';
	is(query('SELECT count(*) FROM effect'), '2',
		"$workflow: the step that was killed left no trace");
	check_all("$workflow, killed");
	query('TRUNCATE effect, durable_internal.instance, durable_internal.history');
}

#
# The whole server stops at once, several times, while sessions work
#
query(qq{SELECT count(durable_start(w, to_jsonb(w || g), id => w || g))
		   FROM generate_series(1, $instances) g, unnest(ARRAY['steps', 'steps_in_place']) w});
my $killed = 0;
for my $round (1 .. 3)
{
	# there is always more to do than is done before the stop
	query(qq{SELECT count(durable_signal(w || g, 'go'))
			   FROM generate_series(1 + ($round - 1) * $instances / 3, $round * $instances / 3) g,
					unnest(ARRAY['steps', 'steps_in_place']) w});
	my $before = query('SELECT count(*) FROM effect');

	# commits that are not flushed are lost with their effects
	my $setting = $round == 2 ? 'off' : 'on';
	my @sessions = map {
		start_session("SET synchronous_commit = $setting", 'CALL durable_work()')
	} 1 .. $sessions;
	$node->poll_query_until('postgres', "SELECT count(*) > $before + 100 FROM effect")
	  or die 'nothing is done';
	$node->stop('immediate');
	for my $s (@sessions)
	{
		eval { $s->{run}->finish };
		$killed++ if $s->{err} =~ /server closed the connection|terminating connection/;
	}
	$node->start;
}
cmp_ok($killed, '>', 0, 'sessions were killed at work');
check_all('stopped at once');

$node->stop;
done_testing();
