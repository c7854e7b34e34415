//! The size of a machine's memory, its nodes and zones, and the watermarks that Linux computes from them.

use mega_core::compaction::block::ZoneKind;
use mega_core::units::{BASE_PAGE_BYTES, REGION_PAGES};

use super::MigrateType;
use crate::unit::Frame;

/// Frames below 4 GB.
const FRAMES_4G: u32 = 1 << 20;
/// Node and zone boundaries lie at multiples of this many frames: the largest order, so that no free block spans two zones.
const GRAIN: u32 = 1 << crate::unit::MAX_ORDER;
/// The least memory of a node: 16 MB.
const LEAST: u32 = 4 * GRAIN;
/// The most nodes.
const MOST_NODES: u8 = 32;
/// Divisor: the part of the zones above that a lower zone reserves against allocations that could use the higher one (vm.lowmem_reserve_ratio's default for DMA32).
pub(super) const LOWMEM_RESERVE_RATIO: u64 = 256;
/// Parts of 10,000 of a zone between its watermarks (vm.watermark_scale_factor's default).
const WATERMARK_SCALE_FACTOR: u64 = 10;

/// How the memory is laid out: ZONE_DMA32 below 4 GB, ZONE_NORMAL above. ZONE_DMA's 16 MB are part of ZONE_DMA32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// All memory, in bytes.
    pub bytes: u64,
    /// NUMA nodes; they share the memory evenly, by rising address.
    pub nodes: u8,
    /// Bytes just below 4 GB that are device memory; the memory displaced lies higher. 1 GB on many PCs.
    pub hole_bytes: u64,
    /// Processors: they determine the size of the per-CPU lists. There is one set of lists in any case.
    pub cpus: u16,
    /// Whether khugepaged runs, so that the kernel keeps more memory free (mm/khugepaged.c, `set_recommended_min_free_kbytes`).
    pub khugepaged: bool,
}

/// Why a layout is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Too little.
    #[error("{0} bytes of memory in {1} nodes: at least 16 MB in each")]
    Small(u64, u8),
    /// Too much: frame numbers have 28 bits.
    #[error("{0} bytes of memory end above the maximum of 1 TB")]
    Large(u64),
    /// No node, or too many.
    #[error("{0} nodes: 1 to 32")]
    Nodes(u8),
    /// The hole leaves nothing.
    #[error("a hole of {0} bytes below 4 GB: at most 3 GB")]
    Hole(u64),
}

/// Frames from `start` to before `end` in one zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub node: u8,
    pub kind: ZoneKind,
    pub start: u32,
    pub end: u32,
}

/// Free pages of a zone at which something happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// The limit of ordinary allocations.
    pub min: u64,
    /// kswapd is woken below it.
    pub low: u64,
    /// kswapd stops here.
    pub high: u64,
}

