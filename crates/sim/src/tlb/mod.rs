//! TLBs, page-walk caches, and what a walk costs.
//!
//! [`Tlb::access`] is one translation. The first level is looked up, then the second, then the page table is walked: the page-walk caches say
//! at which level the walk starts, and each entry that it reads costs the latency of the cache that holds its line ([`Lines`]), or that of
//! memory. In a virtual machine each of those reads, and the page itself, is first translated by a walk of the host's table (up to 24 reads
//! for two tables of four levels). It returns the delay of a load that waits for the translation; the caller decides how much of it a program with
//! independent loads hides.
//!
//! | file | subject |
//! | --- | --- |
//! | [`batch`] | batched accesses |
//! | [`store`], `full`, [`order`] | one set-associative or fully associative array of tags; the order of use in a set |
//! | [`lines`] | where page-table lines are |
//! | [`walk`] | walks in one and two dimensions |
//! | [`preset`], [`presets`] | processors as data, with the source of each figure |
//!
//! Simplifications. An entry that a flush of its whole space made stale keeps its place until it is replaced (a flush is one new number for
//! the space, so its cost does not depend on what was there). Loads and stores share the data TLB. A walk sees no other walk. Cache lines of page
//! tables are keyed by virtual address: where the page-table pages themselves lie does not matter but for the set.
//! Any flush drops the page-walk cache entries of the whole space, as INVLPG does (Intel SDM vol. 3A, 4.10.4.1; AMD without EFER.TCE).

pub mod batch;
mod full;
pub mod lines;
pub mod order;
pub mod preset;
pub mod presets;
pub mod store;
#[cfg(test)]
mod tests;
pub mod walk;

pub use batch::Access;
pub use preset::{CacheLevel, Nested, Preset, PresetError, Slot};
pub use presets::{find, named, names, of_processor, PRESETS};
pub use store::{Geometry, Replacement};

use batch::Batch;
use lines::Lines;
use serde::{Deserialize, Serialize};
use store::Store;
use walk::{AtOnce, Walker};

/// The size of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageSize {
    /// 4 KB.
    Base,
    /// 2 MB.
    Huge,
    /// 1 GB.
    Giant,
}

impl PageSize {
    /// All of them, smallest first.
    pub const ALL: [Self; 3] = [Self::Base, Self::Huge, Self::Giant];

    /// The level of the page table that maps it: 0, 1 or 2.
    #[inline]
    #[must_use]
    pub const fn level(self) -> u32 {
        self as u32
    }

    /// Bits of its offset: 12, 21 or 30.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        12 + 9 * self.level()
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.bits()
    }
}

/// Event counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Translations asked for.
    pub accesses: u64,
    /// Those that missed in the first level.
    pub l1_misses: u64,
    /// Those that missed in the second level too, and so walks, by the guest's page size: base, huge, giant.
    pub walks: [u64; 3],
    /// Page-table entries read in walks, of guest and host.
    pub references: u64,
    /// Cycles of walks, without the second level's look-up before.
    pub walk_cycles: u64,
    /// Cycles of all translations beyond first-level hits.
    pub cycles: u64,
}

impl Counts {
    /// Walks of any size: the second level's misses.
    #[must_use]
    pub fn l2_misses(&self) -> u64 {
        self.walks.iter().sum()
    }

    /// The counts since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            accesses: self.accesses - earlier.accesses,
            l1_misses: self.l1_misses - earlier.l1_misses,
            walks: [0, 1, 2].map(|size| self.walks[size] - earlier.walks[size]),
            references: self.references - earlier.references,
            walk_cycles: self.walk_cycles - earlier.walk_cycles,
            cycles: self.cycles - earlier.cycles,
        }
    }
}

// A tag: 18 bits of context, 2 bits of kind (0 to 2: a page of that size; 3: an entry of a page-walk cache), 44 bits of number. Contexts
// start at 1, so that no tag is 0.
const KIND_AT: u32 = 44;
const CONTEXT_AT: u32 = 46;
const CONTEXTS: u32 = 1 << (64 - CONTEXT_AT);
/// Addresses of user space with five levels.
const ADDRESS_MASK: u64 = (1 << 56) - 1;

#[inline]
fn tag(context: u32, kind: u32, number: u64) -> u64 {
    u64::from(context) << CONTEXT_AT | u64::from(kind) << KIND_AT | number
}

/// The context that tags a space's entries at present; 0: none yet.
#[derive(Debug, Clone, Copy, Default)]
struct Context {
    pages: u32,
    walk: u32,
}

/// The translation hardware of one core.
#[derive(Debug, Clone)]
pub struct Tlb {
    /// The tag asked for last, which is the last used entry of its set; 0: none.
    last: u64,
    /// The maximum size that an entry covers: the host's page.
    host: PageSize,
    contexts: Box<[Context]>,
    next_context: u32,
    stores: Box<[Store]>,
    l1: [Slot; 3],
    l2: [Option<Slot>; 3],
    l2_cycles: u32,
    walker: Walker,
    lines: Lines,
    batch: Box<Batch>,
    counts: Counts,
    preset: Preset,
}

