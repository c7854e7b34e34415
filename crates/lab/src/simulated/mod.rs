//! Simulated runs in the words of the lab: the papers' experiments, sweeps, and how far the simulator is from the live machine.

mod derived;
mod experiment;
pub mod figures;
mod ingens;
pub mod live;
mod lrbhps;
mod machines;
mod mega;
pub mod orderings;
mod stand_ins;
mod study;
pub mod sweep;
mod tables;

pub use experiment::{Case, Experiment, Miss, Progress, Setup, SystemOf, Words};
pub use orderings::{count, Orderings};
pub use tables::side_by_side;

/// All experiments, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    mega::LIST
        .iter()
        .chain(lrbhps::LIST)
        .chain(ingens::LIST)
        .chain(study::LIST)
}

/// The experiment of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    all().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests;
