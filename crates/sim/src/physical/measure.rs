//! Fragmentation of free memory, and blocks and zones in core's terms, for its planners.

use mega_core::compaction::block::{Block, Hpfn, PageKind, Zone as CoreZone, ZoneKind};
use mega_core::units::{BasePages, Blocks, Share, REGION_PAGES};

use super::frames::BlockInfo;
use super::zone::{Zone, ORDERS};
use super::{MigrateType, Physical, Watermarks};
use crate::unit::{BLOCK_ORDER, MAX_ORDER};

/// The free memory of a zone (/proc/pagetypeinfo, /proc/zoneinfo).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneFree {
    /// NUMA node.
    pub node: u8,
    /// Its kind.
    pub kind: ZoneKind,
    /// All its pages.
    pub pages: u64,
    /// Free pages, without those on per-CPU lists.
    pub free_pages: u64,
    /// Free pages on per-CPU lists.
    pub listed_pages: u64,
    /// Free runs by order, by migrate type in the order of [`MigrateType::ALL`].
    pub runs: [[u64; MigrateType::COUNT]; ORDERS],
    /// Its watermarks, in pages.
    pub watermarks: Watermarks,
    /// Pages reserved against allocations that could use a higher zone of the node.
    pub reserve_pages: u64,
}

impl Zone {
    /// Pages in runs of this order and above: what is available for allocations of this order.
    fn usable(&self, order: u8) -> u64 {
        (order..=MAX_ORDER).map(|o| self.runs(o) << o).sum()
    }

    /// The kernel's fragmentation index for this order, in thousandths (mm/vmstat.c, `__fragmentation_index`).
    pub fn fragmentation_index(&self, order: u8) -> i64 {
        let runs: u64 = (0..=MAX_ORDER).map(|o| self.runs(o)).sum();
        if runs == 0 {
            return 0;
        }
        if self.has_free(order) {
            return -1000;
        }
        1000 - ((1000 + self.free * 1000 / (1 << order)) / runs) as i64
    }

    /// Percentage of the free memory that is useless for a huge page (mm/vmstat.c, `extfrag_for_order`); none free: 0.
    pub fn score(&self) -> u64 {
        let unusable = self.free - self.usable(BLOCK_ORDER);
        (unusable * 100).checked_div(self.free).unwrap_or(0)
    }

    fn name(&self) -> &'static str {
        match self.kind {
            ZoneKind::Dma32 => "DMA32",
            _ => "Normal",
        }
    }
}

impl Physical {
    /// Share of the free memory in runs too small for an allocation of this order, without per-CPU lists. None free: 0.
    #[must_use]
    pub fn unusable(&self, order: u8) -> Share {
        let order = order.min(MAX_ORDER);
        let free: u64 = self.zones.iter().map(|zone| zone.free).sum();
        let usable: u64 = self.zones.iter().map(|zone| zone.usable(order)).sum();
        Share::of(free - usable, free)
    }

    /// Linux's fragmentation index of a zone, by its index in [`Physical::zones`], for an allocation of this order, in thousandths: -1000 where it would
    /// succeed; otherwise towards 0 it would fail for lack of memory, towards 1000 for fragmentation. None: there is no such zone.
    #[must_use]
    pub fn fragmentation_index(&self, zone: usize, order: u8) -> Option<i64> {
        let order = order.min(MAX_ORDER);
        self.zones.get(zone).map(|zone| zone.fragmentation_index(order))
    }

    /// Linux's fragmentation score of a node, 0 to 100: each zone's percentage of free memory that is useless for a huge page, weighted by the zone's
    /// size (mm/compaction.c, `fragmentation_score_node`).
    #[must_use]
    pub fn fragmentation_score(&self, node: u8) -> u64 {
        let zones = || self.zones.iter().filter(|zone| zone.node == node);
        let present: u64 = zones().map(Zone::pages).sum();
        zones().map(|zone| zone.pages() * zone.score() / (present + 1)).sum()
    }

    /// The free memory of each zone, by order and type.
    #[must_use]
    pub fn free_by_order(&self) -> Vec<ZoneFree> {
        let of = |zone: &Zone| ZoneFree {
            node: zone.node,
            kind: zone.kind,
            pages: zone.pages(),
            free_pages: zone.free,
            listed_pages: zone.pcp.pages,
            runs: zone.area.map(|lists| lists.map(|list| u64::from(list.len))),
            watermarks: zone.marks,
            reserve_pages: zone.reserve,
        };
        self.zones.iter().map(of).collect()
    }

    /// The zones, as core's planners see them.
    #[must_use]
    pub fn zones(&self) -> Vec<CoreZone> {
        let of = |zone: &Zone| CoreZone {
            node: zone.node.into(),
            name: zone.name().to_string(),
            kind: zone.kind,
            start_frame: zone.start.into(),
            spanned_frames: zone.pages(),
            free_pages: zone.free,
            free_blocks: Blocks(zone.free_blocks()),
        };
        self.zones.iter().map(of).collect()
    }

    /// Every block up to the end of memory, as core's planners see it; their zones are indices into [`Physical::zones`]. Mapped pages are those of
    /// processes and fragmenters; accesses and age are left unknown. Takes a few nanoseconds per block.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        (0u32..)
            .zip(&self.frames.blocks)
            .map(|(i, info)| summary(Hpfn(i), info))
            .collect()
    }

    /// One block, as core's planners see it. None: beyond the end of memory.
    #[must_use]
    pub fn block(&self, block: Hpfn) -> Option<Block> {
        let info = self.frames.blocks.get(block.0 as usize)?;
        Some(summary(block, info))
    }

    /// The migrate type of a block. None: it is no memory.
    #[must_use]
    pub fn migrate_type(&self, block: Hpfn) -> Option<MigrateType> {
        let info = self.frames.blocks.get(block.0 as usize)?;
        (info.zone != BlockInfo::NO_ZONE).then_some(info.migrate)
    }
}

fn summary(hpfn: Hpfn, info: &BlockInfo) -> Block {
    let block = Block::new(hpfn, info.zone);
    if info.zone == BlockInfo::NO_ZONE {
        return block;
    }
    let [free, movable, unmovable, huge] = [info.free, info.movable, info.unmovable, info.huge].map(u32::from);
    let mut pages = [0; PageKind::COUNT];
    pages[PageKind::Free as usize] = free;
    pages[PageKind::Movable as usize] = movable;
    pages[PageKind::Unmovable as usize] = unmovable;
    pages[PageKind::Huge as usize] = huge;
    pages[PageKind::Unflagged as usize] = REGION_PAGES.saturating_sub(free + movable + unmovable + huge);
    let mapped = movable - u32::from(info.cache) + huge;
    block.with_pages(pages).with_mapped(BasePages(mapped))
}

const _: () = assert!(BlockInfo::NO_ZONE == Block::NO_ZONE);
