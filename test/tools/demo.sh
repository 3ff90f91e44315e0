# The demonstration's server: build/demo, database durable_demo. To be sourced
# after common.sh.

database=durable_demo

prepare_demo_server() {
	install_packages
	open_workspace demo
	data=$work/data
	stop_clusters_below "$work"
	install_privately
	is_cluster_of_this_version || make_cluster "$data"
	start_cluster "$data" -c shared_preload_libraries=durable
	export PGHOST=$short_dir PGUSER=postgres
}

is_cluster_of_this_version() {
	[[ -s $data/server.conf && $("$bin/postgres" --version) == *\ $(<"$data/PG_VERSION")[.a-z]* ]]
}

# run_psql ARGUMENT...: in the background, so that a signal finds us waiting;
# standard input and the terminal remain psql's.
run_psql() {
	local pid status=0
	psql "$@" <&0 9>&- &
	pid=$!
	at_exit "kill $pid 2>/dev/null"
	while kill -0 "$pid" 2>/dev/null; do
		wait "$pid" && status=0 || status=$?
	done
	return "$status"
}
