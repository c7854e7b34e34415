//! Walks of page tables, in one dimension and in two.
//!
//! Levels count from the bottom: 0 is the PTE, 1 the PDE, 2 the PDPTE, 3 the PML4E, 4 the PML5E. A page of size s is mapped by the entry of level
//! s; the entries above point to tables, and only those are in the page-walk caches (Intel SDM vol. 3A, 4.10.3). A walk takes the lowest
//! cached entry above the leaf and reads what is below it.
//!
//! Nested (Intel EPT, AMD nested paging): each guest entry lies at a guest-physical address, which the host's table has to translate before it
//! can be read, and so does the page itself: g guest and h host levels are up to g·(h+1)+h reads. Guest-physical addresses are assumed to
//! be laid out like virtual ones: a space's pages in one area, the entries of each level in others, eight bytes each in the order of
//! what they map; or base pages, tables among them, are scattered ([`Nested::scatter_bits`](super::Nested)).

use super::lines::{mix, Lines};
use super::preset::Preset;
use super::store::{Store, ALL_WAYS};
use super::{tag, PageSize, KIND_AT};

/// Reads the lines of a walk.
pub(super) trait Reader {
    /// The line of one entry.
    fn one(&mut self, key: u64);

    /// Those of one entry of each level from `from` down to `leaf`; `key` names the line at a level.
    fn read(&mut self, from: u32, leaf: u32, key: impl Fn(u32) -> u64);
}

/// Reads them at once.
pub(super) struct AtOnce<'a> {
    pub lines: &'a mut Lines,
    /// The cycles taken.
    pub cycles: u32,
}

impl Reader for AtOnce<'_> {
    #[inline]
    fn one(&mut self, key: u64) {
        self.cycles += self.lines.read(key);
    }

    #[inline]
    fn read(&mut self, from: u32, leaf: u32, key: impl Fn(u32) -> u64) {
        for level in (leaf..=from).rev() {
            self.one(key(level));
        }
    }
}

/// Notes them, to be read in the same order later. There must be room.
pub(super) struct Later<'a> {
    pub keys: &'a mut [u64],
    /// Number of lines.
    pub noted: usize,
}

impl Reader for Later<'_> {
    #[inline]
    fn one(&mut self, key: u64) {
        self.keys[self.noted] = key;
        self.noted += 1;
    }

    #[inline]
    fn read(&mut self, from: u32, leaf: u32, key: impl Fn(u32) -> u64) {
        // Most walks start at one of the lowest two levels, and the host cannot guess at which: both are noted, and what is read counts.
        for level in (leaf.max(2)..=from).rev() {
            self.one(key(level));
        }
        for level in [1, 0] {
            self.keys[self.noted] = key(level);
            self.noted += usize::from(level <= from && level >= leaf);
        }
    }
}

/// Maximum of lines that [`Later`] needs space for in one walk: five levels on five, and those that do not count.
pub(super) const MOST_LINES: usize = 6 * 5 + 5 + 5;

/// The host's side of nested walks.
#[derive(Debug, Clone)]
struct Host {
    page: u32,
    top: u32,
    /// Base pages that scattered memory has, less one; 0: not scattered.
    scatter: u64,
    tlb: Option<Store>,
    caches: [Option<Store>; 4],
}

/// The page walker of a core.
#[derive(Debug, Clone)]
pub struct Walker {
    /// The highest level.
    top: u32,
    cycles: u32,
    /// The store of the entries of levels 1, 2, 3 and 4.
    caches: [Option<u8>; 4],
    host: Option<Host>,
}

/// Marks the kind of a page-walk cache's tags.
const WALK_KIND: u32 = 3;

/// Bits of address below the entry of a level.
#[inline]
fn shift(level: u32) -> u32 {
    12 + 9 * level
}

/// What identifies a line of a page table: `area` 0 is the guest's own tables, others the host's for that area of guest-physical memory.
#[inline]
fn line_key(space: u16, area: u32, level: u32, entry: u64) -> u64 {
    // 41 bits of line, 3 of level, 3 of area, 16 of space.
    (entry >> 3) | u64::from(level) << 42 | u64::from(area) << 45 | u64::from(space) << 48
}

/// The number and the tag of a table's entry in a page-walk cache.
#[inline]
pub(super) fn entry(context: u32, address: u64, level: u32) -> (u64, u64) {
    let number = address >> shift(level);
    (
        number,
        tag(context, WALK_KIND, u64::from(level) << (KIND_AT - 4) | number),
    )
}

