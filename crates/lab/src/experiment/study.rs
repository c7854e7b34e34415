//! The allocation-latency study ("Hugepage allocation latencies"): how long the allocation of a huge page takes on fragmented memory.

use mega_core::units::Share;

use super::{case, published, Experiment, Setup, GIB};
use crate::contiguity::FragKind;
use crate::contiguity::How;
use crate::prepare::condition::Condition::{Fragmented, Unfragmented};
use crate::program::allocation::{Allocation, Before};
use crate::result::Published;
use crate::run::{CasePlan, Plan};

const PLACE: &str = "tables of the post";
const US: f64 = 1e3;

fn taken(name: &str, before: Before, fragmented: bool) -> CasePlan {
    let condition = match fragmented {
        true => Fragmented(Share::percent(90), FragKind::Study),
        false => Unfragmented,
    };
    let (count, how) = (None, How::Hugetlb);
    case(name, Box::new(Allocation { before, count, how }), condition)
}

/// The same inside the kernel.
fn probed(name: &str, before: Before) -> CasePlan {
    let (count, how) = (None, How::Kernel);
    let condition = Fragmented(Share::percent(90), FragKind::Study);
    case(name, Box::new(Allocation { before, count, how }), condition)
}

const MAIN: &[&str] = &[
    "alloc_mean_ns",
    "alloc_p50_ns",
    "alloc_p95_ns",
    "alloc_max_ns",
    "obtained",
    "obtained_share",
    "unusable_share",
];

/// Minimum, maximum, mean and standard deviation of the post, in its microseconds, how many, and its percentiles.
type Column = ([f64; 4], f64, [(&'static str, f64); 11]);

const ON_DEMAND: Column = (
    [2.0, 5701.0, 1090.61, 426.05],
    12_032.0,
    [
        ("alloc_p5_ns", 5.0),
        ("alloc_p10_ns", 5.0),
        ("alloc_p25_ns", 1047.0),
        ("alloc_p30_ns", 1080.0),
        ("alloc_p40_ns", 1131.0),
        ("alloc_p50_ns", 1189.0),
        ("alloc_p60_ns", 1243.0),
        ("alloc_p75_ns", 1346.0),
        ("alloc_p80_ns", 1372.0),
        ("alloc_p90_ns", 1436.0),
        ("alloc_p95_ns", 1484.0),
    ],
);

/// Without one allocation of 12,517 us, which the post leaves out.
const MANUAL: Column = (
    [2.0, 69.0, 2.7, 1.27],
    11_489.0,
    [
        ("alloc_p5_ns", 2.0),
        ("alloc_p10_ns", 2.0),
        ("alloc_p25_ns", 2.0),
        ("alloc_p30_ns", 2.0),
        ("alloc_p40_ns", 2.0),
        ("alloc_p50_ns", 2.0),
        ("alloc_p60_ns", 3.0),
        ("alloc_p75_ns", 3.0),
        ("alloc_p80_ns", 3.0),
        ("alloc_p90_ns", 5.0),
        ("alloc_p95_ns", 5.0),
    ],
);

/// What the post found.
fn tables() -> Vec<Published> {
    let of = |case: &str, system: &str, ([min, max, mean, deviation], obtained, percentiles): Column| {
        let others = [
            ("alloc_min_ns", min),
            ("alloc_max_ns", max),
            ("alloc_mean_ns", mean),
            ("alloc_deviation_ns", deviation),
        ];
        let times = others.iter().chain(&percentiles).map(|(name, us)| (*name, us * US));
        let values: Vec<(&str, f64)> = times.chain([("obtained", obtained)]).collect();
        published(PLACE, Some(case), system, Some("thp-madvise"), &values)
    };
    [
        of("on-demand", "Linux, on demand", ON_DEMAND),
        of("manual", "Linux, after compact_memory", MANUAL),
    ]
    .concat()
}

pub(super) const LIST: &[Experiment] = &[Experiment {
    name: "allocation-latency",
    title: "latency of huge page allocation: on demand, and after compaction",
    question: "How long does a huge page allocation take on fragmented memory, and what avoids the wait?",
    source: Some("Hugepage allocation latencies (the allocation-latency study), both tables"),
    differs: Some("Pages are allocated through nr_hugepages, one write each, not inside the kernel; all free memory instead of 24 of 32 GB"),
    elsewhere: Some("khugehog in the kernel: allocation-latency-kernel"),
    full_bytes: 16 * GIB,
    setup: |_| Setup {
        plan: Plan {
            cases: vec![
                taken("unfragmented", Before::Nothing, false),
                taken("on-demand", Before::Nothing, true),
                taken("manual", Before::Manual, true),
                taken("proactive", Before::Proactive, true),
                taken("stock", Before::FreeBlocks, true),
            ],
            prefault: false,
            ..super::plan(
                Vec::new(),
                &["thp-madvise"],
                MAIN,
            )
        },
        published: tables(),
        size: Some("paper: 28 of 32 GB fragmented; here 7/8 of available memory".to_string()),
    },
}, Experiment {
    name: "allocation-latency-kernel",
    title: "latency of huge page allocation inside the kernel: on demand, and after compaction",
    question: "How long does the allocation take inside the kernel, without the system call?",
    source: Some("Hugepage allocation latencies (the allocation-latency study), both tables"),
    differs: Some("mega.ko allocates down to a margin of free memory (khugehog: until failure); all free memory"),
    elsewhere: None,
    full_bytes: 16 * GIB,
    setup: |_| Setup {
        plan: Plan {
            cases: vec![
                probed("on-demand", Before::Nothing),
                probed("manual", Before::Manual),
                probed("stock", Before::FreeBlocks),
            ],
            prefault: false,
            ..super::plan(Vec::new(), &["thp-madvise"], MAIN)
        },
        published: tables(),
        size: Some("paper: 28 of 32 GB fragmented; here 7/8 of available memory".to_string()),
    },
}];
