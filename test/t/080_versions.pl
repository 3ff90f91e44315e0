# Ten versions of three workflows are deployed while instances of them are
# started, run and signalled, half of them without a word to durable, and the
# server crashes in the middle.  In the end every instance has completed on the
# code its policy says (C5, C6), what was marked stays as it was marked (C1),
# every step has had its effect once (A8), and no copy is left.
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $versions = 10;
my $node = PostgreSQL::Test::Cluster->new('versions');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
durable.max_workers = 3
durable.sweep_interval = '1s'
log_min_messages = warning
CONF
$node->start;

# An unprivileged role does it all.
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE ROLE app LOGIN;
GRANT USAGE ON SCHEMA durable TO app;
CREATE SCHEMA app AUTHORIZATION app;
SQL

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', 'app' ]);
}

sql(<<'SQL');
CREATE TABLE effect (id text, step int);
CREATE FUNCTION act(step int) RETURNS int LANGUAGE sql AS $$
	INSERT INTO effect VALUES (durable_instance_id(), step) RETURNING step $$;
SQL

# What is marked when the instance comes by is what the code was then, whatever
# it is later.
sub deploy
{
	my ($version, $register) = @_;
	my $sql = '';
	foreach my $policy ('pin', 'continue', 'hold')
	{
		$sql .= <<SQL;
CREATE OR REPLACE FUNCTION app.$policy() RETURNS jsonb LANGUAGE plpgsql AS \$\$
DECLARE
	marked int;
BEGIN
	/* code: $version */
	PERFORM durable_call('act', '[1]');
	marked := durable_change_version('deployed', 0, $version);
	PERFORM durable_sleep('20 ms');
	PERFORM durable_wait_signal('go');
	PERFORM durable_call('act', '[2]');
	RETURN jsonb_build_object('code', $version, 'marked', marked);
END \$\$;
SQL
		$sql .= "SELECT durable_register('$policy', on_change => '$policy');\n" if $register;
	}
	sql("BEGIN; $sql COMMIT;");
	return;
}

my $dir = PostgreSQL::Test::Utils::tempdir;
append_to_file("$dir/start.sql", <<'SQL');
SELECT durable_start((ARRAY['pin', 'continue', 'hold'])[1 + floor(random() * 3)::int]);
SQL
append_to_file("$dir/signal.sql", <<'SQL');
DO $$
DECLARE
	chosen text;
BEGIN
	SELECT id INTO chosen FROM durable.instances
	 WHERE status = 'waiting_for_event' ORDER BY random() LIMIT 1;
	PERFORM durable_signal(chosen, 'go') WHERE chosen IS NOT NULL;
EXCEPTION WHEN SQLSTATE 'WF005' THEN
END $$;
SQL

my ($out, $err);

sub begin_load
{
	($out, $err) = ('', '');
	return IPC::Run::start(
		[
			'pgbench', '-n', '-U', 'app', '-c', '3', '-t', '12',
			'-f', "$dir/start.sql\@2", '-f', "$dir/signal.sql\@1",
			$node->connstr('postgres')
		],
		'<', \undef, '>', \$out, '2>', \$err);
}

deploy(1, 1);
for my $version (2 .. $versions)
{
	my $load = begin_load();

	# in the middle of the load, and the next one begins on it
	$node->poll_query_until('postgres',
		"SELECT count(*) > 8 * ($version - 2) FROM durable_internal.instance");
	deploy($version, $version % 2);
	$load->finish;
	is($err =~ /aborted|ERROR/ ? $err : '', '', "version $version was deployed under load");
	if ($version == 6)
	{
		$node->stop('immediate');
		$node->start;
	}
}

#
# Everything comes to its end: what is held is let go, one half on what it
# began on, the other one on what is current.
#
sub in_flight
{
	return sql(q{SELECT count(*) FROM durable.instances WHERE ended_at IS NULL});
}

