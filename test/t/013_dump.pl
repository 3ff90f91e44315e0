# J5: pg_dump and restore carry the instances; they go on in the restored
# database.  A role that owns the database but may not read the extension's
# tables cannot dump it, and one with pg_read_all_data can.
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->start;
my $dir = PostgreSQL::Test::Utils::tempdir;

# In the other cluster the role has another OID.
$node->safe_psql('postgres', 'CREATE ROLE filler; CREATE ROLE app LOGIN; CREATE ROLE dbowner LOGIN');
$other->safe_psql('postgres', 'CREATE ROLE dbowner LOGIN; CREATE ROLE a1; CREATE ROLE a2; CREATE ROLE app LOGIN');
$node->safe_psql('postgres', 'CREATE DATABASE source OWNER dbowner');

$node->safe_psql('source', q{
	CREATE EXTENSION durable;
	GRANT USAGE ON SCHEMA durable TO app;
	GRANT CREATE, USAGE ON SCHEMA public TO app;
});
my $as_app = [ extra_params => [ '-U', 'app' ] ];
$node->safe_psql('source', q{
	CREATE TABLE effect (id text, step int);
	CREATE FUNCTION act(id text, step int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(1) WHERE id = 'running' AND step = 2;
		IF id = 'failed' THEN
			RAISE EXCEPTION 'no';
		END IF;
		INSERT INTO effect VALUES (id, step);
		RETURN step;
	END $$;
	CREATE FUNCTION steps(id text) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		go jsonb;
	BEGIN
		PERFORM durable_call('act', jsonb_build_array(id, 1));
		PERFORM durable_call('act', jsonb_build_array(id, 2));
		IF id = 'signal' THEN
			go := durable_wait_signal('go');
		ELSIF id = 'timer' THEN
			PERFORM durable_sleep('1 s');
		END IF;
		PERFORM durable_call('act', jsonb_build_array(id, 3));
		RETURN go;
	END $$;
	CREATE FUNCTION changes() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		PERFORM durable_wait_signal('go');
		RETURN 'old, ' || current_user;
	END $$;
	SELECT durable_register('changes');
	SELECT durable_start('changes', id => id) FROM unnest('{changed,changed too}'::text[]) id;
	SELECT durable_register('steps', activity_retry => durable_retry_policy(max_attempts => 1));
	SELECT durable_start('steps', to_jsonb(i), id => i)
	  FROM unnest(ARRAY['completed', 'failed', 'signal', 'timer']) i;
}, @$as_app);
$node->safe_psql('source', 'CALL durable_work()', @$as_app);

# C5: one has a copy of its function when it is dumped, the other one needs it later
$node->safe_psql('source', q{
	CREATE OR REPLACE FUNCTION changes() RETURNS text LANGUAGE sql AS $$ SELECT 'new' $$;
	SELECT durable_pause('changed'), durable_resume('changed');
}, @$as_app);
$node->safe_psql('source', 'CALL durable_work()', @$as_app);
is($node->safe_psql('source', q{SELECT count(*) FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%'}),
	'1', 'there is a copy');
$node->safe_psql('source', q{
	SELECT durable_start('steps', '"running"', id => 'running');
	SELECT durable_start('steps', '"later"', id => 'later', start_at => now() + interval '1 s');
}, @$as_app);

# one is running while it is dumped
my $keeper = $node->background_psql('source');
$keeper->query_safe('SELECT pg_advisory_lock(1)');
my ($out, $err) = ('', '');
my $driver = IPC::Run::start(
	[ 'psql', '-XAtq', '-U', 'app', '-d', $node->connstr('source'), '-c', 'CALL durable_work()' ],
	'<', \undef, '>', \$out, '2>', \$err);
$node->poll_query_until('source',
	q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted});
$node->safe_psql('source', q{SELECT durable_start('steps', '"pending"', id => 'pending')}, @$as_app);
$node->safe_psql('source', q{SELECT durable_signal('signal', 'go', '"unread"')}, @$as_app);

$node->command_ok(
	[ 'pg_dump', '-Fc', '-f', "$dir/dump", '-d', $node->connstr('source') ],
	'a superuser can dump');
$keeper->quit;
$driver->finish;

#
# Who else can
#
$node->command_fails_like(
	[ 'pg_dump', '-U', 'dbowner', '-f', "$dir/dump_owner", '-d', $node->connstr('source') ],
	qr/permission denied for (schema durable_internal|table)/,
	'the owner of the database cannot dump the tables');
$node->safe_psql('source', 'GRANT pg_read_all_data TO dbowner');
$node->command_ok(
	[ 'pg_dump', '-U', 'dbowner', '-f', "$dir/dump_owner", '-d', $node->connstr('source') ],
	'with pg_read_all_data it can');
like(slurp_file("$dir/dump_owner"), qr/^COPY durable_internal\.history .*\n1\t1\t/m,
	'and the dump has the histories');

#
# Everything is there, and goes on
#
sub check_restored
{
	my ($where, $what) = @_;

	is( $where->safe_psql('target',
			q{SELECT string_agg(id || ' ' || status, ', ' ORDER BY id) FROM durable.instances
			   WHERE id NOT IN ('timer', 'later') AND id !~ 'changed'}),
		'completed completed, failed failed, pending pending, running running, signal waiting_for_event',
		"$what: the instances are as they were");
	is($where->safe_psql('target', q{SELECT payload FROM durable.messages}),
		'"unread"', "$what: so is a message that was not read");

	$where->safe_psql('target', q{SELECT durable_signal(id, 'go') FROM unnest('{changed,changed too}'::text[]) id}, @$as_app);
	# until the timers are due
	for (1 .. 600)
	{
		$where->safe_psql('target', 'CALL durable_work()', @$as_app);
		last if $where->safe_psql('target',
			'SELECT count(*) FROM durable.instances WHERE ended_at IS NULL') eq '0';
		last if $where->safe_psql('target',
			q{SELECT count(*) FROM durable.timers}) eq '0';
	}
	is( $where->safe_psql('target',
			q{SELECT string_agg(id || ' ' || status, ', ' ORDER BY id) FROM durable.instances WHERE id !~ 'changed'}),
		'completed completed, failed failed, later completed, pending completed, '
		  . 'running completed, signal completed, timer completed',
		"$what: all go on to their end");
	is( $where->safe_psql('target',
			'SELECT count(*), count(DISTINCT (id, step)) FROM effect'),
		'18|18',
		"$what: each effect is there once");
	is($where->safe_psql('target', q{SELECT durable_result('signal')}, @$as_app),
		'"unread"', "$what: the message was received");

	is( $where->safe_psql('target',
			q{SELECT string_agg(id || ' ' || result, ', ' ORDER BY id) FROM durable.instances WHERE id ~ 'changed'}),
		'changed "old, app", changed too "old, app"',
		"$what: pinned ones end on the definition they began on, as its owner");
	is($where->safe_psql('target', q{SELECT count(*) FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%'}),
		'0', "$what: no copy is left");

	# numbers go on as well
	$where->safe_psql('target', q{SELECT durable_start('steps', '"new"', id => 'new')}, @$as_app);
	$where->safe_psql('target', 'CALL durable_work()', @$as_app);
	is($where->safe_psql('target', q{SELECT durable_status('new')}, @$as_app),
		'completed', "$what: new instances can be started");
}

$node->safe_psql('postgres', 'CREATE DATABASE target');
$node->command_ok(
	[ 'pg_restore', '--exit-on-error', '-d', $node->connstr('target'), "$dir/dump" ],
	'restored into the same cluster');
check_restored($node, 'same cluster');

$other->safe_psql('postgres', 'CREATE DATABASE target');
$other->command_ok(
	[ 'pg_restore', '--exit-on-error', '-d', $other->connstr('target'), "$dir/dump" ],
	'restored into another cluster');

# There the OID is another role's, or nobody's, so the instances are nobody's
# until a superuser has mapped the roles by name, as the guide says.
is( $other->safe_psql('target', 'SELECT count(*) FROM durable.instances', @$as_app),
	'0', 'other cluster: the instances are nobody\'s at first');
$other->safe_psql('target', <<'SQL');
BEGIN;
UPDATE durable_internal.instance SET run_as = (SELECT oid FROM pg_roles WHERE rolname = run_as_name);
UPDATE durable_internal.ready q SET run_as = i.run_as FROM durable_internal.instance i WHERE i.iid = q.iid;
UPDATE durable_internal.timer q SET run_as = i.run_as FROM durable_internal.instance i WHERE i.iid = q.iid;
UPDATE durable_internal.subscription q SET run_as = i.run_as FROM durable_internal.instance i WHERE i.iid = q.chain;
UPDATE durable_internal.workflow SET owner = (SELECT oid FROM pg_roles WHERE rolname = owner_name);
UPDATE durable_internal.workflow_version SET owner = (SELECT oid FROM pg_roles WHERE rolname = owner_name);
UPDATE durable_internal.workflow_handler SET owner = (SELECT oid FROM pg_roles WHERE rolname = owner_name);
UPDATE durable_internal.activity SET owner = (SELECT oid FROM pg_roles WHERE rolname = owner_name),
       served_by = (SELECT oid FROM pg_roles WHERE rolname = served_by_name);
UPDATE durable_internal.task SET run_as = (SELECT i.run_as FROM durable_internal.instance i WHERE i.iid = task.iid),
       served_by = (SELECT oid FROM pg_roles WHERE rolname = served_by_name);
COMMIT;
SQL
check_restored($other, 'other cluster');

$node->stop;
$other->stop;
done_testing();
