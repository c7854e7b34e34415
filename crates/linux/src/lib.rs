//! This Linux machine as a [`Host`](mega_core::host::Host): what MEGA sees of it and does to it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`proc`] | readers of /proc, one file each |
//! | [`vma`] | mappings, and what stands in the way of managing them |
//! | [`scan`] | page tables |
//! | [`process`], [`select`] | processes held by pidfd; families; finding them |
//! | [`actuate`] | promoting, demoting, ageing |
//! | [`host`] | all of it together, for the control loop |
//! | [`look`] | one look for people |
//! | [`knobs`], [`thp`] | settings, with undo |
//! | [`capabilities`] | what this machine offers |
//! | [`sys`] | system calls |

pub mod actuate;
pub mod capabilities;
pub mod error;
pub mod host;
pub mod knobs;
pub mod look;
pub mod proc;
pub mod process;
pub mod scan;
pub mod select;
pub mod sys;
pub mod thp;
pub mod vma;
