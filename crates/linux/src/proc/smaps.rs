//! /proc/PID/smaps and smaps_rollup: what the mappings of a process hold.
//!
//! Reading costs the target's mmap lock and a walk over all of its page tables (11 ms per GB of base pages): for a look
//! now and then, not for a control loop.

use std::path::Path;

use super::maps::{mapping, opens_mapping, Mapping};
use super::vm_flags::VmFlags;
use super::{kb_fields, lines, read_bounded, ProcRoot};
use crate::error::Result;

/// The most text that is read: about 650,000 mappings.
const LIMIT_BYTES: u64 = 512 << 20;

kb_fields! {
    /// What a mapping, or a whole process, holds.
    Usage {
        /// Size of the mapping.
        "Size" => size_bytes,
        /// Page size of the mapping: larger than a base page for hugetlb only.
        "KernelPageSize" => kernel_page_bytes,
        /// Page size that the processor uses for it.
        "MMUPageSize" => mmu_page_bytes,
        /// Resident.
        "Rss" => rss_bytes,
        /// Resident, each page divided by the number of its users.
        "Pss" => pss_bytes,
        /// The dirty part of Pss.
        "Pss_Dirty" => pss_dirty_bytes,
        /// The anonymous part of Pss (rollup only).
        "Pss_Anon" => pss_anon_bytes,
        /// The file part of Pss (rollup only).
        "Pss_File" => pss_file_bytes,
        /// The shared memory part of Pss (rollup only).
        "Pss_Shmem" => pss_shmem_bytes,
        /// Shared with others and clean.
        "Shared_Clean" => shared_clean_bytes,
        /// Shared with others and dirty.
        "Shared_Dirty" => shared_dirty_bytes,
        /// Of this process alone and clean.
        "Private_Clean" => private_clean_bytes,
        /// Of this process alone and dirty.
        "Private_Dirty" => private_dirty_bytes,
        /// Accessed since the accessed bits were last cleared.
        "Referenced" => referenced_bytes,
        /// Belongs to no file.
        "Anonymous" => anonymous_bytes,
        /// Merged by KSM.
        "KSM" => ksm_bytes,
        /// Given up by MADV_FREE, not taken yet.
        "LazyFree" => lazy_free_bytes,
        /// Anonymous memory mapped by huge pages.
        "AnonHugePages" => anon_huge_bytes,
        /// Reserved for it and not populated, on a kernel with reservations.
        "AnonReserved" => anon_reserved_bytes,
        /// Shared memory mapped by huge pages.
        "ShmemPmdMapped" => shmem_huge_bytes,
        /// File memory mapped by huge pages.
        "FilePmdMapped" => file_huge_bytes,
        /// hugetlb, shared.
        "Shared_Hugetlb" => shared_hugetlb_bytes,
        /// hugetlb, private.
        "Private_Hugetlb" => private_hugetlb_bytes,
        /// In swap.
        "Swap" => swap_bytes,
        /// In swap, divided by the number of users.
        "SwapPss" => swap_pss_bytes,
        /// Locked by mlock.
        "Locked" => locked_bytes,
    }
}

/// One mapping with what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The line that it has in maps too.
    pub mapping: Mapping,
    /// Amounts.
    pub usage: Usage,
    /// `VmFlags`; absent without CONFIG_PROC_PAGE_MONITOR details and on kernels before 3.8.
    pub flags: Option<VmFlags>,
    /// `THPeligible`: a fault in it may be served by some huge page as things are set now.
    pub thp_eligible: Option<bool>,
    /// `ProtectionKey`.
    pub protection_key: Option<u32>,
}

/// The mappings of a process by rising address, with what they hold.
pub fn read(root: &ProcRoot, pid: u32) -> Result<Vec<Entry>> {
    let path = root.of_process(pid, "smaps");
    parse(&path, &read_bounded(&path, LIMIT_BYTES)?)
}

/// Reads the text of a smaps file; `path` is for messages only. Fields that are not known are skipped.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Entry>> {
    let text = String::from_utf8_lossy(text);
    let mut entries: Vec<Entry> = Vec::new();
    for (at, line) in lines(path, &text) {
        if opens_mapping(line) {
            entries.push(Entry {
                mapping: mapping(at, line)?,
                usage: Usage::default(),
                flags: None,
                thp_eligible: None,
                protection_key: None,
            });
            continue;
        }
        let Some(entry) = entries.last_mut() else {
            return Err(at.wrong("address", "a mapping before its fields", line));
        };
        let Some((name, value)) = line.split_once(':') else {
            return Err(at.wrong("field", "a line such as 'Rss: 12 kB'", line));
        };
        match name {
            "VmFlags" => entry.flags = Some(VmFlags::from_smaps(value)),
            "THPeligible" => entry.thp_eligible = Some(at.number::<u32>(name, Some(value.trim()))? != 0),
            "ProtectionKey" => entry.protection_key = Some(at.number(name, Some(value.trim()))?),
            _ => {
                entry.usage.take(at, name, value)?;
            }
        }
    }
    Ok(entries)
}

/// /proc/PID/smaps_rollup: what all mappings together hold (4.14 and later). A zombie has none and says so by ESRCH.
pub fn read_rollup(root: &ProcRoot, pid: u32) -> Result<Usage> {
    let path = root.of_process(pid, "smaps_rollup");
    parse_rollup(&path, &read_bounded(&path, super::SMALL_BYTES)?)
}

/// Reads the text of a smaps_rollup file; `path` is for messages only.
pub fn parse_rollup(path: &Path, text: &[u8]) -> Result<Usage> {
    let text = String::from_utf8_lossy(text);
    let mut usage = Usage::default();
    for (at, line) in lines(path, &text) {
        if opens_mapping(line) {
            continue;
        }
        match line.split_once(':') {
            Some((name, value)) => usage.take(at, name, value)?,
            None => return Err(at.wrong("field", "a line such as 'Rss: 12 kB'", line)),
        };
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "1000-2000 rw-p 00000000 00:00 0    [heap]\nSize:      4 kB\nRss:    4 kB\nNew_Field:  zzz\n\
                        THPeligible:   1\nVmFlags: rd wr mr mw me ac nh zz \n";

    #[test]
    fn what_is_absent_is_none_and_what_is_unknown_is_skipped() {
        let entries = parse(Path::new("smaps"), TEXT.as_bytes()).unwrap();
        let entry = &entries[0];
        assert_eq!(entry.usage.rss_bytes, Some(4096));
        assert_eq!(entry.usage.anon_huge_bytes, None);
        assert_eq!(entry.thp_eligible, Some(true));
        assert!(entry.flags.unwrap().contains(VmFlags::NOHUGEPAGE | VmFlags::WRITE));
    }

    #[test]
    fn a_field_before_any_mapping_is_an_error_with_its_line() {
        let error = parse(Path::new("smaps"), b"Rss:  4 kB\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "smaps:1: address: expected a mapping before its fields, found 'Rss:  4 kB'"
        );
    }

    #[test]
    fn a_wrong_amount_names_its_field() {
        let text = TEXT.replace("4 kB", "4 kiB");
        let error = parse(Path::new("smaps"), text.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("smaps:2: Size: expected an amount in kB, found '4 kiB'"),
            "{error}"
        );
    }
}
