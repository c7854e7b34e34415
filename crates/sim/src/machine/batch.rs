//! Many accesses of a process at once.
//!
//! As long as no access faults and nothing else is due on the machine, the effects of an access on the page table, on the TLB and on the clock
//! are independent. So all accesses of a batch go through the page tables, then all through the TLB ([`crate::tlb::batch`]), and the clock
//! advances by the sum. Where a fault is needed, an event could be due, a region is being collapsed or contents are checked, the caller
//! makes the next access by [`Machine::access`] and then tries again.

use super::Machine;
use crate::tlb;
use crate::unit::{Page, SpaceId};
use crate::workload::{Access, Does};

pub(super) use crate::tlb::batch::BATCH;

/// So many page tables (2 KB each) are in the simulating machine's caches anyway. Few in tests, so that there are spaces with more and with fewer.
const CACHED_TABLES: usize = if cfg!(test) { 6 } else { 512 };

impl Machine {
    /// Makes the first of these accesses, as many as need no fault and while nothing else can be due; returns how many. Equivalent to
    /// [`Machine::access`] for each, followed by [`Machine::compute`].
    pub fn access_some(&mut self, id: SpaceId, accesses: &[Access]) -> usize {
        if self.careful {
            return 0;
        }
        let Some(space) = self.spaces.get_mut(id) else {
            return 0;
        };
        let mut made = 0;
        if self.went_whole && space.tables.tables() > CACHED_TABLES {
            // All entries are prefetched at once, instead of each when its turn comes.
            let soon = accesses.iter().take(self.translated.len());
            let entries = soon.map(|access| space.tables.look(Page::at(access.address)));
            std::hint::black_box(entries.fold(0, |all, entry| all | entry));
        }
        loop {
            // Assume the maximum cost of each access: the actual cost is known only after the TLB.
            let room = self.next_event_ps.saturating_sub(space.clock_ps);
            let (mut most, mut work_ns) = (0u64, 0u64);
            let (mut same, mut again, mut first, mut n) = (0, 0, 0, 0);
            let mut last = space.last_page;
            for (access, translated) in accesses[made..].iter().zip(self.translated.iter_mut()) {
                most = most.saturating_add(self.prices.most.saturating_add(u64::from(access.work_ns) * 1000));
                if most >= room {
                    break;
                }
                let page = Page::at(access.address);
                let Some((size, is_first)) = space.tables.touch(page, access.does != Does::Load) else {
                    break;
                };
                *translated = tlb::Access::new(access.address, size);
                same += u64::from(page == last);
                first += u64::from(is_first);
                again += u64::from(access.does == Does::Update);
                work_ns += u64::from(access.work_ns);
                last = page;
                n += 1;
            }
            let mut cost = (n as u64 - same) * self.prices.miss + (same + again) * self.prices.hit + work_ns * 1000;
            let by_page = first * self.prices.set_accessed;
            space.paid_by_page_ps += by_page;
            cost += by_page;
            if let Some(tlb) = &mut self.tlb {
                cost += tlb.access_all(id.0.get(), &self.translated[..n]) * self.prices.cycle;
                tlb.access_again(again);
            }
            space.last_page = last;
            space.clock_ps += cost;
            made += n;
            if n < self.translated.len() || made == accesses.len() {
                self.went_whole = made == accesses.len();
                return made;
            }
        }
    }
}
