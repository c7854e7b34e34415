//! Since when each block's mapped share has not grown: the `age` of MEGA's cost-benefit rule (SYSTOR'19, section 3.4).
//!
//! The paper records the time of the last mapping at every page fault. Here only scans tell, so the age is a lower bound: an unmapping and a
//! mapping between two looks cancel out, and the age of a block seen for the first time counts from then.

use std::time::Duration;

use super::block::{Block, Hpfn};
use crate::units::Time;

/// What is kept of one block: 8 bytes.
#[derive(Debug, Clone, Copy)]
struct BlockRecord {
    mapped: u16,
    /// Whole seconds of the host's time at which the mapped share last grew.
    grew_s: u32,
}

/// The blocks of the last look, and when each last grew.
#[derive(Debug, Clone, Default)]
pub struct BlockHistory {
    first: Hpfn,
    seen: Vec<BlockRecord>,
    last: Hpfn,
}

impl BlockHistory {
    /// Takes a look at time `at` and sets each block's age. `blocks` are by rising number and the same at every look; a different set
    /// (other sampling, hot-plugged memory) starts a new history.
    pub fn update(&mut self, at: Time, blocks: &mut [Block]) {
        let now_s = u32::try_from(Duration::from_nanos(at.0).as_secs()).unwrap_or(u32::MAX);
        let ends = (
            blocks.first().map_or(Hpfn(0), |b| b.hpfn),
            blocks.last().map_or(Hpfn(0), |b| b.hpfn),
        );
        if self.seen.len() != blocks.len() || ends != (self.first, self.last) {
            (self.first, self.last) = ends;
            self.seen.clear();
            self.seen.shrink_to(blocks.len());
            self.seen.reserve_exact(blocks.len());
            self.seen.extend(blocks.iter().map(|b| BlockRecord {
                mapped: b.mapped_pages().0 as u16,
                grew_s: now_s,
            }));
            return;
        }
        for (seen, block) in self.seen.iter_mut().zip(blocks) {
            let mapped = block.mapped_pages().0 as u16;
            if mapped > seen.mapped {
                seen.grew_s = now_s;
            }
            seen.mapped = mapped;
            let age = Duration::from_secs(now_s.saturating_sub(seen.grew_s).into());
            *block = block.with_age(Some(age));
        }
    }

    /// Records the blocks after a compaction of ours: pages migrated in are not mappings, so blocks do not become younger by it. `blocks` are
    /// those of the last look.
    pub fn moved(&mut self, blocks: &[Block]) {
        if self.seen.len() == blocks.len() {
            for (seen, block) in self.seen.iter_mut().zip(blocks) {
                seen.mapped = block.mapped_pages().0 as u16;
            }
        }
    }

    /// Number of blocks kept.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether there was no look yet.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BasePages;

    fn blocks(mapped: &[u32]) -> Vec<Block> {
        (0..)
            .zip(mapped)
            .map(|(i, &n)| {
                Block::new(Hpfn(i), 0)
                    .with_pages([512 - n, n, 0, 0, 0, 0])
                    .with_mapped(BasePages(n))
            })
            .collect()
    }

    fn ages(history: &mut BlockHistory, at_s: u64, mapped: &[u32]) -> Vec<Option<u64>> {
        let mut blocks = blocks(mapped);
        history.update(Time(at_s * 1_000_000_000), &mut blocks);
        blocks.iter().map(|b| b.age().map(|age| age.as_secs())).collect()
    }

    #[test]
    fn a_block_is_remembered_in_eight_bytes() {
        assert_eq!(std::mem::size_of::<BlockRecord>(), 8);
        let mut history = BlockHistory::default();
        history.update(Time(0), &mut blocks(&[1; 1000]));
        assert_eq!((history.len(), history.seen.capacity()), (1000, 1000));
    }

    #[test]
    fn a_block_ages_until_its_mapped_share_grows() {
        let mut history = BlockHistory::default();
        assert_eq!(
            ages(&mut history, 100, &[10, 10, 10]),
            [None, None, None],
            "one look tells no age"
        );
        assert_eq!(ages(&mut history, 105, &[10, 11, 9]), [Some(5), Some(0), Some(5)]);
        assert_eq!(
            ages(&mut history, 110, &[10, 11, 10]),
            [Some(10), Some(5), Some(0)],
            "growing after shrinking is a mapping"
        );
    }

    #[test]
    fn what_came_by_moving_makes_no_block_younger() {
        let mut history = BlockHistory::default();
        ages(&mut history, 100, &[10, 10]);
        history.moved(&blocks(&[0, 20]));
        assert_eq!(ages(&mut history, 105, &[0, 20]), [Some(5), Some(5)]);
        history.moved(&blocks(&[0, 20, 1]));
        assert_eq!(
            ages(&mut history, 110, &[0, 21]),
            [Some(10), Some(0)],
            "other blocks say nothing"
        );
    }

    #[test]
    fn other_blocks_begin_a_new_history() {
        let mut history = BlockHistory::default();
        ages(&mut history, 100, &[1, 1]);
        assert_eq!(ages(&mut history, 105, &[1, 1, 1]), [None; 3]);
        let mut sampled = blocks(&[1, 1, 1]);
        sampled[2].hpfn = Hpfn(4);
        history.update(Time(110_000_000_000), &mut sampled);
        assert_eq!(sampled[0].age(), None, "another sampling");
    }

    #[test]
    fn a_clock_that_goes_back_makes_no_negative_age() {
        let mut history = BlockHistory::default();
        ages(&mut history, 100, &[1]);
        assert_eq!(ages(&mut history, 50, &[1]), [Some(0)]);
    }
}
