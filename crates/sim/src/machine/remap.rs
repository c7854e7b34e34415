//! `mremap`: pages move with their tables where whole regions move.

use mega_core::observe::Region;

use super::calls::{pages, MMAP_END, MMAP_FIRST, PAGES};
use super::{Machine, MachineError};
use crate::space::{Backing, Entry, Flags, Pte, Table};
use crate::unit::{Frame, Owner, Page, SpaceId};

impl Machine {
    /// `mremap` with MREMAP_MAYMOVE: shrinks, grows in place where there is room behind, otherwise moves. Returns the address.
    ///
    /// # Errors
    /// If the range is invalid, spans several mappings, or there is no room.
    pub fn mremap(&mut self, id: SpaceId, address: u64, bytes: u64, new_bytes: u64) -> Result<u64, MachineError> {
        let (from, to) = pages(address, bytes)?;
        let (_, new_to) = pages(address, new_bytes)?;
        self.enter(id)?;
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        let vma = space.vmas.find(from.0).filter(|vma| vma.covers(from.0, to.0));
        let vma = vma.ok_or(MachineError::NotMapped(address))?;
        let result = if new_to <= to {
            if new_to < to {
                self.unmap_pages(id, new_to, to);
            }
            Ok(address)
        } else if vma.end == to.0 && space.vmas.first_in(to.0, new_to.0).is_none() {
            space.vmas.add(to.0, new_to.0, vma.flags);
            Ok(address)
        } else {
            self.move_mapping(id, from, to, new_to.0 - from.0, vma.flags)
        };
        self.leave(id);
        result
    }

    /// Moves pages with their tables to a place with the same offset in its region.
    fn move_mapping(
        &mut self,
        id: SpaceId,
        from: Page,
        to: Page,
        count: u64,
        flags: Flags,
    ) -> Result<u64, MachineError> {
        let offset = from.0 % PAGES;
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        let room = space.vmas.room(count + offset, PAGES, MMAP_FIRST, MMAP_END);
        let target = Page(room.ok_or(MachineError::NoMemory)? + offset);
        space.vmas.remove(from.0, to.0);
        space.vmas.add(target.0, target.0 + count, flags);
        let regions = space.tables.used(from.region(), Region(Page(to.0 - 1).region().0 + 1));
        for region in regions {
            let first = Page::first_of(region).0;
            // The offsets in the region are the same on both sides.
            let there = Region(region.0 + target.region().0 - from.region().0);
            let whole = from.0 <= first && first + PAGES <= to.0;
            let free = self
                .spaces
                .get(id)
                .is_some_and(|space| space.tables.get(there) == Entry::None);
            if whole && free {
                self.move_region(id, region, there);
            } else {
                let (start, end) = (from.0.max(first), to.0.min(first + PAGES));
                self.move_pages(id, region, (start - first) as usize, (end - first) as usize, there);
            }
            self.flush_region(id, region);
            self.drop_unused_reservation(id, region);
        }
        if let Some(content) = &mut self.content {
            content.move_pages(id, from, target, to.0 - from.0);
        }
        Ok(target.address())
    }

    fn move_region(&mut self, id: SpaceId, from: Region, to: Region) {
        let first = Page::first_of(to).0;
        let Some(space) = self.spaces.get_mut(id) else { return };
        if let Some(huge) = space.tables.take_huge(from) {
            let block = huge.block;
            let frame = huge.frame(0);
            space.tables.put_huge(to, huge);
            match self.physical.owner(frame) {
                Some(Owner::Shared(key)) => {
                    self.sharing
                        .move_to(key, (id, Page::first_of(from)), (id, Page::first_of(to)));
                }
                _ => self.own_block(block, Owner::Anonymous(id, Page(first))),
            }
            self.charge(self.prices.unmap);
        } else if let Some(mut table) = space.tables.take_table(from) {
            match table.backing {
                Backing::Frames => {}
                Backing::Whole(block) => self.own_block(block, Owner::Anonymous(id, Page(first))),
                Backing::Reserved(block) => {
                    self.reservations.remove(&(table.changed_ns, id, from));
                    table.changed_ns = self.now_ps / 1000;
                    self.reservations.insert((table.changed_ns, id, to));
                    self.own_block(block, Owner::Reserved(id, to));
                }
            }
            for (i, pte) in table.ptes.iter().enumerate() {
                if let Some(frame) = pte.frame() {
                    self.frame_moved(id, from, to, i, frame);
                }
            }
            if let Some(space) = self.spaces.get_mut(id) {
                space.tables.put_table(to, table);
            }
            self.charge(self.prices.unmap);
        }
    }

    /// A frame is mapped at the same offset of another region now: update its owner.
    fn frame_moved(&mut self, id: SpaceId, from: Region, to: Region, index: usize, frame: Frame) {
        let page = |region| Page(Page::first_of(region).0 + index as u64);
        match self.physical.owner(frame) {
            Some(Owner::Shared(key)) => self.sharing.move_to(key, (id, page(from)), (id, page(to))),
            _ => self.physical.set_owner(frame, Owner::Anonymous(id, page(to))),
        }
    }

    fn move_pages(&mut self, id: SpaceId, from: Region, start: usize, end: usize, to: Region) {
        let huge = self.spaces.get(id).and_then(|space| space.tables.huge_of(from));
        if let Some(huge) = huge {
            match self.physical.owner(huge.frame(0)) {
                Some(Owner::Shared(_)) => self.split_shared(id, from),
                _ => self.split(id, from, false),
            }
        }
        self.split_deferred(id, from);
        self.break_reservation(id, from);
        for i in start..end {
            let table = self.spaces.get(id).and_then(|space| space.tables.table_of(from));
            let Some(pte) = table.map(|table| table.ptes[i]).filter(|pte| !pte.is_none()) else {
                continue;
            };
            let page = |region| Page(Page::first_of(region).0 + i as u64);
            self.install(id, page(from), Pte::NONE);
            self.install(id, page(to), pte);
            if let Some(frame) = pte.frame() {
                self.frame_moved(id, from, to, i, frame);
            }
        }
        self.charge((end - start) as u64 * self.prices.unmap);
        if let Some(space) = self.spaces.get_mut(id) {
            if space.tables.table_of(from).is_some_and(Table::is_empty) {
                space.tables.take_table(from);
            }
        }
    }
}
