//! /proc/PID/maps: the mappings of a process.

use std::path::Path;

use super::{lines, read_bounded, unescape, At, ProcRoot};
use crate::error::Result;

/// The most text that is read: about 650,000 mappings, ten times the kernel's default limit.
pub(crate) const LIMIT_BYTES: u64 = 64 << 20;

/// One line of /proc/PID/maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it; larger than `start`.
    pub end: u64,
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// MAP_SHARED.
    pub shared: bool,
    /// Offset of `start` in the file, in bytes.
    pub offset_bytes: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 where there is no file.
    pub inode: u64,
    /// The file's path or the kernel's own name such as "\[heap\]", without the " (deleted)".
    pub name: Option<String>,
    /// The file is no longer reachable by this path.
    pub deleted: bool,
}

/// The mappings of a process, by rising address. None for a kernel thread and for a zombie.
pub fn read(root: &ProcRoot, pid: u32) -> Result<Vec<Mapping>> {
    let path = root.of_process(pid, "maps");
    parse(&path, &read_bounded(&path, LIMIT_BYTES)?)
}

/// Reads the text of a maps file; `path` is for messages only.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Mapping>> {
    let text = String::from_utf8_lossy(text);
    lines(path, &text).map(|(at, line)| mapping(at, line)).collect()
}

/// Whether a line of smaps opens a mapping: fields open with a capital letter, addresses never do.
pub(super) fn opens_mapping(line: &str) -> bool {
    line.bytes()
        .next()
        .is_some_and(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// "START-END PERMS OFFSET MAJOR:MINOR INODE      NAME", numbers but the inode in hexadecimal.
pub(super) fn mapping(at: At<'_>, line: &str) -> Result<Mapping> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_start_matches(' ');
        let end = rest.find(' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail;
        word
    };
    let addresses = word();
    let (start, end) = addresses.split_once('-').unwrap_or((addresses, ""));
    let (start, end) = (at.hex("address", Some(start))?, at.hex("address", Some(end))?);
    if start >= end {
        return Err(at.wrong("address", "a start below the end", addresses));
    }
    let perms = word();
    let &[r, w, x, s] = perms.as_bytes() else {
        return Err(at.wrong("perms", "four letters such as rw-p", perms));
    };
    if !matches!((r, w, x, s), (b'r' | b'-', b'w' | b'-', b'x' | b'-', b's' | b'p')) {
        return Err(at.wrong("perms", "four letters such as rw-p", perms));
    }
    let offset_bytes = at.hex("offset", Some(word()))?;
    let device = word();
    let numbers = device.split_once(':').and_then(|(major, minor)| {
        let number = |text| u32::from_str_radix(text, 16).ok();
        Some((number(major)?, number(minor)?))
    });
    let device = numbers.ok_or_else(|| at.wrong("dev", "major:minor in hexadecimal", device))?;
    let inode = at.number("inode", Some(word()))?;
    let name = rest.trim_start_matches(' ');
    let (name, deleted) = match name.strip_suffix(" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    Ok(Mapping {
        start,
        end,
        read: r == b'r',
        write: w == b'w',
        execute: x == b'x',
        shared: s == b's',
        offset_bytes,
        device,
        inode,
        // The kernel escapes the line end here and nothing else.
        name: (!name.is_empty()).then(|| unescape(name, b"\n")),
        deleted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Mapping> {
        Ok(parse(Path::new("maps"), line.as_bytes())?.remove(0))
    }

    #[test]
    fn names_keep_spaces_backslashes_and_line_ends_and_lose_deleted() {
        let m = one("7f00-8000 r-xs 0001000 fe:1f 42    /tmp/a b\\040\\012c (deleted)").unwrap();
        assert_eq!(m.name.as_deref(), Some("/tmp/a b\\040\nc"));
        assert!(m.deleted && m.read && m.execute && m.shared && !m.write);
        assert_eq!(
            (m.offset_bytes, m.device, m.inode, m.start, m.end),
            (0x1000, (0xfe, 0x1f), 42, 0x7f00, 0x8000)
        );
    }

    #[test]
    fn a_mapping_without_name_has_none() {
        let m = one("1000-2000 rw-p 0 00:00 0 ").unwrap();
        assert_eq!((m.name, m.deleted), (None, false));
    }

    #[test]
    fn each_wrong_field_is_named() {
        for (line, field) in [
            ("x-2000 rw-p 0 00:00 0", "address"),
            ("2000-1000 rw-p 0 00:00 0", "address"),
            ("1000-2000 rw-q 0 00:00 0", "perms"),
            ("1000-2000 rw-p z 00:00 0", "offset"),
            ("1000-2000 rw-p 0 0000 0", "dev"),
            ("1000-2000 rw-p 0 00:00 x", "inode"),
            ("1000-2000 rw-p 0 00:00", "inode"),
        ] {
            let error = one(line).unwrap_err().to_string();
            assert!(error.starts_with(&format!("maps:1: {field}: expected")), "{error}");
        }
    }

    #[test]
    fn the_addresses_at_the_top_are_read() {
        let m = one("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0      [vsyscall]").unwrap();
        assert_eq!(m.name.as_deref(), Some("[vsyscall]"));
    }
}
