//! `mega run`'s side of the agent: where its library lies, what a command is started with so that it is loaded, what it did,
//! and what is kept of that for the next run.

pub mod library;
pub mod live;
pub mod pages;
pub mod profiles;
pub mod start;
