//! Our own experiments: what huge pages gain each kind of program, and a control of the lab itself.

use super::{case, plan, program, Experiment, Setup, GIB};
use crate::prepare::condition::Condition::Unfragmented;
use crate::run::Plan;

const SYSTEMS: &[&str] = &["base", "thp-always", "mega", "thp-always+trim"];

/// What a demonstration compares: nothing, what systems ship, ours.
const DEMO_SYSTEMS: &[&str] = &["base", "thp-always", "auto"];

macro_rules! workload {
    ($name:literal, $title:literal, $question:literal, $bytes:expr, $main:expr) => {
        Experiment {
            name: $name,
            title: $title,
            question: $question,
            source: None,
            differs: None,
            elsewhere: None,
            full_bytes: $bytes,
            setup: |scale| Setup {
                plan: plan(vec![case($name, program($name, scale), Unfragmented)], SYSTEMS, $main),
                published: Vec::new(),
                size: None,
            },
        }
    };
}

const SPEED: &[&str] = &[
    "settled_per_s",
    "first_touch_ns",
    "rss_bytes",
    "huge_bytes",
    "waste_bytes",
];

const DEMO: &[&str] = &[
    "settled_per_s",
    "fault_p50_ns",
    "fault_p99_ns",
    "fault_p999_ns",
    "first_touch_ns",
    "rss_bytes",
    "huge_bytes",
    "waste_bytes",
];

pub(super) const LIST: &[Experiment] = &[
    workload!(
        "gups",
        "random updates of a large table",
        "What do huge pages gain where every access misses the TLB?",
        10 * GIB,
        SPEED
    ),
    workload!(
        "kv",
        "a hash table with Zipf keys",
        "What do huge pages gain an in-process store, and what do they waste?",
        5 * GIB,
        &[
            "ops_per_s",
            "read_p99_ns",
            "read_p999_ns",
            "rss_bytes",
            "huge_bytes",
            "waste_bytes"
        ]
    ),
    workload!(
        "btree",
        "inserts and lookups in a B-tree",
        "What do huge pages gain where a few levels of the tree stay cached?",
        5 * GIB,
        &["settled_per_s", "load_ns", "rss_bytes", "huge_bytes", "waste_bytes"]
    ),
    workload!(
        "graph",
        "page rank on a generated graph",
        "What do huge pages gain a graph algorithm?",
        5 * GIB,
        &["ops_per_s", "elapsed_ns", "rss_bytes", "huge_bytes"]
    ),
    workload!(
        "store",
        "a store with a dense hot and a scattered part",
        "Can a program have the speed of huge pages and the memory of base pages?",
        7 * GIB,
        &[
            "ops_per_s",
            "fault_p99_ns",
            "fault_p999_ns",
            "rss_bytes",
            "huge_bytes",
            "waste_bytes"
        ]
    ),
    workload!(
        "sparse",
        "a scattered sixth of a large area",
        "Which policies recover the waste of huge pages?",
        7 * GIB,
        &["rss_bytes", "huge_bytes", "waste_bytes"]
    ),
    Experiment {
        name: "touch",
        title: "first touch of memory",
        question: "What does first touch cost, page by page?",
        source: None,
        differs: None,
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
                    "rss_bytes",
                ],
            ),
            published: Vec::new(),
            size: None,
        },
    },
    Experiment {
        name: "fault-size",
        title: "a store on 64 KB folios, with and without mega",
        question: "How much of the gain do 64 KB folios bring, and what does mega add?",
        source: None,
        differs: None,
        elsewhere: None,
        full_bytes: 7 * GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("store", program("store", scale), Unfragmented)],
                &["base", "mthp-64k", "mthp-64k+mega", "thp-always"],
                &["settled_per_s", "fault_p99_ns", "rss_bytes", "huge_bytes"],
            ),
            published: Vec::new(),
            size: None,
        },
    },
    Experiment {
        name: "demo",
        title: "a store with a dense, hot and a scattered part",
        question: "Can a store have the speed of huge pages with the memory and the page faults of base pages?",
        source: None,
        differs: None,
        elsewhere: None,
        full_bytes: 6 * GIB,
        setup: |scale| Setup {
            plan: Plan {
                manager_options: vec!["--interval".to_string(), "1s".to_string()],
                ..plan(
                    vec![case("demo", program("demo", scale), Unfragmented)],
                    DEMO_SYSTEMS,
                    DEMO,
                )
            },
            published: Vec::new(),
            size: None,
        },
    },
    Experiment {
        name: "demo-redis",
        title: "a real Redis: values of 4 KB, get and set",
        question: "Can Redis have huge pages without their cost?",
        source: None,
        differs: None,
        elsewhere: None,
        full_bytes: 10 * GIB,
        setup: |scale| Setup {
            plan: Plan {
                manager_options: vec!["--interval".to_string(), "1s".to_string()],
                ..plan(
                    vec![case("redis-warm", program("redis-warm", 0.5 * scale), Unfragmented)],
                    DEMO_SYSTEMS,
                    &[
                        "settled_per_s",
                        "request_p50_ns",
                        "request_p99_ns",
                        "request_p999_ns",
                        "fault_p50_ns",
                        "fault_p99_ns",
                        "fault_p999_ns",
                        "rss_bytes",
                        "huge_bytes",
                        "waste_bytes",
                    ],
                )
            },
            published: Vec::new(),
            size: None,
        },
    },
    Experiment {
        name: "control",
        title: "the same variant twice",
        question: "Does the lab find a difference where there is none?",
        source: None,
        differs: None,
        elsewhere: None,
        full_bytes: GIB,
        setup: |scale| Setup {
            plan: plan(
                vec![case("compute", program("compute", scale), Unfragmented)],
                &["base", "base#again"],
                &["elapsed_ns"],
            ),
            published: Vec::new(),
            size: None,
        },
    },
];
