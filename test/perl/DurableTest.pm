# What several of the TAP tests do to a server.
package DurableTest;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(restarts_of crash_of);

# How often the server has begun anew after a crash.
sub restarts_of
{
	my ($node) = @_;
	my $log = slurp_file($node->logfile);
	return scalar(() = $log =~ /all server processes terminated; reinitializing/g);
}

# Kills a process of the server, and waits until that is there again. Not by
# psql: one that is refused does not read what it is given, and that kills us.
sub crash_of
{
	my ($node, $pid) = @_;
	my $before = restarts_of($node);
	kill 'KILL', $pid;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last
		  if restarts_of($node) > $before
		  && IPC::Run::run([ 'pg_isready', '-q', '-d', $node->connstr('postgres') ]);
		select undef, undef, undef, 0.1;
	}
	return;
}

1;
