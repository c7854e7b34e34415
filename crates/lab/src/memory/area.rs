//! Words from a mapping or from the process's allocator: with a preloaded allocator, that decides which pages they are on.

use super::{Mapping, MemoryError};
use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Zeroed words from the process's allocator (calloc), freed on drop. Large allocations are not touched.
#[derive(Debug)]
pub struct Heap {
    start: NonNull<AtomicU64>,
    layout: Layout,
}

// SAFETY: it owns its words, which are atomics.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// At least `len` bytes, rounded up to words.
    ///
    /// # Errors
    /// When the allocator has none.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        let failed = || MemoryError {
            call: "calloc",
            start: 0,
            bytes: len,
            source: std::io::Error::from_raw_os_error(libc::ENOMEM),
        };
        let layout = Layout::array::<AtomicU64>(len.div_ceil(8).max(1)).map_err(|_| failed())?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start.cast()).ok_or_else(failed)?;
        Ok(Self { start, layout })
    }

    /// All of it, as words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the range is allocated, aligned, owned by self and lives as long as self; zeros are words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size() / 8) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no reference to it is left.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

/// Words from either source.
#[derive(Debug)]
pub enum Area {
    /// Mapped.
    Mapped(Mapping),
    /// Of the allocator.
    Heap(Heap),
}

impl Area {
    /// All of it, as words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Mapped(mapping) => mapping.words(),
            Self::Heap(heap) => heap.words(),
        }
    }

    /// First to last address.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let words = self.words().as_ptr_range();
        words.start as usize..words.end as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_of_both_are_zeros_that_can_be_written() {
        for area in [
            Area::Heap(Heap::new(5000).unwrap()),
            Area::Mapped(Mapping::new(8192).unwrap()),
        ] {
            let words = area.words();
            assert!(words.len() >= 625);
            assert!(words.iter().all(|w| w.load(Relaxed) == 0));
            words.iter().for_each(|w| w.store(7, Relaxed));
            assert_eq!(area.range().len(), words.len() * 8);
        }
    }

    #[test]
    fn more_than_there_can_be_is_refused() {
        for len in [usize::MAX, isize::MAX as usize - 16] {
            assert_eq!(Heap::new(len).unwrap_err().errno(), libc::ENOMEM);
        }
    }
}
