//! The memory of a process: its mappings and its page tables.
//!
//! | file | subject |
//! | --- | --- |
//! | this one | a space: mappings, tables, counts |
//! | `vma` | mappings, their flags, splitting and merging |
//! | `pte` | one entry of 32 bits |
//! | `table` | the 512 entries of a region; a huge page |
//! | `tables` | regions by address |
//! | `shared` | the mappers of frames shared by forked processes |

mod pte;
mod shared;
mod table;
mod tables;
mod vma;

pub use pte::Pte;
pub use shared::{Mapper, Sharing};
pub use table::{Backing, Huge, Table};
pub use tables::{Entry, Tables};
pub use vma::{Flags, Vma, Vmas};

use mega_core::observe::{Can, Region, Why};
use mega_core::units::REGION_PAGES;

use crate::unit::{Page, SpaceId};

/// Counts of a space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceCounts {
    /// Base pages of memory of its own or shared after a fork: mapped, without the zero page (a huge page counts 512).
    pub resident_pages: u64,
    /// Entries that map the shared zero page.
    pub zero_pages: u64,
    /// Huge pages mapped.
    pub huge: u64,
    /// Base pages swapped out.
    pub swapped: u64,
    /// Faults.
    pub faults: u64,
    /// Those that mapped the shared zero page.
    pub zero_faults: u64,
    /// Time in faults, in ns.
    pub fault_ns: u64,
    /// Time waited for the mmap lock or for a region under work, in ns.
    pub stall_ns: u64,
    /// Accesses to what is not mapped; the program is not stopped for it.
    pub bad_accesses: u64,
}

/// One process's memory.
#[derive(Debug)]
pub struct Space {
    /// Its number.
    pub id: SpaceId,
    /// Its name for people.
    pub name: String,
    /// When it was made, in ns of the machine's clock.
    pub started_ns: u64,
    /// The NUMA node of the processor that it runs on: its memory comes from there first.
    pub node: u8,
    /// Its own clock, in ps: one processor runs it.
    pub clock_ps: u64,
    /// Of its time, the part spent on accesses that found the accessed bit clear.
    pub paid_by_page_ps: u64,
    /// The page of its last access.
    pub last_page: Page,
    /// Its mmap lock is held from then …
    pub locked_from_ps: u64,
    /// … until then: faults and system calls wait.
    pub locked_until_ps: u64,
    /// The page at this region is being changed from the first to the second moment: accesses wait.
    pub blocked: Option<(Region, u64, u64)>,
    /// `prctl(PR_SET_THP_DISABLE)`.
    pub thp_disabled: bool,
    /// It was killed by the OOM killer.
    pub killed: bool,
    /// Its mappings.
    pub vmas: Vmas,
    /// Its page tables.
    pub tables: Tables,
    /// Its counts.
    pub counts: SpaceCounts,
}

impl Space {
    /// An empty space.
    #[must_use]
    pub fn new(id: SpaceId, name: &str, now_ps: u64) -> Self {
        Self {
            id,
            name: name.to_string(),
            started_ns: now_ps / 1000,
            node: 0,
            clock_ps: now_ps,
            paid_by_page_ps: 0,
            last_page: Page(u64::MAX),
            locked_from_ps: 0,
            locked_until_ps: 0,
            blocked: None,
            thp_disabled: false,
            killed: false,
            vmas: Vmas::default(),
            tables: Tables::default(),
            counts: SpaceCounts::default(),
        }
    }

    /// Waits for its mmap lock, if it is held.
    pub fn wait_for_lock(&mut self) {
        if (self.locked_from_ps..self.locked_until_ps).contains(&self.clock_ps) {
            self.counts.stall_ns += (self.locked_until_ps - self.clock_ps) / 1000;
            self.clock_ps = self.locked_until_ps;
        }
    }

    /// What can be done with a region, by its mapping; none where no mapping touches it.
    #[must_use]
    pub fn can(&self, region: Region) -> Option<Can> {
        let (first, end) = (
            Page::first_of(region).0,
            Page::first_of(region).0 + u64::from(REGION_PAGES),
        );
        let vma = self.vmas.first_in(first, end)?;
        let flags = vma.flags;
        let small = !vma.covers(first, end);
        let mut can = Can::ALL;
        can.why = if small {
            Some(Why::Small)
        } else if flags.locked {
            Some(Why::Mlocked)
        } else if flags.advice == mega_core::fault::HugeAdvice::NoHuge {
            Some(Why::NoHugePage)
        } else if self.thp_disabled {
            Some(Why::Prctl)
        } else {
            None
        };
        // Locked memory can be collapsed but neither split by MADV_COLD nor aged (EINVAL).
        can.promote = !small && flags.advice != mega_core::fault::HugeAdvice::NoHuge && !self.thp_disabled;
        can.demote = !small && !flags.locked;
        can.age = !small && !flags.locked;
        Some(can)
    }

    /// The mapping covers the whole region.
    #[must_use]
    pub fn covers(&self, region: Region) -> bool {
        let first = Page::first_of(region).0;
        let vma = self.vmas.find(first);
        vma.is_some_and(|vma| vma.covers(first, first + u64::from(REGION_PAGES)))
    }
}
