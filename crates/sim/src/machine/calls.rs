//! System calls: mmap, munmap, madvise, mlock. Each advances the caller's clock by its cost, and waits for its mmap lock.

use mega_core::fault::{Effort, HugeAdvice};
use mega_core::observe::Region;
use mega_core::units::REGION_PAGES;

use super::fault::GIANT_PAGES;
use super::{Machine, MachineError};
use crate::space::{Entry, Flags, Pte};
use crate::unit::{Owner, Page, SpaceId, BASE_PAGE_BITS};

/// Where the search for address space starts, upwards. Not Linux's top-down order: only adjacency matters here.
pub(super) const MMAP_FIRST: u64 = 0x1000_0000_0000 >> BASE_PAGE_BITS;
pub(super) const MMAP_END: u64 = 0x7fff_0000_0000 >> BASE_PAGE_BITS;
pub(super) const PAGES: u64 = REGION_PAGES as u64;
const PAGE_BYTES: u64 = 1 << BASE_PAGE_BITS;

/// The advice given to `madvise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Madvise {
    /// MADV_HUGEPAGE.
    Huge,
    /// MADV_NOHUGEPAGE.
    NoHuge,
    /// MADV_DONTNEED: drop it now.
    DontNeed,
    /// MADV_FREE: drop it when memory is short.
    Free,
    /// MADV_COLD: clear its accessed bits; a huge page only partly in the range is split.
    Cold,
    /// MADV_COLLAPSE: promote it now.
    Collapse,
}

/// Pages of a range: both ends aligned, inside the address space.
pub(super) fn pages(address: u64, bytes: u64) -> Result<(Page, Page), MachineError> {
    let bad = MachineError::BadRange { address, bytes };
    let bytes = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(bad)?;
    let end = address.checked_add(bytes).ok_or(bad)?;
    let fine = address % PAGE_BYTES == 0 && bytes > 0 && end >> BASE_PAGE_BITS <= MMAP_END;
    fine.then_some((Page::at(address), Page::at(end))).ok_or(bad)
}

impl Machine {
    /// Begins a call: waits for the mmap lock. Returns the space.
    pub(super) fn enter(&mut self, id: SpaceId) -> Result<(), MachineError> {
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        space.wait_for_lock();
        let now = space.clock_ps;
        self.reach(now);
        self.take_bill();
        self.charge(self.prices.syscall);
        Ok(())
    }

    pub(super) fn leave(&mut self, id: SpaceId) {
        let bill = self.take_bill();
        if let Some(space) = self.spaces.get_mut(id) {
            space.clock_ps += bill;
        }
        self.run_due(id);
    }

    /// Maps so many bytes of anonymous memory where there is room; returns the address. `apart`: aligned to a region, with at least one unmapped
    /// page on either side, so that it is a mapping of its own.
    ///
    /// # Errors
    /// When the length is 0 or there is no room.
    pub fn mmap(&mut self, id: SpaceId, bytes: u64, apart: bool) -> Result<u64, MachineError> {
        let (_, end) = pages(MMAP_FIRST << BASE_PAGE_BITS, bytes)?;
        let count = end.0 - MMAP_FIRST;
        self.enter(id)?;
        self.charge(self.prices.mmap);
        let aligned = apart || (self.align_mappings && count >= PAGES);
        let align = match aligned {
            _ if count >= GIANT_PAGES && self.policy.maps_giant() => GIANT_PAGES,
            true => PAGES,
            false => 1,
        };
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        let start = if apart {
            // A gap that begins earlier and ends a page later.
            let room = space.vmas.room(count + align + 1, align, MMAP_FIRST, MMAP_END);
            room.map(|at| at + align)
        } else {
            space.vmas.room(count, align, MMAP_FIRST, MMAP_END)
        };
        let start = start.ok_or(MachineError::NoMemory)?;
        space.vmas.add(start, start + count, Flags::default());
        self.leave(id);
        Ok(Page(start).address())
    }

