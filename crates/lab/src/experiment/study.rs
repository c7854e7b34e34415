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

/// What the post found.
fn tables() -> Vec<Published> {
    [
        published(
            PLACE,
            Some("on-demand"),
            "Linux, on demand",
            Some("thp-madvise"),
            &[
                ("alloc_mean_ns", 1090.61 * US),
                ("alloc_p50_ns", 1189.0 * US),
                ("alloc_p95_ns", 1484.0 * US),
                ("alloc_max_ns", 5701.0 * US),
                ("obtained", 12_032.0),
            ],
        ),
        published(
            PLACE,
            Some("manual"),
            "Linux, after compact_memory",
            Some("thp-madvise"),
            &[
                ("alloc_mean_ns", 2.7 * US),
                ("alloc_p50_ns", 2.0 * US),
                ("alloc_p95_ns", 5.0 * US),
                ("alloc_max_ns", 69.0 * US),
                ("obtained", 11_489.0),
            ],
        ),
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
