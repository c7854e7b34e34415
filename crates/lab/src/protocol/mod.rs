//! How a workload talks to the process that started it: events as JSON lines on stdout, commands as lines on stdin.

pub mod command;
pub mod emit;
