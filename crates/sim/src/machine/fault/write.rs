//! Stores to write-protected pages.

use super::super::{Machine, MachineError};
use crate::space::Pte;
use crate::unit::{Owner, Page, SpaceId};

impl Machine {
    /// A store to a protected base page: the zero page is replaced by a frame, a shared page is copied, one no longer shared is made writable.
    pub(super) fn write_base(&mut self, id: SpaceId, page: Page) -> Result<(), MachineError> {
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        let table = space.tables.table_of_mut(page.region());
        let Some(pte) = table.map(|table| &mut table.ptes[page.index()]) else {
            return Ok(());
        };
        let Some(from) = pte.frame() else {
            self.flush_pages(id, page, 1);
            return self.populate(id, page, true);
        };
        let Some(Owner::Shared(key)) = self.physical.owner(from) else {
            // The other sharers are gone: it is this process's own (do_wp_page's reuse).
            *pte = pte.without(Pte::PROTECTED);
            return Ok(());
        };
        let frame = self
            .frame(Owner::Anonymous(id, page), false)
            .ok_or(MachineError::NoMemory)?;
        // Allocation may have killed a sharer or this process, or swapped the page out: then the access faults again.
        let same = self
            .spaces
            .get(id)
            .and_then(|space| space.tables.table_of(page.region()));
        let same = same.is_some_and(|table| table.ptes[page.index()].frame() == Some(from));
        if !same || self.physical.owner(from) != Some(Owner::Shared(key)) {
            self.physical.free(frame, 0);
            return Ok(());
        }
        if let Some(content) = &mut self.content {
            content.copy(from, frame);
        }
        self.charge(self.prices.copy_base + self.prices.shootdown);
        self.count(|counters| counters.cow += 1);
        self.leave_shared(key, (id, page), from);
        self.install(id, page, Pte::of(frame, true));
        self.flush_pages(id, page, 1);
        Ok(())
    }

    /// A store to a huge page protected since a fork. If it is still shared, it is split (since Linux 5.8 2 MB are not copied here), and the access
    /// faults again on its base page. Linux splits the writer's mapping only; here all sharers' mappings are split, which a short-lived child hardly
    /// notices.
    pub(super) fn write_huge(&mut self, id: SpaceId, page: Page) -> Result<(), MachineError> {
        let region = page.region();
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        let crate::space::Entry::Huge(at) = space.tables.get(region) else {
            return Ok(());
        };
        let huge = space.tables.huge_mut(at);
        let first = huge.frame(0);
        if let Some(Owner::Shared(_)) = self.physical.owner(first) {
            self.split_shared(id, region);
            self.count(|counters| counters.thp_split_pmd += 1);
            self.charge(self.prices.split_mapping);
        } else {
            huge.protected = false;
        }
        Ok(())
    }
}
