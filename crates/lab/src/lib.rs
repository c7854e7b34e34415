//! Experiments for MEGA: workloads whose memory is laid out on purpose, a driver for a real Redis, and the small
//! statistics that paired measurement needs.
//!
//! ```text
//!   workload::run(name, args)      gups store kinds sparse dense storm churn stride; one process each, JSON lines
//!        │
//!        ├── memory                anonymous mappings, madvise, fork: the only unsafe code of the crate
//!        ├── content               what each word must contain, derived from a seed
//!        ├── emit, command         events on stdout, commands on stdin
//!        └── latency, clock        histograms in ns, CLOCK_MONOTONIC
//!   redis                          start, fill, load and stop a private redis-server
//!   stats, warm                    medians, quartiles, paired ratios; warming guest memory before a run
//! ```
//!
//! Workloads are deterministic by seed and check their own memory: a manager that changes one word is found out.

pub mod clock;
pub mod command;
pub mod content;
pub mod emit;
pub mod latency;
pub mod memory;
pub mod redis;
pub mod stats;
pub mod warm;
pub mod workload;

pub use workload::{run, WorkloadError, LIST};