ok( $node->poll_query_until('postgres', <<'SQL'), 'all wait, or are held');
SELECT count(*) = 0 FROM durable.instances WHERE status NOT IN ('completed', 'waiting_for_event', 'held')
SQL
is( sql(q{SELECT string_agg(DISTINCT workflow, ',') FROM durable.instances WHERE status = 'held'}),
	'hold', 'only those are held that are to be');
is( sql(q{SELECT count(*) FROM durable.instances WHERE status = 'held'
	AND reason !~ 'WF005: .* has changed: .*version \d+ \([0-9a-f]{64}\).* \d+ \([0-9a-f]{64}\)'}),
	'0', 'with both hashes as the reason');
# who waits may not have noticed yet
sql(q{SELECT durable_signal(id, 'go') FROM durable.instances WHERE status IN ('waiting_for_event', 'held')});
ok( $node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM durable.instances WHERE status NOT IN ('completed', 'held')}),
	'all others complete');
sql(q{
	CREATE TABLE choice AS
		SELECT id, (ARRAY['pinned', 'current'])[1 + (row_number() OVER (ORDER BY id) % 2)::int] AS definition, version
		  FROM durable.instances WHERE status = 'held';
	SELECT durable_resume(id, definition => definition) FROM choice;
});
ok( $node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM durable.instances WHERE status <> 'completed'}),
	'and the held ones, too');

my ($count, $pin, $continue, $hold) = split /\|/,
  sql(q{SELECT count(*), count(*) FILTER (WHERE workflow = 'pin'), count(*) FILTER (WHERE workflow = 'continue'),
		count(*) FILTER (WHERE workflow = 'hold') FROM durable.instances});
note("$count instances: $pin pin, $continue continue, $hold hold");
ok($pin > 10 && $continue > 10 && $hold > 10, 'there were enough of each');
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM durable.instances i
	  JOIN durable_internal.workflow_version v ON v.workflow = i.workflow AND v.version = i.version
	 WHERE substring(v.definition FROM 'code: (\d+)')::int <> (i.result ->> 'code')::int}),
	'0', 'each ended on the code of its version');
is( sql(q{SELECT count(*) FROM durable.instances i WHERE workflow = 'pin'
	AND (result ->> 'code' <> result ->> 'marked'
	     OR EXISTS (SELECT FROM durable.events e WHERE e.id = i.id AND e.event = 'WorkflowDefinitionChanged'))}),
	'0', 'the pinned ones on what they began on');
is( sql(q{SELECT count(*) FROM durable.instances i JOIN choice c USING (id) WHERE c.definition = 'pinned' AND i.version <> c.version}),
	'0', 'and those for which that was chosen');
is( sql(qq{SELECT count(*) FROM durable.instances i JOIN choice c USING (id)
	WHERE c.definition = 'current' AND i.result ->> 'code' <> '$versions'}),
	'0', 'the others on what was current');
cmp_ok(sql(q{SELECT count(*) FROM durable.instances WHERE workflow = 'continue' AND result ->> 'code' <> result ->> 'marked'}),
	'>', 0, 'others went on with new code, as the old ones they are');
is( sql(q{SELECT count(*) FROM durable.instances WHERE (result ->> 'code')::int < (result ->> 'marked')::int}),
	'0', 'and never the other way');
is(sql('SELECT count(*) = 2 * (SELECT count(*) FROM durable.instances), count(*) = count(DISTINCT (id, step)) FROM effect'),
	't|t', 'each step had its effect once');
ok( $node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%'}),
	'no copy is left');
is( $node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM durable_internal.pin), (SELECT count(*) FROM durable_internal.pin_use)'),
	'0|0', 'nor a note of one');
is( sql(q{SELECT count(*) FROM durable.workflows WHERE NOT current AND NOT can_go}),
	'0', 'all old versions can go');
cmp_ok(sql(q{SELECT min(n) FROM (SELECT count(*) AS n FROM durable.workflows GROUP BY name) x}),
	'>=', $versions / 2, 'what was not registered was noticed');

$node->stop;
done_testing();
