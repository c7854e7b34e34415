//! The processor's own lists: single pages and blocks that skip the buddy allocator (mm/page_alloc.c, per_cpu_pages).
//!
//! There is one processor's set per zone, of a fixed size. What is on the lists is free, but cannot be had as a part of something larger until
//! it is drained, and is in none of the zone's counts of free runs.

use super::frames::{Frames, State};
use super::list::List;
use super::zone::Zone;
use super::MigrateType;
use crate::unit::BLOCK_ORDER;

/// The list of blocks; the others are those of single pages by migrate type.
const BLOCKS: usize = MigrateType::COUNT;

/// The lists of one zone.
#[derive(Debug)]
pub(super) struct Pcp {
    pub lists: [List; MigrateType::COUNT + 1],
    /// Pages on all lists.
    pub pages: u64,
    /// Pages got or given back at once.
    pub batch: u64,
    /// Pages at which a batch is given back.
    pub high: u64,
}

/// Runs given back at once: as many as the host can fetch beside each other, and more than that.
const AT_ONCE: usize = 64;

impl Pcp {
    /// Sized as the kernel does (`zone_batchsize`, `zone_highsize`), for a zone with so many pages and this low watermark.
    pub fn new(pages: u64, low: u64, cpus: u16) -> Self {
        // At most 1 MB, a fourth of it, rounded to one less than a power of two.
        let batch = ((pages >> 10).min(256) / 4).max(1);
        let up = batch + batch / 2;
        let batch = ((1 << up.ilog2()) - 1).max(1);
        let page = List::new(0);
        Self {
            lists: [page, page, page, List::new(BLOCK_ORDER)],
            pages: 0,
            batch,
            high: (low / u64::from(cpus.max(1))).max(4 * batch),
        }
    }

    /// The list for allocations of this order and type, if they have one.
    fn index(order: u8, migrate: MigrateType) -> Option<usize> {
        match order {
            0 => Some(migrate as usize),
            BLOCK_ORDER if migrate == MigrateType::Movable => Some(BLOCKS),
            _ => None,
        }
    }

    fn order(index: usize) -> u8 {
        if index == BLOCKS {
            BLOCK_ORDER
        } else {
            0
        }
    }
}

impl Zone {
    /// Takes a run, from the processor's list where there is one for it (`rmqueue`).
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

    /// Gives a run back, to the processor's list where there is one for it (`free_unref_page`).
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

    /// Gives at least so many pages back, the longest unused first, from one list as long as it has any (`free_pcppages_bulk`).
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

    /// Gives back all that is on the processor's lists (`drain_pages_zone`).
    pub fn drain(&mut self, frames: &mut Frames) {
        if self.pcp.pages > 0 {
            self.give_back(frames, u64::MAX, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_kernels() {
        // /proc/zoneinfo of machines with a few GB and more says batch 63.
        assert_eq!(Pcp::new(5_394_266, 9726, 2).batch, 63);
        assert_eq!(Pcp::new(5_394_266, 9726, 2).high, 4863);
        assert_eq!((Pcp::new(4096, 40, 64).batch, Pcp::new(4096, 40, 64).high), (1, 4));
    }
}
