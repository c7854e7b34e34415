//! Ingens (OSDI'16), from its poster: bloat of Redis and latency of faults.

use super::{case, plan, program, published, Experiment, Setup, GB, GIB};
use crate::prepare::condition::Condition::Unfragmented;

pub(super) const LIST: &[Experiment] = &[
    Experiment {
        name: "ingens-bloat",
        title: "memory and read latency of Redis after deletions",
        question: "Does promotion by utilization keep the footprint of base pages?",
        source: Some("Ingens (OSDI'16), poster: Redis memory bloating"),
        differs: Some("The poster does not give the workload; here 70 % of objects of 8 KB are deleted at random"),
        elsewhere: None,
        full_bytes: 14 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("redis-del-70", program("redis-del-70", scale), Unfragmented)],
                &["base", "thp-always", "ingens", "mega", "thp-always+trim"],
                &["rss_bytes", "huge_bytes", "waste_bytes"],
            ),
            published: [
                published(
                    "poster",
                    None,
                    "Linux, base pages",
                    Some("base"),
                    &[("rss_bytes", 12.2 * GB)],
                ),
                published(
                    "poster",
                    None,
                    "Linux, THP",
                    Some("thp-always"),
                    &[("rss_bytes", 20.7 * GB)],
                ),
                published("poster", None, "Ingens", Some("ingens"), &[("rss_bytes", 12.3 * GB)]),
            ]
            .concat(),
            size: Some(format!("1.4 million objects of 8 KB, {scale:.2} of that here")),
        },
    },
    Experiment {
        name: "ingens-latency",
        title: "latency of a fault that maps 4 KB and of one that maps 2 MB",
        question: "How long does one page fault stall a program?",
        source: Some("Ingens (OSDI'16), poster: high huge page fault latency"),
        differs: Some("Timed by the program itself, touch by touch, on unfragmented, host-backed memory"),
        elsewhere: None,
        full_bytes: 5 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("touch", program("touch", scale), Unfragmented)],
                &["base", "thp-always", "mthp-64k"],
                &[
                    "first_touch_ns",
                    "touch_p50_ns",
                    "touch_p99_ns",
                    "touch_p999_ns",
                    "touch_max_ns",
                ],
            ),
            published: [
                published(
                    "poster",
                    None,
                    "Linux 4.3, 4 KB page",
                    Some("base"),
                    &[("touch_p50_ns", 3600.0)],
                ),
                published(
                    "poster",
                    None,
                    "Linux 4.3, 2 MB page",
                    Some("thp-always"),
                    &[("touch_max_ns", 378_000.0)],
                ),
            ]
            .concat(),
            size: None,
        },
    },
];
