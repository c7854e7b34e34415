//! One look at one process, for people: what is resident, huge, wasted, and what would qualify, mapping by mapping. Changes nothing.

use std::time::Duration;

use mega_core::units::{Share, HUGE_PAGE_BYTES};
use serde::Serialize;

use crate::deadline::{self, Late};
use crate::error::Error;
use crate::proc::{smaps, ProcRoot};
use crate::scan::partly::Partly;
use crate::scan::{RegionScan, ScanError, ScanRange, Scanner};
use crate::vma::Vma;

/// What to look for.
#[derive(Debug, Clone, Copy)]
pub struct UsageOptions {
    /// Mapped share from which a region of base pages would qualify for promotion.
    pub qualify: Share,
    /// Huge pages to read at most; past it evenly spaced ones are read, and what they show is scaled.
    pub read_max: usize,
    /// How long a walk of the process's mappings is waited for.
    pub limit: Duration,
}

impl Default for UsageOptions {
    fn default() -> Self {
        Self {
            qualify: Share::percent(90),
            read_max: 8192,
            limit: deadline::WALK,
        }
    }
}

/// Amounts, of one mapping or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Address space.
    pub size_bytes: u64,
    /// Resident.
    pub rss_bytes: u64,
    /// Resident in huge pages (hugetlb not counted).
    pub huge_bytes: u64,
    /// Zero-filled base pages inside anonymous huge pages; none where the contents could not be read.
    pub waste_bytes: Option<u64>,
    /// Unmapped from anonymous huge pages that are whole still: not resident, and not free. Of all together only.
    #[serde(skip_serializing_if = "is_zero")]
    pub kept_bytes: u64,
    /// Resident in regions of base pages that are mapped enough to be promoted.
    pub qualifies_bytes: u64,
    /// Reserved for it and not populated; none on a kernel without reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.map_or(b, |a| Some(a + b.unwrap_or(0)))
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.size_bytes += other.size_bytes;
        self.rss_bytes += other.rss_bytes;
        self.huge_bytes += other.huge_bytes;
        self.qualifies_bytes += other.qualifies_bytes;
        self.waste_bytes = sum(self.waste_bytes, other.waste_bytes);
        self.reserved_bytes = sum(self.reserved_bytes, other.reserved_bytes);
    }
}

/// One mapping and what it holds.
#[derive(Debug, Clone)]
pub struct MappingUsage {
    /// The mapping.
    pub vma: Vma,
    /// Its amounts.
    pub tally: Tally,
}

/// What the look saw.
#[derive(Debug, Clone)]
pub struct Usage {
    /// All mappings by rising address.
    pub mappings: Vec<MappingUsage>,
    /// All together.
    pub total: Tally,
    /// Huge pages read, and how many there are.
    pub read: (usize, usize),
}

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Reading /proc.
    #[error(transparent)]
    Proc(#[from] Error),
    /// Looking at page tables.
    #[error("cannot look at its page tables: {0}")]
    Scan(#[from] ScanError),
    /// It holds its `mmap_lock`, and a look at its mappings would wait for it.
    #[error(transparent)]
    Locked(#[from] Late),
}

impl InspectError {
    /// It holds its address space locked: nothing of its mappings can be known now.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::Scan(ScanError::Locked(_)))
    }
}

/// The mappings with what they hold, waited for at most for `limit`.
pub(super) fn entries(root: &ProcRoot, pid: u32, limit: Duration) -> Result<Vec<smaps::Entry>, InspectError> {
    let root = root.clone();
    Ok(deadline::within(pid, limit, move || smaps::read(&root, pid))??)
}

/// Looks at a process.
///
/// # Errors
/// It is not there, or we may not look at it.
pub fn read(
    root: &ProcRoot,
    scanner: &mut dyn Scanner,
    pid: u32,
    options: &UsageOptions,
) -> Result<Usage, InspectError> {
    let mut mappings: Vec<MappingUsage> = entries(root, pid, options.limit)?
        .iter()
        .map(MappingUsage::from)
        .collect();
    let ranges: Vec<ScanRange> = mappings
        .iter()
        .filter(|m| m.vma.is_manageable())
        .filter_map(|m| m.vma.regions())
        .map(|range| ScanRange {
            start: range.start,
            end: range.end,
            young: false,
        })
        .collect();
    let mut regions = Vec::new();
    scanner.scan(pid as i32, &ranges, &mut regions)?;
    add_qualifying(&mut mappings, &regions, options);
    let read = add_waste(&mut mappings, &regions, scanner, pid, options)?;
    let mut total = Tally::default();
    mappings.iter().for_each(|m| total.add(&m.tally));
    total.kept_bytes = Partly::new().kept_bytes(pid, &regions);
    Ok(Usage { mappings, total, read })
}

impl From<&smaps::Entry> for MappingUsage {
    fn from(entry: &smaps::Entry) -> Self {
        let vma = Vma::from(entry);
        let usage = &entry.usage;
        let huge = [usage.anon_huge_bytes, usage.shmem_huge_bytes, usage.file_huge_bytes];
        let tally = Tally {
            size_bytes: vma.end - vma.start,
            rss_bytes: usage.rss_bytes.unwrap_or(0),
            huge_bytes: huge.into_iter().flatten().sum(),
            waste_bytes: None,
            kept_bytes: 0,
            qualifies_bytes: 0,
            reserved_bytes: usage.anon_reserved_bytes,
        };
        Self { vma, tally }
    }
}

fn mapping_of(mappings: &mut [MappingUsage], address: u64) -> Option<&mut MappingUsage> {
    let i = mappings.partition_point(|m| m.vma.end <= address);
    mappings.get_mut(i).filter(|m| m.vma.start <= address)
}

fn add_qualifying(mappings: &mut [MappingUsage], regions: &[RegionScan], options: &UsageOptions) {
    for region in regions.iter().filter(|region| !region.is_huge()) {
        let populated = region.mapped.saturating_sub(region.zero);
        let enough = options
            .qualify
            .reached_by_pages(mega_core::units::BasePages(populated.into()));
        if let Some(m) = mapping_of(mappings, region.address).filter(|m| enough && m.vma.can().promote) {
            m.tally.qualifies_bytes += u64::from(populated) * mega_core::units::BASE_PAGE_BYTES;
        }
    }
}

/// Reads huge pages, all or evenly spaced ones, and adds up what of them is zero-filled.
fn add_waste(
    mappings: &mut [MappingUsage],
    regions: &[RegionScan],
    scanner: &mut dyn Scanner,
    pid: u32,
    options: &UsageOptions,
) -> Result<(usize, usize), ScanError> {
    let huge: Vec<u64> = regions.iter().filter(|r| r.is_huge()).map(|r| r.address).collect();
    let step = huge.len().div_ceil(options.read_max.max(1)).max(1);
    let sample: Vec<u64> = huge.iter().step_by(step).copied().collect();
    let mut contents = Vec::new();
    scanner.zero_filled(pid as i32, &sample, &mut contents)?;
    let mut read = 0;
    for seen in contents.iter().filter(|seen| seen.checked > 0 && !seen.raced) {
        read += 1;
        if let Some(m) = mapping_of(mappings, seen.address) {
            let share = u64::from(seen.zero_filled) * HUGE_PAGE_BYTES / u64::from(seen.checked);
            let waste = m.tally.waste_bytes.get_or_insert(0);
            *waste += share * step as u64;
        }
    }
    if read == 0 && huge.is_empty() {
        // Nothing huge, so nothing wasted: that is known, not unknown.
        mappings.iter_mut().for_each(|m| m.tally.waste_bytes = Some(0));
    }
    Ok((read, huge.len()))
}
