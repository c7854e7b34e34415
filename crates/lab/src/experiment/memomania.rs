//! Memomania (SYSTOR'18): what 2 MB and 1 GB pages for all of a program's memory gain, and whether more is always better.

use super::{case, plan, program, published, Experiment, Setup, GIB};
use crate::prepare::condition::Condition::Unfragmented;
use crate::result::Published;
use crate::run::CasePlan;

/// The paper's programs and our stand-ins: the paper's name, ours, speed-up with THP, with 1 GB pages.
const TABLE_1: [(&str, &str, f64, f64); 3] = [
    ("429.mcf", "simplex", 1.24, 1.31),
    ("471.omnetpp", "events", 1.00, 1.09),
    ("473.astar", "paths", 1.02, 1.07),
];

const MAIN: &[&str] = &[
    "speedup",
    "elapsed_ns",
    "ops_per_s",
    "rss_bytes",
    "huge_bytes",
    "gigantic_bytes",
];

fn cases(names: &[&str], scale: f64) -> Vec<CasePlan> {
    names
        .iter()
        .map(|name| case(name, program(name, scale), Unfragmented))
        .collect()
}

/// The paper's table: speed-ups over base pages, which have one of 1.
fn table_1() -> Vec<Published> {
    let of = |(theirs, ours, thp, gigantic): &(&str, &str, f64, f64)| {
        let one = |pages: &str, variant, speedup| {
            let system = format!("{theirs}, {pages}");
            published("Table 1", Some(ours), &system, Some(variant), &[("speedup", speedup)])
        };
        [
            one("base pages", "base", 1.0),
            one("THP", "thp-always", *thp),
            one("1 GB pages", "mosaic:1G", *gigantic),
        ]
        .concat()
    };
    TABLE_1.iter().flat_map(of).collect()
}

pub(super) const LIST: &[Experiment] = &[
    Experiment {
        name: "memomania",
        title: "speed on 2 MB and on 1 GB pages",
        question: "What do 1 GB pages gain over transparent huge pages?",
        source: Some("Memomania (SYSTOR'18), Table 1"),
        differs: Some(
            "Programs of ours stand for the three of SPEC CPU2006; random updates, page rank and Redis are ours too. \
             Variants on 2 MB and 1 GB take hugetlb pages reserved for the run",
        ),
        elsewhere: None,
        full_bytes: 4 * GIB,
        setup: |scale| {
            let mut cases = cases(&["simplex", "events", "paths", "gups-heap", "graph-heap"], scale);
            cases.push(case("redis-warm", program("redis-warm", scale * 0.4), Unfragmented));
            Setup {
                plan: plan(cases, &["base", "thp-always", "mosaic:2M", "mosaic:1G"], MAIN),
                published: table_1(),
                size: Some(format!("2 GB each (the paper: SPEC's), {scale:.2} of that here")),
            }
        },
    },
    Experiment {
        name: "memomania-fig1",
        title: "speed with more and more of the memory on 2 MB pages",
        question: "Are more huge pages always better?",
        source: Some("Memomania (SYSTOR'18), Figure 1"),
        differs: Some(
            "The figure has no numbers that could be set beside ours: it shows that all memory on huge pages is not always the best. \
             Here the first quarter, half and three quarters of each program's memory have them",
        ),
        elsewhere: None,
        full_bytes: 4 * GIB,
        setup: |scale| Setup {
            plan: plan(
                cases(&["simplex", "events", "paths"], scale),
                &[
                    "mosaic:4K",
                    "mosaic:2M:share=25%",
                    "mosaic:2M:share=50%",
                    "mosaic:2M:share=75%",
                    "mosaic:2M",
                ],
                MAIN,
            ),
            published: Vec::new(),
            size: Some(format!("2 GB each, {scale:.2} of that here")),
        },
    },
];
