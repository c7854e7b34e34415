//! Unmapping in page tables: whole regions at once, parts as the fault policy decides.

use mega_core::fault::{Rest, Unmapped};
use mega_core::observe::Region;
use mega_core::units::{BasePages, REGION_PAGES};

use super::Machine;
use crate::space::{Backing, Entry, Pte, Table};
use crate::unit::{Frame, Owner, Page, SpaceId, BLOCK_ORDER};

const PAGES: u64 = REGION_PAGES as u64;

impl Machine {
    /// Unmaps these pages. `stays_mapped`: the mapping remains (MADV_DONTNEED).
    pub(super) fn zap(&mut self, id: SpaceId, from: Page, to: Page, stays_mapped: bool) {
        let Some(space) = self.spaces.get(id) else { return };
        if from >= to {
            return;
        }
        let last = Page(to.0 - 1).region();
        for region in space.tables.used(from.region(), Region(last.0 + 1)) {
            let first = Page::first_of(region).0;
            let start = from.0.max(first) - first;
            let end = to.0.min(first + PAGES) - first;
            let entry = self.spaces.get(id).map(|space| space.tables.get(region));
            match entry {
                Some(Entry::Huge(_)) if end - start == PAGES => self.zap_huge(id, region),
                Some(Entry::Huge(_)) => self.zap_part(id, region, start as usize, end as usize, stays_mapped),
                Some(Entry::Table(_)) => self.zap_table(id, region, start as usize, end as usize, stays_mapped),
                _ => {}
            }
        }
        if let Some(content) = &mut self.content {
            content.forget(id, from, to);
        }
    }

