//! What MEGA decides, and the loop that carries it out over a [`Host`](host::Host): the live machine or the simulator.
//!
//! Nothing here does input or output or reads a clock: the host has both. The modules, from units to replay; each uses only those above it
//! (`crates/sim/tests/layers.rs` checks that):
//!
//! | module | subject |
//! | --- | --- |
//! | [`units`] | pages, blocks, bytes, shares and times as types |
//! | [`observe`] | what a host sees: regions, processes, the machine |
//! | [`action`] | actions and their named outcomes |
//! | [`policy`] | what to promote and demote, decided at each scan: one file per policy |
//! | [`presets`] | what suits well-known programs, by name |
//! | [`fault`] | what backs a region at its first fault, what becomes of a reservation: one file per system |
//! | [`compaction`] | physical memory block by block, how many free blocks are wanted, which blocks to evacuate for them |
//! | [`budget`] | limits on stall, processor time and memory |
//! | [`backoff`] | regions that back off after a failure |
//! | [`ageing`] | whose accessed bits are cleared, and which of them tell about exactly one interval |
//! | [`journal`] | one line per event |
//! | [`host`] | what the loop asks of a machine, live, simulated or recorded |
//! | [`control`] | the loop |
//! | [`replay`] | the loop over a journal: the same decisions again |
//! | [`range`] | rules for a program's address ranges: `crates/range`, which needs no `std`, so that the agent can use it |

#![deny(missing_docs)]

pub mod action;
pub mod ageing;
pub mod backoff;
pub mod budget;
pub mod compaction;
pub mod control;
pub mod fault;
pub mod host;
pub mod journal;
pub mod observe;
pub mod policy;
pub mod presets;
pub mod replay;
pub mod units;

pub use mega_range as range;
