//! Background work: khugepaged, kcompactd and the fault policy's chores. Its time is charged separately; where it holds a process's mmap lock,
//! the process waits.

use mega_core::fault::{Background, Chore, Effort, Reservation};
use mega_core::observe::{Machine as MachineView, Region};
use mega_core::units::{BasePages, Blocks, Bytes, Share, Time, BASE_PAGE_BYTES, REGION_PAGES};

use super::prices::ps_of;
use super::Machine;
use crate::physical::Compact;
use crate::space::Entry;
use crate::unit::{Owner, SpaceId, BLOCK_ORDER};

/// HPAGE_FRAG_CHECK_INTERVAL_MSEC, in ps.
pub(super) const PROACTIVE_PERIOD_PS: u64 = 500_000_000_000;

impl Machine {
    /// The machine as core sees it.
    #[must_use]
    pub fn view(&self) -> MachineView {
        MachineView {
            available_bytes: Bytes(self.physical.available_bytes()),
            total_bytes: Bytes(self.physical.total_bytes()),
            free_blocks: Blocks(self.physical.free_blocks()),
            pressure: Some(Share::ZERO),
        }
    }

    /// Runs what is due by this moment, in ps.
    #[cold]
    pub(super) fn run_events(&mut self, now_ps: u64) {
        while self.next_event_ps <= now_ps {
            let at = self.next_event_ps;
            self.reach(at);
            // The operation under way has a bill of its own.
            let bill = self.take_bill();
            if self.kcompactd_due_ps.is_some_and(|due| due <= at) {
                self.kcompactd_due_ps = None;
                self.compact(Compact::Kcompactd { order: BLOCK_ORDER });
                self.background.kcompactd_ns += self.take_bill() / 1000;
            }
            if self.proactive_due_ps <= at {
                self.compact_proactively(at);
            }
            if self.policy_due_ps <= at {
                let period = self
                    .policy
                    .period()
                    .map_or(u64::MAX, |period| ps_of(period).max(1_000_000));
                self.policy_due_ps = at.saturating_add(period);
                self.run_chores(at);
            }
            self.bill_ps = bill;
            let compaction = self.proactive_due_ps.min(self.kcompactd_due_ps.unwrap_or(u64::MAX));
            self.next_event_ps = self.policy_due_ps.min(compaction);
        }
        self.reach(now_ps);
    }

    /// kcompactd's own rounds (mm/compaction.c, `kcompactd`): twice a second, and 64 times as rarely after one that migrated nothing.
    fn compact_proactively(&mut self, at: u64) {
        // Swapping and reclaim have ended by now: hints about blocks that cannot be compacted are reset.
        self.physical.kswapd_sleeps();
        let done = self.compact(Compact::Proactive {
            proactiveness: self.proactiveness,
        });
        self.background.kcompactd_ns += self.take_bill() / 1000;
        let ran = done.scanned_migrate > 0;
        let periods = if ran && done.migrated == 0 { 1 << 6 } else { 1 };
        self.proactive_due_ps = at.saturating_add(PROACTIVE_PERIOD_PS * periods);
    }

    fn run_chores(&mut self, at: u64) {
        let mut reservations = Vec::with_capacity(self.reservations.len());
        for (changed, id, region) in &self.reservations {
            let space = self.spaces.get(*id);
            let table = space.and_then(|space| space.tables.table_of(*region));
            if let (Some(process), Some(table)) = (self.process_id(*id), table) {
                reservations.push(Reservation {
                    process,
                    region: *region,
                    populated: BasePages(table.frames.into()),
                    changed: Time(*changed),
                });
            }
        }
        let chores = self.policy.background(&Background {
            at: Time(at / 1000),
            machine: self.view(),
            reservations: &reservations,
        });
        for chore in chores {
            self.run_chore(at, chore);
        }
    }

