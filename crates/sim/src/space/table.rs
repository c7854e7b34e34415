//! A region's mapping: the page table of its 512 base pages, or a huge page.

use mega_core::compaction::block::Hpfn;
use mega_core::units::{BasePages, REGION_PAGES};

use super::Pte;
use crate::unit::Frame;

/// Entries of a table.
pub const ENTRIES: usize = REGION_PAGES as usize;

/// Where the frames of a table come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backing {
    /// Single frames from anywhere.
    #[default]
    Frames,
    /// Some from this block, which is allocated as a whole: it was a huge page, and unmapped pages are not free yet.
    Whole(Hpfn),
    /// Some from this block, which is reserved for the region: unpopulated pages are held back.
    Reserved(Hpfn),
}

impl Backing {
    /// The block, if there is one.
    #[must_use]
    pub fn block(self) -> Option<Hpfn> {
        match self {
            Self::Frames => None,
            Self::Whole(block) | Self::Reserved(block) => Some(block),
        }
    }
}

/// The table of a region.
#[derive(Debug, Clone)]
pub struct Table {
    /// The entries.
    pub ptes: [Pte; ENTRIES],
    /// Number of present entries, the zero page included.
    pub mapped: u16,
    /// Number of entries that map a frame, without the zero page: the populated pages.
    pub frames: u16,
    /// Number of entries in swap.
    pub swapped: u16,
    /// Where the frames come from.
    pub backing: Backing,
    /// When its reservation last changed, in ns.
    pub changed_ns: u64,
    /// All of it was mapped as the huge zero page.
    pub zero_huge: bool,
}

/// Counts over a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Present, the zero page included.
    pub mapped: u32,
    /// Accessed, the zero page left out.
    pub accessed: u32,
    /// Dirty.
    pub dirty: u32,
    /// The zero page.
    pub zero: u32,
    /// Protected against stores, the zero page left out.
    pub protected: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            ptes: [Pte::NONE; ENTRIES],
            mapped: 0,
            frames: 0,
            swapped: 0,
            backing: Backing::Frames,
            changed_ns: 0,
            zero_huge: false,
        }
    }
}

impl Table {
    /// Nothing is mapped and nothing is reserved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mapped == 0 && self.swapped == 0 && self.backing == Backing::Frames
    }

    /// Pages of a former huge page that are unmapped and not free yet; none if there are none.
    #[must_use]
    pub fn kept(&self) -> Option<BasePages> {
        let Backing::Whole(block) = self.backing else {
            return None;
        };
        let first = Frame::first_of(block).0;
        let mapped = (first..)
            .zip(&self.ptes)
            .filter(|(at, pte)| pte.frame() == Some(Frame(*at)));
        let kept = BasePages::REGION.less(BasePages(mapped.count() as u32));
        (kept > BasePages::ZERO).then_some(kept)
    }

    /// Counts everything in one pass.
    #[must_use]
    pub fn counts(&self) -> TableCounts {
        let mut counts = TableCounts::default();
        for pte in &self.ptes {
            let zero = u32::from(pte.is_zero_page());
            counts.mapped += u32::from(pte.is_present());
            counts.accessed += u32::from(pte.has(Pte::PRESENT | Pte::ACCESSED)) - zero;
            counts.dirty += u32::from(pte.has(Pte::PRESENT | Pte::DIRTY));
            counts.zero += zero;
            counts.protected += u32::from(pte.has(Pte::PRESENT | Pte::PROTECTED)) - zero;
        }
        counts
    }

    /// Clears the accessed bits, except the zero page's, which always counts as accessed. Returns how many were set.
    pub fn age(&mut self) -> u32 {
        let mut cleared = 0;
        for pte in &mut self.ptes {
            if pte.has(Pte::PRESENT | Pte::ACCESSED) && !pte.is_zero_page() {
                *pte = pte.without(Pte::ACCESSED);
                cleared += 1;
            }
        }
        cleared
    }
}

/// A region mapped by one huge page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Huge {
    /// The block.
    pub block: Hpfn,
    /// Accessed since the bit was last cleared.
    pub accessed: bool,
    /// Written.
    pub dirty: bool,
    /// Shared after a fork: a store must fault first.
    pub protected: bool,
    /// Whether it is part of a 1 GB page: one leaf maps it and the 511 beside it. The accessed bit is kept per part all the same, finer than in
    /// hardware.
    pub giant: bool,
    /// Its non-zero base pages, one bit each.
    pub nonzero: [u64; ENTRIES / 64],
}

impl Huge {
    /// New and zeroed.
    #[must_use]
    pub fn zeroed(block: Hpfn) -> Self {
        Self {
            block,
            accessed: true,
            dirty: false,
            protected: false,
            giant: false,
            nonzero: [0; ENTRIES / 64],
        }
    }

    /// The frame of a base page.
    #[must_use]
    pub fn frame(&self, index: usize) -> Frame {
        Frame(Frame::first_of(self.block).0 + index as u32)
    }

    /// Whether a base page is not all zeroes.
    #[must_use]
    pub fn holds(&self, index: usize) -> bool {
        self.nonzero[index / 64] >> (index % 64) & 1 == 1
    }

    /// Sets whether a base page is not all zeroes.
    #[inline]
    pub fn set(&mut self, index: usize, holds: bool) {
        let bit = 1 << (index % 64);
        if holds {
            self.nonzero[index / 64] |= bit;
        } else {
            self.nonzero[index / 64] &= !bit;
        }
    }

    /// The hot path: records an access to a base page, if it needs no fault. Some(true): the accessed bit was clear.
    #[inline]
    pub fn touch(&mut self, index: usize, write: bool) -> Option<bool> {
        if write {
            if self.protected {
                return None;
            }
            self.dirty = true;
            self.set(index, true);
        }
        Some(!std::mem::replace(&mut self.accessed, true))
    }

    /// Base pages that are not all zeroes.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.nonzero.iter().map(|word| word.count_ones()).sum()
    }

    /// The same pages as a table.
    #[must_use]
    pub fn to_table(&self, backing: Backing) -> Table {
        let mut table = Table {
            mapped: ENTRIES as u16,
            frames: ENTRIES as u16,
            backing,
            ..Table::default()
        };
        for (i, pte) in table.ptes.iter_mut().enumerate() {
            *pte = Pte::of(self.frame(i), self.holds(i));
            if !self.accessed {
                *pte = pte.without(Pte::ACCESSED);
            }
            if self.protected {
                *pte = pte.with(Pte::PROTECTED);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_as_a_table_says_the_same() {
        let mut huge = Huge::zeroed(Hpfn(3));
        for i in [0, 63, 64, 511] {
            huge.set(i, true);
        }
        huge.set(63, false);
        assert_eq!(huge.held(), 3);
        let table = huge.to_table(Backing::Whole(Hpfn(3)));
        let counts = table.counts();
        assert_eq!(
            (counts.mapped, counts.accessed, counts.dirty, counts.zero),
            (512, 512, 3, 0)
        );
        assert_eq!(table.ptes[511].frame(), Some(Frame(3 * 512 + 511)));
    }

    #[test]
    fn the_zero_page_never_counts_as_accessed_and_stays_so() {
        let mut table = Table::default();
        table.ptes[1] = Pte::ZERO_PAGE;
        table.ptes[2] = Pte::of(Frame(9), true);
        assert_eq!(table.counts().accessed, 1);
        assert_eq!(table.age(), 1);
        assert_eq!((table.counts().accessed, table.counts().zero), (0, 1));
    }
}
