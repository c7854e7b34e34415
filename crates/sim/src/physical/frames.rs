//! The state of each frame: a word and a byte; and of each block: a word, and counts of its frames.

use mega_core::units::REGION_PAGES;

use super::owner::OwnerKind;
use super::MigrateType;
use crate::unit::{BLOCK_ORDER, MAX_ORDER};

/// What a frame is, in a byte: a tag, and in the first frame of a run its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u8);

impl State {
    /// A further frame of a free run. The byte is 0, so that untouched memory costs nothing.
    pub const FREE_TAIL: Self = Self(0);
    /// No memory.
    pub const HOLE: Self = Self(1);
    /// A further frame of an allocation.
    pub const TAIL: Self = Self(2);
    /// Isolated by compaction.
    pub const ISOLATED: Self = Self(3);
    /// A further frame of a block on a per-CPU list.
    pub const PCP_TAIL: Self = Self(4);

    const FREE: u8 = 0x10;
    const PCP: u8 = 0x20;
    const USED: u8 = 0x40;
    const MIXED: u8 = 0x50;

    /// First of a free run in the buddy allocator.
    pub const fn free(order: u8) -> Self {
        Self(Self::FREE | order)
    }

    /// First of a free run on a per-CPU list.
    pub const fn pcp(order: u8) -> Self {
        Self(Self::PCP | order)
    }

    /// First of an allocation; the owners of the other frames follow from the first one's.
    pub const fn used(order: u8) -> Self {
        Self(Self::USED | order)
    }

    /// First of an allocation in which each frame has an owner of its own.
    pub const fn mixed(order: u8) -> Self {
        Self(Self::MIXED | order)
    }

    /// The order of the run that this is the first frame of.
    pub const fn order(self) -> u8 {
        self.0 & 0x0f
    }

    pub const fn is_free(self) -> bool {
        self.0 & 0xf0 == Self::FREE
    }

    pub const fn is_used(self) -> bool {
        self.0 & 0xe0 == Self::USED
    }

    pub const fn is_mixed(self) -> bool {
        self.0 & 0xf0 == Self::MIXED
    }
}

/// How an allocated frame counts in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Movable,
    Cache,
    Unmovable,
    Huge,
}

impl Class {
    /// Of a frame of an allocation of this order.
    pub fn of(kind: OwnerKind, order: u8) -> Self {
        match kind {
            OwnerKind::Kernel | OwnerKind::Reserved => Self::Unmovable,
            _ if order >= BLOCK_ORDER => Self::Huge,
            OwnerKind::Cache => Self::Cache,
            OwnerKind::Anonymous | OwnerKind::Shared | OwnerKind::Ballast => Self::Movable,
        }
    }
}

/// The state of one block. Frames in none of the counts are on a per-CPU list, or isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockInfo {
    /// In the buddy allocator.
    pub free: u16,
    /// Movable, page cache included.
    pub movable: u16,
    /// Page cache.
    pub cache: u16,
    pub unmovable: u16,
    /// Part of an allocation of order 9 or 10 that is not the kernel's.
    pub huge: u16,
    /// The index of its zone.
    pub zone: u8,
    /// Its migrate type.
    pub migrate: MigrateType,
    /// Compaction recently found nothing in it (PB_migrate_skip).
    pub skip: bool,
}

impl BlockInfo {
    /// The zone of a block that is not memory.
    pub const NO_ZONE: u8 = u8::MAX;

    const HOLE: Self = Self {
        free: 0,
        movable: 0,
        cache: 0,
        unmovable: 0,
        huge: 0,
        zone: Self::NO_ZONE,
        migrate: MigrateType::Movable,
        skip: false,
    };

    /// Counts `n` frames more (or fewer) of a class.
    pub fn count(&mut self, class: Class, n: i16) {
        let add = |count: &mut u16| *count = count.wrapping_add_signed(n);
        match class {
            Class::Movable => add(&mut self.movable),
            Class::Cache => {
                add(&mut self.movable);
                add(&mut self.cache);
            }
            Class::Unmovable => add(&mut self.unmovable),
            Class::Huge => add(&mut self.huge),
        }
    }
}

/// All frames and blocks.
#[derive(Debug)]
pub(super) struct Frames {
    /// By frame: owner or links, of runs smaller than a block.
    pub words: Vec<u64>,
    /// By block: owner or links, of runs of a block or more.
    pub block_words: Vec<u64>,
    states: Vec<u8>,
    pub blocks: Vec<BlockInfo>,
}

impl Frames {
    /// Frames 0 to before `end`, none of them memory yet.
    pub fn new(end: u32) -> Self {
        let block = REGION_PAGES as usize;
        let n = end as usize;
        let blocks = n.div_ceil(block);
        Self {
            words: vec![0; n],
            block_words: vec![0; blocks],
            // Zeroes need not be written: untouched memory of the host is zero and free of charge.
            states: vec![State::FREE_TAIL.0; blocks * block],
            blocks: vec![BlockInfo::HOLE; blocks],
        }
    }

    /// One more than the highest frame.
    pub fn end(&self) -> u32 {
        self.words.len() as u32
    }

    /// Bytes of the host's memory that this takes once all of it was touched.
    pub fn host_bytes(&self) -> u64 {
        let words = self.words.len() + self.block_words.len();
        (words * size_of::<u64>() + self.states.len() + self.blocks.len() * size_of::<BlockInfo>()) as u64
    }

