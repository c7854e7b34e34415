//! A simulated machine, the second [`Host`](mega_core::host::Host). The very same policies decide on it as on a live one.
//!
//! Nothing here reads a clock, and nothing draws a number that the seed does not give: the same seed gives the same bytes. The layers, from memory up
//! to experiments; each uses only those above it (`tests/layers.rs` checks that):
//!
//! | module | subject |
//! | --- | --- |
//! | [`unit`] | frames, virtual pages, the owners of frames |
//! | [`cost`] | the cost of each operation, in nanoseconds, and the source of the figure |
//! | [`physical`] | zones, the buddy allocator, compaction |
//! | [`tlb`] | TLBs, page-walk caches, the cost of a walk |
//! | [`space`] | mappings and page tables of a process |
//! | [`workload`] | programs, and the memory that they ask for ([`workload::Memory`]) |
//! | [`machine`] | all of it together: accesses, faults, system calls, time |
//! | [`host`] | the machine as the control loop sees it |
//! | [`scenario`] | a run from beginning to end: machine, system, programs, outcome |
//! | [`trace`] | recordings of programs: made, replayed, exported |

#![deny(missing_docs)]

pub mod cost;
pub mod host;
pub mod machine;
pub mod physical;
pub mod scenario;
pub mod space;
pub mod tlb;
pub mod trace;
pub mod unit;
pub mod workload;
