//! First touches.

use mega_core::compaction::block::Hpfn;
use mega_core::fault::{Effort, Fault, HugeAdvice, Place};
use mega_core::observe::Region;
use mega_core::units::{Time, REGION_PAGES};

use super::super::{Machine, MachineError};
use crate::physical::GIANT_BLOCKS;
use crate::space::{Huge, Pte, Table};
use crate::unit::{Owner, Page, SpaceId};

/// Base pages of a 1 GB page.
pub(crate) const GIANT_PAGES: u64 = GIANT_BLOCKS as u64 * REGION_PAGES as u64;

impl Machine {
    /// A fault in a region without memory: the policy decides what backs it.
    pub(super) fn first_fault(&mut self, id: SpaceId, page: Page, write: bool) -> Result<(), MachineError> {
        let region = page.region();
        let space = self.spaces.get(id).ok_or(MachineError::NoProcess)?;
        let vma = space.vmas.find(page.0).ok_or(MachineError::NotMapped(page.address()))?;
        let first = Page::first_of(region).0;
        let process = self.process_id(id).ok_or(MachineError::NoProcess)?;
        let fault = Fault {
            at: Time(self.now_ns()),
            process,
            region,
            write,
            advice: if space.thp_disabled {
                HugeAdvice::NoHuge
            } else {
                vma.flags.advice
            },
            fits: vma.covers(first, first + u64::from(REGION_PAGES)),
            loaded: space.tables.table_of(region).is_some(),
        };
        let swapped = space.tables.table_of(region).is_some_and(|table| table.swapped > 0);
        match self.policy.place(&fault) {
            Place::Huge(effort) if !swapped && fault.fits && self.populate_huge(id, region, effort) => Ok(()),
            Place::ZeroHuge if !write && !fault.loaded && fault.fits => {
                self.populate_zero_huge(id, region);
                Ok(())
            }
            Place::Giant(_) if !swapped && fault.fits && self.populate_giant(id, region) => Ok(()),
            Place::Giant(effort) if !swapped && fault.fits && self.populate_huge(id, region, effort) => Ok(()),
            Place::Reserve(effort) if write => {
                self.reserve(id, region, effort);
                self.populate(id, page, write)
            }
            _ => self.populate(id, page, write),
        }
    }

    /// The huge zero page in an empty region, as a table full of zero pages: translations are smaller than in reality.
    fn populate_zero_huge(&mut self, id: SpaceId, region: Region) {
        self.charge(self.prices.zero_page);
        let Some(space) = self.spaces.get_mut(id) else { return };
        let table = Table {
            ptes: [Pte::ZERO_PAGE; REGION_PAGES as usize],
            mapped: REGION_PAGES as u16,
            zero_huge: true,
            ..Table::default()
        };
        space.tables.put_table(region, Box::new(table));
        space.counts.zero_pages += u64::from(REGION_PAGES);
        space.counts.zero_faults += 1;
    }

    /// A zeroed 1 GB page. False: the mapping ends inside that GB, something is mapped there already, or no contiguous GB is free.
    fn populate_giant(&mut self, id: SpaceId, region: Region) -> bool {
        let first = Page(Page::first_of(region).0 / GIANT_PAGES * GIANT_PAGES);
        let Some(space) = self.spaces.get(id) else { return false };
        let vma = space.vmas.find(first.0);
        if !vma.is_some_and(|vma| vma.covers(first.0, first.0 + GIANT_PAGES)) || !space.tables.gb_is_empty(region) {
            return false;
        }
        let page = |nth: u32| Page(first.0 + u64::from(nth) * u64::from(REGION_PAGES));
        let owner = |nth| Owner::Anonymous(id, page(nth));
        let Some(block) = self.giant_block(owner(0), owner) else {
            return false;
        };
        for nth in 0..GIANT_BLOCKS {
            self.zero_block(Hpfn(block.0 + nth));
        }
        if let Some(space) = self.spaces.get_mut(id) {
            space.tables.put_giant(region, block);
            space.counts.huge += u64::from(GIANT_BLOCKS);
            space.counts.resident_pages += GIANT_PAGES;
        }
        true
    }

    /// A zeroed huge page. False: there is no block.
    fn populate_huge(&mut self, id: SpaceId, region: Region, effort: Effort) -> bool {
        let first = Page::first_of(region);
        let loaded = self
            .spaces
            .get(id)
            .is_some_and(|space| space.tables.table_of(region).is_some());
        let Some(block) = self.free_block(effort, Owner::Anonymous(id, first)) else {
            self.count(|counters| counters.thp_fault_fallback += 1);
            return false;
        };
        self.zero_block(block);
        self.count(|counters| counters.thp_fault_alloc += 1);
        if let Some(space) = self.spaces.get_mut(id) {
            if let Some(table) = space.tables.take_table(region) {
                // Only zero pages were in it.
                space.counts.zero_pages -= u64::from(table.mapped);
            }
            space.tables.put_huge(region, Huge::zeroed(block));
            space.counts.huge += 1;
            space.counts.resident_pages += u64::from(REGION_PAGES);
        }
        if loaded {
            self.flush_region(id, region);
        }
        true
    }

    /// A base page: the zero page for a load, else a frame, from the region's reservation if it has one.
    pub(super) fn populate(&mut self, id: SpaceId, page: Page, write: bool) -> Result<(), MachineError> {
        if !write {
            self.charge(self.prices.zero_page);
            self.install(id, page, Pte::ZERO_PAGE);
            if let Some(space) = self.spaces.get_mut(id) {
                space.counts.zero_faults += 1;
            }
            return Ok(());
        }
        let (frame, held) = match self.held_back(id, page) {
            Some(frame) => {
                self.zero(frame);
                (frame, true)
            }
            None => {
                let frame = self.frame(Owner::Anonymous(id, page), true);
                (frame.ok_or(MachineError::NoMemory)?, false)
            }
        };
        if self.spaces.get(id).is_none() {
            // Killed while looking for memory for it.
            self.physical.free(frame, 0);
            return Err(MachineError::NoProcess);
        }
        self.install(id, page, Pte::of(frame, true));
        if held {
            self.populated(id, page.region());
        }
        Ok(())
    }

    /// Writes an entry where there was none or the zero page, and counts it.
    pub(crate) fn install(&mut self, id: SpaceId, page: Page, pte: Pte) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        let table = match space.tables.table_of_mut(page.region()) {
            Some(table) => table,
            None => {
                let at = space.tables.put_table(page.region(), Box::<Table>::default());
                space.tables.table_mut(at)
            }
        };
        let was = std::mem::replace(&mut table.ptes[page.index()], pte);
        if was.is_present() {
            table.mapped -= 1;
            space.counts.zero_pages -= u64::from(was.is_zero_page());
            if was.frame().is_some() {
                table.frames -= 1;
                space.counts.resident_pages -= 1;
            }
        }
        if was.slot().is_some() {
            table.swapped -= 1;
            space.counts.swapped -= 1;
        }
        if pte.is_present() {
            table.mapped += 1;
            space.counts.zero_pages += u64::from(pte.is_zero_page());
            if pte.frame().is_some() {
                table.frames += 1;
                space.counts.resident_pages += 1;
            }
        }
        if pte.slot().is_some() {
            table.swapped += 1;
            space.counts.swapped += 1;
        }
    }
}
