//! The lab: experiments with huge pages, live and simulated. Programs run under variants of memory management in paired rounds; what they
//! measured becomes a record, and the record a report.
//!
//! ```text
//!   experiment/    the papers' experiments by name, with the published numbers
//!     run/         rounds of variants in alternation: prepare, watch, clean up
//!     variant/     how memory is managed: THP settings, a policy, a mosaic of page sizes
//!     prepare/     the machine's state around a run: condition, hugetlb pages, prefaulted pool
//!     program/     what is measured: our workloads, Redis, memcached, MariaDB, SQLite, any command
//!     measure/     around it: memory, faults, counters, the manager's cost, noise
//!   scale/         what looking costs as there is more to look at
//!   soak/          hours of everything at once: what grows, what is left behind
//!   simulated/     simulated runs as results: the papers' tables, sweeps, accuracy against the live machine
//!   calibrate/     what operations cost on this machine, for the simulator
//!   contiguity/    fragmenting memory on purpose; timing huge page allocation
//!   result/        what an experiment leaves behind: the record
//!   report/        the record on the terminal, as a page, against another, in its folder
//!   documents      tables of the documents, made from the records in `results`
//!   stats/         medians, intervals, paired ratios, signed-rank test, Holm's correction, the rule of exclusion
//!   workload/      programs whose memory is laid out on purpose, one process each, JSON lines
//!   protocol/      a workload's events on stdout and commands on stdin
//!   timing/        CLOCK_MONOTONIC, latency histograms
//!   memory/        mappings, madvise, fork, known content; with `calibrate/area`, the only unsafe code of the crate
//! ```
//!
//! Workloads are deterministic by seed and check their own memory: a manager that changes one word is detected.

pub mod calibrate;
pub mod contiguity;
pub mod documents;
pub mod experiment;
pub mod measure;
pub mod memory;
pub mod prepare;
pub mod program;
pub mod protocol;
pub mod report;
pub mod result;
pub mod run;
pub mod scale;
pub mod simulated;
pub mod soak;
pub mod stats;
pub mod timing;
pub mod variant;
pub mod workload;
