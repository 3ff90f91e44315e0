# A session that drives many instances, or one of many steps, keeps nothing of
# them in memory.  A worker that has called many copies of functions leaves.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $instances = 5000;
my $steps = 5000;
my $allowed = 256 * 1024;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION durable;
	CREATE TABLE effect (n int);
	CREATE TABLE memory (what text, bytes bigint);
	CREATE FUNCTION act(n int) RETURNS int LANGUAGE sql AS 'INSERT INTO effect VALUES ($1) RETURNING n';
	CREATE FUNCTION act_failing(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'attempt % of %', durable_attempt(), n;
	END $$;
	CREATE FUNCTION act_memory(what text) RETURNS void LANGUAGE sql
	AS 'INSERT INTO memory SELECT $1, sum(total_bytes) FROM pg_backend_memory_contexts';

	CREATE FUNCTION one_step(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable_call_as(NULL::int, 'act', to_jsonb(n));
	END $$;
	CREATE FUNCTION failing(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable_call_as(NULL::int, 'act_failing', to_jsonb(n), retry => durable_retry_policy(max_attempts => 1));
	END $$;
	CREATE PROCEDURE many_steps(steps int) LANGUAGE plpgsql AS $$
	BEGIN
		CALL durable_step('act_memory', '"begin"');
		FOR i IN 1..steps LOOP
			CALL durable_step('act', to_jsonb(i));
		END LOOP;
		CALL durable_step('act_memory', '"end"');
	END $$;
	SELECT durable_register(w) FROM unnest(ARRAY['one_step', 'failing', 'many_steps']) w;
});

my $session = $node->background_psql('postgres');

sub memory
{
	return $session->query_safe('SELECT sum(total_bytes) FROM pg_backend_memory_contexts');
}

# Two rounds of the same: what the first one needed once, the second does not
# need again.
sub check
{
	my ($what, $start, $size) = @_;
	my @after;

	for my $round (1 .. 2)
	{
		$node->safe_psql('postgres', $start);
		$session->query_safe('CALL durable_work()');
		push @after, memory();
	}
	cmp_ok($after[1] - $after[0], '<', $allowed, "$what: the second round keeps nothing");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.instances WHERE ended_at IS NULL'),
		'0', "$what: all have ended");
}

check("$instances instances of one step",
	"SELECT count(durable_start('one_step', to_jsonb(g))) FROM generate_series(1, $instances) g");
check('1000 instances that fail',
	'SELECT count(durable_start(\'failing\', to_jsonb(g))) FROM generate_series(1, 1000) g');
check("a procedure of $steps steps", "SELECT durable_start('many_steps', '$steps')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'),
	2 * $instances + 2 * $steps, 'all steps were done');

# while it runs, its history is in memory, and little else
my $per_step = $node->safe_psql('postgres', qq{
	SELECT (max(bytes) FILTER (WHERE what = 'end') - min(bytes) FILTER (WHERE what = 'begin')) / $steps
	  FROM memory});
cmp_ok($per_step, '<', 1500, "a step that was done takes some hundred bytes ($per_step)");

$session->quit;

#
# What PL/pgSQL makes of a function stays in a process when the function is
# dropped, as copies are: their worker does not stay.
#
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'durable'\ndurable.max_workers = 1");
$node->restart;
$node->safe_psql('postgres', q{
	DO $do$
	BEGIN
		FOR n IN 1 .. 70 LOOP
			EXECUTE format('CREATE FUNCTION copied_%s() RETURNS int LANGUAGE plpgsql AS
				$$ BEGIN PERFORM durable_wait_signal(%L); RETURN pg_backend_pid(); END $$', n, 'go');
			PERFORM durable_register('copied_' || n, sandbox => 'off');
			PERFORM durable_start('copied_' || n, id => 'copied ' || n);
		END LOOP;
	END $do$});
ok($node->poll_query_until('postgres',
		q{SELECT count(*) = 70 FROM durable.instances WHERE status = 'waiting_for_event'}), 'all wait');
$node->safe_psql('postgres', q{
	DO $do$
	BEGIN
		FOR n IN 1 .. 70 LOOP
			EXECUTE format('CREATE OR REPLACE FUNCTION copied_%s() RETURNS int LANGUAGE plpgsql AS
				$$ BEGIN RETURN 0; END $$', n);
			PERFORM durable_signal('copied ' || n, 'go');
		END LOOP;
	END $do$});
ok($node->poll_query_until('postgres',
		q{SELECT count(*) = 70 FROM durable.instances WHERE id LIKE 'copied %' AND status = 'completed'}), 'all go on');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE result <> '0'), count(DISTINCT result) FROM durable.instances WHERE id LIKE 'copied %'}),
	'eq', '70|2', 'on their copies, of which a second worker called the last ones');

$node->stop;
done_testing();
