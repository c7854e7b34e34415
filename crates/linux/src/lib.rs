//! This Linux machine as a [`Host`](mega_core::host::Host): what MEGA sees of it and does to it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`host`] | the host of the control loop: observes, promotes, demotes, ages |
//! | [`scan`] | page tables: eBPF walk, PAGEMAP_SCAN, pagemap, mega.ko |
//! | [`vma`] | mappings, and what stands in the way of managing them |
//! | [`process`] | processes held by pidfd; families; selecting by name, control group or unit |
//! | [`inspect`] | one look at a process for people: in figures, and region by region |
//! | [`blocks`] | physical memory block by block; fragmentation of free memory |
//! | [`compact`] | compaction: one file per way |
//! | [`deadline`] | calls that wait for another process's lock, with a deadline |
//! | [`faults`] | latency of page faults |
//! | [`knobs`] | the machine's settings: THP's, and changing any with undo |
//! | [`agent`] | what agents in programs say, and what is kept of it |
//! | [`capabilities`] | what this machine offers |
//! | [`module`] | mega.ko, where it is loaded |
//! | [`reservation`] | reservations at faults, where the kernel has them |
//! | [`proc`] | readers of /proc, one file each |
//! | [`sys`] | system calls |

#![deny(missing_docs)]

pub mod agent;
pub mod blocks;
mod bpf;
pub mod capabilities;
pub mod compact;
pub mod deadline;
pub mod error;
pub mod faults;
pub mod host;
pub mod inspect;
pub mod knobs;
pub mod module;
pub mod proc;
pub mod process;
pub mod reservation;
pub mod scan;
pub mod sys;
pub mod vma;
mod waits;
