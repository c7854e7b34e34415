//! The subcommands, one file each.

pub mod demo;
pub mod doctor;
pub mod manage;
pub mod off;
pub mod policies;
pub mod replay;
pub mod run;
pub mod show;
pub mod workload;
