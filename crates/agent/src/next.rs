//! The function of a name that the program would have called without us.
//!
//! `dlsym(RTLD_NEXT)` would do, but is in a library of its own before glibc 2.34, may allocate, and may be interposed
//! itself; so the objects behind ours are searched here, by their own hash tables.

use core::ffi::{c_char, CStr};

use crate::libc;

/// What `dl_iterate_phdr` tells of an object.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    headers: *const Header,
    header_count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: usize,
    physical: u64,
    file_size: u64,
    size: usize,
    align: u64,
}

/// `Elf64_Dyn`.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

struct Search<'a> {
    name: &'a CStr,
    here: usize,
    is_behind: bool,
    found: usize,
}

/// The address of the function of this name in the objects behind ours.
pub fn function(name: &CStr) -> Option<usize> {
    type Visit = unsafe extern "C" fn(*const Object, usize, *mut Search) -> i32;
    type Iterate = unsafe extern "C" fn(Visit, *mut Search) -> i32;
    let mut search = Search {
        name,
        here: function as *const () as usize,
        is_behind: false,
        found: 0,
    };
    // SAFETY: the C library's signature.
    let iterate: Iterate = unsafe { core::mem::transmute(libc::dl_iterate_phdr()?) };
    // SAFETY: it calls `visit` with what is passed here.
    unsafe { iterate(visit, &raw mut search) };
    (search.found != 0).then_some(search.found)
}

/// # Safety
/// As `dl_iterate_phdr` calls it.
unsafe extern "C" fn visit(object: *const Object, _size: usize, search: *mut Search) -> i32 {
    // SAFETY: both are valid for the call.
    let (object, search) = unsafe { (&*object, &mut *search) };
    let mut dynamic = 0;
    let mut is_ours = false;
    for index in 0..usize::from(object.header_count) {
        const LOAD: u32 = 1;
        const DYNAMIC: u32 = 2;
        // SAFETY: so many headers there are.
        let header = unsafe { &*object.headers.add(index) };
        let start = object.base.wrapping_add(header.address);
        match header.kind {
            LOAD => is_ours |= search.here.wrapping_sub(start) < header.size,
            DYNAMIC => dynamic = start,
            _ => {}
        }
    }
    if is_ours {
        search.is_behind = true;
    } else if search.is_behind && dynamic != 0 {
        // SAFETY: the loader has mapped the object, and its tables say where they end.
        search.found = unsafe { find(object.base, dynamic as *const Entry, search.name) };
    }
    i32::from(search.found != 0)
}

/// # Safety
/// `dynamic` must be the dynamic section of the object at `base`.
unsafe fn find(base: usize, mut dynamic: *const Entry, name: &CStr) -> usize {
    let (mut hash, mut strings, mut symbols) = (0, 0, 0);
    loop {
        // SAFETY: a null tag ends the section.
        let entry = unsafe { &*dynamic };
        // glibc has relocated the addresses, musl has not.
        let address = if entry.value < base {
            base.wrapping_add(entry.value)
        } else {
            entry.value
        };
        match entry.tag {
            0 => break,
            5 => strings = address,
            6 => symbols = address,
            0x6fff_fef5 => hash = address,
            _ => {}
        }
        // SAFETY: as above.
        dynamic = unsafe { dynamic.add(1) };
    }
    if hash == 0 || strings == 0 || symbols == 0 {
        return 0;
    }
    let wanted = name.to_bytes().iter().fold(5381u32, |hash, &byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    });
    // SAFETY: the table begins with four words: buckets, first symbol, words of the filter, its shift.
    let word = |address: usize| unsafe { *(address as *const u32) };
    let (buckets, first, filter) = (word(hash), word(hash + 4), word(hash + 8));
    let bucket_at = hash + 16 + filter as usize * 8;
    let Some(bucket) = wanted.checked_rem(buckets) else {
        return 0;
    };
    let mut index = word(bucket_at + bucket as usize * 4);
    if index < first {
        return 0;
    }
    loop {
        let chained = word(bucket_at + buckets as usize * 4 + (index - first) as usize * 4);
        if chained | 1 == wanted | 1 {
            // SAFETY: the chain has as many entries as there are symbols from the first on.
            let symbol = unsafe { &*(symbols as *const Symbol).add(index as usize) };
            // SAFETY: names are strings of the object's table.
            let is_named = unsafe { CStr::from_ptr((strings + symbol.name as usize) as *const c_char) } == name;
            const FUNCTION: u8 = 2;
            if is_named && symbol.section != 0 && symbol.info & 0xf == FUNCTION {
                return base.wrapping_add(symbol.value);
            }
        }
        // The last of a chain has its lowest bit set.
        if chained & 1 != 0 {
            return 0;
        }
        index += 1;
    }
}
