//! Which program this is, and what earlier runs of it have shown.

use mega_range::density::Density;
use mega_range::profile::{self, MOST_BYTES};

use crate::text::Path;
use crate::{libc, sys};

const AT_PHDR: usize = 3;
const AT_PHENT: usize = 4;
const AT_PHNUM: usize = 5;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const READABLE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// More headers, or longer notes, has no program.
const MOST_HEADERS: usize = 64;
const MOST_NOTES: u64 = 4096;

/// A program header of 64 bits.
#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
    align: u64,
}

/// What the kernel told the program at its start, as the C library has it; 0: nothing.
pub fn auxiliary(kind: usize) -> usize {
    let Some(address) = libc::getauxval() else { return 0 };
    // SAFETY: the C library's signature.
    let of: extern "C" fn(usize) -> usize = unsafe { core::mem::transmute(address) };
    of(kind)
}

/// The same, as it lies behind the environment.
///
/// # Safety
/// The environment must be where the kernel has put it.
pub unsafe fn auxiliary_behind(environment: usize, kind: usize) -> usize {
    let mut at = environment as *const usize;
    // SAFETY: a null pointer ends the environment; pairs follow, up to one of kind 0.
    unsafe {
        while *at != 0 {
            at = at.add(1);
        }
        at = at.add(1);
        while *at != 0 && *at != kind {
            at = at.add(2);
        }
        if *at == 0 {
            0
        } else {
            *at.add(1)
        }
    }
}

/// The first eight bytes of the build ID of the program that runs; none: it has none.
pub fn key(of: impl Fn(usize) -> usize) -> Option<u64> {
    let (at, count) = (of(AT_PHDR), of(AT_PHNUM));
    if at == 0 || of(AT_PHENT) != size_of::<Header>() || count > MOST_HEADERS {
        return None;
    }
    // SAFETY: the kernel says where the headers of the program are, and how many; they stay mapped and nobody writes there.
    let headers = unsafe { core::slice::from_raw_parts(at as *const Header, count) };
    let own = headers.iter().find(|header| header.kind == PT_PHDR)?;
    let bias = (at as u64).wrapping_sub(own.address);
    let notes = headers.iter().filter(|header| header.kind == PT_NOTE);
    notes.filter(|notes| is_loaded(headers, notes)).find_map(|header| {
        let at = bias.wrapping_add(header.address) as *const u8;
        // SAFETY: they are within a part of the program that is mapped to be read.
        let notes = unsafe { core::slice::from_raw_parts(at, header.in_file as usize) };
        key_in(notes, if header.align == 8 { 8 } else { 4 })
    })
}

fn is_loaded(headers: &[Header], notes: &Header) -> bool {
    let end = notes.address.checked_add(notes.in_file);
    let holds = |load: &Header| {
        let load_end = load.address.checked_add(load.in_file);
        load.kind == PT_LOAD
            && load.flags & READABLE != 0
            && load.address <= notes.address
            && end.zip(load_end).is_some_and(|(end, load_end)| end <= load_end)
    };
    notes.in_file <= MOST_NOTES && headers.iter().any(holds)
}

/// The same of notes with this alignment.
fn key_in(mut notes: &[u8], align: usize) -> Option<u64> {
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| {
            let bytes = head.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let (name, id, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let id_at = name.checked_next_multiple_of(align)?;
        let id_of = rest.get(id_at..id_at.checked_add(id)?)?;
        if kind == NT_GNU_BUILD_ID && rest.get(..name)? == b"GNU\0" {
            return id_of.first_chunk().copied().map(u64::from_le_bytes);
        }
        notes = rest.get(id_at.checked_add(id.checked_next_multiple_of(align)?)?..)?;
    }
}

/// What the profile of the program in this folder says.
pub fn earlier(folder: &[u8], key: u64) -> Density {
    read(folder, key).unwrap_or_default()
}

fn read(folder: &[u8], key: u64) -> Option<Density> {
    let mut name = [0u8; 16];
    for (place, byte) in name.chunks_exact_mut(2).zip(key.to_le_bytes()) {
        place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    let path = Path::of(&[folder, b"/", &name])?;
    let fd = sys::open(path.bytes(), sys::O_RDONLY | sys::O_CLOEXEC | sys::O_NONBLOCK).ok()?;
    let mut file = [0; MOST_BYTES + 1];
    let read = sys::pread(fd, &mut file, 0);
    sys::close(fd);
    profile::density(read.ok()?)
}

fn digit(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'a' + value - 10,
    }
}

/// The name that the kernel has for the program, as two words.
pub fn name() -> [u64; 2] {
    let mut name = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes.
    let _ = unsafe { sys::prctl(sys::PR_GET_NAME, name.as_mut_ptr() as usize) };
    name
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn note(name: &[u8], id: &[u8], kind: u32, align: usize) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, id.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for part in [name, id] {
            note.extend(part);
            note.resize(12 + (note.len() - 12).next_multiple_of(align), 0);
        }
        note
    }

    #[test]
    fn the_key_is_the_first_eight_bytes_of_the_build_id_wherever_it_is_among_the_notes() {
        let id: Vec<u8> = (1..=20).collect();
        let key = Some(0x0807_0605_0403_0201);
        for align in [4, 8] {
            let own = note(b"GNU\0", &id, NT_GNU_BUILD_ID, align);
            let other = note(b"Linux\0", &[7; 5], NT_GNU_BUILD_ID, align);
            let tag = note(b"GNU\0", &[0; 16], 1, align);
            assert_eq!(key_in(&own, align), key);
            assert_eq!(key_in(&[&other[..], &tag, &own].concat(), align), key);
            assert_eq!(key_in(&[&other[..], &tag].concat(), align), None);
            for length in 0..own.len() - 12 {
                assert_eq!(key_in(&own[..length], align), None, "cut to {length}");
            }
        }
        assert_eq!(
            key_in(&note(b"GNU\0", &[1; 7], NT_GNU_BUILD_ID, 4), 4),
            None,
            "too short an ID"
        );
        assert_eq!(key_in(&[0xff; 64], 4), None);
    }
}
