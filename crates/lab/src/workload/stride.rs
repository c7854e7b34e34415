//! MEGA's Table 6: memory visited in steps of 32 KB, shifted by 8 bytes each time. Every page is used, but few of a
//! region's pages between two scans: utilization builds up late, MEGA's bad case.

use super::stage::rate;
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::protocol::emit::event;
use crate::stats;
use crate::timing::clock::now_ns;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Options of `stride`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Visits memory in strides, shifted by 8 bytes each time")]
pub struct Options {
    /// Size of the area in MiB
    #[arg(long, default_value_t = 6144)]
    pub mib: usize,
    /// How many passes over all words
    #[arg(long, default_value_t = 10)]
    pub times: u32,
    /// Step in KiB
    #[arg(long, default_value_t = 32)]
    pub step_kib: usize,
    /// Shifts of each pass; all of them (step / 8) when not given
    #[arg(long)]
    pub shifts: Option<usize>,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// One pass: adds one to each visited word, which must be `passes_before`. Returns the number of visits.
///
/// # Errors
/// The index of the first word that differs.
pub fn pass(words: &[AtomicU64], step: usize, shifts: usize, passes_before: u64) -> Result<u64, usize> {
    let mut visits = 0;
    for shift in 0..shifts.min(step) {
        for (i, w) in words.iter().enumerate().skip(shift).step_by(step) {
            let value = w.load(Relaxed);
            if value != passes_before {
                return Err(i);
            }
            w.store(value + 1, Relaxed);
            visits += 1;
        }
    }
    Ok(visits)
}

/// Visits per second (approximate; for plans only).
const VISITS_PER_SECOND: f64 = 20e6;

impl Options {
    fn step_words(&self) -> usize {
        self.step_kib.clamp(1, 1 << 30) * 128
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let shifts = self
            .shifts
            .map_or(1.0, |s| (s as f64 / self.step_words() as f64).min(1.0));
        let visits = self.mib as f64 * (super::MIB / 8) as f64 * shifts * f64::from(self.times);
        Plan::of(self.mib, visits / VISITS_PER_SECOND)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let memory = o.common.map(mebibytes(o.mib)?)?;
    let step = o.step_words();
    stage.ready(&[area_json("area", &memory)], json!({}));
    let start = now_ns();
    let (mut passes, mut all) = (Vec::new(), 0);
    for i in 0..o.times {
        let t = now_ns();
        let visits = pass(memory.words(), step, o.shifts.unwrap_or(step), u64::from(i))
            .map_err(|w| WorkloadError::Corrupt(format!("stride word at {:#x}", memory.start() + 8 * w)))?;
        let ns = now_ns() - t;
        passes.push(ns as f64);
        all += visits;
        event(
            "report",
            json!({"pass": i, "elapsed_ns": ns, "visits": visits, "ns_per_visit": ns as f64 / visits as f64,
                "ops_per_s": rate(visits, ns)}),
        );
        if stage.is_over() {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    stage.result(
        json!({"passes": passes.len(), "elapsed_ns": elapsed_ns, "pass_ns": stats::spread(&passes)}),
        &[
            ("ops_per_s", rate(all, elapsed_ns)),
            ("op_ns", elapsed_ns as f64 / all.max(1) as f64),
            ("elapsed_ns", elapsed_ns as f64),
        ],
        &[],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pass_visits_every_word_once_and_finds_a_changed_one() {
        let words: Vec<AtomicU64> = (0..1000).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(pass(&words, 32, 32, 0), Ok(1000));
        assert!(words.iter().all(|w| w.load(Relaxed) == 1));
        assert_eq!(pass(&words, 32, 2, 1), Ok(64));
        assert_eq!(pass(&words, 32, 32, 1), Err(0));
    }
}
