//! Page faults: the machine carries out what the fault policy decides ([`mega_core::fault`]).
//!
//! | file | subject |
//! | --- | --- |
//! | this one | the kind of a fault; its time |
//! | `populate` | first touches: base pages, huge pages, reservations, the zero page |
//! | `write` | stores to write-protected pages: the zero page, and pages shared after a fork |

mod populate;
mod write;

pub(crate) use populate::GIANT_PAGES;

use super::{Machine, MachineError};
use crate::space::{Entry, Pte};
use crate::unit::{Page, SpaceId};

impl Machine {
    /// Handles the fault of an access to this page. The process's clock advances by its cost.
    ///
    /// # Errors
    /// If nothing is mapped there, or memory is out.
    #[cold]
    #[inline(never)]
    pub(crate) fn fault(&mut self, id: SpaceId, page: Page, write: bool) -> Result<(), MachineError> {
        let began = self.enter_fault(id, page)?;
        self.charge(self.prices.fault);
        let region = page.region();
        let space = self.spaces.get(id).ok_or(MachineError::NoProcess)?;
        let done = match space.tables.get(region) {
            Entry::Huge(_) => self.write_huge(id, page),
            Entry::None => self.first_fault(id, page, write),
            Entry::Table(at) => {
                let table = space.tables.table(at);
                let pte = table.ptes[page.index()];
                if let Some(slot) = pte.slot() {
                    self.swap_in(id, page, slot)
                } else if table.zero_huge && table.frames == 0 && write {
                    self.flush_region(id, region);
                    self.first_fault(id, page, write)
                } else if pte.is_present() && pte.has(Pte::PROTECTED) {
                    self.write_base(id, page)
                } else if table.frames == 0 && table.backing.block().is_none() && write {
                    self.first_fault(id, page, write)
                } else {
                    self.populate(id, page, write)
                }
            }
        };
        self.leave_fault(id, began);
        done
    }

    /// Waits for the mmap lock. Returns when the fault began, in ps.
    fn enter_fault(&mut self, id: SpaceId, page: Page) -> Result<u64, MachineError> {
        let space = self.spaces.get_mut(id).ok_or(MachineError::NoProcess)?;
        if space.vmas.find(page.0).is_none() {
            space.counts.bad_accesses += 1;
            return Err(MachineError::NotMapped(page.address()));
        }
        let began = space.clock_ps;
        space.wait_for_lock();
        let now = space.clock_ps;
        self.reach(now);
        self.take_bill();
        Ok(began)
    }

    fn leave_fault(&mut self, id: SpaceId, began: u64) {
        let bill = self.take_bill();
        if let Some(space) = self.spaces.get_mut(id) {
            space.clock_ps += bill;
            let took = (space.clock_ps - began) / 1000;
            space.counts.faults += 1;
            space.counts.fault_ns += took;
            self.count_fault(took);
        }
    }
}
