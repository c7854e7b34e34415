//! MEGA's Table 5: allocate memory, iterate over it, free it, many times. It measures page faults.

use super::stage::rate;
use super::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::base_page_bytes;
use crate::memory::content;
use crate::protocol::emit::event;
use crate::stats;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;

/// Options of `churn`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Allocates, iterates over and frees memory, many times")]
pub struct Options {
    /// Size of the allocation in MiB
    #[arg(long, default_value_t = 8192)]
    pub mib: usize,
    /// How many times
    #[arg(long, default_value_t = 10)]
    pub times: u32,
    /// Write every word, not one word of each page
    #[arg(long)]
    pub whole: bool,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// One round: times in ns to touch, to check and to free.
///
/// # Errors
/// When memory cannot be mapped, or is corrupt.
pub fn round(bytes: usize, whole: bool, common: &Common) -> Result<[u64; 3], WorkloadError> {
    let step = if whole { 1 } else { base_page_bytes() / 8 };
    let start = now_ns();
    let seed = common.seed;
    let memory = common.map(bytes)?;
    for (i, w) in memory.words().iter().enumerate().step_by(step) {
        w.store(content::word(seed, i as u64), Relaxed);
    }
    let touched = now_ns();
    for (i, w) in memory.words().iter().enumerate().step_by(step) {
        if w.load(Relaxed) != content::word(seed, i as u64) {
            return Err(WorkloadError::Corrupt(format!(
                "churn word {i} of the area at {:#x}",
                memory.start()
            )));
        }
    }
    let checked = now_ns();
    drop(memory);
    Ok([touched - start, checked - touched, now_ns() - checked])
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        // Each round faults its memory in anew; `of` counts the first round's.
        Plan::of(self.mib, Plan::touch_seconds(self.mib) * f64::from(self.times))
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let bytes = mebibytes(o.mib)?;
    stage.ready(&[], json!({ "bytes": bytes }));
    let start = now_ns();
    let pages = (bytes / base_page_bytes()) as u64;
    let (mut rounds, mut sums, mut done) = (Vec::new(), [0; 3], 0);
    let mut latency = Latency::new();
    for i in 0..o.times {
        let [touch, iterate, free] = round(bytes, o.whole, &o.common)?;
        let round_ns = touch + iterate + free;
        rounds.push(round_ns as f64);
        latency.record(round_ns);
        for (sum, ns) in sums.iter_mut().zip([touch, iterate, free]) {
            *sum += ns;
        }
        done += pages;
        event(
            "report",
            json!({"round": i, "touch_ns": touch, "iterate_ns": iterate, "free_ns": free,
                "ops_per_s": rate(pages, round_ns)}),
        );
        if stage.is_over() {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    let [touch, iterate, free] = sums.map(|ns| ns as f64);
    stage.result(
        json!({"rounds": rounds.len(), "elapsed_ns": elapsed_ns, "round_ns": stats::spread(&rounds)}),
        &[
            ("ops_per_s", rate(done, elapsed_ns)),
            ("elapsed_ns", elapsed_ns as f64),
            ("first_touch_ns", touch),
            ("iterate_ns", iterate),
            ("free_ns", free),
        ],
        &[("round", &latency)],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_times_its_three_parts() {
        assert!(round(4 << 20, false, &Common::of_seed(1))
            .unwrap()
            .iter()
            .all(|ns| *ns > 0));
        round(1 << 20, true, &Common::of_seed(1)).unwrap();
    }
}
