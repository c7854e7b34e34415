//! The subcommands, one file each.

pub mod bench;
pub mod compact;
pub mod demo;
pub mod doctor;
pub mod frag;
pub mod hog;
pub mod manage;
pub mod map;
pub mod mosaic;
pub mod off;
pub mod policies;
pub mod record;
pub mod replay;
pub mod run;
pub mod show;
pub mod sim;
pub mod workload;
