//! Fragmenters: memory that is allocated and freed in part, so that free memory lies in small runs.

use mega_core::units::{Share, BASE_PAGE_BYTES, HUGE_PAGE_BYTES, REGION_PAGES};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::owner::{self, OwnerKind};
use super::{Ask, DownTo, Physical};
use crate::unit::{Frame, Owner, BLOCK_ORDER};

/// Which pages of each 2 MB are freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// This share of them, at random.
    Random(Share),
    /// All but the last of this many, repeatedly. 0 and 1 free nothing.
    ///
    /// The last, not the first: where the kernel's free scanner finds a block full, it samples only every 32nd frame in the next ones, and so would
    /// find nothing but the kept pages, and give up.
    AllButOneOf(u32),
    /// Every other piece of this many bytes, the first kept.
    Holes(u64),
}

/// Allocates 2 MB pieces as long as there are free blocks, then single pages; frees part of each 2 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragmenter {
    /// Allocates at most so many bytes, until memory is exhausted; watermarks do not stop it.
    pub bytes: u64,
    /// Continues with single pages when there are no more blocks.
    pub single_pages: bool,
    /// What it frees of each 2 MB.
    pub pattern: Pattern,
    /// Fragments so many blocks, at random, that at least this share of all free memory lies outside free blocks; the others are freed whole.
    pub until: Share,
    /// Of the partly freed blocks, this share, at random, holds kernel pages, which are unmovable.
    pub unmovable: Share,
    /// Together with the machine's seed, the seed of its random choices.
    pub seed: u64,
}

/// The result of a fragmenter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fragmented {
    /// Bytes allocated at first.
    pub taken_bytes: u64,
    /// Bytes kept.
    pub held_bytes: u64,
    /// Of them, unmovable bytes.
    pub unmovable_bytes: u64,
    /// Blocks of which a part is kept.
    pub pieces: u64,
}

impl Fragmenter {
    /// Until this share of free memory lies outside free blocks: a fourth of the pages of each fragmented block is kept, at random. `unmovable` as in
    /// [`Fragmenter::unmovable`].
    #[must_use]
    pub fn ballast(until: Share, unmovable: Share, seed: u64) -> Self {
        Self {
            bytes: u64::MAX,
            single_pages: false,
            pattern: Pattern::Random(Share::percent(75)),
            until,
            unmovable,
            seed,
        }
    }

    /// The allocation-latency study's frag: 28 of 32 GB, then three of four pages of each 2 MB are freed.
    #[must_use]
    pub fn study(total_bytes: u64) -> Self {
        Self {
            bytes: total_bytes / 32 * 28,
            single_pages: true,
            pattern: Pattern::AllButOneOf(4),
            ..Self::ballast(Share::FULL, Share::ZERO, 0)
        }
    }

    /// LRBHPS's (section 4.2, after Quicksilver's): huge pages to exhaustion, of each of which a part, at random, is unmapped. The paper does not say
    /// how large a part.
    #[must_use]
    pub fn lrbhps(part: Share, seed: u64) -> Self {
        Self {
            pattern: Pattern::Random(part),
            ..Self::ballast(Share::FULL, Share::ZERO, seed)
        }
    }

    /// MEGA's (Figure 2, Table 7): 12 of 16 GB, then half of it is freed in pieces of 1 MB.
    #[must_use]
    pub fn mega(total_bytes: u64) -> Self {
        Self {
            bytes: total_bytes / 16 * 12,
            single_pages: true,
            pattern: Pattern::Holes(1 << 20),
            ..Self::ballast(Share::FULL, Share::ZERO, 0)
        }
    }
}

/// Draws with negligible bias: at most one in four billion.
fn below(rng: &mut Pcg64Mcg, n: u32) -> u32 {
    ((u64::from(rng.next_u32()) * u64::from(n)) >> 32) as u32
}

fn shuffle<T>(rng: &mut Pcg64Mcg, items: &mut [T]) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(rng, i as u32 + 1) as usize);
    }
}

/// Which of 512 pages are kept.
fn kept(pattern: Pattern, rng: &mut Pcg64Mcg) -> [bool; REGION_PAGES as usize] {
    let mut keep = [true; REGION_PAGES as usize];
    match pattern {
        Pattern::Random(share) => {
            let freed = u64::from(share.as_millionths()) * u64::from(REGION_PAGES) / 1_000_000;
            keep[..freed as usize].fill(false);
            shuffle(rng, &mut keep);
        }
        Pattern::AllButOneOf(of) => {
            let of = of.max(1) as usize;
            keep.iter_mut()
                .enumerate()
                .for_each(|(i, keep)| *keep = i % of == of - 1);
        }
        Pattern::Holes(bytes) => {
            let pages = usize::try_from(bytes / BASE_PAGE_BYTES).unwrap_or(usize::MAX).max(1);
            keep.iter_mut()
                .enumerate()
                .for_each(|(i, keep)| *keep = i / pages % 2 == 0);
        }
    }
    keep
}

