//! A processor's translation hardware, as data.

use super::store::{Geometry, ALL_WAYS};
use super::PageSize;

/// Where the translations of one page size are kept at one level of TLB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Which of [`Preset::stores`].
    pub store: u8,
    /// The ways of a set that it may take, a bit each.
    pub ways: u32,
    /// The size that an entry covers; smaller than the page where the processor breaks large entries up ("smashes" them).
    pub covers: PageSize,
}

impl Slot {
    /// Any way of this store, an entry per page.
    #[must_use]
    pub const fn of(store: u8, size: PageSize) -> Self {
        Self {
            store,
            ways: ALL_WAYS,
            covers: size,
        }
    }

    /// The same within these ways.
    #[must_use]
    pub const fn within(self, ways: u32) -> Self {
        Self { ways, ..self }
    }
}

/// One level of data cache, as the page walker and the reach prediction see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLevel {
    /// Its size in bytes; of a shared cache, one core's usable part.
    pub bytes: u64,
    /// Cycles from load to use when the line is there.
    pub cycles: u32,
}

/// The second dimension of a nested walk: the host's mapping of the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    /// The host's page size for all guest memory. A TLB entry covers the smaller of the guest's and the host's page.
    pub host: PageSize,
    /// Levels of the host's table: 4 or 5.
    pub levels: u8,
    /// Where the guest's base pages (those of its page tables among them) lie in guest-physical memory: 0, in the order of what they hold, as just
    /// after boot; else scattered over so many bits of address (34: 16 GB), so that no two are translated by the same line of the host's table.
    pub scatter_bits: u32,
    /// Translations of guest-physical pages, if the processor keeps them apart.
    pub tlb: Option<Geometry>,
    /// Caches of the host's PDEs, PDPTEs, PML4Es and PML5Es.
    pub walk: [Option<Geometry>; 4],
}

impl Nested {
    /// Nothing cached: every walk pays for all of its references.
    #[must_use]
    pub const fn uncached(host: PageSize) -> Self {
        Self {
            host,
            levels: 4,
            scatter_bits: 0,
            tlb: None,
            walk: [None; 4],
        }
    }
}

/// A processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The processor, in words.
    pub about: &'static str,
    /// Cycles per microsecond.
    pub mhz: u32,
    /// Levels of the page table: 4, or 5.
    pub levels: u8,
    /// The stores that the slots below speak of.
    pub stores: &'static [Geometry],
    /// First level: for base, huge and giant pages.
    pub l1: [Slot; 3],
    /// Second level; `None` where that size is not kept there.
    pub l2: [Option<Slot>; 3],
    /// Page-walk caches for PDEs, PDPTEs, PML4Es and PML5Es: which store.
    pub walk: [Option<u8>; 4],
    /// Cycles beyond an L1 hit when the second level hits; also spent before a walk starts.
    pub l2_cycles: u32,
    /// Cycles of a walk besides its references to memory.
    pub walk_cycles: u32,
    /// L1, L2 and L3.
    pub caches: [CacheLevel; 3],
    /// Cycles from load to use when no cache has the line.
    pub memory_cycles: u32,
    /// Share of each cache that lines of page tables win against data, in percent.
    pub share_percent: u32,
    /// Share of a translation's cycles that an independent access waits for, in percent: a processor has several walkers, and continues
    /// meanwhile.
    pub overlap_percent: u32,
    /// Two-dimensional walks, in a virtual machine.
    pub nested: Option<Nested>,
    /// The source of each figure, by the name of its field.
    pub sources: &'static [(&'static str, &'static str)],
}

/// The figures whose source every preset names.
pub const FIGURES: [&str; 10] = [
    "mhz",
    "stores",
    "l1",
    "l2",
    "walk",
    "l2_cycles",
    "walk_cycles",
    "caches",
    "memory_cycles",
    "share_percent",
];

impl Preset {
    /// The same with two-dimensional walks, or without.
    #[must_use]
    pub const fn with_nested(self, nested: Option<Nested>) -> Self {
        Self { nested, ..self }
    }

    /// The same with page tables of so many levels, 4 or 5 (others count as the nearer of the two).
    #[must_use]
    pub const fn with_levels(self, levels: u8) -> Self {
        Self {
            levels: if levels > 4 { 5 } else { 4 },
            ..self
        }
    }

    /// Picoseconds per cycle, rounded.
    #[must_use]
    pub const fn ps_per_cycle(&self) -> u64 {
        (1_000_000 + self.mhz as u64 / 2) / self.mhz as u64
    }

