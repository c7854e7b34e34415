//! Mappings of a process from `/proc/PID/smaps`, for where the VMA iterator cannot be had; and its threads.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use super::ScanError;
use crate::deadline;

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmaKind {
    /// Private memory without a file: the kind that huge pages are for.
    Anonymous,
    /// A file.
    File,
    /// Shared memory: tmpfs, memfd, shared anonymous, System V, hugetlbfs.
    Shmem,
    /// The kernel's own (vdso and the like).
    Special,
}

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawVma {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Kernel `VM_*` bits (`vm_area_struct.vm_flags`; from text only those that smaps names).
    pub vm_flags: u64,
    /// What backs it.
    pub kind: VmaKind,
}

impl RawVma {
    /// `VM_READ`
    pub const READ: u64 = 0x1;
    /// `VM_WRITE`
    pub const WRITE: u64 = 0x2;
    /// `VM_EXEC`
    pub const EXEC: u64 = 0x4;
    /// `VM_SHARED`
    pub const SHARED: u64 = 0x8;
    /// `VM_PFNMAP`
    pub const PFNMAP: u64 = 0x400;
    /// `VM_LOCKED`
    pub const LOCKED: u64 = 0x2000;
    /// `VM_IO`
    pub const IO: u64 = 0x4000;
    /// `VM_HUGETLB`
    pub const HUGETLB: u64 = 0x40_0000;
    /// `VM_MIXEDMAP`
    pub const MIXEDMAP: u64 = 0x1000_0000;
    /// `VM_HUGEPAGE`: MADV_HUGEPAGE was given.
    pub const HUGEPAGE: u64 = 0x2000_0000;
    /// `VM_NOHUGEPAGE`: MADV_NOHUGEPAGE was given.
    pub const NOHUGEPAGE: u64 = 0x4000_0000;
}

/// The two-letter names of the VmFlags line (fs/proc/task_mmu.c) that have the same bit in all kernels from 6.1.
const NAMES: [(&str, u64); 11] = [
    ("rd", RawVma::READ),
    ("wr", RawVma::WRITE),
    ("ex", RawVma::EXEC),
    ("sh", RawVma::SHARED),
    ("pf", RawVma::PFNMAP),
    ("lo", RawVma::LOCKED),
    ("io", RawVma::IO),
    ("ht", RawVma::HUGETLB),
    ("mm", RawVma::MIXEDMAP),
    ("hg", RawVma::HUGEPAGE),
    ("nh", RawVma::NOHUGEPAGE),
];

/// All the bits that [`parse_smaps`] can know.
pub(super) fn known_flags() -> u64 {
    NAMES.iter().fold(0, |bits, (_, bit)| bits | bit)
}

fn header(line: &str) -> Option<RawVma> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let permissions = fields.next()?;
    let mut rest = fields.skip(1);
    let device = rest.next()?;
    let inode: u64 = rest.next()?.parse().ok()?;
    let name = rest.next().unwrap_or("");
    if start >= end || permissions.len() != 4 {
        return None;
    }
    let shmem = ["/memfd:", "/dev/zero", "/SYSV", "/dev/shm/", "/anon_hugepage"];
    let kind = if inode != 0 || device != "00:00" {
        if shmem.iter().any(|p| name.starts_with(p)) {
            VmaKind::Shmem
        } else {
            VmaKind::File
        }
    } else if matches!(name, "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]") {
        VmaKind::Special
    } else {
        VmaKind::Anonymous
    };
    let bit = |at: usize, letter: u8, flag: u64| if permissions.as_bytes()[at] == letter { flag } else { 0 };
    let vm_flags = bit(0, b'r', RawVma::READ)
        | bit(1, b'w', RawVma::WRITE)
        | bit(2, b'x', RawVma::EXEC)
        | bit(3, b's', RawVma::SHARED);
    Some(RawVma {
        start,
        end,
        vm_flags,
        kind,
    })
}

/// Parses smaps (or maps: then without VmFlags). Lines that it does not know are skipped.
pub(super) fn parse_smaps(text: impl BufRead) -> std::io::Result<Vec<RawVma>> {
    let mut vmas: Vec<RawVma> = Vec::new();
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some(vma) = vmas.last_mut() {
                for name in flags.split_ascii_whitespace() {
                    vma.vm_flags |= NAMES.iter().find(|(n, _)| *n == name).map_or(0, |(_, bit)| *bit);
                }
            }
        } else if !line.as_bytes().first().is_some_and(u8::is_ascii_uppercase) {
            // Counters begin with a capital letter, headers with a hexadecimal digit in lower case.
            if let Some(vma) = header(&line) {
                vmas.push(vma);
            }
        }
    }
    Ok(vmas)
}

/// The process's mappings by text. Walks all its page tables: 10 ms per GB.
pub(super) fn read_smaps(pid: i32) -> Result<Vec<RawVma>, ScanError> {
    let vmas = super::within(pid, deadline::WALK, move || {
        let file = open(pid, "smaps")?;
        parse_smaps(BufReader::with_capacity(1 << 16, file)).map_err(gone_or("reading smaps"))
    })?;
    if vmas.is_empty() {
        return Err(ScanError::Gone);
    }
    Ok(vmas)
}

/// The threads of a process but its leader.
pub(super) fn other_threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut tids: Vec<i32> = entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|&t| t != pid)
        .collect();
    tids.sort_unstable();
    tids
}

/// Opens `/proc/PID/name` through a thread that still has the memory (a leader that exited has none).
pub(super) fn open(pid: i32, name: &'static str) -> Result<File, ScanError> {
    let zombie = fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(gone_or("reading /proc/PID/stat"))?
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
    let path = if zombie {
        let tid = other_threads(pid).pop().ok_or(ScanError::Gone)?;
        format!("/proc/{pid}/task/{tid}/{name}")
    } else {
        format!("/proc/{pid}/{name}")
    };
    File::open(path).map_err(gone_or("opening a file of /proc/PID"))
}

/// Files of a process that ended are missing or fail with ESRCH.
pub(super) fn gone_or(doing: &'static str) -> impl FnOnce(std::io::Error) -> ScanError {
    move |e| match e.kind() {
        std::io::ErrorKind::NotFound => ScanError::Gone,
        _ => ScanError::io(doing)(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vma_has_its_range_kind_and_flags() {
        let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nVmFlags: rd wr mr mw me ac hg \n\
                    7f1000000000-7f1000001000 r--s 00000000 00:01 77   /memfd:x (deleted)\nVmFlags: rd sh lo\n\
                    7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0    [vdso]\n";
        let vmas = parse_smaps(text.as_bytes()).unwrap();
        assert_eq!(vmas.len(), 3);
        assert_eq!(vmas[0].vm_flags, RawVma::READ | RawVma::WRITE | RawVma::HUGEPAGE);
        assert_eq!(
            (vmas[0].start, vmas[0].end, vmas[0].kind),
            (0x7f0000000000, 0x7f0000400000, VmaKind::Anonymous)
        );
        assert_eq!(vmas[1].kind, VmaKind::Shmem);
        assert_eq!(vmas[1].vm_flags, RawVma::READ | RawVma::SHARED | RawVma::LOCKED);
        assert_eq!(vmas[2].kind, VmaKind::Special);
    }

    #[test]
    fn nonsense_is_skipped_without_a_panic() {
        let text = b"VmFlags: hg\n-\nzz-yy rw-p\n5-3 rw-p 0 0:0 0\n\xff\xfe\n1000-2000 r\n1000-2000 rwxp 0 00:00 x\n"
            as &[u8];
        assert!(parse_smaps(text).unwrap().is_empty());
    }
}
