//! /proc/PID/status: what a process is, for people; here the few lines that other files do not have.

use std::path::Path;

use super::{kb_fields, lines, read_bounded, At, ProcRoot, SMALL_BYTES};
use crate::error::Result;

kb_fields! {
    /// The memory of a process as its counters have it: cheap, and off by some pages per thread.
    Memory {
        /// Largest size of the address space so far.
        "VmPeak" => peak_bytes,
        /// Size of the address space.
        "VmSize" => size_bytes,
        /// Locked by mlock.
        "VmLck" => locked_bytes,
        /// Pinned.
        "VmPin" => pinned_bytes,
        /// Most that was ever resident.
        "VmHWM" => rss_peak_bytes,
        /// Resident.
        "VmRSS" => rss_bytes,
        /// Resident and anonymous.
        "RssAnon" => rss_anon_bytes,
        /// Resident and of files.
        "RssFile" => rss_file_bytes,
        /// Resident and shared memory.
        "RssShmem" => rss_shmem_bytes,
        /// Page tables.
        "VmPTE" => page_tables_bytes,
        /// In swap.
        "VmSwap" => swap_bytes,
        /// hugetlb.
        "HugetlbPages" => hugetlb_bytes,
    }
}

/// /proc/PID/status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Name of the main thread as the kernel escapes it (`\n` and `\\`); use stat's where the exact name matters.
    pub name: String,
    /// One letter: R, S, D, T, t, Z, X, I.
    pub state: Option<char>,
    /// The process that the thread belongs to.
    pub tgid: Option<u32>,
    /// The parent.
    pub ppid: Option<u32>,
    /// Real and effective user.
    pub uid: Option<(u32, u32)>,
    /// Threads.
    pub threads: Option<u32>,
    /// Effective capabilities, one bit each.
    pub cap_effective: Option<u64>,
    /// `THP_enabled` (5.0 and later): false when the process switched THP off wholly by `prctl(PR_SET_THP_DISABLE)`.
    pub thp_enabled: Option<bool>,
    /// `Kthread` (6.8 and later).
    pub kernel_thread: Option<bool>,
    /// Amounts; none of them for a kernel thread or a zombie.
    pub memory: Memory,
}

/// What the kernel says about a process.
pub fn read(root: &ProcRoot, pid: u32) -> Result<Status> {
    let path = root.of_process(pid, "status");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of a status file; `path` is for messages only. Lines that are not known are skipped.
pub fn parse(path: &Path, text: &[u8]) -> Result<Status> {
    let text = String::from_utf8_lossy(text);
    let mut status = Status::default();
    for (at, line) in lines(path, &text) {
        let Some((name, value)) = line.split_once(':') else {
            return Err(at.wrong("field", "a line such as 'Name: value'", line));
        };
        let value = value.trim();
        match name {
            "Name" => status.name = value.to_owned(),
            "State" => status.state = value.chars().next(),
            "Tgid" => status.tgid = Some(at.number(name, Some(value))?),
            "PPid" => status.ppid = Some(at.number(name, Some(value))?),
            "Threads" => status.threads = Some(at.number(name, Some(value))?),
            "Uid" => {
                let mut ids = value.split_ascii_whitespace();
                status.uid = Some((at.number(name, ids.next())?, at.number(name, ids.next())?));
            }
            "CapEff" => status.cap_effective = Some(at.hex(name, Some(value))?),
            "THP_enabled" => status.thp_enabled = Some(flag(at, name, value)?),
            "Kthread" => status.kernel_thread = Some(flag(at, name, value)?),
            _ => {
                status.memory.take(at, name, value)?;
            }
        }
    }
    Ok(status)
}

fn flag(at: At<'_>, name: &str, value: &str) -> Result<bool> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(at.wrong(name, "0 or 1", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_thread_has_no_memory() {
        let status = parse(
            Path::new("status"),
            b"Name:\tkthreadd\nState:\tS (sleeping)\nThreads:\t1\n",
        )
        .unwrap();
        assert_eq!(status.memory, Memory::default());
        assert_eq!(status.thp_enabled, None);
        assert_eq!(status.state, Some('S'));
    }

    #[test]
    fn the_lines_that_matter_are_read() {
        let text =
            b"Name:\ta b\nPPid:\t7\nUid:\t1\t2\t3\t4\nTHP_enabled:\t0\nVmRSS:\t    12 kB\nCapEff:\t000001fffeffffff\n";
        let status = parse(Path::new("status"), text).unwrap();
        assert_eq!(
            (status.ppid, status.uid, status.thp_enabled),
            (Some(7), Some((1, 2)), Some(false))
        );
        assert_eq!(status.memory.rss_bytes, Some(12288));
        assert_eq!(status.cap_effective, Some(0x1ff_feff_ffff));
    }

    #[test]
    fn a_wrong_flag_is_named() {
        let error = parse(Path::new("status"), b"Name: x\nTHP_enabled:\t2\n").unwrap_err();
        assert_eq!(error.to_string(), "status:2: THP_enabled: expected 0 or 1, found '2'");
    }
}
