//! One anonymous private mapping, aligned to 2 MB, between two guard pages. The guards keep the kernel from merging it
//! with its neighbours: one mapping is one VMA until its owner splits it.

use super::{base_page_bytes, MemoryError, HUGE_BYTES};
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// A protection of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// No access at all.
    None,
    /// Reads only.
    Read,
    /// Reads and writes.
    ReadWrite,
}

/// An area of anonymous memory that this value owns; dropping it unmaps it.
///
/// Its words are atomics, since hot loops, checkers and forked children access them concurrently; relaxed access compiles to
/// plain moves. After revoking access with [`Mapping::protect`] the owner must not touch those pages until access is restored: the
/// process would get SIGSEGV.
#[derive(Debug)]
pub struct Mapping {
    start: usize,
    len: usize,
    guard_below: usize,
    guard_above: usize,
}

fn round_up(n: usize, to: usize) -> Option<usize> {
    n.checked_add(to - 1).map(|n| n & !(to - 1))
}

impl Mapping {
    /// Maps at least `len` bytes, rounded up to base pages, readable and writable, untouched.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        let page = base_page_bytes();
        let too_big = || MemoryError {
            call: "mmap",
            start: 0,
            bytes: len,
            source: std::io::Error::from_raw_os_error(libc::ENOMEM),
        };
        let len = round_up(len.max(1), page).ok_or_else(too_big)?;
        let reserved = len.checked_add(2 * HUGE_BYTES).ok_or_else(too_big)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let raw = unsafe { libc::mmap(std::ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) };
        if raw == libc::MAP_FAILED {
            return Err(MemoryError::last("mmap", 0, len));
        }
        let base = raw as usize;
        // The guard below needs a page: the first 2 MB boundary after base + page, less than 2 MB + page away.
        let start = (base + page + HUGE_BYTES - 1) & !(HUGE_BYTES - 1);
        unmap(base, start - page - base);
        unmap(start + len + page, base + reserved - (start + len + page));
        let mut mapping = Self {
            start,
            len,
            guard_below: page,
            guard_above: page,
        };
        mapping.protect(0..len, Protection::ReadWrite)?;
        Ok(mapping)
    }

    /// First address.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// First to last address.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// All of it, as words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the range is mapped, aligned, owned by self and lives as long as self; atomics allow others to look and
        // write at the same time; fresh pages read as zero, so every word is initialised.
        unsafe { std::slice::from_raw_parts(self.start as *const AtomicU64, self.len / 8) }
    }

    /// The words of base page `page`.
    ///
    /// # Panics
    /// When there is no such page.
    #[must_use]
    pub fn page_words(&self, page: usize) -> &[AtomicU64] {
        let n = base_page_bytes() / 8;
        &self.words()[page * n..(page + 1) * n]
    }

    fn checked(&self, range: &Range<usize>) -> (usize, usize) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} lies outside of {} bytes",
            self.len
        );
        (self.start + range.start, range.end - range.start)
    }

    /// `madvise` with `advice` on a range of byte offsets. MADV_DONTNEED and MADV_FREE lose content, as they do.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn advise(&mut self, range: Range<usize>, advice: i32) -> Result<(), MemoryError> {
        let (start, len) = self.checked(&range);
        // SAFETY: the range is ours, no reference to it is alive (`&mut self`), and no advice can do more to anonymous
        // memory than zero it, which atomics may be.
        match unsafe { libc::madvise(start as *mut libc::c_void, len, advice) } {
            0 => Ok(()),
            _ => Err(MemoryError::last("madvise", start, len)),
        }
    }

    /// Changes the protection of a range of byte offsets.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn protect(&mut self, range: Range<usize>, protection: Protection) -> Result<(), MemoryError> {
        let (start, len) = self.checked(&range);
        let bits = match protection {
            Protection::None => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: the range is ours and no reference to it is alive (`&mut self`).
        match unsafe { libc::mprotect(start as *mut libc::c_void, len, bits) } {
            0 => Ok(()),
            _ => Err(MemoryError::last("mprotect", start, len)),
        }
    }

    /// Locks (`true`) or unlocks a range of byte offsets in memory.
    ///
    /// # Errors
    /// The kernel's error: ENOMEM or EPERM past the limit of locked memory.
    pub fn lock(&mut self, range: Range<usize>, locked: bool) -> Result<(), MemoryError> {
        let (start, len) = self.checked(&range);
        let at = start as *const libc::c_void;
        // SAFETY: the range is ours; locking changes where it may live and not what it contains.
        let done = unsafe {
            if locked {
                libc::mlock(at, len)
            } else {
                libc::munlock(at, len)
            }
        };
        match done {
            0 => Ok(()),
            _ => Err(MemoryError::last(if locked { "mlock" } else { "munlock" }, start, len)),
        }
    }

    /// Grows to `len` bytes with `mremap`, which may move it. The new end reads as zero. It has no guards after a move.
    ///
    /// # Errors
    /// The kernel's error (EFAULT when it is no longer one VMA); nothing has changed then.
    pub fn grow(&mut self, len: usize) -> Result<(), MemoryError> {
        assert!(
            len >= self.len && len % base_page_bytes() == 0,
            "grow from {} to {len}",
            self.len
        );
        // SAFETY: the range is ours, no reference to it is alive, and the kernel chooses a free place to move to.
        let to = unsafe { libc::mremap(self.start as *mut libc::c_void, self.len, len, libc::MREMAP_MAYMOVE) };
        if to == libc::MAP_FAILED {
            return Err(MemoryError::last("mremap", self.start, self.len));
        }
        let old = std::mem::ManuallyDrop::new(Self { ..*self });
        self.len = len;
        if to as usize != self.start {
            self.start = to as usize;
            self.guard_below = 0;
            self.guard_above = 0;
            old.unmap_guards();
        }
        Ok(())
    }

    /// Moves it to another 2 MB-aligned place with `mremap`, huge pages and all.
    ///
    /// # Errors
    /// The kernel's error: it has not moved then.
    pub fn relocate(&mut self) -> Result<(), MemoryError> {
        let target = std::mem::ManuallyDrop::new(Self::new(self.len)?);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let at = target.start as *mut libc::c_void;
        // SAFETY: both ranges are ours and no reference to either is alive; the target is replaced, which it may be.
        let to = unsafe { libc::mremap(self.start as *mut libc::c_void, self.len, self.len, flags, at) };
        if to == libc::MAP_FAILED {
            // The kernel may or may not have unmapped the target, and another thread may have it by now: the address
            // space is left alone rather than unmapped.
            return Err(MemoryError::last("mremap", self.start, self.len));
        }
        self.unmap_guards();
        std::mem::forget(std::mem::replace(self, std::mem::ManuallyDrop::into_inner(target)));
        Ok(())
    }

    /// Unmaps a range of byte offsets and returns what is left before and after it.
    #[must_use]
    pub fn unmap_part(self, range: Range<usize>) -> (Option<Self>, Option<Self>) {
        let (start, len) = self.checked(&range);
        let old = std::mem::ManuallyDrop::new(self);
        let page = base_page_bytes();
        assert!(start % page == 0 && len % page == 0, "{range:?} is not made of pages");
        let after = old.len - range.end;
        unmap(start, len);
        if range.start == 0 {
            unmap(old.start - old.guard_below, old.guard_below);
        }
        if after == 0 {
            unmap(old.start + old.len, old.guard_above);
        }
        let left = Self {
            start: old.start,
            len: range.start,
            guard_below: old.guard_below,
            guard_above: 0,
        };
        let right = Self {
            start: start + len,
            len: after,
            guard_below: 0,
            guard_above: old.guard_above,
        };
        if len == 0 {
            assert!(
                range.start == 0 || after == 0,
                "an empty range in the middle unmaps nothing"
            );
        }
        let keep = |m: Self| {
            if m.len > 0 {
                Some(m)
            } else {
                std::mem::forget(m);
                None
            }
        };
        (keep(left), keep(right))
    }

    fn unmap_guards(&self) {
        unmap(self.start - self.guard_below, self.guard_below);
        unmap(self.start + self.len, self.guard_above);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(
            self.start - self.guard_below,
            self.guard_below + self.len + self.guard_above,
        );
    }
}

