//! Kernel counters over a run: /proc/vmstat, and the processor time of khugepaged and kcompactd.

use std::collections::BTreeMap;

use mega_linux::proc::{vmstat, ProcRoot};

use crate::result::{Better, Metric, Unit};

/// Counters whose growth over a run is recorded: name in /proc/vmstat, label.
const COUNTERS: &[(&str, &str)] = &[
    ("thp_fault_alloc", "huge pages at faults"),
    ("thp_fault_fallback", "faults that got no huge page"),
    ("thp_collapse_alloc", "huge pages by collapse"),
    ("thp_split_page", "huge pages split"),
    ("compact_stall", "direct compactions"),
    ("compact_fail", "failed compactions"),
    ("compact_success", "successful compactions"),
    ("compact_migrate_scanned", "pages scanned for migration"),
    ("compact_free_scanned", "free pages scanned"),
    ("compact_isolated", "pages isolated"),
    ("pgmigrate_success", "pages migrated"),
    ("pgmigrate_fail", "pages not migrated"),
];

/// Kernel threads whose processor time is recorded: prefix of their name, metric name.
const THREADS: &[(&str, &str)] = &[("khugepaged", "khugepaged_cpu_ns"), ("kcompactd", "kcompactd_cpu_ns")];

/// The state of all counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Counters(BTreeMap<String, u64>);

/// The metrics that [`Counters::grown`] gives.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    let counters = COUNTERS
        .iter()
        .map(|(name, label)| Metric::new(*name, *label, Unit::Count, Better::Neither));
    let threads = THREADS
        .iter()
        .map(|(thread, name)| Metric::new(*name, format!("processor time of {thread}"), Unit::Ns, Better::Neither));
    counters.chain(threads).collect()
}

impl Counters {
    /// Reads them; what cannot be read is absent.
    #[must_use]
    pub fn read(root: &ProcRoot, threads: &KernelThreads) -> Self {
        let mut all = BTreeMap::new();
        if let Ok(stat) = vmstat::read(root) {
            for (name, _) in COUNTERS {
                if let Some(value) = stat.get(name) {
                    all.insert((*name).to_string(), value);
                }
            }
        }
        for (pid, name) in &threads.0 {
            if let Some(ns) = cpu_ns(root, *pid) {
                *all.entry((*name).to_string()).or_default() += ns;
            }
        }
        Self(all)
    }

    /// By how much they have grown since `before`.
    #[must_use]
    pub fn grown(&self, before: &Self) -> BTreeMap<String, f64> {
        let since = |(name, value): (&String, &u64)| {
            let grown = value.checked_sub(*before.0.get(name)?)?;
            Some((name.clone(), grown as f64))
        };
        self.0.iter().filter_map(since).collect()
    }
}

/// Kernel threads whose time is recorded, found once: searching /proc takes a while.
#[derive(Debug, Clone, Default)]
pub struct KernelThreads(Vec<(u32, &'static str)>);

impl KernelThreads {
    /// Finds them.
    #[must_use]
    pub fn find(root: &ProcRoot) -> Self {
        let pids = std::fs::read_dir(&root.proc).into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let known = |pid: u32| {
            let name = std::fs::read_to_string(root.of_process(pid, "comm")).ok()?;
            let (_, metric) = THREADS.iter().find(|(thread, _)| name.starts_with(thread))?;
            Some((pid, *metric))
        };
        Self(pids.filter_map(known).collect())
    }
}

/// Processor time of a process so far, in nanoseconds, all of its threads; none if it has exited.
#[must_use]
pub fn cpu_ns(root: &ProcRoot, pid: u32) -> Option<u64> {
    let stat = mega_linux::proc::stat::read(root, pid).ok()?;
    let ticks = stat.user_ticks + stat.system_ticks;
    Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}
