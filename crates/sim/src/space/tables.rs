//! Regions by address: four bytes each, found with two loads.
//!
//! A directory with one number per GB of the range in use leads to 512 entries, one per region. An entry is nothing, or a place in one of two lists:
//! tables and huge pages. 256 GB mapped by base pages take 256 MB of tables and half a MB of entries.

use mega_core::compaction::block::Hpfn;
use mega_core::observe::Region;

use super::{Huge, Table};
use crate::tlb::PageSize;
use crate::unit::Page;

const PER_GB: u64 = 512;
const HUGE: u32 = 1 << 31;
const NONE: u32 = 0;

/// A region's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    None,
    /// The table at this place.
    Table(u32),
    /// The huge page at this place.
    Huge(u32),
}

/// The page tables of a space.
#[derive(Debug, Default)]
pub struct Tables {
    /// The GB with which `directory` begins.
    first_gb: u64,
    /// Per GB: 0, or 1 + the index of its entries, in units of 512.
    directory: Vec<u32>,
    entries: Vec<u32>,
    tables: Vec<Option<Box<Table>>>,
    free_tables: Vec<u32>,
    huge: Vec<Huge>,
    free_huge: Vec<u32>,
    /// 1 GB pages; their parts are among `huge`.
    giants: u64,
}

impl Tables {
    #[inline]
    fn place(&self, region: Region) -> Option<usize> {
        let gb = (region.0 / PER_GB).wrapping_sub(self.first_gb);
        let at = *self.directory.get(usize::try_from(gb).ok()?)?;
        (at != 0).then(|| (at as usize - 1) * PER_GB as usize + (region.0 % PER_GB) as usize)
    }

    /// The region's entry.
    #[inline]
    #[must_use]
    pub fn get(&self, region: Region) -> Entry {
        match self.place(region).and_then(|at| self.entries.get(at)) {
            None | Some(&NONE) => Entry::None,
            Some(&code) if code & HUGE != 0 => Entry::Huge(code & !HUGE),
            Some(&code) => Entry::Table(code - 1),
        }
    }

    /// An access: sets the accessed bit, and for a store the dirty bit. Returns the page size, and whether the accessed bit was clear; none, with
    /// nothing set, where it needs a fault.
    #[inline]
    pub fn touch(&mut self, page: Page, write: bool) -> Option<(PageSize, bool)> {
        match self.get(page.region()) {
            Entry::None => None,
            Entry::Table(at) => {
                let pte = &mut self.table_mut(at).ptes[page.index()];
                pte.touch(write).map(|is_first| (PageSize::Base, is_first))
            }
            Entry::Huge(at) => {
                let huge = self.huge_mut(at);
                let is_first = huge.touch(page.index(), write)?;
                let size = if huge.giant { PageSize::Giant } else { PageSize::Huge };
                Some((size, is_first))
            }
        }
    }

    /// The entry of a base page as an opaque number: reading it prefetches it.
    #[inline]
    pub fn look(&self, page: Page) -> u32 {
        match self.get(page.region()) {
            Entry::Table(at) => self.table(at).ptes[page.index()].bits(),
            _ => 0,
        }
    }

    fn entry_mut(&mut self, region: Region) -> &mut u32 {
        let gb = region.0 / PER_GB;
        if self.directory.is_empty() {
            self.first_gb = gb;
        }
        if gb < self.first_gb {
            let more = (self.first_gb - gb) as usize;
            self.directory.splice(0..0, std::iter::repeat_n(0, more));
            self.first_gb = gb;
        }
        let i = (gb - self.first_gb) as usize;
        if i >= self.directory.len() {
            self.directory.resize(i + 1, 0);
        }
        if self.directory[i] == 0 {
            self.directory[i] = 1 + (self.entries.len() / PER_GB as usize) as u32;
            self.entries.resize(self.entries.len() + PER_GB as usize, NONE);
        }
        let at = (self.directory[i] as usize - 1) * PER_GB as usize + (region.0 % PER_GB) as usize;
        &mut self.entries[at]
    }

    /// The table at a place that [`Tables::get`] gave.
    #[inline]
    #[must_use]
    pub fn table(&self, at: u32) -> &Table {
        // Entries only refer to slots in use.
        self.tables[at as usize].as_deref().expect("an entry names a table")
    }

    /// The same, mutable.
    #[inline]
    pub fn table_mut(&mut self, at: u32) -> &mut Table {
        self.tables[at as usize].as_deref_mut().expect("an entry names a table")
    }

