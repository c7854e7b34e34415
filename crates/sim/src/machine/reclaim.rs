//! Reclaim: lazily freed memory first, then the page cache, then idle reservations, then swapping, and finally the OOM killer.
//!
//! Simplified against Linux: no kswapd and no LRU lists; pages to swap out are found by a clock with a second chance over all page tables.

use mega_core::observe::Region;

use super::{Machine, MachineError, Refusal, Swap};
use crate::space::{Backing, Pte};
use crate::unit::{Owner, Page, SpaceId};

/// Page cache dropped at once, in base pages (SWAP_CLUSTER_MAX is 32; more at a time is only faster to simulate).
const CACHE_BATCH: u64 = 256;

impl Swap {
    /// A free slot.
    fn take(&mut self, version: u32) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            self.versions[slot as usize] = version;
            self.users[slot as usize] = 1;
            return Some(slot);
        }
        let slot = u32::try_from(self.users.len()).ok().filter(|slot| *slot < self.most)?;
        self.versions.push(version);
        self.users.push(1);
        Some(slot)
    }

    /// One more page table refers to it.
    pub(super) fn join(&mut self, slot: u32) {
        self.users[slot as usize] += 1;
    }

    /// One fewer refers to it.
    pub(super) fn leave(&mut self, slot: u32) {
        let users = &mut self.users[slot as usize];
        *users -= 1;
        if *users == 0 {
            self.free.push(slot);
        }
    }

    /// What it holds, for the content model.
    pub(super) fn version(&self, slot: u32) -> u32 {
        self.versions[slot as usize]
    }

    pub(super) fn used(&self) -> usize {
        self.users.len() - self.free.len()
    }

    pub(super) fn users(&self, slot: u32) -> u32 {
        self.users.get(slot as usize).copied().unwrap_or(0)
    }
}

impl Machine {
    /// Frees at least `wanted` base pages if it can. False: nothing more can be freed.
    pub(super) fn reclaim(&mut self, wanted: u64) -> bool {
        let before = self.physical.free_bytes();
        if self.split_oldest_deferred()
            || self.drop_cache(CACHE_BATCH.max(wanted))
            || self.break_oldest_reservation()
            || self.swap_out(wanted) > 0
        {
            return true;
        }
        self.kill_largest();
        self.physical.free_bytes() > before
    }

    pub(super) fn drop_cache(&mut self, pages: u64) -> bool {
        let dropped = self.physical.drop_cache(pages * mega_core::units::BASE_PAGE_BYTES);
        self.counters.cache_dropped += dropped / mega_core::units::BASE_PAGE_BYTES;
        dropped > 0
    }

    fn split_oldest_deferred(&mut self) -> bool {
        while let Some((id, region)) = self.deferred.pop_front() {
            if self.split_deferred(id, region) {
                return true;
            }
        }
        false
    }

    fn break_oldest_reservation(&mut self) -> bool {
        // A full reservation has nothing to free.
        let oldest = self.reservations.iter().copied().find(|(_, id, region)| {
            let table = self.spaces.get(*id).and_then(|space| space.tables.table_of(*region));
            table.is_some_and(|table| u32::from(table.frames) < mega_core::units::REGION_PAGES)
        });
        oldest.is_some_and(|(_, id, region)| self.break_reservation(id, region).is_some())
    }

    /// The region after the one where the search stopped, of any process.
    pub(super) fn next_region(&self, at: Option<(SpaceId, Region)>) -> Option<(SpaceId, Region)> {
        let from = at.map_or((SpaceId(std::num::NonZeroU16::MIN), Region(0)), |(id, region)| {
            (id, Region(region.0 + 1))
        });
        let in_space =
            |space: &crate::space::Space, from| space.tables.next_used(from).map(|region| (space.id, region));
        let rest = self.spaces.get(from.0).and_then(|space| in_space(space, from.1));
        rest.or_else(|| {
            let after = self.spaces.iter().filter(|space| space.id > from.0);
            after.filter_map(|space| in_space(space, Region(0))).next()
        })
        .or_else(|| self.spaces.iter().filter_map(|space| in_space(space, Region(0))).next())
    }

