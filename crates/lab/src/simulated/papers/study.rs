//! The allocation-latency study ("Hugepage allocation latencies"): 32 GB, of which its program frag keeps every fourth page, and a driver that
//! allocates huge pages to exhaustion.

use mega_sim::scenario::{Fragment, Scenario};
use mega_sim::workload::{HogOptions, Spec};

use super::machines::{on_study, published_live, runs, same, Kernel};
use crate::simulated::experiment::{Case, Experiment, Miss, Setup, SystemOf};

const LINUX: SystemOf = same("Linux", "thp-madvise");
/// Time for background compaction, in ns.
const PREPARE_NS: u64 = 60_000_000_000;

const FREE: &str = "nothing else in memory";
const FRAGMENTED: &str = "fragmented by frag: 28 of 32 GB, three of four pages freed";

fn case(name: &str, program: &str, options: HogOptions, kernel: Kernel, scale: f64) -> Case {
    let scenario = on_study(scale, kernel, vec![runs(Spec::Hog(options))]);
    let fragmented = Scenario {
        fragment: (name != "unfragmented").then_some(Fragment::Study),
        ..scenario
    };
    let condition = if name == "unfragmented" { FREE } else { FRAGMENTED };
    Case::new(name, program, condition, fragmented)
}

fn latency(scale: f64) -> Setup {
    let waits = HogOptions {
        wait_ns: PREPARE_NS,
        ..HogOptions::default()
    };
    let by_hand = HogOptions {
        compact: true,
        ..HogOptions::default()
    };
    let nothing = HogOptions::default();
    let stock = case(
        "stock",
        "khugehog beside mega with a free-block target",
        waits,
        Kernel::Old,
        scale,
    );
    // As in the live experiment: as many free blocks as possible, by the kernel's own compaction.
    let bytes = stock.scenario.machine.memory.0;
    let stock = Case {
        system: Some(format!(
            "trim:compact=demand/interval=1s/floor={bytes}/budget={bytes}/stock_max=100%"
        )),
        ..stock
    };
    let mut cases = vec![
        case("unfragmented", "khugehog", nothing, Kernel::Old, scale),
        case("on-demand", "khugehog", nothing, Kernel::Old, scale),
        case("manual", "khugehog after compact_memory", by_hand, Kernel::Old, scale),
        case(
            "proactive",
            "khugehog after a minute of proactive compaction",
            waits,
            Kernel::Linux61,
            scale,
        ),
        stock,
    ];
    // The allocated memory is the kernel's, in no program: samples are useless while it waits.
    for case in &mut cases {
        case.scenario.every = std::time::Duration::from_secs(5);
    }
    let main = vec![
        "alloc_mean_ns",
        "alloc_p50_ns",
        "alloc_p95_ns",
        "alloc_max_ns",
        "obtained",
        "obtained_share",
        "compact_ns",
    ];
    // The model has no other percentiles.
    let mut published = published_live("allocation-latency", &[LINUX], &[]);
    published.retain(|one| main.contains(&one.metric.as_str()));
    Setup {
        cases,
        systems: vec![LINUX],
        main,
        published,
        speedup_of: None,
        size: format!("paper: 32 GB; here {scale} of that"),
    }
}

pub(super) const LIST: &[Experiment] = &[Experiment {
    name: "allocation-latency",
    paper: "study",
    title: "latency of huge page allocation: on demand, and after compaction",
    source: "Hugepage allocation latencies (the allocation-latency study), both tables",
    question: "How long does a huge page allocation take on fragmented memory, and what avoids the wait?",
    differs: "frag's pages are placed by the model's fragmenter, not by its program's page tables",
    cannot_know: &[
        (
            "the mean of 2.7 µs after compaction",
            "it is the model's cost of a free block (cost preset 'study'), so its agreement proves nothing",
        ),
        (
            "maxima",
            "the largest of 12,000 times on a live machine are interrupts and locks, which the model does not have",
        ),
    ],
    misses: &[
            Miss {
                case: "",
                metric: "obtained",
                a: "",
                b: "",
                why: "in the model everything movable is obtained, on demand and after compaction; the study's 4 % less after compaction is the difference of single runs",
            },
        ],
    words: &[],
    unknown: &[],
    setup: latency,
}];
