//! One look at one process region by region, for a map of it. Changes nothing.

use mega_core::units::BasePages;

use crate::deadline;
use crate::inspect::usage::{self, InspectError};
use crate::proc::vm_flags::VmFlags;
use crate::proc::ProcRoot;
use crate::scan::{RegionScan, ScanRange, Scanner};
use crate::vma::{MappingKind, Vma};

/// One region with anything mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedRegion {
    /// Its first address.
    pub address: u64,
    /// Base pages present, all of them when it is huge.
    pub mapped: BasePages,
    /// Base pages touched since somebody last cleared their accessed bits; none where the scanner cannot see that.
    pub accessed: Option<BasePages>,
    /// Base pages that hold only zeroes inside a huge page; 0 of base pages; none where nobody looked.
    pub waste: Option<BasePages>,
    /// Mapped by one huge page.
    pub huge: bool,
}

/// A process's regions.
#[derive(Debug, Clone)]
pub struct RegionMap {
    /// The mappings that were looked at, by rising address: those with a whole region that are memory and not a device.
    pub vmas: Vec<Vma>,
    /// Their regions with anything mapped, by rising address.
    pub regions: Vec<MappedRegion>,
    /// Resident in what was not looked at: mappings without a whole region, and the ends of others.
    pub elsewhere_bytes: u64,
    /// Anonymous huge pages whose contents were read, and how many there are.
    pub read: (usize, usize),
}

/// Looks at a process. Of more than `read_max` huge pages, evenly spaced ones are read for what they waste.
///
/// # Errors
/// It is not there, or we may not look at it.
pub fn region_map(
    root: &ProcRoot,
    scanner: &mut dyn Scanner,
    pid: u32,
    read_max: usize,
) -> Result<RegionMap, InspectError> {
    let entries = usage::entries(root, pid, deadline::WALK)?;
    let resident: u64 = entries.iter().filter_map(|e| e.usage.rss_bytes).sum();
    let is_memory =
        |vma: &Vma| !vma.flags.intersects(VmFlags::IO | VmFlags::PFNMAP) && vma.kind != MappingKind::Special;
    let vmas: Vec<Vma> = entries
        .iter()
        .filter(|entry| entry.usage.rss_bytes.is_some_and(|rss| rss > 0))
        .map(Vma::from)
        .filter(|vma| is_memory(vma) && vma.regions().is_some())
        .collect();
    let ranges: Vec<ScanRange> = vmas
        .iter()
        .filter_map(Vma::regions)
        .map(|range| ScanRange {
            start: range.start,
            end: range.end,
            young: true,
        })
        .collect();
    let mut scanned = Vec::new();
    scanner.scan(pid as i32, &ranges, &mut scanned)?;
    let sees_accessed = scanner.sees_accessed();
    let mut regions: Vec<MappedRegion> = scanned
        .iter()
        .filter(|seen| seen.mapped > 0)
        .map(|seen| mapped_region(seen, sees_accessed))
        .collect();
    let anonymous: Vec<_> = vmas
        .iter()
        .filter(|vma| vma.kind == MappingKind::Anonymous)
        .filter_map(Vma::regions)
        .collect();
    for region in &mut regions {
        let after = anonymous.partition_point(|range| range.end <= region.address);
        if anonymous.get(after).is_none_or(|range| range.start > region.address) {
            // What a file holds is the file's, zeroes too.
            region.waste = Some(BasePages::ZERO);
        }
    }
    let read = add_waste(&mut regions, scanner, pid, read_max)?;
    let shown: u64 = regions.iter().map(|region| region.mapped.bytes().0).sum();
    Ok(RegionMap {
        vmas,
        regions,
        elsewhere_bytes: resident.saturating_sub(shown),
        read,
    })
}

/// The shared zero page is not memory: pages mapped to it do not count as mapped.
fn mapped_region(seen: &RegionScan, sees_accessed: bool) -> MappedRegion {
    let huge = seen.is_huge();
    MappedRegion {
        address: seen.address,
        mapped: BasePages(seen.mapped.saturating_sub(seen.zero).into()),
        accessed: sees_accessed.then(|| BasePages(seen.accessed.into())),
        waste: (!huge).then_some(BasePages::ZERO),
        huge,
    }
}

fn add_waste(
    regions: &mut [MappedRegion],
    scanner: &mut dyn Scanner,
    pid: u32,
    read_max: usize,
) -> Result<(usize, usize), InspectError> {
    let huge: Vec<u64> = regions
        .iter()
        .filter(|r| r.waste.is_none())
        .map(|r| r.address)
        .collect();
    let step = huge.len().div_ceil(read_max.max(1)).max(1);
    let sample: Vec<u64> = huge.iter().step_by(step).copied().collect();
    let mut contents = Vec::new();
    scanner.zero_filled(pid as i32, &sample, &mut contents)?;
    let mut read = 0;
    for seen in contents.iter().filter(|seen| seen.checked > 0 && !seen.raced) {
        if let Ok(i) = regions.binary_search_by_key(&seen.address, |r| r.address) {
            let scaled = u32::from(seen.zero_filled) * BasePages::REGION.0 / u32::from(seen.checked);
            regions[i].waste = Some(BasePages(scaled.min(BasePages::REGION.0)));
            read += 1;
        }
    }
    Ok((read, huge.len()))
}
