//! The physical memory of a machine: nodes, zones, the buddy allocator, compaction, and how fragmented it is.
//!
//! Modelled on Linux (mm/page_alloc.c and mm/compaction.c); where versions differ, the file says which one it follows. Single-threaded: nothing
//! happens between two calls, so the kernel's races, locks and contention are not here.
//!
//! | file | subject |
//! | --- | --- |
//! | `layout` | how much memory, in which nodes and zones; watermarks |
//! | `frames` | the word and the byte of each frame; what a block holds |
//! | `list` | lists whose links are the frames' own words |
//! | `owner` | an owner in 64 bits |
//! | `zone` | a zone and its buddy allocator, with fallback between migrate types |
//! | `pcp`, `fast_path` | the per-CPU lists; allocating and freeing through them |
//! | `positions` | what a zone remembers between compactions |
//! | `allocate` | allocating, freeing, splitting, joining, owners |
//! | `giant` | contiguous GBs |
//! | `cache` | the page cache: the oldest is dropped first |
//! | `compact` | compaction: two scanners, deferral, evacuation of selected blocks |
//! | `measure` | fragmentation, and blocks and zones in core's terms |
//! | `ballast` | fragmenters |
//! | `check` | the invariants |
//!
//! A frame takes 9 bytes: a word (its owner, or its links while it is free) and a byte (its state). Words of frames in blocks that are free or
//! allocated as a whole are never touched, so the host need not back them: the block has a word of its own.

use crate::unit::Frame;

mod allocate;
mod ballast;
mod cache;
mod check;
mod compact;
mod fast_path;
mod frames;
mod giant;
mod layout;
mod list;
mod measure;
mod owner;
mod pcp;
mod positions;
#[cfg(test)]
mod tests;
mod zone;

pub use allocate::{Ask, DownTo};
pub use ballast::{Fragmented, Fragmenter, Pattern};
pub use compact::{Compact, Compaction, Emptied, Mover};
pub use giant::GIANT_BLOCKS;
pub use layout::{Layout, LayoutError, Watermarks};
pub use measure::ZoneFree;

use cache::Cache;
use compact::Scratch;
use frames::Frames;
use zone::Zone;

/// Pages are grouped by migrate type, so that unmovable ones share blocks (enum migratetype, without CMA and the atomic reserve).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum MigrateType {
    /// The kernel's own.
    Unmovable,
    /// Programs' memory and page cache.
    Movable,
    /// The kernel's own that it can reclaim: caches of file names and the like.
    Reclaimable,
}

impl MigrateType {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// Every one.
    pub const ALL: [Self; Self::COUNT] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The types to fall back on, in this order, when it has no free memory of its own (mm/page_alloc.c, `fallbacks`).
    pub(crate) fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}

/// Event counters, by the kernel's names in /proc/vmstat where it has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages scanned by migrate scanners.
    pub compact_migrate_scanned: u64,
    /// Pages scanned by free scanners.
    pub compact_free_scanned: u64,
    /// Pages isolated by either scanner.
    pub compact_isolated: u64,
    /// Direct compactions started.
    pub compact_stall: u64,
    /// Those that made no block of the order asked for.
    pub compact_fail: u64,
    /// Those that made one.
    pub compact_success: u64,
    /// Runs of kcompactd.
    pub compact_daemon_wake: u64,
    /// Pages migrated.
    pub pgmigrate_success: u64,
    /// Pages that could not be migrated.
    pub pgmigrate_fail: u64,
    /// Whole blocks claimed from another migrate type.
    pub blocks_claimed: u64,
    /// Allocations stolen from a block that keeps another migrate type.
    pub pages_stolen: u64,
}

/// All physical memory of a machine.
#[derive(Debug)]
pub struct Physical {
    frames: Frames,
    zones: Vec<Zone>,
    /// For each node, the zones to try, by preference.
    zonelists: Vec<Vec<u8>>,
    cache: Cache,
    counters: Counters,
    scratch: Scratch,
    layout: Layout,
    seed: u64,
}

impl Physical {
    /// Memory, all free. An impossible `layout` is cut: see [`Layout::fitted`]. The seed is that of fragmenters.
    #[must_use]
    pub fn new(layout: &Layout, seed: u64) -> Self {
        let layout = layout.fitted();
        let spans = layout.spans();
        let end = spans.last().map_or(0, |span| span.end);
        let mut frames = Frames::new(end);
        let marks = layout.watermarks(&spans);
        let mut zones = Vec::with_capacity(spans.len());
        for (i, span) in (0u8..).zip(&spans) {
            frames.put_in_zone(span.start, span.end, i);
            let above = spans[usize::from(i) + 1..].iter().filter(|s| s.node == span.node);
            let above: u64 = above.map(|s| u64::from(s.end - s.start)).sum();
            let mut zone = Zone::new(
                span,
                marks[usize::from(i)],
                above / layout::LOWMEM_RESERVE_RATIO,
                layout.cpus,
            );
            zone.fill(&mut frames);
            zones.push(zone);
        }
        let zonelists = (0..layout.nodes)
            .map(|node| zonelist(&spans, node, layout.nodes))
            .collect();
        Self {
            frames,
            zones,
            zonelists,
            cache: Cache::default(),
            counters: Counters::default(),
            scratch: Scratch::default(),
            layout,
            seed,
        }
    }

    /// The layout, after cutting.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The event counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let sum = |of: fn(&zone::Fallbacks) -> u64| self.zones.iter().map(|zone| of(&zone.fallbacks)).sum();
        Counters {
            blocks_claimed: sum(|fallbacks| fallbacks.claimed),
            pages_stolen: sum(|fallbacks| fallbacks.stolen),
            ..self.counters
        }
    }

    /// Upper bound on the host's memory that this takes, in bytes; untouched memory is not taken. About 9 bytes per frame.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.frames.host_bytes()
    }

    /// One more than the highest frame number.
    #[must_use]
    pub fn end(&self) -> Frame {
        Frame(self.frames.end())
    }

    /// The zones that an allocation for this node tries, by preference. An unknown node counts as the first.
    fn zonelist(&self, node: u8) -> &[u8] {
        let node = if node < self.layout.nodes { node } else { 0 };
        self.zonelists.get(usize::from(node)).map_or(&[], |list| list)
    }

    /// The index of the zone that contains a frame.
    fn zone_of(&self, frame: u32) -> usize {
        usize::from(self.frames.block_of(frame).zone)
    }
}

/// Node order (mm/page_alloc.c, `build_zonelists`): the node's own zones, highest first, then the next node's, and so on.
fn zonelist(spans: &[layout::Span], node: u8, nodes: u8) -> Vec<u8> {
    let mut list = Vec::with_capacity(spans.len());
    for step in 0..nodes {
        let of = ((u16::from(node) + u16::from(step)) % u16::from(nodes)) as u8;
        let zones = (0u8..).zip(spans).filter(|(_, span)| span.node == of).map(|(i, _)| i);
        list.extend(zones.collect::<Vec<_>>().into_iter().rev());
    }
    list
}
