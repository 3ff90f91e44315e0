# Installs the Debian packages that the build and the tests need and that are
# not there: no network is needed when nothing is missing. To be sourced after
# common.sh.

debian_servers=/usr/lib/postgresql

as_root() {
	if ((EUID == 0)); then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		die "These packages are missing, and installing them needs root or sudo: ${missing[*]}"
	fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"; }

apt_knows() { apt-cache show --no-all-versions "$@" >/dev/null 2>&1; }

# The package lists may be missing, or older than the archive.
apt_install() {
	apt_knows "$@" || apt_get update
	apt_get install -y --no-install-recommends "$@" || {
		apt_get update
		apt_get install -y --no-install-recommends "$@"
	}
}

# The server version to use: PG_CONFIG's, the newest here, or what this Debian
# release offers. Empty when PG_CONFIG is not one of Debian's.
debian_major() {
	local pg_config major
	local -a missing=(postgresql)	# for as_root: more is not known yet
	if pg_config=${PG_CONFIG:-$("$tools/pg-config")}; then
		[[ -x $pg_config ]] && pg_config=$("$pg_config" --bindir)
		major=${pg_config#"$debian_servers"/}
		[[ $major == "$pg_config" ]] || echo "${major%%/*}"
		return
	fi
	apt_knows postgresql || apt_get update >&2
	apt-cache show --no-all-versions postgresql |
		sed -n 's/^Depends:.*postgresql-\([0-9]*\).*/\1/p'
}

has_libpq() { test -f "$("$1" --includedir)/libpq-fe.h"; }

missing=()
need() {
	local package=$1
	shift
	"$@" >/dev/null 2>&1 || missing+=("$package")
}

find_missing() {
	local major=$1 bin=$debian_servers/$1/bin
	local extensions=/usr/share/postgresql/$1/extension
	need gcc command -v gcc
	need libc6-dev test -f /usr/include/stdio.h
	need perl perl -MTest::More -MTAP::Harness -e 1
	need libipc-run-perl perl -MIPC::Run -e 1
	[[ -n $major ]] || return 0
	need "postgresql-$major" test -x "$bin/initdb"
	# pgxs itself comes with the client's package
	need "postgresql-server-dev-$major" test -f "/usr/include/postgresql/$major/server/postgres.h"
	need libpq-dev has_libpq "$bin/pg_config"
	need "postgresql-$major-pgtap" test -f "$extensions/pgtap.control"
	need "postgresql-$major-cron" test -f "$extensions/pg_cron.control"
	need "postgresql-plpython3-$major" test -f "$extensions/plpython3u.control"
}

# The server's package makes and starts a cluster unless postgresql-common is
# told not to. It is told so only while we install.
without_system_cluster() {
	local dir=/etc/postgresql-common/createcluster.d
	local file=$dir/durable-private-servers-only.conf had_dir=no
	[[ ! -d $dir ]] || had_dir=yes
	at_exit "forget_no_cluster $file $had_dir"
	as_root mkdir -p "$dir"
	as_root tee "$file" >/dev/null <<<'create_main_cluster = off'
	"$@"
	forget_no_cluster "$file" "$had_dir"
}

forget_no_cluster() {
	[[ -f $1 ]] || return 0
	as_root rm -f -- "$1"
	[[ $2 == yes ]] || as_root rmdir --ignore-fail-on-non-empty -- "$(dirname -- "$1")"
}

install_packages() {
	local major
	major=$(debian_major)
	find_missing "$major"
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null || die "Missing: ${missing[*]}"
	say "Installing ${missing[*]}"
	if [[ " ${missing[*]} " == *" postgresql-$major "* ]]; then
		apt_install postgresql-common
		without_system_cluster apt_install "${missing[@]}"
	else
		apt_install "${missing[@]}"
	fi
}
