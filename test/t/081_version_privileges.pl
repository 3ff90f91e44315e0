# Pinned definitions and roles: an unprivileged owner can do all of it, and
# nobody can use a copy to run code as someone else or to keep a right that
# was taken from it (C5, C7, I8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE postgres SUPERUSER LOGIN')
  if $node->safe_psql('postgres', 'SELECT current_user') ne 'postgres';

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
	ok($node->poll_query_until('postgres', "SELECT status FROM durable.instances WHERE id = '$id'", $status),
		"$id is $status") or diag(as('postgres', "SELECT status, reason FROM durable.instances WHERE id = '$id'"));
	return;
}

sub reason_is
{
	my ($id, $pattern, $name) = @_;
	return like(as('postgres', "SELECT reason FROM durable.instances WHERE id = '$id'"), $pattern, $name);
}

as('postgres', <<'SQL');
CREATE EXTENSION durable;
CREATE ROLE owner LOGIN;
CREATE ROLE heir LOGIN;
CREATE ROLE app LOGIN;
CREATE ROLE mallory LOGIN;
GRANT USAGE ON SCHEMA durable TO owner, heir, app, mallory;
CREATE SCHEMA owner AUTHORIZATION owner;
CREATE SCHEMA mallory AUTHORIZATION mallory;
GRANT USAGE ON SCHEMA owner TO PUBLIC;
GRANT CREATE ON SCHEMA owner TO heir;
SQL

# flow NAME BODY: what a workflow of the owner returns when it was told to go.
sub flow
{
	my ($name, $result, $attributes) = @_;
	$attributes //= '';
	as('owner', <<SQL);
CREATE OR REPLACE FUNCTION owner.$name() RETURNS text LANGUAGE plpgsql $attributes AS \$\$
BEGIN
	PERFORM durable_wait_signal('go');
	RETURN $result;
END \$\$;
SQL
	return;
}

sub begin_as
{
	my ($role, $workflow, $id) = @_;
	as($role, "SELECT durable_start('owner.$workflow', id => '$id')");
	becomes($id, 'waiting_for_event');
	return;
}

#
# EXECUTE that was revoked is gone for the copy as well
#
flow('revoked', q{'old'});
as('owner', q{SELECT durable_register('owner.revoked')});
begin_as('app', 'revoked', 'revoked');
flow('revoked', q{'new'});
as('owner', 'REVOKE EXECUTE ON FUNCTION owner.revoked() FROM PUBLIC');
as('app', q{SELECT durable_signal('revoked', 'go')});
becomes('revoked', 'held');
reason_is('revoked', qr/42501: permission denied for function revoked/, 'a revoked right is gone');
as('owner', 'GRANT EXECUTE ON FUNCTION owner.revoked() TO app');
as('app', q{SELECT durable_resume('revoked')});
becomes('revoked', 'completed');
is(as('app', q{SELECT durable_result('revoked')}), '"old"', 'granted again, it ends on what it began on');

# the same when the function is gone: nobody knows who might have called it, but its owner
flow('dropped', q{'old'});
as('owner', q{SELECT durable_register('owner.dropped')});
begin_as('app', 'dropped', 'dropped app');
begin_as('owner', 'dropped', 'dropped owner');
as('owner', 'REVOKE EXECUTE ON FUNCTION owner.dropped() FROM PUBLIC; DROP FUNCTION owner.dropped()');
as('app', q{SELECT durable_signal('dropped app', 'go')});
as('owner', q{SELECT durable_signal('dropped owner', 'go')});
becomes('dropped owner', 'completed');
becomes('dropped app', 'held');
reason_is('dropped app', qr/42501: function owner.dropped\(\) was dropped, and role "app" is no member of its owner "owner"/,
	'of a dropped function only its owner\'s go on');