/// Unmaps a range that the caller owns. The kernel can refuse only for lack of memory for bookkeeping; the range then
/// stays mapped, which harms nobody.
fn unmap(start: usize, len: usize) {
    if len > 0 {
        // SAFETY: every caller passes a range that it owns and to which no reference is left.
        unsafe { libc::munmap(start as *mut libc::c_void, len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::content;
    use std::sync::atomic::Ordering::Relaxed;

    const PAGE: usize = 4096;

    fn vmas_overlapping(range: Range<usize>) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let parse = |l: &str| {
            let (s, e) = l.split_whitespace().next()?.split_once('-')?;
            Some((usize::from_str_radix(s, 16).ok()?, usize::from_str_radix(e, 16).ok()?))
        };
        maps.lines()
            .filter_map(parse)
            .filter(|(s, e)| *s < range.end && range.start < *e)
            .count()
    }

    #[test]
    fn a_mapping_is_aligned_zero_and_one_vma() {
        let m = Mapping::new(3 * HUGE_BYTES + 1).unwrap();
        assert_eq!(m.start() % HUGE_BYTES, 0);
        assert_eq!(m.len_bytes(), 3 * HUGE_BYTES + PAGE);
        assert_eq!(content::verify_zero(m.page_words(0)), Ok(()));
        assert_eq!(vmas_overlapping(m.range()), 1);
    }

    #[test]
    fn neighbours_are_never_merged() {
        let many: Vec<Mapping> = (0..8).map(|_| Mapping::new(HUGE_BYTES).unwrap()).collect();
        for m in &many {
            assert_eq!(vmas_overlapping(m.range()), 1);
            let exact = format!("{:x}-{:x} rw-p", m.start(), m.range().end);
            assert!(std::fs::read_to_string("/proc/self/maps").unwrap().contains(&exact));
        }
    }

    #[test]
    fn content_survives_growing_moving_and_partial_unmapping() {
        let mut m = Mapping::new(2 * HUGE_BYTES).unwrap();
        content::fill(m.words(), 5);
        m.grow(3 * HUGE_BYTES).unwrap();
        let old_words = 2 * HUGE_BYTES / 8;
        assert_eq!(content::verify(&m.words()[..old_words], 5), Ok(()));
        assert_eq!(content::verify_zero(&m.words()[old_words..]), Ok(()));
        let before = m.start();
        m.relocate().unwrap();
        assert_ne!(m.start(), before);
        assert_eq!(m.start() % HUGE_BYTES, 0);
        assert_eq!(content::verify(&m.words()[..old_words], 5), Ok(()));
        let (left, right) = m.unmap_part(PAGE..2 * PAGE);
        let (left, right) = (left.unwrap(), right.unwrap());
        assert_eq!(content::verify(left.words(), 5), Ok(()));
        assert_eq!(left.len_bytes(), PAGE);
        assert_eq!(right.words()[0].load(Relaxed), content::word(5, 2 * PAGE as u64 / 8));
        let (none, rest) = right.unmap_part(0..PAGE);
        assert!(none.is_none());
        assert_eq!(
            rest.unwrap().words()[0].load(Relaxed),
            content::word(5, 3 * PAGE as u64 / 8)
        );
    }

    #[test]
    fn protection_comes_and_goes_without_touching_content() {
        let mut m = Mapping::new(HUGE_BYTES).unwrap();
        content::fill(m.words(), 9);
        m.protect(0..PAGE, Protection::None).unwrap();
        m.protect(PAGE..2 * PAGE, Protection::Read).unwrap();
        assert_eq!(m.page_words(1)[0].load(Relaxed), content::word(9, 512));
        m.protect(0..2 * PAGE, Protection::ReadWrite).unwrap();
        assert_eq!(content::verify(m.words(), 9), Ok(()));
        m.lock(0..PAGE, true).unwrap();
        m.lock(0..PAGE, false).unwrap();
        m.advise(0..PAGE, libc::MADV_DONTNEED).unwrap();
        assert_eq!(content::verify_zero(m.page_words(0)), Ok(()));
    }

    #[test]
    fn more_than_there_is_is_an_error_and_not_a_crash() {
        assert_eq!(Mapping::new(usize::MAX / 2).unwrap_err().errno(), libc::ENOMEM);
        assert_eq!(Mapping::new(usize::MAX).unwrap_err().errno(), libc::ENOMEM);
    }
}
