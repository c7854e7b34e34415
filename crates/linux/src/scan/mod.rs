//! Looking at the page tables of other processes.
//!
//! Three scanners see the same things at different prices (per GB of base-mapped memory): `ebpf` reads the tables
//! themselves (0.4 ms, and the only one that sees accessed bits), `pagemap_scan` asks the `PAGEMAP_SCAN` ioctl
//! (Linux 6.7, 3 ms), `pagemap` reads `/proc/PID/pagemap` (8 ms). [`choose`] takes the best that works here, after it
//! has compared what it sees of our own memory with what we did to it. A fourth, `module`, asks mega.ko where the user wants it: it also
//! clears accessed bits.
//!
//! ```text
//! choose ─► bpf (object, links, requests) ─► locate (where the kernel keeps its tables), selfcheck
//!        ─► pagemap_scan ─┐
//!        ─► by_module ────┤   (mega.ko, and one of the others beside it)
//!        ─► pagemap ──────┴► maps (VMAs from text), contents (zero pages by process_vm_readv)
//! ```

use std::io;

use rustix::io::Errno;

use crate::deadline::{self, Late};
use crate::process::Process;

mod bpf;
mod by_module;
mod choose;
mod contents;
mod intf;
mod locate;
mod maps;
mod object;
mod pagemap;
mod pagemap_scan;
pub mod partly;
mod raw;
mod selfcheck;

pub use bpf::{BpfScanner, Capabilities};
pub use by_module::ModuleScanner;
pub use choose::{choose, Preference};
pub use maps::{RawVma, VmaKind};
pub use object::links_max;
pub use pagemap::PagemapScanner;
pub use pagemap_scan::PagemapScanScanner;

/// Bytes of a region: what one PMD entry maps (x86-64: 2 MB).
pub const REGION_BYTES: u64 = 1 << 21;
/// Bytes of a base page.
pub const BASE_BYTES: u64 = 1 << 12;
/// Base pages of a region.
pub const BASE_PAGES: u16 = 512;

/// What a region is besides its counts; a set of bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionFlags(u16);

impl RegionFlags {
    /// One huge page maps the region (PMD leaf, or part of a 1 GB one).
    pub const HUGE: RegionFlags = RegionFlags(1);
    /// The tables changed while they were read, twice: the counts are not reliable.
    pub const RACED: RegionFlags = RegionFlags(2);
    /// A sampled write-protected page is mapped more than once (`struct page` mapcount). Best effort: a clear bit
    /// proves nothing; [`Scanner::fork_shared`] counts exactly.
    pub const SHARED: RegionFlags = RegionFlags(4);
    /// The region is part of a 1 GB page (PUD leaf); its accessed bit is that of the whole gigabyte.
    pub const GIGANTIC: RegionFlags = RegionFlags(8);

    const ALL: u16 = 15;

    pub(crate) fn from_bits(bits: u16) -> RegionFlags {
        RegionFlags(bits & Self::ALL)
    }

    /// The raw bits, as in `bpf/intf.h`.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: RegionFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other`.
    pub fn insert(&mut self, other: RegionFlags) {
        self.0 |= other.0;
    }
}

/// One 2 MB-aligned region as the page tables show it. Counts are base pages, 0 to 512; a huge page counts as 512.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionScan {
    /// Virtual address of the region's first byte.
    pub address: u64,
    /// Present, `PROT_NONE` included (entry bits P or PROTNONE).
    pub mapped: u16,
    /// Present and touched since the bits were last cleared (entry bit A; with `young` also page flag PG_young).
    pub accessed: u16,
    /// Present and written (entry bit D, or from Linux 6.6 the saved dirty bit of write-protected entries).
    pub dirty: u16,
    /// Present and backed by the shared zero page (512 for the huge zero page).
    pub zero: u16,
    /// Present and not writable by the hardware (entry bit RW clear), the zero page included.
    pub write_protected: u16,
    /// Neither none nor present: swapped, migrating, markers.
    pub swapped: u16,
    /// See [`RegionFlags`].
    pub flags: RegionFlags,
    pad: u16,
}

impl RegionScan {
    pub(crate) fn at(address: u64) -> RegionScan {
        RegionScan {
            address,
            ..RegionScan::default()
        }
    }

    /// Whether one huge page maps the region.
    pub fn is_huge(&self) -> bool {
        self.flags.contains(RegionFlags::HUGE)
    }
}

/// What to look at: 2 MB-aligned virtual addresses of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Also count a page as accessed if its page flag PG_young is set (DAMON and idle page tracking move the accessed
    /// bit there). Free for pages whose accessed bit is set, about 10 ns for each other one. A large folio that is
    /// mapped by base entries has one such flag for all its pages.
    pub young: bool,
}

/// One region page by page: bit `n % 64` of word `n / 64` is base page `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMap {
    /// As [`RegionScan::mapped`].
    pub mapped: [u64; 8],
    /// As [`RegionScan::accessed`]; PG_young counts where the scanner can see it.
    pub accessed: [u64; 8],
    /// As [`RegionScan::dirty`].
    pub dirty: [u64; 8],
    /// As [`RegionScan::zero`].
    pub zero: [u64; 8],
    /// As [`RegionScan::flags`].
    pub flags: RegionFlags,
}

