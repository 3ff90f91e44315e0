# Roles: what one grant opens, what stays closed without it, and that code of
# one role never runs with the rights, or under the settings, of another.
#
# All roles here but postgres are ordinary ones, with sessions of their own.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
# whoever runs the test is the superuser
$node->safe_psql('postgres', 'CREATE ROLE postgres SUPERUSER LOGIN')
  if $node->safe_psql('postgres', 'SELECT current_user') ne 'postgres';

# as ROLE, SQL: the output; an error fails the test.
sub as
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $node->psql(
		'postgres', $sql,
		extra_params => [ '-U', $role ],
		on_error_stop => 1);
	ok(0, "$role: $sql") or diag($err) if $status != 0;
	return $out;
}

# is_as ROLE, SQL, EXPECTED, NAME
sub is_as
{
	my ($role, $sql, $expected, $name) = @_;
	return is(as($role, $sql), $expected, $name);
}

# refused ROLE, SQL, PATTERN, NAME: its last statement fails like that.
sub refused
{
	my ($role, $sql, $pattern, $name) = @_;
	my ($status, $out, $err) = $node->psql(
		'postgres', $sql,
		extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ],
		on_error_stop => 1);
	return like($err, $pattern, $name);
}

# Drives until the next step is not due yet.
sub work { return as($_[0], 'CALL durable_work()'); }

sub sleep_until_timer
{
	my ($role, $id) = @_;
	as($role,
		"SELECT pg_sleep_until(wake_at) FROM durable.timers WHERE id = '$id'");
	return;
}

