//! The allocation-latency study ("Hugepage allocation latencies"): 32 GB, of which its program frag leaves every fourth page, and a driver that
//! takes huge pages until there are none.

use mega_sim::scenario::{Fragment, Scenario};
use mega_sim::workload::{HogOptions, Spec};

use super::experiment::{Case, Experiment, Miss, Setup, SystemOf};
use super::machines::{on_study, published_live, runs, same, Kernel};

const LINUX: SystemOf = same("Linux", "thp-madvise");
/// Time that those who compact in the background get, in ns.
const PREPARE_NS: u64 = 60_000_000_000;

const FREE: &str = "nothing else in memory";
const FRAGMENTED: &str = "fragmented by frag: 28 of 32 GB, three of four pages given back";

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
        "khugehog beside a mega that keeps a stock",
        waits,
        Kernel::Old,
        scale,
    );
    // As the live experiment: as large a stock as there can be, made by the kernel's own compaction.
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
    // What is taken is the kernel's and shows in no program's memory: samples are of no use while it waits.
    for case in &mut cases {
        case.scenario.every = std::time::Duration::from_secs(5);
    }
    Setup {
        cases,
        systems: vec![LINUX],
        main: vec![
            "alloc_mean_ns",
            "alloc_p50_ns",
            "alloc_p95_ns",
            "alloc_max_ns",
            "obtained",
            "obtained_share",
            "compact_ns",
        ],
        published: published_live("allocation-latency", &[LINUX], &[]),
        speedup_of: None,
        size: format!("paper: 32 GB; here {scale} of that"),
    }
}

pub(super) const LIST: &[Experiment] = &[Experiment {
    name: "allocation-latency",
    paper: "study",
    title: "latency of huge page allocation: on demand, and after compaction",
    source: "Hugepage allocation latencies (the allocation-latency study), both tables",
    question: "How long does one wait for a huge page when memory is fragmented, and who can spare one that?",
    differs: "frag's pages lie as a fragmenter of the model's leaves them, not as its program's page tables did",
    cannot_know: &[
        (
            "the mean of 2.7 µs after compaction",
            "it is what taking a free block costs in the model (cost preset 'study'), so that it agrees proves nothing",
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
                why: "in the model all that can be moved is had, on demand and after compaction; that the study had 4 % less after compaction is one run beside another",
            },
        ],
    words: &[],
    unknown: &[],
    setup: latency,
}];
