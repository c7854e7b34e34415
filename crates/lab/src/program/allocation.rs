//! The allocation-latency study as a program: huge pages are allocated to exhaustion, each timed, after optional compaction.
//!
//! They are hugetlb pages, allocated one by one (`khugehog` allocated in the kernel): nothing is zeroed, so the time is that of the
//! allocation alone, without the host's first touch.

use std::path::Path;
use std::time::{Duration, Instant};

use mega_linux::blocks::fragmentation;
use mega_linux::knobs::{Knobs, STATE_FOLDER};
use mega_linux::proc::ProcRoot;

use super::support::{detail, metric, system, Session};
use super::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::contiguity::{Hog, HogOptions, HogResult, How, ProbeOptions};
use crate::measure::manager::Manager;
use crate::measure::pictures;
use crate::memory::HUGE_BYTES;
use crate::result::{Better, Distribution, Metric, Unit};

/// What is done before huge pages are allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing: the kernel compacts on demand, in each allocation.
    Nothing,
    /// All memory is compacted once, by hand.
    Manual,
    /// The kernel compacts proactively at full proactiveness, for as long as the others take at most.
    Proactive,
    /// A `mega manage` keeps as many blocks free as it can, also while huge pages are allocated.
    FreeBlocks,
}

/// Time limit of the preparation.
const PREPARE: Duration = Duration::from_secs(12);

/// Time in which the kernel drains freed pages from per-CPU lists.
const LISTS: Duration = Duration::from_secs(10);

/// The study's measurement.
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// What is done before.
    pub before: Before,
    /// Huge pages to allocate; none: to exhaustion.
    pub count: Option<u64>,
    /// How they are allocated.
    pub how: How,
}

fn refused(doing: &str, why: impl std::fmt::Display) -> ProgramError {
    system(doing)(std::io::Error::other(why.to_string()))
}

impl Allocation {
    /// Prepares, and returns what keeps running meanwhile.
    fn prepare(&self, session: &mut Session<'_>, root: &ProcRoot) -> Result<Option<Manager>, ProgramError> {
        match self.before {
            Before::Nothing => return Ok(None),
            Before::Manual => {
                let path = root.proc.join("sys/vm/compact_memory");
                std::fs::write(path, "1").map_err(system("compact memory"))?;
                session.wait(LISTS)?;
            }
            Before::Proactive => {
                let mut knobs =
                    Knobs::open(root.clone(), Path::new(STATE_FOLDER)).map_err(|e| refused("save settings", e))?;
                let path = root.proc.join("sys/vm/compaction_proactiveness");
                knobs
                    .set(&path, "100")
                    .map_err(|e| refused("enable proactive compaction", e))?;
                session.wait(PREPARE)?;
                knobs
                    .restore()
                    .map_err(|e| refused("restore proactive compaction", e))?;
            }
            Before::FreeBlocks => {
                let free = fragmentation::read(root).map_err(|e| refused("read free memory", e))?;
                let floor = self.count.map_or(free.free_bytes, |count| count * HUGE_BYTES as u64);
                let launch = session.launch;
                // What it manages does not matter: this process, which has no huge pages to trim.
                let options = [
                    "--policy=trim",
                    "--interval=1s",
                    "--cpu-budget=100%",
                    "--compact",
                    &format!("demand:interval=1s,floor={floor},budget={floor},stock_max=100%"),
                ]
                .map(String::from);
                let pid = std::process::id() as i32;
                let manager = Manager::start(&launch.mega, &options, pid, &launch.scratch, launch.client_cpu)?;
                session.wait(PREPARE)?;
                return Ok(Some(manager));
            }
        }
        Ok(None)
    }
}

/// The percentiles that are figures; those of the allocation-latency study among them.
const PERCENTILES: [(f64, &str); 12] = [
    (5.0, "alloc_p5_ns"),
    (10.0, "alloc_p10_ns"),
    (25.0, "alloc_p25_ns"),
    (30.0, "alloc_p30_ns"),
    (40.0, "alloc_p40_ns"),
    (50.0, "alloc_p50_ns"),
    (60.0, "alloc_p60_ns"),
    (75.0, "alloc_p75_ns"),
    (80.0, "alloc_p80_ns"),
    (90.0, "alloc_p90_ns"),
    (95.0, "alloc_p95_ns"),
    (99.0, "alloc_p99_ns"),
];