as('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE ROLE app LOGIN;
CREATE ROLE other LOGIN;
CREATE ROLE outsider LOGIN;
CREATE ROLE colleague LOGIN IN ROLE app;
CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
CREATE ROLE web NOLOGIN;
CREATE ROLE gateway LOGIN IN ROLE web;
GRANT USAGE ON SCHEMA durable TO app, other, colleague, watcher, web, gateway;
CREATE SCHEMA app AUTHORIZATION app;
GRANT USAGE ON SCHEMA app TO PUBLIC;
CREATE SCHEMA other AUTHORIZATION other;
GRANT USAGE ON SCHEMA other TO PUBLIC;
CREATE SCHEMA outsider AUTHORIZATION outsider;
ALTER ROLE colleague SET search_path = app, public;
SQL

#
# One grant is all that a role needs: the example from begin to end.
#
as('app', slurp_file('examples/order.sql'));
as('app', q{INSERT INTO stock VALUES ('book', 10)});
is_as('app',
	q{SELECT durable_start('order_workflow', '{"order_id": 42, "item": "book", "amount": 10}', id => 'order-42')},
	'order-42', 'a role with the grant starts a workflow');
work('app');
is_as('app', q{SELECT durable_status('order-42')},
	'waiting_for_activity', 'it waits for the next attempt');
sleep_until_timer('app', 'order-42');
work('app');
is_as('app', q{SELECT status, awaits FROM durable.instances},
	'waiting_for_event|{approval}', 'it waits for the signal');

# Meanwhile, what other roles can do with it: nothing (I4, I7).
my $sees_nothing = join ' UNION ALL ',
  map { "SELECT '$_' FROM durable.$_" } qw(instances events steps messages timers);
as('app', q{SELECT durable_signal('order-42', 'unread', '{"secret": 1}')});
is_as('other', $sees_nothing, '', 'other: all views of instances are empty');
for my $call (
	q{durable_status('order-42')}, q{durable_result('order-42')},
	q{durable_run('order-42')}, q{durable_resume('order-42')},
	q{durable_signal('order-42', 'approval', '{}')})
{
	refused('other', "SELECT $call",
		qr/WF004.*instance "order-42" does not exist.*HINT/s,
		"other: the instance does not exist for $call");
}
refused('other',
	q{CREATE FUNCTION order_workflow() RETURNS int LANGUAGE sql AS 'SELECT 1'; SELECT durable_register('order_workflow')},
	qr/42501.*must be owner of workflow order_workflow/,
	'other: cannot replace the workflow');
refused('other', q{SELECT durable_unregister('order_workflow')},
	qr/42501.*must be owner of workflow/, 'other: cannot unregister it');
refused('other', q{SELECT durable_register('app.order_workflow', name => 'mine')},
	qr/42501.*must be owner of function/, 'other: cannot register its function');
refused('other',
	q{SELECT durable_register_activity('a', 'app.ship')},
	qr/42501.*must be owner of function/,
	'other: cannot register its activity');
for my $on_conflict (qw(error existing restart_failed))
{
	refused('other',
		qq{SELECT durable_start('order_workflow', '{"order_id": 1, "item": "x", "amount": 1}', id => 'order-42', on_conflict => '$on_conflict')},
		qr/WF008/, "other: the id is taken, on_conflict => $on_conflict");
}
work('other');
is_as('app', q{SELECT durable_status('order-42')},
	'waiting_for_event', 'nothing of that had any effect');

# A member of the role can operate it, the superuser too; neither may run it.
is_as('colleague',
	q{SELECT durable_status('order-42'), input ->> 'item' FROM durable.instances},
	'waiting_for_event|book', 'a member sees the instance with its input');
as('colleague', q{SELECT durable_signal('order-42', 'approval', '{"by": "ann"}')});
is_as('postgres', q{SELECT name, payload FROM durable.messages ORDER BY name},
	qq{approval|{"by": "ann"}\nunread|{"secret": 1}},
	'the superuser sees all, with payloads');
for my $role (qw(colleague postgres))
{
	refused($role, q{SELECT durable_run('order-42')},
		qr/42501.*instance "order-42" runs as role "app".*HINT/s,
		"$role: cannot run what runs as another role");
	work($role);
}
is_as('app', q{SELECT durable_status('order-42')},
	'waiting_for_event', 'durable_work of others leaves it alone');

# pg_monitor sees rows, not payloads.
is_as('watcher',
	q{SELECT id, status, awaits, input, result, error, reason FROM durable.instances},
	'order-42|waiting_for_event|{approval}||||',
	'pg_monitor: the instance without payloads');
is_as('watcher',
	q{SELECT count(*) > 0, count(args), count(result), count(error), count(data) FROM durable.events},
	't|0|0|0|0', 'pg_monitor: events without payloads');
is_as('watcher',
	q{SELECT count(*) > 0, count(args), count(result), count(error) FROM durable.steps},
	't|0|0|0', 'pg_monitor: steps without payloads');
is_as('watcher', q{SELECT name, payload FROM durable.messages ORDER BY name},
	"approval|\nunread|", 'pg_monitor: messages without payloads');
refused('watcher', q{SELECT durable_status('order-42')},
	qr/WF004/, 'pg_monitor: no more than looking');

work('app');
sleep_until_timer('app', 'order-42');
work('app');
is_as('app', q{SELECT durable_status('order-42'), durable_result('order-42') ->> 'approved_by'},
	'completed|ann', 'the example completes');
is_as('app', q{SELECT available FROM stock}, '9', 'its steps ran once');
refused('other', q{SELECT durable_result('order-42')},
	qr/WF004/, 'other: no result of what has ended either');

#
# Without the grant nothing works, and the hint tells what is needed (I7).
#
as('outsider', q{CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'});
for my $call (
	q{SELECT durable_register('f')},
	q{SELECT durable_unregister('f')},
	q{SELECT durable_register_activity('f')},
	q{SELECT durable_start('order_workflow')},
	q{SELECT durable_signal('order-42', 'x')},
	q{SELECT durable_status('order-42')},
	q{SELECT durable_result('order-42')},
	q{SELECT durable_resume('order-42')},
	q{SELECT durable_run('order-42')},
	q{CALL durable_work()})
{
	refused('outsider', $call,
		qr/42501.*permission denied for durable.*HINT:.*GRANT USAGE ON SCHEMA durable TO outsider/s,
		"without the grant: $call");
}
refused('outsider', "SELECT * FROM durable.$_",
	qr/42501.*permission denied for schema durable/,
	"without the grant: view $_")
  for qw(instances events steps messages timers workflows);

# The tables are for nobody.
for my $role (qw(outsider other app watcher))
{
	refused($role, "$_ durable_internal.instance",
		qr/42501.*permission denied for schema durable_internal/, "$role: $_")
	  for 'SELECT * FROM', 'DELETE FROM', 'TRUNCATE';
	refused($role, q{SELECT nextval('durable_internal.iid_seq')},
		qr/42501/, "$role: no sequence");
}
refused('app', q{DELETE FROM durable.workflows}, qr/42501|55000/,
	'views are for looking');

#
# EXECUTE on the workflow's function is asked for at the start and each time
# it is run.
#
as('app', <<'SQL');
CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION private() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_wait_signal('go');
	RETURN durable_call('app.one');
END $$;
SELECT durable_register('private');
SQL
as('other', q{SELECT durable_start('private', id => 'private-1')});
work('other');
as('app', q{REVOKE EXECUTE ON FUNCTION private() FROM PUBLIC});
refused('other', q{SELECT durable_start('private')},
	qr/42501.*permission denied for function private/,
	'no start without EXECUTE on the function');
as('other', q{SELECT durable_signal('private-1', 'go')});
work('other');
is_as('other', q{SELECT status, reason ~ 'permission denied' FROM durable.instances WHERE id = 'private-1'},
	'held|t', 'revoked meanwhile: the instance is held');
as('app', q{GRANT EXECUTE ON FUNCTION private() TO other});
is_as('other', q{SELECT durable_resume('private-1')}, 't', 'granted again: it can go on');
as('app', q{REVOKE EXECUTE ON FUNCTION one() FROM PUBLIC});
work('other');
is_as('other', q{SELECT status, reason ~ 'permission denied' FROM durable.instances WHERE id = 'private-1'},
	'held|t', 'an activity that may not be called holds it as well');
as('app', q{GRANT EXECUTE ON FUNCTION one() TO PUBLIC});
as('other', q{SELECT durable_resume('private-1')});
work('other');
is_as('other', q{SELECT durable_result('private-1')}, '1', 'and it completes');

#
# run_as (I8): the starter's role, or the owner's of the workflow.
#
as('app', <<'SQL');
CREATE FUNCTION who() RETURNS text LANGUAGE sql
AS $$SELECT concat_ws(' ', session_user, current_user)$$;
CREATE FUNCTION as_starter() RETURNS jsonb LANGUAGE plpgsql
AS $$BEGIN RETURN durable_call('app.who'); END$$;
CREATE FUNCTION as_owner() RETURNS jsonb LANGUAGE plpgsql
AS $$BEGIN RETURN durable_call('app.who'); END$$;
SELECT durable_register('as_starter');
SELECT durable_register('as_owner', run_as => 'owner');
SQL
as('other', q{SELECT durable_start('as_starter', id => 'starter-1'), durable_start('as_owner', id => 'owner-1')});
is_as('other', q{SELECT id, run_as FROM durable.instances WHERE id LIKE '%er-1'},
	'starter-1|other', 'what runs as the owner is not the starter\'s to see');
as('gateway', q{SET ROLE web; SELECT durable_start('as_owner', id => 'owner-2')});
refused('gateway', q{SET ROLE web; CALL durable_work()},
	qr/42501.*needs a session of the role itself/, 'a role without LOGIN runs nothing');
work($_) for qw(other app);
is_as('other', q{SELECT durable_result('starter-1') #>> '{}'}, 'other other',
	'run_as starter: as the starter');
is_as('app', qq{SELECT durable_result('$_') #>> '{}'}, 'app app',
	"run_as owner: as the owner ($_)")
  for qw(owner-1 owner-2);
is_as('app', q{SELECT count(*) FROM durable.instances WHERE id = 'starter-1'},
	'0', 'the owner of a workflow does not see what others make of it');

# What the starter's search_path finds must not run as the owner.
as('app', <<'SQL');
CREATE FUNCTION by_name() RETURNS text LANGUAGE sql AS $$SELECT 'mine'$$;
CREATE FUNCTION trusting() RETURNS jsonb LANGUAGE plpgsql
AS $$BEGIN RETURN durable_call('by_name'); END$$;
SELECT durable_register('trusting', run_as => 'owner');
SQL
as('other', <<'SQL');
CREATE FUNCTION other.by_name() RETURNS text LANGUAGE sql AS $$SELECT 'foreign code as ' || current_user$$;
SET search_path = other, public;
SELECT durable_start('trusting', id => 'trusting-1');
SQL
work('app');
is_as('app', q{SELECT result FROM durable.instances WHERE id = 'trusting-1'},
	'"mine"', 'run_as owner: names mean what they mean for the owner');

# A registration is for the function of its owner, not for whatever has its
# name today.
as('postgres', q{CREATE SCHEMA shared; GRANT ALL ON SCHEMA shared TO PUBLIC});
as('app', <<'SQL');
CREATE FUNCTION shared.gone() RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN 'mine'; END$$;
SELECT durable_register('shared.gone', name => 'gone', run_as => 'owner');
DROP FUNCTION shared.gone();
SQL
as('other', <<'SQL');
CREATE FUNCTION shared.gone() RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN 'foreign code'; END$$;
SQL
$node->psql('postgres', q{SELECT durable_start('gone', id => 'gone-1')},
	extra_params => [ '-U', 'other' ]);
work('app');
is_as('app', q{SELECT count(result) FROM durable.instances WHERE id = 'gone-1'},
	'0', 'run_as owner: a function that another role put in its place does not run');

# Two roles register one name at the same time: the first has it.
as('app', q{CREATE FUNCTION wanted() RETURNS int LANGUAGE sql AS 'SELECT 1'});
as('other', q{CREATE FUNCTION wanted() RETURNS int LANGUAGE sql AS 'SELECT 2'});
my $first = $node->background_psql('postgres', extra_params => [ '-U', 'app' ]);
my $second = $node->background_psql('postgres',
	extra_params => [ '-U', 'other' ],
	on_error_stop => 0);
$first->query_safe(q{BEGIN; SELECT durable_register('wanted')});
$second->query_until(qr/begun/, qq{\\echo begun\nSELECT durable_register('wanted');\n});
$node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'other' AND wait_event_type = 'Lock'});
$first->query_safe(q{COMMIT});
$_->quit for $first, $second;
is_as('app', q{SELECT owner FROM durable.workflows WHERE name = 'wanted'},
	'app', 'a name that is being registered is not taken over');

#
# Code runs in sessions of its role only.
#
as('app', q{SELECT durable_start('as_starter', id => 'stays')});
as('postgres', q{GRANT app TO other});
refused('other', "SET ROLE app; $_",
	qr/42501.*needs a session of the role itself.*DETAIL:.*HINT/s, "SET ROLE: $_")
  for q{CALL durable_work()}, q{SELECT durable_run('stays')};
as('postgres', q{REVOKE app FROM other});
as('app', <<'SQL');
CREATE FUNCTION run_for_you(id text) RETURNS text LANGUAGE sql SECURITY DEFINER
AS $$SELECT durable_run(id)$$;
CREATE PROCEDURE work_for_you() LANGUAGE plpgsql SECURITY DEFINER
AS $$BEGIN CALL durable_work(); END$$;
CREATE FUNCTION start_for_you() RETURNS text LANGUAGE sql SECURITY DEFINER
SET search_path = app, public AS $$SELECT durable_start('as_starter', id => 'definer')$$;
SQL
for my $role (qw(other postgres app))
{
	refused($role, q{SELECT app.run_for_you('stays')},
		qr/42501.*needs a session of the role itself/,
		"SECURITY DEFINER: durable_run is refused to $role");
	refused($role, q{CALL app.work_for_you()}, qr/42501.*needs a session of the role itself/,
		"SECURITY DEFINER: durable_work is refused to $role");
}
is_as('other', q{SELECT app.start_for_you()}, 'definer', 'starting in SECURITY DEFINER is fine');
is_as('app', q{SELECT run_as FROM durable.instances WHERE id = 'definer'},
	'app', 'and the instance runs as the definer');
refused('postgres', q{SET SESSION AUTHORIZATION app; SELECT durable_run('stays')},
	qr/42501/, 'SET SESSION AUTHORIZATION: the session is still a superuser\'s');
work('app');
is_as('app', q{SELECT id, result FROM durable.instances WHERE id IN ('definer', 'stays') ORDER BY id},
	qq{definer|"app app"\nstays|"app app"}, 'they run in a session of the role');

# A body or an activity is no way to another role's instance or driver.
as('other', <<'SQL');
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE statement INTO result;
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION tries(statement text) RETURNS jsonb LANGUAGE plpgsql
AS $$BEGIN RETURN durable_call('other.try', jsonb_build_object('statement', statement)); END$$;
SELECT durable_register('tries');
SQL
my %tries = (
	q{SELECT durable_status('order-42')} => 'WF004',
	q{SELECT durable_run('order-42')} => 'WF005',
	q{SELECT count(*) FROM durable_internal.instance} => '42501',
	q{SELECT count(*) FROM durable.instances WHERE run_as <> 'other'} => '0',
	q{SET ROLE app} => '42501',
	q{SET SESSION AUTHORIZATION app} => '42501',
	q{SELECT current_user} => 'other');
for my $statement (sort keys %tries)
{
	my $id = as('other',
		qq{SELECT durable_start('tries', jsonb_build_object('statement', \$\$$statement\$\$))});
	work('other');
	is_as('other', qq{SELECT durable_result('$id') #>> '{}'},
		$tries{$statement}, "in an activity: $statement");
}

#
# What a caller defines never gets into the engine's own statements.
#
as('other', <<'SQL');
CREATE FUNCTION other.boom(int8, int8) RETURNS bool LANGUAGE plpgsql
AS $$BEGIN RAISE EXCEPTION 'shadowed'; END$$;
CREATE FUNCTION other.boom(text, text) RETURNS bool LANGUAGE plpgsql
AS $$BEGIN RAISE EXCEPTION 'shadowed'; END$$;
CREATE OPERATOR other.= (FUNCTION = other.boom, LEFTARG = int8, RIGHTARG = int8);
CREATE OPERATOR other.= (FUNCTION = other.boom, LEFTARG = text, RIGHTARG = text);
CREATE FUNCTION other.nextval(regclass) RETURNS int8 LANGUAGE plpgsql
AS $$BEGIN RAISE EXCEPTION 'shadowed'; END$$;
CREATE FUNCTION other.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql
AS $$BEGIN RAISE EXCEPTION 'shadowed'; END$$;
CREATE FUNCTION other.pg_has_role(oid, text) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION other.plain() RETURNS int LANGUAGE sql AS 'SELECT 7';
CREATE FUNCTION other.waits() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_sleep('1 ms');
	PERFORM durable_wait_signal('go');
	RETURN durable_call('other.plain');
END $$;
SELECT durable_register('other.waits', name => 'waits');
SQL
my $hostile = <<'SQL';
CREATE TEMP TABLE instance (iid bigint, id text, run_as oid);
CREATE TEMP TABLE history (iid bigint, seq int);
CREATE TEMP TABLE ready (iid bigint);
CREATE TEMP TABLE caller (sees_all bool, sees_rows bool, roles oid[]);
INSERT INTO caller VALUES (true, true, NULL);
SET search_path = pg_temp, other, pg_catalog, public;
SQL
is_as('other', "$hostile SELECT public.durable_start('waits', id => 'shadow')",
	'shadow', 'durable_start with a hostile search_path');
as('other', "$hostile CALL public.durable_work()");
sleep_until_timer('other', 'shadow');
as('other', "$hostile CALL public.durable_work()");
as('other', "$hostile SELECT public.durable_signal('shadow', 'go')");
is_as('other', "$hostile SELECT public.durable_run('shadow')",
	'completed', 'driving with a hostile search_path');
is_as('other', "$hostile SELECT public.durable_result('shadow')", '7',
	'the instance did what it should');
is_as('other', "$hostile SELECT count(*) FROM durable.instances WHERE run_as OPERATOR(pg_catalog.<>) 'other'",
	'0', 'the views show no more with a hostile search_path');

# The views are barriers: a function of the caller sees no hidden row.
as('other', <<'SQL');
CREATE FUNCTION other.spy(text) RETURNS bool LANGUAGE plpgsql COST 0.0001
AS $$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$;
SQL
for my $view (qw(instances events steps messages timers))
{
	my ($status, $out, $err) = $node->psql('postgres',
		"SET search_path = public; SELECT count(*) FROM durable.$view WHERE other.spy(id)",
		extra_params => [ '-U', 'other' ]);
	unlike($err, qr/order-42|owner-1|stays/, "a leaky function sees nothing in $view");
}

#
# What code does to its session is gone when it ends (A19).
#
as('postgres', q{GRANT web TO app});
as('app', <<'SQL');
CREATE TABLE seen (what text, settings text);
CREATE FUNCTION session_now() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', current_user, current_setting('search_path'),
					 current_setting('TimeZone'), current_setting('DateStyle'),
					 current_setting('transaction_read_only'),
					 current_setting('default_transaction_read_only'),
					 current_setting('statement_timeout'))
$$;
CREATE FUNCTION note(what text) RETURNS text LANGUAGE sql
AS $$INSERT INTO app.seen VALUES (what, app.session_now()) RETURNING settings$$;
CREATE FUNCTION disturb(how text) RETURNS void LANGUAGE plpgsql
AS $$BEGIN EXECUTE how; END$$;
CREATE FUNCTION disturbed(how text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	before jsonb := durable_call('app.note', '["before"]');
	here   text := to_char(timestamptz '2020-02-03 04:05+00', 'HH24:MI');
BEGIN
	PERFORM durable_call('app.disturb', jsonb_build_object('how', how),
						 retry => durable_retry_policy(max_attempts => 1));
	RETURN jsonb_build_object('here', here, 'same', before = durable_call('app.note', '["after"]'));
END $$;
CREATE PROCEDURE disturbed_in_place(how text, INOUT result jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	before jsonb;
BEGIN
	CALL durable_step('app.note', '["before"]', before);
	CALL durable_step('app.disturb', jsonb_build_object('how', how));
	CALL durable_step('app.note', '["after"]', result);
	result := jsonb_build_object('here', to_char(timestamptz '2020-02-03 04:05+00', 'HH24:MI'),
								 'same', before = result);
END $$;
SELECT durable_register('disturbed'), durable_register('disturbed_in_place');
SQL
my @disturbances = (
	'SET ROLE web',
	'SET search_path = other',
	q{SET TimeZone = 'Asia/Tokyo'},
	'SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY',
	'SET TRANSACTION READ ONLY',
	'RESET ALL',
	q{SELECT set_config('statement_timeout', '1', false), set_config('DateStyle', 'German', false)},
	q{SELECT set_config('search_path', '', true)},
	'SET CONSTRAINTS ALL DEFERRED',
	'SELECT pg_advisory_unlock_all()',
	'DEALLOCATE ALL',
	'SET LOCAL durable.sandbox = off');
my $here = "SET TimeZone = 'America/St_Johns'; SET DateStyle = 'SQL, DMY';";
my $elsewhere = "SET TimeZone = 'Asia/Kathmandu'; SET search_path = public; SET extra_float_digits = 0;";
for my $how (@disturbances)
{
	for my $workflow (qw(disturbed disturbed_in_place))
	{
		my $id = as('app',
			qq{$here SELECT durable_start('$workflow', jsonb_build_object('how', \$\$$how\$\$))});
		as('app', "$elsewhere CALL durable_work()");
		my $result = as('app',
			qq{SELECT status, coalesce(result -> 'result', result) ->> 'here',
					  coalesce(result -> 'result', result) ->> 'same', error ->> 'message'
				 FROM durable.instances WHERE id = '$id'});
		is($result, 'completed|00:35|true|', "$workflow: $how leaves no trace");
	}
	as('app', qq{$here SELECT durable_start('disturbed', jsonb_build_object('how', \$\$$how\$\$), id => \$\$run $how\$\$)});
	is_as('app', qq{$elsewhere SELECT durable_run(\$\$run $how\$\$)}, 'completed', "durable_run: $how");
}
is_as('app',
	q{SELECT DISTINCT settings FROM seen},
	q{app "$user", public America/St_Johns SQL, DMY off off 0},
	'each activity had the settings of its start, whoever drove it');

# Nor in the session that drove it.
is_as('app', <<'SQL', "4\nt", 'the driving session is what it was');
SET TimeZone = 'Etc/UTC';
SELECT count(durable_start('disturbed', jsonb_build_object('how', how)))
  FROM unnest('{"SET ROLE web","SET TimeZone = ''Asia/Tokyo''","RESET ALL","SET search_path = ''''"}'::text[]) AS how;
CALL durable_work();
SELECT session_now() = 'app "$user", public Etc/UTC ISO, MDY off off 0';
SQL

# An activity that drops the lease of its driver still runs once.
is_as('app', q{SELECT count(*) FROM (SELECT id, seq FROM durable.events GROUP BY id, seq HAVING count(*) > 1) twice},
	'0', 'no step was recorded twice');

# A role that the server does not let change plpgsql's settings is not
# bothered with them.
as('app', q{DO 'BEGIN END'; SELECT durable_start('as_starter', id => 'quiet')});
my ($status, $out, $err) = $node->psql('postgres', 'CALL durable_work()',
	extra_params => [ '-U', 'app' ]);
is($err, '', 'no warning from the pinned settings');

#
# Inside a transaction that goes on after an error.
#
as('app', <<'SQL');
CREATE TABLE tried (x int);
CREATE FUNCTION takes_long() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(60)';
CREATE FUNCTION long() RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RETURN durable_call('app.takes_long'); END$$;
SELECT durable_register('long');
SELECT durable_start('long', id => 'long');
SQL
($status, $out, $err) = $node->psql('postgres', <<'SQL', extra_params => [ '-U', 'app' ]);
SET statement_timeout = '200 ms';
DO $$
BEGIN
	INSERT INTO tried VALUES (1);
	BEGIN
		INSERT INTO tried VALUES (2);
		PERFORM durable_run('long');
	EXCEPTION WHEN query_canceled THEN
	END;
END $$;
SQL
is_as('app', q{SELECT string_agg(x::text, ' ') FROM tried}, '1',
	'a cancelled durable_run leaves the transaction of its caller in order');
is_as('app', q{SELECT durable_status('long')}, 'pending', 'and the instance as it was');

$node->stop;
done_testing();
