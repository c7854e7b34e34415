//! libmega_agent.so as it lies in memory: what the loader would make of it, for a program that has no loader.

use object::elf::{PF_R, PF_W, PF_X, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationFlags, SegmentFlags};

/// The function that begins in a program without a loader.
const BEGIN: &str = "mega_agent_begin";
/// More memory than this is no agent.
const MOST_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;

/// Why a file cannot be laid into memory.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is no ELF file.
    #[error("it is no library of this machine ({0})")]
    Unreadable(#[from] object::Error),
    /// Something is not as in the agent.
    #[error("it is no agent: {0}")]
    Other(&'static str),
}

const NEEDS_LOADER: ImageError =
    ImageError::Other("it needs a C library (cargo build --profile agent builds it without)");

/// Pages that get the same protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From the image's begin.
    pub start: u64,
    /// In bytes: whole pages.
    pub bytes: u64,
    /// As in mmap(2).
    pub protection: u32,
}

/// The library for one place in memory.
#[derive(Debug)]
pub struct Image<'a> {
    file: ElfFile64<'a, Endianness>,
    /// Memory that it needs, in whole pages.
    pub bytes: u64,
    /// Where it begins to run, from the image's begin.
    pub begin: u64,
    /// What is protected how.
    pub parts: Vec<Part>,
}

impl<'a> Image<'a> {
    /// Of this file.
    ///
    /// # Errors
    /// It is not the agent.
    pub fn of(file: &'a [u8]) -> Result<Self, ImageError> {
        let file = ElfFile64::<Endianness>::parse(file)?;
        let begin = file
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(BEGIN) && symbol.is_definition())
            .ok_or(ImageError::Other("it cannot begin without a loader"))?
            .address();
        let mut parts: Vec<Part> = Vec::new();
        let mut end = 0;
        for segment in file.segments() {
            let SegmentFlags::Elf { p_flags } = segment.flags() else {
                continue;
            };
            let start = segment.address() / PAGE * PAGE;
            let last = segment
                .address()
                .checked_add(segment.size())
                .map(|end| end.next_multiple_of(PAGE));
            let last = last
                .filter(|last| *last <= MOST_BYTES)
                .ok_or(ImageError::Other("it is too large"))?;
            let protection = [
                (PF_R, libc::PROT_READ),
                (PF_W, libc::PROT_WRITE),
                (PF_X, libc::PROT_EXEC),
            ];
            let protection = protection.into_iter().filter(|(flag, _)| p_flags & flag != 0);
            let protection = protection.fold(0, |all, (_, one)| all | one as u32);
            // Segments may share a page: the later one's protection holds, as the loader has it.
            parts.push(Part {
                start,
                bytes: last - start,
                protection,
            });
            end = end.max(last);
        }
        if begin == 0 || begin >= end {
            return Err(ImageError::Other("it begins nowhere"));
        }
        Ok(Self {
            file,
            bytes: end,
            begin,
            parts,
        })
    }

    /// Its content for this address.
    ///
    /// # Errors
    /// It needs a loader.
    pub fn at(&self, base: u64) -> Result<Vec<u8>, ImageError> {
        let mut content = vec![0; self.bytes as usize];
        for segment in self.file.segments() {
            let data = segment.data()?;
            let place = place(&mut content, segment.address(), data.len())?;
            place.copy_from_slice(data);
        }
        for (address, relocation) in self.file.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            let symbol = match relocation.target() {
                object::RelocationTarget::Symbol(index) => Some(
                    self.file
                        .dynamic_symbol_table()
                        .ok_or(ImageError::Other("it has no symbols"))?
                        .symbol_by_index(index)?,
                ),
                _ => None,
            };
            if symbol
                .as_ref()
                .is_some_and(|symbol| symbol.is_undefined() && !symbol.is_weak())
            {
                return Err(NEEDS_LOADER);
            }
            // What only a C library has is missing.
            let of_symbol = symbol
                .filter(ObjectSymbol::is_definition)
                .map(|symbol| base.wrapping_add(symbol.address()));
            let value = match r_type {
                R_X86_64_RELATIVE => base.wrapping_add_signed(relocation.addend()),
                R_X86_64_64 => of_symbol.map_or(0, |value| value.wrapping_add_signed(relocation.addend())),
                R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => of_symbol.unwrap_or(0),
                _ => return Err(NEEDS_LOADER),
            };
            place(&mut content, address, 8)?.copy_from_slice(&value.to_le_bytes());
        }
        Ok(content)
    }
}

fn place(content: &mut [u8], address: u64, length: usize) -> Result<&mut [u8], ImageError> {
    let start = usize::try_from(address).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(length)?));
    range
        .and_then(|range| content.get_mut(range))
        .ok_or(ImageError::Other("a part of it lies outside"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};

    #[test]
    fn what_is_no_agent_is_refused() {
        let why = |file: &[u8]| Image::of(file).map(|_| ()).unwrap_err().to_string();
        assert!(why(b"").starts_with("it is no library"));
        assert!(why(&[0x7f; 4096]).starts_with("it is no library"));
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(why(&program), "it is no agent: it cannot begin without a loader");
    }

    #[test]
    fn a_damaged_file_is_refused_or_laid_out_within_its_bounds() {
        let name = BEGIN.as_bytes();
        let mut library = std::fs::read("/proc/self/exe").unwrap();
        library.truncate(1 << 20);
        let mut random = rand_pcg::Pcg64::seed_from_u64(7);
        for _ in 0..2000 {
            let mut file = library.clone();
            for _ in 0..1 + random.next_u32() % 64 {
                let at = random.next_u32() as usize % 8192;
                file[at] = random.next_u32() as u8;
            }
            let at = random.next_u32() as usize % (file.len() - name.len());
            file[at..at + name.len()].copy_from_slice(name);
            file.truncate(random.next_u32() as usize % library.len());
            if let Ok(image) = Image::of(&file) {
                assert!(image.bytes <= MOST_BYTES && image.begin < image.bytes);
                let _ = image.at(0x7f00_0000_0000);
            }
        }
    }
}
