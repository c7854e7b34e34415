//! `mega run`'s side of the agent: where its library lies, what a command is started with so that it is loaded, what it did.

pub mod done;
pub mod library;
pub mod live;
pub mod pages;
pub mod start;
