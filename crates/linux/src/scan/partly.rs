//! Huge pages of which a process has unmapped a part.
//!
//! The kernel keeps such a page whole until memory is short (mm/huge_memory.c, the deferred split queue). What is unmapped of it is in no page
//! table and in no count of the process; that what is left is a part of a huge page only /proc/kpageflags tells.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::pagemap::{entries, read_entries, Entries, COMPOUND_HEAD, COMPOUND_TAIL, EXCLUSIVE, FRAME, PRESENT};
use super::{check_address, maps, RegionScan, ScanError, BASE_BYTES, BASE_PAGES};
use crate::deadline;

/// Huge pages of the machine of which a part is unmapped (Linux 6.12).
const COUNT: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/stats/nr_anon_partially_mapped";
/// Of /proc/kpageflags: a page of a file, large or not, is no such page.
const ANON: u64 = 1 << 12;
/// From so many on they are looked for: 16 MB.
const MANY: u64 = 8;

/// Finds them.
#[derive(Debug, Default)]
pub struct Partly {
    page_flags: Option<File>,
}

/// What a region's base pages keep from being free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Base pages that are unmapped and not free.
    pub pages: u16,
    /// One mapped base page of each huge page.
    pub addresses: Vec<u64>,
}

impl Partly {
    /// On this machine. Finds none where /proc/kpageflags cannot be read.
    pub fn new() -> Self {
        Self {
            page_flags: File::open("/proc/kpageflags").ok(),
        }
    }

    /// How many the machine has; none where the kernel does not say.
    pub fn count() -> Option<u64> {
        std::fs::read_to_string(COUNT).ok()?.trim().parse().ok()
    }

    /// Whether a region may keep anything: it is populated in part, by base pages.
    pub fn is_candidate(scan: &RegionScan) -> bool {
        let populated = scan.mapped.saturating_sub(scan.zero);
        !scan.is_huge() && (1..BASE_PAGES).contains(&populated)
    }

    /// Bytes that these regions keep together, as far as they can be read.
    pub fn kept_bytes(&self, pid: u32, scans: &[RegionScan]) -> u64 {
        if !self.may_be() {
            return 0;
        }
        let of: Vec<u64> = scans
            .iter()
            .filter(|scan| Self::is_candidate(scan))
            .map(|scan| scan.address)
            .collect();
        let kept = self.read(pid as i32, &of).unwrap_or_default();
        kept.iter().map(|kept| u64::from(kept.pages) * BASE_BYTES).sum()
    }

    /// Whether they are worth being looked for.
    pub fn may_be(&self) -> bool {
        self.page_flags.is_some() && Self::count().is_none_or(|count| count >= MANY)
    }

    /// What the regions at these addresses keep, one for each. Pages shared with a forked process are left out: the kernel does not split for one
    /// of several. What `mremap` has moved by less than a region is not seen.
    ///
    /// # Errors
    /// The process is gone, or its page tables cannot be read.
    pub fn read(&self, pid: i32, addresses: &[u64]) -> Result<Vec<Kept>, ScanError> {
        addresses.iter().try_for_each(|&address| check_address(address))?;
        let of = addresses.to_vec();
        let entries = super::within(pid, deadline::CALL, move || {
            let (file, mut bytes) = (maps::open(pid, "pagemap")?, Vec::new());
            let mut one = |address| {
                read_entries(&file, address, 1, &mut bytes)?;
                Ok(entries(&bytes))
            };
            of.into_iter().map(&mut one).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(entries
            .iter()
            .zip(addresses)
            .map(|(entries, &address)| self.kept(address, entries))
            .collect())
    }

    fn kept(&self, address: u64, entries: &Entries) -> Kept {
        let mut blocks: BTreeMap<u64, (u16, u64)> = BTreeMap::new();
        for (entry, at) in entries.iter().zip(0u64..) {
            let frame = entry & FRAME;
            // Page by page where it was in the huge page; of base pages one in 512 happens to be.
            let is_in_place = frame != 0 && frame % u64::from(BASE_PAGES) == at;
            if is_in_place && entry & PRESENT != 0 && entry & EXCLUSIVE != 0 {
                blocks.entry(frame - at).or_insert((0, address + at * BASE_BYTES)).0 += 1;
            }
        }
        let mut kept = Kept::default();
        for (first, (mapped, page)) in blocks {
            if mapped < BASE_PAGES && self.is_huge(first) {
                kept.pages = (kept.pages + BASE_PAGES - mapped).min(BASE_PAGES);
                kept.addresses.push(page);
            }
        }
        kept
    }

    /// The frames of a block are one anonymous page: smaller ones would have a first page in the middle, too.
    fn is_huge(&self, first: u64) -> bool {
        let flags = |frame: u64| {
            let mut bytes = [0; 8];
            let read = self.page_flags.as_ref()?.read_exact_at(&mut bytes, frame * 8);
            read.ok().map(|()| u64::from_ne_bytes(bytes))
        };
        let has = |frame, bit| flags(frame).is_some_and(|flags| flags & bit != 0);
        has(first, COMPOUND_HEAD) && has(first, ANON) && has(first + u64::from(BASE_PAGES / 2), COMPOUND_TAIL)
    }
}
