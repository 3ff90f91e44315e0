# A10, D2, D6, D7, D16: what fails at the end of a step, or at its commit, is a
# failed attempt: it is recorded, and nothing else of the step is there.  In
# functions and in procedures.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

$node->safe_psql('postgres', q{
	CREATE EXTENSION durable;
	CREATE TABLE parent (k int PRIMARY KEY);
	CREATE TABLE child (k int REFERENCES parent DEFERRABLE INITIALLY DEFERRED, who text);
	CREATE TABLE effect (who text);
	CREATE SEQUENCE tries;

	-- fails when its constraint is looked at, until there is a parent
	CREATE FUNCTION act_deferred(who text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('tries');
		INSERT INTO effect VALUES (who);
		INSERT INTO child VALUES (1, who);
	END $$;
	-- fails at the commit: the rows of the cursor are made only then
	CREATE FUNCTION act_commit(who text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('tries');
		INSERT INTO effect VALUES (who);
		IF NOT EXISTS (SELECT 1 FROM parent) THEN
			EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1 / (g - 5) FROM generate_series(1, 10) g';
		END IF;
	END $$;
	CREATE FUNCTION act_conflict(who text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('tries');
		INSERT INTO effect VALUES (who);
		IF NOT EXISTS (SELECT 1 FROM parent) THEN
			RAISE serialization_failure;
		END IF;
	END $$;
	-- looks like the error by which a driver learns that it has lost
	CREATE FUNCTION act_fence(who text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('tries');
		INSERT INTO effect VALUES (who);
		IF NOT EXISTS (SELECT 1 FROM parent) THEN
			RAISE unique_violation USING SCHEMA = 'durable_internal', CONSTRAINT = 'history_pkey';
		END IF;
	END $$;
	CREATE FUNCTION act(who text) RETURNS void LANGUAGE sql AS 'INSERT INTO effect VALUES ($1)';

	CREATE FUNCTION func(activity text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable_call(activity, '["first"]');
		PERFORM durable_call('act', '["second"]');
		RETURN 'done';
	END $$;
	CREATE PROCEDURE proc(activity text) LANGUAGE plpgsql AS $$
	BEGIN
		CALL durable_step(activity, '["first"]');
		CALL durable_step('act', '["second"]');
	END $$;
	CREATE FUNCTION func_catching(activity text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable_call(activity, '["first"]');
		RETURN 'done';
	EXCEPTION WHEN foreign_key_violation THEN
		PERFORM durable_call('act', '["caught"]');
		RETURN SQLERRM;
	END $$;
	SELECT durable_register(w, activity_retry => durable_retry_policy(max_attempts => 2, initial => '300 ms'))
	  FROM unnest(ARRAY['func', 'proc', 'func_catching']) w;
});

sub query
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Drives until the instance has ended.  Repeating for ever must not hang us.
sub drive
{
	my ($id) = @_;
	for (1 .. 1000)
	{
		$node->psql('postgres', 'CALL durable_work()', timeout => 60);
		return if query("SELECT ended_at IS NOT NULL FROM durable.instances WHERE id = '$id'") eq 't';
		last if query('SELECT last_value FROM tries') > 100;
	}
	fail("$id does not come to its end");
}

my %tries = (deferred => 2, commit => 2, conflict => 8, fence => 2);
my %error = (deferred => '23503', commit => '22012', conflict => '40001', fence => '23505');

for my $workflow (qw(func proc))
{
	for my $kind (sort keys %tries)
	{
		my $what = "$workflow, $kind";

		# two attempts, then the workflow fails
		query("TRUNCATE effect, child, parent; SELECT setval('tries', 1, false)");
		query(qq{SELECT durable_start('$workflow', '"act_$kind"', id => '$what')});
		drive($what);
		is( query("SELECT status, error->>'sqlstate' FROM durable.instances WHERE id = '$what'"),
			"failed|$error{$kind}",
			"$what: it fails with the error of its activity");
		is( query("SELECT string_agg(event || coalesce(' ' || attempt, ''), ', ' ORDER BY seq)
					 FROM durable.events WHERE id = '$what'"),
			'WorkflowStarted, ActivityRetryScheduled 1, ActivityFailed 2, WorkflowFailed',
			"$what: both attempts are recorded, and no completion");
		is( query("SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM child)"),
			'0|0', "$what: nothing was written");
		# a conflict is tried three more times before it counts as an attempt
		is(query('SELECT last_value FROM tries'),
			$tries{$kind}, "$what: it was tried as often as it should be");

		# it fails once, then what was wrong is mended
		query("TRUNCATE effect, child, parent; SELECT setval('tries', 1, false)");
		query(qq{SELECT durable_start('$workflow', '"act_$kind"', id => '$what, mended')});
		query('CALL durable_work(1)');
		is( query("SELECT attempts, state FROM durable.steps WHERE id = '$what, mended'"),
			'1|retrying', "$what: the failed attempt is visible at once");
		query('INSERT INTO parent VALUES (1)');
		drive("$what, mended");
		is( query("SELECT string_agg(event || coalesce(' ' || attempt, ''), ', ' ORDER BY seq)
					 FROM durable.events WHERE id = '$what, mended'"),
			'WorkflowStarted, ActivityRetryScheduled 1, ActivityCompleted, ActivityCompleted, WorkflowCompleted',
			"$what: the next attempt succeeds");
		is(query("SELECT string_agg(who, ',' ORDER BY who) FROM effect"),
			'first,second', "$what: each effect is there once");
	}
}

# the body can catch what failed at the end of a step (D8)
query('TRUNCATE effect, child, parent');
query(q{SELECT durable_start('func_catching', '"act_deferred"', id => 'caught')});
drive('caught');
like(query(q{SELECT durable_result('caught')}),
	qr/violates foreign key constraint/, 'the error can be caught');
is(query('SELECT string_agg(who, \',\') FROM effect'),
	'caught', 'and the body goes on');

# in the caller's transaction too
query(q{TRUNCATE effect, child, parent; SELECT durable_start('func', '"act_deferred"', id => 'inside')});
is( query(q{BEGIN; SELECT durable_run('inside'); COMMIT;
			SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM child)}),
	"waiting_for_activity\n0|0",
	'durable_run: a failed attempt, and nothing written');
query('INSERT INTO parent VALUES (1)');
drive('inside');
is(query(q{SELECT durable_result('inside')}), '"done"', 'durable_run: it goes on');

# B7: a pass that is lost to the environment is repeated after a while, even
# when another message lies there of the name that was waited for last
query(q{CREATE FUNCTION no_memory() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM durable_wait_signal('go');
			RAISE out_of_memory;
		END $$;
		SELECT durable_register('no_memory');
		SELECT durable_start('no_memory', id => 'env')});
query('CALL durable_work()');
query(q{SELECT durable_signal('env', 'go'), durable_signal('env', 'go')});
query('CALL durable_work()');
is(query(q{SELECT status <> 'held', wake_at > now() FROM durable.instances WHERE id = 'env'}),
	't|t', 'a pass lost to the environment is repeated later, not at once');

$node->stop;
done_testing();
