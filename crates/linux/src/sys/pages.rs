//! PAGEMAP_SCAN, and the iterators over threads.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Range;

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::{last_errno, own_fd};

/// One answer of the PAGEMAP_SCAN ioctl: a run of pages of the same categories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PageRun {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// The kernel's PAGE_IS_* bits: [`PAGE_IS_PRESENT`], [`PAGE_IS_ZERO`], [`PAGE_IS_HUGE`].
    pub categories: u64,
}

/// PAGE_IS_PRESENT of uapi/linux/fs.h: mapped.
pub const PAGE_IS_PRESENT: u64 = 1 << 3;
/// PAGE_IS_PFNZERO: mapped to the shared zero page.
pub const PAGE_IS_ZERO: u64 = 1 << 5;
/// PAGE_IS_HUGE: mapped by a huge page.
pub const PAGE_IS_HUGE: u64 = 1 << 6;

/// The present pages of a range, as runs of equal categories, through an open /proc/PID/pagemap (6.7; ENOTTY before).
/// Stops when `runs` is full. Answers how many runs it filled in.
///
/// # Errors
/// ENOTTY before Linux 6.7, EPERM.
pub fn pagemap_scan(pagemap: BorrowedFd<'_>, range: Range<u64>, runs: &mut [PageRun]) -> Result<usize, Errno> {
    /// struct pm_scan_arg of uapi/linux/fs.h.
    #[repr(C)]
    struct Argument {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        vector: u64,
        vector_length: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_any_of_mask: u64,
        return_mask: u64,
    }
    // _IOWR('f', 16, struct pm_scan_arg)
    const PAGEMAP_SCAN: libc::c_ulong = 3 << 30 | (size_of::<Argument>() as libc::c_ulong) << 16 | 0x66 << 8 | 16;
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        flags: 0,
        start: range.start,
        end: range.end,
        walk_end: 0,
        vector: runs.as_mut_ptr() as u64,
        vector_length: runs.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: PAGE_IS_PRESENT,
        category_any_of_mask: 0,
        return_mask: PAGE_IS_PRESENT | PAGE_IS_ZERO | PAGE_IS_HUGE,
    };
    // SAFETY: the argument has the layout that its own `size` states; the vector is `runs`, with its true length, and lives
    // through the call. Without flags the call changes nothing but those two.
    let filled = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut argument) };
    usize::try_from(filled).map_err(|_| last_errno())
}

/// ioctl(2) with a structure that is read and written.
///
/// # Safety
/// `number` is of a request of type `T`, and whatever addresses the kernel takes out of it are of memory that the caller may have written.
pub(crate) unsafe fn ioctl<T>(fd: BorrowedFd<'_>, number: u64, argument: &mut T) -> Result<(), Errno> {
    // SAFETY: the argument lives through the call; the rest is the caller's promise.
    match unsafe { libc::ioctl(fd.as_raw_fd(), number as libc::c_ulong, argument as *mut T) } {
        -1 => Err(last_errno()),
        _ => Ok(()),
    }
}

/// Which threads a BPF iterator over tasks goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// All threads of all processes.
    All,
    /// This one, by its thread id.
    Thread(u32),
    /// All of this process.
    Process(u32),
}

/// Attaches a loaded program of the kind `iter/task` or `iter/task_vma` to some threads (6.1).
pub(crate) fn link_tasks(program: BorrowedFd<'_>, tasks: Tasks) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    match tasks {
        Tasks::All => {}
        Tasks::Thread(tid) => info.task.tid = tid,
        Tasks::Process(pid) => info.task.pid = pid,
    }
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        iter_info: &mut info,
        iter_info_len: size_of::<libbpf_sys::bpf_iter_link_info>() as u32,
        ..Default::default()
    };
    // SAFETY: the options and what they point to outlive the call, which only reads them.
    own_fd(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, libbpf_sys::BPF_TRACE_ITER, &options) })
}

/// Opens a linked BPF iterator at its beginning; reading it runs the program.
pub(crate) fn open_iterator(link: BorrowedFd<'_>) -> io::Result<File> {
    // SAFETY: the call takes a descriptor and returns a new one.
    own_fd(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) }).map(File::from)
}

/// How often the kernel left a loaded program out because it was running already on that CPU.
pub(crate) fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is as long as stated and lives through the call. Being zero, it asks for none of the lists that the
    // kernel would write elsewhere.
    let error = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast::<c_void>(), &mut bytes)
    };
    match error {
        0 => Ok(info.recursion_misses),
        negative => Err(io::Error::from_raw_os_error(-negative)),
    }
}
