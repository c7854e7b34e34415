//! Recordings (`mega_trace`) on simulated memory: recorded from a program, replayed as a program, exported as tables.
//!
//! ```text
//!   Program ─► Recorder ─► Memory (and a Writer)
//!   Source ─┬─► Replay, a Program on any Memory
//!           └─► export, Parquet tables
//! ```

mod parquet;
mod places;
mod recorder;
mod replay;

pub use parquet::{export, ExportError};
pub use recorder::Recorder;
pub use replay::{Replay, ReplayOptions};
