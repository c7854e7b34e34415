//! Where a process's memory is, by what huge pages could do there.

use std::collections::BTreeMap;

use mega_core::units::{BasePages, Share, HUGE_PAGE_BYTES};
use mega_linux::inspect::regions::RegionMap;
use mega_linux::vma::{MappingKind, Vma};
use serde::Serialize;

/// Populated share from which a region is dense: that of policy auto.
const DENSE: Share = Share::percent(90);

/// Adjacent regions with anything mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Regions.
    pub regions: u64,
    /// Resident.
    pub resident_bytes: u64,
    /// The part of it in dense regions of base pages.
    pub dense_bytes: u64,
    /// The part of it in huge pages.
    pub huge_bytes: u64,
}

/// The whole process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Resident, all of it.
    pub resident_bytes: u64,
    /// In regions of base pages that can be promoted.
    pub possible_bytes: u64,
    /// The part of those that is in dense regions.
    pub dense_bytes: u64,
    /// What those regions would take if each were huge.
    pub if_huge_bytes: u64,
    /// In huge pages.
    pub huge_bytes: u64,
    /// Zero-filled in huge pages; none where that could not be read.
    pub waste_bytes: Option<u64>,
    /// Resident where no huge page can be, by why.
    pub refused_bytes: BTreeMap<String, u64>,
    /// Ranges, the largest first.
    pub ranges: Vec<Range>,
    /// Addresses of dense regions of base pages whose accessed bits can be cleared.
    #[serde(skip)]
    pub dense: Vec<u64>,
}

impl Layout {
    /// Memory that would be added if every touched region were huge.
    pub fn bloat_bytes(&self) -> u64 {
        self.if_huge_bytes.saturating_sub(self.possible_bytes)
    }

    /// From a look at all regions.
    pub fn of(map: &RegionMap) -> Self {
        let mut layout = Self {
            waste_bytes: (map.read.0 > 0 || map.read.1 == 0).then_some(0),
            ..Self::default()
        };
        let scale = map.read.1 as f64 / map.read.0.max(1) as f64;
        let mut waste = 0;
        let mut ranges: Vec<Range> = Vec::new();
        for region in &map.regions {
            let Some(vma) = holder(&map.vmas, region.address) else {
                continue;
            };
            let resident = region.mapped.bytes().0;
            layout.resident_bytes += resident;
            let can = vma.can();
            if region.huge {
                layout.huge_bytes += resident;
                waste += region.waste.map_or(0, |pages| pages.bytes().0);
            } else if !can.promote {
                let why = vma.obstacle().map_or_else(|| "refused".to_owned(), |o| o.to_string());
                *layout.refused_bytes.entry(why).or_default() += resident;
                continue;
            }
            if ranges
                .last()
                .is_none_or(|range| range.start + range.regions * HUGE_PAGE_BYTES != region.address)
            {
                ranges.push(Range {
                    start: region.address,
                    ..Range::default()
                });
            }
            let Some(range) = ranges.last_mut() else { continue };
            range.regions += 1;
            range.resident_bytes += resident;
            if region.huge {
                range.huge_bytes += resident;
                continue;
            }
            layout.possible_bytes += resident;
            layout.if_huge_bytes += BasePages::REGION.bytes().0;
            if DENSE.reached_by_pages(region.mapped) {
                layout.dense_bytes += resident;
                range.dense_bytes += resident;
                if can.age {
                    layout.dense.push(region.address);
                }
            }
        }
        if map.elsewhere_bytes > 0 {
            let why = "in mappings and ends of mappings under 2 MB".to_owned();
            *layout.refused_bytes.entry(why).or_default() += map.elsewhere_bytes;
        }
        layout.resident_bytes += map.elsewhere_bytes;
        layout.waste_bytes = layout.waste_bytes.map(|_| (waste as f64 * scale) as u64);
        ranges.sort_by_key(|range| std::cmp::Reverse(range.resident_bytes));
        layout.ranges = ranges;
        layout
    }
}

/// The anonymous mapping, or any other, that has all of this region.
fn holder(vmas: &[Vma], address: u64) -> Option<&Vma> {
    let i = vmas.partition_point(|vma| vma.end <= address);
    vmas.get(i)
        .filter(|vma| vma.start <= address && address + HUGE_PAGE_BYTES <= vma.end && vma.kind != MappingKind::Special)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_linux::inspect::regions::MappedRegion;
    use mega_linux::proc::vm_flags::VmFlags;

    fn vma(start: u64, regions: u64, kind: MappingKind) -> Vma {
        Vma {
            start: start * HUGE_PAGE_BYTES,
            end: (start + regions) * HUGE_PAGE_BYTES,
            flags: VmFlags::READ | VmFlags::WRITE,
            kind,
            name: None,
        }
    }

    fn region(at: u64, mapped: u32, huge: bool) -> MappedRegion {
        MappedRegion {
            address: at * HUGE_PAGE_BYTES,
            mapped: BasePages(mapped),
            accessed: None,
            waste: Some(BasePages(if huge { 100 } else { 0 })),
            huge,
        }
    }

    #[test]
    fn dense_scattered_huge_and_impossible_memory_is_told_apart() {
        let map = RegionMap {
            vmas: vec![
                vma(10, 4, MappingKind::Anonymous),
                vma(20, 1, MappingKind::File),
                vma(30, 1, MappingKind::Anonymous),
            ],
            regions: vec![
                region(10, 512, false),
                region(11, 500, false),
                region(13, 10, false),
                region(20, 100, false),
                region(30, 512, true),
            ],
            elsewhere_bytes: 4096,
            read: (1, 1),
        };
        let layout = Layout::of(&map);
        let page = 4096;
        assert_eq!(layout.possible_bytes, 1022 * page);
        assert_eq!(layout.dense_bytes, 1012 * page);
        assert_eq!(layout.if_huge_bytes, 3 * HUGE_PAGE_BYTES);
        assert_eq!(layout.bloat_bytes(), (3 * 512 - 1022) * page);
        assert_eq!((layout.huge_bytes, layout.waste_bytes), (512 * page, Some(100 * page)));
        assert_eq!(layout.resident_bytes, (1022 + 100 + 512 + 1) * page);
        assert_eq!(layout.refused_bytes.values().sum::<u64>(), 101 * page);
        let starts: Vec<_> = layout.ranges.iter().map(|r| r.start / HUGE_PAGE_BYTES).collect();
        assert_eq!(starts, [10, 30, 13], "the largest first, adjacent ones together");
        assert_eq!(layout.dense.len(), 2);
    }
}
