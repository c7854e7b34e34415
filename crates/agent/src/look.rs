//! What is populated in the program's memory.

use mega_range::density::Population;
use mega_range::filled;
use mega_range::span::{down, Span, PAGE, PAGES, REGION};
use mega_range::world::Memory;

use crate::sys;
use crate::text::{decimal, Text};

/// Huge pages of which a part is unmapped from which on that matters: 16 MB.
const PARTLY_UNMAPPED: u64 = 8;

/// Reads page tables through this process's `pagemap`.
pub struct Look {
    fd: i32,
    /// The program's memory; none where it cannot be read.
    contents: Option<i32>,
    /// The machine's count of huge pages of which a part is unmapped (6.12); none where it cannot be read.
    partly: Option<i32>,
    has_scan: bool,
    runs: [Run; RUNS],
}

const RUNS: usize = 512;
/// What is read first of a page.
const FIRST_BYTES: usize = 64;
/// Parts of a region in which a present page is looked for.
const PARTS: usize = 8;
const PART: u64 = REGION / PARTS as u64;

/// What `PAGEMAP_SCAN` returns.
#[repr(C)]
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    runs_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// `PAGEMAP_SCAN`, Linux 6.7.
pub const PAGEMAP_SCAN: usize = 0xc060_6610;
const _: () = assert!(size_of::<Scan>() == 0x60);
const PRESENT: u64 = 1 << 3;
const ZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// Bits of an entry of `pagemap`.
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_EXCLUSIVE: u64 = 1 << 56;

impl Look {
    pub const fn new() -> Self {
        const NONE: Run = Run {
            start: 0,
            end: 0,
            categories: 0,
        };
        Look {
            fd: 0,
            contents: None,
            partly: None,
            has_scan: false,
            runs: [NONE; RUNS],
        }
    }

    /// Begins anew with this open `pagemap` and `mem`, and the machine's count of huge pages of which a part is unmapped.
    pub fn begin(&mut self, fd: i32, contents: Option<i32>, partly: Option<i32>) {
        self.fd = fd;
        self.contents = contents;
        self.partly = partly;
        self.has_scan = true;
    }

    /// Huge pages of the machine of which a part is unmapped.
    pub fn partly_unmapped(&self) -> Option<u64> {
        let mut buffer = [0u8; 32];
        let read = sys::pread(self.partly?, &mut buffer, 0).ok()?;
        decimal(Text(read).until(b'\n'))
    }

    /// A present page of each eighth of a region; 0 where there is none.
    pub fn some_present(&mut self, region: u64) -> [u64; PARTS] {
        let mut found = [0; PARTS];
        let parts = |found: &mut [u64; PARTS], start: u64, end: u64| {
            for (place, part) in found.iter_mut().zip((region..).step_by(PART as usize)) {
                let first = start.max(part);
                if *place == 0 && first < end.min(part.saturating_add(PART)) {
                    *place = first;
                }
            }
        };
        if self.has_scan {
            if let Some((runs, _)) = self.scan(Span::region(region), RUNS) {
                for run in runs.iter().filter(|run| run.categories & ZERO == 0) {
                    parts(&mut found, run.start, run.end);
                }
            }
            return found;
        }
        let mut buffer = [0u8; PAGES as usize * 8];
        if let Some(entries) = self.entries(region, &mut buffer) {
            for (entry, page) in entries.zip((region..).step_by(PAGE as usize)) {
                if entry & ENTRY_PRESENT != 0 {
                    parts(&mut found, page, page.saturating_add(PAGE));
                }
            }
        }
        found
    }

    /// The first runs of present pages of a span, at most so many; and where the next ones may begin.
    fn scan(&mut self, span: Span, most: usize) -> Option<(&[Run], u64)> {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: span.start,
            end: span.end,
            walk_end: 0,
            runs: self.runs.as_mut_ptr() as u64,
            runs_len: most.min(RUNS) as u64,
            max_pages: 0,
            inverted: 0,
            mask: 0,
            any_of: PRESENT,
            returned: PRESENT | ZERO | HUGE,
        };
        // SAFETY: the request takes such a structure, and writes no more runs than are said.
        match unsafe { sys::ioctl(self.fd, PAGEMAP_SCAN, &raw mut scan as usize) } {
            Ok(count) => Some((self.runs.get(..count)?, scan.walk_end)),
            Err(_) => {
                self.has_scan = false;
                None
            }
        }
    }

    fn scan_populations(&mut self, from: u64, of: &mut [Population]) -> bool {
        let end = from.saturating_add(of.len() as u64 * REGION);
        let mut at = from;
        while at < end {
            let Some((runs, next)) = self.scan(Span::new(at, end), RUNS) else {
                return false;
            };
            for run in runs.iter().filter(|run| run.categories & ZERO == 0) {
                let mut start = run.start;
                while start < run.end {
                    let stop = run.end.min(down(start).saturating_add(REGION));
                    let pages = (stop.saturating_sub(start) / PAGE) as u32;
                    let index = start.saturating_sub(from) / REGION;
                    if let Some(population) = of.get_mut(index as usize) {
                        population.present += pages;
                        population.huge += if run.categories & HUGE != 0 { pages } else { 0 };
                    }
                    start = stop;
                }
            }
            if next <= at {
                return false;
            }
            at = next;
        }
        true
    }

    /// Entries of `pagemap` from this address on.
    fn entries<'a>(&self, address: u64, into: &'a mut [u8]) -> Option<impl Iterator<Item = u64> + 'a> {
        let read = sys::pread(self.fd, into, address / PAGE * 8).ok()?;
        Some(
            read.chunks_exact(8)
                .map(|entry| entry.try_into().map_or(0, u64::from_le_bytes)),
        )
    }

    fn read_populations(&self, from: u64, of: &mut [Population]) -> bool {
        let mut buffer = [0u8; PAGES as usize * 8];
        let mut region = from;
        for population in of {
            let Some(entries) = self.entries(region, &mut buffer) else {
                return false;
            };
            population.present = entries.filter(|entry| entry & ENTRY_PRESENT != 0).count() as u32;
            region = region.saturating_add(REGION);
        }
        true
    }

    fn is_present(&self, address: u64) -> bool {
        let mut buffer = [0u8; 8];
        let entries = self.entries(address, &mut buffer);
        entries.is_some_and(|mut entries| entries.any(|entry| entry & ENTRY_PRESENT != 0))
    }
}

