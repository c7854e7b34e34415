//! `fork` and exit.

use mega_core::observe::Region;

use super::calls::PAGES;
use super::{Machine, MachineError};
use crate::space::{Entry, Pte};
use crate::unit::{Frame, Owner, Page, SpaceId};

impl Machine {
    /// `fork`: the child has the parent's mappings and shares its memory until one of the two writes. Reservations are broken.
    ///
    /// # Errors
    /// If there are 65,535 processes already.
    pub fn fork(&mut self, id: SpaceId) -> Result<SpaceId, MachineError> {
        self.enter(id)?;
        let child = self.spaces.next_id().ok_or(MachineError::NoMemory)?;
        let parent = self.spaces.get(id).ok_or(MachineError::NoProcess)?;
        let mut space = crate::space::Space::new(child, &parent.name, self.now_ps);
        space.vmas = parent.vmas.clone();
        space.thp_disabled = parent.thp_disabled;
        space.node = parent.node;
        let regions = parent.tables.all_used();
        self.spaces.push(space);
        for region in regions {
            self.break_reservation(id, region);
            self.split_deferred(id, region);
            let price = self.fork_region(id, child, region);
            self.charge(price);
            self.flush_region(id, region);
        }
        if let Some(content) = &mut self.content {
            content.fork(id, child);
        }
        self.leave(id);
        let clock = self.spaces.get(id).map_or(0, |space| space.clock_ps);
        if let Some(space) = self.spaces.get_mut(child) {
            space.clock_ps = clock;
        }
        Ok(child)
    }

    fn share(&mut self, frame: Frame, one: crate::space::Mapper, other: crate::space::Mapper) -> Option<u32> {
        match self.physical.owner(frame) {
            Some(Owner::Shared(key)) => {
                self.sharing.join(key, other);
                None
            }
            _ => Some(self.sharing.add(one, other)),
        }
    }

    fn fork_region(&mut self, id: SpaceId, child: SpaceId, region: Region) -> u64 {
        let first = Page::first_of(region);
        let Some(parent) = self.spaces.get_mut(id) else {
            return 0;
        };
        match parent.tables.get(region) {
            Entry::None => 0,
            Entry::Huge(at) => {
                parent.tables.break_giant(region);
                let huge = parent.tables.huge_mut(at);
                huge.protected = true;
                let copy = huge.clone();
                if let Some(key) = self.share(copy.frame(0), (id, first), (child, first)) {
                    self.own_block(copy.block, Owner::Shared(key));
                }
                if let Some(space) = self.spaces.get_mut(child) {
                    space.tables.put_huge(region, copy);
                    space.counts.huge += 1;
                    space.counts.resident_pages += PAGES;
                }
                self.prices.fork_huge
            }
            Entry::Table(at) => {
                let table = parent.tables.table_mut(at);
                for pte in &mut table.ptes {
                    if pte.is_present() {
                        *pte = pte.with(Pte::PROTECTED);
                    }
                }
                let copy = Box::new(table.clone());
                let mapped = u64::from(copy.mapped);
                for (i, pte) in copy.ptes.iter().enumerate() {
                    let page = Page(first.0 + i as u64);
                    if let Some(slot) = pte.slot() {
                        self.swap.join(slot);
                    }
                    if let Some(frame) = pte.frame() {
                        if let Some(key) = self.share(frame, (id, page), (child, page)) {
                            self.physical.set_owner(frame, Owner::Shared(key));
                        }
                    }
                }
                if let Some(space) = self.spaces.get_mut(child) {
                    space.counts.resident_pages += u64::from(copy.frames);
                    space.counts.zero_pages += u64::from(copy.mapped - copy.frames);
                    space.counts.swapped += u64::from(copy.swapped);
                    space.tables.put_table(region, copy);
                }
                mapped * self.prices.fork_page
            }
        }
    }

    /// A process ends and its memory is freed.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn exit(&mut self, id: SpaceId) -> Result<(), MachineError> {
        let clock = self.spaces.get(id).ok_or(MachineError::NoProcess)?.clock_ps;
        self.reach(clock);
        self.take_bill();
        self.zap(id, Page(0), Page(1 << 36), false);
        let regions = self.spaces.get(id).map_or(Vec::new(), |space| space.tables.all_used());
        for region in regions {
            self.break_reservation(id, region);
        }
        self.take_bill();
        if let Some(space) = self.spaces.take(id) {
            self.unblock(&space);
        }
        if let Some(tlb) = &mut self.tlb {
            tlb.flush_space(id.0.get());
        }
        if let Some(content) = &mut self.content {
            content.exit(id);
        }
        Ok(())
    }
}
