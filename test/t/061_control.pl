# Control of what is running: cancel, terminate, pause and resume reach a
# worker in the middle of its work, at once and nobody else (G1, G2, G4 to G6,
# D10); who waits for a result or an answer gets it at once (I3, E12, H4).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# what is found by the sweep only comes too late
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
durable.sweep_interval = '10 min'
durable.max_workers = 2
CONF
$node->start;

# Far less than any sleep here, far more than a busy machine needs.
my $at_once = 20;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub status_becomes
{
	my ($id, $status, $name) = @_;
	my $from = time;
	ok( $node->poll_query_until('postgres', "SELECT durable_status('$id')", $status),
		$name // "$id is $status");
	cmp_ok(time - $from, '<', $at_once, "$id is $status at once");
	return;
}

# as seen by pg_stat_activity: in the middle of the activity
sub in_activity
{
	my ($id) = @_;
	return $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'durable worker'
		    AND query LIKE 'workflow %, instance $id, step %' AND wait_event = 'PgSleep'");
}

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE TABLE effect (id text, n int);
CREATE FUNCTION note(n int) RETURNS int LANGUAGE sql
AS 'INSERT INTO effect VALUES (durable_instance_id(), n) RETURNING n';
CREATE FUNCTION take_time(seconds float8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (durable_instance_id(), 0);
	PERFORM pg_sleep(seconds);
END $$;
CREATE FUNCTION waits() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable_wait_signal('go');
END $$;
CREATE FUNCTION busy(seconds float8) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('take_time', jsonb_build_array(seconds));
	RETURN durable_call('note', '[1]');
END $$;
CREATE FUNCTION many(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		PERFORM durable_call('note', jsonb_build_array(i));
		PERFORM durable_sleep('1 ms');
	END LOOP;
	RETURN n;
END $$;
CREATE FUNCTION fold(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_object('state', payload, 'result', payload -> 'n') $$;
CREATE FUNCTION asked() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_on_update('set', 'fold');
	PERFORM durable_wait_signal('end');
END $$;
CREATE FUNCTION again(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_wait_signal('go');
	IF n < 3 THEN
		PERFORM durable_continue_as_new(jsonb_build_array(n + 1));
	END IF;
	RETURN n;
END $$;
SELECT durable_register(w) FROM unnest('{waits,busy,many,asked,again}'::text[]) w;
SQL

#
# Cancel
#
sql(q{SELECT durable_start('waits', id => 'w1')});
status_becomes('w1', 'waiting_for_event');
is(sql(q{SELECT durable_cancel('w1', 'enough')}), 't', 'G1: a waiting one is asked');
status_becomes('w1', 'cancelled');
is(sql(q{SELECT durable_cancel('w1')}), 'f', 'G2: not again');

sql(q{SELECT durable_start('busy', '[3600]', id => 'b1')});
in_activity('b1');
is(sql(q{SELECT durable_cancel('b1', force => true)}), 't', 'G1: by force');
status_becomes('b1', 'cancelled', 'G1: its activity is interrupted');
is(sql(q{SELECT count(*) FROM effect WHERE id = 'b1'}), 0, 'nothing of the step is left');

# without force the step comes to its end, and the next one does not begin
sql(q{SELECT durable_start('busy', '[0.5]', id => 'b2')});
in_activity('b2');
sql(q{SELECT durable_cancel('b2')});
status_becomes('b2', 'cancelled');
is(sql(q{SELECT string_agg(n::text, ',') FROM effect WHERE id = 'b2'}), '0',
	'G1: a running one stops at the next primitive');

# By force, each the one that it is for: one worker a time goes from one to the
# next, those of odd number are cancelled while they run (D10).
sql(q{SELECT durable_start('busy', '[0.02]', id => 'next ' || g) FROM generate_series(1, 60) g});
for my $n (grep { $_ % 2 } 1 .. 60)
{
	sql("SELECT durable_cancel('next $n', force => true)");
}
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM durable.instances WHERE id LIKE 'next %' AND ended_at IS NULL}),
	'all of them end');
is(sql(q{SELECT count(*) FROM durable.instances WHERE id LIKE 'next %' AND status = 'completed'
		 AND substr(id, 6)::int % 2 = 0}),
	30, 'D10: who was not cancelled has completed');
is(sql(q{SELECT count(*) FROM durable.events WHERE id LIKE 'next %' AND event IN ('ActivityFailed', 'ActivityRetryScheduled')}),
	0, 'D10: and no attempt of theirs was hit');

#
# Terminate
#
sql(q{SELECT durable_start('busy', '[3600]', id => 't1')});
in_activity('t1');
is(sql(q{SELECT durable_terminate('t1', 'enough')}), 't', 'G4: a running one');
status_becomes('t1', 'cancelled');
is(sql(q{SELECT count(*) FROM effect WHERE id = 't1'}), 0, 'G4: nothing of it is left');
sql(q{SELECT durable_start('waits', id => 't2')});
status_becomes('t2', 'waiting_for_event');
is(sql(q{SELECT durable_terminate('t2'), durable_status('t2')}), 't|cancelled', 'G4: a waiting one is ended here');

#
# Pause and resume
#
sub rests
{
	my ($like, $name) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM durable_internal.ready r JOIN durable_internal.instance i USING (iid) WHERE i.id LIKE '$like'");
	is(sql("SELECT DISTINCT status FROM durable.instances WHERE id LIKE '$like' AND ended_at IS NULL"),
		'paused', "$name: paused");
	is(sql("SELECT count(*) > 0 FROM durable.instances WHERE id LIKE '$like' AND ended_at IS NULL"), 't', "$name: not ended");
	return;
}

sub all_complete
{
	my ($like, $n, $name) = @_;
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM durable.instances WHERE id LIKE '$like' AND status <> 'completed'"),
		"$name: resumed, it completes");
	is(sql("SELECT count(*), count(DISTINCT (id, n)) FROM effect WHERE id LIKE '$like'"), "$n|$n", "$name: each step once");
	return;
}
for my $case (
	[ 'an instance', q{durable_pause('p1 1')}, q{durable_resume('p1 1')}, 'p1', 1 ],
	[ 'a workflow', q{durable_pause_workflow('many')}, q{durable_resume_workflow('many')}, 'p2', 5 ],
	[ 'everything', q{durable_pause_all()}, q{durable_resume_all()}, 'p3', 5 ])
{
	my ($name, $pause, $resume, $id, $count) = @$case;
	sql("SELECT durable_start('many', '[150]', id => '$id ' || g) FROM generate_series(1, $count) g");
	$node->poll_query_until('postgres', "SELECT count(*) > 10 FROM effect WHERE id LIKE '$id %'");
	is(sql("SELECT $pause"), 't', "G6: pause $name");
	rests("$id %", $name);
	is(sql("SELECT $pause"), 'f', "G6: $name is paused");
	if ($name eq 'everything')
	{
		$node->restart;
		ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM durable.workers WHERE kind = 'scheduler'}), 'restarted');
		rests("$id %", "$name, after a restart");
	}
	is(sql("SELECT $resume"), 't', "G6: resume $name");
	all_complete("$id %", 150 * $count, $name);
}

