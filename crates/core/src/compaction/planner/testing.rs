//! Synthetic memory for the planners' tests.

use std::time::Duration;

use crate::compaction::block::{Block, Hpfn, Zone, ZoneKind};
use crate::units::{BasePages, Blocks};

pub const DMA32: u8 = 0;
pub const NORMAL: u8 = 1;

/// A zone with this many free base pages, of them so many whole free blocks.
pub fn zone(kind: ZoneKind, free_pages: u64, free_blocks: u64) -> Zone {
    Zone {
        node: 0,
        name: format!("{kind:?}"),
        kind,
        start_frame: 0,
        spanned_frames: 1 << 30,
        free_pages,
        free_blocks: Blocks(free_blocks),
    }
}

/// ZONE_DMA32 with enough free blocks to need no compaction, and ZONE_NORMAL with none.
pub fn zones() -> Vec<Zone> {
    vec![zone(ZoneKind::Dma32, 1024, 2), zone(ZoneKind::Normal, 100_000, 0)]
}

/// A block with so many movable pages, the rest free, last mapped `age_s` seconds ago.
pub fn movable(hpfn: u32, zone: u8, pages: u32, age_s: u64) -> Block {
    Block::new(Hpfn(hpfn), zone)
        .with_pages([512 - pages, pages, 0, 0, 0, 0])
        .with_mapped(BasePages(pages))
        .with_age(Some(Duration::from_secs(age_s)))
}
