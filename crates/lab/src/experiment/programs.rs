//! Real programs that people run: what huge pages do to each. `mega bench programs` runs the family.

use std::fmt::Write as _;

use super::auto::gates::Seen;
use super::auto::{picture, table};
use super::member::member;
use super::{Experiment, GIB};
use crate::result::Record;
use crate::variant::Variant;

macro_rules! variants {
    ($($preset:literal)?) => {
        &["base", "thp-always", "mthp-64k", "mega", "thp-always+trim", "auto", "auto:known" $(, $preset)?]
    };
}

const VARIANTS: &[&str] = variants!();

/// Programs that a preset is for, or that stand for what it is for, and that preset as a variant.
const PRESETS: &[(&str, &str)] = &[
    ("redis", "preset:redis"),
    ("mariadb", "preset:mariadb"),
    ("postgresql", "preset:postgresql"),
    ("jvm", "preset:jvm"),
    ("go", "preset:go"),
    ("clickhouse", "preset:clickhouse"),
    ("duckdb", "preset:batch"),
];

const SLOWEST: &str = "request_p999_ns";

macro_rules! real {
    ($name:literal, $program:literal, $share:expr, $bytes:expr, $title:literal, [$($main:literal),+] $(, $preset:literal)?) => {
        member!("programs", $name, $program, $share, $bytes, variants!($($preset)?), $title, [$($main),+])
    };
}

pub(super) const LIST: &[Experiment] = &[
    real!(
        "redis",
        "redis-warm",
        0.5,
        4 * GIB,
        "Redis: gets and sets of 4 KB",
        ["ops_per_s", "request_p50_ns", "request_p99_ns", "request_p999_ns"],
        "preset:redis"
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
        ["ops_per_s", "request_p95_ns"],
        "preset:mariadb"
    ),
    real!("sqlite", "sqlite", 0.5, 4 * GIB, "SQLite in memory", ["elapsed_ns"]),
    real!(
        "duckdb",
        "duckdb",
        0.5,
        5 * GIB,
        "DuckDB: a join and a group-by",
        ["elapsed_ns"],
        "preset:batch"
    ),
    real!(
        "clickhouse",
        "clickhouse",
        0.5,
        5 * GIB,
        "ClickHouse: a join and a group-by",
        ["elapsed_ns"],
        "preset:clickhouse"
    ),
    real!(
        "postgresql",
        "postgresql",
        1.0,
        4 * GIB,
        "PostgreSQL: sorts and hashes of a backend",
        ["elapsed_ns"],
        "preset:postgresql"
    ),
    real!("numpy", "numpy", 1.0, 5 * GIB, "NumPy and SciPy", ["elapsed_ns"]),
    real!("sklearn", "sklearn", 1.0, 5 * GIB, "scikit-learn", ["elapsed_ns"]),
    real!(
        "jvm",
        "jvm",
        1.0,
        5 * GIB,
        "a JVM under G1",
        ["elapsed_ns"],
        "preset:jvm"
    ),
    real!(
        "go",
        "go",
        0.5,
        6 * GIB,
        "Go under its collector",
        ["elapsed_ns"],
        "preset:go"
    ),
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
         alternation,\nrelative to base pages in the same record; speed above 1 is better, memory below 1.\n",
    );
    out += table::TAKEN;
    out += "\n";
    out += &super::tables::machine(records);
    out += "Differences under 5 % say nothing then.\n\n";
    out += &table::smaller(records);
    out += "![speed and memory of each program, relative to base pages](programs.svg)\n\n";
    let there: Vec<&Seen<'_>> = seen.iter().collect();
    table::speed_and_memory(&mut out, &there, &VARIANTS[1..]);
    let _ = writeln!(
        out,
        "\nServers are judged by operations per second, all others by run time."
    );
    out
}

/// The table of docs/presets.md: what each preset did to its program.
#[must_use]
pub fn presets(records: &[Record]) -> String {
    let mut out = String::from(
        "| preset | program | speed: stock THP | preset | slowest requests (p99.9): stock THP | preset | memory: stock THP | preset |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for seen in &table::seen(records) {
        let name = seen.case_name();
        let Some((_, preset)) = PRESETS.iter().find(|(program, _)| *program == name) else {
            continue;
        };
        let managed = preset.parse::<Variant>().expect("a preset").to_string();
        let of = |variant: &str, metric: &str| Some(seen.median(variant, metric)? / seen.median("base", metric)?);
        let columns = [
            seen.relative("thp-always", "base"),
            seen.relative(&managed, "base"),
            of("thp-always", SLOWEST),
            of(&managed, SLOWEST),
            of("thp-always", &seen.memory("mean")),
            of(&managed, &seen.memory("mean")),
        ];
        let cells = columns.map(|ratio| ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}")));
        let _ = writeln!(
            out,
            "| {} | {name} | {} |",
            preset.trim_start_matches("preset:"),
            cells.join(" | ")
        );
    }
    out
}

/// How fast each program ran under a variant, relative to base pages, in rising order.
#[must_use]
pub fn speeds(records: &[Record], variant: &str) -> Vec<f64> {
    let mut all: Vec<f64> = table::seen(records)
        .iter()
        .filter_map(|seen| seen.relative(variant, "base"))
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// docs/programs.svg.
#[must_use]
pub fn picture(records: &[Record]) -> String {
    let seen = table::seen(records);
    let there: Vec<&Seen<'_>> = seen.iter().collect();
    picture::picture(&there, &VARIANTS[1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_of_a_preset_runs_under_it_and_is_in_its_table() {
        for (program, preset) in PRESETS {
            let member = LIST.iter().find(|member| member.name == format!("programs-{program}"));
            let plan = (member.expect("a program of the family").setup)(0.01).plan;
            let managed: Variant = preset.parse().unwrap();
            assert!(plan.variants.contains(&managed), "{program} is not run under {preset}");
        }
        let times = [("base", 20.0), ("thp-always", 10.0), ("auto:for=balanced", 16.0)];
        let mut record = table::tests::touch("unfragmented", &times);
        record.cases[0].name = "go".into();
        let text = presets(&[record, table::tests::touch("unfragmented", &times)]);
        assert!(
            text.contains("| go | go | 2.00 | 1.25 | – | – | 1.00 | 1.00 |\n"),
            "{text}"
        );
        assert!(!text.contains("touch"), "{text}");
        let record = table::tests::touch("unfragmented", &times);
        assert_eq!(speeds(&[record], "thp-always"), [2.0]);
    }
}
