//! The page that says what was done: a file that `MEGA_AGENT_STATUS` names, or else shared memory that `mega show` finds in the process.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mega_range::page::{Field, BYTES, MAGIC, VERSION};

use crate::sys;
use crate::text::{digits_of, Path};

/// Where the page is mapped; nowhere where it could not be made.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Makes the page: in a file, where a `%` in its name stands for the process; without one in memory of no file.
pub fn open(name: &[u8], pid: i32) {
    if name.is_empty() {
        return begin(None, pid);
    }
    let mut digits = [0u8; 12];
    let split = name.iter().position(|&byte| byte == b'%');
    let (before, after) = name
        .split_at_checked(split.unwrap_or(name.len()))
        .unwrap_or((name, &[]));
    let number = if split.is_some() {
        digits_of(pid.unsigned_abs(), &mut digits)
    } else {
        &[]
    };
    let path = Path::of(&[before, number, after.get(1..).unwrap_or(&[])]);
    // A file that cannot be made, as after a change of user, is no reason to say nothing.
    let Some(fd) = path.and_then(|path| sys::open(path.bytes(), sys::O_RDWR_CREAT_CLOEXEC).ok()) else {
        return begin(None, pid);
    };
    // SAFETY: a file of ours gets its length.
    let sized = unsafe { sys::call(sys::number::FTRUNCATE, [fd as usize, BYTES, 0, 0, 0, 0]) };
    begin(sized.is_ok().then_some(fd), pid);
    sys::close(fd);
}

fn begin(fd: Option<i32>, pid: i32) {
    let Ok(page) = sys::map_shared(fd, BYTES) else { return };
    PAGE.store(page, Ordering::Release);
    for field in Field::ALL {
        set(*field, 0);
    }
    set_word(1, VERSION);
    set_word(0, MAGIC);
    set(Field::Pid, u64::from(pid.unsigned_abs()));
}

/// After fork: the page is the parent's.
pub fn forget() {
    let page = PAGE.swap(0, Ordering::AcqRel);
    if page != 0 {
        // SAFETY: the page is ours, and the helper that writes to it is not in this process.
        let _ = unsafe { sys::call(sys::number::MUNMAP, [page, BYTES, 0, 0, 0, 0]) };
    }
}

fn word(index: usize) -> Option<&'static AtomicU64> {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: the page stays mapped until the process ends, and has room for all words.
    (page != 0 && index < BYTES / 8).then(|| unsafe { &*((page + index * 8) as *const AtomicU64) })
}

fn set_word(index: usize, value: u64) {
    if let Some(word) = word(index) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Says what a field is now.
pub fn set(field: Field, value: u64) {
    set_word(field.word(), value);
}

/// Adds to a field.
pub fn add(field: Field, value: u64) {
    if let Some(word) = word(field.word()) {
        word.fetch_add(value, Ordering::Relaxed);
    }
}
