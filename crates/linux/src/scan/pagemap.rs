//! The slowest scanner, which works nearly everywhere: reading `/proc/PID/pagemap`
//! (Documentation/admin-guide/mm/pagemap.rst). It cannot see accessed bits.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::maps::{self, gone_or, RawVma};
use super::raw::Mapping;
use super::{
    check_address, check_ranges, contents, PageMap, RegionFlags, RegionScan, ScanError, ScanRange, Scanner, ZeroFilled,
    BASE_BYTES, BASE_PAGES, REGION_BYTES,
};
use crate::deadline;

pub(super) const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
pub(super) const EXCLUSIVE: u64 = 1 << 56;
pub(super) const FRAME: u64 = (1 << 55) - 1;
/// Of /proc/kpageflags (include/uapi/linux/kernel-page-flags.h): the first page of a compound one, and a further one.
pub(super) const COMPOUND_HEAD: u64 = 1 << 15;
pub(super) const COMPOUND_TAIL: u64 = 1 << 16;

/// Regions per read: 256 KB of entries.
const BATCH: u64 = 64;

/// One region's 512 entries.
pub(super) type Entries = [u64; BASE_PAGES as usize];

/// Reads whole regions' entries from `at`; fewer at the end of user memory.
pub(super) fn read_entries(file: &File, at: u64, regions: u64, into: &mut Vec<u8>) -> Result<(), ScanError> {
    into.resize((regions * u64::from(BASE_PAGES) * 8) as usize, 0);
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], at / BASE_BYTES * 8 + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(gone_or("reading pagemap")(e)),
        }
    }
    // A process that exits reads as nothing.
    if filled == 0 {
        return Err(ScanError::Gone);
    }
    into.truncate(filled / 4096 * 4096);
    Ok(())
}

