# An activity that crashes the server (J2), in C (test/modules/crash): its
# instance is held after it has crashed alone durable.max_crashes times, and
# everything else completes, each step once (J1).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

$PostgreSQL::Test::Utils::timeout_default = 90;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
restart_after_crash = on
durable.sweep_interval = '10 min'
durable.max_crashes = 2
CONF
$node->start;

$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE ROLE app_ann LOGIN;
CREATE ROLE app_bob LOGIN;
GRANT USAGE ON SCHEMA durable TO app_ann, app_bob;
CREATE TABLE effect (id text, step int);
CREATE TABLE poison (deadly bool);
INSERT INTO poison VALUES (true);
GRANT SELECT, INSERT ON effect, poison TO PUBLIC;
CREATE FUNCTION note(id text, step int) RETURNS int LANGUAGE sql
AS 'INSERT INTO effect VALUES (id, step) RETURNING step';
CREATE FUNCTION crash() RETURNS void LANGUAGE c AS 'crash';
CREATE FUNCTION die(id text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (id, 2);
	IF (SELECT deadly FROM poison) THEN
		PERFORM crash();
	END IF;
	RETURN 2;
END $$;
CREATE FUNCTION harmless(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	sum int := 0;
BEGIN
	FOR i IN 1 .. n LOOP
		sum := sum + durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', i))::int;
		IF i = 3 THEN
			PERFORM durable_sleep('1 s');
		END IF;
	END LOOP;
	RETURN sum;
END $$;
CREATE PROCEDURE harmless_in_place(n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', i));
	END LOOP;
END $$;
CREATE FUNCTION poisonous() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	one int := durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 1));
BEGIN
	one := one + durable_call('die', jsonb_build_object('id', durable_instance_id()))::int;
	RETURN one + durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 3))::int;
END $$;
SELECT durable_register(w) FROM unnest('{harmless,harmless_in_place,poisonous}'::text[]) w;
SQL

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub as
{
	my ($role, $sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

sub crashes
{
	my $log = slurp_file($node->logfile);
	return scalar(() = $log =~ /was terminated by signal 11/g);
}

# Started together: the poison dies among others at first, which are suspect
# then as well, run alone, and are cleared.
for my $role (qw(app_ann app_bob))
{
	as($role, "SELECT count(durable_start('harmless', '[10]', id => 'harmless-$role-' || i)) FROM generate_series(1, 40) i");
	as($role, "SELECT count(durable_start('harmless_in_place', '[10]', id => 'in-place-$role-' || i)) FROM generate_series(1, 40) i");
}
# it may crash the server before we are told that it was started
$node->psql('postgres', "SELECT durable_start('poisonous', id => 'poison', priority => 1)", extra_params => [ '-U', 'app_ann' ]);

ok($node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM durable.instances WHERE status NOT IN ('completed', 'held')"),
	'all has come to an end')
  or diag(sql("SELECT status, count(*), min(id) FROM durable.instances GROUP BY 1"));
is(sql("SELECT id, reason FROM durable.instances WHERE status = 'held'"),
	'poison|WF005: the server crashed 2 times while this instance ran alone',
	'the poison is held, and nothing else');
is(crashes(), 3, 'it crashed once among others and twice alone');
is(sql('SELECT count(*), count(DISTINCT (id, step)) FROM effect'),
	'1601|1601', 'all other work is done once');
is(sql("SELECT string_agg(step::text, ' ') FROM effect WHERE id = 'poison'"),
	'1', 'of the poison, the step before is there once');
is(sql("SELECT count(*) FROM durable_internal.instance WHERE id <> 'poison' AND crashes > 0"),
	'0', 'no crash is counted for others');

# The server is as alive as before.
as('app_bob', "SELECT durable_start('harmless', '[2]', id => 'after')");
is(as('app_bob', "SELECT durable_result('after', '20 s')"), '3', 'new instances run');

# Resumed while it still kills: held again, after as many crashes.
as('app_ann', "SELECT durable_resume('poison')");
as('app_bob', "SELECT count(durable_start('harmless_in_place', '[10]', id => 'again-' || i)) FROM generate_series(1, 20) i");
ok($node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM durable.instances WHERE status NOT IN ('completed', 'held')"),
	'all has come to an end again');
is(as('app_ann', "SELECT durable_status('poison')"), 'held', 'it is held again');
note('crashes in all: ' . crashes());
cmp_ok(crashes(), '<=', 6, 'after no more crashes than before');

# Mended and resumed, it goes on where it was (A8).
sql('UPDATE poison SET deadly = false');
as('app_ann', "SELECT durable_resume('poison')");
is(as('app_ann', "SELECT durable_result('poison', '20 s')"), '6', 'mended, it completes');
is(sql("SELECT string_agg(step::text, ' ' ORDER BY step) FROM effect WHERE id = 'poison'"),
	'1 2 3', 'each of its steps once');
is(sql("SELECT crashes, suspect FROM durable_internal.instance WHERE id = 'poison'"),
	'0|f', 'progress clears it');

# A suspect whose role cannot run anything any more stops nobody.
sql('UPDATE poison SET deadly = true');
sql('ALTER SYSTEM SET durable.max_crashes = 1000');
sql('SELECT pg_reload_conf()');
my $crashes = crashes();
# from here on the server crashes in a row, so any session may be cut off
$node->psql('postgres', "SELECT durable_start('poisonous', id => 'orphan')", extra_params => [ '-U', 'app_ann' ]);
ok($node->poll_query_until('postgres',
		"SELECT suspect FROM durable_internal.instance WHERE id = 'orphan'"), 'suspect');
cmp_ok(crashes(), '>', $crashes, 'crashed');
for (1 .. 500)
{
	my ($status) = $node->psql('postgres', 'REVOKE USAGE ON SCHEMA durable FROM app_ann');
	last if $status == 0;
}
ok($node->poll_query_until('postgres',
		"SELECT status = 'held' FROM durable.instances WHERE id = 'orphan'"), 'the instance of a role without rights is held');
as('app_bob', "SELECT durable_start('harmless', '[2]', id => 'after-orphan')");
ok($node->poll_query_until('postgres', "SELECT durable_status('after-orphan') = 'completed'"), 'others go on')
  or diag(sql('SELECT * FROM durable.workers'));

$node->stop;
done_testing();
