//! The page that says what was done: a file that `MEGA_AGENT_STATUS` names, or else shared memory that `mega show` finds in the process.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use mega_range::page::{Field, BYTES, MAGIC, VERSION};

use crate::sys;
use crate::text::{digits_of, Path};

/// Where the page is mapped; nowhere where it could not be made.
static PAGE: AtomicUsize = AtomicUsize::new(0);
/// It is to be moved to its file once there is a helper.
static IS_TO_MOVE: AtomicBool = AtomicBool::new(false);

/// Makes the page: in a file, where a `%` in its name stands for the process; without one in memory of no file.
pub fn open(name: &[u8], pid: i32) {
    // A file that cannot be made, as after a change of user, is no reason to say nothing.
    if let Some(page) = in_file(name, pid).or_else(in_memory) {
        begin(page, pid);
    }
}

/// Makes the page of a forked child, in memory of no file: making a file takes longer than many children live. A helper
/// moves it.
pub fn open_in_child(pid: i32) {
    if let Some(page) = in_memory() {
        begin(page, pid);
    }
    IS_TO_MOVE.store(true, Ordering::Relaxed);
}

/// Moves the page of a forked child to its file.
pub fn to_file(name: &[u8], pid: i32) {
    if !IS_TO_MOVE.swap(false, Ordering::Relaxed) {
        return;
    }
    let Some(page) = in_file(name, pid) else { return };
    let before = PAGE.swap(page, Ordering::AcqRel);
    for index in (0..BYTES / 8).rev() {
        // SAFETY: both pages have so many words. The program may still write to the old one, which stays mapped.
        unsafe {
            let said = word_of(before, index).map_or(0, |word| word.swap(0, Ordering::Relaxed));
            word_of(page, index).inspect(|word| word.store(said, Ordering::Relaxed));
        }
    }
}

fn in_memory() -> Option<usize> {
    sys::map_shared(None, BYTES).ok()
}

fn in_file(name: &[u8], pid: i32) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    let mut digits = [0u8; 12];
    let split = name.iter().position(|&byte| byte == b'%');
    let (before, after) = name.split_at_checked(split.unwrap_or(name.len()))?;
    let number = if split.is_some() {
        digits_of(pid.unsigned_abs(), &mut digits)
    } else {
        &[]
    };
    let path = Path::of(&[before, number, after.get(1..).unwrap_or(&[])])?;
    let fd = sys::open(path.bytes(), sys::O_RDWR_CREAT_CLOEXEC).ok()?;
    // SAFETY: a file of ours gets its length.
    let sized = unsafe { sys::call(sys::number::FTRUNCATE, [fd as usize, BYTES, 0, 0, 0, 0]) };
    let page = sized.and_then(|_| sys::map_shared(Some(fd), BYTES)).ok();
    sys::close(fd);
    page
}

fn begin(page: usize, pid: i32) {
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
    IS_TO_MOVE.store(false, Ordering::Relaxed);
    let page = PAGE.swap(0, Ordering::AcqRel);
    if page != 0 {
        // SAFETY: the page is ours, and the helper that writes to it is not in this process.
        let _ = unsafe { sys::call(sys::number::MUNMAP, [page, BYTES, 0, 0, 0, 0]) };
    }
}

fn word(index: usize) -> Option<&'static AtomicU64> {
    // SAFETY: the page stays mapped until the process ends.
    unsafe { word_of(PAGE.load(Ordering::Acquire), index) }
}

/// A word of a page; none of page 0.
///
/// # Safety
/// The page must stay mapped.
unsafe fn word_of(page: usize, index: usize) -> Option<&'static AtomicU64> {
    // SAFETY: the page has room for all words.
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
