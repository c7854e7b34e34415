//! What a program does to its memory, and a memory that only counts.

use super::Access;
use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};

pub use mega_trace::Advice;

/// A memory call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// There is no memory or no address space left.
    #[error("no memory for {bytes} bytes")]
    NoMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The range is not mapped, or not made of pages.
    #[error("{call} of {bytes} bytes at {address:#x}: not a mapped range of pages")]
    BadRange {
        /// The call, in the kernel's words.
        call: &'static str,
        /// Its first address.
        address: u64,
        /// Its length.
        bytes: u64,
    },
    /// This memory does not implement the call.
    #[error("{0}: not modelled here")]
    Unsupported(&'static str),
}

/// What a program does to its memory. Implemented by the simulated machine, a counter and a recorder.
///
/// Programs are generic over it: no dynamic dispatch in hot loops.
pub trait Memory {
    /// Maps `bytes` of anonymous private memory, rounded up to base pages, and returns its address: 2 MB-aligned, and with an
    /// unmapped page at least on either side, so that it is a VMA of its own, as the lab's live workloads do it.
    ///
    /// # Errors
    /// When there is no space.
    fn map(&mut self, bytes: u64) -> Result<u64, MemoryError>;

    /// Unmaps a range of pages.
    ///
    /// # Errors
    /// When it is not made of pages.
    fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError>;

    /// `mremap` of a whole mapping to `new_bytes`: in place where there is room (a heap that grows or shrinks at its end), else to
    /// another place with its pages. Returns its address.
    ///
    /// # Errors
    /// When there is no space, or the memory does not implement it (the default).
    fn remap(&mut self, address: u64, bytes: u64, new_bytes: u64) -> Result<u64, MemoryError> {
        let _ = (address, bytes, new_bytes);
        Err(MemoryError::Unsupported("mremap"))
    }

    /// `madvise` on a range of pages.
    ///
    /// # Errors
    /// When it is not mapped.
    fn advise(&mut self, address: u64, bytes: u64, advice: Advice) -> Result<(), MemoryError>;

    /// One access of up to a cache line; the simulator charges it.
    fn touch(&mut self, address: u64, write: bool);

    /// A load and then a store of the same place. Not the same as one write: on a page never touched, the load finds the zero page
    /// first, and the store faults again.
    #[inline]
    fn update(&mut self, address: u64) {
        self.touch(address, false);
        self.touch(address, true);
    }

    /// A load on which the program's progress depends (a dependent load, or one before a clock read): its latency is not hidden. By
    /// default the same as any other load.
    #[inline]
    fn follow(&mut self, address: u64) {
        self.touch(address, false);
    }

    /// Computing without memory, in nanoseconds.
    fn work(&mut self, ns: u64);

    /// These accesses one after the other. To the same effect as one at a time, which is the default; the simulated machine is faster at
    /// many than at one. Programs collect them by a [`Batch`](super::Batch).
    #[inline]
    fn touch_all(&mut self, accesses: &[Access]) {
        for access in accesses {
            access.make(self);
        }
    }

    /// The program's time in nanoseconds.
    fn now_ns(&self) -> u64;

    /// The part of that time spent once per page rather than per visit: only the first access after accessed bits were cleared pays for
    /// setting them.
    fn paid_by_page_ns(&self) -> u64 {
        0
    }

    /// Allocates 2 MB of physical memory for the kernel, as a driver does (GFP_KERNEL), and keeps it. False: none is available.
    ///
    /// # Errors
    /// When the memory does not implement it (the default).
    fn take_block(&mut self) -> Result<bool, MemoryError> {
        Err(MemoryError::Unsupported("memory for a driver"))
    }

    /// Reads so many base pages of a file from the disk; they stay in the page cache until they are dropped. By default nothing happens: the program's
    /// own memory is not touched by it.
    ///
    /// # Errors
    /// Out of memory.
    fn read_file(&mut self, pages: u64) -> Result<(), MemoryError> {
        let _ = pages;
        Ok(())
    }

    /// Compacts all memory: a write to `/proc/sys/vm/compact_memory`.
    ///
    /// # Errors
    /// When the memory does not implement it (the default).
    fn compact(&mut self) -> Result<(), MemoryError> {
        Err(MemoryError::Unsupported("compact_memory"))
    }

    /// `fork`: `child` identifies the child in [`Self::child_exits`].
    ///
    /// # Errors
    /// When the memory does not implement it (the default).
    fn fork(&mut self, child: u32) -> Result<(), MemoryError> {
        let _ = child;
        Err(MemoryError::Unsupported("fork"))
    }