/// What a huge page contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroFilled {
    /// Virtual address of the region.
    pub address: u64,
    /// Base pages of which every byte is zero.
    pub zero_filled: u16,
    /// Base pages that were read: 512, or fewer where the region is not mapped huge (0) or changed meanwhile.
    pub checked: u16,
    /// The mapping changed while it was read: the counts may be of another page.
    pub raced: bool,
    /// Time that it took, in nanoseconds.
    pub time_ns: u64,
}

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The process ended (or replaced its memory by exec while it was read); what was appended so far may be kept.
    #[error("the process is gone")]
    Gone,
    /// This machine or our privileges do not allow it.
    #[error("{what}: {why}")]
    Refused {
        /// What was wanted.
        what: &'static str,
        /// The reason, for a person.
        why: String,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// It holds its address space locked, or did when it was asked last.
    #[error("{0}; left alone until it returns")]
    Locked(#[from] Late),
}

impl ScanError {
    /// What kind of error it is, the same for all processes that have it.
    pub fn kind(&self) -> String {
        match self {
            Self::Gone => "gone".to_owned(),
            Self::Refused { what, .. } => (*what).to_owned(),
            Self::Locked(Late::Now(_) | Late::Still) => "locked".to_owned(),
            Self::Locked(other) => other.to_string(),
            Self::Io { doing, source } => format!("{doing}: {:?}", source.raw_os_error()),
        }
    }

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> ScanError {
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => ScanError::Gone,
            _ => ScanError::Io { doing, source },
        }
    }

    pub(crate) fn refused(what: &'static str, why: impl Into<String>) -> ScanError {
        ScanError::Refused { what, why: why.into() }
    }
}

/// A way to look at the memory of processes. No method changes what it looks at, except that
/// [`zero_filled`](Scanner::zero_filled) of the pagemap scanners sets accessed bits.
///
/// A pid is taken as the number that it is: the caller holds a pidfd and checks it after the look.
pub trait Scanner {
    /// `ebpf`, `pagemap_scan`, `pagemap` or `module`.
    fn name(&self) -> &'static str;

    /// Whether `accessed` and `dirty` are ever anything but 0.
    fn sees_accessed(&self) -> bool;

    /// The process's mappings in the order of their addresses.
    ///
    /// # Errors
    /// The process is gone, or a system call failed.
    fn vmas(&mut self, pid: i32) -> Result<Vec<RawVma>, ScanError>;

    /// Appends one entry for every region in `ranges` that has anything mapped or swapped, in the order of the ranges.
    ///
    /// # Errors
    /// The process is gone, a range is not 2 MB-aligned user memory, or a system call failed.
    fn scan(&mut self, pid: i32, ranges: &[ScanRange], out: &mut Vec<RegionScan>) -> Result<(), ScanError>;

    /// The region at `address`, page by page.
    ///
    /// # Errors
    /// As [`scan`](Scanner::scan).
    fn page_map(&mut self, pid: i32, address: u64) -> Result<PageMap, ScanError>;

    /// Appends, for each of the huge-mapped regions `addresses`, how many of its base pages are filled with zeros.
    ///
    /// # Errors
    /// As [`scan`](Scanner::scan).
    fn zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError>;

    /// The same, at most: of base pages that are zero for their first bytes the rest is not read where that saves anything. For
    /// seeing whether zero-filled pages have been written to since they were counted.
    ///
    /// # Errors
    /// As [`scan`](Scanner::scan).
    fn at_most_zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        self.zero_filled(pid, addresses, out)
    }

    /// How many mapped base pages of the region others map too (`/proc/PID/pagemap` bit 56 clear), without those that
    /// are the shared zero page.
    ///
    /// # Errors
    /// As [`scan`](Scanner::scan).
    fn fork_shared(&mut self, pid: i32, address: u64) -> Result<u16, ScanError>;

    /// Clears the accessed bits of these many regions from `address` on, where it can do that better than MADV_COLD does: how many of
    /// them were reached. `None`: it cannot.
    fn clear(&mut self, _process: &Process, _address: u64, _regions: usize) -> Option<Result<usize, Errno>> {
        None
    }

    /// Lets go of what is kept for a process that is not looked at any more.
    fn forget(&mut self, _pid: i32) {}
}

/// Does what may wait for the lock of a process's address space, for a limited time.
fn within<T: Send + 'static>(
    pid: i32,
    limit: std::time::Duration,
    work: impl FnOnce() -> Result<T, ScanError> + Send + 'static,
) -> Result<T, ScanError> {
    let pid = u32::try_from(pid).map_err(|_| ScanError::Gone)?;
    deadline::within(pid, limit, work)?
}

/// Ranges must be aligned, in order within themselves, and below the kernel's half.
pub(crate) fn check_ranges(ranges: &[ScanRange]) -> Result<(), ScanError> {
    for r in ranges {
        if r.start % REGION_BYTES != 0 || r.end % REGION_BYTES != 0 || r.start > r.end || r.end > 1 << 56 {
            return Err(ScanError::refused(
                "scan range",
                format!("{:#x}-{:#x} is not 2 MB-aligned user memory", r.start, r.end),
            ));
        }
    }
    Ok(())
}

pub(crate) fn check_address(address: u64) -> Result<(), ScanError> {
    check_ranges(&[ScanRange {
        start: address,
        end: address.saturating_add(REGION_BYTES),
        young: false,
    }])
}
