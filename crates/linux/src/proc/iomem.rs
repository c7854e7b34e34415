//! /proc/iomem: which physical addresses are memory.

use std::ops::Range;
use std::path::Path;

use super::{lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// The ranges of physical addresses that are "System RAM", by rising address. None where the kernel hides the addresses (it writes
/// zeroes to readers without CAP_SYS_ADMIN).
pub fn read(root: &ProcRoot) -> Result<Option<Vec<Range<u64>>>> {
    let path = root.proc.join("iomem");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of an iomem file, "00100000-bfffffff : System RAM"; `path` is for messages only. Ranges inside others are indented.
pub fn parse(path: &Path, text: &[u8]) -> Result<Option<Vec<Range<u64>>>> {
    let text = String::from_utf8_lossy(text);
    let mut ram = Vec::new();
    for (at, line) in lines(path, &text) {
        let Some((range, name)) = line.split_once(" : ") else {
            return Err(at.wrong("range", "a line such as '00100000-bfffffff : System RAM'", line));
        };
        // Memory that a driver brought has the driver's name behind it: "System RAM (kmem)".
        if !name.starts_with("System RAM") {
            continue;
        }
        let (first, last) = range.trim_start().split_once('-').unwrap_or((range, ""));
        let (first, last) = (at.hex("start", Some(first))?, at.hex("end", Some(last))?);
        if last > first {
            ram.push(first..last.saturating_add(1));
        }
    }
    ram.sort_unstable_by_key(|range| range.start);
    Ok((!ram.is_empty()).then_some(ram))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> Option<Vec<Range<u64>>> {
        parse(Path::new("i"), text.as_bytes()).unwrap()
    }

    #[test]
    fn memory_is_found_among_devices_at_any_depth() {
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n00100000-bfffffff : System RAM\n  \
                    01000000-022090c7 : Kernel code\n140000000-33fffffff : Persistent Memory\n  \
                    140000000-33fffffff : dax0.0\n    140000000-33fffffff : System RAM (kmem)\n";
        assert_eq!(
            ranges(text),
            Some(vec![
                0x1000..0x9fc00,
                0x10_0000..0xc000_0000,
                0x1_4000_0000..0x3_4000_0000
            ])
        );
    }

    #[test]
    fn hidden_addresses_are_not_taken_for_memory() {
        assert_eq!(
            ranges("00000000-00000000 : System RAM\n00000000-00000000 : System RAM\n"),
            None
        );
        assert_eq!(ranges(""), None);
    }

    #[test]
    fn a_line_that_no_kernel_writes_is_named() {
        let error = parse(Path::new("i"), b"0-1 : x\n00001000-zz : System RAM\n").unwrap_err();
        assert_eq!(error.to_string(), "i:2: end: expected a hexadecimal number, found 'zz'");
        assert!(parse(Path::new("i"), b"nonsense\n").is_err());
        let all = ranges("ffff-ffffffffffffffff : System RAM\n").unwrap();
        assert_eq!((all.len(), all[0].clone()), (1, 0xffff..u64::MAX));
    }
}
