# Messages of every kind under real faults: signals with handlers, updates,
# events for all and for one, children, continue-as-new and cancels, to some
# hundred instances, while workers are killed or asked to leave and the server
# is stopped.  In the end nothing is lost and nothing came twice (E3, E6, E8,
# E12, G2, H1, H2, H4, J1, J8).
use strict;
use warnings;
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
durable.max_workers = 4
durable.max_crashes = 100
CONF
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub wait_for
{
	my ($query, $name) = @_;
	$node->poll_query_until('postgres', $query) and return 1;
	diag("timed out: $name");
	diag(sql('SELECT id, run, status, awaits, reason FROM durable.instances WHERE ended_at IS NULL LIMIT 20'));
	return 0;
}

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE TABLE effect (id text, what text, n int);
CREATE FUNCTION note(id text, what text, n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (id, what, n);
	PERFORM pg_sleep(0.003);
	RETURN n;
END $$;

-- folds five signals and two updates
CREATE FUNCTION fold(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_object('got', coalesce(state -> 'got', '[]') || jsonb_build_array(payload -> 'n')) $$;
CREATE FUNCTION fold_update(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_object('state', fold(state, payload), 'result', payload -> 'n') $$;
CREATE FUNCTION has_all(state jsonb) RETURNS bool LANGUAGE sql AS
$$ SELECT coalesce(jsonb_array_length(state -> 'got'), 0) >= 7 $$;
CREATE FUNCTION counter() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_on_signal('add', 'fold');
	PERFORM durable_on_update('bump', 'fold_update');
	PERFORM durable_call('note', jsonb_build_array(durable_instance_id(), 'begin', 0));
	PERFORM durable_wait_until('has_all');
	PERFORM durable_call('note', jsonb_build_array(durable_instance_id(), 'end', 0));
	RETURN durable_state() -> 'got';
END $$;

-- three events of a type
CREATE FUNCTION receiver(type text, mode text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_subscribe(type, mode);
	FOR i IN 1 .. 3 LOOP
		PERFORM durable_call('note', jsonb_build_array(durable_instance_id(), type,
			durable_wait_event(type) -> 'data' -> 'n'));
	END LOOP;
END $$;

CREATE FUNCTION one(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable_call('note', jsonb_build_array(durable_instance_id(), 'child', n))::int;
END $$;
CREATE FUNCTION parent() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	first int;
	second int;
BEGIN
	PERFORM durable_wait_signal('go');
	first := durable_spawn_child('one', '[1]');
	second := durable_spawn_child('one', '[10]');
	RETURN durable_await(second)::int + durable_await(first)::int
		+ durable_call_child('one', '[100]')::int;
END $$;

-- a signal a run
CREATE FUNCTION looper(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', jsonb_build_array(durable_instance_id(), 'loop', durable_wait_signal('go') -> 'n'));
	IF n < 4 THEN
		PERFORM durable_continue_as_new(jsonb_build_array(n + 1));
	END IF;
	RETURN n;
END $$;

CREATE FUNCTION patient() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_wait_signal('never');
EXCEPTION WHEN SQLSTATE 'WF002' THEN
	PERFORM durable_call('note', jsonb_build_array(durable_instance_id(), 'clean', 0), shielded => true);
	RAISE;
END $$;
SELECT durable_register(w) FROM unnest('{counter,receiver,one,parent,looper,patient}'::text[]) w;

SELECT durable_start('counter', id => 'counter ' || g) FROM generate_series(1, 60) g;
SELECT durable_start('receiver', '["news", "broadcast"]', id => 'news ' || g) FROM generate_series(1, 40) g;
SELECT durable_start('receiver', '["job", "competing"]', id => 'job ' || g) FROM generate_series(1, 40) g;
SELECT durable_start('parent', id => 'parent ' || g) FROM generate_series(1, 30) g;
SELECT durable_start('looper', '[1]', id => 'looper ' || g) FROM generate_series(1, 40) g;
SELECT durable_start('patient', id => 'patient ' || g) FROM generate_series(1, 40) g;
CREATE TABLE asked (id bigint);
SQL

# Events reach who has subscribed: let all come to their first wait.
ok(wait_for(q{SELECT count(*) = 250 FROM durable.instances WHERE status LIKE 'waiting_for_event'}, 'waiting'),
	'all wait');

# the worker in the middle of a step
sub busy_worker
{
	wait_for(q{SELECT count(*) > 0 FROM durable.workers WHERE kind = 'worker' AND state = 'busy'}, 'busy');
	return sql(q{SELECT pid FROM durable.workers WHERE kind = 'worker' ORDER BY state = 'busy' DESC LIMIT 1});
}

sub kill_worker { return crash_of($node, busy_worker()); }

sub end_workers
{
	sql(q{SELECT count(pg_terminate_backend(pid)) FROM durable.workers WHERE kind IN ('worker', 'scheduler')});
	return;
}

sub stop_at_once { $node->stop('immediate'); $node->start; return; }

# One of each for everybody, in a transaction; of the counters' seven, one is
# the update; cancels and parents in parts.
sub send_all
{
	my ($round) = @_;
	my $last = $round == 5 ? 'true' : 'false';
	my $events = $round <= 3 ? 'true' : 'false';
	my $loops = $round <= 4 ? 'true' : 'false';
	sql(<<"SQL");
BEGIN;
SELECT count(durable_signal('counter ' || g, 'add', jsonb_build_object('n', $round))) FROM generate_series(1, 60) g;
INSERT INTO asked SELECT durable_update('counter ' || g, 'bump', jsonb_build_object('n', $round + 10))
  FROM generate_series(1, 60) g WHERE $round IN (2, 4);
SELECT count(durable_publish('news', jsonb_build_object('n', $round))) WHERE $events;
SELECT count(durable_publish('job', jsonb_build_object('n', $round * 1000 + g))) FROM generate_series(1, 40) g WHERE $events;
SELECT count(durable_signal('looper ' || g, 'go', jsonb_build_object('n', $round))) FROM generate_series(1, 40) g WHERE $loops;
SELECT count(durable_signal('parent ' || g, 'go')) FROM generate_series(1, 30) g WHERE g % 5 = $round - 1;
SELECT count(durable_cancel('patient ' || g, force => g % 2 = 0)) FROM generate_series(1, 40) g WHERE g % 5 = $round - 1;
COMMIT;
SQL
	return;
}

my @faults = (\&kill_worker, \&end_workers, \&stop_at_once, \&end_workers, \&kill_worker);
for my $round (1 .. 5)
{
	send_all($round);
	$faults[ $round - 1 ]->();
}
ok(wait_for('SELECT count(*) = 0 FROM durable_internal.instance WHERE end_seq IS NULL', 'the end'),
	'every instance ends');

# shows QUERY, EXPECTED, NAME
sub shows
{
	my ($query, $expected, $name) = @_;
	return is(sql($query), $expected, $name);
}
shows(q{SELECT split_part(id, ' ', 1), status, count(*) FROM durable.instances
		WHERE parent_id IS NULL GROUP BY 1, 2 ORDER BY 1, 2},
	join("\n", 'counter|completed|60', 'job|completed|40', 'looper|completed|40',
		'looper|continued_as_new|120', 'news|completed|40', 'parent|completed|30',
		'patient|cancelled|40'),
	'each in its right state');
shows(q{SELECT count(*) FROM durable.instances, LATERAL
		(SELECT array_agg(v::int ORDER BY v::int) AS got FROM jsonb_array_elements_text(result) v) x
		WHERE workflow = 'counter' AND got = '{1,2,3,4,5,12,14}'},
	60, 'every signal and update was folded once');
shows(q{SELECT count(*) FROM durable.instances, LATERAL
		(SELECT array_agg(v::int) FILTER (WHERE v::int < 10) AS got FROM jsonb_array_elements_text(result) v) x
		WHERE workflow = 'counter' AND got = '{1,2,3,4,5}'},
	60, 'the signals in their order');
shows(q{SELECT count(*), count(DISTINCT id), sum(durable_update_result(id)::int) FROM asked},
	'120|120|' . (60 * 12 + 60 * 14), 'every update was answered');
shows(q{SELECT count(*), count(DISTINCT (id, n)) FROM effect WHERE what = 'news'},
	'120|120', 'every event reached every subscriber once');
shows(q{SELECT count(*), count(DISTINCT n), count(DISTINCT id) FROM effect WHERE what = 'job'},
	'120|120|40', 'every event that is for one was taken once');
shows(q{SELECT count(*), count(DISTINCT (id, n)) FROM effect WHERE what = 'loop'},
	'160|160', 'every run received its signal');
shows(q{SELECT string_agg(DISTINCT n, ',') FROM
		(SELECT string_agg(args -> 2 #>> '{}', '' ORDER BY run) AS n FROM durable.steps
		  WHERE id LIKE 'looper %' AND kind = 'activity' GROUP BY id) x},
	'1234', 'one after the other');
shows(q{SELECT count(*), sum(result::int) FROM durable.instances WHERE workflow = 'parent'},
	'30|3330', 'every result of a child was seen');
shows(q{SELECT count(*), count(DISTINCT id) FROM effect WHERE what = 'child'},
	'90|90', 'no child ran twice');
shows(q{SELECT count(*), count(DISTINCT id) FROM effect WHERE what = 'clean'},
	'40|40', 'whoever was cancelled has cleaned up once');
shows(q{SELECT count(*), count(DISTINCT (id, what)) FROM effect WHERE what IN ('begin', 'end')},
	'120|120', 'no step ran twice');
shows(q{SELECT count(*) FROM (SELECT FROM durable_internal.history GROUP BY iid HAVING count(*) <> max(seq)) x},
	0, 'no history has a gap');
shows(q{SELECT (SELECT count(*) FROM durable_internal.ready), (SELECT count(*) FROM durable_internal.timer),
		(SELECT count(*) FROM durable_internal.inbox), (SELECT count(*) FROM durable_internal.subscription)},
	'0|0|0|0', 'nothing is left over');

$node->stop;
done_testing();
