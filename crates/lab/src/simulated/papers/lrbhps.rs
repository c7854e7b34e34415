//! LRBHPS (Linux 6.1.38): Tables 2 to 6, on the Ryzen with 16 GB, with unfragmented and with fragmented memory.
//!
//! Memory is fragmented as in the paper: by a program, under the same system, that unmaps part of each of its huge pages. Under Linux these
//! huge pages stay whole until memory is short; under LRBHPS they become reservations, which are migrated first. That is most of the
//! difference.

use std::time::Duration;

use mega_core::units::Bytes;
use mega_sim::scenario::{Placed, Scenario};
use mega_sim::workload::redis::RedisOptions;
use mega_sim::workload::Spec;

use super::machines::{base, count, fragmenter, on_ryzen, only, published, published_live, redis, runs, same};
use super::stand_ins::{graphchi, stand_in, GRAPHCHI};
use crate::measure::speedup;
use crate::result::Published;
use crate::simulated::experiment::{Case, Experiment, Miss, Setup, SystemOf};

/// Huge pages in every allocation of anonymous memory, with direct compaction (section 4.3).
const LINUX: SystemOf = same("Linux 6.1, aggressive", "thp-always-defrag");
const BASE: SystemOf = base("Linux 6.1, base pages");
const T64: SystemOf = only("LRBHPS t=64", "lrbhps:t=64");
const T256: SystemOf = only("LRBHPS t=256", "lrbhps:t=256");
/// Systems without published figures on this machine, for comparison.
const OTHERS: [SystemOf; 4] = [
    only("FreeBSD", "freebsd"),
    only("Quicksilver", "quicksilver"),
    only("HawkEye", "hawkeye"),
    same("MEGA", "mega"),
];
const PAPER: [SystemOf; 4] = [LINUX, BASE, T64, T256];

/// Requests that the clients have in flight: 4.34 ms at 295,053 a second (Table 2) and 3.74 ms at 342,003 (Table 3) are both 1,280 by
/// Little's law: 8 threads, a pipeline of 16, and so 10 connections of each thread.
const IN_FLIGHT: u32 = 1280;

const FRAG_0: &str = "nothing else in memory";
const FRAG_100: &str = "fragmented by a program that unmaps three quarters of each of its huge pages";

/// A program alone, and beside the fragmenter, ten seconds after that has done its work.
fn both(name: &str, program: &str, scale: f64, run: &Spec) -> Vec<Case> {
    vec![
        unfragmented(name, program, scale, run),
        fragmented(name, program, scale, run),
    ]
}

fn unfragmented(name: &str, program: &str, scale: f64, run: &Spec) -> Case {
    let scenario = on_ryzen(scale, vec![runs(run.clone())]);
    Case::new(&format!("{name}-frag-0"), program, FRAG_0, scenario)
}

fn fragmented(name: &str, program: &str, scale: f64, run: &Spec) -> Case {
    let memory: Bytes = on_ryzen(scale, Vec::new()).machine.memory;
    let after = Placed {
        after: Some(1),
        starts: Duration::from_secs(10),
        ..runs(run.clone())
    };
    let scenario = on_ryzen(scale, vec![after, fragmenter(memory)]);
    Case::new(&format!("{name}-frag-100"), program, FRAG_100, scenario).beside(1)
}

fn with_others(systems: &[SystemOf]) -> Vec<SystemOf> {
    systems.iter().chain(&OTHERS).copied().collect()
}

const REQUESTS: &[&str] = &[
    "ops_per_s",
    "request_mean_ns",
    "request_p90_ns",
    "request_p99_ns",
    "huge_bytes",
];

fn row(place: &str, case: &str, system: &SystemOf, [ops, mean, p90, p99]: [f64; 4]) -> Vec<Published> {
    let values = [
        ("ops_per_s", ops),
        ("request_mean_ns", mean * 1e6),
        ("request_p90_ns", p90 * 1e6),
        ("request_p99_ns", p99 * 1e6),
    ];
    published(place, Some(case), system, &values)
}

fn table2(scale: f64) -> Setup {
    let options = redis("lrbhps-cold", scale, IN_FLIGHT);
    let program = format!("Redis, {} sets of 4 KB, {IN_FLIGHT} requests in flight", options.keys);
    Setup {
        cases: both("redis-cold", &program, scale, &Spec::Redis(options)),
        systems: with_others(&PAPER),
        main: REQUESTS.to_vec(),
        published: [
            published_live("lrbhps-table2", &PAPER, &[]),
            row("Table 2", "redis-cold-frag-0", &T256, [284_650.40, 4.40, 5.04, 6.71]),
            row("Table 2", "redis-cold-frag-100", &T256, [291_104.06, 4.40, 5.31, 6.90]),
        ]
        .concat(),
        speedup_of: None,
        size: format!("paper: 1 million sets of 4 KB on 16 GB; here {scale} of that"),
    }
}

