# J1: on a standby the functions say that the server is in recovery, and the
# views can be read; after its promotion the instances go on.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres', q{
	CREATE EXTENSION durable;
	CREATE TABLE effect (id text, step int);
	CREATE FUNCTION act(id text, step int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (id, step);
		PERFORM pg_advisory_xact_lock(1) WHERE id = 'running' AND step = 2;
	END $$;
	CREATE FUNCTION steps(id text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable_call('act', jsonb_build_array(id, 1));
		PERFORM durable_call('act', jsonb_build_array(id, 2));
		IF id = 'waiting' THEN
			PERFORM durable_wait_signal('go');
		END IF;
		PERFORM durable_call('act', jsonb_build_array(id, 3));
	END $$;
	SELECT durable_register('steps');
	SELECT durable_start('steps', to_jsonb(i), id => i) FROM unnest(ARRAY['completed', 'waiting']) i;
});
$primary->safe_psql('postgres', 'CALL durable_work()');

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# one is running on the primary when that is lost
my $keeper = $primary->background_psql('postgres');
$keeper->query_safe('SELECT pg_advisory_lock(1)');
$primary->safe_psql('postgres', q{SELECT durable_start('steps', '"running"', id => 'running')});
my $driver = $primary->background_psql('postgres');
$driver->query_until(qr/start/, "\\echo start\nCALL durable_work();\n");
$primary->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted});
$primary->wait_for_catchup($standby);

for my $call (
	q{SELECT durable_start('steps', '"x"')}, q{SELECT durable_signal('waiting', 'go')},
	q{SELECT durable_run('waiting')},        q{CALL durable_work()},
	q{SELECT durable_resume('waiting')},     q{SELECT durable_register('steps')},
	q{SELECT durable_unregister('steps')},   q{SELECT durable_register_activity('act')},
	q{SELECT durable_status('waiting')},     q{SELECT durable_result('completed')},
	q{SELECT durable_signal_start('steps', '{}', 'waiting', 'go')},
	q{SELECT durable_publish('news')},       q{SELECT durable_query('waiting')},
	q{SELECT durable_update('waiting', 'u')}, q{SELECT durable_update_result(1)},
	q{CALL durable_update_wait('waiting', 'u', '{}', '1 s')},
	q{SELECT durable_cancel('waiting')},     q{SELECT durable_terminate('waiting')},
	q{SELECT durable_pause('waiting')},      q{SELECT durable_pause_workflow('steps')},
	q{SELECT durable_resume_workflow('steps')},
	q{SELECT durable_pause_all()},           q{SELECT durable_resume_all()},
	q{SELECT durable_retry('completed')},    q{SELECT durable_fork('completed', 1)})
{
	my ($name) = $call =~ /(durable_\w+)/;
	my ($status, $out, $err) = $standby->psql('postgres', $call);
	like($err, qr/\Q$name\E\(\) cannot be called while the server is in recovery/,
		"$name says that the server is in recovery");
}

is( $standby->safe_psql('postgres',
		q{SELECT string_agg(id || ' ' || status, ', ' ORDER BY id) FROM durable.instances}),
	'completed completed, running running, waiting waiting_for_event',
	'the instances can be seen');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM durable.events'), '11', 'and the events');
for my $view (qw(steps messages timers workflows))
{
	my ($status) = $standby->psql('postgres', "SELECT * FROM durable.$view");
	is($status, 0, "and view $view");
}

$primary->stop('immediate');
$standby->promote;
$standby->safe_psql('postgres', q{SELECT durable_signal('waiting', 'go')});
$standby->safe_psql('postgres', 'CALL durable_work()');
is( $standby->safe_psql('postgres',
		q{SELECT string_agg(id || ' ' || status, ', ' ORDER BY id) FROM durable.instances}),
	'completed completed, running completed, waiting completed',
	'after the promotion all go on');
is($standby->safe_psql('postgres', 'SELECT count(*), count(DISTINCT (id, step)) FROM effect'),
	'9|9', 'each effect is there once');

$standby->stop;
eval { $_->quit } for $driver, $keeper;
done_testing();
