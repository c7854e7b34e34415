//! Forked children: whether they get a helper at once, by what became of the ones before them
//! ([`mega_range::children`]).

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use mega_range::children::{self as rule, is_helped, MUCH};

use crate::{helper, sys};

/// What the program and all its children share; nowhere where it could not be made.
static SHARED: AtomicUsize = AtomicUsize::new(0);
/// This child's helper is to see first whether it is short.
static IS_NEW: AtomicU32 = AtomicU32::new(0);
/// This child is still without a helper.
static IS_WITHOUT: AtomicU32 = AtomicU32::new(0);

/// How many children there were, and how many of the last ones were short.
struct Shared {
    count: AtomicU32,
    short: AtomicU32,
}

/// Before there are children.
pub fn begin() {
    if let Ok(at) = sys::map_shared(None, size_of::<Shared>()) {
        SHARED.store(at, Ordering::Relaxed);
    }
}

fn shared() -> Option<&'static Shared> {
    let at = SHARED.load(Ordering::Relaxed);
    // SAFETY: zeroes of ours, mapped until the process ends.
    (at != 0).then(|| unsafe { &*(at as *const Shared) })
}

/// Counts a new child, which this is: whether it gets a helper at once.
pub fn born() -> bool {
    let is_helped = shared().is_none_or(|shared| {
        let nth = shared.count.fetch_add(1, Ordering::Relaxed);
        is_helped(nth, shared.short.load(Ordering::Relaxed))
    });
    IS_WITHOUT.store(u32::from(!is_helped), Ordering::Relaxed);
    IS_NEW.store(u32::from(is_helped), Ordering::Relaxed);
    is_helped
}

/// Whether the program's children are short, as far as is known.
pub fn are_short() -> bool {
    shared().is_some_and(|shared| rule::are_short(shared.short.load(Ordering::Relaxed)))
}

/// Whether this helper is to see first whether its program is a short child.
pub fn is_new() -> bool {
    IS_NEW.load(Ordering::Relaxed) != 0
}

/// A child was short, or was not.
pub fn was_short(is_short: bool) {
    if let Some(shared) = shared() {
        if is_short {
            shared.short.fetch_add(1, Ordering::Relaxed);
        } else {
            shared.short.store(0, Ordering::Relaxed);
        }
    }
}

/// The program maps so much: a child that is without a helper gets one.
pub fn maps(bytes: u64) {
    if bytes >= MUCH && IS_WITHOUT.load(Ordering::Relaxed) != 0 && IS_WITHOUT.swap(0, Ordering::Relaxed) != 0 {
        helper::start();
    }
}
