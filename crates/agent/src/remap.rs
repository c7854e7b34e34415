//! `mremap` while advice is under way.
//!
//! Between the helper's look and its advice the program may map something else in that place. The advice then reaches
//! only a part of it, until the helper has looked again, and `mremap` of a mapping whose parts differ fails with EFAULT.
//! So where it fails so, the whole mapping gets the latest advice, and it is tried again.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::{libc, next, sys};

const FAILED: usize = usize::MAX;
/// Each try needs further advice in that very moment.
const TRIES: u32 = 8;

/// Advices begun, and those that have ended.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicU32 = AtomicU32::new(0);
static ADVICE: AtomicUsize = AtomicUsize::new(0);
/// The C library's `mremap`, or that of another library that the program has preloaded.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Looks up whose `mremap` the program would have called.
pub fn begin() {
    NEXT.store(next::function(c"mremap").unwrap_or(0), Ordering::Relaxed);
}

/// Gives this advice by `advise`, and mends what it should not have reached.
pub fn under_way<T>(advice: usize, advise: impl FnOnce() -> T) -> T {
    ADVICE.store(advice, Ordering::SeqCst);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    let done = advise();
    ENDED.fetch_add(1, Ordering::SeqCst);
    done
}

/// After a fork, or where a helper was ended: what it was about to advise it does not any more.
pub fn forget() {
    ENDED.store(BEGUN.load(Ordering::SeqCst), Ordering::SeqCst);
}

/// Moves by `once`; where that fails since the mapping's parts differ, they get the latest advice, and it is tried again.
fn mended(old: usize, size: usize, once: impl Fn() -> sys::Result<usize>) -> sys::Result<usize> {
    for _ in 0..TRIES {
        let ended = ENDED.load(Ordering::SeqCst);
        let moved = once();
        let begun = BEGUN.load(Ordering::SeqCst);
        if moved != Err(sys::EFAULT)
            || begun == 0
            || sys::madvise(old as u64, size as u64, ADVICE.load(Ordering::SeqCst)).is_err()
        {
            return moved;
        }
        if begun == ended {
            break;
        }
    }
    once()
}

/// Moves or resizes a mapping as the C library's function of this name.
///
/// # Safety
/// As the C library's function of this name.
#[no_mangle]
pub unsafe extern "C" fn mremap(old: usize, size: usize, new_size: usize, flags: i32, new: usize) -> usize {
    // SAFETY: the caller's.
    let moved = mended(old, size, || unsafe { once(old, size, new_size, flags, new) });
    moved.unwrap_or_else(|error| {
        libc::set_errno(error.0);
        FAILED
    })
}

/// A static program's own `mremap` has failed with EFAULT. Returns what its call returns instead.
pub extern "C" fn torn_in_static(
    _failed: usize,
    size: usize,
    new_size: usize,
    flags: i32,
    new: usize,
    old: usize,
) -> usize {
    // SAFETY: the call that the program has just made.
    let moved = mended(old, size, || unsafe { sys::mremap(old, size, new_size, flags, new) });
    moved.unwrap_or_else(|error| (error.0 as usize).wrapping_neg())
}

/// # Safety
/// As [`mremap`].
unsafe fn once(old: usize, size: usize, new_size: usize, flags: i32, new: usize) -> sys::Result<usize> {
    let next = NEXT.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: the C library's signature; the last argument is read where the flags say so.
        let next: unsafe extern "C" fn(usize, usize, usize, i32, usize) -> usize =
            unsafe { core::mem::transmute(next) };
        // SAFETY: the caller's.
        return match unsafe { next(old, size, new_size, flags, new) } {
            FAILED => Err(sys::Errno(libc::errno())),
            moved => Ok(moved),
        };
    }
    // SAFETY: the caller's.
    unsafe { sys::mremap(old, size, new_size, flags, new) }
}