    /// Maps so many bytes at this address, replacing what was mapped there (MAP_FIXED).
    ///
    /// # Errors
    /// If the range is invalid.
    pub fn mmap_at(&mut self, id: SpaceId, address: u64, bytes: u64) -> Result<(), MachineError> {
        let (from, to) = pages(address, bytes)?;
        self.enter(id)?;
        self.unmap_pages(id, from, to);
        if let Some(space) = self.spaces.get_mut(id) {
            space.vmas.add(from.0, to.0, Flags::default());
        }
        self.leave(id);
        Ok(())
    }

    /// Unmaps; holes are skipped.
    ///
    /// # Errors
    /// If the range is invalid.
    pub fn munmap(&mut self, id: SpaceId, address: u64, bytes: u64) -> Result<(), MachineError> {
        let (from, to) = pages(address, bytes)?;
        self.enter(id)?;
        self.charge(self.prices.mmap);
        self.unmap_pages(id, from, to);
        self.leave(id);
        Ok(())
    }

    pub(super) fn unmap_pages(&mut self, id: SpaceId, from: Page, to: Page) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        let parts = space.vmas.remove(from.0, to.0);
        for part in parts {
            self.zap(id, Page(part.start), Page(part.end), false);
        }
        // Reservations beyond the end of the rest are useless.
        for region in [from.region(), Page(to.0 - 1).region()] {
            self.drop_unused_reservation(id, region);
        }
    }

    /// A reservation in a region without any mapping is dropped.
    pub(super) fn drop_unused_reservation(&mut self, id: SpaceId, region: Region) {
        let first = Page::first_of(region).0;
        let Some(space) = self.spaces.get(id) else { return };
        if space.vmas.first_in(first, first + PAGES).is_none() {
            self.break_reservation(id, region);
        }
    }

    /// `mlock` or `munlock`: sets the flag only, populates nothing.
    ///
    /// # Errors
    /// If the range is invalid or has holes.
    pub fn mlock(&mut self, id: SpaceId, address: u64, bytes: u64, locked: bool) -> Result<(), MachineError> {
        let (from, to) = pages(address, bytes)?;
        self.enter(id)?;
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        let whole = space.vmas.set(from.0, to.0, |flags| flags.locked = locked);
        self.split_at(id, from);
        self.split_at(id, Page(to.0 - 1));
        self.leave(id);
        whole.then_some(()).ok_or(MachineError::NotMapped(address))
    }

    /// `prctl(PR_SET_THP_DISABLE)`.
    pub fn disable_thp(&mut self, id: SpaceId, disabled: bool) {
        if let Some(space) = self.spaces.get_mut(id) {
            space.thp_disabled = disabled;
        }
    }

    /// `madvise`.
    ///
    /// # Errors
    /// If the range is invalid or has holes, or a collapse finds no block.
    pub fn madvise(&mut self, id: SpaceId, address: u64, bytes: u64, advice: Madvise) -> Result<(), MachineError> {
        let (from, to) = pages(address, bytes)?;
        self.enter(id)?;
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        let set = |space: &mut crate::space::Space, advice| space.vmas.set(from.0, to.0, |f| f.advice = advice);
        // Linux does what it can and returns ENOMEM for a hole.
        let whole = match advice {
            Madvise::Huge => set(space, HugeAdvice::Huge),
            Madvise::NoHuge => set(space, HugeAdvice::NoHuge),
            _ => covered(space, from, to),
        };
        let mut worked = Ok(());
        match advice {
            Madvise::Huge | Madvise::NoHuge => {
                self.split_at(id, from);
                self.split_at(id, Page(to.0 - 1));
            }
            Madvise::DontNeed => self.for_mapped(id, from, to, |m, from, to| m.zap(id, from, to, true)),
            Madvise::Free => self.for_mapped(id, from, to, |m, from, to| m.free_lazily(id, from, to)),
            Madvise::Cold => self.for_mapped(id, from, to, |m, from, to| m.cold(id, from, to)),
            Madvise::Collapse => {
                let first = from.0.div_ceil(PAGES);
                for region in (first..to.0 / PAGES).map(Region) {
                    if self.collapse(id, region, Effort::Hard) == Err(super::Refusal::NoMemory) {
                        worked = Err(MachineError::NoMemory);
                        break;
                    }
                }
            }
        }
        self.leave(id);
        if whole {
            worked
        } else {
            Err(MachineError::NotMapped(address))
        }
    }

    fn for_mapped(&mut self, id: SpaceId, from: Page, to: Page, mut work: impl FnMut(&mut Self, Page, Page)) {
        let mut at = from.0;
        while let Some(vma) = self.spaces.get(id).and_then(|space| space.vmas.first_in(at, to.0)) {
            work(self, Page(vma.start.max(at)), Page(vma.end.min(to.0)));
            at = vma.end;
            if at >= to.0 {
                break;
            }
        }
    }

    /// MADV_FREE: pages not shared become clean, and clean pages are dropped when memory is short. A part of a huge page splits it (Linux splits the
    /// folio); a whole one stays as it is, which Linux would free lazily too.
    fn free_lazily(&mut self, id: SpaceId, from: Page, to: Page) {
        let Some(space) = self.spaces.get(id) else { return };
        let mut pages = 0;
        for region in space.tables.used(from.region(), Region(Page(to.0 - 1).region().0 + 1)) {
            let first = Page::first_of(region).0;
            let (start, end) = (from.0.max(first), to.0.min(first + PAGES));
            let huge = self.spaces.get(id).and_then(|space| space.tables.huge_of(region));
            if let Some(huge) = huge {
                let shared = matches!(self.physical.owner(huge.frame(0)), Some(Owner::Shared(_)));
                if shared || end - start == PAGES {
                    continue;
                }
                self.split(id, region, false);
            }
            let Some(table) = self
                .spaces
                .get_mut(id)
                .and_then(|space| space.tables.table_of_mut(region))
            else {
                continue;
            };
            for i in start - first..end - first {
                let pte = &mut table.ptes[i as usize];
                if pte.frame().is_some() && !pte.has(Pte::PROTECTED) {
                    *pte = pte.without(Pte::DIRTY | Pte::ACCESSED);
                    pages += 1;
                    if let Some(content) = &mut self.content {
                        content.free_lazily(id, Page(first + i), Page(first + i + 1));
                    }
                }
            }
            self.flush_region(id, region);
        }
        self.charge(pages * self.prices.madvise_page);
    }

    /// MADV_COLD by the program itself.
    fn cold(&mut self, id: SpaceId, from: Page, to: Page) {
        let Some(space) = self.spaces.get(id) else { return };
        for region in space.tables.used(from.region(), Region(Page(to.0 - 1).region().0 + 1)) {
            let first = Page::first_of(region).0;
            if from.0 > first || to.0 < first + PAGES {
                // Refused and shared regions stay as they are, as on Linux.
                let _ = self.demote(id, region);
            } else {
                self.age_region(id, region);
            }
        }
    }

    /// Clears a region's accessed bits; the cost goes on the bill. None: nothing is mapped, or a shared huge page.
    pub(crate) fn age_region(&mut self, id: SpaceId, region: Region) -> Option<()> {
        let space = self.spaces.get_mut(id)?;
        let price = match space.tables.get(region) {
            Entry::None => return None,
            Entry::Huge(at) => {
                let huge = space.tables.huge_mut(at);
                if matches!(self.physical.owner(huge.frame(0)), Some(Owner::Shared(_))) {
                    return None;
                }
                huge.accessed = false;
                self.prices.clear_huge
            }
            Entry::Table(at) => u64::from(space.tables.table_mut(at).age()) * self.prices.clear_page,
        };
        self.charge(price);
        self.flush_region(id, region);
        Some(())
    }
}

/// Everything in the range is mapped.
fn covered(space: &crate::space::Space, from: Page, to: Page) -> bool {
    let mut at = from.0;
    while at < to.0 {
        match space.vmas.find(at) {
            Some(vma) => at = vma.end,
            None => return false,
        }
    }
    true
}
