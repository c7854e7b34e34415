//! How far the simulator is from the live machine: five workloads live and simulated, on the same sizes with the same options, and what
//! differs.
//!
//! Counts of faults and memory are compared as they are, run times as ratios to base pages: what one processor does in a second is the
//! calibration's affair, what huge pages change in it is the model's. Ratios are taken round by round, as everywhere in the lab.

mod compare;
mod runs;

pub use compare::{compare, Accuracy, Compared, Quiet};
pub use runs::{plan, scenarios, workloads, INTERVAL, VARIANTS};
