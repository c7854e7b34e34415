//! Contiguous GBs: 512 adjacent free blocks, aligned, allocated at once (as `alloc_contig_pages` takes what is free already).

use mega_core::units::REGION_PAGES;

use super::frames::State;
use super::{Ask, Physical};
use crate::unit::{Frame, Owner, BLOCK_ORDER, MAX_ORDER};

/// Blocks of a GB.
pub const GIANT_BLOCKS: u32 = 512;
/// Frames of a GB.
const GIANT: u32 = GIANT_BLOCKS * REGION_PAGES;

impl Physical {
    /// The first of 512 free blocks, each an allocation of its own with the owner that `owner` gives for its number. Takes the lowest free GB of the
    /// preferred zones, and none that would leave the zone below its low watermark.
    pub fn allocate_giant(&mut self, ask: Ask, owner: impl Fn(u32) -> Owner) -> Option<Frame> {
        let found = self.find_giant(ask).or_else(|| {
            // Pages on per-CPU lists keep a block from being free.
            self.drain();
            self.find_giant(ask)
        });
        let (index, first) = found?;
        let mut at = first;
        while at < first + GIANT {
            let order = self.frames.state(at).order();
            self.zones[index].isolate_always(&mut self.frames, at, order);
            at += 1 << order;
        }
        for nth in 0..GIANT_BLOCKS {
            self.occupy(first + nth * REGION_PAGES, BLOCK_ORDER, owner(nth));
        }
        Some(Frame(first))
    }

    fn find_giant(&self, ask: Ask) -> Option<(usize, u32)> {
        let whole = |first: u32| {
            let mut at = first;
            while at < first + GIANT {
                let order = (BLOCK_ORDER..=MAX_ORDER).find(|order| self.frames.state(at) == State::free(*order));
                match order {
                    Some(order) => at += 1 << order,
                    None => return false,
                }
            }
            true
        };
        self.zonelist(ask.node).iter().find_map(|&index| {
            let zone = &self.zones[usize::from(index)];
            if zone.free < zone.marks.low + zone.reserve + u64::from(GIANT) {
                return None;
            }
            let first = zone.start.next_multiple_of(GIANT);
            let all = (first..zone.end).step_by(GIANT as usize);
            let found = all.filter(|at| zone.end - at >= GIANT).find(|at| whole(*at));
            found.map(|at| (usize::from(index), at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::Layout;
    use crate::unit::Page;

    #[test]
    fn a_gb_is_taken_whole_and_given_back_block_by_block() {
        let mut memory = Physical::new(&Layout::of_bytes(6 << 30), 1);
        let space = crate::unit::SpaceId(std::num::NonZeroU16::MIN);
        let owner = |nth: u32| Owner::Anonymous(space, Page(u64::from(nth) * 512));
        let before = memory.free_bytes();
        let first = memory.allocate_giant(Ask::MOVABLE, owner).unwrap();
        assert_eq!((first.0 % GIANT, before - memory.free_bytes()), (0, 1 << 30));
        memory.check().unwrap();
        assert_eq!(
            memory.owner(Frame(first.0 + 513)),
            Some(Owner::Anonymous(space, Page(513)))
        );
        // A single page somewhere in each GB, so that none is contiguous.
        let mut taken = vec![first];
        while let Some(more) = memory.allocate_giant(Ask::MOVABLE, owner) {
            taken.push(more);
        }
        assert!((3..=5).contains(&taken.len()), "{taken:?}");
        for first in taken {
            for nth in 0..GIANT_BLOCKS {
                memory.free(Frame(first.0 + nth * REGION_PAGES), BLOCK_ORDER);
            }
        }
        memory.check().unwrap();
        assert_eq!(memory.free_bytes(), before);
    }
}
