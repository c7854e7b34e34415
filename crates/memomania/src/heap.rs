//! The malloc family: mimalloc, over the heap's pool.
//!
//! mimalloc is given the pool as one arena that is not committed. It commits parts of it by mprotect, which is ours, and finds the pool
//! ([`crate::pool::Pool::protect`]). What mimalloc does otherwise than glibc, and programs may depend on, is done here as glibc does it:
//! every block is aligned to 16 bytes, `realloc(p, 0)` frees, errno says ENOMEM on failure and is left alone by free.

use std::ffi::{c_int, c_long, c_void};

// Links the allocator in; its functions are declared here, as its header has them.
use libmimalloc_sys as _;
use memomania_layout::page::BASE;

use crate::{sys, world};

extern "C" {
    fn mi_malloc(bytes: usize) -> *mut c_void;
    fn mi_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn mi_realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    fn mi_free(block: *mut c_void);
    fn mi_malloc_aligned(bytes: usize, alignment: usize) -> *mut c_void;
    fn mi_usable_size(block: *const c_void) -> usize;
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_manage_os_memory_ex(
        start: *mut c_void,
        bytes: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        arena: *mut c_int,
    ) -> bool;
}

/// Whole segments of 32 MB are committed at once.
const OPTION_EAGER_COMMIT: c_int = 3;
/// Time after which unused memory goes back, in ms; negative for never.
const OPTION_PURGE_DELAY: c_int = 15;
/// Memory comes from arenas only.
const OPTION_LIMIT_OS_ALLOC: c_int = 17;

/// Gives mimalloc its memory.
pub fn start(address: usize, bytes: usize, has_hugetlb: bool, is_strict: bool) {
    let mut arena = 0;
    // SAFETY: the options exist; the memory is reserved for this alone and never given back.
    unsafe {
        if has_hugetlb {
            // Parts of hugetlb pages cannot go back: it would cost clearing them, for nothing.
            mi_option_set(OPTION_PURGE_DELAY, -1);
            // Nor are they taken before they are needed.
            mi_option_set(OPTION_EAGER_COMMIT, 0);
        }
        if bytes > 0 {
            mi_manage_os_memory_ex(address as *mut c_void, bytes, false, false, true, -1, false, &mut arena);
            if is_strict {
                mi_option_set(OPTION_LIMIT_OS_ALLOC, 1);
            }
        }
    }
}

fn checked(block: *mut c_void) -> *mut c_void {
    if block.is_null() {
        sys::set_errno(libc::ENOMEM);
    }
    block
}

/// mimalloc aligns blocks of up to 8 bytes to 8; the next size is aligned to 16, as all blocks of glibc are.
fn size(bytes: usize) -> usize {
    bytes.max(9)
}

/// malloc(3)
///
/// # Safety
/// As malloc's.
#[no_mangle]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match world::ready() {
        // SAFETY: takes a number.
        true => checked(unsafe { mi_malloc(size(bytes)) }),
        false => checked(std::ptr::null_mut()),
    }
}

/// free(3)
///
/// # Safety
/// As free's.
#[no_mangle]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    let errno = sys::errno();
    // SAFETY: the program says that the block is from this family.
    unsafe { mi_free(block) };
    sys::set_errno(errno);
}

/// calloc(3)
///
/// # Safety
/// As calloc's.
#[no_mangle]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match (count.checked_mul(bytes), world::ready()) {
        // SAFETY: takes numbers.
        (Some(all), true) => checked(unsafe { mi_calloc(1, size(all)) }),
        _ => checked(std::ptr::null_mut()),
    }
}

/// realloc(3). A size of 0 frees, as in glibc.
///
/// # Safety
/// As realloc's.
#[no_mangle]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes == 0 && !block.is_null() {
        // SAFETY: as the caller says.
        unsafe { free(block) };
        return std::ptr::null_mut();
    }
    match world::ready() {
        // SAFETY: the program says that the block is from this family, or NULL.
        true => checked(unsafe { mi_realloc(block, size(bytes)) }),
        false => checked(std::ptr::null_mut()),
    }
}

/// reallocarray(3)
///
/// # Safety
/// As reallocarray's.
#[no_mangle]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: as the caller says.
        Some(all) => unsafe { realloc(block, all) },
        None => checked(std::ptr::null_mut()),
    }
}

/// A block at a multiple of a power of two; NULL without an error number if there is none.
fn aligned(alignment: usize, bytes: usize) -> *mut c_void {
    // More than that fails in the same way, but slower.
    if bytes > isize::MAX as usize || alignment > isize::MAX as usize - bytes || !world::ready() {
        return std::ptr::null_mut();
    }
    // SAFETY: takes numbers; the alignment is a power of two.
    unsafe { mi_malloc_aligned(size(bytes), alignment.max(16)) }
}

/// memalign(3). An alignment that is no power of two is rounded up to one, as in glibc.
///
/// # Safety
/// As memalign's.
#[no_mangle]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    match alignment.max(1).checked_next_power_of_two() {
        Some(alignment) => checked(aligned(alignment, bytes)),
        None => {
            sys::set_errno(libc::EINVAL);
            std::ptr::null_mut()
        }
    }
}

/// aligned_alloc(3)
///
/// # Safety
/// As aligned_alloc's.
#[no_mangle]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: as the caller says. glibc before 2.38 has one function for both.
    unsafe { memalign(alignment, bytes) }
}

/// posix_memalign(3)
///
/// # Safety
/// As posix_memalign's.
#[no_mangle]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    if !alignment.is_power_of_two() || alignment % size_of::<*mut c_void>() != 0 {
        return libc::EINVAL;
    }
    let memory = aligned(alignment, bytes);
    if memory.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the program says that a pointer can be written there.
    unsafe { *block = memory };
    0
}

/// valloc(3)
///
/// # Safety
/// As valloc's.
#[no_mangle]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    checked(aligned(BASE, bytes))
}

/// pvalloc(3): whole pages.
///
/// # Safety
/// As pvalloc's.
#[no_mangle]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(BASE) {
        Some(bytes) => checked(aligned(BASE, bytes)),
        None => checked(std::ptr::null_mut()),
    }
}

/// free_sized of C23
///
/// # Safety
/// As free_sized's.
#[no_mangle]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { free(block) }
}

/// free_aligned_sized of C23
///
/// # Safety
/// As free_aligned_sized's.
#[no_mangle]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _alignment: usize, _bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { free(block) }
}

/// malloc_usable_size(3)
///
/// # Safety
/// As malloc_usable_size's.
#[no_mangle]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the program says that the block is from this family.
    unsafe { mi_usable_size(block) }
}
