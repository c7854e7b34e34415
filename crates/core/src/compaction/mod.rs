//! Physical memory and its compaction: what each 2 MB block holds, how many blocks should be free, and which of the others to empty.
//!
//! | module | subject |
//! | --- | --- |
//! | [`block`] | a block, a zone, what can be told of a block from its pages |
//! | [`history`] | since when a block's mapped share has not grown |
//! | [`planner`] | how many free blocks are wanted, and which blocks to evacuate for them: one file per rule |
//! | [`target`] | when to order a compaction, and when to back off |
//!
//! A host carries the orders out: the live machine by the kernel's compaction or by mega.ko, the simulator by its own.

pub mod block;
pub mod history;
pub mod planner;
pub mod target;
