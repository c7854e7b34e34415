//! Frames, virtual pages, and the owners of frames.

use std::num::NonZeroU16;

use mega_core::compaction::block::Hpfn;
use mega_core::observe::Region;
use mega_core::units::REGION_PAGES;

/// Bits of a base page's size.
pub const BASE_PAGE_BITS: u32 = 12;
/// Order of a block: 2 MB of base pages.
pub const BLOCK_ORDER: u8 = 9;
/// The largest order of the buddy allocator: 4 MB, as Linux on x86-64.
pub const MAX_ORDER: u8 = 10;

/// A base page of physical memory by its number (PFN). 28 bits are used: 1 TB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

impl Frame {
    /// The largest frame number.
    pub const MAX: u32 = (1 << 28) - 1;

    /// The block that contains it.
    #[must_use]
    pub fn block(self) -> Hpfn {
        Hpfn(self.0 / REGION_PAGES)
    }

    /// The first frame of a block (HPFN).
    #[must_use]
    pub fn first_of(block: Hpfn) -> Self {
        Self(block.0 * REGION_PAGES)
    }
}

/// A base page of a process's virtual memory: its address divided by 4096. 36 bits are used: 47-bit addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

impl Page {
    /// The page that contains this address.
    #[must_use]
    pub fn at(address: u64) -> Self {
        Self(address >> BASE_PAGE_BITS)
    }

    /// Its first address.
    #[must_use]
    pub fn address(self) -> u64 {
        self.0 << BASE_PAGE_BITS
    }

    /// The region that contains it.
    #[must_use]
    pub fn region(self) -> Region {
        Region(self.0 / u64::from(REGION_PAGES))
    }

    /// Its index in its region, 0 to 511.
    #[must_use]
    pub fn index(self) -> usize {
        (self.0 % u64::from(REGION_PAGES)) as usize
    }

    /// The first page of a region.
    #[must_use]
    pub fn first_of(region: Region) -> Self {
        Self(region.0 * u64::from(REGION_PAGES))
    }
}

/// A process's address space by its number on the machine; never used twice in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub NonZeroU16);

/// The owner of an allocated frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The kernel: unmovable.
    Kernel,
    /// The page cache: movable, and can be dropped.
    Cache,
    /// Held by a reservation for this region of a process and not populated: movable only with its block.
    Reserved(SpaceId, Region),
    /// Anonymous memory of one process, mapped at this page. Part of a huge page when the frame was allocated as a block.
    Anonymous(SpaceId, Page),
    /// Anonymous memory shared by processes after a fork; the spaces find its mappers. The number is their key.
    Shared(u32),
    /// Movable memory without a process: a fragmenter's.
    Ballast,
}
