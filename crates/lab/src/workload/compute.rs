//! A plain compute job: hashes a small area again and again. Its memory fits the caches and few TLB entries, so huge pages do not
//! help; its slowdown under a manager is the manager's overhead (the role of PARSEC in MEGA's Figure 3).

use super::stage::Meter;
use super::{area_json, Common, Plan, Stage, Workload, WorkloadError, MIB};
use crate::memory::content::{self, mix};
use crate::memory::rss_bytes;
use crate::protocol::emit::event;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Options of `compute`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Hashes a small area again and again")]
pub struct Options {
    /// Size of the area in KiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub kib: u32,
    /// How long to compute
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of passes, instead of a duration
    #[arg(long, conflicts_with = "seconds")]
    pub passes: Option<u64>,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Words hashed per second (approximate; for plans only).
const WORDS_PER_SECOND: f64 = 200e6;

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let words = f64::from(self.kib) * 128.0;
        let seconds = self
            .passes
            .map_or(self.seconds, |n| n as f64 * words / WORDS_PER_SECOND);
        Plan::of((self.kib as usize).div_ceil(1024), seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// The hash of `words`: a chain, each step of which needs the one before.
#[must_use]
pub fn digest(words: &[AtomicU64]) -> u64 {
    words.iter().fold(0, |h, w| mix(h ^ w.load(Relaxed)))
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let memory = o.common.map(o.kib as usize * (MIB / 1024))?;
    let areas = [area_json("area", &memory)];
    stage.start(&areas, json!({"seed": o.common.seed}));
    let words = memory.words();
    content::fill(words, o.common.seed);
    let expected = digest(words);
    stage.ready(&areas, json!({"rss_bytes": rss_bytes()}));
    let seconds = if o.passes.is_some() { f64::INFINITY } else { o.seconds };
    let mut meter = Meter::new(stage, seconds);
    let mut passes = 0;
    loop {
        let found = digest(words);
        if found != expected {
            let text = format!("pass {passes} of compute gave {found:#x}, not {expected:#x}");
            return Err(WorkloadError::Corrupt(text));
        }
        passes += 1;
        let goes_on = meter.goes_on(words.len() as u64);
        if !goes_on || o.passes.is_some_and(|n| passes >= n) {
            break;
        }
    }
    stage.result(
        json!({"passes": passes, "digest": format!("{expected:#018x}"), "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", meter.ops_per_s()),
            ("elapsed_ns", meter.elapsed_ns() as f64),
        ],
        &[],
    );
    let result = content::verify(words, o.common.seed);
    event("checked", json!({"ok": result.is_ok(), "words": words.len()}));
    result.map_err(|m| {
        let at = memory.start() + 8 * m.index;
        WorkloadError::Corrupt(format!(
            "compute word at {at:#x} is {:#x}, not {:#x}",
            m.found, m.expected
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_every_word_and_its_place() {
        let words: Vec<AtomicU64> = (0..100).map(AtomicU64::new).collect();
        let before = digest(&words);
        assert_eq!(digest(&words), before);
        words[99].store(98, Relaxed);
        words[98].store(99, Relaxed);
        assert_ne!(digest(&words), before);
    }
}
