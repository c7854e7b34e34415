//! Promoting, demoting and ageing through `process_madvise(2)`, one region or one short run of regions at a time.
//!
//! What the calls do on Linux, and the traps:
//! - A collapse copies under `mmap_lock`, held for writing: see [`warm`] for what happens where a virtual machine's host does not
//!   back the block that it copies to.
//! - `MADV_COLLAPSE` (6.1) promotes, whatever `transparent_hugepage/enabled` says, but not where the mapping has
//!   `MADV_NOHUGEPAGE`. It compacts memory by itself when blocks are short.
//! - `MADV_COLD` on a part of a huge page has to split it; one base page is enough. From 6.12 on the split gives zero-filled base
//!   pages back. Pages shared through fork are skipped in silence, locked ones refused.
//! - The same splits a huge page of which a part is unmapped, and frees that part.
//! - `MADV_COLD` on whole regions clears their accessed bits and flushes the TLB. A range over 2 GB is cut short by the kernel and its
//!   last huge page split, so ranges are kept far below.

use std::time::Instant;

use mega_core::action::{ActionKind, Call, CallError};
use mega_core::observe::Region;
use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use super::warm;
use crate::deadline;
use crate::process::Process;
use crate::sys::{process_madvise, Madvise};

/// Promotes or demotes one region of a process, within a deadline: a process may hold its address space locked.
pub fn act(process: &Process, kind: ActionKind, region: Region) -> Call {
    let (pidfd, began) = (process.shared_pidfd(), Instant::now());
    let called = deadline::within(process.pid(), deadline::CALL, move || {
        act_now(pidfd.as_fd(), kind, region)
    });
    // Not known what it came to, or will: the next look at the page tables says.
    called.unwrap_or_else(|_| Call {
        error: Some(CallError::Busy),
        took: began.elapsed(),
        stall: None,
    })
}

/// Splits the huge pages that the base pages at these addresses are parts of, within a deadline.
pub fn split(process: &Process, pages: Vec<u64>) -> Call {
    let (pidfd, began) = (process.shared_pidfd(), Instant::now());
    let called = deadline::within(process.pid(), deadline::CALL, move || {
        let cold = |page| process_madvise(pidfd.as_fd(), page, BASE_PAGE_BYTES, Madvise::Cold);
        pages.into_iter().find_map(|page| cold(page).err())
    });
    let error = called.map_or(Some(CallError::Busy), |errno| {
        errno.map(|errno| call_error(ActionKind::Demote, errno))
    });
    Call {
        error,
        took: began.elapsed(),
        stall: None,
    }
}

/// Promotes or demotes one region, in this thread.
fn act_now(pidfd: BorrowedFd<'_>, kind: ActionKind, region: Region) -> Call {
    let (length, advice) = match kind {
        ActionKind::Promote => (HUGE_PAGE_BYTES, Madvise::Collapse),
        ActionKind::Demote => (BASE_PAGE_BYTES, Madvise::Cold),
    };
    let is_touched = kind == ActionKind::Promote && warm::touch();
    let began = Instant::now();
    let result = process_madvise(pidfd, region.address(), length, advice);
    let took = began.elapsed();
    if kind == ActionKind::Promote && result.is_ok() {
        warm::collapsed(took, is_touched);
    }
    Call {
        error: result.err().map(|errno| call_error(kind, errno)),
        took,
        stall: None,
    }
}

/// What an errno of `process_madvise` means for an action (mm/khugepaged.c, `madvise_collapse_errno`; mm/madvise.c).
fn call_error(kind: ActionKind, errno: Errno) -> CallError {
    match errno {
        // A full memory cgroup makes collapse say EBUSY.
        Errno::BUSY if kind == ActionKind::Promote => CallError::NoMemory,
        Errno::NOMEM if kind == ActionKind::Promote => CallError::NoMemory,
        // For the other calls ENOMEM is a hole in the range.
        Errno::NOMEM | Errno::SRCH => CallError::Gone,
        Errno::AGAIN | Errno::BUSY | Errno::INTR => CallError::Busy,
        Errno::INVAL => CallError::Refused,
        other => CallError::Other(other.raw_os_error()),
    }
}

/// Clears the accessed bits of `count` regions in a row, within a deadline.
///
/// # Errors
/// As [`age_now`]; EAGAIN where the process holds its address space locked.
pub fn age(process: &Process, first: Region, count: usize) -> Result<usize, Errno> {
    let pidfd = process.shared_pidfd();
    let called = deadline::within(process.pid(), deadline::CALL, move || {
        age_now(pidfd.as_fd(), first, count)
    });
    called.unwrap_or(Err(Errno::AGAIN))
}

/// Clears the accessed bits of `count` regions in a row, in this thread. Returns how many from the first on were reached; a hole in the range is no
/// hindrance for the rest.
///
/// # Errors
/// As `process_madvise(2)`: ESRCH for an ended process, EPERM without CAP_SYS_NICE, EINVAL where the mapping is locked.
fn age_now(pidfd: BorrowedFd<'_>, first: Region, count: usize) -> Result<usize, Errno> {
    let length = count as u64 * HUGE_PAGE_BYTES;
    match process_madvise(pidfd, first.address(), length, Madvise::Cold) {
        Ok(advised) => Ok((advised as u64 / HUGE_PAGE_BYTES) as usize),
        Err(Errno::NOMEM) => Ok(count),
        Err(errno) => Err(errno),
    }
}
