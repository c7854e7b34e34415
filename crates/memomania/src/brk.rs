//! The program break: a pool of its own, with the heap's layout. Where there is none, the kernel's.

use std::sync::atomic::{AtomicUsize, Ordering};

use memomania_layout::map::READ_WRITE;
use memomania_layout::page::BASE;

use crate::sys::{self, Result, ENOMEM};
use crate::world::{self, BRK};

/// Bytes of the pool that are below the break. Changes under the lock.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// brk(2) as the C library has it: sets the break, or fails with ENOMEM.
pub fn set(address: usize) -> Result<()> {
    let mut world = world::lock();
    let Some(pool) = world.pools[BRK].as_mut() else {
        return if sys::brk(address) >= address {
            Ok(())
        } else {
            Err(ENOMEM)
        };
    };
    let extent = pool.extent();
    let bytes = address
        .checked_sub(extent.start)
        .filter(|bytes| *bytes <= extent.end - extent.start);
    let bytes = bytes.ok_or(ENOMEM)?;
    let (old, new) = (BYTES.load(Ordering::Relaxed).div_ceil(BASE), bytes.div_ceil(BASE));
    if new > old {
        pool.map(old, new, READ_WRITE, 0)?;
    } else {
        pool.unmap(new, old)?;
    }
    BYTES.store(bytes, Ordering::Relaxed);
    Ok(())
}

/// Where the break is.
pub fn get() -> usize {
    match world::extents()[BRK] {
        extent if extent.start != 0 => extent.start + BYTES.load(Ordering::Relaxed),
        _ => sys::brk(0),
    }
}

/// sbrk(3): moves the break; answers where it was.
pub fn shift(increment: isize) -> Result<usize> {
    let old = get();
    if increment != 0 {
        set(old.checked_add_signed(increment).ok_or(ENOMEM)?)?;
    }
    Ok(old)
}