    /// The huge page at a place that [`Tables::get`] gave.
    #[inline]
    #[must_use]
    pub fn huge(&self, at: u32) -> &Huge {
        &self.huge[at as usize]
    }

    /// The same, mutable.
    #[inline]
    pub fn huge_mut(&mut self, at: u32) -> &mut Huge {
        &mut self.huge[at as usize]
    }

    /// The region's table, if it has one.
    #[must_use]
    pub fn table_of(&self, region: Region) -> Option<&Table> {
        match self.get(region) {
            Entry::Table(at) => Some(self.table(at)),
            _ => None,
        }
    }

    /// The same, mutable.
    pub fn table_of_mut(&mut self, region: Region) -> Option<&mut Table> {
        match self.get(region) {
            Entry::Table(at) => Some(self.table_mut(at)),
            _ => None,
        }
    }

    /// The region's huge page, if it has one.
    #[must_use]
    pub fn huge_of(&self, region: Region) -> Option<&Huge> {
        match self.get(region) {
            Entry::Huge(at) => Some(self.huge(at)),
            _ => None,
        }
    }

    /// Gives an empty region a table. Returns its place.
    pub fn put_table(&mut self, region: Region, table: Box<Table>) -> u32 {
        let at = match self.free_tables.pop() {
            Some(at) => {
                self.tables[at as usize] = Some(table);
                at
            }
            None => {
                self.tables.push(Some(table));
                (self.tables.len() - 1) as u32
            }
        };
        let entry = self.entry_mut(region);
        debug_assert_eq!(*entry, NONE);
        *entry = at + 1;
        at
    }

    /// Gives an empty region a huge page. Returns its place.
    pub fn put_huge(&mut self, region: Region, huge: Huge) -> u32 {
        let at = match self.free_huge.pop() {
            Some(at) => {
                self.huge[at as usize] = huge;
                at
            }
            None => {
                self.huge.push(huge);
                (self.huge.len() - 1) as u32
            }
        };
        let entry = self.entry_mut(region);
        debug_assert_eq!(*entry, NONE);
        *entry = at | HUGE;
        at
    }

    /// Removes a region's table.
    pub fn take_table(&mut self, region: Region) -> Option<Box<Table>> {
        let Entry::Table(at) = self.get(region) else {
            return None;
        };
        *self.entry_mut(region) = NONE;
        self.free_tables.push(at);
        self.tables[at as usize].take()
    }

    /// Removes a region's huge page.
    pub fn take_huge(&mut self, region: Region) -> Option<Huge> {
        let Entry::Huge(at) = self.get(region) else {
            return None;
        };
        self.break_giant(region);
        *self.entry_mut(region) = NONE;
        self.free_huge.push(at);
        Some(self.huge[at as usize].clone())
    }

    /// The regions of this region's GB.
    fn gb_of(region: Region) -> std::ops::Range<u64> {
        let first = region.0 / PER_GB * PER_GB;
        first..first + PER_GB
    }

    /// Whether the whole GB around this region is empty.
    #[must_use]
    pub fn gb_is_empty(&self, region: Region) -> bool {
        let gb = Self::gb_of(region);
        self.next_used(Region(gb.start)).is_none_or(|next| next.0 >= gb.end)
    }

    /// Maps the empty GB around this region by one 1 GB page, from this block on.
    pub fn put_giant(&mut self, region: Region, first: Hpfn) {
        for (nth, at) in (0..).zip(Self::gb_of(region)) {
            let huge = Huge {
                giant: true,
                ..Huge::zeroed(Hpfn(first.0 + nth))
            };
            self.put_huge(Region(at), huge);
        }
        self.giants += 1;
    }

    /// If this region is part of a 1 GB page, that becomes 512 huge pages. The caller flushes the region, and with it the GB's translation.
    pub fn break_giant(&mut self, region: Region) {
        if !self.huge_of(region).is_some_and(|huge| huge.giant) {
            return;
        }
        for at in Self::gb_of(region) {
            if let Entry::Huge(at) = self.get(Region(at)) {
                self.huge_mut(at).giant = false;
            }
        }
        self.giants -= 1;
    }

    /// Number of 1 GB pages.
    #[must_use]
    pub fn giants(&self) -> u64 {
        self.giants
    }

    /// The non-empty regions from `from` (included) to `to` (excluded), by rising address.
    #[must_use]
    pub fn used(&self, from: Region, to: Region) -> Vec<Region> {
        let mut found = Vec::new();
        let mut at = from.0;
        while let Some(region) = self.next_used(Region(at)).filter(|region| *region < to) {
            found.push(region);
            at = region.0 + 1;
        }
        found
    }

