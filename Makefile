# Two commands do all the set-up on a fresh Debian-like machine:
#   make demo     runs the main job       (make demo REDIS=1: with a real Redis)
#   make test     runs every test
# Others: build; check (format, lints and pure unit tests in under a minute); lint; bench; install; clean
#   on other kernels: test-vm (what depends on the kernel, on Debian's stock kernels under QEMU), test-module (mega.ko on the same),
#     test-module-debug (and on a debug kernel), test-live (mega on the same), vm-experiments (what needs mega.ko),
#     test-reservation and reservation-experiments (kernel/reservation)
#   longer than in make test: fuzz, fuzz-coverage, hostile, soak (two hours of everything at once), test-programs (real programs at full
#     size under Memomania)
#   packages (.deb and .rpm); test-packages (those under systemd in a clean Debian); test-sweeps (a sweep by GNU parallel, HyperQueue, Slurm)
#   recordings (six real programs, recorded and simulated under every system)
#   results (the documents' tables, from the records in results; make results RUN=1 simulates the papers' experiments anew first)

SHELL := /bin/sh
export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO := cargo
# Managing needs root: tests and demo ask for it where they are not.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env PATH="$$PATH")
PREFIX ?= /usr/local
MEGA := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/mega
LAB := $(MEGA)-lab
TOP := $(MEGA)-top
MEMOMANIA := $(dir $(MEGA))libmemomania.so
AGENT := $(dir $(MEGA))../agent/libmega_agent.so

TEST := $(CARGO) test --workspace --release --locked --no-fail-fast

.PHONY: all setup setup-test build demo test test-machine test-beside test-vm test-module test-module-debug test-live test-reservation reservation-experiments recordings fuzz fuzz-coverage hostile soak vm-experiments test-programs packages test-packages test-packages-ready test-sweeps check results lint bench install clean

all: build

setup:
	@packaging/setup.sh

setup-test:
	@packaging/setup.sh test

build: setup
	@echo "== build"
	MEGA_REQUIRE_BPF=1 $(CARGO) build --release --locked
	$(CARGO) build --profile agent --locked -p mega-agent

demo: build
	@echo "== demo"
	$(CARGO) build --profile agent --locked -p mega-agent
	$(SUDO) $(LAB) demo $(if $(REDIS),--redis)

# Tests that drive the machine's memory go one after another, the longest first. Beside them, at a lower priority (that of the storms' own
# programs is the lowest, too, and the build must get on beside them): building the others, tests of what touches nothing of the machine,
# the lints, and with VM=1 the virtual machines. Those need more: two emulated processors that get a fiftieth of the real ones hang. With
# LONG=1 there is also what takes minutes by itself (tests/run), and BESIDE names targets to make at the end of what goes beside.
test: setup-test
	@echo "== build the first tests"
	@$(CARGO) build --profile agent --locked -p mega-agent
	@tests/run first build
	@$(MAKE) --no-print-directory -j2 --output-sync=none test-machine test-beside

test-machine: setup-test
	@echo "== test"
	@rm -f target/test-failures; bad=0; for lane in first machine; do $(SUDO) tests/run $$lane || bad=1; done; \
	if [ $$bad = 1 ]; then cat target/test-failures; fi; exit $$bad

# Cargo locks its folder while it looks what is to be built: those that are built go first.
test-beside: setup-test
	@sleep 5
	nice -n 10 $(TEST) --no-run
	@nice -n 19 tests/run pure
	nice -n 19 $(TEST) --doc
	@nice -n 19 $(MAKE) --no-print-directory lint
	$(if $(VM),@nice -n 5 $(MAKE) --no-print-directory test-vm)
	$(if $(BESIDE),@nice -n 19 $(MAKE) --no-print-directory $(BESIDE))

# The loop while writing: no root, no clang, no service; needs what cargo has fetched, and the tree warm.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --quiet --locked -p mega-core -p mega-trace -p mega-cli -p memomania-layout -p mega --lib --bins --test documents

results:
	$(if $(RUN),$(CARGO) build --release --locked -p mega-lab --bin mega-lab)
	$(if $(RUN),$(LAB) sim all --keep results/simulated -o mega-results >/dev/null)
	MEGA_RESULTS=write $(CARGO) test --quiet --locked -p mega-lab --test published

lint: setup
	@echo "== lint"
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --release --locked -- -D warnings

test-vm: setup
	@packaging/setup.sh vm
	@echo "== test on other kernels"
	@tests/vm/matrix
	@tests/vm/reservation ci

# Three minutes and more; on its own, not beside `make test`.
test-module: setup
	@packaging/setup.sh vm
	@echo "== test the kernel module"
	@tests/vm/module

# The same on a kernel with lockdep, KASAN and kmemleak, built from Debian's sources at first; then ten minutes of random calls.
test-module-debug: setup
	@packaging/setup.sh vm debug
	@echo "== test the kernel module on a kernel that watches itself"
	@tests/vm/module-debug