fn table3(scale: f64) -> Setup {
    let options = redis("lrbhps-warm", scale, IN_FLIGHT);
    let program = format!(
        "Redis with {} values of 4 KB, as many gets and sets 5:5, {IN_FLIGHT} requests in flight",
        options.keys
    );
    Setup {
        cases: both("redis-warm", &program, scale, &Spec::Redis(options)),
        systems: with_others(&PAPER),
        main: REQUESTS.to_vec(),
        published: [
            published_live("lrbhps-table3", &PAPER, &[]),
            row("Table 3", "redis-warm-frag-0", &T256, [340_930.04, 3.75, 5.22, 5.81]),
            row("Table 3", "redis-warm-frag-100", &T256, [339_150.21, 3.77, 5.11, 5.73]),
        ]
        .concat(),
        speedup_of: None,
        size: format!("paper: 1 million objects of 4 KB on 16 GB; here {scale} of that"),
    }
}

/// khugepaged scans 8 regions in 10 s: Redis' 6,900 in 2.4 hours.
const KHUGEPAGED: Duration = Duration::from_secs(3 * 3600);
/// Part of Range-S that gives the paper's amount of memory, as in the live experiment.
const RANGE_S: f64 = 0.22;

fn table4(scale: f64) -> Setup {
    let case = |name: &str, program: &str, options: RedisOptions| {
        let options = RedisOptions {
            rest_ns: u64::try_from(KHUGEPAGED.as_nanos()).unwrap_or(u64::MAX),
            ..options
        };
        let scenario = Scenario {
            every: Duration::from_secs(60),
            interval: Duration::from_secs(60),
            ..on_ryzen(scale, vec![runs(Spec::Redis(options))])
        };
        Case::new(name, program, FRAG_0, scenario)
    };
    let range_s = RedisOptions {
        keys: count(5_000_000, RANGE_S * scale),
        least_bytes: 256,
        most_bytes: 16 << 10,
        ..RedisOptions::default()
    };
    Setup {
        cases: vec![
            case(
                "redis-del-50",
                "Redis, 1.4 million values of 8 KB, half of them deleted at random",
                redis("lrbhps-del-50", scale, 1),
            ),
            case(
                "redis-del-70",
                "the same, 70 % deleted",
                redis("lrbhps-del-70", scale, 1),
            ),
            case(
                "redis-range-xl",
                "Redis, 20,000 values of 256 B to 1 MB",
                redis("lrbhps-range-xl", scale, 1),
            ),
            case("redis-range-s", "Redis, 1.1 million values of 256 B to 16 KB", range_s),
        ],
        systems: with_others(&[BASE, LINUX, T64, T256]),
        main: vec!["rss_bytes", "taken_bytes", "huge_bytes", "waste_bytes"],
        published: published_live("lrbhps-table4", &PAPER, &[("taken_bytes", "rss_bytes")]),
        speedup_of: None,
        size: format!("paper: up to 14 of 16 GB; here {scale} of that"),
    }
}

