//! Limits, results and errors that all ways of allocating huge pages share.

use super::latencies::Latencies;
use crate::contiguity::headroom::{Room, RoomError};
use crate::memory::{Mapping, MemoryError, HUGE_BYTES};
use mega_linux::blocks::fragmentation::Fragmentation;
use mega_linux::knobs::{KnobError, Knobs};
use mega_linux::module::ModuleError;
use mega_linux::proc::ProcRoot;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum HogError {
    /// Not enough memory is available.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// A memory system call failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The machine's state cannot be read.
    #[error(transparent)]
    State(#[from] mega_linux::error::Error),
    /// The setting cannot be changed safely.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A privilege is missing.
    #[error("cannot write {}: {source}; --how hugetlb needs root, --how fault does not", path.display())]
    NotAllowed {
        /// The setting.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The setting is not a number.
    #[error("{}: '{text}' is not a number of pages", path.display())]
    NotANumber {
        /// The setting.
        path: PathBuf,
        /// Its text.
        text: String,
    },
    /// mega.ko cannot do it.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The setting was not restored.
    #[error("{} is not restored: {why}", path.display())]
    NotPutBack {
        /// The setting.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The kernel has no hugetlb pages of this size.
    #[error("no {}: this kernel has no hugetlb pages of 2 MB", path.display())]
    NoHugetlb {
        /// The setting.
        path: PathBuf,
    },
}

/// Why allocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// The requested number is reached.
    Count,
    /// The kernel has none left.
    NoneLeft,
    /// Available memory is down to the safety margin.
    Margin,
    /// The user stopped it.
    Asked,
    /// mega.ko allocates for a minute at most.
    Time,
}

impl Stopped {
    /// For people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Count => "the requested number is reached",
            Self::NoneLeft => "the kernel has no huge page left",
            Self::Margin => "available memory is down to the safety margin",
            Self::Asked => "stopped by the user",
            Self::Time => "time limit of one minute",
        }
    }
}

/// The same amount as base pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaseCase {
    /// Memory touched.
    pub bytes: u64,
    /// Time to touch all base pages of each 2 MB.
    pub per_2mb: Latencies,
    /// Each of them in order.
    pub latencies_ns: Vec<u64>,
}

/// Requests between two checks of available memory: 32 MB.
const LOOK_EVERY: u64 = 16;

/// What limits a run.
pub(super) struct Limits<'a> {
    /// Where the machine's state is read.
    pub root: &'a ProcRoot,
    /// Checked before each request.
    pub stop: &'a dyn Fn() -> bool,
    /// Requested number.
    pub count: u64,
    /// Most that may be allocated.
    pub most: u64,
}

impl Limits<'_> {
    /// Why to end before the next request, if so.
    pub fn end(&self, obtained: u64, requests: u64) -> Result<Option<Stopped>, HogError> {
        if obtained >= self.count {
            return Ok(Some(Stopped::Count));
        }
        if (self.stop)() {
            return Ok(Some(Stopped::Asked));
        }
        let look = requests % LOOK_EVERY == 0;
        if obtained >= self.most || look && Room::read(self.root)?.usable_bytes < LOOK_EVERY * HUGE_BYTES as u64 / 2 {
            return Ok(Some(Stopped::Margin));
        }
        Ok(None)
    }
}

/// What was allocated.
pub(super) struct Taken {
    /// What told huge pages from base pages.
    pub checked_by: String,
    /// Of obtained huge pages, in order.
    pub latencies_ns: Vec<u64>,
    /// Of failed requests.
    pub fell_back_ns: Vec<u64>,
    /// Why allocation ended.
    pub stopped: Stopped,
    /// Free memory while all are held, if they still are.
    pub held: Option<Fragmentation>,
    /// The mapping that holds them.
    pub memory: Option<Mapping>,
    /// The setting that holds them.
    pub knobs: Option<Knobs>,
}

impl Taken {
    /// Frees all.
    pub fn free(&mut self) -> Result<(), HogError> {
        self.memory = None;
        let Some(mut knobs) = self.knobs.take() else {
            return Ok(());
        };
        let done = knobs.restore()?;
        let left = done
            .left
            .into_iter()
            .map(|left| (left.path, format!("changed externally to '{}'", left.current)));
        match left.chain(done.failed).next() {
            Some((path, why)) => Err(HogError::NotPutBack { path, why }),
            None => Ok(()),
        }
    }
}