# Memomania under real programs at full size: some twenty minutes, 2 GB on disk, 6 GB of memory.
test-programs: setup-test
	@packaging/setup.sh programs
	@echo "== test programs at full size"
	$(SUDO) $(CARGO) test --release --locked -p libmemomania --test full -- --ignored --test-threads=1 --nocapture

# The very same program on other kernels. Six minutes and more; on its own, too.
test-live: setup
	@packaging/setup.sh vm
	@echo "== test mega on other kernels"
	$(CARGO) build --profile agent --locked -p mega-agent
	@tests/vm/live

# Half an hour. Results in target/vm/experiments.
vm-experiments: setup
	@packaging/setup.sh vm
	@tests/vm/experiments 6.12

# Reservations in the kernel: built where it is not (some ten minutes on two processors), its tests, `mega` on it.
test-reservation: setup
	@packaging/setup.sh vm reservation
	@echo "== test reservations"
	@tests/vm/reservation each
	@tests/vm/reservation test plain
	@tests/vm/reservation mega plain
	@tests/vm/reservation events
	@tests/vm/reservation selftests

# Each parser with made-up input for so long; `make test` does so for a minute. Nothing of it needs root.
FUZZ_SECONDS ?= 3600
fuzz:
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p mega-sim -p mega --test fuzz -- --test-threads=16 --nocapture
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p mega --bin mega service::fuzz -- --nocapture

# Which lines of the parsers those tests run. It builds them, and all that they use, anew for that.
fuzz-coverage: setup
	@tests/fuzz/coverage

# A daemon, agents, storms and a Redis under load for two hours: what grows, what gets slower, what is left behind. SOAK=0.1: for a tenth.
SOAK ?= 1
soak: build setup-test
	$(SUDO) $(LAB) bench soak --scale $(SOAK)

# Every system call with every error, where `make test` takes one error of each; the other programs beside hostile ones; storms of twice the time.
hostile: setup-test
	$(SUDO) env MEGA_HOSTILE=all $(CARGO) test --release --locked -p mega --test hostile -- --test-threads=1 --nocapture
	$(SUDO) env MEGA_STORM_SECONDS=300 $(CARGO) test --release --locked -p mega-lab --test hazards storm -- --test-threads=1 --nocapture

# Six real programs, recorded on base pages and simulated under every system: docs/simulator.md has the tables. Three minutes, once they are installed.
RECORDED := numpy sklearn clickhouse jvm go redis
SYSTEMS := base,thp-always,freebsd,quicksilver,lrbhps,hawkeye,ingens,mega,auto
comma := ,
space := $() $()
recordings: build setup-test
	$(SUDO) $(LAB) bench programs --only $(subst $(space),$(comma),$(RECORDED)) --record mega-results/recordings
	@for program in $(RECORDED); do \
		$(LAB) sim run --trace mega-results/recordings/$$program.trace --scans --system $(SYSTEMS) --interval 1s \
			--keep results/recorded -o mega-results || exit 1; done

# What reservations cost and give, counted in instructions: the same figures each time. Half an hour; builds two kernels.
reservation-experiments: setup
	@packaging/setup.sh vm reservation
	@for what in exact compile fragmented redis latency; do tests/vm/reservation $$what || exit 1; done

bench: build
	$(SUDO) $(CARGO) bench --workspace --locked

install: build
	install -D -m 755 $(MEGA) $(DESTDIR)$(PREFIX)/bin/mega
	install -D -m 755 $(LAB) $(DESTDIR)$(PREFIX)/bin/mega-lab
	install -D -m 755 $(TOP) $(DESTDIR)$(PREFIX)/bin/mega-top
	install -D -m 755 $(MEMOMANIA) $(DESTDIR)$(PREFIX)/lib/libmemomania.so
	install -D -m 755 $(AGENT) $(DESTDIR)$(PREFIX)/lib/libmega_agent.so

# .deb and .rpm into target/packages. Both tools are built once, into target/tools.
TOOLS := target/tools/bin
PACKAGED := target/packages

$(TOOLS)/cargo-deb:
	nice $(CARGO) install --locked --debug --no-default-features --root target/tools --target-dir target/tools/build cargo-deb@3.8.0

$(TOOLS)/cargo-generate-rpm:
	nice $(CARGO) install --locked --debug --root target/tools --target-dir target/tools/build cargo-generate-rpm@0.21.1

packages: build $(TOOLS)/cargo-deb $(TOOLS)/cargo-generate-rpm
	@packaging/build

# What takes most of the time: the tools, and the bare Debian that the packages are tried in.
test-packages-ready: $(TOOLS)/cargo-deb $(TOOLS)/cargo-generate-rpm
	@packaging/setup.sh packages
	$(SUDO) tests/packages/run ready

# In a container by systemd-nspawn; two minutes, eight where nothing of it is ready. Needs root.
test-packages: packages test-packages-ready
	@echo "== test packages"
	@tests/packages/manifest
	$(SUDO) tests/packages/run

# GNU parallel, HyperQueue and Slurm, each killed in the middle of a sweep; a minute. Needs root.
test-sweeps: build
	@packaging/setup.sh sweeps
	@echo "== test sweeps"
	$(SUDO) tests/sweeps

clean:
	$(CARGO) clean
