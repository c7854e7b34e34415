//! A helper that is a thread of the program: of one that has threads anyway.
//!
//! It is made by the program's own `pthread_create`, so that the C library knows it: what changes the user of all threads
//! changes this one's. All signals but the C library's own are blocked in it, and it has a table of descriptors of its
//! own, so that the program may close whatever it likes.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use mega_range::page::{Field, Reason};

use super::{process, say, Why};
use crate::{libc, next, settings, status, sys, tick};

type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut usize, *const c_void, Start, *mut c_void) -> c_int;

/// The C library's function; nothing before the first call.
static CREATE: AtomicUsize = AtomicUsize::new(0);
/// Whether the constructor lets a helper start.
static IS_ALLOWED: AtomicU32 = AtomicU32::new(0);
/// Whether the thread was started.
static IS_STARTED: AtomicU32 = AtomicU32::new(0);
/// The thread sleeps on it.
static WORD: AtomicU32 = AtomicU32::new(0);

/// From now on a thread may be started.
pub fn allow() {
    IS_ALLOWED.store(1, Ordering::Release);
}

/// After a fork: the thread is the parent's.
pub fn forget() {
    IS_STARTED.store(0, Ordering::Relaxed);
}

/// Whether a thread helps, or is about to.
pub fn is_started() -> bool {
    IS_STARTED.load(Ordering::Acquire) != 0
}

/// Creates the program's thread, and with its first one ours.
///
/// # Safety
/// As the C library's function of this name.
#[no_mangle]
pub unsafe extern "C" fn pthread_create(
    thread: *mut usize,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    const EAGAIN: c_int = 11;
    let mut address = CREATE.load(Ordering::Relaxed);
    if address == 0 {
        address = next::function(c"pthread_create").unwrap_or(0);
        CREATE.store(address, Ordering::Relaxed);
    }
    if address == 0 {
        return EAGAIN;
    }
    // SAFETY: the C library's signature.
    let create: Create = unsafe { core::mem::transmute(address) };
    // SAFETY: the caller's.
    let answer = unsafe { create(thread, attributes, start, argument) };
    if answer == 0 && IS_ALLOWED.load(Ordering::Acquire) != 0 && IS_STARTED.swap(1, Ordering::AcqRel) == 0 {
        begin(create);
    }
    answer
}

/// Starts our thread.
fn begin(create: Create) {
    type Set = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
    type Init = unsafe extern "C" fn(*mut c_void) -> c_int;
    let symbols = (
        libc::pthread_attr_init(),
        libc::pthread_attr_setdetachstate(),
        libc::pthread_attr_setstacksize(),
    );
    let (Some(init), Some(detach), Some(size)) = symbols else {
        return;
    };
    // SAFETY: POSIX' signatures; the second argument is an int or a size, which a register holds either way.
    let (init, detach, size) = unsafe {
        (
            core::mem::transmute::<usize, Init>(init),
            core::mem::transmute::<usize, Set>(detach),
            core::mem::transmute::<usize, Set>(size),
        )
    };
    // More than any C library's attributes have.
    let mut attributes = [0u64; 16];
    let attributes = attributes.as_mut_ptr().cast::<c_void>();
    let mut thread = 0;
    const DETACHED: usize = 1;
    // SAFETY: attributes of enough room.
    if unsafe { init(attributes) } != 0 || unsafe { detach(attributes, DETACHED) } != 0 {
        return;
    }
    // The C library's own signals go through: they make a change of user reach all threads.
    const ITS_OWN: u64 = 0b111 << 31;
    let blocked = sys::block_signals(!ITS_OWN);
    // Of a program with many thread-locals the smallest stack has no room for them.
    for bytes in [64 << 10, 1 << 20, 8 << 20] {
        // SAFETY: as the C library's.
        let made = unsafe {
            size(attributes, bytes) == 0 && create(&raw mut thread, attributes, main, core::ptr::null_mut()) == 0
        };
        if made {
            break;
        }
    }
    sys::block_signals(blocked);
}

unsafe extern "C" fn main(_: *mut c_void) -> *mut c_void {
    // The process shares what this thread works with.
    process::end();
    say(Why::Reason(helper()));
    core::ptr::null_mut()
}

fn helper() -> Reason {
    if sys::close_all().is_err() {
        return Reason::NotConfined;
    }
    // SAFETY: changes this thread alone.
    unsafe {
        let _ = sys::prctl(sys::PR_SET_NAME, c"mega-agent".as_ptr() as usize);
        let _ = sys::prctl(sys::PR_SET_TIMERSLACK, 1);
    }
    sys::run_in_short_slices();
    let settings = settings::settings();
    let program = sys::getpid();
    status::to_file(settings.status(), program);
    status::set(Field::Helper, 2);
    status::set(Field::Reason, 0);
    // SAFETY: the process has left; this is the one helper.
    unsafe {
        let ready = match tick::open(settings, program) {
            Ok(ready) => ready,
            Err(reason) => return reason,
        };
        tick::run(&ready, |pause| {
            sys::futex_wait(WORD.as_ptr() as usize, 0, pause);
            Ok(())
        })
    }
}
