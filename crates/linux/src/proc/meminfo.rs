//! /proc/meminfo: the machine's memory.

use std::path::Path;

use super::{kb_fields, lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

kb_fields! {
    /// The machine's memory.
    Meminfo {
        /// All of it.
        "MemTotal" => total_bytes,
        /// Free.
        "MemFree" => free_bytes,
        /// Could be had for a new program without swapping: an estimate.
        "MemAvailable" => available_bytes,
        /// File caches.
        "Cached" => cached_bytes,
        /// Anonymous.
        "AnonPages" => anon_bytes,
        /// Mapped by huge pages, anonymous.
        "AnonHugePages" => anon_huge_bytes,
        /// Reserved for huge pages and not populated (only with kernel/reservation).
        "AnonReserved" => anon_reserved_bytes,
        /// Shared memory in huge pages.
        "ShmemHugePages" => shmem_huge_bytes,
        /// File memory in huge pages.
        "FileHugePages" => file_huge_bytes,
        /// Page tables.
        "PageTables" => page_tables_bytes,
        /// All swap.
        "SwapTotal" => swap_total_bytes,
        /// Free swap.
        "SwapFree" => swap_free_bytes,
        /// hugetlb's default page size.
        "Hugepagesize" => hugetlb_page_bytes,
        /// All hugetlb pages of all sizes.
        "Hugetlb" => hugetlb_bytes,
    }
}

/// The machine's memory now.
pub fn read(root: &ProcRoot) -> Result<Meminfo> {
    let path = root.proc.join("meminfo");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of a meminfo file; `path` is for messages only. Lines that are not known are skipped.
pub fn parse(path: &Path, text: &[u8]) -> Result<Meminfo> {
    let text = String::from_utf8_lossy(text);
    let mut info = Meminfo::default();
    for (at, line) in lines(path, &text) {
        match line.split_once(':') {
            Some((name, value)) => info.take(at, name, value)?,
            None => return Err(at.wrong("field", "a line such as 'MemFree: 12 kB'", line)),
        };
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_without_a_unit_are_skipped_and_amounts_are_bytes() {
        let info = parse(Path::new("m"), b"MemTotal:  100 kB\nHugePages_Total:  3\n").unwrap();
        assert_eq!((info.total_bytes, info.free_bytes), (Some(102_400), None));
    }
}
