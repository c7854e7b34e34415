//! The per-CPU lists: single pages and blocks that bypass the buddy allocator (mm/page_alloc.c, per_cpu_pages).
//!
//! There is one set per zone, of a fixed size. Pages on the lists are free, but unavailable as part of anything larger until they are drained, and
//! are in none of the zone's counts of free runs.

use super::list::List;
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
    /// Pages taken or freed at once.
    pub batch: u64,
    /// Pages at which a batch is freed to the buddy allocator.
    pub high: u64,
}

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

    /// The list for allocations of this order and type, if there is one.
    pub fn index(order: u8, migrate: MigrateType) -> Option<usize> {
        match order {
            0 => Some(migrate as usize),
            BLOCK_ORDER if migrate == MigrateType::Movable => Some(BLOCKS),
            _ => None,
        }
    }

    /// The order of the runs on a list.
    pub fn order(index: usize) -> u8 {
        if index == BLOCKS {
            BLOCK_ORDER
        } else {
            0
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
