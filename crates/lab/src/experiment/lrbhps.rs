//! LRBHPS (Linux 6.1.38): Redis cold and warm, memory of Redis, speed of programs; on memory as it is and on fragmented memory.

use super::{case, plan, program, published, Experiment, Setup, GB, GIB};
use crate::contiguity::FragKind;
use crate::prepare::condition::Condition::{self, Fragmented, Unfragmented};
use crate::result::Published;
use crate::run::CasePlan;
use mega_core::units::Share;

const VARIANTS: &[&str] = &["thp-always-defrag", "base", "mthp-64k", "auto"];
/// Part of Range-S that gives the paper's amount of memory.
const RANGE_S: f64 = 0.22;
const ELSEWHERE: Option<&str> = Some("LRBHPS itself decides at faults: `mega sim`, or the reservation kernel");

/// The paper's `FRAG 100`: almost none of the free memory is usable for huge pages, by its own fragmenter (section 4.2).
fn fragmented() -> Condition {
    Fragmented(Share::percent(90), FragKind::Reserve)
}

fn both(name: &str, scale: f64) -> Vec<CasePlan> {
    vec![
        case(&format!("{name}-frag-0"), program(name, scale), Unfragmented),
        case(&format!("{name}-frag-100"), program(name, scale), fragmented()),
    ]
}

