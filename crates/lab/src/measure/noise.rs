//! Noise during a run. It is neither hidden nor corrected: a noisy run is marked as doubtful, with the reason.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mega_linux::proc::ProcRoot;

use crate::memory::content::mix;
use crate::memory::{Mapping, MemoryError};
use crate::result::Noise;
use crate::stats::exclusion::rule;
use crate::timing::clock::now_ns;

/// The probe's table: four times the largest last-level cache. A table of the cache's size fits at times, depending on other tenants of the
/// machine, and then takes a third of the time: every other run would be doubtful.
const TABLE_BYTES: usize = 128 << 20;
const STEPS: usize = 100_000;
const TRIES: usize = 7;

/// The reference workload: dependent loads from a table, timed before and after each run.
#[derive(Debug)]
pub struct Probe {
    /// On base pages; none if there is no memory for it.
    table: Option<Mapping>,
    cpu: Option<usize>,
    best_ns: f64,
}

impl Probe {
    /// Prepares it for this processor.
    #[must_use]
    pub fn new(cpu: Option<usize>) -> Self {
        Self {
            table: table().ok(),
            cpu,
            best_ns: f64::INFINITY,
        }
    }

    /// Runs it several times, each from another place; the median in nanoseconds.
    pub fn measure(&mut self) -> Option<f64> {
        let (table, cpu) = (self.table.as_ref()?.words(), self.cpu);
        let median = std::thread::scope(|scope| {
            let work = scope.spawn(move || {
                if let Some(cpu) = cpu {
                    let _ = crate::memory::pin_to_cpu(cpu);
                }
                let times: Vec<f64> = (0..TRIES).map(|start| once(table, start)).collect();
                crate::stats::median(&times)
            });
            work.join().ok().flatten()
        })?;
        self.best_ns = self.best_ns.min(median);
        Some(median)
    }
}

fn table() -> Result<Mapping, MemoryError> {
    let mut table = Mapping::new(TABLE_BYTES)?;
    table.advise(0..TABLE_BYTES, libc::MADV_NOHUGEPAGE)?;
    for (i, word) in table.words().iter().enumerate() {
        word.store(mix(i as u64), Relaxed);
    }
    Ok(table)
}

fn once(table: &[AtomicU64], start: usize) -> f64 {
    let begin = now_ns();
    let mut at = start;
    for step in 0..STEPS {
        // The step avoids short cycles in the table.
        at = (table[at].load(Relaxed) as usize ^ step) % table.len();
    }
    std::hint::black_box(at);
    (now_ns() - begin) as f64
}

/// The state of the machine's clocks at one moment.
#[derive(Debug, Clone)]
pub struct Before {
    at_ns: u64,
    busy: Ticks,
    ours_ns: u64,
    probe_ns: Option<f64>,
    mhz: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    busy: u64,
    steal: u64,
    all: u64,
}

impl Before {
    /// Reads the clocks and runs the probe.
    pub fn take(root: &ProcRoot, probe: &mut Probe) -> Self {
        let probe_ns = probe.measure();
        Self {
            at_ns: now_ns(),
            busy: ticks(root),
            ours_ns: own_cpu_ns(),
            probe_ns,
            mhz: mhz(root),
        }
    }

