//! Policies that decide when a page fault comes: what backs a region, when a reservation becomes a huge page, what a partial unmap leaves.
//!
//! Pure, as [`crate::policy`] is: the simulator calls them, and so may a kernel that has the hook. A stock kernel cannot. One file per system,
//! each opening with the system's own terms and numbers.

mod base;
mod freebsd;
mod giant;
mod hawkeye;
mod linux;
mod lrbhps;
mod quicksilver;

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

/// What the program said about huge pages for a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Advice {
    /// Nothing.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// A first fault in a region: nothing is mapped in it, and nothing is set aside for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// Whose.
    pub process: ProcessId,
    /// Where.
    pub region: Region,
    /// A store; a load gets the zero page where base pages are mapped.
    pub write: bool,
    /// The mapping's advice.
    pub advice: Advice,
    /// The mapping covers the whole region.
    pub fits: bool,
    /// It was only loaded from so far, and the zero page is mapped in it.
    pub loaded: bool,
}

/// How hard to try for a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// What is free now.
    Free,
    /// What is free now; where nothing is, the background thread is woken.
    Wake,
    /// Compaction in the fault, but only what is quick (asynchronous).
    Direct,
    /// Compaction in the fault, thorough if the quick one was not enough, and reclaim.
    Hard,
}

/// What a region's first fault gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A base page.
    Base,
    /// The shared huge zero page for a load: all of the region reads as zeroes after one fault. A store to it is a first fault again, with
    /// [`Fault::loaded`].
    ZeroHuge,
    /// A huge page, else a base page.
    Huge(Effort),
    /// A page of 1 GB where the mapping covers all of that GB, nothing is mapped in it yet and a GB is free in one piece; else as [`Place::Huge`].
    Giant(Effort),
    /// A block is set aside and its base page mapped; else a base page of its own.
    Reserve(Effort),
}

/// A reservation: a block set aside for a region whose base pages are mapped one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Whose.
    pub process: ProcessId,
    /// For which region.
    pub region: Region,
    /// Base pages populated.
    pub populated: BasePages,
    /// When that last changed.
    pub changed: Time,
}

/// What to do with a reservation in which one more page was populated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Zero the rest in bulk, now, and map it huge.
    Fill,
    /// Have the rest zeroed in the background.
    FillLater,
}

/// A part of a region was unmapped (or dropped with MADV_DONTNEED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmapped {
    /// Base pages left with something in them.
    pub left: BasePages,
    /// It is a huge page; otherwise a reservation.
    pub huge: bool,
    /// The mapping stays (MADV_DONTNEED), so the pages could stay, zeroed.
    pub stays_mapped: bool,
}

/// What becomes of a huge page or reservation of which a part was unmapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// The mapping is split, the memory stays whole until there is pressure.
    Deferred,
    /// It stays a huge page; what was dropped is zeroed. Only where the mapping stays.
    Huge,
    /// Base pages inside a reservation; what was dropped goes back to the reservation.
    Reserved,
    /// Base pages; what was dropped is free at once.
    Broken,
}

/// What background work may look at.
#[derive(Debug, Clone, Copy)]
pub struct Background<'a> {
    /// Now.
    pub at: Time,
    /// The machine.
    pub machine: Machine,
    /// Every reservation, longest unchanged first.
    pub reservations: &'a [Reservation],
}

/// A piece of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chore {
    /// Zero the rest of a reservation page by page and map it huge.
    Fill(ProcessId, Region),
    /// Give back what of a reservation is not populated.
    Break(ProcessId, Region),
    /// The same, and move its pages away so that the block is free.
    Evacuate(ProcessId, Region),
    /// Go on with the round of khugepaged: so many base pages, promote where no more than so many are not there.
    Khugepaged {
        /// `pages_to_scan`.
        pages: u32,
        /// `max_ptes_none`.
        max_none: u32,
    },
    /// Split huge pages of which more than so many base pages are zero-filled (the kernel's shrinker of underused huge pages).
    SplitUnderused {
        /// `max_ptes_none`.
        max_zero: u32,
    },
    /// Zero free memory so that faults need not.
    Prezero(Bytes),
}

/// A policy that decides at fault time.
pub trait FaultPolicy: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What a region's first fault gets.
    fn place(&mut self, fault: &Fault) -> Place;

    /// A page of a reservation was populated.
    fn populated(&mut self, _: &Reservation) -> Step {
        Step::Wait
    }

    /// A part of a huge page or of a reservation was unmapped.
    fn unmapped(&mut self, _: &Unmapped) -> Rest {
        Rest::Deferred
    }

    /// It maps pages of 1 GB: large mappings begin at a multiple of that.
    fn maps_giant(&self) -> bool {
        false
    }

    /// Direct compaction takes the pages of reservations that have not changed for so long first; none: it leaves reservations alone.
    fn moves_idle(&self) -> Option<Duration> {
        None
    }

    /// How often it has background work; none: never.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// What to do in the background now.
    fn background(&mut self, _: &Background<'_>) -> Vec<Chore> {
        Vec::new()
    }

    /// Sets a parameter. By default there are none.
    fn set(&mut self, name: &str, _value: &str) -> Result<(), ParamError> {
        Err(ParamError::unknown(self.name(), name, &[]))
    }

    /// Whether the parameters make sense together.
    fn check(&self) -> Result<(), ParamError> {
        Ok(())
    }

    /// Its parameters.
    fn params(&self) -> Vec<Param> {
        Vec::new()
    }
}

/// Every fault policy: its name and what it does in a line.
pub const FAULT_POLICIES: &[(&str, &str)] = &[
    ("base", "base pages only"),
    (
        "linux",
        "a huge page at a region's first fault, khugepaged behind it (stock Linux)",
    ),
    (
        "freebsd",
        "a reservation at the first fault, huge once all of it is populated (FreeBSD)",
    ),
    (
        "giant",
        "a page of 1 GB at a GB's first fault, else of 2 MB (Memomania's layout 1G)",
    ),
    (
        "hawkeye",
        "base pages, and free memory zeroed beforehand (HawkEye's part in faults)",
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
            advice: Advice::None,
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

    /// What it does in the background at a time.
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
