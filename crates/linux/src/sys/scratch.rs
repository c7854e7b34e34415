//! Memory of our own to measure with.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;

use super::last_errno;

/// A private anonymous mapping of our own, to try out on ourselves what we do to others.
#[derive(Debug)]
pub struct Scratch {
    start: NonNull<c_void>,
    bytes: usize,
}

impl Scratch {
    /// Maps this many bytes, untouched.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn map(bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory that is in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// Its addresses.
    pub fn range(&self) -> Range<u64> {
        let start = self.start.as_ptr() as u64;
        start..start + self.bytes as u64
    }

    /// Writes one byte at every address of `step` within `range`, which must be inside.
    pub fn touch(&mut self, range: Range<u64>, step: usize) {
        let own = self.range();
        assert!(own.start <= range.start && range.end <= own.end, "touch outside");
        for address in range.step_by(step.max(1)) {
            let offset = (address - own.start) as usize;
            // SAFETY: the offset is inside the mapping, which is writable and which nobody else points into.
            unsafe { self.start.as_ptr().cast::<u8>().add(offset).write_volatile(1) };
        }
    }

    /// Adds to `count` bytes anywhere in it. Where they are does not depend on what is read, so that the processor looks several up at once;
    /// `chained`, each place depends on what was read at the one before.
    pub fn update_at_random(&mut self, count: u64, chained: bool) {
        let places = self.bytes as u64;
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..if places == 0 { 0 } else { count } {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let offset = ((u128::from(state) * u128::from(places)) >> 64) as usize;
            // SAFETY: the offset is inside the mapping, which is writable and which nobody else points into.
            let had = unsafe {
                let byte = self.start.as_ptr().cast::<u8>().add(offset);
                let had = byte.read_volatile();
                byte.write_volatile(had.wrapping_add(1));
                had
            };
            if chained {
                state = state.wrapping_add(u64::from(had));
            }
        }
    }

    /// madvise(2) on all of it, with one of libc's MADV_ numbers that leave the content alone.
    ///
    /// # Errors
    /// As madvise(2).
    pub fn advise(&self, advice: libc::c_int) -> Result<(), Errno> {
        // SAFETY: the range is our own mapping; whatever the advice does to its content, nobody else relies on it.
        match unsafe { libc::madvise(self.start.as_ptr(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// Has the kernel drop what is in `range`, which must be inside: it reads as zeroes then.
    ///
    /// # Errors
    /// As madvise(2).
    pub fn drop_pages(&mut self, range: Range<u64>) -> Result<(), Errno> {
        let own = self.range();
        assert!(own.start <= range.start && range.end <= own.end, "outside");
        let bytes = (range.end - range.start) as usize;
        // SAFETY: the range is inside our own mapping, whose content nobody else relies on.
        match unsafe { libc::madvise(range.start as *mut c_void, bytes, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// The byte at this address, which must be inside.
    pub fn byte(&self, address: u64) -> u8 {
        assert!(self.range().contains(&address), "outside");
        let offset = (address - self.range().start) as usize;
        // SAFETY: the offset is inside the mapping, which is readable.
        unsafe { self.start.as_ptr().cast::<u8>().add(offset).read_volatile() }
    }

    /// mlock(2) on all of it.
    ///
    /// # Errors
    /// As mlock(2): ENOMEM past RLIMIT_MEMLOCK.
    pub fn lock(&self) -> Result<(), Errno> {
        // SAFETY: the range is our own mapping, and locking does not change it.
        match unsafe { libc::mlock(self.start.as_ptr(), self.bytes) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made by `map`, and nothing borrowed from it can outlive `self`.
        unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}
