//! What MEGA decides, and the loop that carries it out over a [`Host`](host::Host): the live machine or the simulator.
//!
//! No input or output happens here, and there is no clock: the host has both. The layers, from what is seen to what is
//! written down:
//!
//! | module | subject |
//! | --- | --- |
//! | [`units`] | pages, blocks, bytes, shares and times as types |
//! | [`observe`] | what a host sees |
//! | [`policy`] | what to do, from what was seen: one file per policy |
//! | [`fault`] | what to do at a page fault: one file per system |
//! | [`block`] | physical memory, block by block |
//! | [`planner`] | which blocks to empty: one file per rule |
//! | [`stock`] | when to have how many of them made |
//! | [`action`] | actions and their named outcomes |
//! | [`budget`], [`backoff`] | what it may cost; what is left alone |
//! | [`ageing`] | whose accessed bits are cleared, when not all can be |
//! | [`control`] | the loop |
//! | [`journal`], [`replay`] | one line per event; deciding again from a journal |

pub mod action;
pub mod ageing;
pub mod backoff;
pub mod block;
pub mod budget;
pub mod control;
pub mod fault;
pub mod host;
pub mod journal;
pub mod observe;
pub mod planner;
pub mod policy;
pub mod replay;
pub mod stock;
pub mod units;
