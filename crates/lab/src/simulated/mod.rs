//! Simulated runs in the words of the lab: the papers' experiments, sweeps, and how far the simulator is from the live machine.

pub mod figures;
pub mod live;
pub mod sweep;