    /// Makes these blocks memory of a zone, and the blocks before them, unless they are in a zone, a hole.
    pub fn put_in_zone(&mut self, start: u32, end: u32, zone: u8) {
        let (first, last) = ((start / REGION_PAGES) as usize, (end / REGION_PAGES) as usize);
        for info in &mut self.blocks[first..last] {
            info.zone = zone;
        }
        let holes = self.blocks[..first].iter().rev();
        let hole = holes.take_while(|info| info.zone == BlockInfo::NO_ZONE).count();
        let frames = (first - hole) * REGION_PAGES as usize..start as usize;
        self.states[frames].fill(State::HOLE.0);
    }

    pub fn state(&self, frame: u32) -> State {
        self.states.get(frame as usize).map_or(State::HOLE, |&byte| State(byte))
    }

    pub fn set(&mut self, frame: u32, state: State) {
        self.states[frame as usize] = state.0;
    }

    /// Marks a run: its first frame and all others.
    pub fn mark(&mut self, frame: u32, order: u8, first: State, others: State) {
        let at = frame as usize;
        self.states[at] = first.0;
        if order > 0 {
            self.states[at + 1..at + (1 << order)].fill(others.0);
        }
    }

    pub fn block_of(&self, frame: u32) -> &BlockInfo {
        &self.blocks[(frame / REGION_PAGES) as usize]
    }

    pub fn block_of_mut(&mut self, frame: u32) -> &mut BlockInfo {
        &mut self.blocks[(frame / REGION_PAGES) as usize]
    }

    /// The word of a run that begins here.
    pub fn word(&self, frame: u32, order: u8) -> u64 {
        if order >= BLOCK_ORDER {
            self.block_words[(frame / REGION_PAGES) as usize]
        } else {
            self.words[frame as usize]
        }
    }

    pub fn word_mut(&mut self, frame: u32, order: u8) -> &mut u64 {
        if order >= BLOCK_ORDER {
            &mut self.block_words[(frame / REGION_PAGES) as usize]
        } else {
            &mut self.words[frame as usize]
        }
    }

    /// The links of the runs of an order, and by how much frame numbers are shifted to find theirs.
    pub fn links(&mut self, order: u8) -> (&mut [u64], u32) {
        if order >= BLOCK_ORDER {
            (&mut self.block_words, u32::from(BLOCK_ORDER))
        } else {
            (&mut self.words, 0)
        }
    }

    /// Prefetches what freeing these runs will need: the words of the neighbours in the lists of the runs that they merge with. They lie anywhere in
    /// memory. Requested here, they arrive in parallel; in [`give`](super::zone::Zone::give) one waits for the other.
    pub fn fetch_merges(&self, runs: &[u32], order: u8) {
        if order >= BLOCK_ORDER {
            return;
        }
        let mut fetched = 0;
        for &run in runs {
            let mut first = run;
            for order in order..BLOCK_ORDER {
                let buddy = first ^ (1 << order);
                if self.state(buddy) != State::free(order) {
                    break;
                }
                // Links: the numbers of two runs, or of none.
                let links = self.word(buddy, order);
                for neighbour in [links as u32, (links >> 32) as u32] {
                    fetched ^= self.words.get(neighbour as usize).copied().unwrap_or(0);
                }
                first &= buddy;
            }
        }
        std::hint::black_box(fetched);
    }

    /// Counts the frames of a run as free, or no longer.
    pub fn count_free(&mut self, frame: u32, order: u8, more: bool) {
        let sign = if more { 1 } else { -1 };
        let per_block = 1i16 << order.min(BLOCK_ORDER);
        for i in 0..1u32 << order.saturating_sub(BLOCK_ORDER) {
            let info = self.block_of_mut(frame + i * REGION_PAGES);
            info.free = info.free.wrapping_add_signed(sign * per_block);
        }
    }

    /// Counts the frames of a run as allocated, or no longer.
    pub fn count_used(&mut self, frame: u32, order: u8, class: Class, more: bool) {
        let sign = if more { 1 } else { -1 };
        let per_block = 1i16 << order.min(BLOCK_ORDER);
        for i in 0..1u32 << order.saturating_sub(BLOCK_ORDER) {
            self.block_of_mut(frame + i * REGION_PAGES)
                .count(class, sign * per_block);
        }
    }

    /// The first frame of the run that contains this frame, and its state. A frame in no run is its own.
    pub fn head(&self, frame: u32) -> (u32, State) {
        let own = self.state(frame);
        if !matches!(own, State::TAIL | State::FREE_TAIL | State::PCP_TAIL) {
            return (frame, own);
        }
        for order in 1..=MAX_ORDER {
            let first = frame >> order << order;
            let state = self.state(first);
            if state.0 >= State::FREE && state.order() >= order {
                return (first, state);
            }
        }
        (frame, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_nine_bytes_and_a_block_a_few() {
        assert_eq!(size_of::<State>() + size_of::<u64>(), 9);
        assert!(size_of::<BlockInfo>() <= 16);
    }

    #[test]
    fn a_state_says_what_it_is() {
        let s = State::mixed(9);
        assert!(s.is_used() && s.is_mixed() && !s.is_free() && s.order() == 9);
        let s = State::used(10);
        assert!(s.is_used() && !s.is_mixed() && s.order() == 10);
        assert!(State::free(0).is_free() && !State::free(0).is_used());
        for s in [
            State::FREE_TAIL,
            State::HOLE,
            State::TAIL,
            State::ISOLATED,
            State::PCP_TAIL,
        ] {
            assert!(!s.is_used() && !s.is_free());
        }
    }
}
