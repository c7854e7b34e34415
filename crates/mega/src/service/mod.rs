//! MEGA as a service: its configuration, its rules, and the daemon that carries them out.

pub mod config;
pub mod daemon;
pub mod describe;
mod figures;
mod files;
mod glob;
mod loops;
mod matching;
mod notify;
mod place;
mod read;

pub use files::Source;
