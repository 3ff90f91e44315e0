# A malicious role in the background: it never gets more rights than it has,
# nor into what belongs to another, nor makes processes spin (A19, I7, I8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('escalation');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'durable'
durable.retry_max_attempts = 1
durable.sweep_interval = '2 s'
max_connections = 40
fsync = off
CONF
$node->start;
my $super = $node->safe_psql('postgres', 'SELECT current_user');

sub as
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ], on_error_stop => 1);
	ok(0, "$role: $sql") or diag($err) if $status != 0;
	return $out;
}
sub sql { return as($super, $_[0]); }

sub refused
{
	my ($role, $sql, $pattern, $name) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
	return like($err, $pattern, $name);
}

sub soon
{
	my ($sql, $expected, $name, $seconds) = @_;
	local $PostgreSQL::Test::Utils::timeout_default = $seconds // 10;
	return ok($node->poll_query_until('postgres', $sql, $expected), $name);
}
sub ended { my ($id, $name, $status) = @_; return soon("SELECT durable_status('$id')", $status // 'completed', $name // $id); }
sub logged { my ($pattern, $offset) = @_; my @all = substr(slurp_file($node->logfile), $offset) =~ /$pattern/g; return scalar @all; }
sub log_end { return -s $node->logfile; }

# Until the good role has run N instances: some time in which a spinning
# process would show.
my $served = 0;
sub others_go_on
{
	my ($name, $n) = @_;
	my @ids = map { 'good' . ++$served } 1 .. ($n // 20);
	for my $id (@ids)
	{
		as('good', "SELECT durable_start('serve', id => '$id')");
		as('good', "CALL durable_wait('$id', '10 s', NULL)");
	}
	is(sql(sprintf "SELECT count(*) FROM durable.instances WHERE id IN (%s) AND status = 'completed'", join ',', map { "'$_'" } @ids),
		scalar(@ids), "$name: other roles go on");
	return;
}

sql(<<'SQL');
CREATE EXTENSION durable;
CREATE ROLE evil LOGIN;
CREATE ROLE good LOGIN;
CREATE ROLE web NOLOGIN;
CREATE ROLE victim LOGIN;
GRANT web TO evil;
GRANT USAGE ON SCHEMA durable TO evil, good, web, victim;
GRANT CREATE ON SCHEMA public TO evil, good;
CREATE SCHEMA evil AUTHORIZATION evil;
CREATE TABLE secret (x text);
INSERT INTO secret VALUES ('crown jewels');
SQL
as('good', <<'SQL');
CREATE FUNCTION who() RETURNS text LANGUAGE sql AS $$SELECT concat_ws(' ', session_user, current_user, current_setting('transaction_read_only'), current_setting('transaction_isolation'))$$;
CREATE FUNCTION serve() RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RETURN durable_call('public.who'); END$$;
SELECT durable_register('serve');
SQL
as('evil', <<'SQL');
CREATE TABLE evil.seen (n bigint GENERATED ALWAYS AS IDENTITY, what text, session_name name DEFAULT session_user, user_name name DEFAULT current_user,
	super text DEFAULT current_setting('is_superuser'), pid int DEFAULT pg_backend_pid());
-- leaves whatever it is told to
CREATE FUNCTION evil.does(how text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE how;
	INSERT INTO evil.seen (what) VALUES (how);
	RETURN 'done';
END $$;
CREATE FUNCTION evil.state() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', session_user, current_user, current_setting('transaction_read_only'), current_setting('transaction_isolation'),
		NULLIF(current_setting('my.own', true), ''), current_setting('search_path'),
		(SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
		(SELECT count(*) FROM pg_prepared_statements),
		(SELECT count(*) FROM pg_cursors WHERE is_holdable),
		(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objsubid IN (1, 2)))
$$;
CREATE FUNCTION evil.mischief(how text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable_call('evil.does', jsonb_build_object('how', how));
	EXCEPTION WHEN OTHERS THEN
		RETURN to_jsonb(SQLERRM);
	END;
	RETURN durable_call('evil.state');
END $$;
CREATE FUNCTION evil.look() RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RETURN durable_call('evil.state'); END$$;
SET search_path = evil, public;
SELECT durable_register('mischief'), durable_register('look');
SQL
my $clean = 'evil evil off read committed evil, public 0 0 0 0';

#
# What an activity does to its session is gone for the next instance (A19).
#
my $n = 0;
for my $how (
	'SET ROLE web', 'RESET ROLE', 'SET SESSION AUTHORIZATION DEFAULT', 'SET SESSION AUTHORIZATION evil',
	q{SELECT set_config('role', 'web', false)}, q{SELECT set_config('my.own', 'left', false)},
	q{SET search_path = pg_temp}, 'CREATE TEMP TABLE left_behind (x int)',
	'CREATE TEMP TABLE held (x int); DECLARE c CURSOR WITH HOLD FOR SELECT 1', 'PREPARE p AS SELECT 1',
	'SELECT pg_advisory_lock(1), pg_advisory_lock(1, 2)', 'SELECT pg_advisory_unlock_all()',
	'SET default_transaction_read_only = on', q{SET default_transaction_isolation = 'serializable'},
	'SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY', 'SET statement_timeout = 1', 'SET lock_timeout = 1',
	'DISCARD PLANS', 'DEALLOCATE ALL', 'RESET ALL')
{
	$n++;
	as('evil', qq{SET search_path = evil, public; SELECT durable_start('mischief', jsonb_build_object('how', \$x\$$how\$x\$), id => 'm$n')});
	ended("m$n", "$how: completes");
	as('evil', qq{SET search_path = evil, public; SELECT durable_start('look', id => 'l$n')});
	ended("l$n");
	is(sql("SELECT durable_result('l$n') #>> '{}'"), $clean, "$how: nothing is left for the next instance");
}
# The same when instances are claimed many at a time.
sql(q{ALTER SYSTEM SET durable.max_workers = 1});
$node->reload;
as('evil', q{SET search_path = evil, public;
SELECT durable_start('mischief', jsonb_build_object('how', 'CREATE TEMP TABLE IF NOT EXISTS left_behind (x int); PREPARE p' || i || ' AS SELECT 1; SELECT pg_advisory_lock(' || i || ')'), id => 'b' || i),
	durable_start('look', id => 'c' || i) FROM generate_series(1, 200) i});
soon(q{SELECT count(*) FROM durable.instances WHERE id ~ '^[bc]\d+$' AND status = 'completed'}, '400', 'a deep queue', 30);
is(sql(qq{SELECT count(*) FROM durable.instances WHERE id ~ '^c\\d+\$' AND result #>> '{}' <> '$clean'}), '0',
	'nothing is left for the next one of those claimed together');
sql(q{ALTER SYSTEM RESET durable.max_workers});
$node->reload;

is(sql(q{SELECT DISTINCT session_name, super FROM evil.seen}), 'evil|off', 'all of it ran in sessions of the role');
refused('evil', q{SET ROLE victim}, qr/permission denied/, 'as expected');
for my $how ("SET ROLE $super", "SET SESSION AUTHORIZATION $super", "SELECT set_config('session_authorization', '$super', false)",
	'SELECT * FROM secret', 'SELECT * FROM durable_internal.instance', 'CALL durable_internal.worker()', 'CALL durable_work()',
	'CREATE FUNCTION durable.f() RETURNS int LANGUAGE sql AS $f$SELECT 1$f$', 'LOAD \'durable\'; LOCK durable_internal.ready')
{
	$n++;
	as('evil', qq{SET search_path = evil, public; SELECT durable_start('mischief', jsonb_build_object('how', \$x\$$how\$x\$), id => 'm$n')});
	ended("m$n", "$how: completes");
	like(sql("SELECT durable_result('m$n') #>> '{}'"), qr/permission denied|cannot|must be|not allowed/, "$how: is refused");
}

# Deferred triggers, run at the commit of a step.
as('evil', <<'SQL');
CREATE TABLE evil.trap (x int);
CREATE FUNCTION evil.spring() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO evil.seen (what) VALUES ('deferred');
	BEGIN
		PERFORM * FROM secret;
		INSERT INTO evil.seen (what) VALUES ('stolen');
	EXCEPTION WHEN insufficient_privilege THEN
	END;
	BEGIN
		PERFORM * FROM durable_internal.instance;
		INSERT INTO evil.seen (what) VALUES ('stolen');
	EXCEPTION WHEN insufficient_privilege THEN
	END;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER spring AFTER INSERT ON evil.trap DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION evil.spring();
SET search_path = evil, public;
SELECT durable_start('mischief', '{"how": "INSERT INTO evil.trap VALUES (1)"}', id => 'deferred');
-- and one that is added in the activity, by SET CONSTRAINTS and a definer's function
CREATE FUNCTION evil.definer() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO evil.trap VALUES (2)';
SELECT durable_start('mischief', '{"how": "SET CONSTRAINTS ALL DEFERRED; SELECT evil.definer()"}', id => 'deferred-2');
SQL
ended('deferred'); ended('deferred-2');
is(sql(q{SELECT what, session_name, user_name, super, count(*) FROM evil.seen WHERE what IN ('deferred', 'stolen') GROUP BY 1, 2, 3, 4}),
	'deferred|evil|evil|off|2', 'deferred triggers have the rights of the role');

# A good role that inserts there runs it with its own rights, not with more.
sql('GRANT USAGE ON SCHEMA evil TO good, victim; GRANT ALL ON evil.trap, evil.seen TO good, victim');

# Shadows of what our statements use.
as('evil', <<'SQL');
CREATE FUNCTION public.count(anyelement) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN INSERT INTO evil.seen (what) VALUES ('shadow'); RETURN 1; END$$;
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN INSERT INTO evil.seen (what) VALUES ('shadow'); RETURN now(); END$$;
CREATE FUNCTION evil.eq(bigint, bigint) RETURNS bool LANGUAGE plpgsql AS $$BEGIN INSERT INTO evil.seen (what) VALUES ('shadow'); RETURN true; END$$;
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.eq);
CREATE FUNCTION evil.eq(oid, oid) RETURNS bool LANGUAGE plpgsql AS $$BEGIN INSERT INTO evil.seen (what) VALUES ('shadow'); RETURN true; END$$;
CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.eq);
CREATE FUNCTION public.durable_signal(text, text) RETURNS void LANGUAGE plpgsql AS $$BEGIN INSERT INTO evil.seen (what) VALUES ('shadow'); END$$;
ALTER ROLE evil SET search_path = evil, public, pg_catalog;
SQL
sql('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC');
sql(q{SELECT pg_terminate_backend(pid) FROM durable.workers WHERE kind = 'worker'});
as('evil', q{SELECT durable_start('look', id => 'shadow')});
ended('shadow');
others_go_on('shadows', 3);
is(sql(q{SELECT count(*) FROM evil.seen WHERE what = 'shadow' AND (user_name <> 'evil' OR super = 'on')}), '0', 'our statements see no shadow');
sql('DROP FUNCTION public.durable_signal(text, text), public.clock_timestamp()');
as('evil', 'ALTER ROLE evil RESET search_path');

# A workflow that is SECURITY DEFINER, of another owner.
as('evil', <<'SQL');
SET search_path = evil, public;
CREATE FUNCTION evil.who() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO evil.seen (what) VALUES ('definer');
	RETURN concat_ws(' ', session_user, current_user);
END $$;
CREATE FUNCTION evil.definer_flow() RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN RETURN durable_call('evil.who'); END$$;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA evil TO victim;
SELECT durable_register('definer_flow');
SQL
as('victim', q{SELECT durable_start('definer_flow', id => 'definer')});
ended('definer');
is(sql(q{SELECT durable_result('definer') #>> '{}'}), 'victim victim', 'steps of a SECURITY DEFINER workflow run as the instance');

#
# Settings of the role: none of them keeps its instances from running.
#
for my $setting (
	'role = web', 'search_path = pg_temp', 'default_transaction_read_only = on',
	q{default_transaction_isolation = 'serializable'}, 'default_transaction_deferrable = on', 'statement_timeout = 1',
	'lock_timeout = 1', 'idle_in_transaction_session_timeout = 1', 'idle_session_timeout = 1', 'exit_on_error = on',
	'row_security = off', q{client_encoding = 'latin1'}, q{session_replication_role = 'origin'}, 'check_function_bodies = off',
	'durable.sandbox = off', 'standard_conforming_strings = off', q{bytea_output = 'escape'}, 'work_mem = 64',
	'synchronous_commit = off', 'plan_cache_mode = force_generic_plan')
{
	$n++;
	my $offset = log_end();
	my $who = $setting =~ /replication_role/ ? $super : 'evil';
	as($who, "ALTER ROLE evil SET $setting");
	sql(q{SELECT pg_terminate_backend(pid) FROM durable.workers WHERE kind = 'worker' AND role = 'evil'});
	soon(q{SELECT count(*) FROM durable.workers WHERE kind = 'worker' AND role = 'evil'}, '0', 'no worker has the former settings');
	# by another session, which has them not
	sql(qq{SET SESSION AUTHORIZATION evil; SET search_path = evil, public; SELECT durable_start('mischief', '{"how": "SELECT 1"}', id => 's$n')});
	ended("s$n", "ALTER ROLE SET $setting: the instance completes");
	my ($status, $result) = $node->psql('postgres', "SELECT durable_result('s$n') #>> '{}'");
	is($result, $clean, "ALTER ROLE SET $setting: it has its own session");
	# an activity that fails is a failed attempt
	sql(qq{SET SESSION AUTHORIZATION evil; SET search_path = evil, public; SELECT durable_start('mischief', '{"how": "SELECT 1/0"}', id => 'f$n')});
	ended("f$n", "ALTER ROLE SET $setting: an error in a step is caught");
	cmp_ok(logged(qr/FATAL/, $offset), '<', 10, "ALTER ROLE SET $setting: nothing spins");
	sql('ALTER ROLE evil RESET ALL');
}

# What makes a worker leave makes none spin.
for my $how (q{SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1)}, q{SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)},
	q{SET exit_on_error = on; SELECT 1/0})
{
	$n++;
	my $offset = log_end();
	as('evil', qq{SET search_path = evil, public; SELECT durable_start('mischief', jsonb_build_object('how', \$x\$$how\$x\$), id => 'k$n')});
	others_go_on($how);
	cmp_ok(logged(qr/FATAL|ERROR/, $offset), '<', 15, "$how: nothing spins");
	as('evil', q{CREATE OR REPLACE FUNCTION evil.does(how text) RETURNS text LANGUAGE sql AS $$SELECT 'done'$$});
	soon("SELECT durable_status('k$n') IN ('completed', 'held', 'failed')", 't', "$how: mended, it ends", 10);
	as('evil', q{CREATE OR REPLACE FUNCTION evil.does(how text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE how;
	RETURN 'done';
END $$});
}

# A transaction of its own that keeps an instance in hand.
sql('ALTER SYSTEM SET durable.max_workers = 1');
$node->reload;
sql(q{SELECT pg_terminate_backend(pid) FROM durable.workers WHERE kind = 'worker'});
soon(q{SELECT count(*) FROM durable.workers WHERE kind = 'worker'}, '0', 'no worker');
as('evil', <<'SQL');
CREATE FUNCTION evil.slow() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(1.5)';
CREATE FUNCTION evil.slow_flow() RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN PERFORM durable_call('evil.slow'); RETURN '1'; END$$;
SET search_path = evil, public;
SELECT durable_register('slow_flow');
SELECT durable_start('slow_flow', id => 'slow1');
SQL
soon(q{SELECT count(*) FROM durable.workers WHERE state = 'busy' AND role = 'evil'}, '1', 'the only worker is busy');
as('evil', q{SET search_path = evil, public; SELECT durable_start('look', id => 'in-hand')});
my $hand = $node->background_psql('postgres', extra_params => [ '-U', 'evil' ]);
$hand->query_safe(q{BEGIN; SELECT durable_run('in-hand')});
soon(q{SELECT count(*) FROM durable.instances WHERE id ~ '^slow' AND status = 'completed'}, '1', 'it is done');
my $calls = q{SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'};
my $before = sql($calls);
sql('SELECT pg_sleep(1)');
cmp_ok(sql($calls) - $before, '<', 100, 'workers do not spin for an instance that another transaction has in hand');

# Locked out meanwhile: the scheduler does not wait for that transaction.
sql('ALTER ROLE evil NOLOGIN');
as('good', q{SELECT durable_start('serve', id => 'beside')});
sql(q{SELECT pg_terminate_backend(pid) FROM durable.workers WHERE kind = 'worker'});
others_go_on('an instance in hand of a role that may not log in', 5);
$hand->query_safe('ROLLBACK');
$hand->quit;
sql('ALTER ROLE evil LOGIN');
sql('ALTER SYSTEM RESET durable.max_workers');
$node->reload;
sql(q{SELECT durable_resume(id) FROM durable.instances WHERE status = 'held'});

#
# Roles that cannot run: held with the reason, said once, others go on (I8).
#
my $needs_login = $node->pg_version < 17;
SKIP:
{
	skip 'roles without LOGIN can run', 2 if !$needs_login;
	refused('evil', q{SET ROLE web; SELECT durable_start('serve', id => 'web-1')},
		qr/42501.*role "web" may not log in.*HINT.*run_as => 'owner'/s, 'a role without LOGIN is refused');
	as('good', q{CREATE FUNCTION owned() RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RETURN durable_call('public.who'); END$$; SELECT durable_register('owned', run_as => 'owner')});
	as('evil', q{SET ROLE web; SELECT durable_start('owned', id => 'web-2')});
	soon(q{SELECT durable_result('web-2', '1 s') #>> '{}'}, 'good good off read committed', 'with run_as owner it can');
}
as('good', <<'SQL');
CREATE FUNCTION patient() RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN PERFORM durable_wait_signal('go'); RETURN durable_call('public.who'); END$$;
SELECT durable_register('patient');
SQL
my @locks = (
	[ 'nologin', 'ALTER ROLE %s NOLOGIN', 'ALTER ROLE %s LOGIN', qr/may not log in/ ],
	[ 'connect', 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO good', 'GRANT CONNECT ON DATABASE postgres TO PUBLIC', qr/has no CONNECT/ ],
	[ 'usage', 'REVOKE USAGE ON SCHEMA durable FROM %s', 'GRANT USAGE ON SCHEMA durable TO %s', qr/has no USAGE on schema durable/ ],
	[ 'dropped', 'DROP OWNED BY %s; DROP ROLE %1$s', undef, qr/does not exist any more/ ]);
shift @locks if !$needs_login;
for my $warm (0, 1)
{
	for my $lock (@locks)
	{
		my ($name, $out, $in, $reason) = @$lock;
		my $role = "${name}_$warm";
		my $title = $name . ($warm ? ', a worker is there' : '');
		sql("CREATE ROLE $role LOGIN; GRANT USAGE ON SCHEMA durable TO $role");
		as($role, qq{SELECT durable_start('patient', id => '$role-' || i) FROM generate_series(1, 10) i});
		soon(qq{SELECT count(*) FROM durable.instances WHERE run_as = '$role' AND status = 'waiting_for_event'}, '10', "$title: ten wait");
		if (!$warm)
		{
			sql(qq{SELECT pg_terminate_backend(pid) FROM durable.workers WHERE kind = 'worker' AND role = '$role'});
			soon(qq{SELECT count(*) FROM durable.workers WHERE role = '$role'}, '0', 'no worker');
		}
		my $offset = log_end();
		sql(sprintf $out, $role);
		sql(qq{SELECT durable_signal(id, 'go') FROM durable.instances WHERE id LIKE '$role-%'});
		soon(qq{SELECT count(*) FROM durable.instances WHERE id LIKE '$role-%' AND status = 'held'}, '10', "$title: held");
		like(sql(qq{SELECT min(reason) FROM durable.instances WHERE id LIKE '$role-%'}), $reason, "$title: with the reason");
		others_go_on($title, 3);
		cmp_ok(logged(qr/durable holds|FATAL/, $offset), '<=', 4, "$title: the log is not filled");
		next if !defined $in;
		sql(sprintf $in, $role);
		sql(qq{SELECT durable_resume(id) FROM durable.instances WHERE id LIKE '$role-%'});
		soon(qq{SELECT count(*) FROM durable.instances WHERE id LIKE '$role-%' AND status = 'completed'}, '10', "$title: mended and resumed, they complete");
	}
}

# What a look at the role cannot tell: its connections are used up.
sql('CREATE ROLE limited LOGIN; GRANT USAGE ON SCHEMA durable TO limited');
my $limited = $node->background_psql('postgres', extra_params => [ '-U', 'limited' ]);
sql('ALTER ROLE limited CONNECTION LIMIT 0');
my $offset = log_end();
$limited->query_safe(q{SELECT durable_start('serve', id => 'limited')});
others_go_on('a role with no connection left');
cmp_ok(logged(qr/FATAL/, $offset), '<', 10, 'a worker that cannot connect is not started again and again');
sql('ALTER ROLE limited CONNECTION LIMIT -1');
ended('limited', 'it goes on when it can');
$limited->quit;

is(sql(q{SELECT count(*) FROM evil.seen WHERE what = 'stolen' OR super = 'on'}), '0', 'nothing was stolen');
$node->stop('fast');
done_testing();
