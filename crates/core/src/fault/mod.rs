//! Policies that decide at page faults: what backs a region, when a reservation becomes a huge page, what a partial unmap leaves.
//!
//! Pure, as [`crate::policy`] is. The simulator asks them, and a kernel with a fault-time hook can; an unmodified kernel has none. One file per
//! system, each opening with the system's own terms and numbers.

mod auto;
mod base;
mod freebsd;
mod giant;
mod hawkeye;
mod linux;
mod lrbhps;
mod quicksilver;

pub use auto::{AutoFault, AutoFaultParams};
pub use base::BaseFault;
pub use freebsd::{FreeBsd, FreeBsdParams};
pub use giant::GiantFault;
pub use hawkeye::{HawkeyeFault, HawkeyeFaultParams};
pub use linux::{Defrag, Enabled, LinuxFault, LinuxFaultParams};
pub use lrbhps::{Lrbhps, LrbhpsParams};
pub use quicksilver::{Quicksilver, QuicksilverParams};

use std::time::Duration;

use crate::observe::{Machine, ProcessId, Region};
use crate::policy::{Param, ParamError};
use crate::units::{BasePages, Bytes, Time};

/// The program's advice on huge pages for a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HugeAdvice {
    /// Nothing.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// A first fault in a region: nothing is mapped in it, and no block is reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Time of the fault.
    pub at: Time,
    /// The faulting process.
    pub process: ProcessId,
    /// The region.
    pub region: Region,
    /// A store; a load gets the zero page where base pages are mapped.
    pub write: bool,
    /// The mapping's advice.
    pub advice: HugeAdvice,
    /// Whether the mapping covers the whole region.
    pub fits: bool,
    /// Whether it was only loaded from so far, with the zero page mapped in it.
    pub loaded: bool,
}

/// How hard to try for a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Take a free block, if there is one.
    Free,
    /// Take a free block; if there is none, wake kcompactd.
    Wake,
    /// Direct compaction, asynchronous only.
    Direct,
    /// Direct compaction, synchronous if asynchronous was not enough, and reclaim.
    Hard,
}

/// What a region's first fault gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A base page.
    Base,
    /// The shared huge zero page for a load: the whole region reads as zeroes after one fault. A store to it is another first fault, with
    /// [`Fault::loaded`].
    ZeroHuge,
    /// A huge page, otherwise a base page.
    Huge(Effort),
    /// A 1 GB page where the mapping covers that GB, nothing is mapped in it yet and a contiguous GB is free; otherwise as [`Place::Huge`].
    Giant(Effort),
    /// A block is reserved and its base page mapped; otherwise an ordinary base page.
    Reserve(Effort),
}

/// A reservation: a block set aside for a region whose base pages are mapped one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The process.
    pub process: ProcessId,
    /// The region.
    pub region: Region,
    /// Base pages populated.
    pub populated: BasePages,
    /// When the last one was populated.
    pub changed: Time,
}

/// What to do with a reservation after one more page was populated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Zero the rest in bulk now, and map it huge.
    Fill,
    /// Have the rest zeroed in the background.
    FillLater,
}

/// A partial unmap of a region (munmap or MADV_DONTNEED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmapped {
    /// Base pages that still hold data.
    pub left: BasePages,
    /// It is a huge page; otherwise a reservation.
    pub huge: bool,
    /// The mapping stays (MADV_DONTNEED), so the pages could stay, zeroed.
    pub stays_mapped: bool,
}

/// What becomes of a partially unmapped huge page or reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// The mapping is split; the memory stays whole until there is pressure (Linux's deferred split).
    Deferred,
    /// It stays a huge page; the dropped part is zeroed. Only where the mapping stays.
    Huge,
    /// Base pages inside a reservation; the dropped part returns to the reservation.
    Reserved,
    /// Base pages; the dropped part is freed at once.
    Broken,
}

/// What background work decides on.
#[derive(Debug, Clone, Copy)]
pub struct Background<'a> {
    /// The time now.
    pub at: Time,
    /// The machine.
    pub machine: Machine,
    /// All reservations, longest unchanged first.
    pub reservations: &'a [Reservation],
}

/// A piece of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chore {
    /// Zero the rest of a reservation page by page and map it huge.
    Fill(ProcessId, Region),
    /// Free the unpopulated part of a reservation.
    Break(ProcessId, Region),
    /// The same, and migrate its pages away so that the block is free.
    Evacuate(ProcessId, Region),
    /// Continue khugepaged's round: scan so many base pages, collapse regions with at most so many missing.
    Khugepaged {
        /// `pages_to_scan`.
        pages: u32,
        /// `max_ptes_none`.
        max_none: u32,
    },
    /// Split huge pages with more than so many zero-filled base pages (the kernel's underused-THP shrinker).
    SplitUnderused {
        /// `max_ptes_none`.
        max_zero: u32,
    },
    /// Zero free memory in advance, so that faults need not.
    Prezero(Bytes),
}

