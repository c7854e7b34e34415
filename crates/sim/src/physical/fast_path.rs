//! Allocating and freeing through the per-CPU lists, in front of the buddy allocator (mm/page_alloc.c, `rmqueue`,
//! `free_unref_page`).

use super::frames::{Frames, State};
use super::pcp::Pcp;
use super::zone::Zone;
use super::MigrateType;

/// Runs freed at once: at least as many as the host can fetch in parallel.
const AT_ONCE: usize = 64;

impl Zone {
    /// Allocates a run, from the per-CPU list where there is one for it (`rmqueue`).
    pub fn get(&mut self, frames: &mut Frames, order: u8, migrate: MigrateType, no_fragment: bool) -> Option<u32> {
        let Some(index) = Pcp::index(order, migrate) else {
            return self.take(frames, order, migrate, no_fragment);
        };
        if self.pcp.lists[index].len == 0 {
            self.refill(frames, index, migrate, no_fragment);
        }
        let run = self.pcp.lists[index].pop_front(frames)?;
        self.pcp.pages -= 1 << order;
        Some(run)
    }

    /// Frees a run, to the per-CPU list where there is one for it (`free_unref_page`).
    pub fn put(&mut self, frames: &mut Frames, frame: u32, order: u8) {
        let Some(index) = Pcp::index(order, frames.block_of(frame).migrate) else {
            self.give(frames, frame, order);
            return;
        };
        frames.mark(frame, order, State::pcp(order), State::PCP_TAIL);
        self.pcp.lists[index].push_front(frames, frame);
        self.pcp.pages += 1 << order;
        if self.pcp.pages >= self.pcp.high {
            self.give_back(frames, self.pcp.batch, index);
        }
    }

    #[cold]
    fn refill(&mut self, frames: &mut Frames, index: usize, migrate: MigrateType, no_fragment: bool) {
        let order = Pcp::order(index);
        let runs = if order == 0 {
            self.pcp.batch
        } else {
            (self.pcp.batch >> order).max(2)
        };
        for _ in 0..runs {
            let Some(run) = self.take(frames, order, migrate, no_fragment) else {
                return;
            };
            frames.mark(run, order, State::pcp(order), State::PCP_TAIL);
            self.pcp.lists[index].push_back(frames, run);
            self.pcp.pages += 1 << order;
        }
    }

    /// Frees at least so many pages to the buddy allocator, the longest unused first, from one list as long as it has any (`free_pcppages_bulk`).
    #[cold]
    fn give_back(&mut self, frames: &mut Frames, pages: u64, first: usize) {
        let lists = self.pcp.lists.len();
        let mut given = 0;
        for index in (first..lists).chain(0..first) {
            let order = Pcp::order(index);
            loop {
                let mut runs = [0; AT_ONCE];
                let mut n = 0;
                while n < AT_ONCE && given < pages {
                    let Some(run) = self.pcp.lists[index].pop_back(frames) else {
                        break;
                    };
                    self.pcp.pages -= 1 << order;
                    given += 1 << order;
                    runs[n] = run;
                    n += 1;
                }
                frames.fetch_merges(&runs[..n], order);
                for run in &runs[..n] {
                    self.give(frames, *run, order);
                }
                if n < AT_ONCE {
                    break;
                }
            }
        }
    }

    /// Drains the per-CPU lists (`drain_pages_zone`).
    pub fn drain(&mut self, frames: &mut Frames) {
        if self.pcp.pages > 0 {
            self.give_back(frames, u64::MAX, 0);
        }
    }
}
