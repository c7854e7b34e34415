//! The allocation-latency study ("Hugepage allocation latencies"): how long it takes to get a huge page of fragmented memory.

use mega_core::units::Share;

use super::{case, published, Experiment, Setup, GIB};
use crate::condition::Condition::{Fragmented, Unfragmented};
use crate::program::allocation::{Allocation, Before};
use crate::run::{CasePlan, Plan};

const PLACE: &str = "tables of the post";
const US: f64 = 1e3;

fn taken(name: &str, before: Before, fragmented: bool) -> CasePlan {
    let condition = match fragmented {
        true => Fragmented(Share::percent(90)),
        false => Unfragmented,
    };
    case(name, Box::new(Allocation { before, count: None }), condition)
}

pub(super) const LIST: &[Experiment] = &[Experiment {
    name: "allocation-latency",
    title: "latency of huge page allocation: on demand, and after compaction",
    question: "How long does one wait for a huge page when memory is fragmented, and who can spare one that?",
    source: Some("Hugepage allocation latencies (the allocation-latency study), both tables"),
    differs: Some("Pages are taken through nr_hugepages, one write each, not inside the kernel; all free memory instead of 24 of 32 GB"),
    elsewhere: Some("khugehog in the kernel: the kernel tier"),
    full_bytes: 16 * GIB,
    setup: |_| Setup {
        plan: Plan {
            cases: vec![
                taken("unfragmented", Before::Nothing, false),
                taken("on-demand", Before::Nothing, true),
                taken("manual", Before::Manual, true),
                taken("proactive", Before::Proactive, true),
                taken("stock", Before::Stock, true),
            ],
            warm: false,
            ..super::plan(
                Vec::new(),
                &["thp-madvise"],
                &[
                    "alloc_mean_ns",
                    "alloc_p50_ns",
                    "alloc_p95_ns",
                    "alloc_max_ns",
                    "obtained",
                    "obtained_share",
                    "unusable_share",
                ],
            )
        },
        published: [
            published(
                PLACE,
                Some("on-demand"),
                "Linux, on demand",
                Some("thp-madvise"),
                &[
                    ("alloc_mean_ns", 1090.0 * US),
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
        .concat(),
        size: Some("paper: 28 of 32 GB fragmented; here 7/8 of what is available".to_string()),
    },
}];
