//! A static program's own mappings: its system calls that map memory come by the agent, so that it can advise what they map before anybody
//! touches it.
//!
//! ```text
//!   program's text             a page of ours, within reach of it
//!   mov eax, 9   ── jmp ──►    mov eax, 9; syscall; call the agent ─┐
//!   syscall                                                         │
//!   …            ◄──────────────────────────────────────────────────┘
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

/// `mov eax, 9; syscall`: mmap.
const MAPS: [u8; 7] = [0xb8, 9, 0, 0, 0, 0x0f, 0x05];
/// Behind a prefix like these it is another register.
const PREFIXES: std::ops::RangeInclusive<u8> = 0x40..=0x4f;
/// A C library has two or three, Go has one; more are something else.
const MOST_SITES: usize = 8;
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

/// Where a program's text maps memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// Where its text begins.
    pub start: u64,
    /// Addresses of the instruction that gives way.
    pub list: Vec<u64>,
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
            for found in found(piece).filter(|found| *found > 0 || at == 0) {
                let found = address.wrapping_add(at + found as u64);
                if self.list.last() != Some(&found) {
                    self.list.push(found);
                }
            }
            if self.list.len() > MOST_SITES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if at + length as u64 == bytes {
                break;
            }
            at += (length - MAPS.len() - 1) as u64;
        }
        Ok(())
    }
}

/// Where in a text the call is made.
fn found(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    memmem::find_iter(text, &MAPS).filter(|at| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !before.is_some_and(|before| PREFIXES.contains(before))
    })
}

/// Whether these bytes, of a program that has not begun, are what was found in its file.
pub fn is_call(word: u64) -> bool {
    word.to_le_bytes().starts_with(&MAPS)
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

/// The page at `base`, by which the sites go to the agent's `mapped`, and where in it each goes on; none where it is out of reach.
pub fn page(base: u64, sites: &[u64], mapped: u64) -> Option<(Vec<u8>, Vec<u64>)> {
    let mut page = mapped.to_le_bytes().to_vec();
    let mut places = Vec::new();
    for site in sites {
        page.resize((places.len() + 1) * ROOM, 0xcc);
        let place = base + page.len() as u64;
        places.push(place);
        page.extend(MAPS);
        // lea rsp, [rsp - 128]: compilers keep values there.
        page.extend([0x48, 0x8d, 0x64, 0x24, 0x80]);
        // call [rip + …]
        page.extend([0xff, 0x15]);
        page.extend(distance(base + page.len() as u64 + 4, base)?.to_le_bytes());
        // lea rsp, [rsp + 128]
        page.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        // jmp behind the call
        page.push(0xe9);
        page.extend(distance(base + page.len() as u64 + 4, site + MAPS.len() as u64)?.to_le_bytes());
    }
    Some((page, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_whose_number_is_of_its_own_register() {
        let text = [&[0x90][..], &MAPS, &[0x41], &MAPS, &[0xc3], &MAPS].concat();
        assert_eq!(found(&text).collect::<Vec<_>>(), [1, 17]);
        assert_eq!(found(&MAPS[..6]).count(), 0);
        assert_eq!(found(&MAPS).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn the_jump_goes_to_the_page_and_back_behind_the_call() {
        let (base, site) = (0x3f_0000, 0x40_0123);
        let (page, places) = page(base, &[site], 0x7f00_0000_1234).unwrap();
        assert_eq!(places, [base + 64]);
        let word = u64::from_le_bytes([0xb8, 9, 0, 0, 0, 0x0f, 0x05, 0x77]);
        assert!(is_call(word) && !is_call(word + 1));
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
        let across = (0..18).map(|back| (1 + back % 2) * (PIECE - MAPS.len() - 1) + MAPS.len() + 1 - back);
        for at in across.chain([0, bytes - MAPS.len()]) {
            let mut text = vec![0x90; bytes];
            text[at..at + MAPS.len()].copy_from_slice(&MAPS);
            for (prefix, expected) in [(0x90, 1), (0x41, usize::from(at == 0))] {
                if at > 0 {
                    text[at - 1] = prefix;
                }
                file.write_all_at(&text, 64).unwrap();
                let mut sites = Sites::default();
                sites.search(&file, 64, bytes as u64, 0x40_0000).unwrap();
                assert_eq!(sites.list.len(), expected, "{at}, {prefix:x}");
                assert!(sites.list.iter().all(|site| *site == 0x40_0000 + at as u64));
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
