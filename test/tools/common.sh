# Shared by the tools: who runs the server, where, and how it is started and
# stopped. To be sourced.
#
# A command works in its own workspace, build/NAME, with its own copy of the
# server's installation, so the extension is never installed into the system
# and two commands do not disturb each other. A lock a workspace keeps two runs
# of one command apart.

set -euo pipefail
umask 022

top=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
tools=$top/test/tools

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

#
# Environment: nothing of the caller's PostgreSQL or locale settings counts.
#
clean_environment() {
	local name
	for name in "${!PG@}"; do
		case $name in PG_CONFIG | PG_TEST_*) ;; *) unset "$name" ;; esac
	done
	unset LANGUAGE
	export LC_ALL=C.UTF-8
}
clean_environment

#
# Things to undo at the end, last first.
#
undo=()
undo_all() {
	local i
	trap - EXIT
	trap '' INT TERM HUP
	for ((i = ${#undo[@]} - 1; i >= 0; i--)); do eval "${undo[i]}" || :; done
}
at_exit() { undo+=("$1"); }
trap undo_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

#
# PostgreSQL refuses to run as root: then another user runs the servers.
#
choose_server_user() {
	server_user=$(id -un)
	if ((EUID == 0)); then
		server_user=postgres
		id -u postgres >/dev/null 2>&1 || server_user=nobody
	fi
}

# Runs a command as that user, without our lock (9): a server left behind must
# not hold it.
as_server() {
	local -a command=(env "HOME=$work" "TMPDIR=$short_dir" "$@")
	((EUID != 0)) || command=(runuser -u "$server_user" -- "${command[@]}")
	"${command[@]}" 9>&-
}

give_to_server() { ((EUID != 0)) || chown -R "$server_user" "$@"; }

#
# Workspaces
#
try_lock_workspace() {
	mkdir -p "$top/build"
	exec 9>"$top/build/$1.lock"
	flock -n 9
}

lock_workspace() {
	try_lock_workspace "$1" || die "Another make is at work in build/$1."
}

server_user_reaches() {
	((EUID != 0)) || runuser -u "$server_user" -- test -x "$1"
}

# Sets $work. Where the server's user cannot reach build/NAME (a checkout
# below /root, say) that is a link to a directory which it can.
open_workspace() {
	local here=$top/build/$1
	choose_server_user
	if [[ ! -d $here ]]; then
		rm -f -- "$here"
		if server_user_reaches "$top/build"; then
			mkdir "$here"
		else
			ln -s "$(mktemp -d "${TMPDIR:-/tmp}/durable-$1.XXXXXX")" "$here"
			chmod 755 "$here/"
		fi
	fi
	work=$(cd -- "$here" && pwd -P)
	server_user_reaches "$work" ||
		die "User $server_user cannot reach $work: remove build/$1 and try again."
	make_short_dir
	cd -- "$work"
}

remove_workspace() {
	local here=$top/build/$1 elsewhere
	if [[ -L $here ]]; then
		elsewhere=$(readlink -- "$here")
		rm -rf -- "$elsewhere"
	fi
	rm -rf -- "$here"
}

# Sockets and temporary files: a socket's path is limited to 107 bytes.
make_short_dir() {
	short_dir=$(mktemp -d /tmp/durable.XXXXXX)
	at_exit 'rm -rf -- "$short_dir"'
	give_to_server "$short_dir"
}

#
# The private installation: $work/server, with everything where the system's
# server has it, because PostgreSQL finds its files by relative paths.
#
install_privately() {
	pg_config=${PG_CONFIG:-$("$tools/pg-config")}
	local dir
	rm -rf -- "$work/server"
	for dir in "$(pg_dir bindir)" "$(pg_dir pkglibdir)" "$(pg_dir sharedir)"; do
		mkdir -p "$work/server$dir"
		cp -a --reflink=auto "$dir/." "$work/server$dir"
	done
	bin=$work/server$(pg_dir bindir)
	pgxs=$(dirname -- "$(pg_dir pgxs)")/../..
	make_extension >"$work/build.log" 2>&1 || {
		cat -- "$work/build.log" >&2
		die 'The build failed.'
	}
	export PATH=$bin:$PATH
}

pg_dir() { "$pg_config" "--$1"; }

# One build at a time in the source tree. The outer make's options stay out;
# its variables are in the environment.
make_extension() (
	exec 8>"$top/build/build.lock"
	flock 8
	unset MAKEFLAGS MFLAGS MAKELEVEL
	make -s -C "$top" --no-print-directory -j"$(nproc)" PG_CONFIG="$pg_config" \
		with_llvm=no DESTDIR="$work/server" install
)

#
# Clusters
#
make_cluster() {
	local data=$1
	rm -rf -- "$data"
	mkdir -p "$data"
	give_to_server "$data"
	as_server initdb -D "$data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 \
		--no-sync >"$data.initdb.log" 2>&1 || {
		cat -- "$data.initdb.log" >&2
		die 'initdb failed.'
	}
	as_server tee -a "$data/postgresql.conf" <<<"include 'server.conf'" >/dev/null
}

# start_cluster DATA [OPTION...]: the socket is in $short_dir, and so is no
# other server's.
start_cluster() {
	local data=$1 options
	shift
	printf -v options '%q ' -k "$short_dir" "$@"
	as_server tee "$data/server.conf" <"$tools/server.conf" >/dev/null
	: >"$data.log"
	give_to_server "$data.log"
	at_exit "stop_cluster $(printf %q "$data")"
	as_server pg_ctl -D "$data" -l "$data.log" -o "$options" -w start >/dev/null || {
		tail -n 30 -- "$data.log" >&2
		die 'The private server did not start.'
	}
}

stop_cluster() {
	local data=$1
	[[ -f $data/postmaster.pid ]] || return 0
	as_server pg_ctl -D "$data" -m fast -w stop >/dev/null 2>&1 ||
		as_server pg_ctl -D "$data" -m immediate -w stop >/dev/null 2>&1
}

# Whatever a killed suite or a killed run left below a directory.
stop_clusters_below() {
	local pidfile
	while IFS= read -r -d '' pidfile; do
		as_server pg_ctl -D "$(dirname -- "$pidfile")" -m immediate -w stop \
			>/dev/null 2>&1 || :
	done < <(find "$1" -name postmaster.pid -print0 2>/dev/null)
}
