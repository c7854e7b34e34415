//! A static program's own mappings: its system calls that map memory or move it come by the agent, so that it can advise what they map
//! before anybody touches it, and mend what it was about to advise while the program moved it.
//!
//! ```text
//!   program's text             a page of ours, within reach of it
//!   mov eax, 9   ── jmp ──►    mov eax, 9; syscall; mov ecx, 9; call the agent ─┐
//!   syscall                                                                     │
//!   …            ◄──────────────────────────────────────────────────────────────┘
//! ```
//!
//! The instruction alone that says which call it is gives way: who has the number from elsewhere makes the call as ever. Whoever reads the
//! text sees the jump: debuggers, and programs that check themselves.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::memmem;
use object::elf::PF_X;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, SegmentFlags};

/// mmap and mremap.
const CALLS: [u8; 2] = [9, 25];
/// `mov eax, …; syscall`.
const BYTES: usize = 7;
/// What it begins with, and what it ends with behind the call's number.
const BEGIN: u8 = 0xb8;
const END: [u8; 5] = [0, 0, 0, 0x0f, 0x05];
/// Behind a prefix like these it is another register.
const PREFIXES: std::ops::RangeInclusive<u8> = 0x40..=0x4f;
/// A C library has three to five, Go has one; more are something else.
const MOST_SITES: usize = 12;
/// More text than this nobody waits for.
const MOST_TEXT: u64 = 256 << 20;
/// It is read so much at a time.
const PIECE: usize = 1 << 20;
const MOST_HEADERS: usize = 4096;
/// The room of each: where it goes on in the page.
const ROOM: usize = 64;
/// A page has room for all.
pub const PAGE: u64 = 4096;
const _: () = assert!(ROOM * (MOST_SITES + 1) <= PAGE as usize);

/// Where a program's text makes such a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The instruction that gives way.
    pub address: u64,
    number: u8,
}

/// Where a program's text maps or moves memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// Where its text begins.
    pub start: u64,
    /// All of them.
    pub list: Vec<Site>,
}

impl Sites {
    /// Of a program whose first instruction the kernel has put at `entry`.
    ///
    /// # Errors
    /// The file cannot be read, or is no program.
    pub fn of(program: &File, entry: u64) -> io::Result<Self> {
        let mut head = vec![0; MOST_HEADERS];
        let read = program.read_at(&mut head, 0)?;
        head.truncate(read);
        // Without its sections, which lie at its end.
        if let Some(sections) = head.get_mut(0x28..0x30) {
            sections.fill(0);
        }
        if let Some(counts) = head.get_mut(0x3a..0x40) {
            counts.fill(0);
        }
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        let file = ElfFile64::<Endianness>::parse(head.as_slice()).map_err(invalid)?;
        let bias = entry.wrapping_sub(file.entry());
        let mut sites = Self::default();
        for segment in file.segments() {
            let SegmentFlags::Elf { p_flags } = segment.flags() else {
                continue;
            };
            let (offset, bytes) = segment.file_range();
            if p_flags & PF_X == 0 || bytes > MOST_TEXT {
                continue;
            }
            let address = segment.address().wrapping_add(bias);
            if sites.start == 0 {
                sites.start = address;
            }
            sites.search(program, offset, bytes, address)?;
        }
        Ok(sites)
    }

    /// Adds those of this part of the file, which lies at this address.
    fn search(&mut self, program: &File, offset: u64, bytes: u64, address: u64) -> io::Result<()> {
        let mut piece = vec![0; PIECE.min(bytes as usize)];
        let mut at = 0;
        while at < bytes {
            let length = piece.len().min((bytes - at) as usize);
            let piece = piece.get_mut(..length).unwrap_or_default();
            program.read_exact_at(piece, offset.saturating_add(at))?;
            // The first of a later piece was in the one before, with what is before it.
            for (found, number) in found(piece).filter(|(found, _)| *found > 0 || at == 0) {
                let address = address.wrapping_add(at + found as u64);
                let site = Site { address, number };
                if self.list.last() != Some(&site) {
                    self.list.push(site);
                }
            }
            if self.list.len() > MOST_SITES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if at + length as u64 == bytes {
                break;
            }
            at += (length - BYTES - 1) as u64;
        }
        Ok(())
    }
}

/// `mov eax, number; syscall`.
fn call(number: u8) -> [u8; BYTES] {
    let [a, b, c, d, e] = END;
    [BEGIN, number, a, b, c, d, e]
}

/// Where in a text such calls are made, and their numbers.
fn found(text: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    memmem::find_iter(text, &END).filter_map(|end| {
        let at = end.checked_sub(2)?;
        let number = *text.get(at + 1)?;
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        let is_call = text.get(at) == Some(&BEGIN) && CALLS.contains(&number);
        (is_call && !before.is_some_and(|before| PREFIXES.contains(before))).then_some((at, number))
    })
}

/// Whether these bytes, of a program that has not begun, are what was found in its file.
pub fn is_call(word: u64, site: Site) -> bool {
    word.to_le_bytes().starts_with(&call(site.number))
}

