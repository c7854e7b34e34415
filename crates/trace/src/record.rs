//! What a trace is made of.

use super::Advice;
use mega_core::observe::{Machine, Observation, ProcessId};

/// Who recorded what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// The machine's name and what it is.
    pub machine: String,
    /// Its kernel's release.
    pub kernel: String,
    /// The command that was recorded.
    pub command: String,
    /// The seed of what was random in it.
    pub seed: u64,
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A load.
    Read,
    /// A store, or one instruction that loads and stores: it faults as a store.
    Write,
    /// A load and then a store of the same place.
    Update,
}

impl Kind {
    /// All of them; the place in this list is the number in a trace.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Update];
}

/// The most accesses of one [`Record::Run`].
pub const MOST_RUN: u64 = 1 << 20;

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// It is this time from here on: nanoseconds since the recording's beginning or the machine's.
    Time(u64),
    /// What follows is about this process.
    Process(ProcessId),
    /// `mmap`: an address and bytes.
    Map {
        /// First address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// `munmap`.
    Unmap {
        /// First address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// `mremap`.
    Remap {
        /// First address before.
        address: u64,
        /// Length in bytes before.
        bytes: u64,
        /// First address after.
        to: u64,
        /// Length in bytes after.
        to_bytes: u64,
    },
    /// `madvise`.
    Advise {
        /// First address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// What is advised.
        advice: Advice,
    },
    /// The process forked this child.
    Fork(u32),
    /// This child exited, or the process itself.
    Exit(u32),
    /// One access.
    Touch {
        /// Where.
        address: u64,
        /// What it does.
        kind: Kind,
    },
    /// Accesses at equal distances.
    Run {
        /// Where the first is.
        address: u64,
        /// Bytes from each to the next.
        stride: i64,
        /// How many: 1 to [`MOST_RUN`].
        count: u64,
        /// What they do.
        kind: Kind,
    },
    /// Computing without memory, in ns.
    Work(u64),
    /// A scan begins: the machine as it is. The regions of each process follow.
    Scan(Machine),
    /// One region of the process at this scan.
    Region(Observation),
}
