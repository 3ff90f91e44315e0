# durable: durable workflows for PostgreSQL
#
#   make, make install      build and install, as any PGXS extension
#   make installcheck       regress and isolation tests on your running server
#   make demo               the demonstration, on a private server
#   make psql               psql on the demonstration's database
#   make check              all tests, on private servers
#       SUITES="regress tap"    only these: tree regress isolation pgtap tap
#       TESTS="name pattern*"   only tests of these names
#   make stress             the race hunt of the tests, for a minute
#   make bench              what steps and replay cost, beside pgbench
#   make dist               build/durable-VERSION.zip, with its META.json
#   make clean, distclean   remove what was built; distclean also ./build
#
# PG_CONFIG=/path/to/pg_config chooses the server, WERROR= lets warnings pass.
# All paths are relative: PGXS cannot build in a directory with a space in its
# name otherwise.

EXTENSION = durable
MODULE_big = durable

# The control file is the only place that knows the version.
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" durable.control)

# These need no server to begin with (they install one), and PGXS has a "check"
# of its own: with one of them on the command line PGXS stays out, and other
# goals beside it get a make of their own.
private_server_goals = demo check psql bench stress

ifneq (,$(filter $(private_server_goals),$(MAKECMDGOALS)))

.NOTPARALLEL:
.PHONY: $(MAKECMDGOALS)

demo check psql:
	@test/tools/$@

bench:
	@bench/run

stress: export SUITES = tap
stress: export TESTS = 050_stress
stress: export DURABLE_STRESS_SECONDS ?= 60
stress:
	@test/tools/check

other_goals := $(filter-out $(private_server_goals),$(MAKECMDGOALS))
ifneq (,$(other_goals))
$(other_goals):
	@$(MAKE) --no-print-directory $@
endif

else

OBJS := $(patsubst %.c,%.o,$(filter-out src/bin/%,$(sort $(wildcard src/*.c src/*/*.c))))

# PGXS builds a module or programs, not both: the rules are below.
worker = build/durable-worker
worker_files := $(sort $(wildcard src/bin/*.[ch]))

extension_sql := $(sort $(wildcard sql/extension/[0-9]*.sql))
DATA = $(wildcard sql/extension/durable--*--*.sql)
DATA_built = durable--$(EXTVERSION).sql

# -isystem takes the server's headers out of our warnings.
WERROR = -Werror
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(includedir_server)
PG_CFLAGS = -Wall -Wextra $(WERROR) -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers $(if $(WERROR),-Wno-error=clobbered) -MMD -MP

REGRESS := $(if $(wildcard sql/schedule), \
	$(shell sed -n 's/^test://p' sql/schedule), \
	$(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql))))
REGRESS_OPTS = --encoding=UTF8
ISOLATION := $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=$(srcdir)/test/isolation --load-extension=durable

EXTRA_CLEAN = $(wildcard durable--*.sql) META.json $(OBJS:.o=.d) build/flags $(worker) \
	results regression.diffs regression.out output_iso

PG_CONFIG ?= $(shell test/tools/pg-config)
PGXS := $(shell "$(PG_CONFIG)" --pgxs 2>/dev/null)
ifeq (,$(wildcard $(PGXS)))
$(error No PGXS found: install postgresql-server-dev-NN or set PG_CONFIG ("make check" installs what it needs))
endif
include $(PGXS)

# The directory is there for a file that goes away.
$(DATA_built): $(extension_sql) sql/extension durable.control
	@echo 'assembling $@'
	@{ printf '%s\n' '\echo Use "CREATE EXTENSION $(EXTENSION)" to load this file. \quit'; \
	   cat $(extension_sql) /dev/null; } >$@.tmp
	@mv $@.tmp $@

# Objects of another server version, other flags or another set of files are stale.
build_flags = $(VERSION) $(CC) $(CFLAGS) $(CPPFLAGS) $(OBJS)
build/flags: FORCE
	@mkdir -p build
	@echo '$(subst ','\'',$(build_flags))' | cmp -s - $@ || \
	 echo '$(subst ','\'',$(build_flags))' >$@
$(OBJS): build/flags
-include $(OBJS:.o=.d)

all: $(worker)
$(worker): $(worker_files) durable.control build/flags
	$(CC) $(filter-out -MMD -MP -Wno-unused-parameter,$(CFLAGS)) -I$(includedir) \
		-DDURABLE_VERSION='"$(EXTVERSION)"' $(filter %.c,$^) -o $@ \
		$(LDFLAGS) $(LDFLAGS_EX) -L$(libdir) -lpq

install: install-worker
install-worker: $(worker)
	$(MKDIR_P) '$(DESTDIR)$(bindir)'
	$(INSTALL_PROGRAM) $(worker) '$(DESTDIR)$(bindir)/durable-worker$(X)'

uninstall: uninstall-worker
uninstall-worker:
	rm -f '$(DESTDIR)$(bindir)/durable-worker$(X)'

META.json: META.json.in durable.control
	sed 's/@VERSION@/$(EXTVERSION)/g' $< >$@

# What is committed, and the META.json that PGXN wants.
dist: META.json
	@mkdir -p build
	git archive --format=zip --prefix=durable-$(EXTVERSION)/ --add-file=META.json \
		-o build/durable-$(EXTVERSION).zip HEAD

distclean: remove-build
remove-build: clean
	test/tools/remove-build

.PHONY: FORCE dist remove-build install-worker uninstall-worker

endif
