//! The papers' tables and figures in simulation, a file for each paper.
//!
//! ```text
//!   mega/, lrbhps, ingens, study    cases, systems and published figures
//!   machines                        the papers' machines and states of memory
//!   stand_ins                       our stand-ins for programs that cannot be simulated
//! ```

mod ingens;
mod lrbhps;
mod machines;
mod mega;
mod stand_ins;
mod study;

use super::experiment::Experiment;

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
