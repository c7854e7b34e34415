//! What a host sees: regions, processes, the machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{BasePages, Blocks, Bytes, Share, Time, UnitError, HUGE_PAGE_BYTES, REGION_PAGES};

/// One process, held so that a recycled PID is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The PID as the host knows it.
    pub pid: u32,
    /// When it was started, in the host's own ticks.
    pub started: u64,
}

/// A 2 MB-aligned 2 MB range of one process's virtual memory: its address divided by 2 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u64);

impl Region {
    /// The region that holds this address.
    pub fn at(address: u64) -> Self {
        Self(address / HUGE_PAGE_BYTES)
    }

    /// Its first address.
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
    /// The process switched THP off for itself (`prctl(PR_SET_THP_DISABLE)`).
    Prctl,
    /// Locked in memory (`mlock`).
    Mlocked,
    /// hugetlb memory, huge by itself.
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
    /// What the decision rested on was no longer so when its turn came.
    Changed,
    /// The kernel refused without saying why.
    Refused,
}

impl Why {
    const ALL: [Self; 11] = [
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

    /// The reason that this word of the journal names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.word() == word)
    }

    /// The word that the journal uses.
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

/// What can be done with a region, from its mapping's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Can {
    /// May become a huge page.
    pub promote: bool,
    /// May be split.
    pub demote: bool,
    /// Its accessed bits can be cleared, so its utilization can be known.
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
    /// Which.
    pub region: Region,
    /// Base pages present; all of them when it is huge.
    pub mapped: BasePages,
    /// Base pages touched since their accessed bits were last cleared; a huge page has one bit, which counts as all.
    pub accessed: BasePages,
    /// Base pages written; a huge page has one bit.
    pub dirty: BasePages,
    /// Base pages that hold only zeroes: mapped to the shared zero page, or, inside a huge page, zero-filled. None: a huge
    /// page whose contents were not looked at yet.
    pub zero: Option<BasePages>,
    /// Mapped by one huge page.
    pub huge: bool,
    /// Some of it is shared with a forked process.
    pub shared: bool,
    /// The page tables changed during the look: nothing else here can be relied on.
    pub raced: bool,
    /// The accessed bits were cleared one scan ago, so that `accessed` tells about exactly one interval.
    pub aged: bool,
    /// What can be done with it.
    pub can: Can,
}

impl Observation {
    /// Base pages that hold memory of the program's own: mapped, and not known to be only zeroes.
    pub fn populated(&self) -> BasePages {
        self.mapped.less(self.zero.unwrap_or_default())
    }

    /// Share of the region that was accessed.
    pub fn utilization(&self) -> Share {
        Share::of_region(self.accessed)
    }

    /// The same look with nothing counted: what can be kept of a raced one whose numbers make no sense.
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

    /// Whether the numbers make sense. A host that reads a foreign kernel's tables asks before it believes.
    pub fn is_sane(&self) -> bool {
        let within = |pages: BasePages| pages.0 <= REGION_PAGES;
        within(self.mapped)
            && self.accessed <= self.mapped
            && self.dirty <= self.mapped
            && self.zero.is_none_or(|zero| zero <= self.mapped)
            && (!self.huge || self.mapped == BasePages::REGION)
    }
}

/// One process at one scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessView {
    /// Who.
    pub id: ProcessId,
    /// Its regions with anything mapped, by rising address, each once.
    pub regions: Vec<Observation>,
}

/// The machine at one scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Memory that could be had without swapping.
    pub available_bytes: Bytes,
    /// All memory.
    pub total_bytes: Bytes,
    /// Free blocks: 2 MB pieces that can be had without compaction.
    pub free_blocks: Blocks,
    /// Share of the last ten seconds in which some task waited for memory (PSI); none where the kernel does not say.
    pub pressure: Option<Share>,
}

/// Everything at one scan: what a policy decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Time,
    /// The machine.
    pub machine: Machine,
    /// The managed processes, by id.
    pub processes: Vec<ProcessView>,
}
