//! Base pages to a huge page, and back: Linux's MADV_COLLAPSE and a partial MADV_COLD.

use mega_core::fault::Effort;
use mega_core::observe::Region;
use mega_core::units::REGION_PAGES;

use super::Machine;
use crate::space::{Backing, Entry, Huge, Pte, Table};
use crate::unit::{Frame, Owner, Page, SpaceId};

/// Why a region stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No block.
    NoMemory,
    /// Its mapping does not allow it, or there is nothing to promote (EINVAL).
    Refused,
    /// No such process or mapping.
    Gone,
}

impl Machine {
    /// Promotes a region: copies its pages into a block (or fills its reservation in place) and maps that. The cost goes on the bill.
    ///
    /// # Errors
    /// If its mapping forbids it, nothing is mapped in it, or no block can be found.
    pub(crate) fn collapse(&mut self, id: SpaceId, region: Region, effort: Effort) -> Result<(), Refusal> {
        self.unlocked_ps = 0;
        self.charge(self.prices.syscall);
        let space = self.spaces.get(id).ok_or(Refusal::Gone)?;
        let can = space.can(region).ok_or(Refusal::Gone)?;
        if !can.promote {
            return Err(Refusal::Refused);
        }
        let backing = match space.tables.get(region) {
            Entry::None => return Err(Refusal::Refused),
            Entry::Huge(_) => return Ok(()),
            Entry::Table(at) => space.tables.table(at).backing,
        };
        if matches!(backing, Backing::Reserved(_)) {
            if self.fill(id, region) {
                return Ok(());
            }
            self.break_reservation(id, region);
        }
        self.swap_in_region(id, region)?;
        let first_page = Page::first_of(region);
        let block = self.free_block(effort, Owner::Anonymous(id, first_page));
        self.unlocked_ps = self.bill_ps;
        let Some(block) = block else {
            self.counters.thp_collapse_alloc_failed += 1;
            return Err(Refusal::NoMemory);
        };
        let table = self
            .spaces
            .get_mut(id)
            .and_then(|space| space.tables.take_table(region));
        let Some(table) = table else {
            // Direct compaction may have broken its reservation, never removed its table; an empty one is dropped with it.
            self.physical.free(Frame::first_of(block), crate::unit::BLOCK_ORDER);
            return Err(Refusal::Refused);
        };
        self.copy_into(id, region, block, &table);
        self.counters.thp_collapse_alloc += 1;
        self.flush_region(id, region);
        Ok(())
    }

    fn copy_into(&mut self, id: SpaceId, region: Region, block: mega_core::compaction::block::Hpfn, table: &Table) {
        let first_page = Page::first_of(region);
        let whole = match table.backing {
            Backing::Whole(block) => Some(block),
            _ => None,
        };
        let mut huge = Huge::zeroed(block);
        let mut missing = 0;
        for (i, pte) in table.ptes.iter().enumerate() {
            let to = huge.frame(i);
            match pte.frame() {
                Some(from) => {
                    if let Some(content) = &mut self.content {
                        content.copy(from, to);
                    }
                    huge.set(i, pte.has(Pte::DIRTY));
                    huge.dirty |= pte.has(Pte::DIRTY);
                    if whole != Some(from.block()) {
                        self.release(id, Page(first_page.0 + i as u64), from);
                    }
                }
                None => {
                    missing += 1;
                    if let Some(content) = &mut self.content {
                        content.put(to, 0);
                    }
                }
            }
        }
        if let Some(whole) = whole {
            self.physical.free(Frame::first_of(whole), crate::unit::BLOCK_ORDER);
        }
        let copied = u64::from(REGION_PAGES) - missing;
        self.charge(self.prices.collapse + copied * self.prices.collapse_page + self.prices.shootdown);
        if let Some(space) = self.spaces.get_mut(id) {
            space.counts.resident_pages += missing;
            space.counts.zero_pages -= u64::from(table.mapped - table.frames);
            space.counts.huge += 1;
            space.tables.put_huge(region, huge);
        }
    }

    /// Demotes a region: splits its huge page, and frees its zero-filled base pages where the kernel does that. Huge pages shared after a fork are
    /// skipped, as on Linux. The cost goes on the bill.
    ///
    /// # Errors
    /// If its mapping forbids it, or there is no huge page.
    pub(crate) fn demote(&mut self, id: SpaceId, region: Region) -> Result<(), Refusal> {
        self.charge(self.prices.syscall);
        let space = self.spaces.get(id).ok_or(Refusal::Gone)?;
        let can = space.can(region).ok_or(Refusal::Gone)?;
        if !can.demote {
            return Err(Refusal::Refused);
        }
        let Some(huge) = space.tables.huge_of(region) else {
            self.split_deferred(id, region);
            return Ok(());
        };
        if matches!(self.physical.owner(huge.frame(0)), Some(Owner::Shared(_))) {
            return Ok(());
        }
        self.split(id, region, self.split_frees);
        Ok(())
    }

