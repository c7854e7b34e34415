//! Explicit anonymous memory, and the few system calls that the workloads need around it. All unsafe code of the crate is
//! in this module. Workload data does not live on the heap, to keep the allocator out of measurements, except where a
//! workload stands for a program whose data does.

mod area;
pub mod content;
mod hugetlb;
mod mapping;
mod pins;
mod process;

pub use area::{Area, Heap};
pub use hugetlb::touch_hugetlb;
pub use mapping::{Mapping, Protection};
pub use pins::{PinError, Pins};
pub use process::{
    base_pages_only, cpu_time, die_with_parent, die_with_parent_after_exec, disable_thp, disable_thp_after_exec,
    fork_child, hide_vdso_after_exec, keep_thp_after_exec, pin_for_now, pin_process_to_cpu, pin_to_cpu, Child, Exit,
    Pinned, Whose,
};

use std::ops::Range;

/// Bytes of a huge page: 2 MB on x86-64 and on arm64 with 4 KB base pages.
pub const HUGE_BYTES: usize = 2 << 20;

/// `MADV_COLLAPSE` (6.1).
pub const MADV_COLLAPSE: i32 = 25;

/// Bytes of a base page.
#[must_use]
pub fn base_page_bytes() -> usize {
    rustix::param::page_size()
}

/// A memory system call failed.
#[derive(Debug, thiserror::Error)]
#[error("{call} of {bytes} bytes at {start:#x}: {source}")]
pub struct MemoryError {
    /// The system call.
    pub call: &'static str,
    /// First byte it was about, 0 when the kernel was to choose.
    pub start: usize,
    /// Number of bytes it was about.
    pub bytes: usize,
    /// What the kernel answered.
    pub source: std::io::Error,
}

impl MemoryError {
    fn last(call: &'static str, start: usize, bytes: usize) -> Self {
        Self {
            call,
            start,
            bytes,
            source: std::io::Error::last_os_error(),
        }
    }

    /// The kernel's error number, 0 if there is none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// Resident bytes of this process.
#[must_use]
pub fn rss_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|f| f.parse::<u64>().ok())
        .unwrap_or(0);
    pages * base_page_bytes() as u64
}

/// Bytes of this process in anonymous huge pages, of the VMAs that overlap any of `areas`. Walks the page tables: about
/// 10 ms per base-mapped GB, with the process's mmap lock held for reading.
#[must_use]
pub fn huge_bytes_within(areas: &[Range<usize>]) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut inside = false;
    let mut kilobytes = 0;
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let first = fields.next().unwrap_or_default();
        if let Some(value) = line.strip_prefix("AnonHugePages:") {
            let value = value.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
            kilobytes += if inside { value } else { 0 };
        } else if let Some((start, end)) = first.split_once('-') {
            if let (Ok(s), Ok(e)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)) {
                inside = areas.iter().any(|a| a.start < e && s < a.end);
            }
        }
    }
    kilobytes * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_resident_memory() {
        assert!(rss_bytes() > 0);
    }

    #[test]
    fn an_error_names_call_range_and_reason() {
        let mut m = Mapping::new(HUGE_BYTES).unwrap();
        let text = m.advise(0..4096, 9999).unwrap_err().to_string();
        assert!(
            text.contains("madvise of 4096 bytes at 0x") && text.contains("Invalid argument"),
            "{text}"
        );
    }
}