    /// Drops clean pages and writes others to swap. Returns how many.
    fn swap_out(&mut self, wanted: u64) -> u64 {
        let mut freed = 0;
        // Twice round clears every accessed bit and comes back.
        let regions: usize = self.spaces.iter().map(|space| space.tables.len()).sum();
        for _ in 0..2 * regions + 2 {
            if freed >= wanted {
                break;
            }
            let Some((id, region)) = self.next_region(self.swap_at) else {
                break;
            };
            self.swap_at = Some((id, region));
            let locked = |space: &crate::space::Space| {
                space
                    .can(region)
                    .is_none_or(|can| can.why == Some(mega_core::observe::Why::Mlocked))
            };
            if self.spaces.get(id).is_none_or(locked) {
                continue;
            }
            let huge = self.spaces.get(id).and_then(|space| space.tables.huge_of(region));
            if let Some(huge) = huge {
                let shared = matches!(self.physical.owner(huge.frame(0)), Some(Owner::Shared(_)));
                let accessed = huge.accessed;
                // Splitting frees zero-filled base pages; without swap, that is its only use.
                let useful = (self.split_frees && huge.held() < mega_core::units::REGION_PAGES) || self.swap_room();
                if shared || !useful {
                    continue;
                }
                if accessed {
                    self.age_region(id, region);
                    continue;
                }
                let before = self.counters.zero_freed;
                self.split(id, region, self.split_frees);
                freed += self.counters.zero_freed - before;
            }
            freed += self.swap_out_region(id, region, wanted.saturating_sub(freed));
        }
        freed
    }

    fn swap_room(&self) -> bool {
        self.swap.used() < self.swap.most as usize
    }

    fn swap_out_region(&mut self, id: SpaceId, region: Region, wanted: u64) -> u64 {
        let table = self.spaces.get(id).and_then(|space| space.tables.table_of(region));
        // What is kept whole or reserved was handled before.
        if table.is_none_or(|table| table.backing != Backing::Frames) {
            return 0;
        }
        let first = Page::first_of(region).0;
        let mut freed = 0;
        for i in 0..mega_core::units::REGION_PAGES as usize {
            let table = self
                .spaces
                .get_mut(id)
                .and_then(|space| space.tables.table_of_mut(region));
            let Some(table) = table else { break };
            if freed >= wanted {
                break;
            }
            let pte = table.ptes[i];
            let Some(frame) = pte.frame().filter(|_| !pte.has(Pte::PROTECTED)) else {
                continue;
            };
            if pte.has(Pte::ACCESSED) {
                table.ptes[i] = pte.without(Pte::ACCESSED);
                continue;
            }
            let page = Page(first + i as u64);
            let new = if pte.has(Pte::DIRTY) {
                let version = self.content.as_ref().map_or(0, |content| content.of(frame));
                let Some(slot) = self.swap.take(version) else { continue };
                self.counters.pswpout += 1;
                self.charge(self.prices.swap_out);
                Pte::swapped(slot)
            } else {
                self.counters.pglazyfreed += 1;
                Pte::NONE
            };
            self.install(id, page, new);
            self.flush_pages(id, page, 1);
            self.physical.free(frame, 0);
            freed += 1;
        }
        if let Some(space) = self.spaces.get_mut(id) {
            if space.tables.table_of(region).is_some_and(crate::space::Table::is_empty) {
                space.tables.take_table(region);
            }
        }
        freed
    }

    /// Reads a page from swap.
    pub(crate) fn swap_in(&mut self, id: SpaceId, page: Page, slot: u32) -> Result<(), MachineError> {
        let held = self.held_back(id, page);
        let frame = match held {
            Some(frame) => frame,
            None => self
                .frame(Owner::Anonymous(id, page), false)
                .ok_or(MachineError::NoMemory)?,
        };
        let table = self
            .spaces
            .get(id)
            .and_then(|space| space.tables.table_of(page.region()));
        if table.is_none_or(|table| table.ptes[page.index()].slot() != Some(slot)) {
            // Killed while looking for memory.
            self.physical.free(frame, 0);
            return Err(MachineError::NoProcess);
        }
        if let Some(content) = &mut self.content {
            content.put(frame, self.swap.version(slot));
        }
        self.install(id, page, Pte::of(frame, true));
        self.swap.leave(slot);
        self.counters.pswpin += 1;
        self.counters.pgmajfault += 1;
        self.charge(self.prices.swap_in);
        Ok(())
    }

    /// Reads all of a region from swap, as a collapse does.
    pub(super) fn swap_in_region(&mut self, id: SpaceId, region: Region) -> Result<(), Refusal> {
        let first = Page::first_of(region).0;
        for i in 0..mega_core::units::REGION_PAGES as usize {
            let table = self.spaces.get(id).and_then(|space| space.tables.table_of(region));
            let Some(table) = table.filter(|table| table.swapped > 0) else {
                return Ok(());
            };
            if let Some(slot) = table.ptes[i].slot() {
                self.swap_in(id, Page(first + i as u64), slot)
                    .map_err(|_| Refusal::NoMemory)?;
            }
        }
        Ok(())
    }

    /// Kills the process with the most memory.
    fn kill_largest(&mut self) {
        let largest = self
            .spaces
            .iter()
            .max_by_key(|space| (space.counts.resident_pages, space.id));
        let Some(id) = largest
            .filter(|space| space.counts.resident_pages > 0)
            .map(|space| space.id)
        else {
            return;
        };
        let bill = self.bill_ps;
        if self.exit(id).is_ok() {
            self.counters.oom_kill += 1;
        }
        self.bill_ps = bill;
    }
}
