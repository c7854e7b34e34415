//! The system calls that no file replaces, each behind a safe function. All unsafe code of this crate's readers is here.
//!
//! Calls that rustix has are taken from there; the rest goes through libc.

mod inherited;
mod peer;
mod thp;
mod usage;

pub use inherited::{inherited_listeners, Listener};
pub use peer::{group, peer, Peer};
pub use thp::{can_except_advised, disable_thp_before_exec, own_thp_disable, ThpDisable};
pub use usage::{ended_children, EndedChildren};

use std::ffi::{c_void, CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::NonNull;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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

/// The NUMA node that the first present one of these pages of a process is on: `move_pages(2)` that moves nothing. `None` where none is
/// present, or the kernel does not say.
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
    let nodes = status.into_iter().filter_map(|node| u32::try_from(node).ok());
    (error == 0).then_some(nodes)?.next()
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

/// A process of ours that writes one text into one file of the kernel's, so that a write that takes long can be ended: the kernel gives
/// compaction up, and taking memory offline, when the process is killed.
///
/// It has no exit signal: who waits for any child, as `mega run` does, does not see it. It dies with the thread that started it.
#[derive(Debug)]
pub struct Writer {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Writer {
    /// Starts it. The file is open for writing, the text short enough to be taken at once.
    ///
    /// # Errors
    /// What clone(2) says: EAGAIN, ENOMEM.
    pub fn start(file: BorrowedFd<'_>, text: &[u8]) -> Result<Self, Errno> {
        let (file, text, length) = (file.as_raw_fd(), text.as_ptr(), text.len());
        let mut pidfd: libc::c_int = -1;
        // The open files stay shared: a copy would keep locks and pipes of ours open.
        let flags = libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_PIDFD;
        // SAFETY: both sets are plain memory that the calls fill. Signals are kept from this thread only, and for the two calls only.
        let (all, mut before) = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            (all, std::mem::zeroed::<libc::sigset_t>())
        };
        // SAFETY: the sets live through the call. No handler of ours is to run in the child, which inherits this.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) };
        // SAFETY: without CLONE_VM and without a stack of its own this is fork, with the pidfd stored where we say.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, &mut pidfd, 0usize, 0usize) };
        if pid == 0 {
            // SAFETY: system calls only, with memory that the child has a copy of: other threads of ours, and locks that they hold, are
            // not there. It never returns.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::prctl(libc::PR_SET_NAME, c"mega-compact".as_ptr());
                let written = libc::write(file, text.cast(), length);
                libc::_exit(if written == -1 {
                    *libc::__errno_location() & 0xff
                } else {
                    0
                });
            }
        }
        let errno = last_errno();
        // SAFETY: the set is the one that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        if pid < 0 {
            return Err(errno);
        }
        Ok(Self {
            pid: pid as libc::pid_t,
            // SAFETY: the kernel has just made this descriptor for us.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
            reaped: false,
        })
    }

    /// Whether it has ended. Waits for that at most `timeout`.
    ///
    /// # Errors
    /// EINTR, ENOMEM.
    pub fn ended(&self, timeout: Duration) -> Result<bool, Errno> {
        pidfd_ended(self.pidfd.as_fd(), timeout)
    }

    /// Kills it, if it has not ended.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(self.pidfd.as_fd(), Signal::KILL);
    }

    /// Waits for its end. Answers what the write said (EINTR: it was killed) and the processor time it took.
    pub fn finish(mut self) -> (Result<(), Errno>, Duration) {
        self.reap()
    }

    fn reap(&mut self) -> (Result<(), Errno>, Duration) {
        self.reaped = true;
        let mut status = 0;
        // SAFETY: plain memory, which the call fills.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: both live through the call. The PID is our child's until this succeeds.
            let waited = unsafe { libc::wait4(self.pid, &mut status, libc::__WALL, &mut usage) };
            match waited {
                -1 if last_errno() == Errno::INTR => {}
                -1 => return (Err(last_errno()), Duration::ZERO),
                _ => break,
            }
        }
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        let cpu = time(usage.ru_utime) + time(usage.ru_stime);
        let said = match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
            Some(0) => Ok(()),
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Err(Errno::INTR),
        };
        (said, cpu)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.reap();
        }
    }
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

/// Whom a command is to run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
    /// Home folder.
    pub home: PathBuf,
}