flow('dropped', q{'back'});
as('app', q{SELECT durable_resume('dropped app')});
becomes('dropped app', 'completed');
is(as('app', q{SELECT durable_result('dropped app')}), '"old"', 'it is back, and who may execute it goes on with what it began on');

#
# SECURITY DEFINER: the copy is the owner's, and only while the function is
#
flow('secure', q{'old as ' || current_setting('is_superuser') || current_user}, q{SECURITY DEFINER SET search_path = public});
as('owner', q{SELECT durable_register('owner.secure', sandbox => 'off')});
begin_as('app', 'secure', 'secure');
begin_as('app', 'secure', 'given away');
flow('secure', q{'new'});
as('app', q{SELECT durable_signal('secure', 'go')});
becomes('secure', 'completed');
is(as('app', q{SELECT durable_result('secure')}), '"old as offowner"', 'a copy runs as its owner, not as who made it');
as('postgres', 'ALTER FUNCTION owner.secure() OWNER TO heir');
as('app', q{SELECT durable_signal('given away', 'go')});
becomes('given away', 'held');
reason_is('given away', qr/WF004: function owner.secure\(\) does not belong to role "owner"/,
	'what was given away does not run as its old owner');

# a name that another role has taken means nothing
flow('taken', q{'old'});
as('owner', q{SELECT durable_register('owner.taken')});
begin_as('app', 'taken', 'taken');
as('owner', 'DROP FUNCTION owner.taken()');
as('heir', q{CREATE FUNCTION owner.taken() RETURNS text LANGUAGE sql AS $$ SELECT 'taken' $$});
as('app', q{SELECT durable_signal('taken', 'go')});
becomes('taken', 'held');
reason_is('taken', qr/does not belong to role "owner"/, 'it is held');
refused('app', q{SELECT durable_start('owner.taken')}, qr/WF004/, 'and cannot be started');

# registered anew by another role under the same name, old instances do not run as that one
flow('inherited', q{'old as ' || current_user}, 'SECURITY DEFINER');
as('owner', q{SELECT durable_register('owner.inherited', 'inherited', sandbox => 'off')});
as('app', q{SELECT durable_start('inherited', id => 'inherited')});
becomes('inherited', 'waiting_for_event');
flow('inherited', q{'new'});
as('postgres', <<'SQL');
CREATE FUNCTION owner.by_root() RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT 'root' $$;
SELECT durable_register('owner.by_root', 'inherited', sandbox => 'off');
SQL
as('app', q{SELECT durable_signal('inherited', 'go')});
becomes('inherited', 'completed');
is(as('app', q{SELECT durable_result('inherited')}), '"old as owner"', 'old code runs as its old owner, whoever owns the workflow now');

# a name that was given up, and that a stranger has registered since, is no new definition of old instances
as('owner', <<'SQL');
CREATE FUNCTION owner.given_up() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as it was'; END $$;
SELECT durable_register('owner.given_up', 'given up');
SQL
as('app', q{SELECT durable_start('given up', id => 'given up')});
becomes('given up', 'failed');
as('owner', q{SELECT durable_unregister('given up')});
as('mallory', <<'SQL');
CREATE FUNCTION mallory.given_up() RETURNS text LANGUAGE sql AS $$ SELECT 'mallory' $$;
SELECT durable_register('mallory.given_up', 'given up', on_change => 'continue');
SQL
as('app', q{SELECT durable_retry('given up')});
becomes('given up', 'held');
reason_is('given up', qr/WF005: workflow "given up" is not the one that the instance was started with/, 'another workflow of the name is not run');
as('app', q{SELECT durable_resume('given up', definition => 'pinned')});
becomes('given up', 'failed');
is(as('app', q{SELECT error ->> 'message' FROM durable.instances WHERE id = 'given up'}), 'as it was', 'what it began on is');