#
# Workflow timeout
#
sql(q{SELECT durable_start('waits', id => 'late', timeout => '700 ms')});
status_becomes('late', 'timed_out', 'G5: a waiting one times out');
is(sql(q{SELECT ended_at - created_at BETWEEN '700 ms' AND '10 s' FROM durable.instances WHERE id = 'late'}),
	't', 'G5: on time');

#
# Answers
#
sql(q{SELECT durable_start('asked', id => 'a1')});
my $from = time;
is(sql(q{CALL durable_update_wait('a1', 'set', '{"n": 7}', '1 min')}), '7', 'E12: CALL durable_update_wait');
my $number = sql(q{SELECT durable_update('a1', 'set', '{"n": 8}')});
is(sql("SELECT durable_update_result($number, '1 min')"), '8', 'E12: durable_update_result waits');
cmp_ok(time - $from, '<', $at_once, 'E12: and is answered at once');
is(sql(q{SELECT durable_query('a1')}), '{"n": 8}', 'E12: the state is there to be asked for');

sql(q{SELECT durable_start('again', '[1]', id => 'c1')});
my ($out, $err) = ('', '');
my $session = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{SELECT durable_result('c1', '5 min')} ],
	'>', \$out, '2>', \$err);
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT durable_result(%' AND state = 'active' AND wait_event_type = 'Extension'});
$from = time;
sql(q{SELECT durable_signal('c1', 'go') FROM generate_series(1, 3)});
$session->finish;
is($out, "3\n", 'I3, H4: durable_result waits for the last run') or diag($err);
cmp_ok(time - $from, '<', $at_once, 'I3, H4: and has it at once');

$node->stop;
done_testing();
