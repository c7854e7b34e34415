//! This Linux machine as a [`Host`](mega_core::host::Host): what MEGA sees of it and does to it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`proc`] | readers of /proc, one file each |
//! | [`vma`] | mappings, and what stands in the way of managing them |
//! | [`scan`] | page tables |
//! | [`blocks`] | physical memory, block by block |
//! | [`faults`] | how long faults take |
//! | [`process`], [`select`] | processes held by pidfd; families; finding them |
//! | [`compact`] | making free blocks: one file per way |
//! | [`actuate`] | promoting, demoting, ageing |
//! | [`host`] | all of it together, for the control loop |
//! | [`module`] | mega.ko, where it is loaded |
//! | [`contiguity`] | how much of the free memory is of use for huge pages |
//! | [`look`], [`region_map`] | one look for people: in figures, and region by region |
//! | [`knobs`], [`thp`] | settings, with undo |
//! | [`capabilities`] | what this machine offers |
//! | [`sys`] | system calls |

pub mod actuate;
pub mod blocks;
pub mod capabilities;
pub mod compact;
pub mod contiguity;
pub mod error;
pub mod faults;
pub mod host;
pub mod knobs;
mod libbpf;
pub mod look;
pub mod module;
pub mod proc;
pub mod process;
pub mod region_map;
pub mod scan;
pub mod select;
pub mod sys;
pub mod thp;
pub mod vma;