impl Tlb {
    /// An empty TLB.
    ///
    /// # Panics
    ///
    /// If the preset was changed so that [`Preset::check`] refuses it; none of [`PRESETS`] is.
    #[must_use]
    pub fn new(preset: &Preset) -> Self {
        if let Err(error) = preset.check() {
            panic!("{error}");
        }
        Self {
            last: 0,
            host: preset.nested.map_or(PageSize::Giant, |nested| nested.host),
            contexts: vec![Context::default(); 1 << 16].into(),
            next_context: 1,
            stores: preset.stores.iter().map(Store::new).collect(),
            l1: preset.l1,
            l2: preset.l2,
            l2_cycles: preset.l2_cycles,
            walker: Walker::new(preset),
            lines: Lines::new(preset.line_levels(), preset.memory_cycles),
            batch: Box::new(Batch::new(preset)),
            counts: Counts::default(),
            preset: *preset,
        }
    }

    /// The processor that it models.
    #[must_use]
    pub fn preset(&self) -> &Preset {
        &self.preset
    }

    /// One access to an address mapped by a page of this size; returns the cost of its translation in cycles beyond a first-level hit (0).
    #[inline]
    pub fn access(&mut self, space: u16, address: u64, size: PageSize) -> u32 {
        self.counts.accesses += 1;
        let address = address & ADDRESS_MASK;
        let entry = size.min(self.host);
        let context = self.contexts[usize::from(space)].pages;
        if context == 0 {
            return self.first_access(space, address, size);
        }
        let number = address >> entry.bits();
        let wanted = tag(context, entry.level(), number);
        if wanted == self.last {
            return 0;
        }
        self.last = wanted;
        let slot = self.l1[entry.level() as usize];
        if self.stores[usize::from(slot.store)].access(number, wanted, slot.ways) {
            return 0;
        }
        self.miss(space, address, size)
    }

    /// The access, after the space got its context.
    #[cold]
    fn first_access(&mut self, space: u16, address: u64, size: PageSize) -> u32 {
        let pages = self.take_contexts(2);
        self.contexts[usize::from(space)] = Context { pages, walk: pages + 1 };
        self.counts.accesses -= 1;
        self.access(space, address, size)
    }

    /// The first of `n` unused contexts. Once they are used up (after some 200,000 flushes), everything is flushed and they start again.
    fn take_contexts(&mut self, n: u32) -> u32 {
        if self.next_context + n > CONTEXTS {
            self.flush_all();
        }
        let context = self.next_context;
        self.next_context += n;
        context
    }

    /// The first level has inserted the entry; now the second level, and the walk.
    fn miss(&mut self, space: u16, address: u64, size: PageSize) -> u32 {
        self.counts.l1_misses += 1;
        let context = self.contexts[usize::from(space)];
        let entry = size.min(self.host);
        let mut cycles = self.l2_cycles;
        let hit = match self.l2[entry.level() as usize] {
            Some(slot) => {
                let number = address >> slot.covers.bits();
                let wanted = tag(context.pages, slot.covers.level(), number);
                self.stores[usize::from(slot.store)].access(number, wanted, slot.ways)
            }
            None => false,
        };
        if !hit {
            let from = self.walker.start(&mut self.stores, context.walk, address, size);
            let mut reader = AtOnce {
                lines: &mut self.lines,
                cycles: self.walker.cycles(),
            };
            let references = self.walker.walk(&mut reader, space, address, size, from);
            let walk_cycles = reader.cycles;
            self.counts.walks[size.level() as usize] += 1;
            self.counts.references += u64::from(references);
            self.counts.walk_cycles += u64::from(walk_cycles);
            cycles += walk_cycles;
        }
        self.counts.cycles += u64::from(cycles);
        cycles
    }

    /// Flushes the translations of so many base pages from this address on, whatever the sizes of the pages that map them, and the page-walk cache
    /// entries of their space.
    pub fn flush_pages(&mut self, space: u16, address: u64, pages: u64) {
        let context = self.contexts[usize::from(space)].pages;
        if context == 0 || pages == 0 {
            return;
        }
        self.last = 0;
        let first = address & ADDRESS_MASK & !(PageSize::Base.bytes() - 1);
        let last = (first + pages * PageSize::Base.bytes() - 1) & ADDRESS_MASK;
        for size in PageSize::ALL {
            let level = size.level() as usize;
            for slot in [Some(self.l1[level]), self.l2[level]].into_iter().flatten() {
                let (number, end) = (first >> slot.covers.bits(), last >> slot.covers.bits());
                let tag = tag(context, slot.covers.level(), number);
                self.stores[usize::from(slot.store)].remove_all(number, tag, (end + 1).saturating_sub(number));
            }
        }
        self.drop_walk_entries(space);
    }

    /// Flushes a space's translations, in constant time.
    pub fn flush_space(&mut self, space: u16) {
        self.last = 0;
        self.contexts[usize::from(space)] = Context::default();
    }

    /// Flushes all translations of all spaces. Cached lines of page tables stay.
    pub fn flush_all(&mut self) {
        self.last = 0;
        self.contexts.fill(Context::default());
        self.next_context = 1;
        for store in &mut self.stores {
            store.clear();
        }
        self.walker.clear();
    }

    /// Empties the caches of page-table lines, as after a long time of other work.
    pub fn cool(&mut self) {
        self.lines.clear();
    }

    fn drop_walk_entries(&mut self, space: u16) {
        let walk = self.take_contexts(1);
        let context = &mut self.contexts[usize::from(space)];
        // Taking one may have flushed everything.
        if context.pages != 0 {
            context.walk = walk;
        }
    }

    /// The counts since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
