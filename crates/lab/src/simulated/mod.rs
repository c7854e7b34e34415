//! Simulated runs as the lab's results.
//!
//! ```text
//!   papers/       the papers' tables and figures: cases, systems, published figures
//!   experiment    one of them, run
//!   figures/      an outcome as a run of the lab's record
//!   derived       figures that papers have and live runs do not
//!   tables        published beside simulated, in Markdown
//!   orderings     which published comparisons come out the same
//!   magnitudes    how far simulated figures are from published ones
//!   beside        `auto` beside the fastest system of each table
//!   inputs        published figures that the model was given, and that are therefore not counted
//!   kept          a record that is small enough for a repository
//!   sweep/        every combination of lists
//!   accuracy/     the same workloads live and simulated
//!   parallel      independent runs on several threads
//! ```

pub mod accuracy;
pub mod beside;
mod derived;
mod experiment;
pub mod figures;
pub mod inputs;
mod kept;
pub mod magnitudes;
pub mod orderings;
mod papers;
pub mod parallel;
pub mod recorded;
pub mod sweep;
mod tables;

pub use experiment::{Case, Experiment, Miss, Progress, Setup, SystemOf, Words};
pub use kept::kept;
pub(crate) use orderings::{compared, Reproduced};
pub use orderings::{count, Orderings};
pub use papers::{all, find};
pub use tables::side_by_side;

#[cfg(test)]
mod tests;