    /// The memory of a whole huge page is freed.
    fn zap_huge(&mut self, id: SpaceId, region: Region) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        let Some(huge) = space.tables.take_huge(region) else {
            return;
        };
        space.counts.huge -= 1;
        space.counts.resident_pages -= PAGES;
        let first = huge.frame(0);
        match self.physical.owner(first) {
            Some(Owner::Shared(key)) => self.leave_shared_huge(key, (id, Page::first_of(region)), first),
            _ => self.physical.free(first, BLOCK_ORDER),
        }
        self.charge(self.prices.unmap_huge);
        self.flush_region(id, region);
    }

    /// One process fewer shares a huge page.
    fn leave_shared_huge(&mut self, key: u32, mapper: crate::space::Mapper, first: Frame) {
        if let Some((id, page)) = self.sharing.leave(key, mapper) {
            self.own_block(first.block(), Owner::Anonymous(id, page));
        }
    }

    /// A part of a huge page is unmapped.
    fn zap_part(&mut self, id: SpaceId, region: Region, start: usize, end: usize, stays_mapped: bool) {
        let Some(huge) = self.spaces.get(id).and_then(|space| space.tables.huge_of(region)) else {
            return;
        };
        if matches!(self.physical.owner(huge.frame(0)), Some(Owner::Shared(_))) {
            self.split_shared(id, region);
            return self.zap_table(id, region, start, end, stays_mapped);
        }
        let gone = (start..end).filter(|i| huge.holds(*i)).count() as u32;
        let block = huge.block;
        let rest = self.policy.unmapped(&Unmapped {
            left: BasePages(huge.held() - gone),
            huge: true,
            stays_mapped,
        });
        if rest == Rest::Huge && stays_mapped {
            return self.zero_part(id, region, start, end);
        }
        let Some(space) = self.spaces.get_mut(id) else { return };
        let Some(huge) = space.tables.take_huge(region) else {
            return;
        };
        space.counts.huge -= 1;
        let backing = match rest {
            Rest::Deferred => Backing::Whole(block),
            Rest::Reserved => Backing::Reserved(block),
            Rest::Huge | Rest::Broken => Backing::Frames,
        };
        let mut table = huge.to_table(backing);
        let mut returned = 0;
        match backing {
            Backing::Frames => {
                self.physical.split(Frame::first_of(block));
            }
            Backing::Whole(_) => {}
            Backing::Reserved(_) => {
                // What was zeroed in bulk and never written is not populated: it returns to the reservation.
                for (i, pte) in table.ptes.iter_mut().enumerate() {
                    if !huge.holds(i) {
                        *pte = Pte::NONE;
                        self.physical.set_owner(huge.frame(i), Owner::Reserved(id, region));
                        returned += 1;
                    }
                }
                table.changed_ns = self.now_ps / 1000;
                self.reservations.insert((table.changed_ns, id, region));
            }
        }
        table.frames -= returned;
        table.mapped -= returned;
        space.counts.resident_pages -= u64::from(returned);
        space.tables.put_table(region, Box::new(table));
        match rest {
            Rest::Deferred => {
                self.counters.thp_split_pmd += 1;
                self.defer_split(id, region);
            }
            _ => self.counters.thp_split_page += 1,
        }
        self.charge(self.prices.split_mapping);
        self.flush_region(id, region);
        self.zap_table(id, region, start, end, stays_mapped);
    }

    /// A part of a huge page is dropped and zeroed in place.
    fn zero_part(&mut self, id: SpaceId, region: Region, start: usize, end: usize) {
        let Some(Entry::Huge(at)) = self.spaces.get(id).map(|space| space.tables.get(region)) else {
            return;
        };
        let Some(space) = self.spaces.get_mut(id) else { return };
        let huge = space.tables.huge_mut(at);
        for i in start..end {
            huge.set(i, false);
            if let Some(content) = &mut self.content {
                content.put(huge.frame(i), 0);
            }
        }
        self.charge(self.prices.zero_base * (end - start) as u64);
    }

    /// Some pages of a table are unmapped.
    fn zap_table(&mut self, id: SpaceId, region: Region, start: usize, end: usize, stays_mapped: bool) {
        let first = Page::first_of(region).0;
        let mut gone = 0;
        for i in start..end {
            let table = self.spaces.get(id).and_then(|space| space.tables.table_of(region));
            let Some(table) = table else { break };
            let (pte, backing) = (table.ptes[i], table.backing);
            if pte.is_none() {
                continue;
            }
            let page = Page(first + i as u64);
            self.install(id, page, Pte::NONE);
            if let Some(slot) = pte.slot() {
                self.swap.leave(slot);
            }
            if let Some(frame) = pte.frame() {
                gone += 1;
                match backing {
                    Backing::Whole(block) if block == frame.block() => {}
                    Backing::Reserved(block) if block == frame.block() => {
                        self.physical.set_owner(frame, Owner::Reserved(id, region));
                    }
                    _ => self.release(id, page, frame),
                }
            }
        }
        self.flush_pages(id, Page(first + start as u64), (end - start) as u64);
        self.charge(gone * self.prices.unmap);
        self.settle(id, region, gone > 0, stays_mapped);
    }

    /// A table lost pages: what it keeps whole or reserved may have become useless, and an empty table is dropped.
    fn settle(&mut self, id: SpaceId, region: Region, lost: bool, stays_mapped: bool) {
        let table = self.spaces.get(id).and_then(|space| space.tables.table_of(region));
        let Some(table) = table else { return };
        match table.backing {
            Backing::Frames => {}
            Backing::Whole(block) => {
                if !holds_any(table, block) {
                    self.physical.free(Frame::first_of(block), BLOCK_ORDER);
                    if let Some(table) = self.spaces.get_mut(id).and_then(|s| s.tables.table_of_mut(region)) {
                        table.backing = Backing::Frames;
                    }
                }
            }
            Backing::Reserved(block) if lost => {
                let left = BasePages(table.frames.into());
                if !holds_any(table, block) {
                    self.break_reservation(id, region);
                } else {
                    let rest = self.policy.unmapped(&Unmapped {
                        left,
                        huge: false,
                        stays_mapped,
                    });
                    if matches!(rest, Rest::Broken | Rest::Deferred) {
                        self.break_reservation(id, region);
                    } else {
                        self.touch_reservation(id, region);
                    }
                }
            }
            Backing::Reserved(_) => {}
        }
        let space = self.spaces.get_mut(id);
        if let Some(space) = space {
            if space.tables.table_of(region).is_some_and(Table::is_empty) {
                space.tables.take_table(region);
            }
        }
    }

    /// A process no longer maps a frame: it is free, or owned by another that shared it.
    pub(super) fn release(&mut self, id: SpaceId, page: Page, frame: Frame) {
        match self.physical.owner(frame) {
            Some(Owner::Shared(key)) => self.leave_shared(key, (id, page), frame),
            _ => self.physical.free(frame, 0),
        }
    }

    /// One process fewer shares a frame.
    pub(crate) fn leave_shared(&mut self, key: u32, mapper: crate::space::Mapper, frame: Frame) {
        if let Some((id, page)) = self.sharing.leave(key, mapper) {
            self.physical.set_owner(frame, Owner::Anonymous(id, page));
        }
    }
}

fn holds_any(table: &Table, block: mega_core::compaction::block::Hpfn) -> bool {
    table
        .ptes
        .iter()
        .any(|pte| pte.frame().is_some_and(|frame| frame.block() == block))
}
