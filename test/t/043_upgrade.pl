# A server in binary upgrade mode, as pg_upgrade starts it, runs nothing of
# ours: what would be written is none of the upgrade's (J8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'durable'");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT durable_register('one');
SELECT durable_start('one', id => 'due', start_at => clock_timestamp() + '1 s');
SQL
my $ours = "FROM pg_stat_activity WHERE backend_type LIKE 'durable%'";
ok($node->poll_query_until('postgres', "SELECT count(*) >= 2 $ours"), 'launcher and scheduler run');
$node->stop;

# The pid file says "ready" before background workers are started, so there is
# something to wait for: the timer, and the log of a server that began them.
my $offset = -s $node->logfile;
command_ok(
	[ 'pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, '-o', "-b -c log_min_messages=debug1", 'start' ],
	'start in binary upgrade mode');
$node->_update_pid(1);
ok($node->poll_query_until('postgres', "SELECT wake_at < clock_timestamp() - interval '1 s' FROM durable.timers"),
	'the timer is long due');
is($node->safe_psql('postgres', "SELECT count(*) $ours"), '0', 'no process of ours');
unlike(slurp_file($node->logfile, $offset), qr/registering background worker "durable/, 'none was registered');
is($node->safe_psql('postgres', "SELECT durable_status('due')"), 'pending', 'and nothing ran');
$node->stop;

$node->start;
ok($node->poll_query_until('postgres', "SELECT durable_status('due') = 'completed'"), 'it runs when the server is itself again');
$node->stop;
done_testing();
