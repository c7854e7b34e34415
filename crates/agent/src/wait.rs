//! `wait4`, `waitpid` and `waitid` of a program that waits for clones, too: a tracer, which ends when it has no children
//! left. The helper's process would be one, and stays as long as the program: it leaves first.

use core::sync::atomic::{AtomicUsize, Ordering};

use mega_range::page::Reason;

use crate::{helper, libc, next, sys};

/// `__WALL` and `__WCLONE`.
const CLONES: i32 = 0x4000_0000 | i32::MIN;
const FAILED: i32 = -1;

/// The C library's functions, or those of another library that the program has preloaded.
static WAIT4: AtomicUsize = AtomicUsize::new(0);
static WAITPID: AtomicUsize = AtomicUsize::new(0);
static WAITID: AtomicUsize = AtomicUsize::new(0);

/// Looks up whose functions the program would have called.
pub fn begin() {
    WAIT4.store(next::function(c"wait4").unwrap_or(0), Ordering::Relaxed);
    WAITPID.store(next::function(c"waitpid").unwrap_or(0), Ordering::Relaxed);
    WAITID.store(next::function(c"waitid").unwrap_or(0), Ordering::Relaxed);
}

fn make_way(options: i32) {
    if options & CLONES != 0 {
        helper::leave_for(Reason::WaitsForClones);
    }
}

/// Waits as the C library's function of this name.
///
/// # Safety
/// As the C library's function of this name.
#[no_mangle]
pub unsafe extern "C" fn wait4(pid: i32, status: usize, options: i32, usage: usize) -> i32 {
    make_way(options);
    let next = WAIT4.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: the C library's signature.
        let next: unsafe extern "C" fn(i32, usize, i32, usize) -> i32 = unsafe { core::mem::transmute(next) };
        // SAFETY: the caller's.
        return unsafe { next(pid, status, options, usage) };
    }
    let arguments = [pid as usize, status, options as usize, usage, 0, 0];
    // SAFETY: the caller's.
    answer(unsafe { sys::call(sys::number::WAIT4, arguments) })
}

/// Waits as the C library's function of this name.
///
/// # Safety
/// As the C library's function of this name.
#[no_mangle]
pub unsafe extern "C" fn waitpid(pid: i32, status: usize, options: i32) -> i32 {
    make_way(options);
    let next = WAITPID.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: the C library's signature. Not by `wait4`, which a thread may not be cancelled in.
        let next: unsafe extern "C" fn(i32, usize, i32) -> i32 = unsafe { core::mem::transmute(next) };
        // SAFETY: the caller's.
        return unsafe { next(pid, status, options) };
    }
    // SAFETY: the caller's.
    unsafe { wait4(pid, status, options, 0) }
}

/// Waits as the C library's function of this name.
///
/// # Safety
/// As the C library's function of this name.
#[no_mangle]
pub unsafe extern "C" fn waitid(kind: i32, id: u32, information: usize, options: i32) -> i32 {
    make_way(options);
    let next = WAITID.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: the C library's signature.
        let next: unsafe extern "C" fn(i32, u32, usize, i32) -> i32 = unsafe { core::mem::transmute(next) };
        // SAFETY: the caller's.
        return unsafe { next(kind, id, information, options) };
    }
    let arguments = [kind as usize, id as usize, information, options as usize, 0, 0];
    // SAFETY: the caller's.
    answer(unsafe { sys::call(sys::number::WAITID, arguments) })
}

fn answer(answer: sys::Result<usize>) -> i32 {
    answer.map_or_else(
        |error| {
            libc::set_errno(error.0);
            FAILED
        },
        |answer| answer as i32,
    )
}
