//! /proc/vmstat: the machine's event counters and page counts, most of them in pages.

use std::collections::BTreeMap;
use std::path::Path;

use super::{lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// /proc/vmstat, by the kernel's own names. Which ones there are depends on kernel and configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vmstat(BTreeMap<String, u64>);

impl Vmstat {
    /// The counter of this name: `thp_fault_alloc`, `compact_stall` ...
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Huge pages given at faults, since boot.
    pub fn thp_fault_alloc(&self) -> Option<u64> {
        self.get("thp_fault_alloc")
    }

    /// Faults that wanted a huge page and got base pages, since boot.
    pub fn thp_fault_fallback(&self) -> Option<u64> {
        self.get("thp_fault_fallback")
    }

    /// Huge pages made by collapsing, by khugepaged and by MADV_COLLAPSE together, since boot.
    pub fn thp_collapse_alloc(&self) -> Option<u64> {
        self.get("thp_collapse_alloc")
    }

    /// Huge pages split, since boot.
    pub fn thp_split_page(&self) -> Option<u64> {
        self.get("thp_split_page")
    }

    /// Times that an allocation had to compact by itself, since boot.
    pub fn compact_stall(&self) -> Option<u64> {
        self.get("compact_stall")
    }

    /// All counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, &value)| (name.as_str(), value))
    }
}

/// The machine's counters.
pub fn read(root: &ProcRoot) -> Result<Vmstat> {
    let path = root.proc.join("vmstat");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of a vmstat file; `path` is for messages only.
///
/// A per-CPU sum can be momentarily negative; the kernel then writes a number near 2^64, or clamps it to 0.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vmstat> {
    let text = String::from_utf8_lossy(text);
    let mut counters = BTreeMap::new();
    for (at, line) in lines(path, &text) {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        counters.insert(name.to_owned(), at.number(name, Some(value.trim()))?);
    }
    Ok(Vmstat(counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_and_absent_ones_are_none() {
        let vmstat = parse(Path::new("vmstat"), b"thp_fault_alloc 7\ncompact_stall 0\n").unwrap();
        assert_eq!(vmstat.thp_fault_alloc(), Some(7));
        assert_eq!(vmstat.get("nothing"), None);
        assert_eq!(vmstat.iter().count(), 2);
    }

    #[test]
    fn a_counter_without_a_number_is_named() {
        let error = parse(Path::new("vmstat"), b"a 1\nb\n").unwrap_err();
        assert_eq!(error.to_string(), "vmstat:2: b: expected a number, found ''");
    }
}
