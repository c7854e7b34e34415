//! Walks of page tables, in one dimension and in two.
//!
//! Levels count from the bottom: 0 is the PTE, 1 the PDE, 2 the PDPTE, 3 the PML4E, 4 the PML5E. A page of size s is mapped by the entry of level
//! s; the entries above point to tables, and only those are in the page-walk caches (Intel SDM vol. 3A, 4.10.3). A walk takes the lowest
//! cached entry above the leaf and reads what is below it.
//!
//! Nested (Intel EPT, AMD nested paging): each guest entry lies at a guest-physical address, which the host's table has to translate before it
//! can be read, and so does the page itself: g guest and h host levels are up to g·(h+1)+h reads. Guest-physical addresses are taken to
//! be laid out like virtual ones: a space's pages in one area, the entries of each level in others, eight bytes each in the order of
//! what they map; or base pages, tables among them, are scattered ([`Nested::scatter_bits`](super::Nested)).

use super::lines::{mix, Lines};
use super::preset::Preset;
use super::store::{Store, ALL_WAYS};
use super::{tag, PageSize, KIND_AT};

/// What a walk took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    /// Cycles.
    pub cycles: u32,
    /// Page-table entries read, the guest's and the host's.
    pub references: u32,
}

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

    /// Forgets what the caches of the host's side hold; the guest's are the TLB's stores.
    pub(super) fn clear(&mut self) {
        if let Some(host) = &mut self.host {
            for store in host.caches.iter_mut().flatten().chain(&mut host.tlb) {
                store.clear();
            }
        }
    }

    /// One walk for a page of this size.
    #[inline]
    pub(super) fn walk(
        &mut self,
        stores: &mut [Store],
        lines: &mut Lines,
        space: u16,
        context: u32,
        address: u64,
        size: PageSize,
    ) -> Walk {
        let leaf = size.level();
        let mut from = self.top;
        for level in leaf + 1..=self.top {
            let Some(store) = self.caches[level as usize - 1] else {
                continue;
            };
            let number = address >> shift(level);
            let wanted = tag(context, WALK_KIND, u64::from(level) << (KIND_AT - 4) | number);
            // A miss puts in what the walk is about to read.
            if stores[usize::from(store)].access(number, wanted, ALL_WAYS) {
                from = level - 1;
                break;
            }
        }
        let mut walk = Walk {
            cycles: self.cycles,
            references: 0,
        };
        match &mut self.host {
            None => {
                for level in (leaf..=from).rev() {
                    walk.cycles += lines.read(line_key(space, 0, level, address >> shift(level)));
                }
                walk.references = from - leaf + 1;
            }
            Some(host) => {
                for level in (leaf..=from).rev() {
                    let entry = address >> shift(level);
                    host.translate_base(lines, space, level + 2, entry * 8, &mut walk);
                    walk.cycles += lines.read(line_key(space, 0, level, entry));
                    walk.references += 1;
                }
                if leaf == 0 {
                    host.translate_base(lines, space, 1, address, &mut walk);
                } else {
                    host.translate(lines, space, 1, address, &mut walk);
                }
            }
        }
        walk
    }
}

impl Host {
    /// Translates an address in a base page of the guest, wherever that lies.
    #[inline]
    fn translate_base(&mut self, lines: &mut Lines, space: u16, area: u32, address: u64, walk: &mut Walk) {
        if self.scatter == 0 {
            return self.translate(lines, space, area, address, walk);
        }
        let page = mix(address >> 12 | u64::from(area) << 45 | u64::from(space) << 48) & self.scatter;
        // Area 7 is the scattered memory of all spaces.
        self.translate(lines, 0, 7, page << 12, walk);
    }

    /// Translates a guest-physical address of an area, and adds what it took.
    fn translate(&mut self, lines: &mut Lines, space: u16, area: u32, address: u64, walk: &mut Walk) {
        // All 64 bits of the key matter, and no more: a mixed key is as good as a tag.
        let wanted = |level: u32| {
            let number = address >> shift(level);
            let key = number | u64::from(area) << 45 | u64::from(space) << 48;
            (number ^ u64::from(area), mix(key ^ u64::from(level) << 41) | 1)
        };
        if let Some(tlb) = &mut self.tlb {
            let (number, wanted) = wanted(self.page);
            if tlb.access(number, wanted, ALL_WAYS) {
                return;
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
        for level in (self.page..=from).rev() {
            walk.cycles += lines.read(line_key(space, area, level, address >> shift(level)));
        }
        walk.references += from - self.page + 1;
    }
}
