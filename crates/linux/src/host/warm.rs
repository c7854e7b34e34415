//! Touches the block that the kernel will take next, where the host of a virtual machine may not back it yet: see [`mega_core::range::warm`].

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mega_core::range::warm::Warmth;
use mega_core::units::HUGE_PAGE_BYTES;

use crate::sys::{thread_cpu_time, Scratch};

/// One for the machine: its blocks are everybody's.
static WARMTH: Mutex<Warmth> = Mutex::new(Warmth::new());

/// Touches a block and frees it, so that this thread's next collapse takes it. False where that is not needed.
pub fn touch() -> bool {
    if !with(|warmth| warmth.is_wanted()) {
        return false;
    }
    let Ok(mut scratch) = Scratch::map(2 * HUGE_PAGE_BYTES as usize) else {
        return false;
    };
    if scratch.advise(libc::MADV_HUGEPAGE).is_err() {
        return false;
    }
    let first = scratch.range().start.next_multiple_of(HUGE_PAGE_BYTES);
    let began = thread_cpu_time();
    scratch.touch(first..first + 1, 1);
    let took = thread_cpu_time().saturating_sub(began);
    with(|warmth| warmth.touched(nanoseconds(took)));
    true
}

/// A collapse took so long; a block had been touched for it or not.
pub fn collapsed(took: Duration, was_touched: bool) {
    with(|warmth| warmth.collapsed(nanoseconds(took), was_touched));
}

fn with<T>(use_it: impl FnOnce(&mut Warmth) -> T) -> T {
    use_it(&mut WARMTH.lock().unwrap_or_else(PoisonError::into_inner))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