/// Figures of the allocation.
fn figures(took: &HogResult, prepared: Duration) -> Figures {
    let mut figures = Figures::default();
    let latency = &took.latency;
    let mut set = |name: &str, value: f64| figures.values.insert(name.to_string(), value);
    set("alloc_mean_ns", latency.mean_ns);
    set("alloc_min_ns", latency.min_ns as f64);
    set("alloc_max_ns", latency.max_ns as f64);
    set("alloc_deviation_ns", latency.deviation_ns);
    for (percent, name) in PERCENTILES {
        if let Some(ns) = latency.percentile_ns(percent) {
            set(name, ns as f64);
        }
    }
    set("obtained", took.obtained as f64);
    set("obtained_share", took.share_of_free);
    set("unusable_share", took.before.unusable_share);
    set("prepare_ns", prepared.as_nanos() as f64);
    let mut quantiles: Vec<(f64, f64)> = latency
        .percentiles
        .iter()
        .map(|(percent, ns)| (percent / 100.0, *ns as f64))
        .collect();
    quantiles.push((1.0, latency.max_ns as f64));
    figures.distributions.insert(
        "alloc".to_string(),
        Distribution {
            count: latency.count,
            mean_ns: latency.mean_ns,
            quantiles,
        },
    );
    figures
}

impl Program for Allocation {
    fn name(&self) -> String {
        "allocation".to_string()
    }

    fn describe(&self) -> String {
        let before = match self.before {
            Before::Nothing => "compaction on demand",
            Before::Manual => "after compact_memory",
            Before::Proactive => "after 12 s of compaction_proactiveness=100",
            Before::FreeBlocks => "with a free-block target kept by mega",
        };
        let count = self
            .count
            .map_or("to exhaustion".to_string(), |n| format!("{n} of them"));
        let what = match self.how {
            How::Kernel => "chunks of 2 MB, allocated by mega.ko",
            How::Hugetlb => "hugetlb pages of 2 MB, one at a time",
            How::Fault => "faults in MADV_HUGEPAGE memory",
        };
        format!("{what}, {count}; {before}")
    }

    fn metrics(&self) -> Vec<Metric> {
        let ns = |name: &str, label: &str| metric(name, label, Unit::Ns, Better::Lower);
        vec![
            detail(ns("alloc_min_ns", "allocation min")),
            ns("alloc_mean_ns", "allocation mean"),
            detail(ns("alloc_deviation_ns", "allocation standard deviation")),
            detail(ns("alloc_p5_ns", "allocation p5")),
            detail(ns("alloc_p10_ns", "allocation p10")),
            detail(ns("alloc_p25_ns", "allocation p25")),
            detail(ns("alloc_p30_ns", "allocation p30")),
            detail(ns("alloc_p40_ns", "allocation p40")),
            ns("alloc_p50_ns", "allocation p50"),
            detail(ns("alloc_p60_ns", "allocation p60")),
            detail(ns("alloc_p75_ns", "allocation p75")),
            detail(ns("alloc_p80_ns", "allocation p80")),
            detail(ns("alloc_p90_ns", "allocation p90")),
            ns("alloc_p95_ns", "allocation p95"),
            detail(ns("alloc_p99_ns", "allocation p99")),
            ns("alloc_max_ns", "allocation max"),
            metric("obtained", "huge pages obtained", Unit::Count, Better::Higher),
            metric(
                "obtained_share",
                "share of free memory obtained",
                Unit::Ratio,
                Better::Higher,
            ),
            metric(
                "unusable_share",
                "unusable for huge pages before",
                Unit::Ratio,
                Better::Neither,
            ),
            detail(ns("prepare_ns", "time to prepare")),
        ]
    }

    fn needs(&self) -> Needs {
        Needs {
            memory_bytes: self.count.unwrap_or(1024) * HUGE_BYTES as u64,
            disk_bytes: 0,
        }
    }

    fn seconds(&self) -> f64 {
        12.0 + if self.before == Before::Nothing {
            0.0
        } else {
            PREPARE.as_secs_f64()
        }
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        let root = ProcRoot::default();
        let mut session = Session::new(self.name(), launch, watch);
        session.phase("prepare");
        let began = Instant::now();
        let mut seen = vec![pictures::take("before", &root)];
        let manager = self.prepare(&mut session, &root)?;
        let prepared = began.elapsed();
        if self.before != Before::Nothing {
            seen.push(pictures::take("prepared", &root));
        }
        session.phase("take");
        let options = HogOptions {
            how: self.how,
            count: self.count,
            probe: ProbeOptions::default(),
            base: false,
            state_folder: STATE_FOLDER.into(),
        };
        let stop = launch.stop.clone();
        let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
        let took = Hog::run(&options, &root, &stopped, &mut || {
            seen.push(pictures::take("huge pages allocated", &root))
        });
        let took = took.map_err(|e| refused("allocate huge pages", e))?;
        session.check()?;
        let mut figures = figures(&took, prepared);
        if let Some(manager) = manager {
            figures.values.extend(manager.finish(&root)?);
        }
        figures.pictures = seen.into_iter().flatten().collect();
        Ok(figures)
    }
}