impl Layout {
    /// One node, no hole, 8 processors, khugepaged running.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        Self {
            bytes,
            nodes: 1,
            hole_bytes: 0,
            cpus: 8,
            khugepaged: true,
        }
    }

    /// The same with this many nodes.
    #[must_use]
    pub fn with_nodes(self, nodes: u8) -> Self {
        Self { nodes, ..self }
    }

    /// The same with the GB below 4 GB left out, as on PCs.
    #[must_use]
    pub fn with_pc_hole(self) -> Self {
        Self {
            hole_bytes: 1 << 30,
            ..self
        }
    }

    /// Fails with what [`Layout::fitted`] would change by more than rounding.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.nodes == 0 || self.nodes > MOST_NODES {
            return Err(LayoutError::Nodes(self.nodes));
        }
        if self.hole_bytes > 3 << 30 {
            return Err(LayoutError::Hole(self.hole_bytes));
        }
        if self.bytes < u64::from(LEAST) * BASE_PAGE_BYTES * u64::from(self.nodes) {
            return Err(LayoutError::Small(self.bytes, self.nodes));
        }
        let most = (u64::from(Frame::MAX) + 1) * BASE_PAGE_BYTES;
        let below_4g = (u64::from(FRAMES_4G) * BASE_PAGE_BYTES).saturating_sub(self.hole_bytes);
        let hole = if self.bytes > below_4g { self.hole_bytes } else { 0 };
        if self.bytes.saturating_add(hole) > most {
            return Err(LayoutError::Large(self.bytes));
        }
        Ok(())
    }

    /// The nearest possible layout: 1 to 32 nodes of at least 16 MB, at most 1 TB in all, sizes in whole blocks of 4 MB.
    #[must_use]
    pub fn fitted(&self) -> Self {
        let grain = u64::from(GRAIN) * BASE_PAGE_BYTES;
        let nodes = self.nodes.clamp(1, MOST_NODES);
        let hole_bytes = self.hole_bytes.min(3 << 30) / grain * grain;
        let least = u64::from(LEAST) * BASE_PAGE_BYTES * u64::from(nodes);
        let most = (u64::from(Frame::MAX) + 1) * BASE_PAGE_BYTES - hole_bytes;
        Self {
            bytes: self.bytes.clamp(least, most) / grain * grain,
            nodes,
            hole_bytes,
            cpus: self.cpus.max(1),
            khugepaged: self.khugepaged,
        }
    }

    /// The zones, by rising address. Only of a fitted layout.
    pub(super) fn spans(&self) -> Vec<Span> {
        let frames = (self.bytes / BASE_PAGE_BYTES) as u32;
        let low_end = FRAMES_4G - (self.hole_bytes / BASE_PAGE_BYTES) as u32;
        let nodes = u32::from(self.nodes);
        let share = frames / nodes / GRAIN * GRAIN;
        let mut spans = Vec::new();
        for node in 0..nodes {
            // Counted without the hole: from `first` to before `last` of all frames that are memory.
            let first = node * share;
            let last = if node + 1 == nodes { frames } else { first + share };
            let mut span = |start: u32, end: u32, kind| {
                if start < end {
                    let node = node as u8;
                    spans.push(Span { node, kind, start, end });
                }
            };
            span(first.min(low_end), last.min(low_end), ZoneKind::Dma32);
            let shift = FRAMES_4G - low_end;
            span(first.max(low_end) + shift, last.max(low_end) + shift, ZoneKind::Normal);
        }
        spans
    }

    /// The watermarks of each zone (mm/page_alloc.c, `calculate_min_free_kbytes` and `__setup_per_zone_wmarks`).
    pub(super) fn watermarks(&self, spans: &[Span]) -> Vec<Watermarks> {
        let managed = |span: &Span| u64::from(span.end - span.start);
        let total: u64 = spans.iter().map(managed).sum();
        let min_free = self.min_free_pages(total, spans.len() as u64);
        let of = |span: &Span| {
            let pages = managed(span);
            let min = min_free * pages / total.max(1);
            let step = (min / 4).max(pages * WATERMARK_SCALE_FACTOR / 10_000);
            Watermarks {
                min,
                low: min + step,
                high: min + 2 * step,
            }
        };
        spans.iter().map(of).collect()
    }

    /// vm.min_free_kbytes, in pages.
    fn min_free_pages(&self, total: u64, zones: u64) -> u64 {
        let kbytes = (total * 4 * 16).isqrt().clamp(128, 256 << 10);
        let plain = kbytes / 4;
        if !self.khugepaged {
            return plain;
        }
        // Two blocks per zone, and one for each pair of migrate types. ZONE_DMA counts where there is one, which is on every PC.
        let types = MigrateType::COUNT as u64;
        let recommended = u64::from(REGION_PAGES) * (zones + 1) * (2 + types * types);
        plain.max(recommended.min(total / 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn frames(bytes: u64) -> u32 {
        (bytes / BASE_PAGE_BYTES) as u32
    }

    #[test]
    fn memory_below_4g_is_dma32_and_the_hole_moves_the_rest_up() {
        let spans = Layout::of_bytes(16 * GIB).fitted().spans();
        let ends: Vec<_> = spans.iter().map(|s| (s.kind, s.start, s.end)).collect();
        let (four, sixteen) = (frames(4 * GIB), frames(16 * GIB));
        assert_eq!(ends, [(ZoneKind::Dma32, 0, four), (ZoneKind::Normal, four, sixteen)]);
        let spans = Layout::of_bytes(16 * GIB).with_pc_hole().fitted().spans();
        let ends: Vec<_> = spans.iter().map(|s| (s.start, s.end)).collect();
        assert_eq!(ends, [(0, frames(3 * GIB)), (four, frames(17 * GIB))]);
        assert_eq!(Layout::of_bytes(2 * GIB).spans().len(), 1);
    }

    #[test]
    fn nodes_share_the_memory() {
        let spans = Layout::of_bytes(16 * GIB).with_nodes(2).fitted().spans();
        let nodes: Vec<_> = spans.iter().map(|s| (s.node, s.kind)).collect();
        let expected = [(0, ZoneKind::Dma32), (0, ZoneKind::Normal), (1, ZoneKind::Normal)];
        assert_eq!(nodes, expected);
        let total: u32 = spans.iter().map(|s| s.end - s.start).sum();
        assert_eq!(total, frames(16 * GIB));
    }

    #[test]
    fn watermarks_are_those_of_the_development_machine() {
        // Its /proc/zoneinfo, khugepaged not running: DMA32 of 772,915 managed pages 620, 1392, 2164; Normal of 5,394,266 pages 4332, 9726,
        // 15120; min_free_kbytes 19826. The kernel leaves out the pages under the high watermarks, a fifth of a percent, before the root.
        let span = |kind, start, end| Span {
            node: 0,
            kind,
            start,
            end,
        };
        let spans = [
            span(ZoneKind::Dma32, 0, 772_915),
            span(ZoneKind::Normal, 1 << 20, (1 << 20) + 5_394_266),
        ];
        let layout = Layout {
            khugepaged: false,
            ..Layout::of_bytes(24 * GIB)
        };
        let marks = layout.watermarks(&spans);
        let expected = [(620, 1392, 2164), (4332, 9726, 15120)];
        for (mark, (min, low, high)) in marks.iter().zip(expected) {
            let near = |a: u64, b: u64| a.abs_diff(b) * 200 <= b;
            assert!(
                near(mark.min, min) && near(mark.low, low) && near(mark.high, high),
                "{mark:?}"
            );
        }
    }

    #[test]
    fn with_khugepaged_a_pc_keeps_67584_kbytes_free() {
        let layout = Layout::of_bytes(16 * GIB);
        let total = 16 * GIB / BASE_PAGE_BYTES;
        assert_eq!(layout.min_free_pages(total, 2) * 4, 67584);
    }

    #[test]
    fn what_cannot_be_is_said_and_cut() {
        let of = Layout::of_bytes;
        assert_eq!(of(0).check(), Err(LayoutError::Small(0, 1)));
        assert_eq!(of(2 << 40).check(), Err(LayoutError::Large(2 << 40)));
        assert_eq!(of(1 << 40).check(), Ok(()));
        assert_eq!(of(1 << 40).with_pc_hole().check(), Err(LayoutError::Large(1 << 40)));
        assert_eq!(of(GIB).with_nodes(0).check(), Err(LayoutError::Nodes(0)));
        for layout in [of(0), of(u64::MAX).with_pc_hole(), of(5 << 20).with_nodes(200)] {
            let fitted = layout.fitted();
            assert_eq!(fitted.check(), Ok(()), "{layout:?}");
            let spans = fitted.spans();
            assert!(spans
                .iter()
                .all(|s| s.start % GRAIN == 0 && s.end % GRAIN == 0 && s.end - 1 <= Frame::MAX));
        }
    }
}