    fn run_chore(&mut self, at: u64, chore: Chore) {
        match chore {
            Chore::Fill(process, region) => {
                if let Some(id) = self.by_process_id(process) {
                    self.fill(id, region);
                }
                self.background.reservations_ns += self.take_bill() / 1000;
            }
            Chore::Break(process, region) => {
                if let Some(id) = self.by_process_id(process) {
                    self.break_reservation(id, region);
                }
                self.background.reservations_ns += self.take_bill() / 1000;
            }
            Chore::Evacuate(process, region) => {
                if let Some(id) = self.by_process_id(process) {
                    self.evacuate(id, region);
                }
                self.background.reservations_ns += self.take_bill() / 1000;
            }
            Chore::Khugepaged { pages, max_none } => {
                let took = self.khugepaged(at, pages, max_none);
                self.background.khugepaged_ns += took / 1000;
            }
            Chore::SplitUnderused { max_zero } => {
                self.split_underused(max_zero);
                self.background.shrinker_ns += self.take_bill() / 1000;
            }
            Chore::Prezero(bytes) => {
                let free = self.physical.free_bytes() / BASE_PAGE_BYTES;
                let pages = (bytes.0 / BASE_PAGE_BYTES).min(free.saturating_sub(self.prezeroed));
                self.prezeroed = (self.prezeroed + pages).min(free);
                self.background.prezero_ns += pages * self.prices.zero_base / 1000;
            }
        }
    }

    /// One pass of khugepaged (mm/khugepaged.c): so many base pages from where the last one stopped. Returns its time in ps.
    fn khugepaged(&mut self, at: u64, pages: u32, max_none: u32) -> u64 {
        let mut took = 0;
        let first = self.next_region(self.khugepaged_at);
        let mut next = first;
        for _ in 0..pages / REGION_PAGES {
            let Some((id, region)) = next else { break };
            self.khugepaged_at = Some((id, region));
            took += self.prices.scan_base;
            if self.khugepaged_wants(id, region, max_none) {
                let done = self.collapse(id, region, Effort::Hard);
                let bill = self.take_bill();
                took += bill;
                if done.is_ok() {
                    self.block_collapse(id, region, at, bill);
                }
            }
            next = self.next_region(self.khugepaged_at);
            if next == first {
                break;
            }
        }
        took
    }

    /// At least one accessed page, at most `max_none` missing, at most half shared and 64 in swap (the kernel's defaults).
    fn khugepaged_wants(&self, id: SpaceId, region: Region, max_none: u32) -> bool {
        let Some(space) = self.spaces.get(id) else { return false };
        let Entry::Table(at) = space.tables.get(region) else {
            return false;
        };
        if !space.can(region).is_some_and(|can| can.promote && can.demote) {
            return false;
        }
        let table = space.tables.table(at);
        let frames = u32::from(table.frames);
        if frames == 0 || REGION_PAGES - frames > max_none || u32::from(table.swapped) > REGION_PAGES / 8 {
            return false;
        }
        let counts = table.counts();
        if counts.accessed == 0 {
            return false;
        }
        let shared = |pte: &crate::space::Pte| {
            pte.frame()
                .is_some_and(|frame| matches!(self.physical.owner(frame), Some(Owner::Shared(_))))
        };
        counts.protected <= REGION_PAGES / 2
            || table.ptes.iter().filter(|pte| shared(pte)).count() as u32 <= REGION_PAGES / 2
    }

    fn split_underused(&mut self, max_zero: u32) {
        let ids: Vec<SpaceId> = self.spaces.iter().map(|space| space.id).collect();
        for id in ids {
            let regions = self.spaces.get(id).map_or(Vec::new(), |space| space.tables.all_used());
            for region in regions {
                let huge = self.spaces.get(id).and_then(|space| space.tables.huge_of(region));
                let Some(huge) = huge.filter(|huge| REGION_PAGES - huge.held() > max_zero) else {
                    continue;
                };
                if !matches!(self.physical.owner(huge.frame(0)), Some(Owner::Shared(_))) {
                    self.split(id, region, true);
                    self.counters.thp_underused_split_page += 1;
                }
            }
        }
    }
}
