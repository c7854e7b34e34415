//! The subcommands, one file each.

pub mod advise;
pub mod compact;
pub mod config;
pub mod daemon;
pub mod doctor;
pub mod journal;
pub mod manage;
pub mod map;
pub mod mosaic;
pub mod off;
pub mod policies;
pub mod profile;
pub mod record;
pub mod replay;
pub mod run;
pub mod show;
pub mod status;
