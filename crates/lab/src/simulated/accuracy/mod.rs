//! How far the simulator is from the live machine: workloads live and simulated, on the same sizes with the same options, and what
//! differs.
//!
//! Counts of faults and memory are compared as they are, run times as ratios to base pages: what one processor does in a second is the
//! calibration's affair, what huge pages change in it is the model's. Ratios are taken round by round, as everywhere in the lab.

mod compare;
mod runs;

use crate::result::Record;

pub use compare::{compare, is_compared, Accuracy, Compared, Quiet};
pub use runs::{plan, scenarios, Half, INTERVAL};

/// What is compared, as its records are called: live runs, those with faults counted, simulated ones.
pub const PARTS: [&str; 3] = ["live", "faults", "simulated"];

/// The record without what is not compared.
#[must_use]
pub fn kept(record: &Record) -> Record {
    let mut small = record.clone().small();
    small.metrics.retain(|metric| is_compared(&metric.name));
    for run in &mut small.runs {
        run.values.retain(|name, _| is_compared(name));
        run.phases.clear();
    }
    small
}