/// A policy that decides at fault time.
pub trait FaultPolicy: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What a region's first fault gets.
    fn place(&mut self, fault: &Fault) -> Place;

    /// What to do after a page of a reservation was populated.
    fn populated(&mut self, _: &Reservation) -> Step {
        Step::Wait
    }

    /// What becomes of a partially unmapped huge page or reservation.
    fn unmapped(&mut self, _: &Unmapped) -> Rest {
        Rest::Deferred
    }

    /// Whether it maps 1 GB pages: large mappings are then aligned to 1 GB.
    fn maps_giant(&self) -> bool {
        false
    }

    /// Direct compaction migrates the pages of reservations unchanged for this long first; none: it leaves reservations alone.
    fn moves_idle(&self) -> Option<Duration> {
        None
    }

    /// Interval of its background work; none: it has none.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Background work to do now.
    fn background(&mut self, _: &Background<'_>) -> Vec<Chore> {
        Vec::new()
    }

    /// Sets a parameter from text. By default there are none.
    fn set(&mut self, name: &str, _value: &str) -> Result<(), ParamError> {
        Err(ParamError::unknown(self.name(), name, &[]))
    }

    /// Whether the parameters are consistent; asked once after all are set.
    fn check(&self) -> Result<(), ParamError> {
        Ok(())
    }

    /// Its parameters with their values.
    fn params(&self) -> Vec<Param> {
        Vec::new()
    }
}

/// Every fault policy: its name and one line of description. Help texts and errors list these.
pub const FAULT_POLICIES: &[(&str, &str)] = &[
    ("base", "base pages only"),
    (
        "auto",
        "base pages until a range was filled densely, then huge pages from free blocks",
    ),
    (
        "linux",
        "a huge page at a region's first fault, khugepaged behind it (unmodified Linux)",
    ),
    (
        "freebsd",
        "a reservation at the first fault, huge once fully populated (FreeBSD)",
    ),
    (
        "giant",
        "a 1 GB page at a GB's first fault, otherwise 2 MB (Memomania's layout 1G)",
    ),
    (
        "hawkeye",
        "base pages; free memory zeroed in advance (HawkEye at faults)",
    ),
    (
        "quicksilver",
        "a reservation, huge from 64 populated pages, idle ones evacuated (ATC'20)",
    ),
    (
        "lrbhps",
        "a reservation, zeroed in bulk and mapped huge in place from t populated pages (LRBHPS)",
    ),
];

/// The fault policy of this name with default parameters.
pub fn by_name(name: &str) -> Option<Box<dyn FaultPolicy>> {
    Some(match name {
        "base" => Box::<BaseFault>::default(),
        "auto" => Box::<AutoFault>::default(),
        "linux" => Box::<LinuxFault>::default(),
        "freebsd" => Box::<FreeBsd>::default(),
        "giant" => Box::<GiantFault>::default(),
        "hawkeye" => Box::<HawkeyeFault>::default(),
        "quicksilver" => Box::<Quicksilver>::default(),
        "lrbhps" => Box::<Lrbhps>::default(),
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::units::{Blocks, Share};

    pub const PROCESS: ProcessId = ProcessId { pid: 1, started: 1 };

    /// A store in a region that its mapping covers.
    pub fn fault() -> Fault {
        Fault {
            at: Time(0),
            process: PROCESS,
            region: Region(7),
            write: true,
            advice: HugeAdvice::None,
            fits: true,
            loaded: false,
        }
    }

    pub fn reservation(region: u64, populated: u32, changed_s: u64) -> Reservation {
        Reservation {
            process: PROCESS,
            region: Region(region),
            populated: BasePages(populated),
            changed: Time(changed_s * 1_000_000_000),
        }
    }

    /// Its background work at a time.
    pub fn background(policy: &mut dyn FaultPolicy, at_s: u64, reservations: &[Reservation]) -> Vec<Chore> {
        policy.background(&Background {
            at: Time(at_s * 1_000_000_000),
            machine: Machine {
                available_bytes: Bytes(1 << 30),
                total_bytes: Bytes(4 << 30),
                free_blocks: Blocks(100),
                pressure: Some(Share::ZERO),
            },
            reservations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_policy_exists_and_takes_its_own_defaults_and_no_nonsense() {
        for (name, _) in FAULT_POLICIES {
            let mut policy = by_name(name).unwrap();
            assert_eq!(policy.name(), *name);
            for param in policy.params() {
                policy.set(param.name, &param.default).unwrap();
                assert!(policy.set(param.name, "nonsense").is_err(), "{name}.{}", param.name);
            }
            policy.check().unwrap();
            assert!(policy.set("no_such_parameter", "1").is_err());
        }
        assert!(by_name("nonsense").is_none());
    }
}
