//! The raw system calls and memory of the scanners; all their `unsafe` is here and in `object.rs`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::NonNull;

/// A mapping of our own that is unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; access goes through &self and &mut self.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(len: usize, prot: i32, flags: i32, fd: i32) -> io::Result<Mapping> {
        // SAFETY: no fixed address, so no existing mapping is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { base, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Private anonymous memory.
    pub(super) fn anonymous(len: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Mapping::new(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    /// The first `len` bytes of a file or BPF map, shared.
    pub(super) fn shared(fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        Mapping::new(
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
        )
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The first 2 MB-aligned address in the mapping.
    pub(super) fn aligned(&self) -> u64 {
        (self.base.as_ptr() as u64).next_multiple_of(super::REGION_BYTES)
    }

    fn offset(&self, address: u64) -> usize {
        let offset = (address as usize)
            .checked_sub(self.base.as_ptr() as usize)
            .expect("an address of the mapping");
        assert!(
            offset + 8 <= self.len && offset % 8 == 0,
            "an aligned address of the mapping"
        );
        offset
    }

    /// Writes one word.
    pub(super) fn put(&self, address: u64, value: u64) {
        // SAFETY: inside the mapping and aligned (checked); the memory is shared with nobody who keeps references.
        unsafe {
            self.base
                .as_ptr()
                .add(self.offset(address))
                .cast::<u64>()
                .write_volatile(value)
        }
    }

    /// Reads one word.
    pub(super) fn get(&self, address: u64) -> u64 {
        // SAFETY: as in `put`.
        unsafe {
            self.base
                .as_ptr()
                .add(self.offset(address))
                .cast::<u64>()
                .read_volatile()
        }
    }

    /// `madvise` on a part of the mapping.
    pub(super) fn advise(&self, address: u64, len: u64, advice: i32) -> io::Result<()> {
        let offset = self.offset(address);
        assert!(offset + len as usize <= self.len, "a part of the mapping");
        // SAFETY: inside our own mapping, which holds nothing but test patterns.
        let done = unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len as usize, advice) };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// `mlock` of a part of the mapping.
    pub(super) fn lock(&self, address: u64, len: u64) -> io::Result<()> {
        let offset = self.offset(address);
        assert!(offset + len as usize <= self.len, "a part of the mapping");
        // SAFETY: inside our own mapping.
        if unsafe { libc::mlock(self.base.as_ptr().add(offset).cast(), len as usize) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// An unnamed file in memory.
pub(super) fn memfd() -> io::Result<File> {
    // SAFETY: a constant C string.
    let fd = unsafe { libc::memfd_create(c"mega-locate".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The calling thread's id.
pub(super) fn gettid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }
}

/// Nanoseconds of CLOCK_MONOTONIC, which is the clock of `bpf_ktime_get_ns`.
pub(super) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reads another process's memory; returns the bytes read, short where something is not mapped.
pub(super) fn read_memory(pid: i32, pieces: &[(u64, usize)], into: &mut [u8]) -> io::Result<usize> {
    assert!(
        pieces.iter().map(|p| p.1).sum::<usize>() <= into.len(),
        "room for all pieces"
    );
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote: Vec<libc::iovec> = pieces
        .iter()
        .map(|&(at, len)| libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: len,
        })
        .collect();
    // SAFETY: the local vector is the slice; remote addresses are only looked at by the kernel in the other process.
    let n = unsafe { libc::process_vm_readv(pid, &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `struct pm_scan_arg` of linux/fs.h (Linux 6.7).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PmScanArg {
    pub size: u64,
    pub flags: u64,
    pub start: u64,
    pub end: u64,
    pub walk_end: u64,
    pub vec: u64,
    pub vec_len: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub category_anyof_mask: u64,
    pub return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageRegion {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    3 << 30 | (std::mem::size_of::<PmScanArg>() as libc::c_ulong) << 16 | 0x66 << 8 | 16;

/// One `PAGEMAP_SCAN` call that only looks; returns how many entries of `vec` it filled and where it stopped.
pub(super) fn pagemap_scan(pagemap: &File, mut arg: PmScanArg, vec: &mut [PageRegion]) -> io::Result<(usize, u64)> {
    arg.size = std::mem::size_of::<PmScanArg>() as u64;
    arg.flags = 0;
    arg.vec = vec.as_mut_ptr() as u64;
    arg.vec_len = vec.len() as u64;
    // SAFETY: arg is a valid pm_scan_arg and vec has room for vec_len page_regions.
    let n = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &mut arg) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok((n.min(vec.len()), arg.walk_end))
}

/// The memory encryption bit of AMD processors as a mask of page-table entries (CPUID 0x8000001f), 0 without.
pub(super) fn encryption_mask() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // Newer compilers have __cpuid as a safe function.
        #[allow(unused_unsafe)]
        let cpuid = |leaf| {
            // SAFETY: every x86-64 processor has the cpuid instruction.
            unsafe { std::arch::x86_64::__cpuid(leaf) }
        };
        if cpuid(0x8000_0000).eax >= 0x8000_001f {
            let leaf = cpuid(0x8000_001f);
            if leaf.eax & 3 != 0 {
                return 1 << (leaf.ebx & 63);
            }
        }
    }
    0
}
