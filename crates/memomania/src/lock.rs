//! The one lock, under which pools change.
//!
//! Signals are held back while it is held, so that a handler that maps memory cannot meet it half way. A thread that asks for it twice is
//! a fault of ours (it can only be a panic): it is told and the process ends, where otherwise it would hang.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// 0, or the owner's thread number; with [`WAITED`] if others may wait.
static OWNER: AtomicU32 = AtomicU32::new(0);
const WAITED: u32 = 1 << 31;

/// Held until dropped.
#[must_use]
pub struct Guard {
    signals: u64,
}

/// Takes the lock.
pub fn lock() -> Guard {
    let signals = sys::set_signal_mask(u64::MAX);
    let me = sys::thread();
    let mut owner = OWNER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
    let mut mine = me;
    while let Err(now) = owner {
        if now & !WAITED == me {
            sys::tell(format_args!("fault in the library: it called itself"));
            sys::exit(134);
        }
        if now != 0 {
            // Whoever had to wait once must wake others: it cannot know whether there are any.
            mine = me | WAITED;
            if now & WAITED != 0 || swap(now, now | WAITED) {
                sys::futex_wait(&OWNER, now | WAITED);
            }
        }
        owner = OWNER.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed);
    }
    Guard { signals }
}

fn swap(from: u32, to: u32) -> bool {
    OWNER
        .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

impl Guard {
    /// In the child of a fork the lock is the child's only thread's, whose number is another than that which took it.
    pub fn after_fork(&self) {
        OWNER.store(sys::thread(), Ordering::Relaxed);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if OWNER.swap(0, Ordering::Release) & WAITED != 0 {
            sys::futex_wake(&OWNER, 1);
        }
        sys::set_signal_mask(self.signals);
    }
}