impl User {
    /// The user of this name or number; `None` when there is none.
    pub fn find(name: &str) -> Option<Self> {
        let mut buffer = vec![0u8; 64 << 10];
        // SAFETY: plain memory that the calls fill.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let c_name = CString::new(name).ok()?;
        let (text, bytes) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the name ends in NUL, and all buffers live through the call, with their true lengths.
        let mut error = unsafe { libc::getpwnam_r(c_name.as_ptr(), &mut entry, text, bytes, &mut found) };
        if let (true, Ok(uid)) = (found.is_null(), name.parse()) {
            // SAFETY: as above.
            error = unsafe { libc::getpwuid_r(uid, &mut entry, text, bytes, &mut found) };
        }
        if error != 0 || found.is_null() {
            return None;
        }
        let mut groups: Vec<libc::gid_t> = vec![0; 1024];
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the entry was filled in above and points into `buffer`; the list has room for `count` groups.
        let (name, home) = unsafe {
            if libc::getgrouplist(entry.pw_name, entry.pw_gid, groups.as_mut_ptr(), &mut count) < 0 {
                return None;
            }
            (CStr::from_ptr(entry.pw_name), CStr::from_ptr(entry.pw_dir))
        };
        groups.truncate(usize::try_from(count).ok()?);
        Some(Self {
            name: name.to_str().ok()?.to_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            groups,
            home: OsStr::from_bytes(home.to_bytes()).into(),
        })
    }
}

/// Has a command run as this user (groups, group, user, and HOME, USER and LOGNAME), and with this soft limit of open files.
pub fn before_exec(command: &mut Command, user: Option<User>, open_files: Option<u64>) {
    if let Some(user) = &user {
        command.env("HOME", &user.home);
        command.env("USER", &user.name).env("LOGNAME", &user.name);
    }
    let check = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: between fork and exec the closure makes system calls only, on memory that the child has a copy of.
    unsafe {
        command.pre_exec(move || {
            if let Some(soft) = open_files {
                set_open_files_limit(Some(soft))?;
            }
            if let Some(user) = &user {
                check(libc::setgroups(user.groups.len(), user.groups.as_ptr()))?;
                check(libc::setresgid(user.gid, user.gid, user.gid))?;
                check(libc::setresuid(user.uid, user.uid, user.uid))?;
            }
            Ok(())
        });
    }
}

/// Has the command ask for reservations of huge pages (PR_SET_THP_RESERVE of `kernel/reservation`) before it runs.
pub fn reserve_before_exec(command: &mut Command, threshold: u32) {
    const PR_SET_THP_RESERVE: libc::c_int = 0x5448_5052;
    // SAFETY: between fork and exec the closure makes one system call, which takes no pointer.
    unsafe {
        command.pre_exec(
            move || match libc::prctl(PR_SET_THP_RESERVE, libc::c_ulong::from(threshold), 0, 0, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
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

/// A private anonymous mapping of our own, to try out on ourselves what we do to others.
#[derive(Debug)]
pub struct Scratch {
    start: NonNull<c_void>,
    bytes: usize,
}

impl Scratch {
    /// Maps this many bytes, untouched.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn map(bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory that is in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// Its addresses.
    pub fn range(&self) -> Range<u64> {
        let start = self.start.as_ptr() as u64;
        start..start + self.bytes as u64
    }

    /// Writes one byte at every address of `step` within `range`, which must be inside.
    pub fn touch(&mut self, range: Range<u64>, step: usize) {
        let own = self.range();
        assert!(own.start <= range.start && range.end <= own.end, "touch outside");
        for address in range.step_by(step.max(1)) {
            let offset = (address - own.start) as usize;
            // SAFETY: the offset is inside the mapping, which is writable and which nobody else points into.
            unsafe { self.start.as_ptr().cast::<u8>().add(offset).write_volatile(1) };
        }
    }

    /// Adds to `count` bytes anywhere in it. Where they are does not depend on what is read, so that the processor looks several up at once;
    /// `chained`, each place depends on what was read at the one before.
    pub fn update_at_random(&mut self, count: u64, chained: bool) {
        let places = self.bytes as u64;
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..if places == 0 { 0 } else { count } {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let offset = ((u128::from(state) * u128::from(places)) >> 64) as usize;
            // SAFETY: the offset is inside the mapping, which is writable and which nobody else points into.
            let had = unsafe {
                let byte = self.start.as_ptr().cast::<u8>().add(offset);
                let had = byte.read_volatile();
                byte.write_volatile(had.wrapping_add(1));
                had
            };
            if chained {
                state = state.wrapping_add(u64::from(had));
            }
        }
    }

    /// madvise(2) on all of it, with one of libc's MADV_ numbers that leave the content alone.
    ///
    /// # Errors
    /// As madvise(2).
    pub fn advise(&self, advice: libc::c_int) -> Result<(), Errno> {
        // SAFETY: the range is our own mapping; whatever the advice does to its content, nobody else relies on it.
        match unsafe { libc::madvise(self.start.as_ptr(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// mlock(2) on all of it.
    ///
    /// # Errors
    /// As mlock(2): ENOMEM past RLIMIT_MEMLOCK.
    pub fn lock(&self) -> Result<(), Errno> {
        // SAFETY: the range is our own mapping, and locking does not change it.
        match unsafe { libc::mlock(self.start.as_ptr(), self.bytes) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made by `map`, and nothing borrowed from it can outlive `self`.
        unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}

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
