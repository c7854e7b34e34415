//! Reservations: a block set aside for a region, populated page by page.

use mega_core::compaction::block::Hpfn;
use mega_core::fault::{Effort, Reservation, Step};
use mega_core::observe::Region;
use mega_core::units::{BasePages, Time, REGION_PAGES};

use super::Machine;
use crate::physical::Emptied;
use crate::space::{Backing, Huge, Pte, Table};
use crate::unit::{Frame, Owner, Page, SpaceId};

impl Machine {
    /// Reserves a block for a region without frames. False: there is no free block.
    pub(crate) fn reserve(&mut self, id: SpaceId, region: Region, effort: Effort) -> bool {
        let Some(block) = self.free_block(effort, Owner::Reserved(id, region)) else {
            self.counters.reserve_failed += 1;
            return false;
        };
        let now_ns = self.now_ps / 1000;
        let Some(space) = self.spaces.get_mut(id) else {
            return false;
        };
        let table = match space.tables.table_of_mut(region) {
            Some(table) => table,
            None => {
                let at = space.tables.put_table(region, Box::<Table>::default());
                space.tables.table_mut(at)
            }
        };
        table.backing = Backing::Reserved(block);
        table.changed_ns = now_ns;
        self.reservations.insert((now_ns, id, region));
        self.counters.reserved += 1;
        true
    }

    /// Takes the frame reserved for a page, if there is one; it is the page's from now on.
    pub(crate) fn held_back(&mut self, id: SpaceId, page: Page) -> Option<Frame> {
        let table = self.spaces.get(id)?.tables.table_of(page.region())?;
        let Backing::Reserved(block) = table.backing else {
            return None;
        };
        let frame = Frame(Frame::first_of(block).0 + page.index() as u32);
        if self.physical.owner(frame) != Some(Owner::Reserved(id, page.region())) {
            return None;
        }
        self.physical.set_owner(frame, Owner::Anonymous(id, page));
        Some(frame)
    }

    /// A reservation changed: asks the policy, and does what it decides.
    pub(crate) fn populated(&mut self, id: SpaceId, region: Region) {
        let Some(populated) = self.touch_reservation(id, region) else {
            return;
        };
        let Some(process) = self.process_id(id) else { return };
        let step = self.policy.populated(&Reservation {
            process,
            region,
            populated: BasePages(populated.into()),
            changed: Time(self.now_ps / 1000),
        });
        if step == Step::Fill {
            self.fill(id, region);
        }
    }

    /// Records that a reservation changed now. Returns its populated pages; none if there is no reservation.
    pub(crate) fn touch_reservation(&mut self, id: SpaceId, region: Region) -> Option<u16> {
        let now_ns = self.now_ps / 1000;
        let table = self.spaces.get_mut(id)?.tables.table_of_mut(region)?;
        if !matches!(table.backing, Backing::Reserved(_)) {
            return None;
        }
        let was = std::mem::replace(&mut table.changed_ns, now_ns);
        let frames = table.frames;
        self.reservations.remove(&(was, id, region));
        self.reservations.insert((now_ns, id, region));
        Some(frames)
    }

