//! MEGA (SYSTOR'19): its tables and figures.

use super::{case, plan, program, published, Experiment, Setup, GB, GIB, INGENS, MEGA};
use crate::contiguity::FragKind;
use crate::prepare::condition::Condition::{Fragmented, Unfragmented};
use mega_core::units::Share;

const SYSTEMS: &[&str] = &["base", "thp-always", INGENS, MEGA, "auto"];

/// What frees blocks: the kernel alone, or the planners of Ingens, MEGA and demand, beside the same policy. Nothing requests huge pages
/// here, so the demand planner gets a free-block target: as many as possible.
const COMPACTORS: &[&str] = &[
    "base",
    "mega:compact=off",
    "mega:compact=ingens",
    "mega:compact=mega",
    "mega:compact=demand/floor=1T/budget=1G",
];

pub(super) const LIST: &[Experiment] = &[
    Experiment {
        name: "mega-table1",
        title: "time to fill Redis with 2 million sets of 4 KB",
        question: "How much faster is a store filled on huge pages?",
        source: Some("MEGA (SYSTOR'19), Table 1"),
        differs: Some("Run time only: this needs no hardware counters of TLB misses, which virtual machines often lack"),
        elsewhere: None,
        full_bytes: 12 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("redis-set", program("redis-set", scale), Unfragmented)],
                &["base", "thp-always", MEGA, "auto"],
                &["elapsed_ns", "rss_bytes", "huge_bytes"],
            ),
            published: [
                published("Table 1", None, "Linux 4.16, base pages", Some("base"), &[("elapsed_ns", 11.72e9)]),
                published("Table 1", None, "Linux 4.16, THP", Some("thp-always"), &[("elapsed_ns", 7.06e9)]),
            ]
            .concat(),
            size: Some(sets(scale)),
        },
    },
    Experiment {
        name: "mega-table2",
        title: "page faults while Redis is filled: how many, how long",
        question: "What do huge pages do to the latency of page faults?",
        source: Some("MEGA (SYSTOR'19), Table 2"),
        differs: Some("Faults that make anonymous memory resident, by tracepoints; the paper traced every entry of the fault handler"),
        elsewhere: None,
        full_bytes: 12 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("redis-set", program("redis-set", scale), Unfragmented)],
                &["base", "thp-always"],
                &["faults", "fault_mean_ns", "fault_p90_ns", "fault_p99_ns", "fault_p999_ns"],
            ),
            published: [
                published(
                    "Table 2",
                    None,
                    "Linux 4.16, base pages",
                    Some("base"),
                    &[
                        ("faults", 2_731_657.0),
                        ("fault_mean_ns", 888.0),
                        ("fault_p90_ns", 1501.0),
                        ("fault_p99_ns", 2805.0),
                        ("fault_p999_ns", 4201.0),
                    ],
                ),
                published(
                    "Table 2",
                    None,
                    "Linux 4.16, THP",
                    Some("thp-always"),
                    &[
                        ("faults", 291_098.0),
                        ("fault_mean_ns", 2851.0),
                        ("fault_p90_ns", 1744.0),
                        ("fault_p99_ns", 118_232.0),
                        ("fault_p999_ns", 123_780.0),
                    ],
                ),
            ]
            .concat(),
            size: Some(sets(scale)),
        },
    },
    Experiment {
        name: "mega-table3",
        title: "page fault latency of Redis under four systems",
        question: "Do page faults stay short when huge pages are made asynchronously?",
        source: Some("MEGA (SYSTOR'19), Table 3"),
        differs: Some("Ingens and MEGA are policies of mega on an unmodified kernel, so their faults are the kernel's own base page faults"),
        elsewhere: None,
        full_bytes: 12 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("redis-set", program("redis-set", scale), Unfragmented)],
                SYSTEMS,
                &["fault_mean_ns", "fault_p90_ns", "fault_p99_ns", "fault_p999_ns", "elapsed_ns", "rss_bytes", "huge_bytes"],
            ),
            published: [
                faults("Linux 4.16, base pages", "base", [900.0, 1500.0, 2800.0, 4200.0]),
                faults("Linux 4.16, THP", "thp-always", [2900.0, 1800.0, 118_200.0, 123_800.0]),
                faults("Ingens", INGENS, [1600.0, 1700.0, 4500.0, 400_800.0]),
                faults("MEGA", MEGA, [2500.0, 3100.0, 6100.0, 15_100.0]),
            ]
            .concat(),
            size: Some(sets(scale)),
        },
    },
    Experiment {
        name: "mega-bloat",
        title: "memory of Redis after most of a hash was removed",
        question: "How much freed memory do huge pages retain?",
        source: Some("MEGA (SYSTOR'19), section 2.4"),
        differs: Some("A current Redis with jemalloc, whose purging unmaps parts of huge pages: what these keep is no resident memory"),
        elsewhere: None,
        full_bytes: 13 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("redis-hset", program("redis-hset", scale), Unfragmented)],
                &["base", "thp-always", INGENS, MEGA, "thp-always+trim", "auto"],
                &["taken_bytes", "rss_bytes", "huge_bytes", "waste_bytes", "elapsed_ns"],
            ),
            published: [
                published("section 2.4", None, "Linux 4.16, base pages", Some("base"), &[("taken_bytes", 7.6 * GB)]),
                published("section 2.4", None, "Linux 4.16, THP", Some("thp-always"), &[("taken_bytes", 11.1 * GB)]),
            ]
            .concat(),
            size: Some(format!("paper: 2 million hset of 4 KB, 6 GB removed; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "mega-table4",
        title: "two programs that use a sixth of what they allocated",
        question: "Which systems promote memory that is not used?",
        source: Some("MEGA (SYSTOR'19), Table 4"),
        differs: Some("Unfragmented memory, so Ingens gets every huge page that it asks for; the paper's was extremely fragmented"),
        elsewhere: None,
        full_bytes: 13 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("chunks", program("chunks", scale), Unfragmented)],
                SYSTEMS,
                &["huge_bytes", "free_blocks", "rss_bytes", "ops_per_s"],
            ),
            published: [
                published(
                    "Table 4",
                    None,
                    "Ingens",
                    Some(INGENS),
                    &[("huge_bytes", 2447.0 * 2_097_152.0), ("free_blocks", 50.0)],
                ),
                published(
                    "Table 4",
                    None,
                    "MEGA",
                    Some(MEGA),
                    &[("huge_bytes", 1024.0 * 2_097_152.0), ("free_blocks", 282.0)],
                ),
            ]
            .concat(),
            size: Some(format!("paper: two programs of 6 GB each; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "mega-table5",
        title: "allocate 8 GB, iterate, free, 50 times",
        question: "What does a policy cost short-lived memory?",
        source: Some("MEGA (SYSTOR'19), Table 5"),
        differs: Some("Both policies here leave short-lived memory alone, since a scan comes only every five seconds"),
        elsewhere: None,
        full_bytes: 9 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("churn", program("churn", scale), Unfragmented)],
                SYSTEMS,
                &["elapsed_ns", "promoted", "stall_ns"],
            ),
            published: [
                published("Table 5", None, "Ingens", Some(INGENS), &[("elapsed_ns", 47.6e9)]),
                published("Table 5", None, "MEGA", Some(MEGA), &[("elapsed_ns", 30.0e9)]),
            ]
            .concat(),
            size: Some(format!("paper: 8 GB, 50 times; here {scale:.2} of both")),
        },
    },
    Experiment {
        name: "mega-table6",
        title: "6 GB visited in strides: MEGA's bad case",
        question: "What is lost where utilization never builds up?",
        source: Some("MEGA (SYSTOR'19), Table 6"),
        differs: Some("An accessed bit is per base page, and a stride of 32 KB touches one page in eight, as in the paper"),
        elsewhere: None,
        full_bytes: 7 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("stride", program("stride", scale), Unfragmented)],
                SYSTEMS,
                &["elapsed_ns", "huge_bytes"],
            ),
            published: [
                published("Table 6", None, "Ingens", Some(INGENS), &[("elapsed_ns", 158.8e9)]),
                published("Table 6", None, "MEGA", Some(MEGA), &[("elapsed_ns", 324.1e9)]),
            ]
            .concat(),
            size: Some(format!("paper: 6 GB, 10 times; here {scale:.2} of the memory")),
        },
    },
    Experiment {
        name: "mega-fig1",
        title: "free 2 MB blocks after allocating and freeing objects of 8 KB to 128 MB",
        question: "How do allocation and freeing fragment memory?",
        source: Some("MEGA (SYSTOR'19), Figure 1"),
        differs: Some("Linux 6.x groups unmovable memory and compacts in the background more than 4.16 did"),
        elsewhere: None,
        full_bytes: 12 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("sizes", program("sizes", scale), Unfragmented)],
                &["base", "thp-always", MEGA, "auto"],
                &["free_blocks", "elapsed_ns", "compact_stall", "kcompactd_cpu_ns"],
            ),
            published: Vec::new(),
            size: Some(format!("paper: 10 of 16 GB for each size; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "mega-fig2",
        title: "free 2 MB blocks while half of the memory is freed in 1 MB holes",
        question: "Which planners restore contiguity, and at what cost?",
        source: Some("MEGA (SYSTOR'19), Figure 2"),
        differs: Some("A stock kernel selects the blocks to evacuate itself: the planners request as much as in the papers"),
        elsewhere: Some("chosen blocks: with mega.ko, as variant mega:compact=mega:compact-how=chosen; the simulator"),
        full_bytes: 14 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("holes", program("holes", scale), Unfragmented)],
                COMPACTORS,
                &[
                    "free_blocks_mean",
                    "free_blocks",
                    "made_blocks",
                    "compaction_moved_pages",
                    "ops_per_s",
                    "compaction_cpu_ns",
                    "kcompactd_cpu_ns",
                    "compact_migrate_scanned",
                    "compact_free_scanned",
                    "pgmigrate_success",
                    "pgmigrate_fail",
                ],
            ),
            published: Vec::new(),
            size: Some(format!("paper: 12 of 16 GB for three minutes; here {scale:.2} of the memory")),
        },
    },
    Experiment {
        name: "mega-table7",
        title: "work of compaction while memory is freed in 1 MB holes",
        question: "How many pages does compaction scan and migrate?",
        source: Some("MEGA (SYSTOR'19), Table 7"),
        differs: Some("All compaction of the run, including the kernel's own, and the kernel selects the blocks; the paper counts per pass"),
        elsewhere: Some("chosen blocks: with mega.ko, as variant mega:compact=mega:compact-how=chosen; the simulator"),
        full_bytes: 14 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("holes", program("holes", scale), Unfragmented)],
                COMPACTORS,
                &[
                    "compact_migrate_scanned",
                    "compact_free_scanned",
                    "compact_isolated",
                    "pgmigrate_success",
                    "pgmigrate_fail",
                    "free_blocks",
                ],
            ),
            published: Vec::new(),
            size: Some(format!(
                "paper: 12 of 16 GB for three minutes; here {scale:.2} of the memory"
            )),
        },
    },
    Experiment {
        name: "mega-tables-9-10",
        title: "Redis with values of 2 MB on fragmented memory",
        question: "How fast is a store whose every value needs contiguous memory that is lacking?",
        source: Some("MEGA (SYSTOR'19), Tables 9 and 10"),
        differs: Some(
            "Memory is fragmented by 1 MB holes as in the paper until 90 % of what is free is unusable, not 200 GB of it",
        ),
        elsewhere: Some("compaction of chosen blocks: the simulator, and the kernel tier"),
        full_bytes: 140 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case(
                    "redis-2m",
                    program("redis-2m", scale),
                    Fragmented(Share::percent(90), FragKind::Holes),
                )],
                SYSTEMS,
                &[
                    "ops_per_s",
                    "request_p99_ns",
                    "request_p999_ns",
                    "elapsed_ns",
                    "free_blocks",
                ],
            ),
            published: [
                big("Ingens", INGENS, [501.54, 278e6, 421e6, 79.75e9, 158.0]),
                big("MEGA", MEGA, [638.05, 104e6, 260e6, 62.69e9, 2306.0]),
            ]
            .concat(),
            size: Some(format!("paper: 40,000 sets of 2 MB on 256 GB; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "mega-after",
        title: "free 2 MB blocks five minutes after such a Redis was filled",
        question: "Which planners go on to restore contiguity once nobody asks for it?",
        source: Some("MEGA (SYSTOR'19), section 4.5"),
        differs: Some(
            "The paper has no numbers: Ingens' blocks stay as they are, MEGA's increase, and with more sets Ingens' machine kills \
             the store; how many sets that were is not said, so nobody is killed here",
        ),
        elsewhere: Some("compaction of chosen blocks: the simulator, and the kernel tier"),
        full_bytes: 140 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case(
                    "redis-2m-after",
                    program("redis-2m-after", scale),
                    Fragmented(Share::percent(90), FragKind::Holes),
                )],
                SYSTEMS,
                &["free_blocks", "compaction_moved_pages", "rss_bytes"],
            ),
            published: Vec::new(),
            size: Some(format!("paper: 40,000 sets of 2 MB on 256 GB; here {scale:.2} of that")),
        },
    },
    Experiment {
        name: "mega-fig3",
        title: "programs that huge pages do not help",
        question: "What does managing cost programs that do not benefit?",
        source: Some("MEGA (SYSTOR'19), Figure 3"),
        differs: Some("PARSEC is not packaged; gcc, zstd, Python, SQLite and a computation in the caches stand for it"),
        elsewhere: None,
        full_bytes: 4 * GIB,
        setup: |scale| Setup {
            plan: plan(
                ["gcc", "zstd", "python", "sqlite", "compute"]
                    .map(|name| case(name, program(name, scale), Unfragmented))
                    .into(),
                &["thp-always", "base", INGENS, MEGA, "auto"],
                &["elapsed_ns", "rss_bytes", "manager_cpu_ns"],
            ),
            published: Vec::new(),
            size: None,
        },
    },
    Experiment {
        name: "mega-table8",
        title: "a database under a read-only load",
        question: "Does a real database gain throughput without longer tails?",
        source: Some("MEGA (SYSTOR'19), Table 8"),
        differs: Some("MariaDB and a table scaled to this machine; sysbench shares the second processor with the manager"),
        elsewhere: None,
        full_bytes: 12 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("mariadb", program("mariadb", scale), Unfragmented)],
                SYSTEMS,
                &["ops_per_s", "request_p95_ns", "rss_bytes", "huge_bytes"],
            ),
            published: [
                database("Linux 4.16, base pages", "base", 4895.21),
                database("Linux 4.16, THP", "thp-always", 6056.84),
                database("Ingens", INGENS, 4661.36),
                database("MEGA", MEGA, 5556.29),
            ]
            .concat(),
            size: Some("paper: 30 million rows, 8 threads, 1 minute; here scaled".to_string()),
        },
    },
];

fn sets(scale: f64) -> String {
    format!("paper: 2 million sets of 4 KB; here {:.2} million", 2.0 * scale)
}

fn faults(system: &str, variant: &str, [mean, p90, p99, p999]: [f64; 4]) -> Vec<crate::result::Published> {
    let values = [
        ("fault_mean_ns", mean),
        ("fault_p90_ns", p90),
        ("fault_p99_ns", p99),
        ("fault_p999_ns", p999),
    ];
    published("Table 3", None, system, Some(variant), &values)
}

fn big(system: &str, variant: &str, [rate, p99, p999, elapsed, blocks]: [f64; 5]) -> Vec<crate::result::Published> {
    let values = [
        ("ops_per_s", rate),
        ("request_p99_ns", p99),
        ("request_p999_ns", p999),
        ("elapsed_ns", elapsed),
        ("free_blocks", blocks),
    ];
    published("Tables 9 and 10", None, system, Some(variant), &values)
}

fn database(system: &str, variant: &str, transactions: f64) -> Vec<crate::result::Published> {
    published("Table 8", None, system, Some(variant), &[("ops_per_s", transactions)])
}
