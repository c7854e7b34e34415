//! The page cache: a list of its runs from the newest to the oldest, dropped from the oldest. Accesses do not reorder it.

use mega_core::units::BASE_PAGE_BYTES;

use super::frames::Frames;
use super::Physical;
use crate::unit::Frame;

/// The kind of [`crate::unit::Owner::Cache`] in its place in the word; below it, the two links of 30 bits.
const KIND: u64 = 1 << 60;
const BITS: u32 = 30;
const MASK: u64 = (1 << BITS) - 1;
const NONE: u32 = MASK as u32;
/// A page-cache frame in no list, being part of a larger allocation.
pub(super) const UNLISTED: u64 = KIND | (MASK - 1) << BITS | (MASK - 1);

fn pack(newer: u32, older: u32) -> u64 {
    KIND | u64::from(newer) << BITS | u64::from(older)
}

fn newer(word: u64) -> u32 {
    (word >> BITS & MASK) as u32
}

fn older(word: u64) -> u32 {
    (word & MASK) as u32
}

/// The list.
#[derive(Debug)]
pub(super) struct Cache {
    newest: u32,
    oldest: u32,
    /// Pages in it.
    pages: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            newest: NONE,
            oldest: NONE,
            pages: 0,
        }
    }
}

impl Cache {
    pub fn pages(&self) -> u64 {
        self.pages
    }

    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The next newer run.
    pub fn after(frames: &Frames, run: u32) -> Option<u32> {
        let next = newer(frames.word(run, frames.state(run).order()));
        (next != NONE).then_some(next)
    }

    /// Runs in the list have their order in their state.
    fn word(frames: &mut Frames, run: u32) -> &mut u64 {
        let order = frames.state(run).order();
        frames.word_mut(run, order)
    }

    /// Adds a run as the newest.
    pub fn push(&mut self, frames: &mut Frames, run: u32, order: u8) {
        *frames.word_mut(run, order) = pack(NONE, self.newest);
        if self.newest == NONE {
            self.oldest = run;
        } else {
            let word = Self::word(frames, self.newest);
            *word = pack(run, older(*word));
        }
        self.newest = run;
        self.pages += 1 << order;
    }

    /// Takes a run off the list; one that is in no list stays so.
    pub fn remove(&mut self, frames: &mut Frames, run: u32, order: u8) {
        let word = frames.word(run, order);
        if word == UNLISTED {
            return;
        }
        self.link(frames, newer(word), older(word));
        self.pages -= 1 << order;
    }

    /// Links two runs, or the ends.
    fn link(&mut self, frames: &mut Frames, newer_one: u32, older_one: u32) {
        if newer_one == NONE {
            self.newest = older_one;
        } else {
            let word = Self::word(frames, newer_one);
            *word = pack(newer(*word), older_one);
        }
        if older_one == NONE {
            self.oldest = newer_one;
        } else {
            let word = Self::word(frames, older_one);
            *word = pack(newer_one, older(*word));
        }
    }

    /// Replaces `from` by the single frame `to`, to which it migrated.
    pub fn replace(&mut self, frames: &mut Frames, from: u32, to: u32) {
        let word = frames.words[from as usize];
        frames.words[to as usize] = word;
        if word == UNLISTED {
            return;
        }
        let (newer_one, older_one) = (newer(word), older(word));
        self.link(frames, newer_one, to);
        self.link(frames, to, older_one);
    }
}

impl Physical {
    /// Page cache, in bytes. Parts of larger allocations given to the page cache frame by frame are not counted.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.cache.pages * BASE_PAGE_BYTES
    }

    /// Drops the oldest page cache until so many bytes are dropped or none is left. Returns the bytes dropped.
    pub fn drop_cache(&mut self, bytes: u64) -> u64 {
        let mut dropped = 0;
        while dropped < bytes {
            let Some(run) = self.cache.oldest() else {
                break;
            };
            let order = self.frames.state(run).order();
            self.free(Frame(run), order);
            dropped += BASE_PAGE_BYTES << order;
        }
        dropped
    }
}
