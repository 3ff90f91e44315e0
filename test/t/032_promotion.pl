# A standby is silent; after its promotion under load it goes on with
# everything that it has got, no step twice (J1), and no crash is counted (J8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

$PostgreSQL::Test::Utils::timeout_default = 90;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
durable.sweep_interval = '10 min'
CONF
$primary->start;
$primary->safe_psql('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE ROLE app_ann LOGIN;
CREATE ROLE app_bob LOGIN;
GRANT USAGE ON SCHEMA durable TO app_ann, app_bob;
CREATE TABLE effect (id text, step int);
CREATE TABLE gate (open bool);
INSERT INTO gate VALUES (false);
GRANT SELECT, INSERT ON effect, gate TO PUBLIC;
CREATE FUNCTION note_at_gate(id text, step int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect VALUES (id, step);
	WHILE NOT (SELECT open FROM gate) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN step;
END $$;
CREATE FUNCTION runs_on() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable_call('note_at_gate', jsonb_build_object('id', durable_instance_id(), 'step', 1));
END $$;
CREATE FUNCTION note(id text, step int) RETURNS int LANGUAGE sql
AS 'INSERT INTO effect VALUES (id, step) RETURNING step';
CREATE FUNCTION steps(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	sum int := 0;
BEGIN
	FOR i IN 1 .. n LOOP
		sum := sum + durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', i))::int;
		IF i % 4 = 0 THEN
			PERFORM durable_sleep('50 ms');
		END IF;
	END LOOP;
	RETURN sum;
END $$;
CREATE PROCEDURE steps_in_place(n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		CALL durable_step('note', jsonb_build_object('id', durable_instance_id(), 'step', i));
	END LOOP;
END $$;
CREATE FUNCTION waits() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 1));
	PERFORM durable_wait_signal('go');
	RETURN durable_call('note', jsonb_build_object('id', durable_instance_id(), 'step', 2));
END $$;
-- progress clears a suspect, so it is noted when one is made
CREATE TABLE suspected (id text);
CREATE FUNCTION note_suspect() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN INSERT INTO public.suspected VALUES (NEW.id); RETURN NULL; END';
CREATE TRIGGER note_suspect AFTER UPDATE ON durable_internal.instance
	FOR EACH ROW WHEN (NEW.suspect OR NEW.crashes > 0) EXECUTE FUNCTION note_suspect();
SELECT durable_register(w) FROM unnest('{steps,steps_in_place,waits,runs_on}'::text[]) w;
SQL
$primary->backup('base');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my $steps = 0;
for my $role (qw(app_ann app_bob))
{
	for my $workflow (qw(steps steps_in_place))
	{
		$primary->safe_psql('postgres',
			"SELECT count(durable_start('$workflow', '[20]', id => '$workflow-$role-' || i)) FROM generate_series(1, 60) i",
			extra_params => [ '-U', $role ]);
		$steps += 60 * 20;
	}
}
$primary->safe_psql('postgres',
	"SELECT count(durable_start('waits', id => 'waits-' || i)) FROM generate_series(1, 10) i",
	extra_params => [ '-U', 'app_ann' ]);
$steps += 20;
# these run at the promotion for sure
$primary->safe_psql('postgres',
	"SELECT count(durable_start('runs_on', id => 'runs-on-' || i, priority => 1)) FROM generate_series(1, 2) i",
	extra_params => [ '-U', 'app_bob' ]);
$steps += 2;
$primary->poll_query_until('postgres',
	"SELECT count(*) = 2 FROM durable.leases WHERE id LIKE 'runs-on-%'");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

is($standby->safe_psql('postgres', 'SELECT count(*) FROM durable.workers'),
	'0', 'a standby has no processes of ours');
is($standby->safe_psql('postgres',
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'durable%'"),
	'0', 'nor does the server know of any');
is($standby->safe_psql('postgres',
		"SELECT count(*) > 0 FROM durable.instances"),
	't', 'but it shows the instances');
my ($status, $out, $err) = $standby->psql('postgres', "SELECT durable_start('waits')");
like($err, qr/recovery/, 'a start on a standby says what is the matter');
($status, $out, $err) = $standby->psql('postgres', 'CALL durable_work()');
like($err, qr/recovery/, 'so does durable_work()');
($status, $out, $err) = $standby->psql('postgres', "SELECT durable_signal('waits-1', 'go')");
like($err, qr/recovery/, 'and a signal');

# The primary goes away in the middle.
$primary->stop('immediate');
my $at = $standby->safe_psql('postgres', 'SELECT count(*) FROM effect');
my $running = $standby->safe_psql('postgres', 'SELECT count(*) FROM durable_internal.ready WHERE lease IS NOT NULL');
note("$at of $steps steps done before the promotion, $running instances running");
cmp_ok($running, '>=', 2, 'promoted under load');
$standby->promote;
$standby->safe_psql('postgres', 'UPDATE gate SET open = true');
my $from = time;
ok($standby->poll_query_until('postgres',
		"SELECT count(*) = 10 FROM durable.instances WHERE status <> 'completed'"),
	'all that need no signal complete')
  or diag($standby->safe_psql('postgres', 'SELECT status, count(*) FROM durable.instances GROUP BY 1'));
note(sprintf 'all done %.0f ms after the promotion', (time - $from) * 1000);
ok($standby->poll_query_until('postgres',
		"SELECT count(*) = 10 FROM durable.instances WHERE status = 'waiting_for_event'"),
	'the others wait');
$standby->safe_psql('postgres', "SELECT durable_signal('waits-' || i, 'go') FROM generate_series(1, 10) i");
ok($standby->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM durable.instances WHERE status <> 'completed'"),
	'and go on when signalled');
is($standby->safe_psql('postgres', 'SELECT count(*), count(DISTINCT (id, step)) FROM effect'),
	"$steps|$steps", 'each step once');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM suspected'),
	'0', 'a failover counts as no crash');
$standby->stop;
done_testing();
