//! Ingens (OSDI'16), from its poster: bloat of Redis and latency of faults.

use super::{case, plan, program, published, Experiment, Setup, GB, GIB, INGENS, MEGA};
use crate::prepare::condition::Condition::Unfragmented;
use crate::result::Published;

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
                &["base", "thp-always", INGENS, MEGA, "thp-always+trim", "auto"],
                &["taken_bytes", "rss_bytes", "huge_bytes", "waste_bytes"],
            ),
            published: [
                published(
                    "poster",
                    None,
                    "Linux, base pages",
                    Some("base"),
                    &[("taken_bytes", 12.2 * GB)],
                ),
                published(
                    "poster",
                    None,
                    "Linux, THP",
                    Some("thp-always"),
                    &[("taken_bytes", 20.7 * GB)],
                ),
                published("poster", None, "Ingens", Some(INGENS), &[("taken_bytes", 12.3 * GB)]),
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
    Experiment {
        name: "ingens-get",
        title: "Redis on huge pages: throughput and slow requests",
        question: "What does promotion by utilization leave of huge pages' throughput and tails?",
        source: Some("Ingens (OSDI'16), poster: GET latency"),
        differs: Some(
            "The poster does not give the workload; here gets and sets of 4 KB in equal parts, pipelined, one client",
        ),
        elsewhere: None,
        full_bytes: 6 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("redis-warm", program("redis-warm", scale), Unfragmented)],
                &["base", "thp-always", INGENS, "auto"],
                &["ops_per_s", "request_p90_ns", "request_p999_ns", "huge_bytes"],
            ),
            published: [
                gets("Linux, base pages", "base", [19.0e3, 4e6, 109e6]),
                gets("Linux, THP", "thp-always", [21.7e3, 3e6, 8e6]),
                gets("Ingens", INGENS, [20.9e3, 3e6, 64e6]),
            ]
            .concat(),
            size: Some(format!("the poster does not say; here {scale:.2} of 4 GB")),
        },
    },
    Experiment {
        name: "ingens-web",
        title: "a web application's database",
        question: "Does promotion by utilization gain throughput for a server?",
        source: Some("Ingens (OSDI'16), poster: CloudStone WEB 2.0 Benchmark"),
        differs: Some(
            "CloudStone with its MongoDB cannot be had; MariaDB under sysbench's read-only load stands for it",
        ),
        elsewhere: None,
        full_bytes: 6 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("mariadb", program("mariadb", scale * WEB), Unfragmented)],
                &["thp-always", "base", INGENS, "auto"],
                &["ops_per_s", "request_p95_ns", "huge_bytes"],
            ),
            published: [
                published("poster", None, "Linux", Some("thp-always"), &[("ops_per_s", 922.3)]),
                published("poster", None, "Ingens", Some(INGENS), &[("ops_per_s", 1091.9)]),
            ]
            .concat(),
            size: Some("the poster does not say".to_string()),
        },
    },
];

/// Part of MEGA's database.
const WEB: f64 = 0.05;

fn gets(system: &str, variant: &str, [ops, p90, p999]: [f64; 3]) -> Vec<Published> {
    let values = [("ops_per_s", ops), ("request_p90_ns", p90), ("request_p999_ns", p999)];
    published("poster", None, system, Some(variant), &values)
}
