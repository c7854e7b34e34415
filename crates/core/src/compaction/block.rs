//! Physical memory in 2 MB blocks: what each holds, how much of it is mapped, and how long its mapped share has not grown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{BasePages, Blocks, Share, HUGE_PAGE_BYTES, REGION_PAGES};

/// A block of physical memory by its huge page frame number (HPFN): its physical address divided by 2 MB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hpfn(pub u32);

impl Hpfn {
    /// The block that contains this base page frame (PFN).
    pub fn of_frame(frame: u64) -> Self {
        Self(u32::try_from(frame / u64::from(REGION_PAGES)).unwrap_or(u32::MAX))
    }

    /// Its first physical address, in bytes.
    pub fn address(self) -> u64 {
        u64::from(self.0) * HUGE_PAGE_BYTES
    }

    /// The number of its first base page (PFN).
    pub fn first_frame(self) -> u64 {
        u64::from(self.0) * u64::from(REGION_PAGES)
    }
}

impl fmt::Display for Hpfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address())
    }
}

/// What a base page of physical memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum PageKind {
    /// Free, in the buddy allocator.
    Free,
    /// Anonymous memory or page cache: the kernel can migrate it. A page pinned by a device or driver looks the same.
    Movable,
    /// The kernel's own: slab, page tables, reserved.
    Unmovable,
    /// Part of a huge page that fills the block.
    Huge,
    /// No memory, or memory that is offline, ballooned out to the host, or broken.
    Offline,
    /// Without any flag: on a per-CPU free list, or kernel memory (vmalloc, stacks). The two cannot be told apart.
    Unflagged,
}

impl PageKind {
    /// How many kinds there are.
    pub const COUNT: usize = 6;
    /// Every kind.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Free,
        Self::Movable,
        Self::Unmovable,
        Self::Huge,
        Self::Offline,
        Self::Unflagged,
    ];

    /// Its word in output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Movable => "movable",
            Self::Unmovable => "unmovable",
            Self::Huge => "huge",
            Self::Offline => "offline",
            Self::Unflagged => "unflagged",
        }
    }
}

/// What a block is as a whole: the first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockKind {
    /// No memory at all.
    Hole,
    /// A huge page.
    Huge,
    /// It holds a page that cannot be migrated, or lacks memory in part: it cannot become a huge page.
    Unmovable,
    /// It holds movable pages, and nothing known prevents evacuating it.
    Movable,
    /// Nothing but free pages.
    Free,
    /// Free pages and pages without a flag, or only the latter.
    Unflagged,
}

impl BlockKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Hole,
        Self::Huge,
        Self::Unmovable,
        Self::Movable,
        Self::Free,
        Self::Unflagged,
    ];

    /// Its word in output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hole => "hole",
            Self::Huge => "huge",
            Self::Unmovable => "unmovable",
            Self::Movable => "movable",
            Self::Free => "free",
            Self::Unflagged => "unflagged",
        }
    }
}

/// One block: 28 bytes, so that a terabyte takes 14 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub hpfn: Hpfn,
    /// Its zone, as an index into the list of zones; [`Block::NO_ZONE`] for a hole outside all zones.
    pub zone: u8,
    /// Base pages of each kind, by [`PageKind`]; 512 in total.
    pages: [u16; PageKind::COUNT],
    /// Base pages mapped by some process.
    mapped: u16,
    /// Base pages accessed in the last interval; `UNKNOWN_PAGES` if not known.
    accessed: u16,
    /// Whole seconds since the mapped share last grew; `UNKNOWN_AGE` before the second look.
    age_s: u32,
}

impl Block {
    /// In none of the zones.
    pub const NO_ZONE: u8 = u8::MAX;
    const UNKNOWN_PAGES: u16 = u16::MAX;
    const UNKNOWN_AGE: u32 = u32::MAX;

    /// A block with nothing known but its number and zone: all of its pages count as offline.
    pub fn new(hpfn: Hpfn, zone: u8) -> Self {
        let mut pages = [0; PageKind::COUNT];
        pages[PageKind::Offline as usize] = REGION_PAGES as u16;
        Self {
            hpfn,
            zone,
            pages,
            mapped: 0,
            accessed: Self::UNKNOWN_PAGES,
            age_s: Self::UNKNOWN_AGE,
        }
    }

