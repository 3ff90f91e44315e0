# Waiting for results: durable_result(id, wait) and CALL durable_wait (I3).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('wait');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
max_prepared_transactions = 5
max_connections = 60
durable.sweep_interval = '1 s'
fsync = off
CONF
$node->start;

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }

sub refused
{
	my ($sql, $pattern, $name) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return like($err, $pattern, $name);
}

sub soon
{
	my ($sql, $expected, $name, $seconds) = @_;
	local $PostgreSQL::Test::Utils::timeout_default = $seconds // 10;
	return ok($node->poll_query_until('postgres', $sql, $expected), $name);
}

# What a session says to SQL, when it has ended.
my @sessions;

sub in_background
{
	my ($sql) = @_;
	my $session = { out => '', err => '' };
	$session->{handle} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $node->connstr('postgres'), '-c', $sql ],
		'<', \undef, '>', \$session->{out}, '2>', \$session->{err}, IPC::Run::timer(60));
	push @sessions, $session;
	return $session;
}
sub finish { my ($session) = @_; $session->{handle}->finish; chomp $session->{out}; return $session; }

sub waiting { return "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%/* $_[0] */%' AND pid <> pg_backend_pid() AND wait_event_type = 'Extension'"; }

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no luck' USING ERRCODE = 'AB123'; END$$;
CREATE FUNCTION waits(outcome text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE payload jsonb := durable_wait_signal('go');
BEGIN
	IF outcome = 'fail' THEN
		PERFORM durable_call('public.fails', retry => durable_retry_policy(max_attempts => 1));
	END IF;
	RETURN CASE outcome WHEN 'null' THEN NULL ELSE payload END;
END $$;
SELECT durable_register('waits');
SQL
my $count = 0;
sub start { my ($outcome) = @_; my $id = 'w' . ++$count; sql("SELECT durable_start('waits', '{\"outcome\": \"$outcome\"}', id => '$id')"); return $id; }

# The end arrives, in both ways, with a result, NULL, an error.
my %expected = (
	value => [ qr/^\{"x": 1\}$/, qr/^$/ ],
	null => [ qr/^$/, qr/^$/ ],
	fail => [ qr/^$/, qr/AB123.*no luck/ ]);
for my $how ("SELECT /* %s */ durable_result('%s', '30 s')", "CALL /* %s */ durable_wait('%s', '30 s', NULL)")
{
	for my $outcome (sort keys %expected)
	{
		my $id = start($outcome);
		my $session = in_background(sprintf($how, $id, $id));
		soon(waiting($id), '1', "$how: waits");
		is(sql("SELECT backend_xmin IS NULL, backend_xid IS NULL FROM pg_stat_activity WHERE query LIKE '%/* $id */%' AND pid <> pg_backend_pid()"),
			't|t', 'durable_wait holds no snapshot meanwhile') if $how =~ /CALL/;
		my $begin = time;
		sql("SELECT durable_signal('$id', 'go', '{\"x\": 1}')");
		finish($session);
		cmp_ok(time - $begin, '<', 2, 'the end wakes it');
		like($session->{out}, $expected{$outcome}[0], "$outcome: what it returns");
		like($session->{err}, $expected{$outcome}[1], "$outcome: what it raises");
	}
}

# An instance that has ended is not waited for, in a transaction either.
is(sql("SELECT durable_result('w2', '1 hour')"), '', 'ended: at once');
is(sql("BEGIN; CALL durable_wait('w3', '1 hour', NULL); COMMIT"), '{"x": 1}', 'ended: durable_wait in a transaction');

# The time is over; no time at all; what is no time.
my $id = start('value');
soon("SELECT durable_status('$id')", 'waiting_for_event', 'it waits');
for my $call ("SELECT durable_result('$id', '300 ms')", "CALL durable_wait('$id', '300 ms', NULL)")
{
	my $begin = time;
	refused($call, qr/WF005.*instance "$id" has no result yet: it is waiting_for_event/, "$call: time out");
	cmp_ok(time - $begin, '>=', 0.3, 'not before');
	cmp_ok(time - $begin, '<', 2, 'nor long after');
	(my $negative = $call) =~ s/300 ms/-1 hour/;
	refused($negative, qr/WF005.*no result yet/, 'a negative time is none');
	(my $null = $call) =~ s/'300 ms'/NULL/;
	refused($null, qr/ERROR:  22.*wait/, 'NULL is an error');
	(my $unknown = $call) =~ s/$id/nothing/;
	refused($unknown, qr/WF004.*instance "nothing" does not exist/, 'no such instance');
}

# Cancels, and the session is in order after it.
for my $call ("SELECT durable_result('$id', '1 hour')", "CALL durable_wait('$id', '1 hour', NULL)")
{
	(my $marked = $call) =~ s/durable/\/* cancel *\/ durable/;
	my $session = in_background($marked);
	soon(waiting('cancel'), '1', 'waits');
	sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%/* cancel */%' AND pid <> pg_backend_pid()");
	like(finish($session)->{err}, qr/57014.*user request/, "$call: pg_cancel_backend");
	$session = in_background($marked);
	soon(waiting('cancel'), '1', 'waits');
	sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%/* cancel */%' AND pid <> pg_backend_pid()");
	like(finish($session)->{err}, qr/57P01|terminat/, "$call: pg_terminate_backend");
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	$psql->query('SET statement_timeout = 200');
	$psql->query($call);
	like($psql->{stderr}, qr/statement timeout/, "$call: statement_timeout");
	$psql->{stderr} = '';
	is($psql->query("RESET statement_timeout; SELECT durable_status('$id')"), 'waiting_for_event', 'the session goes on');
	$psql->quit;
}

# Where waiting would be in vain.
refused("BEGIN; SELECT durable_start('waits', '{\"outcome\": \"x\"}', id => 'mine'); SELECT durable_result('mine', '3 s')",
	qr/WF005.*cannot wait for instance "mine" in the transaction that starts it/, 'in the starting transaction');
{
	my $begin = time;
	refused("BEGIN; SAVEPOINT s; SELECT durable_start('waits', '{\"outcome\": \"x\"}', id => 'mine'); RELEASE s; SELECT durable_result('mine', '3 s')",
		qr/WF005.*cannot wait for instance "mine" in the transaction that starts it/, 'started in a savepoint');
	refused("DO \$\$ BEGIN BEGIN PERFORM durable_start('waits', '{\"outcome\": \"x\"}', id => 'mine'); EXCEPTION WHEN division_by_zero THEN END; PERFORM durable_result('mine', '3 s'); END \$\$",
		qr/WF005.*cannot wait for instance "mine" in the transaction that starts it/, 'started in an exception block');
	cmp_ok(time - $begin, '<', 2, 'it is said at once');
}
refused("BEGIN ISOLATION LEVEL $_; SELECT durable_result('$id', '3 s')",
	qr/WF005.*cannot wait for a result above isolation level READ COMMITTED/, $_) for 'REPEATABLE READ', 'SERIALIZABLE';
refused("SET default_transaction_isolation = 'repeatable read'; CALL durable_wait('$id', '3 s', NULL)",
	qr/WF005.*cannot wait/, 'durable_wait above READ COMMITTED');
refused("BEGIN; CALL durable_wait('$id', '3 s', NULL)", qr/2D000.*outside of transactions.*HINT/s, 'durable_wait in a transaction');
refused("DO \$\$ DECLARE r jsonb; BEGIN CALL durable_wait('$id', '200 ms', r); END \$\$", qr/WF005.*has no result yet/, 'durable_wait in DO');
refused("CREATE PROCEDURE p() SECURITY DEFINER LANGUAGE plpgsql AS \$\$ DECLARE r jsonb; BEGIN CALL durable_wait('$id', '200 ms', r); END \$\$; CALL p()",
	qr/2D000/, 'durable_wait in a SECURITY DEFINER procedure');
is(sql("CREATE TABLE seen (r jsonb); DO \$\$ DECLARE r jsonb; BEGIN INSERT INTO seen VALUES ('0'); CALL durable_wait('w3', '3 s', r); INSERT INTO seen VALUES (r); END \$\$; SELECT count(*) FROM seen"),
	'2', 'durable_wait in DO, of an ended instance');

# Many wait at once, for one and for many.
my @waiters = map { in_background("CALL /* many */ durable_wait('$id', '60 s', NULL)") } 1 .. 10;
push @waiters, map { in_background("SELECT /* many */ durable_result('$id', '60 s')") } 1 .. 10;
my @ids = map { start('value') } 1 .. 10;
my @others = map { in_background("SELECT /* many */ durable_result('$_', '60 s')") } @ids;
soon(waiting('many'), '30', 'thirty wait');
my $begin = time;
sql("SELECT durable_signal('$id', 'go', '1')");
is(scalar(grep { finish($_)->{out} eq '1' } @waiters), 20, 'all twenty get the result');
cmp_ok(time - $begin, '<', 3, 'soon');
is(sql(waiting('many')), '10', 'and only they');
sql("SELECT durable_signal('$_', 'go', '2')") for @ids;
is(scalar(grep { finish($_)->{out} eq '2' } @others), 10, 'those of others too');

# An end that another driver makes wakes as well; one whose hint is lost is
# found by another look.
sql("ALTER SYSTEM SET durable.databases = ''");
$node->restart;
$id = start('value');
sql('CALL durable_work()');
sql("SELECT durable_signal('$id', 'go', '3')");
my $session = in_background("SELECT /* driven */ durable_result('$id', '30 s')");
soon(waiting('driven'), '1', 'waits');
sql('CALL durable_work()');
is(finish($session)->{out}, '3', 'driven by durable_work');
$id = start('value');
sql("SELECT durable_signal('$id', 'go', '4')");
$session = in_background("CALL /* prepared */ durable_wait('$id', '20 s', NULL)");
soon(waiting('prepared'), '1', 'waits');
sql("BEGIN; SELECT durable_run('$id'); PREPARE TRANSACTION 'p'");
$begin = time;
sql("COMMIT PREPARED 'p'");
is(finish($session)->{out}, '4', 'driven in a prepared transaction');
cmp_ok(time - $begin, '<', 5, 'it does not need all the time it was given');

# What a look takes is freed after it: who waits is woken for others, too.
sub memory_of
{
	my ($mark) = @_;
	my $offset = -s $node->logfile;
	sql("SELECT pg_log_backend_memory_contexts(pid) FROM pg_stat_activity WHERE query LIKE '%/* $mark */%' AND pid <> pg_backend_pid()");
	for (1 .. 100)
	{
		return $1 if slurp_file($node->logfile, $offset) =~ /Grand total: (\d+) bytes/;
		select undef, undef, undef, 0.1;
	}
	return 0;
}
{
	my $id = start('value');
	my @calls = ("CALL /* long 0 */ durable_wait('$id', '1 min', NULL)", "SELECT /* long 1 */ durable_result('$id', '1 min')");
	my @waiters = map { in_background($_) } @calls;
	soon(waiting("long $_"), '1', 'waits') for 0 .. 1;
	my @before = map { memory_of("long $_") } 0 .. 1;
	# all of these are of the same condition
	sql('ALTER SEQUENCE durable_internal.iid_seq INCREMENT 64');
	sql(q{DO $$ BEGIN FOR i IN 1 .. 1500 LOOP
		PERFORM durable_start('waits', '"value"', id => 'other ' || i), durable_terminate('other ' || i); COMMIT;
	END LOOP; END $$});
	sql('ALTER SEQUENCE durable_internal.iid_seq INCREMENT 1');
	cmp_ok(memory_of("long $_") - $before[$_], '<', 128 * 1024, "$calls[$_] keeps nothing of its looks") for 0 .. 1;
	sql("SELECT durable_signal('$id', 'go', '7')");
	sql('CALL durable_work()');
	is(finish($_)->{out}, '7', 'and ends') for @waiters;
}

# A waiter does not survive the extension.
$id = start('value');
$session = in_background("CALL /* dropped */ durable_wait('$id', '20 s', NULL)");
soon(waiting('dropped'), '1', 'waits');
$begin = time;
sql('DROP EXTENSION durable');
like(finish($session)->{err}, qr/not installed|does not exist/, 'the extension is dropped: an error');
cmp_ok(time - $begin, '<', 5, 'soon');
sql('CREATE EXTENSION durable; SELECT durable_register(\'waits\')');

# Without preload it says so.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
$id = start('value');
refused("SELECT durable_result('$id', '1 s')", qr/55000.*needs durable in shared_preload_libraries.*HINT.*durable_work/s, 'without preload');
refused("CALL durable_wait('$id', '1 s', NULL)", qr/55000.*needs durable in shared_preload_libraries/, 'without preload');
refused("SELECT durable_result('$id')", qr/WF005.*no result yet: it is pending/, 'without waiting it is as ever');

$node->stop('fast');
done_testing();
