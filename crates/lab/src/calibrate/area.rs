//! Memory to measure on, with the unsafe code of calibration.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::{io, ptr};

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

use super::{failed, CalibrateError, PAGE, REGION};

/// Linux's MADV_COLLAPSE (include/uapi/asm-generic/mman-common.h), which rustix has no name for.
const MADV_COLLAPSE: c_int = 25;

/// Memory of our own, aligned to a region and unmapped when dropped. It reads as 0 until it is updated.
pub(super) struct Area {
    map: *mut c_void,
    map_bytes: usize,
    start: *mut u8,
    pub bytes: usize,
}

extern "C" {
    // The C library's, which std links.
    #[link_name = "madvise"]
    fn c_madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int;
}

impl Area {
    /// Anonymous memory of this many bytes.
    pub fn new(bytes: usize) -> Result<Self, CalibrateError> {
        let map_bytes = bytes + REGION;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else knows of it.
        let map = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                map_bytes,
                access,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(failed("mmap"))?;
        let skip = map.cast::<u8>().align_offset(REGION);
        Ok(Self {
            map,
            map_bytes,
            start: map.cast::<u8>().wrapping_add(skip),
            bytes,
        })
    }

    /// A private mapping of a new in-memory file of this many bytes.
    pub fn of_memory_file(bytes: usize) -> Result<Self, CalibrateError> {
        let file = memfd_create("mega-calibrate", MemfdFlags::CLOEXEC).map_err(failed("memfd_create"))?;
        ftruncate(&file, bytes as u64).map_err(failed("ftruncate"))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice, of a file that nobody else has and whose length stays.
        let map =
            unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::PRIVATE, &file, 0) }.map_err(failed("mmap"))?;
        Ok(Self {
            map,
            map_bytes: bytes,
            start: map.cast(),
            bytes,
        })
    }

    /// Writes a 0 to the first byte of a page.
    pub fn touch(&self, at: usize) {
        assert!(at < self.bytes, "inside the area");
        // SAFETY: inside our own mapping, which no reference points into; volatile, so that it happens.
        unsafe { self.start.add(at).write_volatile(0) }
    }

    /// Reads the eight bytes at a multiple of eight.
    #[inline]
    pub fn read(&self, at: usize) -> u64 {
        assert!(at < self.bytes && at % 8 == 0, "inside the area");
        // SAFETY: inside our own mapping (its length is a multiple of eight) and aligned, as its start is page-aligned.
        unsafe { self.start.add(at).cast::<u64>().read_volatile() }
    }

    /// Combines the eight bytes at a multiple of eight with others.
    #[inline]
    pub fn update(&self, at: usize, with: u64) {
        assert!(at < self.bytes && at % 8 == 0, "inside the area");
        // SAFETY: inside our own mapping and aligned, which no reference points into; volatile, so that it happens.
        unsafe {
            let word = self.start.add(at).cast::<u64>();
            word.write_volatile(word.read_volatile() ^ with);
        }
    }

    /// Touches page after page, with some computation between faults, as in programs. Without it each fault comes from the very
    /// same instruction and takes a fifth longer (Zen 4).
    pub fn touch_at_work(&self, from: usize, bytes: usize) {
        for at in (from..from + bytes).step_by(PAGE) {
            self.touch(at);
            let x = (0..64).fold(at as u64, |x, _| x.wrapping_mul(x) ^ at as u64);
            black_box(x);
        }
    }

    /// Touches one address after the other.
    pub fn touch_every(&self, from: usize, bytes: usize, step: usize) {
        for at in (from..from + bytes).step_by(step) {
            self.touch(at);
        }
    }

    pub fn read_every(&self, from: usize, bytes: usize, step: usize) {
        for at in (from..from + bytes).step_by(step) {
            self.read(at);
        }
    }

    pub fn advise(&self, from: usize, bytes: usize, advice: Advice) -> Result<(), CalibrateError> {
        assert!(from + bytes <= self.bytes, "inside the area");
        // SAFETY: inside our own mapping. Of the advice used here only DONTNEED changes content, and no reference points into the area.
        unsafe { madvise(self.start.add(from).cast(), bytes, advice) }.map_err(failed("madvise"))
    }

    /// Collapses the region at this offset.
    pub fn collapse(&self, from: usize) -> io::Result<()> {
        assert!(from + REGION <= self.bytes, "inside the area");
        // SAFETY: inside our own mapping; MADV_COLLAPSE keeps the content.
        let result = unsafe { c_madvise(self.start.add(from).cast(), REGION, MADV_COLLAPSE) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

// SAFETY: the mapping belongs to the value alone, and no thread is special to it.
unsafe impl Send for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and nothing points into it any more. It cannot fail for a mapping that exists.
        let _ = unsafe { munmap(self.map, self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::{MIB, PAGE};

    #[test]
    fn an_area_is_aligned_and_holds_what_is_written() {
        let area = Area::new(4 * MIB).unwrap();
        assert_eq!(area.start as usize % REGION, 0);
        area.touch_every(0, area.bytes, PAGE);
        assert_eq!(area.read(area.bytes - 8), 0);
        area.advise(0, area.bytes, Advice::LinuxDontNeed).unwrap();
        assert_eq!(area.read(0), 0);
    }
}