    /// Reads them again. `known_ns`: processor time of the run outside of our children (khugepaged).
    pub fn compare(&self, root: &ProcRoot, probe: &mut Probe, known_ns: u64) -> Noise {
        let (busy, ours_ns, elapsed_ns) = (ticks(root), own_cpu_ns(), now_ns() - self.at_ns);
        let mhz_after = mhz(root);
        let after = probe.measure();
        let tick_ns = 1e9 / rustix::param::clock_ticks_per_second() as f64;
        let grown = |after: u64, before: u64| after.saturating_sub(before) as f64;
        let all = grown(busy.all, self.busy.all).max(1.0);
        let steal_share = grown(busy.steal, self.busy.steal) / all;
        let ours = grown(ours_ns, self.ours_ns) + known_ns as f64;
        let others_share = (grown(busy.busy, self.busy.busy) * tick_ns - ours).max(0.0) / elapsed_ns.max(1) as f64;
        let mhz = self.mhz.zip(mhz_after);
        let limits = rule().limits;
        let mut doubtful = Vec::new();
        if steal_share > limits.steal_share {
            doubtful.push(format!(
                "{:.1}% of processor time was stolen by the hypervisor",
                100.0 * steal_share
            ));
        }
        if others_share > limits.others_share {
            doubtful.push(format!(
                "other processes used {:.0}% of a processor",
                100.0 * others_share
            ));
        }
        let probe_ns = self.probe_ns.zip(after);
        let slow = probe_ns.map(|(before, after)| before.max(after) / probe.best_ns);
        if let Some(slow) = slow.filter(|slow| *slow > limits.reference_ratio) {
            doubtful.push(format!("reference workload ran {slow:.2}× its best time"));
        }
        if let Some((before, after)) = mhz {
            if (after / before - 1.0).abs() > limits.clock_share {
                doubtful.push(format!("the clock changed from {before:.0} to {after:.0} MHz"));
            }
        }
        Noise {
            steal_share: Some(steal_share),
            others_share: Some(others_share),
            probe_ns,
            mhz,
            doubtful,
        }
    }
}

/// /proc/stat, its first line: user nice system idle iowait irq softirq steal.
fn ticks(root: &ProcRoot) -> Ticks {
    let text = std::fs::read_to_string(root.proc.join("stat")).unwrap_or_default();
    let first = text.lines().next().unwrap_or("");
    let fields: Vec<u64> = first
        .split_ascii_whitespace()
        .skip(1)
        .map(|n| n.parse().unwrap_or(0))
        .collect();
    let field = |i: usize| fields.get(i).copied().unwrap_or(0);
    Ticks {
        busy: field(0) + field(1) + field(2) + field(5) + field(6),
        steal: field(7),
        all: (0..8).map(field).sum(),
    }
}

/// Processor time of this process and of its reaped children.
fn own_cpu_ns() -> u64 {
    let of = |who| crate::memory::cpu_time(who).unwrap_or(Duration::ZERO).as_nanos() as u64;
    of(crate::memory::Whose::Ours) + of(crate::memory::Whose::Children)
}

/// Mean clock of the processors, if known.
fn mhz(root: &ProcRoot) -> Option<f64> {
    let text = std::fs::read_to_string(root.proc.join("cpuinfo")).ok()?;
    let clocks: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("cpu MHz")?.split_once(':')?.1.trim().parse().ok())
        .collect();
    (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_elses_work_is_found_and_ours_is_not_counted() {
        let root = ProcRoot::default();
        let mut probe = Probe::new(None);
        let before = Before::take(&root, &mut probe);
        let began = now_ns();
        while now_ns() - began < 400_000_000 {
            std::hint::black_box(began);
        }
        let noise = before.compare(&root, &mut probe, 0);
        assert!(noise.probe_ns.is_some_and(|(a, b)| a > 0.0 && b > 0.0));
        // What this process did is not somebody else's: both together are no more than there is. (Ticks are 10 ms.)
        let ours = (own_cpu_ns() - before.ours_ns) as f64 / (now_ns() - before.at_ns) as f64;
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        assert!(
            noise.others_share.unwrap() + ours < processors + 0.3,
            "{noise:?}, ours {ours}"
        );
    }

    #[test]
    fn the_probes_table_stays_on_base_pages() {
        let mut probe = Probe::new(None);
        assert!(probe.measure().is_some_and(|ns| ns > 0.0 && ns == probe.best_ns));
        let table = probe.table.as_ref().unwrap().range();
        assert_eq!(crate::memory::huge_bytes_within(std::slice::from_ref(&table)), 0);
        // Also where THP is not always on: its mapping says so (smaps, "nh").
        let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (_, ours) = mappings
            .split_once(&format!("{:x}-{:x} ", table.start, table.end))
            .unwrap();
        let flags = ours.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "nh"), "{flags}");
    }

    #[test]
    fn a_slow_probe_makes_a_run_doubtful_with_the_reason() {
        let root = ProcRoot::default();
        let mut probe = Probe::new(None);
        let before = Before::take(&root, &mut probe);
        probe.best_ns /= 2.0;
        let noise = before.compare(&root, &mut probe, 0);
        assert!(
            noise.doubtful.iter().any(|why| why.contains("reference workload")),
            "{noise:?}"
        );
    }
}
