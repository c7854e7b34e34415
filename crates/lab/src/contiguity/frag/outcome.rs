//! A fragmenter's options, result and errors.

use super::pattern::FragKind;
use crate::contiguity::headroom::{Amount, RoomError};
use crate::memory::{MemoryError, PinError};
use mega_core::units::Share;
use mega_linux::blocks::fragmentation::Fragmentation;
use serde::{Deserialize, Serialize};

/// Why fragmenting failed.
#[derive(Debug, thiserror::Error)]
pub enum FragError {
    /// The memory may not be taken.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// A memory system call failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Pages cannot be held by pipes.
    #[error(transparent)]
    Pins(#[from] PinError),
    /// The machine's state cannot be read.
    #[error(transparent)]
    State(#[from] mega_linux::error::Error),
    /// Stopped before it was done; everything is freed.
    #[error("stopped before memory was fragmented; everything is freed")]
    Stopped,
    /// Kept memory has changed.
    #[error("wrong data in kept page {page} at {address:#x}: {found:#x} where {expected:#x} was written")]
    Wrong {
        /// Number of the page in the area.
        page: usize,
        /// Its address.
        address: usize,
        /// What was written.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// The child process that fragments memory failed.
    #[error("mega frag: {0}")]
    Child(String),
}

/// How to fragment memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragOptions {
    /// The way.
    pub kind: FragKind,
    /// How much memory to take before parts of it are freed; with a target, the most that may be taken.
    pub amount: Amount,
    /// Share to keep; `None`: the kind's default.
    pub keep: Option<Share>,
    /// Pin kept pages by pipes, so that they cannot be moved.
    pub pin: bool,
    /// Continue until this share of the machine's free memory is unusable for huge pages.
    pub target: Option<Share>,
    /// Seed of the pattern and the content.
    pub seed: u64,
}

impl Default for FragOptions {
    fn default() -> Self {
        Self {
            kind: FragKind::Study,
            amount: Amount::Most,
            keep: None,
            pin: false,
            target: None,
            seed: 1,
        }
    }
}

/// Why it took no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The amount is taken.
    Amount,
    /// The target is reached.
    Target,
    /// The safety margin is reached: other processes took memory meanwhile.
    Margin,
    /// No huge page is left.
    NoHugePages,
}

impl Ended {
    /// For people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Amount => "the amount is taken",
            Self::Target => "the target is reached",
            Self::Margin => "available memory is down to the safety margin",
            Self::NoHugePages => "the kernel has no huge page left",
        }
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// The way.
    pub kind: FragKind,
    /// The seed.
    pub seed: u64,
    /// Limit.
    pub amount_bytes: u64,
    /// Memory taken.
    pub taken_bytes: u64,
    /// Memory kept.
    pub kept_bytes: u64,
    /// Of that, pinned by pipes.
    pub pinned_bytes: u64,
    /// Huge pages taken and split.
    pub huge_pages: u64,
    /// Huge page allocations that failed.
    pub fell_back: u64,
    /// Target share of free memory unusable for huge pages, 0 to 1.
    pub target_share: Option<f64>,
    /// Why it took no more.
    pub ended: Ended,
    /// How long it took.
    pub elapsed_ns: u64,
    /// Free memory before.
    pub before: Fragmentation,
    /// Free memory right after.
    pub after: Fragmentation,
}

impl Made {
    /// Whether a target was set and not reached.
    #[must_use]
    pub fn missed(&self) -> bool {
        self.target_share.is_some() && self.ended != Ended::Target
    }
}

/// What was verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Kept pages found intact.
    pub pages: u64,
    /// Complete passes over all kept pages.
    pub passes: u64,
}