    /// Sets the number of base pages of each kind, in the order of [`PageKind::ALL`]. What is missing from 512 counts as offline, what exceeds 512 is cut.
    pub fn with_pages(mut self, pages: [u32; PageKind::COUNT]) -> Self {
        let mut left = REGION_PAGES;
        for (kept, &given) in self.pages.iter_mut().zip(&pages) {
            let taken = given.min(left);
            *kept = taken as u16;
            left -= taken;
        }
        self.pages[PageKind::Offline as usize] += left as u16;
        self
    }

    /// Sets how many of its base pages are mapped by some process.
    pub fn with_mapped(mut self, pages: BasePages) -> Self {
        self.mapped = pages.0.min(REGION_PAGES) as u16;
        self
    }

    /// Sets how many of its base pages were accessed in the last interval.
    pub fn with_accessed(mut self, pages: Option<BasePages>) -> Self {
        self.accessed = pages.map_or(Self::UNKNOWN_PAGES, |pages| pages.0.min(REGION_PAGES) as u16);
        self
    }

    /// Sets how long its mapped share has not grown.
    pub fn with_age(mut self, age: Option<Duration>) -> Self {
        let seconds = |age: Duration| {
            u32::try_from(age.as_secs())
                .unwrap_or(u32::MAX)
                .min(Self::UNKNOWN_AGE - 1)
        };
        self.age_s = age.map_or(Self::UNKNOWN_AGE, seconds);
        self
    }

    /// Its base pages of this kind.
    pub fn pages(&self, kind: PageKind) -> BasePages {
        BasePages(self.pages[kind as usize].into())
    }

    /// Its base pages mapped by some process.
    pub fn mapped_pages(&self) -> BasePages {
        BasePages(self.mapped.into())
    }

    /// Share of it mapped by some process.
    pub fn mapped(&self) -> Share {
        Share::of_region(self.mapped_pages())
    }

    /// Share of it accessed in the last interval; none if not known.
    pub fn accessed(&self) -> Option<Share> {
        (self.accessed != Self::UNKNOWN_PAGES).then(|| Share::of_region(BasePages(self.accessed.into())))
    }

    /// Time since its mapped share last grew, in whole seconds; none before the second look.
    pub fn age(&self) -> Option<Duration> {
        (self.age_s != Self::UNKNOWN_AGE).then(|| Duration::from_secs(self.age_s.into()))
    }

    /// Base pages that are in use: neither free nor missing.
    pub fn used_pages(&self) -> BasePages {
        BasePages::REGION
            .less(self.pages(PageKind::Free))
            .less(self.pages(PageKind::Offline))
    }

    /// What it is as a whole.
    pub fn kind(&self) -> BlockKind {
        let has = |kind| self.pages(kind) > BasePages::ZERO;
        if self.pages(PageKind::Offline) == BasePages::REGION {
            BlockKind::Hole
        } else if self.pages(PageKind::Huge) == BasePages::REGION {
            BlockKind::Huge
        } else if has(PageKind::Unmovable) || has(PageKind::Offline) || has(PageKind::Huge) {
            BlockKind::Unmovable
        } else if has(PageKind::Movable) {
            BlockKind::Movable
        } else if has(PageKind::Unflagged) {
            BlockKind::Unflagged
        } else {
            BlockKind::Free
        }
    }
}

/// What a zone is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneKind {
    /// ZONE_DMA: the first 16 MB.
    Dma,
    /// ZONE_DMA32: below 4 GB.
    Dma32,
    /// ZONE_NORMAL.
    Normal,
    /// ZONE_MOVABLE.
    Movable,
    /// Anything else: device memory and kinds unknown to us.
    Other,
}

impl ZoneKind {
    /// The kind that the kernel's name of a zone stands for.
    pub fn from_name(name: &str) -> Self {
        match name {
            "DMA" => Self::Dma,
            "DMA32" => Self::Dma32,
            "Normal" => Self::Normal,
            "Movable" => Self::Movable,
            _ => Self::Other,
        }
    }
}

/// One zone and its free memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// The kernel's name: "DMA32", "Normal" ...
    pub name: String,
    /// What it is for.
    pub kind: ZoneKind,
    /// Its first base page frame number (PFN).
    #[serde(rename = "start_pfn")]
    pub start_frame: u64,
    /// Base page frames that it spans, holes included.
    #[serde(rename = "spanned_pages")]
    pub spanned_frames: u64,
    /// Free base pages.
    pub free_pages: u64,
    /// Free blocks: free memory available as whole 2 MB blocks.
    pub free_blocks: Blocks,
}