/// Table 5: program, without fragmentation base pages, t=64, t=256, and the same with it. Linux has 1.
type Speedups = (&'static str, [f64; 3], [f64; 3]);

const TABLE_5: &[Speedups] = &[
    ("gups", [0.28, 0.99, 0.98], [0.85, 2.59, 2.52]),
    ("freqmine", [1.00, 1.00, 1.00], [0.99, 1.02, 1.02]),
    ("canneal", [0.95, 1.08, 1.07], [0.97, 1.08, 1.08]),
    ("ann", [1.02, 1.00, 1.00], [1.01, 1.02, 1.01]),
    ("graphchi", [0.86, 0.99, 0.98], [1.07, 1.31, 1.29]),
    ("xsbench", [0.88, 1.00, 1.00], [0.94, 1.03, 1.03]),
    ("blocksvm", [0.82, 1.00, 0.99], [0.86, 1.03, 1.01]),
    ("bodytrack", [1.00, 1.00, 1.00], [0.93, 1.00, 1.00]),
    ("facesim", [1.00, 1.00, 1.00], [0.99, 1.00, 1.00]),
    ("ferret", [1.00, 1.00, 1.00], [0.99, 1.00, 1.00]),
    ("swaptions", [1.00, 1.00, 1.00], [1.00, 1.00, 1.00]),
];

fn table5(scale: f64) -> Setup {
    let mut cases = Vec::new();
    let mut all = Vec::new();
    for (name, frag_0, frag_100) in TABLE_5 {
        let (run, program) = stand_in(name, scale);
        let of = both(name, program, scale, &run);
        for (case, [base, t64, t256]) in of.iter().zip([frag_0, frag_100]) {
            for (system, value) in [(&LINUX, 1.0), (&BASE, *base), (&T64, *t64), (&T256, *t256)] {
                all.extend(published(
                    "Table 5",
                    Some(&case.name),
                    system,
                    &[(speedup::NAME, value)],
                ));
            }
        }
        cases.extend(of);
    }
    Setup {
        cases,
        systems: PAPER.to_vec(),
        main: vec![speedup::NAME, "elapsed_ns", "huge_bytes"],
        published: all,
        speedup_of: Some(("elapsed_ns", LINUX.text)),
        size: format!("paper: GUPS on 8 of 16 GB, others as they are; here {scale} of that"),
    }
}

fn table6(scale: f64) -> Setup {
    let case = fragmented("graphchi", GRAPHCHI, scale, &graphchi(scale));
    let counters = |[allocated, mapped, failed, migrate, free, bad, good, sum]: [f64; 8]| {
        vec![
            ("huge_allocated", allocated),
            ("huge_mapped", mapped),
            ("huge_failed", failed),
            ("compact_migrate_scanned", migrate),
            ("compact_free_scanned", free),
            ("compact_fail", bad),
            ("compact_success", good),
            ("compact_scanned", sum),
        ]
    };
    let linux = [
        30_731.67,
        30_731.67,
        9_322.67,
        2_762_193.33,
        566_667.67,
        37_320.67,
        1_886.67,
        3_328_861.00,
    ];
    let lrbhps = [
        39_794.67,
        39_719.67,
        0.00,
        139_182.33,
        874_733.33,
        1.33,
        2_975.67,
        1_013_915.67,
    ];
    Setup {
        published: [
            published("Table 6", Some(&case.name), &LINUX, &counters(linux)),
            published("Table 6", Some(&case.name), &T256, &counters(lrbhps)),
        ]
        .concat(),
        cases: vec![case],
        systems: vec![LINUX, T256, T64],
        main: vec![
            "huge_allocated",
            "huge_mapped",
            "huge_failed",
            "compact_migrate_scanned",
            "compact_free_scanned",
            "compact_fail",
            "compact_success",
            "compact_scanned",
        ],
        speedup_of: None,
        size: format!("paper: GraphChi's page rank of Twitter-2010 on 16 GB; here {scale} of its memory"),
    }
}

const RATES: (&str, &str) = (
    "absolute rates",
    "sockets, system calls and the client are one constant of 2 µs per request",
);
const PART: (&str, &str) = (
    "how much of each huge page the fragmenter unmaps",
    "the paper does not say; three quarters here, so that GUPS with its 8 GB fits beside it, in one piece each",
);

/// Programs with a computation in the caches as stand-in.
const fn in_the_caches(case: &'static str) -> Miss {
    Miss {
        case,
        metric: speedup::NAME,
        a: "",
        b: "",
        why: "its memory accesses are unknown; a computation in the caches stands in",
    }
}

const GONE_THROUGH: &str = "with t = 256 half of the faults that fill a block are small ones. Their weight depends on how often a block is traversed before the next one, which the paper does not say; here once";

pub(super) const LIST: &[Experiment] = &[
    Experiment {
        name: "lrbhps-table2",
        paper: "LRBHPS",
        title: "Redis, filled from empty",
        source: "LRBHPS, Table 2",
        question: "What do huge pages at faults do to the latency of requests, with and without fragmentation?",
        differs: "One server without its clients; requests in flight follow from the paper's rates and latencies",
        cannot_know: &[RATES, PART],
        misses: &[
            Miss {
                case: "",
                metric: "request_*",
                a: T256.paper,
                b: "",
                why: "with t = 256 half of the faults of a region are small ones. Their weight depends on the cost of a request, a constant of 2 µs here; the paper's takes 3.4 µs in total",
            },
            Miss {
                case: "",
                metric: "ops_per_s",
                a: T256.paper,
                b: "",
                why: "with t = 256 half of the faults of a region are small ones. Their weight depends on the cost of a request, a constant of 2 µs here; the paper's takes 3.4 µs in total",
            },
        ],
        words: &[],
        unknown: &[],
        setup: table2,
    },
    Experiment {
        name: "lrbhps-table3",
        paper: "LRBHPS",
        title: "Redis, get and set on existing keys",
        source: "LRBHPS, Table 3",
        question: "How much of the difference remains once the store is filled?",
        differs: "One server without its clients; requests in flight follow from the paper's rates and latencies",
        cannot_know: &[RATES, PART],
        misses: &[],
        words: &[],
        unknown: &[],
        setup: table3,
    },
    Experiment {
        name: "lrbhps-table4",
        paper: "LRBHPS",
        title: "memory of Redis: deletions and values of many sizes",
        source: "LRBHPS, Table 4",
        question: "How much memory do huge pages cost a store?",
        differs: "Three idle hours, so that khugepaged finishes; Range-S has 1.1 million values, since 5 million drawn uniformly take 42 GB",
        cannot_know: &[(
            "how memory was measured, and when",
            "the paper says that khugepaged makes all of Redis' huge pages again, for which it takes hours at its default rate; so resident memory hours after \
             the deletions is taken, and its G as 10^9 bytes, which 1.4 million values in jemalloc's classes of 10 KB confirm",
        )],
        misses: &[
            Miss {
                case: "",
                metric: "rss_bytes",
                a: "",
                b: "",
                why: "systems that differ by 2 to 8 % in the paper: it depends on how much of the deleted memory khugepaged has collapsed again by then. Here it has finished",
            },
        ],
        words: &[],
        unknown: &[],
        setup: table4,
    },
    Experiment {
        name: "lrbhps-table5",
        paper: "LRBHPS",
        title: "speed of programs, fragmented and not",
        source: "LRBHPS, Table 5",
        question: "Which programs gain from huge pages, and how much of that remains on fragmented memory?",
        differs: "GUPS is the paper's; the others have stand-ins by what is known of their memory, and those that stay cached share one computation",
        cannot_know: &[
            PART,
            (
                "how much programs other than GUPS gain",
                "that depends on what they compute between two accesses, which is not published; only the order of the systems is the model's",
            ),
        ],
        misses: &[
            Miss {
                case: "graphchi-frag-100",
                metric: speedup::NAME,
                a: LINUX.paper,
                b: BASE.paper,
                why: "in the paper Linux' huge pages cost more there than they gain: 37,000 compactions fail (Table 6). In the model hardly any does, since nothing else holds the pages to migrate",
            },
            Miss {
                case: "blocksvm-frag-0",
                metric: speedup::NAME,
                a: T256.paper,
                b: "",
                why: GONE_THROUGH,
            },
            Miss {
                case: "blocksvm-frag-100",
                metric: speedup::NAME,
                a: T256.paper,
                b: "",
                why: GONE_THROUGH,
            },
            Miss {
                case: "xsbench-frag-0",
                metric: speedup::NAME,
                a: LINUX.paper,
                b: "",
                why: "half of the stand-in's visits go to a small heap that grows in pieces: reservations cover it past its end, Linux maps base pages there",
            },
            Miss {
                case: "gups-frag-0",
                metric: speedup::NAME,
                a: T256.paper,
                b: "",
                why: "2 % in the paper: small faults while the table is filled, which are less than 1 % of the model's run",
            },
            Miss {
                case: "gups-frag-100",
                metric: speedup::NAME,
                a: T256.paper,
                b: "",
                why: "3 % in the paper: small faults while the table is filled, which are less than 1 % of the model's run",
            },
        ],
        words: &[],
        unknown: &[
            in_the_caches("freqmine-frag-0"),
            in_the_caches("freqmine-frag-100"),
            in_the_caches("ann-frag-0"),
            in_the_caches("ann-frag-100"),
            in_the_caches("bodytrack-frag-0"),
            in_the_caches("bodytrack-frag-100"),
            in_the_caches("facesim-frag-0"),
            in_the_caches("facesim-frag-100"),
            in_the_caches("ferret-frag-0"),
            in_the_caches("ferret-frag-100"),
            in_the_caches("swaptions-frag-0"),
            in_the_caches("swaptions-frag-100"),
        ],
        setup: table5,
    },
    Experiment {
        name: "lrbhps-table6",
        paper: "LRBHPS",
        title: "compaction while GraphChi runs on fragmented memory",
        source: "LRBHPS, Table 6",
        question: "How many pages does the kernel scan to get a huge page?",
        differs: "Short-lived memory stands for GraphChi's shards, with about as many huge pages in total",
        cannot_know: &[PART],
        misses: &[
            Miss {
                case: "",
                metric: "compact_*",
                a: "",
                b: "",
                why: "the fragmenter's memory is all movable here and nothing of the kernel's lies between, so Linux mostly finds what it looks for (17 failures, 37,000 in the paper); \
 LRBHPS moves idle reservations first, and how many pages are left in each is the fragmenter's affair (a quarter here, 128; the paper's 139,000 in 2,976 compactions are 47)",
            },
        ],
        words: &[],
        unknown: &[],
        setup: table6,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_have_options_that_make_sense() {
        for (name, _, _) in TABLE_5 {
            for scale in [0.02, 1.0] {
                let (run, about) = stand_in(name, scale);
                run.build::<mega_sim::workload::CountingMemory>().unwrap();
                assert!(!about.is_empty());
            }
        }
    }
}
