//! One process, held so that it is never mistaken for another.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mega_core::observe::ProcessId;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::deadline;
use crate::error::Error;
use crate::proc::{stat, task, ProcRoot};
use crate::sys;

pub mod family;
pub mod select;
pub mod tasks;

/// Why a process cannot be held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no such process, or it ended meanwhile.
    #[error("process {pid}: no such process")]
    Gone {
        /// Which.
        pid: u32,
    },
    /// A thread of the kernel's own.
    #[error("process {pid} ({comm}): a kernel thread, which has no memory of its own")]
    KernelThread {
        /// Which.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// It is a thread's number and not a process's.
    #[error("process {pid}: a thread of another process; give that process's PID")]
    Thread {
        /// Which.
        pid: u32,
    },
    /// No handle on it can be had.
    #[error("process {pid}: cannot open a handle (pidfd): {errno}")]
    Handle {
        /// Which.
        pid: u32,
        /// What the kernel said.
        errno: Errno,
    },
    /// A file of it cannot be read.
    #[error(transparent)]
    Read(#[from] Error),
}

impl ProcessError {
    /// The process is not there (any more).
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Gone { .. } => true,
            Self::Read(error) => error.is_gone(),
            _ => false,
        }
    }
}

/// One process, by a handle that does not pass to whoever gets its PID next.
pub struct Process {
    pid: u32,
    start_ticks: u64,
    parent: u32,
    is_exiting: bool,
    pidfd: Arc<OwnedFd>,
}

impl Process {
    /// Takes hold of the process with this PID.
    ///
    /// Whom the handle is for is settled first; then the start time is read; and if the handle's process still lives after
    /// that, the PID was its own all the while, and so was the start time.
    ///
    /// # Errors
    /// There is no such process, it is a thread or a kernel thread, or EMFILE: see [`ProcessError`].
    pub fn open(root: &ProcRoot, pid: u32) -> Result<Self, ProcessError> {
        let pidfd = sys::pidfd_open(pid).map_err(|errno| match errno {
            Errno::SRCH => ProcessError::Gone { pid },
            // The number of a thread that leads no group: EINVAL before 6.16, ENOENT since.
            Errno::INVAL | Errno::NOENT => ProcessError::Thread { pid },
            errno => ProcessError::Handle { pid, errno },
        })?;
        let stat = match stat::read(root, pid) {
            Ok(stat) => stat,
            Err(error) if error.is_gone() => return Err(ProcessError::Gone { pid }),
            Err(error) => return Err(error.into()),
        };
        if stat.is_kernel_thread() {
            return Err(ProcessError::KernelThread { pid, comm: stat.comm });
        }
        let process = Self {
            pid,
            start_ticks: stat.start_ticks,
            parent: stat.ppid,
            is_exiting: stat.is_exiting(),
            pidfd: Arc::new(pidfd),
        };
        if !process.is_alive() {
            return Err(ProcessError::Gone { pid });
        }
        Ok(process)
    }

    /// Its PID; another process's once this one has ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was started, in clock ticks (1/100 s) since boot.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Its parent when the handle was opened.
    pub fn parent(&self) -> u32 {
        self.parent
    }

    /// Its main thread was about to end, or had, when the handle was opened: the kernel shows none of its memory any more, and takes no
    /// advice for it, although other threads may live on.
    pub fn is_exiting(&self) -> bool {
        self.is_exiting
    }

    /// The core's name for it.
    pub fn id(&self) -> ProcessId {
        ProcessId {
            pid: self.pid,
            started: self.start_ticks,
        }
    }

    /// The handle: for `process_madvise`, and to be polled, which shows it readable once the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The same for a call that may outlast this (see [`crate::deadline`]).
    pub fn shared_pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }

    /// At least one of its threads lives. A zombie does not.
    pub fn is_alive(&self) -> bool {
        // Poll fails only for want of kernel memory; a process that ended says so at the next question.
        !sys::pidfd_ended(self.pidfd(), Duration::ZERO).unwrap_or(false)
    }

    /// Waits until it has ended, at most this long; tells whether it has.
    pub fn wait_ended(&self, timeout: Duration) -> bool {
        sys::pidfd_ended(self.pidfd(), timeout).unwrap_or(false)
    }

    /// Its name now, as in /proc/PID/stat; empty when it has ended.
    pub fn name(&self, root: &ProcRoot) -> String {
        self.read(|| stat::read(root, self.pid))
            .map_or_else(|_| String::new(), |stat| stat.comm)
    }

    /// Reads one of its files by PID, and makes sure afterwards that it was this process's and no later one's.
    ///
    /// # Errors
    /// [`ProcessError::Gone`] once it has ended, or what `read` says.
    pub fn read<T>(&self, read: impl FnOnce() -> crate::error::Result<T>) -> Result<T, ProcessError> {
        let result = read();
        if !self.is_alive() {
            return Err(ProcessError::Gone { pid: self.pid });
        }
        Ok(result?)
    }

    /// A thread that has the process's memory: the main one, unless it ended before the others. The files of an ended
    /// thread (maps, smaps ...) read empty: take those in /proc/PID/task/TID of this one.
    ///
    /// # Errors
    /// [`ProcessError::Gone`] once all of its threads have ended.
    pub fn living_thread(&self, root: &ProcRoot) -> Result<u32, ProcessError> {
        if !self.read(|| stat::read(root, self.pid))?.is_zombie() {
            return Ok(self.pid);
        }
        for tid in self.read(|| task::threads(root, self.pid))? {
            if stat::read_thread(root, self.pid, tid).is_ok_and(|stat| !stat.is_zombie()) {
                return Ok(tid);
            }
        }
        Err(ProcessError::Gone { pid: self.pid })
    }

    /// Has the same address space as the other (vfork before exec, or clone with CLONE_VM). False where the kernel cannot
    /// say.
    pub fn shares_memory_with(&self, other: &Self) -> bool {
        same_memory(self.pid, other.pid) && self.is_alive() && other.is_alive()
    }
}

/// Whether two processes have the same address space, as far as the kernel says so in time: `kcmp` waits for an exec that waits for an
/// address space.
pub fn same_memory(pid: u32, other: u32) -> bool {
    let asked = deadline::within(pid, deadline::CALL, move || sys::same_memory(pid, other));
    asked.is_ok_and(|same| same.unwrap_or(false))
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({}, started {})", self.pid, self.start_ticks)
    }
}