    /// Zeroes the unpopulated part and maps the region huge, in place. False: impossible now (a part is unmapped, in swap, or shared).
    pub(crate) fn fill(&mut self, id: SpaceId, region: Region) -> bool {
        let Some(space) = self.spaces.get(id) else {
            return false;
        };
        let Some(table) = space.tables.table_of(region) else {
            return false;
        };
        let Backing::Reserved(block) = table.backing else {
            return false;
        };
        let first = Frame::first_of(block).0;
        let first_page = Page::first_of(region);
        let shared = |pte: &Pte| pte.has(Pte::PRESENT | Pte::PROTECTED) && !pte.is_zero_page();
        if !space.covers(region) || table.swapped > 0 || table.ptes.iter().any(shared) {
            return false;
        }
        let Some(table) = self.drop_reservation(id, region) else {
            return false;
        };
        let mut huge = Huge::zeroed(block);
        huge.accessed = table.ptes.iter().any(|pte| pte.has(Pte::PRESENT | Pte::ACCESSED));
        let (mut zeroed, mut copied) = (0u64, 0u64);
        for (i, pte) in table.ptes.iter().enumerate() {
            let frame = Frame(first + i as u32);
            match pte.frame() {
                Some(own) if own == frame => {}
                Some(other) => {
                    copied += 1;
                    if let Some(content) = &mut self.content {
                        content.copy(other, frame);
                    }
                    self.physical.free(other, 0);
                }
                None => {
                    zeroed += 1;
                    if let Some(content) = &mut self.content {
                        content.put(frame, 0);
                    }
                }
            }
            huge.set(i, pte.has(Pte::PRESENT | Pte::DIRTY));
            huge.dirty |= pte.has(Pte::PRESENT | Pte::DIRTY);
        }
        self.own_block(block, Owner::Anonymous(id, first_page));
        let bulk = self.prices.zero_bulk * zeroed / u64::from(REGION_PAGES);
        self.charge(bulk + copied * self.prices.copy_base + self.prices.remap_huge + self.prices.shootdown);
        if let Some(space) = self.spaces.get_mut(id) {
            space.counts.resident_pages += u64::from(REGION_PAGES) - u64::from(table.frames);
            space.counts.zero_pages -= u64::from(table.mapped - table.frames);
            space.counts.huge += 1;
            space.tables.put_huge(region, huge);
        }
        self.flush_region(id, region);
        self.counters.reserve_promoted += 1;
        true
    }

    /// Takes a reservation's table away and forgets the reservation; the block stays allocated.
    fn drop_reservation(&mut self, id: SpaceId, region: Region) -> Option<Box<Table>> {
        let table = self.spaces.get_mut(id)?.tables.take_table(region)?;
        self.reservations.remove(&(table.changed_ns, id, region));
        Some(table)
    }

    /// Frees the unpopulated part of a reservation. Returns the block, in which only its populated pages are left.
    pub(crate) fn break_reservation(&mut self, id: SpaceId, region: Region) -> Option<Hpfn> {
        let table = self.spaces.get_mut(id)?.tables.table_of_mut(region)?;
        let Backing::Reserved(block) = table.backing else {
            return None;
        };
        table.backing = Backing::Frames;
        let (changed, empty) = (table.changed_ns, table.is_empty());
        self.reservations.remove(&(changed, id, region));
        if empty {
            self.spaces.get_mut(id)?.tables.take_table(region);
        }
        self.physical.split(Frame::first_of(block));
        let first = Frame::first_of(block).0;
        for frame in (first..first + REGION_PAGES).map(Frame) {
            if self.physical.owner(frame) == Some(Owner::Reserved(id, region)) {
                self.physical.free(frame, 0);
            }
        }
        self.counters.reserve_broken += 1;
        Some(block)
    }

    /// Breaks a reservation and migrates its pages away, so that its block is free. False: there is none, or no room.
    pub(crate) fn evacuate(&mut self, id: SpaceId, region: Region) -> bool {
        let Some(block) = self.break_reservation(id, region) else {
            return false;
        };
        let done = self.with_moves(|physical, mover| physical.empty_block(block, mover));
        self.charge(u64::from(done.moved()) * self.prices.migrate);
        matches!(done, Emptied::Freed { .. } | Emptied::AlreadyFree)
    }

    /// The same within direct compaction, for a process that waits for a block.
    pub(super) fn compact_reservation(&mut self, id: SpaceId, region: Region) {
        let Some(block) = self.break_reservation(id, region) else {
            return;
        };
        let done = self.with_moves(|physical, mover| physical.compact_reserved(block, mover));
        let moved = u64::from(done.moved());
        self.charge(moved * (self.prices.migrate + 2 * self.prices.compact_scan));
    }
}
