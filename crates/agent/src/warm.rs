//! A region of our own, in which a block is touched and freed: the one that the kernel takes next on this processor.

use core::sync::atomic::{AtomicUsize, Ordering};

use mega_range::span::REGION;

use crate::sys::{self, advice};

/// Where it is; forked processes use it again. 0: there is none.
static PLACE: AtomicUsize = AtomicUsize::new(0);

/// Maps it, where it is not mapped yet. Gives its address; 0 where there is no room.
pub fn open() -> usize {
    let place = PLACE.load(Ordering::Relaxed);
    if place != 0 {
        return place;
    }
    let Ok(place) = sys::map_region(REGION as usize) else {
        return 0;
    };
    let advise = |advice| sys::madvise(place as u64, REGION, advice);
    // A child shall have nothing of what is in it at the fork.
    if advise(advice::WIPEONFORK)
        .and_then(|()| advise(advice::HUGEPAGE))
        .is_err()
    {
        return 0;
    }
    PLACE.store(place, Ordering::Relaxed);
    place
}

/// Touches a block and frees it; gives the processor time that the touch took. None where that cannot be done.
pub fn touch() -> Option<u64> {
    let place = PLACE.load(Ordering::Relaxed);
    if place == 0 {
        return None;
    }
    let begun = sys::processor_ns();
    // SAFETY: the region is ours alone, and writable.
    unsafe { (place as *mut u8).write_volatile(1) };
    let took = sys::processor_ns().saturating_sub(begun);
    sys::madvise(place as u64, REGION, advice::DONTNEED).ok()?;
    Some(took)
}