impl Zone {
    /// Whether the frame (PFN) lies in its span.
    pub fn spans(&self, frame: u64) -> bool {
        frame >= self.start_frame && frame - self.start_frame < self.spanned_frames
    }

    /// Base pages of its free blocks.
    pub fn free_pages_in_blocks(&self) -> u64 {
        self.free_blocks.0.saturating_mul(REGION_PAGES.into())
    }

    /// Share of the zone's free memory that lies outside free blocks, and so is useless for huge pages; 0 if nothing is free.
    pub fn fragmentation(&self) -> Share {
        let outside = self.free_pages.saturating_sub(self.free_pages_in_blocks());
        Share::of(outside, self.free_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pages: [u32; PageKind::COUNT]) -> Block {
        Block::new(Hpfn(7), 0).with_pages(pages)
    }

    #[test]
    fn a_block_takes_at_most_32_bytes() {
        assert!(std::mem::size_of::<Block>() <= 32, "{}", std::mem::size_of::<Block>());
    }

    #[test]
    fn a_block_is_named_for_what_decides_about_it() {
        assert_eq!(block([512, 0, 0, 0, 0, 0]).kind(), BlockKind::Free);
        assert_eq!(block([511, 1, 0, 0, 0, 0]).kind(), BlockKind::Movable);
        assert_eq!(block([510, 1, 1, 0, 0, 0]).kind(), BlockKind::Unmovable);
        assert_eq!(block([0, 0, 0, 512, 0, 0]).kind(), BlockKind::Huge);
        assert_eq!(block([0, 0, 0, 0, 512, 0]).kind(), BlockKind::Hole);
        assert_eq!(block([511, 0, 0, 0, 0, 1]).kind(), BlockKind::Unflagged);
        assert_eq!(
            block([511, 0, 0, 0, 1, 0]).kind(),
            BlockKind::Unmovable,
            "it can never be whole"
        );
    }

    #[test]
    fn what_was_not_observed_is_unknown_and_not_zero() {
        let b = block([0, 512, 0, 0, 0, 0]);
        assert_eq!((b.accessed(), b.age()), (None, None));
        let b = b.with_accessed(Some(BasePages(0))).with_age(Some(Duration::ZERO));
        assert_eq!((b.accessed(), b.age()), (Some(Share::ZERO), Some(Duration::ZERO)));
        let ages = b.with_age(Some(Duration::MAX)).age();
        assert!(
            ages.is_some_and(|age| age > Duration::from_secs(1 << 31)),
            "the longest age is an age"
        );
    }

    #[test]
    fn frames_addresses_and_numbers_belong_together() {
        assert_eq!(Hpfn::of_frame(511), Hpfn(0));
        assert_eq!(Hpfn::of_frame(512), Hpfn(1));
        assert_eq!((Hpfn(3).first_frame(), Hpfn(3).address()), (1536, 6 << 20));
    }

    #[test]
    fn fragmentation_is_the_free_memory_outside_of_free_blocks() {
        let zone = |free_pages, blocks| Zone {
            node: 0,
            name: "Normal".into(),
            kind: ZoneKind::Normal,
            start_frame: 0,
            spanned_frames: 1 << 20,
            free_pages,
            free_blocks: Blocks(blocks),
        };
        assert_eq!(zone(0, 0).fragmentation(), Share::ZERO);
        assert_eq!(zone(1024, 1).fragmentation(), Share::percent(50));
        assert_eq!(zone(1024, 2).fragmentation(), Share::ZERO);
        assert_eq!(zone(100, 0).fragmentation(), Share::FULL);
        assert_eq!(
            zone(100, 1).fragmentation(),
            Share::ZERO,
            "two reads at two moments may disagree"
        );
    }

    proptest::proptest! {
        #[test]
        fn the_kinds_always_add_up_to_a_block(pages in proptest::array::uniform6(0u32..2000), mapped in 0u32..5000) {
            let b = block(pages).with_mapped(BasePages(mapped));
            let sum: u32 = PageKind::ALL.iter().map(|kind| b.pages(*kind).0).sum();
            proptest::prop_assert_eq!(sum, 512);
            proptest::prop_assert!(b.used_pages().0 <= 512 && b.mapped_pages().0 <= 512);
        }
    }
}
