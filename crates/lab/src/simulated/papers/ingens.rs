//! Ingens (OSDI'16), from its poster: bloat of Redis and latency of faults.

use mega_sim::workload::redis::RedisOptions;
use mega_sim::workload::{Spec, TouchOptions};

use super::machines::{base, count, mib, on_ingens, only, published_live, runs};
use crate::simulated::experiment::{Case, Experiment, Miss, Setup, SystemOf};

const BASE: SystemOf = base("Linux, base pages");
const THP: SystemOf = SystemOf {
    paper: "Linux, THP",
    live: "thp-always",
    text: "thp-always:huge_after_load=on",
};
const INGENS: SystemOf = SystemOf {
    paper: "Ingens",
    live: crate::experiment::INGENS,
    text: "ingens:compact=chosen/ingens",
};
const MEGA: SystemOf = only("MEGA", "mega:compact=chosen/mega");
const HAWKEYE: SystemOf = only("HawkEye", "hawkeye");

const ALONE: &str = "nothing else in memory";

fn bloat(scale: f64) -> Setup {
    let options = RedisOptions {
        keys: count(2_000_000, scale),
        least_bytes: 8192,
        most_bytes: 8192,
        delete_share: 0.7,
        rest_ns: 60_000_000_000,
        ..RedisOptions::default()
    };
    let program = format!(
        "Redis, {} values of 8 KB, 70 % of them deleted at random, a minute idle",
        options.keys
    );
    let systems = [BASE, THP, INGENS, MEGA, HAWKEYE];
    Setup {
        cases: vec![Case::new(
            "redis-del-70",
            program,
            ALONE,
            on_ingens(scale, vec![runs(Spec::Redis(options))]),
        )],
        published: published_live("ingens-bloat", &systems, &[]),
        systems: systems.to_vec(),
        main: vec!["taken_bytes", "rss_bytes", "huge_bytes", "waste_bytes"],
        speedup_of: None,
        size: format!("2 million objects of 8 KB, which fill the poster's 20.7 GB; here {scale} of that"),
    }
}

fn latency(scale: f64) -> Setup {
    let run = Spec::Touch(TouchOptions {
        mib: mib(4096, scale),
        ..TouchOptions::default()
    });
    let systems = [BASE, THP];
    Setup {
        cases: vec![Case::new(
            "touch",
            "first touch of 4 GB, page by page",
            ALONE,
            on_ingens(scale, vec![runs(run)]),
        )],
        published: published_live("ingens-latency", &[base("Linux 4.3, 4 KB page"), THP], &[]),
        systems: systems.to_vec(),
        main: vec!["touch_p50_ns", "touch_p99_ns", "touch_max_ns", "first_touch_ns"],
        speedup_of: None,
        size: format!("4 GB; here {scale} of that"),
    }
}

pub(super) const LIST: &[Experiment] = &[
    Experiment {
        name: "ingens-bloat",
        paper: "Ingens",
        title: "memory of Redis after deletions",
        source: "Ingens (OSDI'16), poster: Redis memory bloating",
        question: "Does promotion by utilization keep the footprint of base pages?",
        differs: "The poster does not give the workload: as many objects of 8 KB as fill its 20.7 GB, 70 % of them deleted at random",
        cannot_know: &[
            (
                "the workload",
                "neither the objects nor the deletions are in the poster; how much is returned depends on their placement in jemalloc's slabs",
            ),
            (
                "throughput and latency of GET",
                "the poster gives no number of clients and no rate",
            ),
        ],
        misses: &[
            Miss {
                case: "",
                metric: "taken_bytes",
                a: "Ingens",
                b: "",
                why: "we guess: before Linux 4.5 a huge page was split as soon as a part of it was unmapped; here, as since then, what its unmapped pages hold is taken back \
 only when memory is short, from Ingens' huge pages too",
            },
        ],
        words: &[],
        unknown: &[],
        setup: bloat,
    },
    Experiment {
        name: "ingens-latency",
        paper: "Ingens",
        title: "latency of a fault that maps 4 KB and of one that maps 2 MB",
        source: "Ingens (OSDI'16), poster: high huge page fault latency",
        question: "How long does one page fault stall a program?",
        differs: "These two figures are what the machine's costs were calibrated from (cost preset 'ingens')",
        cannot_know: &[("both", "they are the model's input, so their agreement proves nothing")],
        misses: &[],
        words: &[],
        unknown: &[],
        setup: latency,
    },
];
