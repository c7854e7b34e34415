//! The subcommands, one file or folder each.

pub mod bench;
pub mod demo;
pub mod explore;
pub mod family;
pub mod frag;
pub mod hog;
pub mod png;
pub mod record;
pub mod scale;
pub mod sim;
pub mod soak;
pub mod workload;
