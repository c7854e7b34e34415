//! The proof of `auto`: every kind of program on base pages, on all that a kernel offers, under `mega`, `trim` and `auto`, and what is to be
//! reached. `mega bench auto` runs the family under its conditions; [`gates`] judges the records; [`table`] writes docs/auto.md.

use super::member::member;
use super::{Experiment, GIB};

pub mod gates;
pub mod picture;
pub mod reasons;
pub mod table;

/// The first is the baseline.
pub const VARIANTS: &[&str] = &[
    "base",
    "thp-always",
    "thp-none0",
    "mthp-64k",
    "mega",
    "thp-always+trim",
    "auto",
    "auto:known",
    "auto:agent",
    "auto:manager",
];

/// First touch is measured for latency, too.
const TOUCHING: &[&str] = &[
    "base",
    "thp-always",
    "thp-none0",
    "mthp-64k",
    "mega",
    "thp-always+trim",
    "auto",
    "auto:known",
    "auto:agent",
    "auto:manager",
    "auto:agent:for=latency",
];

macro_rules! proof {
    ($name:literal, $program:literal, $share:expr, $bytes:expr, $variants:expr, $title:literal, [$($main:literal),+]) => {
        member!("auto", $name, $program, $share, $bytes, $variants, $title, [$($main),+])
    };
}

pub(super) const LIST: &[Experiment] = &[
    proof!(
        "gups",
        "gups-first",
        1.0,
        6 * GIB,
        VARIANTS,
        "random updates of 4 GB, the first 15 s",
        ["ops_per_s", "first_touch_ns"]
    ),
    proof!(
        "touch",
        "touch",
        1.0,
        6 * GIB,
        TOUCHING,
        "first touch of 4 GB, each timed",
        ["first_touch_ns", "touch_p999_ns", "touch_p50_ns", "touch_max_ns"]
    ),
    proof!(
        "rehash",
        "rehash",
        1.0,
        3 * GIB,
        VARIANTS,
        "a hash table that doubles",
        ["ops_per_s", "load_ns"]
    ),
    proof!(
        "grow",
        "grow",
        1.0,
        4 * GIB,
        VARIANTS,
        "a heap that grows by realloc",
        ["elapsed_ns", "first_touch_ns"]
    ),
    proof!(
        "again",
        "again",
        1.0,
        2 * GIB,
        VARIANTS,
        "arrays allocated and freed again and again",
        ["elapsed_ns"]
    ),
    proof!(
        "scattered",
        "scattered",
        1.0,
        5 * GIB,
        VARIANTS,
        "a scattered sixth",
        ["first_touch_ns", "touch_p999_ns"]
    ),
    proof!(
        "store",
        "demo",
        1.0,
        6 * GIB,
        VARIANTS,
        "dense, then scattered in one process",
        ["ops_per_s", "first_touch_ns"]
    ),
    proof!(
        "arenas",
        "arenas",
        1.0,
        4 * GIB,
        VARIANTS,
        "many arenas, many threads",
        ["elapsed_ns"]
    ),
    proof!(
        "forks",
        "forks",
        1.0,
        3 * GIB,
        VARIANTS,
        "a fork server with copy on write",
        ["ops_per_s", "first_touch_ns"]
    ),
    proof!(
        "redis-fill",
        "redis-cold",
        0.5,
        4 * GIB,
        VARIANTS,
        "Redis, filled",
        ["ops_per_s", "request_p999_ns"]
    ),
    proof!(
        "redis-get",
        "redis-warm",
        0.5,
        4 * GIB,
        VARIANTS,
        "Redis, gets and sets",
        ["ops_per_s", "request_p999_ns"]
    ),
    proof!(
        "redis-delete",
        "redis-del-70",
        0.25,
        5 * GIB,
        VARIANTS,
        "Redis, 70 % deleted",
        ["elapsed_ns"]
    ),
    proof!(
        "memcached",
        "memcached",
        0.5,
        6 * GIB,
        VARIANTS,
        "memcached",
        ["ops_per_s", "request_p999_ns"]
    ),
    proof!(
        "mariadb",
        "mariadb",
        0.05,
        6 * GIB,
        VARIANTS,
        "MariaDB under sysbench",
        ["ops_per_s"]
    ),
    proof!(
        "postgresql",
        "postgresql",
        1.0,
        4 * GIB,
        VARIANTS,
        "PostgreSQL: sorts and hashes of a backend",
        ["elapsed_ns"]
    ),
    proof!(
        "sqlite",
        "sqlite",
        0.5,
        4 * GIB,
        VARIANTS,
        "SQLite in memory",
        ["elapsed_ns"]
    ),
    proof!("jvm", "jvm", 1.0, 5 * GIB, VARIANTS, "a JVM under G1", ["elapsed_ns"]),
    proof!(
        "go",
        "go",
        0.5,
        6 * GIB,
        VARIANTS,
        "Go under its collector",
        ["elapsed_ns"]
    ),
    proof!(
        "numpy",
        "numpy",
        1.0,
        5 * GIB,
        VARIANTS,
        "NumPy and SciPy",
        ["elapsed_ns"]
    ),
    proof!(
        "duckdb",
        "duckdb",
        0.5,
        5 * GIB,
        VARIANTS,
        "DuckDB: a join and a group-by",
        ["elapsed_ns"]
    ),
    proof!(
        "gcc",
        "gcc",
        1.0,
        2 * GIB,
        VARIANTS,
        "a compiler: huge pages do little for it",
        ["elapsed_ns"]
    ),
    proof!(
        "zstd",
        "zstd",
        1.0,
        2 * GIB,
        VARIANTS,
        "a compressor: huge pages do little for it",
        ["elapsed_ns"]
    ),
];
