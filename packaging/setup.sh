#!/bin/sh
# Installs what building and running need on a Debian-like machine: a compiler for BPF, headers, a Rust toolchain, Redis; with the
# argument `test` also the programs that tests measure and the browser that looks at reports, with `vm` what boots other kernels, with
# `vm debug` what builds one, with `vm reservation` what builds one with kernel/reservation, with `programs` runtimes that Memomania is tried under,
# with `packages` what runs a clean Debian with systemd.
# Idempotent, and silent when there is nothing to do. Runs as root, or with sudo.
set -eu

say() { printf 'setup: %s\n' "$*" >&2; }

missing=
need() { # need COMMAND-OR-FILE PACKAGE
    if ! command -v "$1" >/dev/null 2>&1 && ! [ -e "$1" ]; then missing="$missing $2"; fi
}

need cc gcc
need clang clang
need llvm-strip llvm
need pkg-config pkg-config
need /usr/include/libelf.h libelf-dev
need /usr/include/zlib.h zlib1g-dev
[ "${WITH_REDIS:-1}" = 0 ] || need redis-server redis-server
if [ "${1:-}" = test ]; then
    need memcached memcached
    need mariadbd mariadb-server
    need sysbench sysbench
    need sqlite3 sqlite3
    need zstd zstd
    need python3 python3
    need git git
    need mandoc mandoc
    need g++ g++
    need chromium chromium
    need valgrind valgrind
fi
if [ "${1:-}" = programs ]; then
    need node nodejs
    need javac default-jdk-headless
    need go golang-go
    need rustc rustc
fi
if [ "${1:-}" = packages ]; then
    need debootstrap debootstrap
    need systemd-nspawn systemd-container
    need /usr/share/python-wheels python3-venv
fi
if [ "${1:-}" = sweeps ]; then
    need parallel parallel
    need slurmctld slurmctld
    need slurmd slurmd
    need sbatch slurm-client
    need ip iproute2
    need /usr/share/python-wheels python3-venv
fi
if [ "${1:-}" = vm ]; then
    need qemu-system-x86_64 qemu-system-x86
    need busybox busybox-static
    need cpio cpio
    need make make
fi
if [ "${1:-}" = vm ] && { [ "${2:-}" = debug ] || [ "${2:-}" = reservation ]; }; then
    need flex flex
    need bison bison
    need bc bc
    need xz xz-utils
    need sparse sparse
    need /sbin/depmod kmod
fi
if [ "${1:-}" = vm ] && [ "${2:-}" = reservation ]; then
    need ccache ccache
    need rsync rsync
    need patch patch
fi
# Debian 13 and later bring a Rust that is new enough; older ones need rustup.
if ! command -v cargo >/dev/null 2>&1; then
    if [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
    else
        missing="$missing cargo rustc rustfmt rust-clippy"
    fi
fi

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        say "this machine has no apt-get; please install by hand:$missing"
        exit 1
    fi
    sudo=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 || { say "needs root or sudo to install:$missing"; exit 1; }
        sudo=sudo
    fi
    say "installing:$missing"
    $sudo apt-get update -qq
    # RUNLEVEL=1 keeps Debian from starting servers as services: tests and demo start their own.
    # shellcheck disable=SC2086
    $sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml" | head -n 1)
have=$(rustc --version | awk '{print $2}')
oldest=$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)
if [ "$oldest" != "$wanted" ]; then
    say "needs Rust $wanted or later, found $have: install it with rustup (a package of Debian 13 and later)"
    exit 1
fi