    /// A forked child exits.
    ///
    /// # Errors
    /// When the memory does not implement it (the default).
    fn child_exits(&mut self, child: u32) -> Result<(), MemoryError> {
        let _ = child;
        Err(MemoryError::Unsupported("exit"))
    }
}

/// Number of base pages of so many bytes, rounded up.
#[must_use]
pub fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(BASE_PAGE_BYTES)
}

/// States of a page.
const UNMAPPED: u8 = 0;
const MAPPED: u8 = 1;
const READ: u8 = 2;
const WRITTEN: u8 = 4;

/// A memory in which every access works and takes no time: counts touches and pages. For tests and benches.
#[derive(Debug, Default)]
pub struct CountingMemory {
    pages: Vec<u8>,
    /// Reads so far.
    pub reads: u64,
    /// Writes so far.
    pub writes: u64,
    /// Accesses outside of any mapping: a program's error.
    pub stray: u64,
    /// Calls of `map`, `unmap`, `remap`, `advise`.
    pub calls: [u64; 4],
    clock_ns: u64,
    /// Nanoseconds that a touch takes; 0 unless a test wants time to pass.
    pub touch_ns: u64,
}

impl CountingMemory {
    /// The first address that it maps.
    pub const BASE: u64 = 0x10_0000_0000;

    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one in which each touch takes this long.
    #[must_use]
    pub fn with_touch_ns(touch_ns: u64) -> Self {
        Self {
            touch_ns,
            ..Self::default()
        }
    }

    fn count(&self, bit: u8) -> u64 {
        self.pages.iter().filter(|p| **p & bit != 0).count() as u64
    }

    /// Base pages mapped.
    #[must_use]
    pub fn mapped_pages(&self) -> u64 {
        self.count(MAPPED)
    }

    /// Resident base pages: touched, and not freed.
    #[must_use]
    pub fn resident_pages(&self) -> u64 {
        self.count(READ | WRITTEN)
    }

    /// Base pages written, and not freed.
    #[must_use]
    pub fn written_pages(&self) -> u64 {
        self.count(WRITTEN)
    }

    /// Touches so far.
    #[must_use]
    pub fn touches(&self) -> u64 {
        self.reads + self.writes
    }

    /// Lets time pass, as a scheduler does while a program sleeps.
    pub fn wait_until(&mut self, ns: u64) {
        self.clock_ns = self.clock_ns.max(ns);
    }

    fn range(&mut self, call: &'static str, address: u64, bytes: u64) -> Result<&mut [u8], MemoryError> {
        let bad = MemoryError::BadRange { call, address, bytes };
        let from = address.checked_sub(Self::BASE).ok_or(bad)?;
        if from % BASE_PAGE_BYTES != 0 || bytes % BASE_PAGE_BYTES != 0 {
            return Err(bad);
        }
        let first = usize::try_from(from / BASE_PAGE_BYTES).map_err(|_| bad)?;
        let count = usize::try_from(bytes / BASE_PAGE_BYTES).map_err(|_| bad)?;
        let end = first.checked_add(count).ok_or(bad)?;
        self.pages.get_mut(first..end).ok_or(bad)
    }

    #[cold]
    fn stray(&mut self) {
        self.stray += 1;
    }
}

impl Memory for CountingMemory {
    fn map(&mut self, bytes: u64) -> Result<u64, MemoryError> {
        // A state of one byte for each page: what an address space of 1 TB takes is the most that a test may want.
        if bytes > 1 << 40 {
            return Err(MemoryError::NoMemory { bytes });
        }
        self.calls[0] += 1;
        let per_region = (HUGE_PAGE_BYTES / BASE_PAGE_BYTES) as usize;
        let first = (self.pages.len() + 1).next_multiple_of(per_region);
        self.pages.resize(first, UNMAPPED);
        self.pages.resize(first + pages_of(bytes.max(1)) as usize, MAPPED);
        Ok(Self::BASE + first as u64 * BASE_PAGE_BYTES)
    }

    fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.calls[1] += 1;
        self.range("munmap", address, bytes)?.fill(UNMAPPED);
        Ok(())
    }

    fn remap(&mut self, address: u64, bytes: u64, new_bytes: u64) -> Result<u64, MemoryError> {
        self.calls[2] += 1;
        let bytes = bytes.next_multiple_of(BASE_PAGE_BYTES);
        let new_bytes = new_bytes.next_multiple_of(BASE_PAGE_BYTES);
        let old = self.range("mremap", address, bytes)?.to_vec();
        if new_bytes <= bytes {
            self.range("mremap", address + new_bytes, bytes - new_bytes)?
                .fill(UNMAPPED);
            return Ok(address);
        }
        let first = ((address - Self::BASE) / BASE_PAGE_BYTES) as usize;
        let (end, new_end) = (first + old.len(), first + (new_bytes / BASE_PAGE_BYTES) as usize);
        if self.pages.len() <= new_end {
            self.pages.resize(new_end, UNMAPPED);
        }
        // A free page must be left behind it.
        let free = |p: &[u8]| p.iter().all(|p| *p == UNMAPPED);
        if free(&self.pages[end..new_end]) && self.pages.get(new_end).is_none_or(|p| *p == UNMAPPED) {
            self.pages[end..new_end].fill(MAPPED);
            return Ok(address);
        }
        self.pages[first..end].fill(UNMAPPED);
        let to = self.map(new_bytes)?;
        self.calls[0] -= 1;
        self.range("mremap", to, bytes)?.copy_from_slice(&old);
        Ok(to)
    }

    fn advise(&mut self, address: u64, bytes: u64, advice: Advice) -> Result<(), MemoryError> {
        self.calls[3] += 1;
        let pages = self.range("madvise", address, bytes)?;
        if pages.contains(&UNMAPPED) {
            return Err(MemoryError::BadRange {
                call: "madvise",
                address,
                bytes,
            });
        }
        if matches!(advice, Advice::DontNeed | Advice::Free) {
            pages.fill(MAPPED);
        }
        Ok(())
    }

    #[inline]
    fn touch(&mut self, address: u64, write: bool) {
        self.clock_ns += self.touch_ns;
        let page = (address.wrapping_sub(Self::BASE) / BASE_PAGE_BYTES) as usize;
        match self.pages.get_mut(page) {
            Some(state) if *state != UNMAPPED => *state |= if write { WRITTEN } else { READ },
            _ => self.stray(),
        }
        self.reads += u64::from(!write);
        self.writes += u64::from(write);
    }

    #[inline]
    fn work(&mut self, ns: u64) {
        self.clock_ns = self.clock_ns.saturating_add(ns);
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock_ns
    }

    fn fork(&mut self, _child: u32) -> Result<(), MemoryError> {
        Ok(())
    }

    fn child_exits(&mut self, _child: u32) -> Result<(), MemoryError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_aligned_apart_and_counted() {
        let mut m = CountingMemory::new();
        let a = m.map(1).unwrap();
        let b = m.map(4 << 20).unwrap();
        assert!(a % HUGE_PAGE_BYTES == 0 && b % HUGE_PAGE_BYTES == 0 && b >= a + 2 * BASE_PAGE_BYTES);
        assert_eq!(m.mapped_pages(), 1 + 1024);
        m.touch(b, false);
        m.touch(b + 5000, true);
        m.update(b + 5000);
        assert_eq!((m.reads, m.writes, m.resident_pages(), m.written_pages()), (2, 2, 2, 1));
        m.touch(a + 4096, true);
        m.touch(0, false);
        m.touch(u64::MAX, false);
        assert_eq!(m.stray, 3);
        m.advise(b, 4 << 20, Advice::DontNeed).unwrap();
        assert_eq!(m.resident_pages(), 0);
        m.unmap(b, 4 << 20).unwrap();
        assert_eq!(m.mapped_pages(), 1);
    }

    #[test]
    fn remap_grows_in_place_where_it_can_moves_where_it_must_and_shrinks() {
        let mut m = CountingMemory::new();
        let a = m.map(8192).unwrap();
        m.touch(a + 4096, true);
        assert_eq!(m.remap(a, 8192, 1 << 20), Ok(a));
        let b = m.map(4096).unwrap();
        let moved = m.remap(a, 1 << 20, 8 << 20).unwrap();
        assert!(moved > b);
        assert_eq!((m.mapped_pages(), m.resident_pages()), (2048 + 1, 1));
        assert_eq!(m.remap(moved, 8 << 20, 4096), Ok(moved));
        assert_eq!((m.mapped_pages(), m.resident_pages()), (2, 0));
    }

    #[test]
    fn ranges_that_make_no_sense_are_errors() {
        let mut m = CountingMemory::new();
        let a = m.map(8192).unwrap();
        for (address, bytes) in [(a + 1, 4096), (a, 100), (0, 4096), (a, !4095), (!4095, 4096)] {
            assert!(m.unmap(address, bytes).is_err());
            assert!(m.advise(address, bytes, Advice::Cold).is_err());
        }
        assert!(m.advise(a - 4096, 8192, Advice::Cold).is_err());
        assert!(m.map(u64::MAX).is_err());
    }
}