pub(super) fn entries(bytes: &[u8]) -> Entries {
    let mut entries = [0; BASE_PAGES as usize];
    for (entry, bytes) in entries.iter_mut().zip(bytes.chunks_exact(8)) {
        *entry = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    entries
}

fn region_entries(pid: i32, address: u64) -> Result<Entries, ScanError> {
    check_address(address)?;
    super::within(pid, deadline::CALL, move || {
        let mut bytes = Vec::new();
        read_entries(&maps::open(pid, "pagemap")?, address, 1, &mut bytes)?;
        Ok(entries(&bytes))
    })
}

/// Mapped base pages of the region that are not exclusively this process's, without those in `zero`.
pub(super) fn fork_shared(pid: i32, address: u64, zero: &[u64; 8]) -> Result<u16, ScanError> {
    let entries = region_entries(pid, address)?;
    let shared = entries.iter().enumerate().filter(|&(i, &e)| {
        let is_zero = zero[i / 64] >> (i % 64) & 1 == 1;
        e & PRESENT != 0 && e & EXCLUSIVE == 0 && !is_zero
    });
    Ok(shared.count() as u16)
}

/// The scanner that reads `/proc/PID/pagemap`. Whether a region is huge is inferred: 512 frames in a row that begin at
/// a 2 MB boundary and are one compound page. A huge page that is mapped by base entries looks the same. Where /proc/kpageflags cannot be
/// read, so does one that was full and has been split.
#[derive(Debug)]
pub struct PagemapScanner {
    zero_frame: u64,
    page_flags: Option<File>,
    bytes: Vec<u8>,
}

impl PagemapScanner {
    /// Checks that frame numbers can be seen (CAP_SYS_ADMIN) and learns the zero page's.
    ///
    /// # Errors
    /// /proc/self/pagemap cannot be read, or the self-check failed.
    pub fn new() -> Result<PagemapScanner, ScanError> {
        let memory = Mapping::anonymous(2 * REGION_BYTES as usize).map_err(ScanError::io("mapping memory"))?;
        let at = memory.aligned();
        // Refused without transparent huge pages, and then there is nothing to avoid.
        let _ = memory.advise(at, BASE_BYTES, libc::MADV_NOHUGEPAGE);
        memory.get(at);
        let entry = region_entries(std::process::id() as i32, at)?[0];
        if entry & PRESENT == 0 || entry & FRAME == 0 {
            return Err(ScanError::refused(
                "pagemap",
                "frame numbers are hidden (needs CAP_SYS_ADMIN)",
            ));
        }
        Ok(PagemapScanner {
            zero_frame: entry & FRAME,
            page_flags: File::open("/proc/kpageflags").ok(),
            bytes: Vec::new(),
        })
    }

    /// Whether the 512 frames from this one on are a single compound page: smaller ones would have a first page in the middle, too. Yes, where it
    /// cannot be known.
    fn is_one_page(&self, frame: u64) -> bool {
        let flags = |frame: u64| {
            let mut bytes = [0; 8];
            let read = self.page_flags.as_ref()?.read_exact_at(&mut bytes, frame * 8);
            read.ok().map(|()| u64::from_ne_bytes(bytes))
        };
        match (flags(frame), flags(frame + u64::from(BASE_PAGES / 2))) {
            (Some(first), Some(middle)) => first & (COMPOUND_HEAD | COMPOUND_TAIL) != 0 && middle & COMPOUND_TAIL != 0,
            _ => true,
        }
    }

    fn count(&self, address: u64, entries: &Entries) -> RegionScan {
        let mut r = RegionScan::at(address);
        let mut in_a_row = 0;
        for (i, &e) in entries.iter().enumerate() {
            if e & PRESENT != 0 {
                r.mapped += 1;
                r.zero += u16::from(e & FRAME == self.zero_frame);
                in_a_row += u16::from(e & FRAME == (entries[0] & FRAME) + i as u64);
            } else if e & SWAPPED != 0 {
                r.swapped += 1;
            }
        }
        let frame = entries[0] & FRAME;
        if in_a_row == BASE_PAGES && frame & u64::from(BASE_PAGES - 1) == 0 && self.is_one_page(frame) {
            r.flags.insert(RegionFlags::HUGE);
        }
        r
    }
}

impl Scanner for PagemapScanner {
    fn name(&self) -> &'static str {
        "pagemap"
    }

    fn sees_accessed(&self) -> bool {
        false
    }

    fn vmas(&mut self, pid: i32) -> Result<Vec<RawVma>, ScanError> {
        maps::read_smaps(pid)
    }

    fn scan(&mut self, pid: i32, ranges: &[ScanRange], out: &mut Vec<RegionScan>) -> Result<(), ScanError> {
        check_ranges(ranges)?;
        let file = super::within(pid, deadline::CALL, move || maps::open(pid, "pagemap"))?;
        let file = Arc::new(file);
        let mut bytes = std::mem::take(&mut self.bytes);
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let regions = ((range.end - at) / REGION_BYTES).min(BATCH);
                let file = Arc::clone(&file);
                bytes = super::within(pid, deadline::CALL, move || {
                    read_entries(&file, at, regions, &mut bytes)?;
                    Ok(bytes)
                })?;
                for (i, bytes) in bytes.chunks_exact(4096).enumerate() {
                    let region = self.count(at + i as u64 * REGION_BYTES, &entries(bytes));
                    if region.mapped > 0 || region.swapped > 0 {
                        out.push(region);
                    }
                }
                at += regions * REGION_BYTES;
            }
        }
        self.bytes = bytes;
        Ok(())
    }

    fn page_map(&mut self, pid: i32, address: u64) -> Result<PageMap, ScanError> {
        let entries = region_entries(pid, address)?;
        let mut map = PageMap {
            flags: self.count(address, &entries).flags,
            ..PageMap::default()
        };
        for (i, e) in entries.iter().enumerate().filter(|(_, &e)| e & PRESENT != 0) {
            map.mapped[i / 64] |= 1 << (i % 64);
            map.zero[i / 64] |= u64::from(e & FRAME == self.zero_frame) << (i % 64);
        }
        Ok(map)
    }

    fn zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        for &address in addresses {
            let entries = region_entries(pid, address)?;
            let huge = self.count(address, &entries).is_huge();
            out.push(contents::read(pid, address, huge)?);
        }
        Ok(())
    }

    fn fork_shared(&mut self, pid: i32, address: u64) -> Result<u16, ScanError> {
        let zero = self.page_map(pid, address)?.zero;
        fork_shared(pid, address, &zero)
    }
}