impl Physical {
    /// Fragments free memory. What is kept belongs to [`Owner::Ballast`], or to the kernel.
    pub fn fragment(&mut self, how: &Fragmenter) -> Fragmented {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ how.seed.rotate_left(32));
        let mut done = Fragmented::default();
        let mut blocks = self.take_blocks(how.bytes);
        let left = how.bytes.saturating_sub(blocks.len() as u64 * HUGE_PAGE_BYTES);
        let singles = if how.single_pages {
            self.take_pages(left)
        } else {
            Vec::new()
        };
        done.taken_bytes = blocks.len() as u64 * HUGE_PAGE_BYTES + singles.len() as u64 * BASE_PAGE_BYTES;
        if how.until < Share::FULL {
            shuffle(&mut rng, &mut blocks);
        }
        for (nth, &block) in blocks.iter().enumerate() {
            if self.fragmented_enough(how, (blocks.len() - nth) as u64) {
                self.free(Frame(block), BLOCK_ORDER);
                continue;
            }
            self.split(Frame(block));
            let pages: Vec<u32> = (block..block + REGION_PAGES).collect();
            self.give_part_back(how, &pages, &mut rng, &mut done);
        }
        for pages in singles.chunks(REGION_PAGES as usize) {
            self.give_part_back(how, pages, &mut rng, &mut done);
        }
        self.drain();
        done
    }

    fn take_blocks(&mut self, bytes: u64) -> Vec<u32> {
        let ask = Ask::MOVABLE.down_to(DownTo::Nothing);
        self.drain();
        let most = bytes / HUGE_PAGE_BYTES;
        let take = |_| {
            self.allocate(BLOCK_ORDER, ask, Owner::Ballast).or_else(|| {
                // The last ones may be on a per-CPU list, where the watermark does not count them.
                self.drain();
                self.allocate(BLOCK_ORDER, ask, Owner::Ballast)
            })
        };
        (0..most).map_while(take).map(|frame| frame.0).collect()
    }

    fn take_pages(&mut self, bytes: u64) -> Vec<u32> {
        let ask = Ask::MOVABLE.down_to(DownTo::Nothing);
        let take = |_| self.allocate(0, ask, Owner::Ballast);
        (0..bytes / BASE_PAGE_BYTES)
            .map_while(take)
            .map(|frame| frame.0)
            .collect()
    }

    /// Whether enough of the free memory lies outside free blocks, once these blocks are freed whole.
    fn fragmented_enough(&self, how: &Fragmenter, blocks: u64) -> bool {
        if how.until == Share::FULL {
            return false;
        }
        let pages = |order| self.zones.iter().map(|zone| zone.runs(order) << order).sum::<u64>();
        let on_lists: u64 = self.zones.iter().map(|zone| zone.pcp.pages).sum();
        let small: u64 = (0..BLOCK_ORDER).map(pages).sum::<u64>() + on_lists;
        let free: u64 = self.zones.iter().map(|zone| zone.free).sum::<u64>() + on_lists;
        how.until.reached_by(small, free + blocks * u64::from(REGION_PAGES))
    }

    fn give_part_back(&mut self, how: &Fragmenter, pages: &[u32], rng: &mut Pcg64Mcg, done: &mut Fragmented) {
        let keep = kept(how.pattern, rng);
        let unmovable = below(rng, 1_000_000) < how.unmovable.as_millionths();
        for (&page, keep) in pages.iter().zip(keep) {
            if !keep {
                self.free(Frame(page), 0);
                continue;
            }
            done.held_bytes += BASE_PAGE_BYTES;
            if unmovable {
                self.set_owner(Frame(page), Owner::Kernel);
                done.unmovable_bytes += BASE_PAGE_BYTES;
            }
        }
        done.pieces += 1;
    }

    /// Allocates until only so many bytes are free, blocks first; returns the bytes allocated. They belong to [`Owner::Ballast`].
    pub fn fill_until(&mut self, free_bytes: u64) -> u64 {
        let ask = Ask::MOVABLE.down_to(DownTo::Nothing);
        let before = self.free_bytes();
        self.drain();
        for order in [BLOCK_ORDER, 0] {
            while self.free_bytes() >= free_bytes.saturating_add(BASE_PAGE_BYTES << order) {
                if self.allocate(order, ask, Owner::Ballast).is_none() {
                    break;
                }
            }
        }
        before - self.free_bytes()
    }

    /// Frees all that belongs to [`Owner::Ballast`]; returns the bytes. A fragmenter's kernel pages stay.
    pub fn release_ballast(&mut self) -> u64 {
        let mut freed = 0;
        let mut frame = 0;
        while frame < self.frames.end() {
            let state = self.frames.state(frame);
            if state.is_used() && !state.is_mixed() {
                let order = state.order();
                if owner::kind(self.frames.word(frame, order)) == OwnerKind::Ballast {
                    self.free(Frame(frame), order);
                    freed += BASE_PAGE_BYTES << order;
                }
                frame += 1 << order;
            } else {
                frame += 1;
            }
        }
        self.drain();
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages_kept(pattern: Pattern) -> usize {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        kept(pattern, &mut rng).iter().filter(|keep| **keep).count()
    }

    #[test]
    fn patterns_keep_what_they_say() {
        assert_eq!(pages_kept(Pattern::Random(Share::percent(75))), 128);
        assert_eq!(pages_kept(Pattern::AllButOneOf(4)), 128);
        assert_eq!(pages_kept(Pattern::Holes(1 << 20)), 256);
        assert_eq!(pages_kept(Pattern::Random(Share::FULL)), 0);
        assert_eq!(pages_kept(Pattern::AllButOneOf(0)), 512);
        assert_eq!(pages_kept(Pattern::Holes(0)), 256);
    }
}