    /// The cost of a cycle of translation to an independent access, in picoseconds.
    #[must_use]
    pub const fn ps_per_overlapped_cycle(&self) -> u64 {
        (self.ps_per_cycle() * self.overlap_percent as u64).div_ceil(100)
    }

    /// So many cycles in nanoseconds, rounded down; saturating.
    #[must_use]
    pub const fn ns(&self, cycles: u64) -> u64 {
        cycles.saturating_mul(1000) / self.mhz as u64
    }

    /// The maximum cost of one translation, in cycles.
    #[must_use]
    pub fn most_cycles(&self) -> u64 {
        let guest = u64::from(self.levels);
        let references = self.nested.map_or(guest, |nested| {
            let host = u64::from(nested.levels);
            guest * (host + 1) + host
        });
        let line = self.caches.map(|cache| cache.cycles).into_iter().max();
        let line = u64::from(self.memory_cycles.max(line.unwrap_or(0)));
        u64::from(self.l2_cycles) + u64::from(self.walk_cycles) + references * line
    }

    /// Lines of page tables that each cache can hold.
    pub(super) fn line_levels(&self) -> [(u64, u32); 3] {
        self.caches.map(|c| {
            (
                c.bytes * u64::from(self.share_percent) / 100 / super::lines::LINE_BYTES,
                c.cycles,
            )
        })
    }

    /// Checks whether it can be built.
    ///
    /// # Errors
    ///
    /// The preset, the figure and what is wrong with it.
    pub fn check(&self) -> Result<(), PresetError> {
        let wrong = |figure, what: String| {
            Err(PresetError {
                preset: self.name,
                figure,
                what,
            })
        };
        if self.mhz == 0 || self.mhz > 10_000 {
            return wrong("mhz", format!("{} is not from 1 to 10000", self.mhz));
        }
        if !(4..=5).contains(&self.levels) {
            return wrong("levels", format!("{} is neither 4 nor 5", self.levels));
        }
        if !(1..=100).contains(&self.share_percent) {
            return wrong("share_percent", format!("{} is not from 1 to 100", self.share_percent));
        }
        if !(1..=100).contains(&self.overlap_percent) {
            return wrong(
                "overlap_percent",
                format!("{} is not from 1 to 100", self.overlap_percent),
            );
        }
        for store in self.stores {
            if let Err(what) = store.check() {
                return wrong("stores", what);
            }
        }
        let slot_is_wrong = |slot: &Slot, size: PageSize| {
            let Some(store) = self.stores.get(usize::from(slot.store)) else {
                return Some(format!("there is no store {}", slot.store));
            };
            let ways = if store.ways >= 32 {
                u32::MAX
            } else {
                (1 << store.ways) - 1
            };
            if slot.ways & ways == 0 {
                return Some(format!("none of the {} ways is allowed", store.ways));
            }
            (slot.covers > size).then(|| format!("an entry for a {size:?} page that covers more than it"))
        };
        for (slot, size) in self.l1.iter().zip(PageSize::ALL) {
            if let Some(what) = slot_is_wrong(slot, size) {
                return wrong("l1", what);
            }
        }
        for (slot, size) in self.l2.iter().zip(PageSize::ALL) {
            if let Some(what) = slot.as_ref().and_then(|slot| slot_is_wrong(slot, size)) {
                return wrong("l2", what);
            }
        }
        if let Some(store) = self
            .walk
            .iter()
            .flatten()
            .find(|s| usize::from(**s) >= self.stores.len())
        {
            return wrong("walk", format!("there is no store {store}"));
        }
        if let Some(nested) = &self.nested {
            if !(4..=5).contains(&nested.levels) {
                return wrong("nested", format!("{} levels, neither 4 nor 5", nested.levels));
            }
            if nested.scatter_bits != 0 && !(21..=48).contains(&nested.scatter_bits) {
                return wrong(
                    "nested",
                    format!("scattered over {} bits, not 21 to 48", nested.scatter_bits),
                );
            }
            for geometry in nested.walk.iter().flatten().chain(&nested.tlb) {
                if let Err(what) = geometry.check() {
                    return wrong("nested", what);
                }
            }
        }
        Ok(())
    }
}

/// A preset that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("processor {preset}: {figure}: {what}")]
pub struct PresetError {
    /// Which.
    pub preset: &'static str,
    /// Which of its figures.
    pub figure: &'static str,
    /// What is wrong with it.
    pub what: String,
}
