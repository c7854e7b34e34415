//! The system calls that no file replaces, each behind a safe function. All unsafe code of this crate's readers is here.
//!
//! Calls that rustix has are taken from there; the rest goes through libc.

mod inherited;
mod pages;
mod peer;
mod scratch;
mod thp;
pub mod trace;
mod usage;
mod user;
mod writer;

pub use inherited::{inherited_listeners, Listener};
pub use pages::*;
pub use peer::{group, peer, Peer};
pub use scratch::Scratch;
pub use thp::{can_except_advised, disable_thp_before_exec, own_thp_disable, ThpDisable};
pub use usage::{ended_children, EndedChildren};
pub use user::{before_exec, reserve_before_exec, User};
pub use writer::Writer;

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use rustix::thread::CapabilitySet;
use rustix::time::{clock_gettime, ClockId};

/// What `process_madvise(2)` is to do with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Madvise {
    /// MADV_COLD (5.4): clears accessed bits and moves pages to the inactive list; splits huge pages that the range covers
    /// only in part.
    Cold = 20,
    /// MADV_PAGEOUT (5.4): reclaims the pages now.
    PageOut = 21,
    /// MADV_COLLAPSE (6.1): makes huge pages, now and in our time.
    Collapse = 25,
}

/// Advises on one range of another process's memory, both in bytes. Answers how many bytes it got through.
///
/// Needs CAP_SYS_NICE and the right to ptrace the process for reading.
///
/// # Errors
/// EPERM, ESRCH, EINVAL for a range or advice the kernel refuses, and those of the advice itself.
pub fn process_madvise(
    pidfd: BorrowedFd<'_>,
    address: u64,
    length_bytes: u64,
    advice: Madvise,
) -> Result<usize, Errno> {
    let end = address.checked_add(length_bytes).ok_or(Errno::INVAL)?;
    process_madvise_ranges(pidfd, std::slice::from_ref(&(address..end)), advice)
}

/// Advises on up to 1024 ranges of addresses in one call. The kernel stops at the first failure: an error only if it was
/// in the first range, the number of bytes before it otherwise. Keep the sum below 1 GB: past 2 GB the kernel cuts it.
///
/// # Errors
/// As [`process_madvise`].
pub fn process_madvise_ranges(pidfd: BorrowedFd<'_>, ranges: &[Range<u64>], advice: Madvise) -> Result<usize, Errno> {
    let vector: Vec<libc::iovec> = ranges
        .iter()
        .map(|range| libc::iovec {
            iov_base: range.start as usize as *mut c_void,
            iov_len: range.end.saturating_sub(range.start) as usize,
        })
        .collect();
    // SAFETY: the vector lives through the call and its length is given. Its addresses are another process's: the kernel
    // checks them, and none of the three kinds of advice changes what the memory holds.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            vector.as_ptr(),
            vector.len(),
            advice as i32,
            0u32,
        )
    };
    usize::try_from(advised).map_err(|_| last_errno())
}

/// Opens a handle on a process (5.3) that never means another one, even when the PID is used again.
///
/// # Errors
/// ESRCH, EMFILE, and EINVAL or ENOENT (6.16) for a thread that is no leader.
pub fn pidfd_open(pid: u32) -> Result<OwnedFd, Errno> {
    rustix::process::pidfd_open(pid_of(pid)?, PidfdFlags::empty())
}

/// Opens a handle on one thread (6.9); EINVAL on older kernels.
///
/// # Errors
/// ESRCH, EMFILE, and EINVAL before Linux 6.9.
pub fn pidfd_open_thread(tid: u32) -> Result<OwnedFd, Errno> {
    // PIDFD_THREAD is O_EXCL in the kernel's uapi/linux/pidfd.h.
    let thread = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
    rustix::process::pidfd_open(pid_of(tid)?, thread)
}

/// Whether the process is over: all of its threads, reaped by its parent or not. Waits for that at most `timeout`.
///
/// # Errors
/// EINTR, ENOMEM.
pub fn pidfd_ended(pidfd: BorrowedFd<'_>, timeout: Duration) -> Result<bool, Errno> {
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&timeout))?;
    Ok(fds[0].revents().intersects(PollFlags::IN | PollFlags::HUP))
}

