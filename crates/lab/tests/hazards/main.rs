//! What may go wrong: programs that change all the time, ends by SIGKILL, children of every kind, wrong input. All of it live, with root;
//! without it each test says so and skips. One at a time: `--test-threads=1`.
//!
//! `MEGA_STORM_SECONDS` says how long the storm blows (120 by default, 300 in `make hostile`), `MEGA_KILL_ROUNDS` and `MEGA_KILL_SEED` how often and when
//! something is killed.

#[path = "../live/support.rs"]
mod support;

mod children;
mod experiments;
mod input;
mod kill;
mod mosaic;
mod storm;
mod tool;
mod verdicts;