pub(super) const LIST: &[Experiment] = &[
    Experiment {
        name: "lrbhps-fig1",
        title: "huge pages of a heap that grows",
        question: "Does memory that grows behind its mapping's end get huge pages in time?",
        source: Some("LRBHPS, Figure 1"),
        differs: Some(
            "An array that realloc grows stands for canneal, whose package is not to be had; the figure's curve has no numbers",
        ),
        elsewhere: ELSEWHERE,
        full_bytes: 5 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("grow", program("grow", scale), Unfragmented)],
                VARIANTS,
                &["peak_huge_bytes", "elapsed_ns"],
            ),
            published: Vec::new(),
            size: Some(format!("2 GB three times, {scale:.2} of that here")),
        },
    },
    Experiment {
        name: "lrbhps-table1",
        title: "2 GB allocated and written",
        question: "What does it cost to zero memory page by page and in bulk?",
        source: Some("LRBHPS, Table 1"),
        differs: Some(
            "The paper zeroes a huge page by other instructions; a stock kernel has one way, so page sizes are compared. The paper's \
             figure is system time, of 5.25 s in all; ours is all that the first touch takes",
        ),
        elsewhere: ELSEWHERE,
        full_bytes: 3 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("touch", program("touch", scale * 0.5), Unfragmented)],
                VARIANTS,
                &["first_touch_ns"],
            ),
            published: published(
                "Table 1",
                Some("touch"),
                "Linux 6.1, zeroing by 4 KB",
                Some("thp-always-defrag"),
                &[("first_touch_ns", 0.2184e9)],
            ),
            size: Some(format!("the paper's 2 GB, {scale:.2} of that here")),
        },
    },
    Experiment {
        name: "lrbhps-table2",
        title: "Redis, filled from empty",
        question: "What do huge pages at faults do to the latency of requests, with and without fragmentation?",
        source: Some("LRBHPS, Table 2"),
        differs: Some("One client thread with a pipeline on the second processor; the paper had 8 threads on 12"),
        elsewhere: ELSEWHERE,
        full_bytes: 7 * GIB,
        setup: |scale| Setup {
            plan: plan(
                both("redis-cold", scale),
                VARIANTS,
                &["ops_per_s", "request_mean_ns", "request_p90_ns", "request_p99_ns"],
            ),
            published: [
                redis(
                    "Table 2",
                    "redis-cold-frag-0",
                    "Linux 6.1, aggressive",
                    Some("thp-always-defrag"),
                    [295_053.57, 4.34, 4.65, 6.13],
                ),
                redis(
                    "Table 2",
                    "redis-cold-frag-0",
                    "LRBHPS t=64",
                    None,
                    [296_661.43, 4.36, 4.83, 6.36],
                ),
                redis(
                    "Table 2",
                    "redis-cold-frag-100",
                    "Linux 6.1, aggressive",
                    Some("thp-always-defrag"),
                    [261_756.22, 4.89, 6.60, 9.04],
                ),
                redis(
                    "Table 2",
                    "redis-cold-frag-100",
                    "LRBHPS t=64",
                    None,
                    [296_128.89, 4.37, 5.01, 6.66],
                ),
            ]
            .concat(),
            size: Some(format!("paper: 1 million sets of 4 KB; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "lrbhps-table3",
        title: "Redis, get and set on existing keys",
        question: "How much of the difference remains once the store is filled?",
        source: Some("LRBHPS, Table 3"),
        differs: Some("One client thread with a pipeline on the second processor; the paper had 8 threads on 12"),
        elsewhere: ELSEWHERE,
        full_bytes: 7 * GIB,
        setup: |scale| Setup {
            plan: plan(
                both("redis-warm", scale),
                VARIANTS,
                &["ops_per_s", "request_mean_ns", "request_p90_ns", "request_p99_ns"],
            ),
            published: [
                redis(
                    "Table 3",
                    "redis-warm-frag-0",
                    "Linux 6.1, aggressive",
                    Some("thp-always-defrag"),
                    [342_003.06, 3.74, 5.19, 5.82],
                ),
                redis(
                    "Table 3",
                    "redis-warm-frag-0",
                    "LRBHPS t=64",
                    None,
                    [342_430.49, 3.74, 5.20, 5.80],
                ),
                redis(
                    "Table 3",
                    "redis-warm-frag-100",
                    "Linux 6.1, aggressive",
                    Some("thp-always-defrag"),
                    [323_029.75, 3.96, 5.32, 6.10],
                ),
                redis(
                    "Table 3",
                    "redis-warm-frag-100",
                    "LRBHPS t=64",
                    None,
                    [338_055.89, 3.78, 5.11, 5.74],
                ),
            ]
            .concat(),
            size: Some(format!("paper: 1 million objects of 4 KB; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "lrbhps-table4",
        title: "memory of Redis: deletions and values of many sizes",
        question: "How much memory do huge pages cost a store?",
        source: Some("LRBHPS, Table 4"),
        differs: Some("The same workloads, scaled; the values of Range-S are drawn uniformly, and fewer of them"),
        elsewhere: ELSEWHERE,
        full_bytes: 15 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![
                    case("redis-del-50", program("redis-del-50", scale), Unfragmented),
                    case("redis-del-70", program("redis-del-70", scale), Unfragmented),
                    case("redis-range-xl", program("redis-range-xl", scale), Unfragmented),
                    // Drawn uniformly as here, 5 million values would take 42 GB; the paper's took 9.4.
                    case("redis-range-s", program("redis-range-s", scale * RANGE_S), Unfragmented),
                ],
                &["base", "thp-always-defrag", "thp-always-defrag+trim", "auto"],
                &["taken_bytes", "rss_bytes", "huge_bytes", "waste_bytes", "elapsed_ns"],
            ),
            published: [
                memory("redis-del-50", [10.75, 14.22, 13.98, 13.04]),
                memory("redis-del-70", [7.54, 14.19, 13.85, 10.21]),
                memory("redis-range-xl", [11.19, 12.12, 12.01, 12.01]),
                memory("redis-range-s", [9.42, 9.70, 9.56, 9.52]),
            ]
            .concat(),
            size: Some(format!("paper: up to 14 GB; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "lrbhps-table5",
        title: "speed of programs, fragmented and not",
        question: "Which programs gain from huge pages, and how much of that remains on fragmented memory?",
        source: Some("LRBHPS, Table 5"),
        differs: Some(
            "GUPS with an eighth of the updates; page rank on a smaller graph and a computation of ours stand for the others",
        ),
        elsewhere: ELSEWHERE,
        full_bytes: 10 * GIB,
        setup: |scale| Setup {
            plan: plan(
                [("gups-work", 1.0), ("graph", 0.25), ("compute", 1.0)]
                    .into_iter()
                    .flat_map(|(name, part)| both(name, scale * part))
                    .collect(),
                VARIANTS,
                &["elapsed_ns", "ops_per_s", "first_touch_ns", "huge_bytes"],
            ),
            published: Vec::new(),
            size: Some(format!("paper: GUPS on 8 GB; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "lrbhps-table6",
        title: "compaction while a graph program runs on fragmented memory",
        question: "How many pages does the kernel scan and move for huge pages at faults?",
        source: Some("LRBHPS, Table 6"),
        differs: Some("Page rank on a generated graph in memory stands for GraphChi; the counters are the whole machine's"),
        elsewhere: ELSEWHERE,
        full_bytes: 8 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("graph-frag-100", program("graph", scale), fragmented())],
                VARIANTS,
                &[&COMPACTION[..], &["elapsed_ns"]].concat(),
            ),
            published: [
                compaction(
                    "Linux 6.1, aggressive",
                    Some("thp-always-defrag"),
                    [30_731.67, 9_322.67, 2_762_193.33, 566_667.67, 37_320.67, 1_886.67],
                ),
                compaction(
                    "LRBHPS t=256",
                    None,
                    [39_794.67, 0.0, 139_182.33, 874_733.33, 1.33, 2_975.67],
                ),
            ]
            .concat(),
            size: Some(format!("paper: GraphChi on 16 GB; here a graph of {scale:.2} of 1.5 GB")),
        },
    },
];

fn redis(
    place: &str,
    case: &str,
    system: &str,
    variant: Option<&str>,
    [ops, mean, p90, p99]: [f64; 4],
) -> Vec<Published> {
    let values = [
        ("ops_per_s", ops),
        ("request_mean_ns", mean * 1e6),
        ("request_p90_ns", p90 * 1e6),
        ("request_p99_ns", p99 * 1e6),
    ];
    published(place, Some(case), system, variant, &values)
}

fn memory(case: &str, [base, linux, t64, t256]: [f64; 4]) -> Vec<Published> {
    // The paper's G are 10^9 bytes: 1.4 million values of 8 KB take 10 KB each in jemalloc, 14.4 · 10^9 with their entries; it has 14.2.
    let one =
        |system: &str, variant, gb: f64| published("Table 4", Some(case), system, variant, &[("taken_bytes", gb * GB)]);
    [
        one("Linux 6.1, base pages", Some("base"), base),
        one("Linux 6.1, aggressive", Some("thp-always-defrag"), linux),
        one("LRBHPS t=64", None, t64),
        one("LRBHPS t=256", None, t256),
    ]
    .concat()
}

/// Table 6: huge pages allocated and failed, pages scanned to migrate and to find free ones, compactions that failed and succeeded.
const COMPACTION: [&str; 6] = [
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_fail",
    "compact_success",
];

fn compaction(system: &str, variant: Option<&str>, counted: [f64; 6]) -> Vec<Published> {
    let values: Vec<(&str, f64)> = COMPACTION.into_iter().zip(counted).collect();
    published("Table 6", Some("graph-frag-100"), system, variant, &values)
}