/// Whether there is something to read, or nobody left to write, within this time.
pub fn is_readable(fd: BorrowedFd<'_>, most: Duration) -> bool {
    let timeout = Timespec::try_from(most).ok();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// The first real-time signal, with which `mega off` tells managers to stop. Programs give it no other meaning.
pub fn first_realtime_signal() -> Signal {
    // SAFETY: the C library keeps the real-time signals below SIGRTMIN to itself; from there on they are ours to use.
    unsafe { Signal::from_raw_unchecked(libc::SIGRTMIN()) }
}

/// Sends a signal to what the handle is for, and to nothing else.
///
/// # Errors
/// ESRCH once it has been reaped, EPERM.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    rustix::process::pidfd_send_signal(pidfd, signal)
}

/// The NUMA node that most of these pages of a process are on, of several the first: `move_pages(2)` that moves nothing. `None` where none
/// is present, or the kernel does not say.
pub fn node_of(pid: u32, addresses: &[u64]) -> Option<u32> {
    let pages: Vec<*mut c_void> = addresses
        .iter()
        .map(|address| *address as usize as *mut c_void)
        .collect();
    let mut status: Vec<libc::c_int> = vec![-1; pages.len()];
    // SAFETY: both lists live through the call and are as long as it is told; without target nodes it only writes `status`.
    let error = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            libc::pid_t::try_from(pid).ok()?,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<libc::c_int>(),
            status.as_mut_ptr(),
            0,
        )
    };
    let on = |node: i32| status.iter().filter(|other| **other == node).count();
    let nodes = status.iter().copied().filter(|node| *node >= 0);
    let most = nodes.max_by_key(|node| (on(*node), std::cmp::Reverse(*node)));
    (error == 0).then_some(most?)?.try_into().ok()
}

/// Whether two processes have one and the same address space (vfork, or clone with CLONE_VM): `kcmp(2)`, KCMP_VM.
///
/// Needs the right to ptrace both. ENOSYS on kernels without CONFIG_KCMP.
///
/// # Errors
/// ESRCH, EPERM without the right to ptrace both, ENOSYS without CONFIG_KCMP.
pub fn same_memory(a: u32, b: u32) -> Result<bool, Errno> {
    const KCMP_VM: libc::c_int = 1;
    let (a, b) = (pid_of(a)?, pid_of(b)?);
    // SAFETY: all arguments are numbers; nothing is written.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            a.as_raw_nonzero().get(),
            b.as_raw_nonzero().get(),
            KCMP_VM,
            0,
            0,
        )
    };
    match order {
        0 => Ok(true),
        -1 => Err(last_errno()),
        _ => Ok(false),
    }
}

/// Makes orphans among our descendants our children instead of init's: PR_SET_CHILD_SUBREAPER. They have to be waited for.
///
/// # Errors
/// None on Linux 3.4 and later.
pub fn become_subreaper() -> Result<(), Errno> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
}

/// Has the kernel send us this signal when the thread that started us ends: PR_SET_PDEATHSIG.
///
/// # Errors
/// EINVAL for a signal that does not exist.
pub fn die_with_parent(signal: Signal) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(signal))
}

/// The capabilities that are in effect for the calling thread.
///
/// # Errors
/// None in practice.
pub fn effective_capabilities() -> Result<CapabilitySet, Errno> {
    Ok(rustix::thread::capabilities(None)?.effective)
}

/// How many descriptors this process may have open (RLIMIT_NOFILE, soft); `u64::MAX` without a limit.
pub fn open_files_limit() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Sets the soft limit of open descriptors (RLIMIT_NOFILE) to this number, or to the hard limit where that is lower or `None` is given.
/// Answers the limit before. Async-signal-safe: may be called between fork and exec.
///
/// # Errors
/// None in practice: lowering, and raising up to the hard limit, is always allowed.
pub fn set_open_files_limit(soft: Option<u64>) -> Result<u64, Errno> {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let current = match (soft, before.maximum) {
        (Some(soft), Some(hard)) => Some(soft.min(hard)),
        (soft, hard) => soft.or(hard),
    };
    let maximum = before.maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    Ok(before.current.unwrap_or(u64::MAX))
}