impl Walker {
    pub(super) fn new(preset: &Preset) -> Self {
        Self {
            top: u32::from(preset.levels) - 1,
            cycles: preset.walk_cycles,
            caches: preset.walk,
            host: preset.nested.map(|nested| Host {
                page: nested.host.level(),
                top: u32::from(nested.levels) - 1,
                scatter: (1u64 << nested.scatter_bits >> 12).saturating_sub(1),
                tlb: nested.tlb.as_ref().map(Store::new),
                caches: nested.walk.map(|geometry| geometry.as_ref().map(Store::new)),
            }),
        }
    }

    /// Flushes the host side's caches; the guest's are the TLB's stores.
    pub(super) fn clear(&mut self) {
        if let Some(host) = &mut self.host {
            for store in host.caches.iter_mut().flatten().chain(&mut host.tlb) {
                store.clear();
            }
        }
    }

    /// The highest level of the guest's table.
    #[inline]
    pub(super) fn top(&self) -> u32 {
        self.top
    }

    /// The cost of a walk besides its lines, in cycles.
    #[inline]
    pub(super) fn cycles(&self) -> u32 {
        self.cycles
    }

    /// The store of the entries of a level, from 1 on.
    #[inline]
    pub(super) fn cache(&self, level: u32) -> Option<u8> {
        self.caches[level as usize - 1]
    }

    /// The level at which a walk for a page of this size starts to read: below the lowest cached entry.
    #[inline]
    pub(super) fn start(&self, stores: &mut [Store], context: u32, address: u64, size: PageSize) -> u32 {
        for level in size.level() + 1..=self.top {
            let Some(store) = self.cache(level) else {
                continue;
            };
            let (number, wanted) = entry(context, address, level);
            // A miss inserts what the walk is about to read.
            if stores[usize::from(store)].access(number, wanted, ALL_WAYS) {
                return level - 1;
            }
        }
        self.top
    }

    /// The rest of a walk for a page of this size, which starts at this level. Returns the number of entries it reads, of guest and host.
    #[inline]
    pub(super) fn walk(
        &mut self,
        reader: &mut impl Reader,
        space: u16,
        address: u64,
        size: PageSize,
        from: u32,
    ) -> u32 {
        let leaf = size.level();
        let guest = |level| line_key(space, 0, level, address >> shift(level));
        let mut references = from - leaf + 1;
        match &mut self.host {
            None => reader.read(from, leaf, guest),
            Some(host) => {
                for level in (leaf..=from).rev() {
                    references += host.translate_base(reader, space, level + 2, (address >> shift(level)) * 8);
                    reader.one(guest(level));
                }
                references += if leaf == 0 {
                    host.translate_base(reader, space, 1, address)
                } else {
                    host.translate(reader, space, 1, address)
                };
            }
        }
        references
    }
}

impl Host {
    /// Translates an address in a base page of the guest, wherever that lies.
    #[inline]
    fn translate_base(&mut self, reader: &mut impl Reader, space: u16, area: u32, address: u64) -> u32 {
        if self.scatter == 0 {
            return self.translate(reader, space, area, address);
        }
        let page = mix(address >> 12 | u64::from(area) << 45 | u64::from(space) << 48) & self.scatter;
        // Area 7 is the scattered memory of all spaces.
        self.translate(reader, 0, 7, page << 12)
    }

    /// Translates a guest-physical address of an area. Returns how many entries of the host's that reads.
    #[inline]
    fn translate(&mut self, reader: &mut impl Reader, space: u16, area: u32, address: u64) -> u32 {
        // All 64 bits of the key matter, and no more: a mixed key is as good as a tag.
        let wanted = |level: u32| {
            let number = address >> shift(level);
            let key = number | u64::from(area) << 45 | u64::from(space) << 48;
            (number ^ u64::from(area), mix(key ^ u64::from(level) << 41) | 1)
        };
        if let Some(tlb) = &mut self.tlb {
            let (number, wanted) = wanted(self.page);
            if tlb.access(number, wanted, ALL_WAYS) {
                return 0;
            }
        }
        let mut from = self.top;
        for level in self.page + 1..=self.top {
            let Some(store) = &mut self.caches[level as usize - 1] else {
                continue;
            };
            let (number, wanted) = wanted(level);
            if store.access(number, wanted, ALL_WAYS) {
                from = level - 1;
                break;
            }
        }
        reader.read(from, self.page, |level| {
            line_key(space, area, level, address >> shift(level))
        });
        from - self.page + 1
    }
}
