//! Whether a program can be preloaded at all: what its first bytes say.

use std::fmt;

/// Bytes of the file that [`inspect`] should be given, or all if there are fewer.
pub const HEAD: usize = 64 << 10;

/// What a file is to the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program<'a> {
    /// Loaded by this dynamic loader, which obeys LD_PRELOAD.
    Dynamic {
        /// The loader's path.
        loader: &'a [u8],
    },
    /// A script: what counts is its interpreter.
    Script {
        /// The interpreter's path.
        interpreter: &'a [u8],
    },
    /// Cannot be preloaded.
    Impossible(Obstacle),
    /// Nothing that is known; the kernel decides.
    Unknown,
}

/// Why a program cannot be preloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no loader that could preload anything.
    Static,
    /// Of another machine type or word size than the library.
    Architecture,
    /// Made for another C library than glibc.
    Libc,
    /// Its headers make no sense.
    Broken,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "it is statically linked, and nothing can be preloaded",
            Self::Architecture => "it is of another architecture than the library",
            Self::Libc => "it is not made for glibc, and the library is",
            Self::Broken => "its ELF headers make no sense",
        })
    }
}

const PT_INTERP: u32 = 3;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;

const OWN_MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    EM_AARCH64
} else {
    EM_X86_64
};

/// Looks at the beginning of a file.
pub fn inspect(head: &[u8]) -> Program<'_> {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|b| *b == b'\n').next().unwrap_or(line).trim_ascii();
        let interpreter = line.split(|b| *b == b' ' || *b == b'\t').next().unwrap_or(line);
        return match interpreter.is_empty() {
            true => Program::Unknown,
            false => Program::Script { interpreter },
        };
    }
    if !head.starts_with(b"\x7fELF") {
        return Program::Unknown;
    }
    elf(head).unwrap_or(Program::Impossible(Obstacle::Broken))
}

fn elf(head: &[u8]) -> Option<Program<'_>> {
    let (class, order) = (*head.get(4)?, *head.get(5)?);
    // 64 bits, little endian: where the library is compiled for, everything has that.
    if (class, order) != (2, 1) || half(head, 18)? != OWN_MACHINE {
        return Some(Program::Impossible(Obstacle::Architecture));
    }
    let table = usize::try_from(long(head, 32)?).ok()?;
    let (size, count) = (usize::from(half(head, 54)?), usize::from(half(head, 56)?));
    if size < 56 {
        return None;
    }
    for index in 0..count {
        let at = table.checked_add(index * size)?;
        if word(head, at)? != PT_INTERP {
            continue;
        }
        let start = usize::try_from(long(head, at + 8)?).ok()?;
        let length = usize::try_from(long(head, at + 32)?).ok()?;
        let path = head.get(start..start.checked_add(length)?)?;
        let loader = path.split(|b| *b == 0).next()?;
        let is_musl = loader.windows(7).any(|part| part == b"ld-musl");
        return Some(match is_musl {
            true => Program::Impossible(Obstacle::Libc),
            false => Program::Dynamic { loader },
        });
    }
    // Position-independent static programs and the loader itself have a dynamic section and no loader.
    Some(Program::Impossible(Obstacle::Static))
}

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn half(head: &[u8], at: usize) -> Option<u16> {
    bytes(head, at).map(u16::from_le_bytes)
}

fn word(head: &[u8], at: usize) -> Option<u32> {
    bytes(head, at).map(u32::from_le_bytes)
}

fn long(head: &[u8], at: usize) -> Option<u64> {
    bytes(head, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these program headers; the loader's path follows them.
    fn file(types: &[u32], loader: &[u8]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18..20].copy_from_slice(&OWN_MACHINE.to_le_bytes());
        head[32..40].copy_from_slice(&64u64.to_le_bytes());
        head[54..56].copy_from_slice(&56u16.to_le_bytes());
        head[56..58].copy_from_slice(&(types.len() as u16).to_le_bytes());
        let path = 64 + 56 * types.len() as u64;
        for kind in types {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&path.to_le_bytes());
            header[32..40].copy_from_slice(&(loader.len() as u64).to_le_bytes());
            head.extend(header);
        }
        head.extend(loader);
        head
    }

    #[test]
    fn programs_are_told_apart() {
        let glibc = file(&[6, PT_INTERP, 1], b"/lib64/ld-linux-x86-64.so.2\0");
        let loader = &b"/lib64/ld-linux-x86-64.so.2"[..];
        assert_eq!(inspect(&glibc), Program::Dynamic { loader });
        assert_eq!(inspect(&file(&[1, 2], b"")), Program::Impossible(Obstacle::Static));
        let musl = file(&[PT_INTERP], b"/lib/ld-musl-x86_64.so.1\0");
        assert_eq!(inspect(&musl), Program::Impossible(Obstacle::Libc));
        let mut other = glibc.clone();
        other[18] ^= 0x55;
        assert_eq!(inspect(&other), Program::Impossible(Obstacle::Architecture));
        other[18] ^= 0x55;
        other[4] = 1;
        assert_eq!(inspect(&other), Program::Impossible(Obstacle::Architecture));
        let interpreter = &b"/usr/bin/env"[..];
        assert_eq!(inspect(b"#! /usr/bin/env python3\nx"), Program::Script { interpreter });
        assert_eq!(inspect(b"#!\n"), Program::Unknown);
        assert_eq!(inspect(b""), Program::Unknown);
        assert_eq!(inspect(b"MZ"), Program::Unknown);
    }

    #[test]
    fn this_test_is_dynamic() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(
            inspect(&this[..HEAD.min(this.len())]),
            Program::Dynamic { .. }
        ));
    }

    #[test]
    fn no_header_is_believed() {
        let whole = file(&[6, PT_INTERP, 1], b"/lib64/ld-linux-x86-64.so.2\0");
        for length in 0..whole.len() {
            let _ = inspect(&whole[..length]);
        }
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] = 0xff;
            let _ = inspect(&broken);
        }
    }
}
