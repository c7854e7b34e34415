//! A write that may take as long as it likes, in a process of its own that can be ended.

use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Signal;

use super::{last_errno, pidfd_ended, pidfd_send_signal};

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
