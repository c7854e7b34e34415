//! The functions that stand in for the C library's, and what runs when the library is loaded and the process ends.

use std::ffi::{c_char, c_int, c_void};

use memomania_layout::environ::remove_from_list;
use memomania_layout::request::Request;
use memomania_layout::wire::VARIABLE;

use crate::sys::{self, Result};
use crate::{brk, mapping, report, world};

const FAILED: *mut c_void = libc::MAP_FAILED;

/// As the C library answers: the value, or `failed` with the error number set.
fn answer<T>(result: Result<usize>, value: impl Fn(usize) -> T, failed: T) -> T {
    match result {
        Ok(number) => value(number),
        Err(errno) => {
            sys::set_errno(errno.0);
            failed
        }
    }
}

fn pointer(result: Result<usize>) -> *mut c_void {
    answer(result, |address| address as *mut c_void, FAILED)
}

fn status(result: Result<usize>) -> c_int {
    answer(result, |_| 0, -1)
}

/// mmap(2)
///
/// # Safety
/// As mmap's.
#[no_mangle]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let request = Request {
        address: at as usize,
        length,
        protection: prot,
        flags,
        offset,
    };
    pointer(match world::ready() {
        true => mapping::mmap(&request, fd),
        false => sys::mmap(at as usize, length, prot, flags, fd, offset),
    })
}

/// mmap64: the same where offsets have 64 bits.
///
/// # Safety
/// As mmap's.
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    length: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the same function.
    unsafe { mmap(at, length, prot, flags, fd, offset) }
}

/// munmap(2)
///
/// # Safety
/// As munmap's.
#[no_mangle]
pub unsafe extern "C" fn munmap(at: *mut c_void, length: usize) -> c_int {
    status(match world::ready() {
        true => mapping::munmap(at as usize, length),
        false => sys::munmap(at as usize, length),
    })
}

/// mprotect(2)
///
/// # Safety
/// As mprotect's.
#[no_mangle]
pub unsafe extern "C" fn mprotect(at: *mut c_void, length: usize, prot: c_int) -> c_int {
    status(match world::ready() {
        true => mapping::mprotect(at as usize, length, prot),
        false => sys::mprotect(at as usize, length, prot),
    })
}

/// madvise(2)
///
/// # Safety
/// As madvise's.
#[no_mangle]
pub unsafe extern "C" fn madvise(at: *mut c_void, length: usize, advice: c_int) -> c_int {
    status(match world::ready() {
        true => mapping::madvise(at as usize, length, advice),
        false => sys::madvise(at as usize, length, advice),
    })
}

/// mremap(2). C's fifth argument is variable; a caller that passes four leaves anything there, and it is looked at only with MREMAP_FIXED
/// (or MREMAP_DONTUNMAP, as a hint), as the C library does.
///
/// # Safety
/// As mremap's.
#[no_mangle]
pub unsafe extern "C" fn mremap(at: *mut c_void, old: usize, new: usize, flags: c_int, to: *mut c_void) -> *mut c_void {
    let target = match flags & libc::MREMAP_FIXED {
        0 => 0,
        _ => to as usize,
    };
    pointer(match world::ready() {
        true => mapping::mremap(at as usize, old, new, flags, target),
        false => sys::mremap(at as usize, old, new, flags, target),
    })
}

/// brk(2)
///
/// # Safety
/// As brk's.
#[no_mangle]
pub unsafe extern "C" fn brk(at: *mut c_void) -> c_int {
    match world::ready() {
        true => status(brk::set(at as usize).map(|()| 0)),
        false => status(Err(sys::ENOMEM)),
    }
}

/// sbrk(2)
///
/// # Safety
/// As sbrk's.
#[no_mangle]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    match world::ready() {
        true => pointer(brk::shift(increment)),
        false => pointer(Err(sys::ENOMEM)),
    }
}

/// Runs when the loader has loaded everything, before main. Most of the time our functions were called before.
extern "C" fn loaded() {
    world::ready();
    if !world::lock().settings.inherit {
        forget();
    }
}

/// Runs after everything that the program registered for its end.
extern "C" fn ended() {
    report::write();
}

#[used]
#[link_section = ".init_array"]
static LOADED: extern "C" fn() = loaded;

#[used]
#[link_section = ".fini_array"]
static ENDED: extern "C" fn() = ended;

extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Takes ourselves out of the environment, so that programs which this one executes are not preloaded.
fn forget() {
    // SAFETY: before main there is one thread; the array and its strings are the loader's, end with NULL and NUL, and may be written to.
    unsafe {
        let mut from = environ;
        let mut to = environ;
        while !from.is_null() && !(*from).is_null() {
            let length = libc::strlen(*from);
            let entry = std::slice::from_raw_parts_mut((*from).cast::<u8>(), length);
            if keep(entry) {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        if !to.is_null() {
            *to = std::ptr::null_mut();
        }
    }
}

/// Whether an entry stays in the environment. LD_PRELOAD loses only ourselves; what it had after is filled with NULs.
fn keep(entry: &mut [u8]) -> bool {
    const LIST: &[u8] = b"LD_PRELOAD=";
    if entry
        .strip_prefix(VARIABLE.as_bytes())
        .is_some_and(|rest| rest.starts_with(b"="))
    {
        return false;
    }
    if !entry.starts_with(LIST) {
        return true;
    }
    let list = &mut entry[LIST.len()..];
    let length = remove_from_list(list, |path| path.ends_with(b"libmemomania.so"));
    list[length..].fill(0);
    length > 0
}
