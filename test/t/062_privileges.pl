# Messages and control between roles: who is not a member of the role of an
# instance can neither reach nor see it (I4, I7), and code of an instance runs
# as its role, in the sandbox, in no other role's session (I8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
durable.sweep_interval = '10 min'
CONF
$node->start;
# whoever runs the test is the superuser
$node->safe_psql('postgres', 'CREATE ROLE postgres SUPERUSER LOGIN')
  if $node->safe_psql('postgres', 'SELECT current_user') ne 'postgres';

# as ROLE, SQL: the output; an error fails the test.
sub as
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql,
		extra_params => [ '-U', $role ], on_error_stop => 1);
	ok(0, "$role: $sql") or diag($err) if $status != 0;
	return $out;
}

sub refused
{
	my ($role, $sql, $pattern, $name) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql,
		extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ], on_error_stop => 1);
	return like($err, $pattern, $name);
}

sub becomes
{
	my ($id, $status) = @_;
	return ok($node->poll_query_until('postgres', "SELECT status FROM durable.instances WHERE id = '$id' ORDER BY run DESC LIMIT 1", $status),
		"$id is $status");
}

as('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE ROLE app LOGIN;
CREATE ROLE other LOGIN;
CREATE ROLE outsider LOGIN;
CREATE ROLE colleague LOGIN IN ROLE app;
GRANT USAGE ON SCHEMA durable TO app, other, colleague;
CREATE SCHEMA app AUTHORIZATION app;
GRANT USAGE ON SCHEMA app TO PUBLIC;
CREATE SCHEMA other AUTHORIZATION other;
SQL
as('app', <<'SQL');
CREATE TABLE app.victim (n int);
CREATE FUNCTION app.fold(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT payload $$;
CREATE FUNCTION app.fold_update(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT jsonb_build_object('state', payload, 'result', payload) $$;
CREATE FUNCTION app.tell(state jsonb, args jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT state $$;
CREATE FUNCTION app.secret() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_set_state('{"secret": 1}');
	PERFORM durable_on_signal('set', 'fold');
	PERFORM durable_on_update('set', 'fold_update');
	PERFORM durable_on_query('tell', 'tell');
	RETURN durable_wait_event('news');
END $$;
CREATE FUNCTION app.fails() RETURNS void LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no'; END $$;
SELECT durable_register('app.secret', name => 'secret'), durable_register('app.fails', name => 'fails');
SELECT durable_start('secret', id => 's1'), durable_start('fails', id => 'f1');
SQL
becomes('s1', 'waiting_for_event');
becomes('f1', 'failed');
as('app', q{SELECT durable_signal('s1', 'unread', '{"secret": 2}')});
my $update = as('app', q{SELECT durable_update('s1', 'set', '{"secret": 3}')});
is(as('app', "SELECT durable_update_result($update, '1 min')"), '{"secret": 3}', 'its own role has the answer');

#
# Another role
#
my $missing = qr/WF004.*does not exist.*HINT/s;
my @calls = (
	q{durable_signal('s1', 'set', '{}')}, q{durable_query('s1')}, q{durable_query('s1', 'tell')},
	q{durable_update('s1', 'set')}, "durable_update_result($update)",
	q{durable_cancel('s1')}, q{durable_cancel('s1', force => true)}, q{durable_terminate('s1')},
	q{durable_pause('s1')}, q{durable_resume('s1')}, q{durable_retry('f1')}, q{durable_fork('s1', 1)});
for my $call (@calls)
{
	refused('other', "SELECT $call", $missing, "I7: other: not for $call");
	refused('outsider', "SELECT $call", qr/42501.*permission denied for durable.*HINT/s, "I7: outsider: $call");
}
refused('other', q{CALL durable_update_wait('s1', 'set', '{}', '1 s')}, $missing, 'I7: other: durable_update_wait');
refused('other', q{SELECT durable_signal_start('secret', '{}', 's1', 'set')}, qr/WF004|WF008/,
	'I7: other: the id is taken for durable_signal_start');
refused('other', "SELECT durable_$_('secret')", qr/42501.*must be owner of workflow/, "I7: other: durable_$_")
  for qw(pause_workflow resume_workflow);
refused($_->[0], "SELECT durable_$_->[1]()", qr/42501.*must be superuser/, "I7: $_->[0]: durable_$_->[1]")
  for map { my $role = $_; map { [ $role, $_ ] } qw(pause_all resume_all) } qw(other app);
for my $call (q{durable_publish('news')}, q{durable_signal_start('secret', '{}', 's1', 'set')},
	q{durable_pause_workflow('secret')}, q{durable_pause_all()})
{
	refused('outsider', "SELECT $call", qr/42501.*permission denied for durable.*HINT/s, "I7: outsider: $call");
}
is(as('other', join ' UNION ALL ', map { "SELECT '$_' FROM durable.$_" } qw(instances events steps messages subscriptions timers)),
	'', 'I4: other sees nothing of it');
is(as('app', q{SELECT count(*) FROM durable.subscriptions}), '1', 'I4: its own role does');
as('other', q{SELECT durable_publish('news', '{"forged": true}')});
is(as('app', q{SELECT count(*) FROM durable.messages WHERE kind = 'event'}), '0',
	'I7: what other publishes does not reach it');
is(as('app', q{SELECT durable_query('s1'), status FROM durable.instances WHERE id = 's1'}),
	'{"secret": 3}|waiting_for_event', 'nothing of that had any effect');

#
# Handlers of queries run in a session of the role only.
#
is(as('app', q{SELECT durable_query('s1', 'tell')}), '{"secret": 3}', 'the role itself asks the handler');
for my $role (qw(colleague postgres))
{
	is(as($role, q{SELECT durable_query('s1')}), '{"secret": 3}', "I8: $role has the state");
	refused($role, q{SELECT durable_query('s1', 'tell')}, qr/42501.*run only in a session of role "app"/s,
		"I8: $role does not run the handler");
	refused($role, q{SET ROLE app; SELECT durable_query('s1', 'tell')}, qr/42501.*run only in a session/s,
		"I8: $role: nor after SET ROLE");
}
as('colleague', q{SELECT durable_publish('news', '{"by": "colleague"}')});
becomes('s1', 'completed');
is(as('app', q{SELECT durable_result('s1') -> 'data'}), '{"by": "colleague"}', 'a member can publish to it');

#
# Started by an event: as who registered it, if the publisher could start it and
# the two have to do with each other.
#
as('app', <<'SQL');
CREATE FUNCTION app.who() RETURNS text LANGUAGE sql AS 'SELECT current_user || session_user';
CREATE FUNCTION app.on_order(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS
$$ BEGIN RETURN durable_call('app.who'); END $$;
REVOKE EXECUTE ON FUNCTION app.on_order(jsonb) FROM PUBLIC;
SELECT durable_register('app.on_order', name => 'on_order', start_on => 'order');
SQL
refused('other', q{SELECT durable_start('on_order')}, qr/42501/, 'I8: other cannot start it');
as('other', q{SELECT durable_publish('order')});
is(as('postgres', q{SELECT count(*) FROM durable.instances WHERE workflow = 'on_order'}), '0',
	'I8: nor by an event');
as('app', q{GRANT EXECUTE ON FUNCTION app.on_order(jsonb) TO other});
as('other', q{SELECT durable_publish('order')});
is(as('postgres', q{SELECT count(*) FROM durable.instances WHERE workflow = 'on_order'}), '0',
	'I8: nor does it hear of a stranger\'s event, which has never asked for that');
as('postgres', q{GRANT other TO app});
as('other', q{SELECT durable_publish('order')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM durable.instances WHERE workflow = 'on_order' AND status = 'completed'}),
	'I8: with EXECUTE an event starts it');
is(as('postgres', q{SELECT run_as, result FROM durable.instances WHERE workflow = 'on_order'}),
	'app|"appapp"', 'I8: as who registered it');
is(as('other', q{SELECT count(*) FROM durable.instances}), '0', 'I4: the publisher does not see it');
as('postgres', q{REVOKE other FROM app});

#
# Handlers of ill will
#
my %ill = (
	set_role => q{PERFORM set_config('role', 'postgres', false)},
	set => q{EXECUTE 'SET ROLE postgres'},
	write => q{INSERT INTO other.loot VALUES (1)},
	constraints => q{EXECUTE 'SET CONSTRAINTS ALL DEFERRED'},
	read => q{PERFORM 1 FROM app.victim});
as('other', 'CREATE TABLE other.loot (n int)');
for my $ill (sort keys %ill)
{
	as('other', <<"SQL");
CREATE FUNCTION other.$ill(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS
\$\$ BEGIN $ill{$ill}; RETURN state; END \$\$;
CREATE FUNCTION other.w_$ill() RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
	PERFORM durable_set_state('{}');
	PERFORM durable_on_signal('x', 'other.$ill');
	PERFORM durable_on_query('q', 'other.$ill');
	PERFORM durable_wait_signal('end');
END \$\$;
SELECT durable_register('other.w_$ill', name => 'w_$ill');
SELECT durable_start('w_$ill', id => 'ill $ill');
SQL
	becomes("ill $ill", 'waiting_for_event');
	refused('other', "SELECT durable_query('ill $ill', 'q')", qr/WF006|25006|42501/, "I8: query handler: $ill");
	as('other', "SELECT durable_signal('ill $ill', 'x')");
	becomes("ill $ill", 'held');
	like(as('other', "SELECT reason FROM durable.instances WHERE id = 'ill $ill'"), qr/^(WF006|25006|42501)/,
		"I8: $ill is what holds it");
}
is(as('other', 'SELECT count(*) FROM other.loot'), '0', 'I8: nothing was written');

# As the role, with the settings of the start.
as('other', <<'SQL');
CREATE FUNCTION other.here() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'other'::text $$;
CREATE FUNCTION other.place(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS
$$ BEGIN RETURN to_jsonb(here()); END $$;
CREATE FUNCTION other.is_there(state jsonb) RETURNS bool LANGUAGE plpgsql AS
$$ BEGIN RETURN state = to_jsonb(here()); END $$;
CREATE FUNCTION other.path() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_on_signal('x', 'place');
	PERFORM durable_wait_until('is_there');
	RETURN durable_state();
END $$;
SELECT durable_register('other.path', name => 'path');
SET search_path = other, public;
SELECT durable_start('path', id => 'path');
SQL
becomes('path', 'waiting_for_event');
as('other', q{SET search_path = public; SELECT durable_signal('path', 'x')});
becomes('path', 'completed');
is(as('other', q{SELECT durable_result('path')}), '"other"', 'A19: handlers and conditions have the search_path of the start');

$node->stop;
done_testing();