    /// The first non-empty region from `from` on.
    #[must_use]
    pub fn next_used(&self, from: Region) -> Option<Region> {
        let mut at = from.0.max(self.first_gb * PER_GB);
        loop {
            let gb = at / PER_GB;
            let i = usize::try_from(gb - self.first_gb).ok()?;
            let place = *self.directory.get(i)?;
            if place != 0 {
                let base = (place as usize - 1) * PER_GB as usize;
                let entries = &self.entries[base..base + PER_GB as usize];
                let skip = (at % PER_GB) as usize;
                if let Some(k) = entries[skip..].iter().position(|entry| *entry != NONE) {
                    return Some(Region(gb * PER_GB + (skip + k) as u64));
                }
            }
            at = (gb + 1) * PER_GB;
        }
    }

    /// Number of regions with a table.
    #[inline]
    #[must_use]
    pub fn tables(&self) -> usize {
        self.tables.len() - self.free_tables.len()
    }

    /// Number of non-empty regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables() + self.huge.len() - self.free_huge.len()
    }

    /// Whether all are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All non-empty regions.
    #[must_use]
    pub fn all_used(&self) -> Vec<Region> {
        self.used(Region(0), Region(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    proptest::proptest! {
        #[test]
        fn regions_are_found_as_in_an_ordered_map(steps in proptest::collection::vec((0u64..6, 0u64..512, 0u8..3), 1..200)) {
            // GBs far apart, in any order.
            let gbs = [1000u64, 3, 100_000, 1001, 999, 4];
            let mut tables = Tables::default();
            let mut model: BTreeMap<Region, bool> = BTreeMap::new();
            for (gb, k, what) in steps {
                let region = Region(gbs[gb as usize] * 512 + k);
                match (what, model.get(&region).copied()) {
                    (0, None) => {
                        let table = Table { changed_ns: region.0, ..Table::default() };
                        tables.put_table(region, Box::new(table));
                        model.insert(region, false);
                    }
                    (1, None) => {
                        tables.put_huge(region, Huge::zeroed(Hpfn(region.0 as u32)));
                        model.insert(region, true);
                    }
                    (2, Some(true)) => {
                        proptest::prop_assert_eq!(tables.take_huge(region).unwrap().block.0, region.0 as u32);
                        model.remove(&region);
                    }
                    (2, Some(false)) => {
                        proptest::prop_assert_eq!(tables.take_table(region).unwrap().changed_ns, region.0);
                        model.remove(&region);
                    }
                    _ => {}
                }
            }
            proptest::prop_assert_eq!(tables.all_used(), model.keys().copied().collect::<Vec<_>>());
            for (region, huge) in model {
                match tables.get(region) {
                    Entry::Table(at) => proptest::prop_assert!(!huge && tables.table(at).changed_ns == region.0),
                    Entry::Huge(at) => proptest::prop_assert!(huge && tables.huge(at).block.0 == region.0 as u32),
                    Entry::None => proptest::prop_assert!(false),
                }
            }
        }
    }

    #[test]
    fn a_page_of_1_gb_is_512_huge_pages_as_soon_as_one_of_them_goes() {
        let mut tables = Tables::default();
        tables.put_huge(Region(511), Huge::zeroed(Hpfn(9)));
        assert!(tables.gb_is_empty(Region(700)) && !tables.gb_is_empty(Region(3)));
        tables.put_giant(Region(700), Hpfn(1024));
        assert!(!tables.gb_is_empty(Region(700)) && tables.giants() == 1);
        let page = |region: u64| Page(region * 512 + 7);
        assert_eq!(tables.touch(page(1023), true), Some((PageSize::Giant, false)));
        assert_eq!(tables.huge_of(Region(1023)).unwrap().block, Hpfn(1024 + 511));
        assert_eq!(tables.take_huge(Region(600)).unwrap().block, Hpfn(1024 + 88));
        assert_eq!((tables.giants(), tables.get(Region(600))), (0, Entry::None));
        assert_eq!(tables.touch(page(1023), false), Some((PageSize::Huge, false)));
        assert_eq!(tables.touch(page(511), false), Some((PageSize::Huge, false)));
    }

    #[test]
    fn what_was_never_mapped_has_nothing() {
        let tables = Tables::default();
        assert_eq!(tables.get(Region(0)), Entry::None);
        assert_eq!(tables.get(Region(u64::MAX / 2)), Entry::None);
        assert_eq!(tables.next_used(Region(5)), None);
    }
}