    /// Splits a huge page that is not shared.
    pub(crate) fn split(&mut self, id: SpaceId, region: Region, give_back: bool) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        let Some(huge) = space.tables.take_huge(region) else {
            return;
        };
        let mut table = huge.to_table(Backing::Frames);
        self.physical.split(Frame::first_of(huge.block));
        let mut freed = 0;
        if give_back {
            for (i, pte) in table.ptes.iter_mut().enumerate() {
                if !huge.holds(i) {
                    *pte = Pte::ZERO_PAGE;
                    self.physical.free(huge.frame(i), 0);
                    freed += 1;
                }
            }
        }
        table.frames -= freed;
        space.counts.huge -= 1;
        space.counts.resident_pages -= u64::from(freed);
        space.counts.zero_pages += u64::from(freed);
        space.tables.put_table(region, Box::new(table));
        self.counters.thp_split_page += 1;
        self.counters.zero_freed += u64::from(freed);
        self.charge(self.prices.split + self.prices.shootdown);
        self.flush_region(id, region);
    }

    /// Splits a huge page for all its sharers: its base pages are then shared one by one.
    pub(crate) fn split_shared(&mut self, id: SpaceId, region: Region) {
        let Some(huge) = self.spaces.get(id).and_then(|space| space.tables.huge_of(region)) else {
            return;
        };
        let (first, block) = (huge.frame(0), huge.block);
        let Some(Owner::Shared(key)) = self.physical.owner(first) else {
            return;
        };
        let mappers = self.sharing.mappers(key).to_vec();
        self.sharing.forget(key);
        self.physical.split(Frame::first_of(block));
        for i in 0..u64::from(REGION_PAGES) {
            let at = |mapper: &crate::space::Mapper| (mapper.0, Page(mapper.1 .0 + i));
            let frame = Frame(first.0 + i as u32);
            let owner = match mappers.as_slice() {
                [] => continue,
                [one] => Owner::Anonymous(one.0, Page(one.1 .0 + i)),
                [one, other, rest @ ..] => {
                    let key = self.sharing.add(at(one), at(other));
                    rest.iter().for_each(|mapper| self.sharing.join(key, at(mapper)));
                    Owner::Shared(key)
                }
            };
            self.physical.set_owner(frame, owner);
        }
        for (space_id, page) in mappers {
            let region = page.region();
            if let Some(space) = self.spaces.get_mut(space_id) {
                if let Some(huge) = space.tables.take_huge(region) {
                    space.counts.huge -= 1;
                    space.tables.put_table(region, Box::new(huge.to_table(Backing::Frames)));
                }
            }
            self.flush_region(space_id, region);
        }
        self.counters.thp_split_page += 1;
    }

    /// Splits memory that was kept whole: what is no longer mapped is freed. Returns whether there was any.
    pub(crate) fn split_deferred(&mut self, id: SpaceId, region: Region) -> bool {
        let table = self
            .spaces
            .get_mut(id)
            .and_then(|space| space.tables.table_of_mut(region));
        let Some(table) = table else { return false };
        let Backing::Whole(block) = table.backing else {
            return false;
        };
        table.backing = Backing::Frames;
        self.physical.split(Frame::first_of(block));
        for (i, pte) in table.ptes.iter().enumerate() {
            let frame = Frame(Frame::first_of(block).0 + i as u32);
            if pte.frame() != Some(frame) {
                self.physical.free(frame, 0);
            }
        }
        if table.is_empty() {
            if let Some(space) = self.spaces.get_mut(id) {
                space.tables.take_table(region);
            }
        }
        self.counters.thp_split_page += 1;
        self.charge(self.prices.split_mapping);
        true
    }

    /// Splits the mapping of a huge page of which a mapping begins or ends in the middle; its memory stays whole (`vma_adjust_trans_huge`).
    pub(super) fn split_at(&mut self, id: SpaceId, page: Page) {
        let region = page.region();
        let Some(space) = self.spaces.get_mut(id) else { return };
        let Some(huge) = space.tables.huge_of(region) else {
            return;
        };
        if space.covers(region) {
            return;
        }
        let (block, first) = (huge.block, huge.frame(0));
        if matches!(self.physical.owner(first), Some(Owner::Shared(_))) {
            self.split_shared(id, region);
        } else {
            let Some(huge) = space.tables.take_huge(region) else {
                return;
            };
            space
                .tables
                .put_table(region, Box::new(huge.to_table(Backing::Whole(block))));
            space.counts.huge -= 1;
            // Under pressure it is split for good, so that its pages can be swapped one by one.
            self.deferred.push_back((id, region));
            self.flush_region(id, region);
        }
        self.counters.thp_split_pmd += 1;
        self.charge(self.prices.split_mapping);
    }

    /// Notes that a region's memory is more than what is mapped of it.
    pub(super) fn defer_split(&mut self, id: SpaceId, region: Region) {
        self.deferred.push_back((id, region));
        self.counters.thp_deferred_split_page += 1;
    }
}
