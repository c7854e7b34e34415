//! How contiguous free memory is: how much of it is of use for a huge page, and the kernel's own figures for that.
//!
//! Both figures are those of mm/vmstat.c in Linux (`unusable_free_index`, `__fragmentation_index`), read from debugfs where
//! that may be read and computed from /proc/buddyinfo by the same formulas where not. Free pages on the processors' own lists
//! are in neither; since 6.7 these may hold an eighth of a zone for a while. They are reported beside.

use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::proc::buddyinfo::{self, Buddyinfo, BLOCK_ORDER};
use crate::proc::{extfrag, zoneinfo, ProcRoot};

/// Share of the zone's free memory, from 0 to 1, that is in chunks too small for an allocation of `order`. No free memory
/// counts as all of it unusable, as in the kernel.
pub fn unusable_share(zone: &buddyinfo::Zone, order: usize) -> f64 {
    share(zone.free_pages(), zone.suitable(order), order)
}

fn share(free_pages: u64, suitable: u64, order: usize) -> f64 {
    if free_pages == 0 {
        return 1.0;
    }
    let per_request = u32::try_from(order).ok().and_then(|order| 1u64.checked_shl(order));
    let usable = suitable.saturating_mul(per_request.unwrap_or(u64::MAX));
    free_pages.saturating_sub(usable) as f64 / free_pages as f64
}

/// The kernel's fragmentation index for allocations of `order`, in steps of a thousandth: -1 where one would succeed; else
/// towards 0 it would fail for lack of memory, towards 1 for fragmentation. 0 where nothing is free.
///
/// The kernel compacts for an allocation when this is over `vm.extfrag_threshold` (500, which is 0.5).
pub fn fragmentation_index(zone: &buddyinfo::Zone, order: usize) -> f64 {
    let chunks = i128::from(zone.chunks());
    if chunks == 0 {
        return 0.0;
    }
    if zone.suitable(order) > 0 {
        return -1.0;
    }
    let requested = 1i128 << order.min(64);
    let thousandths = 1000 - (1000 + i128::from(zone.free_pages()) * 1000 / requested) / chunks;
    thousandths as f64 / 1000.0
}

/// One zone's free memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZoneFragmentation {
    /// NUMA node.
    pub node: u32,
    /// Zone name: "DMA32", "Normal" ...
    pub name: String,
    /// Free memory.
    pub free_bytes: u64,
    /// Free blocks of 2 MB.
    pub free_blocks: u64,
    /// Free chunks of 2^index base pages, by index.
    pub free_chunks: Vec<u64>,
    /// Share of the free memory, 0 to 1, that is of no use for a huge page.
    pub unusable_share: f64,
    /// The kernel's fragmentation index for a huge page, -1 to 1: see [`fragmentation_index`].
    pub fragmentation_index: f64,
}

/// Where the two figures of each zone come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexSource {
    /// The kernel's files in debugfs.
    Debugfs,
    /// Computed from /proc/buddyinfo by the kernel's formulas.
    Buddyinfo,
}

/// The machine's free memory, and how much of it is of use for huge pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fragmentation {
    /// Free memory of all zones.
    pub free_bytes: u64,
    /// Free blocks of 2 MB of all zones.
    pub free_blocks: u64,
    /// Share of all free memory, 0 to 1, that is of no use for a huge page; 1 when nothing is free.
    pub unusable_share: f64,
    /// Free memory on the processors' own lists (/proc/zoneinfo), in none of the other figures: mostly single pages.
    pub percpu_bytes: Option<u64>,
    /// Where the zones' figures come from.
    pub index_source: IndexSource,
    /// Every zone that has memory.
    pub zones: Vec<ZoneFragmentation>,
}

/// The state now.
///
/// # Errors
/// /proc/buddyinfo cannot be read, or a field of it is malformed.
pub fn read(root: &ProcRoot) -> Result<Fragmentation> {
    let buddyinfo = buddyinfo::read(root)?;
    // debugfs may not be there, not be mounted or be refused: the same is computed then.
    let own = extfrag::read_unusable(root).ok().zip(extfrag::read_index(root).ok());
    let zones = zoneinfo::read(root).unwrap_or_default();
    let percpu: Option<u64> = zones
        .iter()
        .filter_map(|zone| zone.percpu_pages)
        .reduce(u64::saturating_add);
    Ok(Fragmentation {
        percpu_bytes: percpu.map(|pages| pages.saturating_mul(BASE_PAGE_BYTES)),
        ..of(
            &buddyinfo,
            own.as_ref().map(|(unusable, index)| (&unusable[..], &index[..])),
        )
    })
}

