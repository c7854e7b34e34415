//! What the environment said at the program's start; programs overwrite it later.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use mega_range::density::Density;
use mega_range::intent::Intent;

/// The settings.
#[derive(Clone, Copy)]
pub struct Settings {
    pub intent: Intent,
    status: [u8; STATUS_BYTES],
    status_len: usize,
    /// Which program this is; 0: it does not say.
    pub key: u64,
    /// Whether contents of huge pages may be read.
    pub reads_contents: bool,
    /// How densely earlier runs filled their memory.
    pub earlier: Density,
    /// An address in the program's first stack.
    pub stack: usize,
}

const STATUS_BYTES: usize = 256;

impl Settings {
    /// The file for the status page.
    pub fn status(&self) -> &[u8] {
        self.status.get(..self.status_len).unwrap_or(&[])
    }

    /// Keeps the file's name; one that is too long is none.
    pub fn set_status(&mut self, name: &[u8]) {
        if let Some(place) = self.status.get_mut(..name.len()) {
            for (place, byte) in place.iter_mut().zip(name) {
                *place = *byte;
            }
            self.status_len = name.len();
        }
    }
}

struct Kept(UnsafeCell<Settings>);

// SAFETY: written once, by the constructor, while the program has no other thread that could read it.
unsafe impl Sync for Kept {}

static SETTINGS: Kept = Kept(UnsafeCell::new(Settings {
    intent: Intent::Balanced,
    key: 0,
    reads_contents: false,
    earlier: Density::NONE,
    status: [0; STATUS_BYTES],
    status_len: 0,
    stack: 0,
}));

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// This is a child that another program's process was copied into.
pub fn forked() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Whether it is.
pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// The settings.
pub fn settings() -> &'static Settings {
    // SAFETY: see above.
    unsafe { &*SETTINGS.0.get() }
}

/// The settings, to be written.
///
/// # Safety
/// Only the constructor may ask, while nobody reads them.
pub unsafe fn begin() -> &'static mut Settings {
    // SAFETY: as the caller has promised.
    unsafe { &mut *SETTINGS.0.get() }
}