# nor are that stranger's activities run for them, spawned or not, nor its workflow as their next run
as('owner', <<'SQL');
CREATE TABLE owner.ready ();
GRANT SELECT ON owner.ready TO PUBLIC;
CREATE FUNCTION owner.who(n int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN PERFORM 1 / count(*) FROM owner.ready; RETURN 'owner''s as ' || current_user; END $$;
CREATE FUNCTION owner.next_run(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	called jsonb := durable_call('who', '1');
	spawned jsonb := durable_await(durable_spawn('who', '2'));
BEGIN
	PERFORM durable_set_state(jsonb_build_array(called, spawned));
	PERFORM durable_wait_signal('go');
	PERFORM durable_continue_as_new('2');
	RETURN 'unreachable';
END $$;
SELECT durable_register_activity('who', 'owner.who', retry => '{"max_attempts": 1}');
SELECT durable_register('owner.next_run', 'next run');
SQL
as('app', q{SELECT durable_start('next run', '1', id => 'next run')});
becomes('next run', 'failed');
as('owner', q{SELECT durable_unregister('next run')});
as('mallory', <<'SQL');
CREATE FUNCTION mallory.who(n int) RETURNS text LANGUAGE sql AS $$ SELECT 'mallory''s as ' || current_user $$;
CREATE FUNCTION mallory.next_run(n int) RETURNS text LANGUAGE sql AS $$ SELECT 'mallory''s as ' || current_user $$;
SELECT durable_register_activity('who', 'mallory.who');
SELECT durable_register('mallory.next_run', 'next run');
SQL
as('owner', 'INSERT INTO owner.ready DEFAULT VALUES');
as('app', q{SELECT durable_retry('next run')});
becomes('next run', 'waiting_for_event');
is(as('app', q{SELECT durable_query('next run')}), q{["owner's as app", "owner's as app"]}, 'activities are those of the workflow it was started with');
as('app', q{SELECT durable_signal('next run', 'go')});
becomes('next run', 'held');
reason_is('next run', qr/WF005: workflow "next run" is not the one/, 'a stranger\'s workflow is not its next run');
refused('app', q{SELECT durable_fork('next run', 1)}, qr/WF005: workflow "next run" is not the one/, 'nor is it forked into it');
as('app', q{SELECT durable_terminate('next run')});

# a superuser's workflow is nobody else's either: what a role puts in its place does not run
as('postgres', <<'SQL');
CREATE FUNCTION owner.root_flow() RETURNS text LANGUAGE sql AS $$ SELECT 'root''s' $$;
SELECT durable_register('owner.root_flow', 'root flow', run_as => 'owner', sandbox => 'off');
DROP FUNCTION owner.root_flow();
SQL
as('heir', q{CREATE FUNCTION owner.root_flow() RETURNS text LANGUAGE sql AS $$ SELECT 'heir''s as ' || current_user $$});
refused('app', q{SELECT durable_start('root flow')}, qr/WF004: function owner.root_flow\(\) does not belong to role "postgres"/,
	'a superuser does not vouch for what others write');

# nor do the other members of a group: what they put in the place of a member's function does not run as that one
as('postgres', <<'SQL');
CREATE ROLE staff;
GRANT staff TO owner, mallory;
CREATE SCHEMA staff AUTHORIZATION staff;
GRANT ALL ON SCHEMA staff TO PUBLIC;
SQL
as('owner', <<'SQL');
CREATE FUNCTION staff.shared() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_wait_signal('go'); RETURN 'owner''s'; END $$;
SELECT durable_register('staff.shared', 'shared', run_as => 'owner', on_change => 'continue', sandbox => 'off');
SELECT durable_start('shared', id => 'shared');
SQL
becomes('shared', 'waiting_for_event');
as('mallory', <<'SQL');
SET ROLE staff;
DROP FUNCTION staff.shared();
CREATE FUNCTION staff.shared() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM durable_wait_signal('go'); RETURN 'mallory''s as ' || current_user; END $$;
SQL
refused('mallory', q{SELECT durable_start('shared')}, qr/WF004: function staff.shared\(\) does not belong to role "owner"/, 'what a group put in place of its member\'s is not started');
as('owner', q{SELECT durable_signal('shared', 'go')});
becomes('shared', 'held');
reason_is('shared', qr/WF004: function staff.shared\(\) does not belong to role "owner"/, 'nor does it get into instances');
# what the owner has given to the group itself, and registered again, goes on with what it is now
flow('handed', q{'handed over'});
as('owner', q{SELECT durable_register('owner.handed', 'handed')});
as('app', q{SELECT durable_start('handed', id => 'handed')});
becomes('handed', 'waiting_for_event');
as('postgres', 'GRANT ALL ON SCHEMA owner TO staff; ALTER FUNCTION owner.handed() OWNER TO staff');
as('app', q{SELECT durable_signal('handed', 'go')});
becomes('handed', 'held');
reason_is('handed', qr/does not belong to role "owner".*definition => 'current'/, 'and says how');
as('owner', q{SELECT durable_register('owner.handed', 'handed')});
as('app', q{SELECT durable_resume('handed', definition => 'current')});
becomes('handed', 'completed');
as('postgres', 'DROP SCHEMA staff CASCADE; DROP OWNED BY staff CASCADE; DROP ROLE staff');

#
# Handlers: another role's function is not kept, nor does it get into others' instances
#
as('owner', <<'SQL');
CREATE FUNCTION owner.fold(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"owner''s"'::jsonb $$;
CREATE FUNCTION owner.folds() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_on_signal('add', 'fold');
	PERFORM durable_wait_signal('go');
	RETURN durable_state();
END $$;
SET search_path = owner, public;
SELECT durable_register('owner.folds');
SQL
as('mallory', <<'SQL');
CREATE FUNCTION mallory.fold(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"mallory''s"'::jsonb $$;
GRANT USAGE ON SCHEMA mallory TO PUBLIC;
SET search_path = mallory, public;
SELECT durable_start('owner.folds', id => 'mallory folds');
SELECT durable_signal('mallory folds', 'add');
SQL
as('app', <<'SQL');
SET search_path = owner, public;
SELECT durable_start('owner.folds', id => 'app folds');
SELECT durable_signal('app folds', 'add');
SELECT durable_signal('app folds', 'go');
SQL
as('mallory', q{SELECT durable_signal('mallory folds', 'go')});
becomes('mallory folds', 'completed');
becomes('app folds', 'completed');
is(as('mallory', q{SELECT durable_result('mallory folds')}), q{"mallory's"}, 'a name means what the instance\'s own settings say');
is(as('app', q{SELECT durable_result('app folds')}), q{"owner's"}, 'and nothing that another one brought along');
is(as('postgres', q{SELECT string_agg(function, ', ') FROM durable_internal.workflow_handler WHERE workflow = 'owner.folds' AND function LIKE 'mallory%'}),
	'', 'a function that is not the owner\'s is not kept');

# what a role names in its own instance of a superuser's workflow is not kept, and never comes to run as superuser
as('postgres', <<'SQL');
CREATE FUNCTION public.tally(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"root''s"'::jsonb $$;
CREATE FUNCTION public.root_folds() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_on_signal('add', 'tally');
	PERFORM durable_wait_signal('go');
	RETURN durable_state();
END $$;
SELECT durable_register('public.root_folds');
SQL
as('mallory', <<'SQL');
CREATE FUNCTION mallory.tally(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb('mallory''s as ' || current_user) $$;
SET search_path = mallory, public;
SELECT durable_start('public.root_folds', id => 'mallory tallies');
SQL
becomes('mallory tallies', 'waiting_for_event');
as('mallory', q{SELECT durable_signal('mallory tallies', 'add'), durable_signal('mallory tallies', 'go')});
becomes('mallory tallies', 'completed');
is(as('mallory', q{SELECT durable_result('mallory tallies')}), q{"mallory's as mallory"}, 'it runs in its own instance');
as('postgres', q{SELECT durable_start('public.root_folds', id => 'root tallies')});
becomes('root tallies', 'waiting_for_event');
as('postgres', <<'SQL');
DROP FUNCTION public.tally(jsonb, jsonb);
SELECT durable_signal('root tallies', 'add'), durable_signal('root tallies', 'go');
SQL
becomes('root tallies', 'completed');
is(as('postgres', q{SELECT durable_result('root tallies')}), q{"root's"}, 'a superuser\'s instance has the superuser\'s handler');

# handlers may be where only the owner can look
as('postgres', 'CREATE SCHEMA "inner" AUTHORIZATION owner');
as('owner', <<'SQL');
CREATE FUNCTION "inner".fold(state jsonb, payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"inner"'::jsonb $$;
CREATE FUNCTION owner.inner_folds() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_on_signal('add', '"inner".fold');
	PERFORM durable_wait_signal('go');
	RETURN durable_state();
END $$;
SELECT durable_register('owner.inner_folds', run_as => 'owner');
SQL
as('app', q{SELECT durable_start('owner.inner_folds', id => 'inner')});
becomes('inner', 'waiting_for_event');
as('owner', q{SELECT durable_signal('inner', 'add'), durable_signal('inner', 'go')});
becomes('inner', 'completed');
is(as('owner', q{SELECT durable_result('inner')}), '"inner"', 'who starts a workflow need not see its handlers');

#
# The copies themselves are out of reach
#
as('postgres', <<'SQL');
ALTER DEFAULT PRIVILEGES FOR ROLE owner GRANT EXECUTE ON FUNCTIONS TO mallory;
ALTER DEFAULT PRIVILEGES FOR ROLE postgres, owner GRANT ALL ON SCHEMAS TO mallory;
SQL
flow('kept', q{'old'});
as('owner', q{SELECT durable_register('owner.kept')});
begin_as('app', 'kept', 'kept');
flow('kept', q{'new'});
as('app', q{SELECT durable_pause('kept'), durable_resume('kept')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%' AND proname = 'kept'}),
	'there is a copy');
my $copy = as('postgres', q{SELECT oid::regproc FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'durable_pin_%' AND proname = 'kept'});
my ($place) = split /\./, $copy;
foreach my $role ('app', 'mallory', 'owner')
{
	refused($role, "SELECT $copy()", qr/42501/, "$role cannot call it");
	refused($role, "CREATE FUNCTION $place.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'", qr/42501/, "$role cannot make one");
	refused($role, 'SELECT * FROM durable_internal.workflow_version', qr/42501/, "$role cannot read the definitions");
}
refused('mallory', "CREATE OR REPLACE FUNCTION $copy() RETURNS text LANGUAGE sql AS 'SELECT 1::text'", qr/42501/, 'nor put another in its place');
# the default privileges do not count for copies: who may look into all schemas cannot call them either
as('postgres', 'GRANT pg_read_all_data TO mallory');
refused('mallory', "SELECT $copy()", qr/permission denied for function kept/, 'default privileges do not count for copies');
as('postgres', 'REVOKE pg_read_all_data FROM mallory');
refused('mallory', q{SELECT durable_export('kept')}, qr/WF004/, 'histories are exported to members only');
refused('mallory', q{SELECT durable_resume('kept', definition => 'current')}, qr/WF004/, 'nor can others choose');
is(as('mallory', q{SELECT count(*) FROM durable_check('owner.kept')}), '0', 'nor rehearse');
is(as('owner', q{SELECT instances, can_go FROM durable.workflows WHERE name = 'owner.kept'}), '1|f', 'the owner sees how many there are');
is(as('mallory', q{SELECT instances, can_go FROM durable.workflows WHERE name = 'owner.kept'}), '|f', 'others do not');

# to make a copy may run code of its owner's (the CHECK of a domain, for a constant): as the owner, nobody else
my $defaults = <<'SQL';
CREATE OR REPLACE FUNCTION mallory.defaults(n mallory.counted[] DEFAULT '{1}') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_wait_signal('go');
	RETURN 'old';
END $$;
SQL
as('mallory', <<'SQL' . $defaults);
CREATE TABLE mallory.checked (session name, acting name);
CREATE FUNCTION mallory.check_it(n int) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
	INSERT INTO mallory.checked VALUES (session_user, current_user);
	RETURN true;
END $$;
CREATE DOMAIN mallory.counted AS int CHECK (mallory.check_it(VALUE));
GRANT INSERT ON mallory.checked TO PUBLIC;
SQL
as('mallory', q{SELECT durable_register('mallory.defaults')});
as('app', q{SELECT durable_start('mallory.defaults', '{"n": []}', id => 'defaults')});
becomes('defaults', 'waiting_for_event');
(my $other = $defaults) =~ s/'old'/'new'/;
as('mallory', $other . 'TRUNCATE mallory.checked');
as('app', q{SELECT durable_signal('defaults', 'go')});
becomes('defaults', 'completed');
is(as('app', q{SELECT durable_result('defaults')}), '"old"', 'a copy with such a default');
is(as('postgres', q{SELECT DISTINCT session, acting FROM mallory.checked}), 'app|mallory', 'what is run to make it runs as its owner');
ok($node->poll_query_until('postgres',
		q{SELECT array_agg(nspname ORDER BY 1) = (SELECT array_agg(schema ORDER BY 1) FROM durable_internal.pin) FROM pg_namespace WHERE nspname LIKE 'durable_pin_%'}),
	'and leaves nothing behind');

# any language whose functions are text; a copy is made only by who could make the function
SKIP:
{
	skip 'no PL/Python', 6
	  if as('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'plpython3u'}) eq '0';
	as('postgres', <<'SQL');
CREATE EXTENSION plpython3u;
CREATE FUNCTION public.python() RETURNS text LANGUAGE plpython3u AS $$
plpy.execute("SELECT durable_wait_signal('go')")
return 'old'
$$;
CREATE FUNCTION owner.python() RETURNS text LANGUAGE plpython3u AS $$
plpy.execute("SELECT durable_wait_signal('go')")
return 'old'
$$;
ALTER FUNCTION owner.python() OWNER TO owner;
SELECT durable_register('public.python'), durable_register('owner.python');
SQL
	begin_as('app', 'python', 'trusted');
	as('app', q{SELECT durable_start('public.python', id => 'python')});
	becomes('python', 'waiting_for_event');
	as('postgres', <<'SQL');
CREATE OR REPLACE FUNCTION public.python() RETURNS text LANGUAGE plpython3u AS $$ return 'new' $$;
CREATE OR REPLACE FUNCTION owner.python() RETURNS text LANGUAGE plpython3u AS $$ return 'new' $$;
SQL
	as('app', q{SELECT durable_signal('python', 'go'), durable_signal('trusted', 'go')});
	becomes('python', 'completed');
	is(as('app', q{SELECT durable_result('python')}), '"old"', 'PL/Python is pinned as any language');
	becomes('trusted', 'held');
	reason_is('trusted', qr/42501: permission denied for language plpython3u/, 'but not for an owner who may not use it');
}

# DROP OWNED takes the copy along; what is left without a definition is held
as('app', q{SELECT durable_signal('kept', 'none')});
as('postgres', 'REASSIGN OWNED BY owner TO heir');
as('app', q{SELECT durable_signal('kept', 'go')});
becomes('kept', 'held');
reason_is('kept', qr/does not belong to role "owner"/, 'what belongs to somebody else now is not run');
as('postgres', 'DROP OWNED BY owner, heir CASCADE; DROP ROLE owner');

$node->stop;
done_testing();
