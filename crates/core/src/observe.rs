//! What a host sees: regions, processes, the machine.

pub mod groups;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{BasePages, Blocks, Bytes, Share, Time, UnitError, HUGE_PAGE_BYTES, REGION_PAGES};

/// One process, identified so that a recycled PID is a different one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The host's PID.
    pub pid: u32,
    /// When it was started, in the host's own ticks.
    pub started: u64,
}

/// A 2 MB-aligned 2 MB range of one process's virtual memory: its address divided by 2 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u64);

impl Region {
    /// The region that contains this address.
    pub fn at(address: u64) -> Self {
        Self(address / HUGE_PAGE_BYTES)
    }

    /// Its first address, in bytes.
    pub fn address(self) -> u64 {
        self.0 * HUGE_PAGE_BYTES
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address())
    }
}

impl FromStr for Region {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.strip_prefix("0x")
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
            .filter(|address| address % HUGE_PAGE_BYTES == 0)
            .map(Self::at)
            .ok_or_else(|| UnitError::new(text, "a 2 MB-aligned address such as 0x7f0000200000"))
    }
}

impl Serialize for Region {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Region {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Why something cannot be done with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// `madvise(MADV_NOHUGEPAGE)` on its mapping.
    NoHugePage,
    /// The process disabled THP for itself (`prctl(PR_SET_THP_DISABLE)`).
    Prctl,
    /// Locked in memory (`mlock`).
    Mlocked,
    /// hugetlb memory, which is huge already.
    Hugetlb,
    /// A mapped file.
    File,
    /// Shared or tmpfs memory.
    Shmem,
    /// Device memory and other special mappings.
    Special,
    /// A stack.
    Stack,
    /// The mapping does not cover the whole region.
    Small,
    /// The basis of the decision no longer held when its turn came.
    Changed,
    /// The kernel refused without a reason.
    Refused,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::NoHugePage,
        Self::Prctl,
        Self::Mlocked,
        Self::Hugetlb,
        Self::File,
        Self::Shmem,
        Self::Special,
        Self::Stack,
        Self::Small,
        Self::Changed,
        Self::Refused,
    ];

    /// The reason that this word of the journal stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.word() == word)
    }

    /// Its word in the journal.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoHugePage => "no-huge-page",
            Self::Prctl => "prctl",
            Self::Mlocked => "mlocked",
            Self::Hugetlb => "hugetlb",
            Self::File => "file",
            Self::Shmem => "shmem",
            Self::Special => "special",
            Self::Stack => "stack",
            Self::Small => "small",
            Self::Changed => "changed",
            Self::Refused => "refused",
        }
    }
}

/// What can be done with a region, by its mapping's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Can {
    /// May be collapsed into a huge page.
    pub promote: bool,
    /// May be split.
    pub demote: bool,
    /// Its accessed bits can be cleared, so its utilization can be measured.
    pub age: bool,
    /// The reason for the first "no".
    pub why: Option<Why>,
}

impl Can {
    /// Everything.
    pub const ALL: Self = Self {
        promote: true,
        demote: true,
        age: true,
        why: None,
    };
}

/// One look at one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The region.
    pub region: Region,
    /// Base pages present; all 512 if it is huge.
    pub mapped: BasePages,
    /// Base pages accessed since their accessed bits were last cleared; a huge page has one bit, which counts for all.
    pub accessed: BasePages,
    /// Base pages written; a huge page has one bit, which counts for all.
    pub dirty: BasePages,
    /// Base pages known to be all zeroes: mapped to the shared zero page or, inside a huge page, zero-filled. None: a huge page whose contents
    /// have not been read.
    pub zero: Option<BasePages>,
    /// Base pages that the process has unmapped of huge pages that this region's base pages are a part of. Page tables do not show them, and the
    /// kernel frees them only when memory is short. Known where contents were read; else 0.
    #[serde(default)]
    pub kept: BasePages,
    /// Mapped by one huge page.
    pub huge: bool,
    /// Some of it is shared with a forked process.
    pub shared: bool,
    /// The page tables changed during the look: the other fields are unreliable.
    pub raced: bool,
    /// The accessed bits were cleared one scan ago, so that `accessed` covers exactly one interval.
    pub aged: bool,
    /// What can be done with it.
    pub can: Can,
}

impl Observation {
    /// Base pages that hold data of the program: mapped, and not known to be zero.
    pub fn populated(&self) -> BasePages {
        self.mapped.less(self.zero.unwrap_or_default())
    }

    /// Share of the region that was accessed.
    pub fn utilization(&self) -> Share {
        Share::of_region(self.accessed)
    }

    /// The same look without counts: what remains of a raced one whose counts are inconsistent.
    pub fn without_counts(self) -> Self {
        Self {
            mapped: BasePages::ZERO,
            accessed: BasePages::ZERO,
            dirty: BasePages::ZERO,
            zero: None,
            huge: false,
            ..self
        }
    }

    /// Whether the counts are consistent. Hosts that read a running kernel's page tables check this first.
    pub fn is_sane(&self) -> bool {
        let within = |pages: BasePages| pages.0 <= REGION_PAGES;
        within(self.mapped)
            && self.accessed <= self.mapped
            && self.dirty <= self.mapped
            && self.zero.is_none_or(|zero| zero <= self.mapped)
            && within(self.kept)
            && (!self.huge || self.kept == BasePages::ZERO)
            && (!self.huge || self.mapped == BasePages::REGION)
    }
}

/// One process at one scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessView {
    /// The process.
    pub id: ProcessId,
    /// Its regions with anything mapped, by rising address, each once.
    pub regions: Vec<Observation>,
}

/// The machine at one scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Memory available without swapping.
    pub available_bytes: Bytes,
    /// All memory.
    pub total_bytes: Bytes,
    /// Free blocks: whole 2 MB blocks available without compaction.
    pub free_blocks: Blocks,
    /// Share of the last ten seconds in which some task stalled on memory (PSI); none if the kernel does not report it.
    pub pressure: Option<Share>,
}

/// The memory of one NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeMemory {
    /// Memory free there, or used by nothing but caches of files.
    pub available_bytes: Bytes,
    /// All its memory.
    pub total_bytes: Bytes,
    /// Its free blocks.
    pub free_blocks: Blocks,
}

/// One scan of everything: what a policy decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Time,
    /// The machine.
    pub machine: Machine,
    /// The managed processes, by id.
    pub processes: Vec<ProcessView>,
}
