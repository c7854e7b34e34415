# Two commands do all the set-up on a fresh Debian-like machine:
#   make demo     runs the main job       (make demo REDIS=1: with a real Redis)
#   make test     runs every test
# Others: test-vm (what depends on the kernel, on Debian's stock kernels under QEMU), build, lint, bench, install, clean.

SHELL := /bin/sh
export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO := cargo
# Managing needs root: tests and demo ask for it where they are not.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env PATH="$$PATH")
PREFIX ?= /usr/local
MEGA := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/mega

.PHONY: all setup setup-test build demo test beside test-vm lint test-rust bench install clean

all: build

setup:
	@packaging/setup.sh

setup-test:
	@packaging/setup.sh test

build: setup
	@echo "== build"
	$(CARGO) build --release --locked

demo: build
	@echo "== demo"
	$(SUDO) $(MEGA) demo $(if $(REDIS),--redis)

# Tests are built first; then the lints (and with VM=1 the virtual machines) run beside them, at the lowest priority.
test: setup-test
	@echo "== build tests"
	$(CARGO) test --workspace --release --locked --no-run
	@$(MAKE) --no-print-directory -j2 --output-sync=none test-rust beside

beside: lint
	$(if $(VM),@$(MAKE) --no-print-directory test-vm)

lint: setup
	@echo "== lint"
	$(CARGO) fmt --all --check
	nice -n 19 $(CARGO) clippy --workspace --all-targets --release --locked -- -D warnings

# One test at a time where memory is measured: see tests' own locks. Release, because the code under test is what ships.
test-rust: setup-test
	@echo "== test"
	$(SUDO) $(CARGO) test --workspace --release --locked --no-fail-fast

test-vm: setup
	@packaging/setup.sh vm
	@echo "== test on other kernels"
	@nice -n 19 tests/vm/matrix

bench: setup
	$(SUDO) $(CARGO) bench --workspace --locked

install: build
	install -D -m 755 $(MEGA) $(DESTDIR)$(PREFIX)/bin/mega

clean:
	$(CARGO) clean
