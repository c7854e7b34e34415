//! /proc/cpuinfo: what the processor can do.

use std::collections::BTreeSet;
use std::path::Path;

use super::{lines, read_bounded, ProcRoot};
use crate::error::Result;

/// The most text that is read: some thousands of processors.
const LIMIT_BYTES: u64 = 64 << 20;

/// The first processor, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cpuinfo {
    /// Model, as it calls itself.
    pub model: Option<String>,
    /// What CPUID says of it: "GenuineIntel" or "AuthenticAMD", family, model.
    pub identity: Option<(String, u32, u32)>,
    /// Feature flags: "pdpe1gb" (1 GB pages), "la57" (5-level page tables), "sme" ...
    pub flags: BTreeSet<String>,
    /// Processors online.
    pub processors: usize,
}

impl Cpuinfo {
    /// The processor has this feature.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }
}

/// The machine's processors.
pub fn read(root: &ProcRoot) -> Result<Cpuinfo> {
    let path = root.proc.join("cpuinfo");
    parse(&path, &read_bounded(&path, LIMIT_BYTES)?)
}

/// Reads the text of a cpuinfo file; `path` is for messages only. Architectures differ: what is not there stays empty.
pub fn parse(path: &Path, text: &[u8]) -> Result<Cpuinfo> {
    let text = String::from_utf8_lossy(text);
    let mut info = Cpuinfo::default();
    let (mut vendor, mut family, mut number) = (None, None, None);
    for (_, line) in lines(path, &text) {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name.trim() {
            "processor" => info.processors += 1,
            "model name" if info.model.is_none() => info.model = Some(value.trim().to_owned()),
            "vendor_id" if vendor.is_none() => vendor = Some(value.trim().to_owned()),
            "cpu family" if family.is_none() => family = value.trim().parse().ok(),
            "model" if number.is_none() => number = value.trim().parse().ok(),
            "flags" | "Features" if info.flags.is_empty() => {
                info.flags = value.split_ascii_whitespace().map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    info.identity = vendor
        .zip(family)
        .zip(number)
        .map(|((vendor, family), model)| (vendor, family, model));
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_says_who_it_is() {
        let text = b"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        let info = parse(Path::new("c"), text).unwrap();
        assert_eq!(info.identity, Some(("AuthenticAMD".to_owned(), 25, 17)));
        assert_eq!(parse(Path::new("c"), b"processor\t: 0\n").unwrap().identity, None);
    }

    #[test]
    fn the_first_processors_flags_are_taken() {
        let text = b"processor\t: 0\nmodel name\t: A: B\nflags\t\t: fpu pdpe1gb\n\nprocessor\t: 1\nflags\t\t: fpu\n";
        let info = parse(Path::new("c"), text).unwrap();
        assert!(info.has("pdpe1gb") && !info.has("la57"));
        assert_eq!((info.processors, info.model.as_deref()), (2, Some("A: B")));
    }
}
