//! A machine that is simulated: the second [`Host`](mega_core::host::Host). The very same policies decide on it as on a live one.
//!
//! Nothing here but [`calibrate`] reads a clock, and nothing draws a number that the seed does not give: the same seed gives the same bytes. The layers, from memory up
//! to experiments; each uses only those above it:
//!
//! | module | subject |
//! | --- | --- |
//! | [`unit`] | frames, virtual pages, who owns a frame |
//! | [`cost`] | what each thing takes, in nanoseconds, and where the figure is from |
//! | [`calibrate`] | measures those on the live machine |
//! | [`physical`] | zones, the buddy allocator, compaction |
//! | [`tlb`] | TLBs, page-walk caches, the cost of a walk |
//! | [`space`] | mappings and page tables of a process |
//! | [`fault`] | what each system does at a fault |
//! | [`machine`] | all of it together: accesses, faults, system calls, time |
//! | [`host`] | the machine as the control loop sees it |
//! | [`workload`] | programs that run on it |
//! | [`scenario`] | a run from beginning to end: machine, system, programs, what came out |
//! | [`trace`] | recordings of programs and of scans, to be replayed |

pub mod calibrate;
pub mod cost;
pub mod fault;
pub mod host;
pub mod machine;
pub mod physical;
pub mod scenario;
pub mod space;
pub mod tlb;
pub mod trace;
pub mod unit;
pub mod workload;