/// Whether a signal is ignored by this process, as `nohup` has it for SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: plain memory that the call fills; without a new action it changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Processor time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// Processor time of this process, all threads.
pub fn process_cpu_time() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Time since some moment before the start; stands still while the machine sleeps.
pub fn monotonic() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// Size of a base page in bytes, as the kernel told this program.
pub fn base_page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Takes ownership of a descriptor that libbpf returned, or its error: a negative number.
fn own_fd(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn pid_of(pid: u32) -> Result<Pid, Errno> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rustix::fd::AsFd;

    use super::*;

    #[test]
    fn a_pid_that_cannot_be_is_no_process() {
        for pid in [0, u32::MAX, 1 << 31] {
            assert_eq!(pidfd_open(pid).unwrap_err(), Errno::SRCH);
            assert_eq!(same_memory(pid, 1).unwrap_err(), Errno::SRCH);
        }
    }

    #[test]
    fn we_have_the_same_memory_as_ourselves_and_have_not_ended() {
        let us = std::process::id();
        assert_eq!(same_memory(us, us), Ok(true));
        let pidfd = pidfd_open(us).unwrap();
        assert_eq!(pidfd_ended(pidfd.as_fd(), Duration::ZERO), Ok(false));
    }

    #[test]
    fn a_writer_writes_says_what_the_kernel_said_and_can_be_ended() {
        let mut file = tempfile::tempfile().unwrap();
        let writer = Writer::start(file.as_fd(), b"1").unwrap();
        let (said, _) = writer.finish();
        assert_eq!(said, Ok(()));
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "1");
        let unwritable = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(
            Writer::start(unwritable.as_fd(), b"1").unwrap().finish().0,
            Err(Errno::BADF)
        );
        // A full pipe takes no more: it waits until it is killed.
        let (_read, write) = rustix::pipe::pipe().unwrap();
        let full = vec![0u8; 1 << 20];
        let writer = Writer::start(write.as_fd(), &full).unwrap();
        assert_eq!(writer.ended(Duration::from_millis(50)), Ok(false));
        writer.kill();
        assert_eq!(writer.finish().0, Err(Errno::INTR));
        drop(Writer::start(write.as_fd(), b"1").unwrap());
    }

    #[test]
    fn clocks_go_forwards() {
        let (a, cpu) = (monotonic(), thread_cpu_time());
        let mut sum = 0u64;
        for i in 0..100_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        assert!(monotonic() > a && thread_cpu_time() > cpu && process_cpu_time() >= thread_cpu_time() - cpu);
    }

    #[test]
    fn the_node_of_a_page_that_is_present_is_known() {
        let mut memory = Scratch::map(8192).unwrap();
        let range = memory.range();
        let nodes = || node_of(std::process::id(), &[range.start, range.start + 4096]);
        assert_eq!(nodes(), None);
        memory.touch(range.start + 4096..range.end, 4096);
        // A kernel without NUMA has no such call.
        assert!(nodes().is_some() || !std::path::Path::new("/sys/devices/system/node/node0").exists());
    }

    #[test]
    fn a_range_that_wraps_is_refused_before_the_kernel_sees_it() {
        let pidfd = pidfd_open(std::process::id()).unwrap();
        let refused = process_madvise(pidfd.as_fd(), u64::MAX - 4095, 8192, Madvise::Cold);
        assert_eq!(refused, Err(Errno::INVAL));
    }

    #[test]
    fn pages_of_our_own_are_seen_present() {
        let page = base_page_bytes();
        let mut scratch = Scratch::map(page as usize * 8).unwrap();
        let range = scratch.range();
        scratch.touch(range.start + page..range.start + 3 * page, page as usize);
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut runs = [PageRun::default(); 8];
        match pagemap_scan(pagemap.as_fd(), range.clone(), &mut runs) {
            Ok(filled) => {
                assert_eq!(filled, 1);
                assert_eq!(
                    (runs[0].start, runs[0].end),
                    (range.start + page, range.start + 3 * page)
                );
                assert_eq!(runs[0].categories, PAGE_IS_PRESENT);
            }
            Err(Errno::NOTTY) => eprintln!("skipped: PAGEMAP_SCAN needs Linux 6.7"),
            Err(errno) => panic!("{errno}"),
        }
    }
}