/// The state that these free chunks are, with the kernel's own unusable and fragmentation indices where there are any.
pub fn of(buddyinfo: &Buddyinfo, own: Option<(&[extfrag::Zone], &[extfrag::Zone])>) -> Fragmentation {
    let figure = |zones: &[extfrag::Zone], zone: &buddyinfo::Zone| {
        let same = zones.iter().find(|z| z.node == zone.node && z.name == zone.name);
        same.and_then(|z| z.by_order.get(BLOCK_ORDER).copied())
    };
    let zones: Vec<&buddyinfo::Zone> = buddyinfo.zones.iter().collect();
    // All or nothing: figures of two sources side by side would not compare.
    let from_kernel: Option<Vec<(f64, f64)>> = own.and_then(|(unusable, index)| {
        let both = |zone: &&buddyinfo::Zone| Some((figure(unusable, zone)?, figure(index, zone)?));
        zones.iter().map(both).collect()
    });
    let index_source = match from_kernel {
        Some(_) => IndexSource::Debugfs,
        None => IndexSource::Buddyinfo,
    };
    let figures = from_kernel.unwrap_or_else(|| {
        let computed = |z: &&buddyinfo::Zone| (unusable_share(z, BLOCK_ORDER), fragmentation_index(z, BLOCK_ORDER));
        zones.iter().map(computed).collect()
    });
    let of_zone = |(zone, (unusable_share, fragmentation_index)): (&buddyinfo::Zone, (f64, f64))| ZoneFragmentation {
        node: zone.node,
        name: zone.name.clone(),
        free_bytes: zone.free_pages().saturating_mul(BASE_PAGE_BYTES),
        free_blocks: zone.free_blocks().0,
        free_chunks: zone.free_chunks.clone(),
        unusable_share,
        fragmentation_index,
    };
    Fragmentation {
        free_bytes: buddyinfo.free_pages().saturating_mul(BASE_PAGE_BYTES),
        free_blocks: buddyinfo.free_blocks().0,
        unusable_share: share(buddyinfo.free_pages(), buddyinfo.free_blocks().0, BLOCK_ORDER),
        percpu_bytes: None,
        index_source,
        zones: zones.into_iter().zip(figures).map(of_zone).collect(),
    }
}

impl Fragmentation {
    /// Free memory that is in no free block: of no use for a huge page.
    pub fn unusable_bytes(&self) -> u64 {
        self.free_bytes
            .saturating_sub(self.free_blocks.saturating_mul(HUGE_PAGE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(chunks: &[(usize, u64)]) -> buddyinfo::Zone {
        let mut free_chunks = vec![0; 11];
        chunks.iter().for_each(|(order, n)| free_chunks[*order] = *n);
        buddyinfo::Zone {
            node: 0,
            name: "Normal".to_string(),
            free_chunks,
        }
    }

    #[test]
    fn the_unusable_share_is_what_lies_in_smaller_chunks() {
        assert_eq!(unusable_share(&zone(&[(0, 512), (9, 1)]), 9), 0.5);
        assert_eq!(unusable_share(&zone(&[(8, 2), (10, 1)]), 9), 1.0 / 3.0);
        assert_eq!(unusable_share(&zone(&[(8, 2)]), 8), 0.0);
        assert_eq!(unusable_share(&zone(&[(0, 7)]), 9), 1.0);
        assert_eq!(
            unusable_share(&zone(&[]), 9),
            1.0,
            "as in the kernel: nothing is free, nothing is usable"
        );
        assert_eq!(unusable_share(&zone(&[(10, u64::MAX)]), 9), 0.0);
        assert_eq!(unusable_share(&zone(&[(0, 1)]), 200), 1.0);
    }

    #[test]
    fn the_fragmentation_index_is_the_kernels() {
        // 1000 - (1000 + 1024 * 1000 / 512) / 1024
        assert_eq!(fragmentation_index(&zone(&[(0, 1024)]), 9), 0.998);
        // 1000 - (1000 + 1536 * 1000 / 512) / 6
        assert_eq!(fragmentation_index(&zone(&[(8, 6)]), 9), 0.334);
        // One free page: for lack of memory. 1000 - (1000 + 1) / 1
        assert_eq!(fragmentation_index(&zone(&[(0, 1)]), 9), -0.001);
        assert_eq!(
            fragmentation_index(&zone(&[(0, 9), (10, 1)]), 9),
            -1.0,
            "a request would succeed"
        );
        assert_eq!(fragmentation_index(&zone(&[]), 9), 0.0);
        assert!(fragmentation_index(&zone(&[(0, u64::MAX)]), 400) > 0.9);
    }

    #[test]
    fn all_zones_together_are_weighed_by_their_memory() {
        let mut other = zone(&[(9, 3)]);
        other.name = "DMA32".to_string();
        let info = Buddyinfo {
            zones: vec![other, zone(&[(0, 512)])],
        };
        let state = of(&info, None);
        assert_eq!((state.free_blocks, state.free_bytes), (3, 8 << 20));
        assert_eq!((state.unusable_share, state.unusable_bytes()), (0.25, 2 << 20));
        assert_eq!(state.index_source, IndexSource::Buddyinfo);
        let zones: Vec<_> = state
            .zones
            .iter()
            .map(|z| (z.unusable_share, z.fragmentation_index))
            .collect();
        assert_eq!(zones, [(0.0, -1.0), (1.0, 0.997)]);
    }

    #[test]
    fn the_kernels_own_figures_are_taken_for_all_zones_or_for_none() {
        let own = |name: &str, figure| extfrag::Zone {
            node: 0,
            name: name.to_string(),
            by_order: [vec![0.0; 9], vec![figure]].concat(),
        };
        let info = Buddyinfo {
            zones: vec![zone(&[(0, 512)])],
        };
        let state = of(&info, Some((&[own("Normal", 0.75)], &[own("Normal", 0.9)])));
        assert_eq!(state.index_source, IndexSource::Debugfs);
        assert_eq!(
            (state.zones[0].unusable_share, state.zones[0].fragmentation_index),
            (0.75, 0.9)
        );
        let state = of(&info, Some((&[own("Normal", 0.75)], &[own("DMA", 0.9)])));
        assert_eq!(state.index_source, IndexSource::Buddyinfo);
        assert_eq!(state.zones[0].unusable_share, 1.0);
    }

    #[test]
    fn this_machine_has_free_memory() {
        let state = read(&ProcRoot::default()).unwrap();
        assert!(state.free_bytes > 0 && (0.0..=1.0).contains(&state.unusable_share));
        assert!(!state.zones.is_empty());
    }
}
