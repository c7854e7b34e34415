//! MEGA as a service: its configuration, its rules, and the daemon that carries them out.

pub mod config;
mod control;
pub mod daemon;
pub mod describe;
mod figures;
mod files;
#[cfg(test)]
mod fuzz;
mod glob;
mod guarantee;
pub mod journal;
mod loops;
mod matching;
mod metrics;
mod notify;
mod place;
pub mod presets;
mod read;
mod socket;
mod watcher;

pub use files::Source;
