//! What a fragmenter is told, what it says it did, and how it fails.

use super::pattern::FragKind;
use super::room::{Amount, RoomError};
use crate::memory::{MemoryError, PinError};
use mega_core::units::Share;
use mega_linux::contiguity::Contiguity;
use serde::{Deserialize, Serialize};

/// Why memory is not fragmented, or not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum FragError {
    /// It may not be taken.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// The kernel refused a call on our memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Pages cannot be held by pipes.
    #[error(transparent)]
    Pins(#[from] PinError),
    /// The machine's state cannot be read.
    #[error(transparent)]
    State(#[from] mega_linux::error::Error),
    /// Asked to stop before it was done; all is freed.
    #[error("stopped before memory was fragmented; all of it is freed")]
    Stopped,
    /// Memory that was kept is not what was written.
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
    /// The child process that fragments memory did not start or did not go on.
    #[error("mega frag: {0}")]
    Child(String),
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragOptions {
    /// The way.
    pub kind: FragKind,
    /// How much memory to take, before parts of it are freed. With a target, the most that may be taken.
    pub amount: Amount,
    /// Share that is kept; `None`: the kind's own.
    pub keep: Option<Share>,
    /// Have pipes hold what is kept, so that it cannot be moved.
    pub pin: bool,
    /// Go on until this share of the machine's free memory is of no use for huge pages.
    pub target: Option<Share>,
    /// Which pages are kept, and what they hold.
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

/// Why no more memory was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The amount was.
    Amount,
    /// The target is reached.
    Target,
    /// The safety margin is: others have taken memory meanwhile.
    Margin,
    /// There is no huge page any more.
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
            Self::NoHugePages => "the kernel gives no huge page any more",
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
    /// The most that was to be taken.
    pub amount_bytes: u64,
    /// What was taken.
    pub taken_bytes: u64,
    /// What of it is kept.
    pub kept_bytes: u64,
    /// What of that pipes hold.
    pub pinned_bytes: u64,
    /// Taken as huge pages and split.
    pub huge_pages: u64,
    /// Huge pages that the kernel did not give.
    pub fell_back: u64,
    /// The share of free memory that was to be of no use for huge pages, 0 to 1.
    pub target_share: Option<f64>,
    /// Why no more was taken.
    pub ended: Ended,
    /// How long it took.
    pub elapsed_ns: u64,
    /// Free memory before.
    pub before: Contiguity,
    /// Free memory right after.
    pub after: Contiguity,
}

impl Made {
    /// Whether a target was set and not reached.
    #[must_use]
    pub fn missed(&self) -> bool {
        self.target_share.is_some() && self.ended != Ended::Target
    }
}

/// What was found right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Kept pages of which every word was right.
    pub pages: u64,
    /// Times that all of them were.
    pub passes: u64,
}