/// The same bytes with a jump from `site` in place of the instruction; none where that is out of reach.
pub fn jump(word: u64, site: u64, to: u64) -> Option<u64> {
    let mut bytes = word.to_le_bytes();
    bytes[0] = 0xe9;
    bytes[1..5].copy_from_slice(&distance(site + 5, to)?.to_le_bytes());
    Some(u64::from_le_bytes(bytes))
}

/// What a jump whose next instruction is at `from` is told.
fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

/// The page at `base`, by which the sites go to the agent's `called`, and where in it each goes on; none where it is out of reach.
pub fn page(base: u64, sites: &[Site], called: u64) -> Option<(Vec<u8>, Vec<u64>)> {
    let mut page = called.to_le_bytes().to_vec();
    let mut places = Vec::new();
    for site in sites {
        page.resize((places.len() + 1) * ROOM, 0xcc);
        let place = base + page.len() as u64;
        places.push(place);
        page.extend(call(site.number));
        // mov ecx, number: the call has spoiled it.
        page.extend([0xb9, site.number, 0, 0, 0]);
        // lea rsp, [rsp - 128]: compilers keep values there.
        page.extend([0x48, 0x8d, 0x64, 0x24, 0x80]);
        // call [rip + …]
        page.extend([0xff, 0x15]);
        page.extend(distance(base + page.len() as u64 + 4, base)?.to_le_bytes());
        // lea rsp, [rsp + 128]
        page.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        // jmp behind the call
        page.push(0xe9);
        page.extend(distance(base + page.len() as u64 + 4, site.address + BYTES as u64)?.to_le_bytes());
    }
    Some((page, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_whose_number_is_of_its_own_register() {
        let (map, remap, unmap) = (call(9), call(25), call(11));
        let text = [&[0x90][..], &map, &[0x41], &map, &[0xc3], &remap, &unmap].concat();
        assert_eq!(found(&text).collect::<Vec<_>>(), [(1, 9), (17, 25)]);
        assert_eq!(found(&map[..6]).count() + found(&map[1..]).count(), 0);
        assert_eq!(found(&map).collect::<Vec<_>>(), [(0, 9)]);
    }

    #[test]
    fn the_jump_goes_to_the_page_and_back_behind_the_call() {
        let (base, site) = (0x3f_0000, 0x40_0123);
        let of = |number| Site { address: site, number };
        let (page, places) = page(base, &[of(25)], 0x7f00_0000_1234).unwrap();
        assert_eq!(places, [base + 64]);
        assert_eq!(page[64..76], [&call(25)[..], &[0xb9, 25, 0, 0, 0]].concat());
        let word = u64::from_le_bytes([0xb8, 9, 0, 0, 0, 0x0f, 0x05, 0x77]);
        assert!(is_call(word, of(9)) && !is_call(word, of(25)) && !is_call(word + 1, of(9)));
        let jumped = jump(word, site, places[0]).unwrap().to_le_bytes();
        let to = i32::from_le_bytes(jumped[1..5].try_into().unwrap());
        assert_eq!(
            (jumped[0], site + 5, &jumped[5..]),
            (0xe9, site + 5, &[0x0f, 0x05, 0x77][..])
        );
        assert_eq!((site + 5).wrapping_add_signed(to.into()), places[0]);
        let last = page.len() - 4;
        let back = i32::from_le_bytes(page[last..].try_into().unwrap());
        assert_eq!((base + page.len() as u64).wrapping_add_signed(back.into()), site + 7);
        assert_eq!(page[..8], 0x7f00_0000_1234u64.to_le_bytes());
        assert!(jump(word, site, site + (3 << 30)).is_none());
    }

    #[test]
    fn calls_are_found_wherever_the_text_is_cut() {
        let file = tempfile::tempfile().unwrap();
        let bytes = 3 * PIECE;
        let across = (0..18).map(|back| (1 + back % 2) * (PIECE - BYTES - 1) + BYTES + 1 - back);
        for at in across.chain([0, bytes - BYTES]) {
            let mut text = vec![0x90; bytes];
            text[at..at + BYTES].copy_from_slice(&call(9));
            for (prefix, expected) in [(0x90, 1), (0x41, usize::from(at == 0))] {
                if at > 0 {
                    text[at - 1] = prefix;
                }
                file.write_all_at(&text, 64).unwrap();
                let mut sites = Sites::default();
                sites.search(&file, 64, bytes as u64, 0x40_0000).unwrap();
                assert_eq!(sites.list.len(), expected, "{at}, {prefix:x}");
                assert!(sites.list.iter().all(|site| site.address == 0x40_0000 + at as u64));
            }
        }
    }

    #[test]
    fn what_is_no_program_has_no_sites() {
        let folder = tempfile::tempdir().unwrap();
        for content in [&b""[..], b"\x7fELF", &[0x7f; 5000]] {
            let path = folder.path().join("program");
            std::fs::write(&path, content).unwrap();
            assert!(Sites::of(&File::open(&path).unwrap(), 0).is_err());
        }
        // This one is dynamic, and makes its calls by the C library.
        let program = File::open("/proc/self/exe").unwrap();
        assert!(Sites::of(&program, 0x1000).unwrap().start > 0);
    }
}
