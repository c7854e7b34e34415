//! The `PAGEMAP_SCAN` ioctl of Linux 6.7 (Documentation/admin-guide/mm/pagemap.rst): runs of pages by category. It
//! cannot see accessed bits.

use std::fs::File;
use std::sync::Arc;

use super::maps::{self, gone_or, RawVma};
use super::raw::{self, PageRegion, PmScanArg};
use super::{
    check_address, check_ranges, contents, pagemap, PageMap, RegionFlags, RegionScan, ScanError, ScanRange, Scanner,
    ZeroFilled, BASE_BYTES, BASE_PAGES, REGION_BYTES,
};
use crate::deadline;

const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const PFNZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// Runs per call: 24 KB.
const RUNS: usize = 1024;

/// The scanner that uses the `PAGEMAP_SCAN` ioctl.
#[derive(Debug)]
pub struct PagemapScanScanner {
    runs: Vec<PageRegion>,
}

fn open(pid: i32) -> Result<Arc<File>, ScanError> {
    super::within(pid, deadline::CALL, move || maps::open(pid, "pagemap")).map(Arc::new)
}

/// Calls `run` for each run of present or swapped pages in the range.
fn walk(
    pid: i32,
    file: &Arc<File>,
    range: &ScanRange,
    runs: &mut Vec<PageRegion>,
    mut run: impl FnMut(&PageRegion),
) -> Result<(), ScanError> {
    let mut at = range.start;
    while at < range.end {
        let arg = PmScanArg {
            start: at,
            end: range.end,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: PRESENT | SWAPPED | PFNZERO | HUGE,
            ..PmScanArg::default()
        };
        // Where the call does not return in time its list is lost with it.
        let (file, mut list) = (Arc::clone(file), std::mem::take(runs));
        list.resize(RUNS, PageRegion::default());
        let called = super::within(pid, deadline::WALK, move || {
            let done = raw::pagemap_scan(&file, arg, &mut list).map_err(gone_or("PAGEMAP_SCAN"));
            Ok((done, list))
        });
        let (done, list) = called?;
        *runs = list;
        let (n, walk_end) = done?;
        let mut seen = at;
        for found in &runs[..n] {
            if found.start < seen || found.end <= found.start || found.end > range.end || found.start % BASE_BYTES != 0
            {
                return Err(ScanError::refused("PAGEMAP_SCAN", format!("impossible run {found:?}")));
            }
            seen = found.end;
            run(found);
        }
        if walk_end <= at {
            // No memory is left to walk: the process has exited, or the range is not in it.
            return Ok(());
        }
        at = walk_end;
    }
    Ok(())
}

impl PagemapScanScanner {
    /// Checks that the kernel has the ioctl.
    ///
    /// # Errors
    /// The PAGEMAP_SCAN ioctl is missing (before Linux 6.7), or the self-check failed.
    pub fn new() -> Result<PagemapScanScanner, ScanError> {
        let mut scanner = PagemapScanScanner {
            runs: vec![PageRegion::default(); RUNS],
        };
        let us = std::process::id() as i32;
        let file = open(us)?;
        let here = ScanRange {
            start: REGION_BYTES,
            end: 2 * REGION_BYTES,
            young: false,
        };
        walk(us, &file, &here, &mut scanner.runs, |_| {})
            .map_err(|e| ScanError::refused("pagemap_scan", format!("needs Linux 6.7: {e}")))?;
        Ok(scanner)
    }
}

impl Scanner for PagemapScanScanner {
    fn name(&self) -> &'static str {
        "pagemap_scan"
    }

    fn sees_accessed(&self) -> bool {
        false
    }

    fn vmas(&mut self, pid: i32) -> Result<Vec<RawVma>, ScanError> {
        maps::read_smaps(pid)
    }

    fn scan(&mut self, pid: i32, ranges: &[ScanRange], out: &mut Vec<RegionScan>) -> Result<(), ScanError> {
        check_ranges(ranges)?;
        let file = open(pid)?;
        for range in ranges {
            let first = out.len();
            walk(pid, &file, range, &mut self.runs, |run| {
                let mut at = run.start;
                while at < run.end {
                    let address = at & !(REGION_BYTES - 1);
                    let end = run.end.min(address + REGION_BYTES);
                    if out.len() == first || out.last().is_some_and(|r| r.address != address) {
                        out.push(RegionScan::at(address));
                    }
                    let region = out.last_mut().expect("just pushed");
                    let pages = ((end - at) / BASE_BYTES) as u16;
                    if run.categories & PRESENT != 0 {
                        region.mapped = (region.mapped + pages).min(BASE_PAGES);
                        if run.categories & PFNZERO != 0 {
                            region.zero = (region.zero + pages).min(BASE_PAGES);
                        }
                        if run.categories & HUGE != 0 {
                            region.flags.insert(RegionFlags::HUGE);
                        }
                    } else {
                        region.swapped = (region.swapped + pages).min(BASE_PAGES);
                    }
                    at = end;
                }
            })?;
        }
        Ok(())
    }

    fn page_map(&mut self, pid: i32, address: u64) -> Result<PageMap, ScanError> {
        check_address(address)?;
        let file = open(pid)?;
        let mut map = PageMap::default();
        let range = ScanRange {
            start: address,
            end: address + REGION_BYTES,
            young: false,
        };
        walk(pid, &file, &range, &mut self.runs, |run| {
            if run.categories & PRESENT == 0 {
                return;
            }
            if run.categories & HUGE != 0 {
                map.flags.insert(RegionFlags::HUGE);
            }
            for page in (run.start - address) / BASE_BYTES..(run.end - address) / BASE_BYTES {
                let (word, bit) = (page as usize / 64, page % 64);
                map.mapped[word] |= 1 << bit;
                map.zero[word] |= u64::from(run.categories & PFNZERO != 0) << bit;
            }
        })?;
        Ok(map)
    }

    fn zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        for &address in addresses {
            let huge = self.page_map(pid, address)?.flags.contains(RegionFlags::HUGE);
            out.push(contents::read(pid, address, huge)?);
        }
        Ok(())
    }

    fn fork_shared(&mut self, pid: i32, address: u64) -> Result<u16, ScanError> {
        let zero = self.page_map(pid, address)?.zero;
        pagemap::fork_shared(pid, address, &zero)
    }
}
