//! Experiments for MEGA: workloads whose memory is laid out on purpose, a driver for a real Redis, and the small
//! statistics that paired measurement needs.
//!
//! ```text
//!   workload::run(name, args)      gups store kv btree graph simplex events paths compute touch chunks churn stride sizes holes
//!        │                         kinds sparse dense storm; one process each, JSON lines
//!        │
//!        ├── memory                anonymous mappings, madvise, fork: the only unsafe code of the crate
//!        ├── content               what each word must contain, derived from a seed
//!        ├── emit, command         events on stdout, commands on stdin
//!        └── latency, clock        histograms in ns, CLOCK_MONOTONIC
//!   redis                          start, fill, load and stop a private redis-server
//!   stats, warm, reserve           medians, intervals, paired tests; warm guest memory, hugetlb pages for a run
//!   result                         what an experiment leaves behind
//!   report                         that on the terminal, as a page, against another, and in its folder
//!   contiguity                     fragmenting memory on purpose; timing the allocation of huge pages
//! ```
//!
//! Workloads are deterministic by seed and check their own memory: a manager that changes one word is found out.

pub mod clock;
pub mod command;
pub mod condition;
pub mod content;
pub mod contiguity;
pub mod emit;
pub mod experiment;
pub mod latency;
pub mod measure;
pub mod memory;
pub mod program;
pub mod redis;
pub mod report;
pub mod reserve;
pub mod result;
pub mod run;
pub mod simulated;
pub mod stats;
pub mod text;
pub mod variant;
pub mod warm;
pub mod workload;