impl Memory for Look {
    /// What is not mapped huge is left alone: to read it would map zero pages.
    fn is_filled(&mut self, region: u64) -> Option<bool> {
        let contents = self.contents?;
        let mut seen = [Population::default()];
        if !self.has_scan || !self.populations(region, &mut seen) || !seen.iter().all(|seen| seen.is_huge()) {
            return None;
        }
        let mut buffer = [0u8; PAGE as usize];
        let is_filled = has_some_in_each(contents, region, &mut buffer);
        // No copy of the program's data, which may be secret, stays here.
        buffer.fill(0);
        core::hint::black_box(&buffer);
        is_filled
    }

    /// Where that is not known it may be.
    fn has_partly_unmapped(&mut self) -> bool {
        self.partly_unmapped().is_none_or(|count| count >= PARTLY_UNMAPPED)
    }

    fn populations(&mut self, from: u64, of: &mut [Population]) -> bool {
        of.fill(Population::default());
        if self.has_scan && self.scan_populations(from, of) {
            return true;
        }
        of.fill(Population::default());
        !self.has_scan && self.read_populations(from, of)
    }

    fn is_reached(&mut self, region: u64) -> bool {
        if !self.has_scan {
            return self.is_present(region);
        }
        let runs = self.scan(Span::region(region), 2);
        runs.is_some_and(|(runs, _)| runs.iter().any(|run| run.categories & ZERO == 0))
    }

    fn is_shared(&mut self, region: u64) -> bool {
        let mut buffer = [0u8; PAGES as usize * 8];
        self.entries(region, &mut buffer)
            .is_none_or(|mut entries| entries.any(|entry| entry & ENTRY_PRESENT != 0 && entry & ENTRY_EXCLUSIVE == 0))
    }

    fn first_populated(&mut self, of: Span) -> Option<u64> {
        if self.has_scan {
            if let Some((runs, _)) = self.scan(of, 1) {
                return runs.first().map(|run| down(run.start).max(of.start));
            }
        }
        let regions = (0..of.region_count().min(1024)).map(|region| of.start + region * REGION);
        regions.into_iter().find(|&region| self.is_present(region))
    }

    fn isolated(&mut self, of: Span) -> u64 {
        let mut counted = Isolated::default();
        if self.has_scan {
            let mut at = of.start;
            for _ in 0..4 {
                let Some((runs, next)) = self.scan(Span::new(at, of.end), RUNS) else {
                    break;
                };
                for run in runs.iter().filter(|run| run.categories & ZERO == 0) {
                    counted.add(down(run.start), run.end);
                }
                if next <= at || next >= of.end {
                    return counted.count();
                }
                at = next;
            }
            return counted.count();
        }
        for region in (0..of.region_count().min(1024)).map(|region| of.start + region * REGION) {
            if self.is_present(region) {
                counted.add(region, region + REGION);
            }
        }
        counted.count()
    }
}

/// Whether each of the sampled pages of a region has anything but zeroes.
fn has_some_in_each(contents: i32, region: u64, buffer: &mut [u8]) -> Option<bool> {
    let mut has_some = |page, bytes| {
        let read = sys::pread(contents, buffer.get_mut(..bytes)?, page).ok()?;
        Some(read.iter().any(|&byte| byte != 0))
    };
    for page in filled::pages(region) {
        // The first bytes say it of most pages, and another processor's cache may have all of them.
        if !has_some(page, FIRST_BYTES)? && !has_some(page, PAGE as usize)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Counts regions that are populated while both their neighbours are not.
#[derive(Default)]
struct Isolated {
    count: u64,
    regions: u64,
    end: u64,
}

impl Isolated {
    fn add(&mut self, start: u64, end: u64) {
        let regions = end.saturating_sub(start.max(self.end)).div_ceil(REGION);
        if start > self.end {
            self.count += u64::from(self.regions == 1);
            self.regions = 0;
        }
        self.regions += regions;
        self.end = self.end.max(down(end.saturating_add(REGION - 1)));
    }

    fn count(&self) -> u64 {
        self.count + u64::from(self.regions == 1)
    }
}
