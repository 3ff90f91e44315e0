# A race hunt: starts, signals, durable_work() and durable_run() of sessions,
# new definitions of the workflows, cancels and ends of workers, of the scheduler and the launcher, all at random
# for some seconds (DURABLE_STRESS_SECONDS; "make stress" takes a minute).  In
# the end every instance has completed, every step has had its effect once
# (A7, A8, A9), no message is lost or received twice (E3), and no history has
# a gap (A6).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $ENV{DURABLE_STRESS_SECONDS} || 8;
my $node = PostgreSQL::Test::Cluster->new('stress');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
durable.max_workers = 3
durable.worker_idle_timeout = '300ms'
durable.sweep_interval = '1s'
log_min_messages = warning
fsync = off
CONF
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE TABLE effect (id text, step int);
CREATE TABLE sent (id text, n bigserial);
CREATE FUNCTION act(step int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (durable_instance_id(), step);
	PERFORM pg_sleep(random() * 0.005);
	IF random() < 0.05 THEN
		PERFORM pg_advisory_unlock_all();
	END IF;
	IF random() < 0.05 THEN
		RAISE EXCEPTION 'bad luck';
	END IF;
	RETURN step;
END $$;
CREATE FUNCTION by_function() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	got jsonb := '[]';
BEGIN
	FOR i IN 1..3 LOOP
		PERFORM durable_call('act', jsonb_build_array(i));
		PERFORM durable_sleep(durable_random() * interval '20 ms');
		got := got || jsonb_build_array(durable_wait_signal('go', timeout => '300 ms'));
	END LOOP;
	RETURN got;
END $$;
CREATE PROCEDURE by_procedure() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..3 LOOP
		CALL durable_step('act', jsonb_build_array(i));
		PERFORM durable_sleep(durable_random() * interval '20 ms');
		PERFORM durable_wait_signal('go', timeout => '300 ms');
	END LOOP;
END $$;
CREATE TABLE body AS SELECT proname, prosrc FROM pg_proc WHERE proname IN ('by_function', 'by_procedure');
SELECT durable_register(w, activity_retry => durable_retry_policy(max_attempts => 50, initial => '5 ms', max_interval => '20 ms'))
  FROM unnest('{by_function,by_procedure}'::text[]) w;
SQL

# A signal to an instance that ends meanwhile is refused: that is no failure.
my %scripts = (
	start => <<'SQL',
SELECT durable_start((ARRAY['by_function', 'by_procedure'])[1 + (random() * 1)::int]);
SQL
	signal => <<'SQL',
DO $$
DECLARE
	chosen text;
BEGIN
	SELECT id INTO chosen FROM durable_internal.instance WHERE end_seq IS NULL ORDER BY random() LIMIT 1;
	IF chosen IS NOT NULL THEN
		INSERT INTO sent (id) VALUES (chosen);
		PERFORM durable_signal(chosen, 'go');
	END IF;
EXCEPTION WHEN SQLSTATE 'WF005' OR SQLSTATE 'WF004' THEN
END $$;
SQL
	run => <<'SQL',
DO $$
DECLARE
	chosen text;
BEGIN
	SELECT id INTO chosen FROM durable_internal.instance WHERE end_seq IS NULL ORDER BY random() LIMIT 1;
	IF chosen IS NOT NULL THEN
		PERFORM durable_run(chosen);
	END IF;
EXCEPTION WHEN SQLSTATE 'WF005' OR deadlock_detected THEN
END $$;
SQL
	work => "CALL durable_work(5);\n",
	cancel => <<'SQL',
SELECT durable_cancel(id, force => random() < 0.5)
  FROM (SELECT id FROM durable_internal.instance WHERE end_seq IS NULL ORDER BY random() LIMIT 1) x;
SQL
	pause => <<'SQL',
SELECT durable_pause(id)
  FROM (SELECT id FROM durable_internal.instance WHERE end_seq IS NULL ORDER BY random() LIMIT 1) x;
SELECT durable_pause_workflow('by_procedure') WHERE random() < 0.3;
SQL
	resume => <<'SQL',
DO $$
DECLARE
	chosen text;
BEGIN
	SELECT id INTO chosen FROM durable_internal.instance
	 WHERE end_seq IS NULL AND suspended = 'paused' ORDER BY random() LIMIT 1;
	IF chosen IS NOT NULL THEN
		PERFORM durable_resume(chosen);
	END IF;
	PERFORM durable_resume_workflow('by_procedure');
EXCEPTION WHEN SQLSTATE 'WF005' THEN
END $$;
SQL
	# the same again, as another definition
	deploy => <<'SQL',
DO $$
DECLARE
	what text := (ARRAY['FUNCTION by_function() RETURNS jsonb', 'PROCEDURE by_procedure()'])[1 + floor(random() * 2)::int];
BEGIN
	EXECUTE format('CREATE OR REPLACE %s LANGUAGE plpgsql AS %L', what,
		(SELECT prosrc FROM body WHERE what LIKE '%' || proname || '%') || ' /* ' || random() || ' */');
-- two at once
EXCEPTION WHEN internal_error OR unique_violation THEN
END $$;
SQL
	disturb => <<'SQL',
SELECT CASE WHEN random() < 0.5 THEN pg_cancel_backend(pid) ELSE pg_terminate_backend(pid) END
  FROM pg_stat_activity
 WHERE pid <> pg_backend_pid() AND backend_type = 'durable worker' ORDER BY random() LIMIT 1;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE backend_type IN ('durable scheduler', 'durable launcher') AND random() < 0.05;
SELECT pg_sleep(0.1);
SQL
);
my %weight = (
	start => 4, signal => 8, run => 1, work => 1, disturb => 1,
	cancel => 1, pause => 1, resume => 2, deploy => 1);
my @files;
foreach my $name (sort keys %scripts)
{
	my $file = PostgreSQL::Test::Utils::tempdir . "/$name.sql";
	append_to_file($file, $scripts{$name});
	push @files, '-f', "$file\@$weight{$name}";
}
my ($out, $err) = ('', '');
IPC::Run::run(
	[
		'pgbench', '-n', '-c', '6', '-j', '2', '-T', $seconds, '--rate', '150',
		@files, $node->connstr('postgres')
	],
	'>', \$out, '2>', \$err);
my ($transactions) = $out =~ /transactions actually processed: (\d+)/;
ok($transactions, 'the hunt ran') or diag($out, $err);
unlike($err, qr/aborted/, 'no session met an error it should not meet') or diag($err);

# what the hunt left paused goes on
$node->safe_psql('postgres', <<'SQL');
SELECT durable_resume_workflow('by_procedure');
SELECT durable_resume(id) FROM durable.instances WHERE status = 'paused';
SQL
ok( $node->poll_query_until('postgres',
		'SELECT count(*) = 0 FROM durable_internal.instance WHERE end_seq IS NULL'),
	'every instance ends')
  or diag($node->safe_psql('postgres',
		'SELECT id, status, reason, wake_at FROM durable.instances WHERE ended_at IS NULL'));

sub zero
{
	my ($query, $name) = @_;
	return is($node->safe_psql('postgres', "SELECT count(*) FROM ($query) x"), '0', $name);
}
zero(q{SELECT FROM durable.instances WHERE status NOT IN ('completed', 'cancelled')}, 'and has completed or was cancelled');
zero(q{SELECT FROM durable.instances i WHERE status = 'cancelled'
       AND NOT EXISTS (SELECT FROM durable.events e WHERE e.id = i.id AND e.event = 'WorkflowCancelled')}, 'as its history says');
zero(q{SELECT FROM effect GROUP BY id, step HAVING count(*) > 1}, 'no step had its effect twice');
zero(q{SELECT FROM durable.instances i WHERE status = 'completed'
       AND 3 <> (SELECT count(*) FROM effect e WHERE e.id = i.id)}, 'nor not at all');
zero(q{SELECT FROM durable_internal.parked}, 'nothing is left parked');
zero(q{SELECT FROM durable_internal.history GROUP BY iid HAVING count(*) <> max(seq)}, 'no history has a gap');
zero(q{SELECT FROM durable_internal.ready}, 'nothing is left in the queue');
zero(q{SELECT FROM durable_internal.timer}, 'no timer is left');
is( $node->safe_psql('postgres', <<'SQL'),
SELECT (SELECT count(*) FROM sent) -
       (SELECT count(*) FROM durable_internal.history WHERE event = 'SignalReceived') -
       (SELECT count(*) FROM durable_internal.history WHERE event = 'MessageDropped' AND data ->> 'kind' = 'signal') -
       (SELECT count(*) FROM durable_internal.inbox WHERE kind = 'signal')
SQL
	'0', 'every signal was received once or was dropped with the end');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM durable.workflows'), '>', 4, 'there were new versions');
ok( $node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%'}),
	'no copy of a definition is left');
unlike(slurp_file($node->logfile), qr/PANIC|was terminated by signal|lacks position/, 'the server kept its calm');
note($node->safe_psql('postgres', 'SELECT count(*) FROM durable.instances') . " instances, $transactions transactions, "
	  . $node->safe_psql('postgres', 'SELECT count(*) FROM durable.workflows') . ' versions');

$node->stop;
done_testing();
