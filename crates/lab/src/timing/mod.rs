//! Time: one clock for all time stamps, and latency histograms.

pub mod clock;
pub mod latency;
