//! Real programs that people run: what huge pages do to each. `mega bench programs` runs the family.

use std::fmt::Write as _;

use super::auto::gates::Seen;
use super::auto::{picture, table};
use super::member::member;
use super::{Experiment, GIB};
use crate::result::Record;

const VARIANTS: &[&str] = &["base", "thp-always", "mthp-64k", "mega", "thp-always+trim", "auto"];

macro_rules! real {
    ($name:literal, $program:literal, $share:expr, $bytes:expr, $title:literal, [$($main:literal),+]) => {
        member!("programs", $name, $program, $share, $bytes, VARIANTS, $title, [$($main),+])
    };
}

pub(super) const LIST: &[Experiment] = &[
    real!(
        "redis",
        "redis-warm",
        0.5,
        4 * GIB,
        "Redis: gets and sets of 4 KB",
        ["ops_per_s", "request_p50_ns", "request_p99_ns", "request_p999_ns"]
    ),
    real!(
        "memcached",
        "memcached",
        0.5,
        6 * GIB,
        "memcached: gets and sets of 4 KB",
        ["ops_per_s", "request_p50_ns", "request_p99_ns", "request_p999_ns"]
    ),
    real!(
        "mariadb",
        "mariadb",
        0.05,
        6 * GIB,
        "MariaDB under sysbench",
        ["ops_per_s", "request_p95_ns"]
    ),
    real!("sqlite", "sqlite", 0.5, 4 * GIB, "SQLite in memory", ["elapsed_ns"]),
    real!(
        "duckdb",
        "duckdb",
        0.5,
        5 * GIB,
        "DuckDB: a join and a group-by",
        ["elapsed_ns"]
    ),
    real!("numpy", "numpy", 1.0, 5 * GIB, "NumPy and SciPy", ["elapsed_ns"]),
    real!("sklearn", "sklearn", 1.0, 5 * GIB, "scikit-learn", ["elapsed_ns"]),
    real!("jvm", "jvm", 1.0, 5 * GIB, "a JVM under G1", ["elapsed_ns"]),
    real!("go", "go", 0.5, 6 * GIB, "Go under its collector", ["elapsed_ns"]),
    real!("node", "node", 1.0, 5 * GIB, "Node", ["elapsed_ns"]),
    real!("gcc", "gcc", 1.0, 2 * GIB, "gcc", ["elapsed_ns"]),
    real!("zstd", "zstd", 1.0, 2 * GIB, "zstd", ["elapsed_ns"]),
    real!(
        "workers",
        "workers",
        1.0,
        6 * GIB,
        "Python with forked workers",
        ["elapsed_ns"]
    ),
];

/// docs/programs.md: a line for each program.
#[must_use]
pub fn document(records: &[Record]) -> String {
    let seen = table::seen(records);
    let mut out = String::from(
        "# Real programs, measured\n\nMade by `make results` from the records in `results/programs`; do not edit. Medians of variants in \
         alternation, relative to base pages in the same record; speed above 1 is better, memory below 1.\n\n",
    );
    table::origins(&mut out, records);
    out += "![speed and memory of each program, relative to base pages](programs.svg)\n\n";
    let there: Vec<&Seen<'_>> = seen.iter().collect();
    table::speed_and_memory(&mut out, &there, &VARIANTS[1..]);
    let _ = writeln!(
        out,
        "\nServers are judged by operations per second, all others by run time."
    );
    out
}

/// docs/programs.svg.
#[must_use]
pub fn picture(records: &[Record]) -> String {
    let seen = table::seen(records);
    let there: Vec<&Seen<'_>> = seen.iter().collect();
    picture::picture(&there, &VARIANTS[1..])
}
