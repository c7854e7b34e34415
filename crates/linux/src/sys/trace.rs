//! A process that is traced from before its exec on: ptrace(2) and process_vm_writev(2), on x86-64.
//!
//! All calls have to come from the thread that has begun to trace.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};

use super::last_errno;

pub use libc::user_fpregs_struct as Vectors;
pub use libc::user_regs_struct as Registers;

/// Has a process of its own trace this one, so that it can follow it through its next exec: a grandchild, which nobody here has to reap.
/// No signal disturbs it, and it ends when `follow` returns.
///
/// # Errors
/// EBUSY where this process has several threads: a fork could not go on then. EPERM where it may not be traced; those of fork and pipe.
pub fn be_followed(follow: impl FnOnce(Tracee)) -> Result<(), Errno> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(|_| Errno::NOENT)?;
    if threads.count() != 1 {
        return Err(Errno::BUSY);
    }
    let us = std::process::id();
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (may_read, may_write) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: there is one thread, so its child may do whatever it likes.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(last_errno()),
        0 => {
            // SAFETY: as above.
            if unsafe { libc::fork() } != 0 {
                // SAFETY: ends the child without running anything of the parent's.
                unsafe { libc::_exit(0) };
            }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for that child.
            while unsafe { libc::waitpid(child, &mut status, 0) } == -1 && last_errno() == Errno::INTR {}
            drop(write);
            let mut number = [0u8; 4];
            read_all(&read, &mut number)?;
            // Yama lets nobody trace his ancestor unless that allows it; without Yama it is EINVAL.
            // SAFETY: the argument is a number.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(u32::from_le_bytes(number))) };
            rustix::io::write(&may_write, b".")?;
            let mut answer = [0u8; 4];
            read_all(&read, &mut answer)?;
            return match i32::from_le_bytes(answer) {
                0 => Ok(()),
                error => Err(Errno::from_raw_os_error(error)),
            };
        }
    }
    drop((read, may_write));
    block_signals();
    let begun = rustix::io::write(&write, &std::process::id().to_le_bytes())
        .and_then(|_| read_all(&may_read, &mut [0]))
        .and_then(|()| Tracee::seize(us));
    let error = begun.as_ref().err().map_or(0, |error| error.raw_os_error());
    let said = rustix::io::write(&write, &error.to_le_bytes());
    // Whoever waits for the end of the command's output does not wait for us.
    // SAFETY: no descriptor is used any more; those that are owned here are never dropped.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
    if let (Ok(traced), Ok(_)) = (begun, said) {
        follow(traced);
    }
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

fn read_all(from: &OwnedFd, to: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(from, rest) {
            Ok(0) => return Err(Errno::PIPE),
            Ok(more) => done += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn block_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the set is filled in before it is used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// What the traced process has stopped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It has become another program, none of which has run yet.
    Exec,
    /// It is about to make this system call, of x86-64.
    Enters(u64),
    /// It has made one.
    Leaves,
    /// It is about to get this signal.
    Signal(i32),
    /// It was stopped by a signal.
    Halted,
    /// Something else that asks for nothing.
    Other,
    /// It has ended.
    Ended,
}

/// A traced process.
#[derive(Debug)]
pub struct Tracee {
    pid: libc::pid_t,
}

/// `audit_arch` of x86-64 (uapi/linux/audit.h).
const X86_64: u32 = 0xC000_003E;

impl Tracee {
    /// Begins to trace a process, which goes on meanwhile.
    fn seize(pid: u32) -> Result<Self, Errno> {
        let traced = Self {
            pid: libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?,
        };
        let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD;
        traced.request(libc::PTRACE_SEIZE, 0, options as usize)?;
        Ok(traced)
    }

    /// A request with two numbers.
    fn request(&self, request: libc::c_uint, address: usize, data: usize) -> Result<(), Errno> {
        // SAFETY: for the requests made here both are numbers, or `data` is memory that lives through the call.
        match unsafe { libc::ptrace(request, self.pid, address as *mut c_void, data as *mut c_void) } {
            -1 => Err(last_errno()),
            _ => Ok(()),
        }
    }

    /// Goes on to its next system call, or the end of the one that it is in, with this signal (0: none).
    ///
    /// # Errors
    /// ESRCH where it was killed.
    pub fn to_next_call(&self, signal: i32) -> Result<(), Errno> {
        self.request(libc::PTRACE_SYSCALL, 0, signal as usize)
    }

    /// Goes on, system calls and all.
    ///
    /// # Errors
    /// ESRCH where it was killed.
    pub fn go_on(&self) -> Result<(), Errno> {
        self.request(libc::PTRACE_CONT, 0, 0)
    }

    /// Leaves it stopped as the signal wants it, and waits for the next.
    ///
    /// # Errors
    /// ESRCH where it was killed.
    pub fn listen(&self) -> Result<(), Errno> {
        self.request(libc::PTRACE_LISTEN, 0, 0)
    }

    /// Lets go of it.
    ///
    /// # Errors
    /// ESRCH where it was killed.
    pub fn detach(self) -> Result<(), Errno> {
        self.request(libc::PTRACE_DETACH, 0, 0)
    }

    /// Sends it a signal. Its number is its own as long as it is traced.
    pub fn send(&self, signal: i32) {
        // SAFETY: sends a signal.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Waits for its next stop.
    ///
    /// # Errors
    /// ECHILD where it is not traced any more.
    pub fn wait(&self) -> Result<Stop, Errno> {
        let mut status = 0;
        loop {
            // SAFETY: the kernel writes the status.
            match unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } {
                -1 if last_errno() == Errno::INTR => {}
                -1 => return Err(last_errno()),
                _ => break,
            }
        }
        if !libc::WIFSTOPPED(status) {
            return Ok(Stop::Ended);
        }
        const CALL: i32 = libc::SIGTRAP | 0x80;
        Ok(match (status >> 16, libc::WSTOPSIG(status)) {
            (libc::PTRACE_EVENT_EXEC, _) => Stop::Exec,
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Stop::Other,
            (libc::PTRACE_EVENT_STOP, _) => Stop::Halted,
            (0, CALL) => self.call_stop()?,
            (0, signal) => Stop::Signal(signal),
            _ => Stop::Other,
        })
    }

    fn call_stop(&self) -> Result<Stop, Errno> {
        let mut seen = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
        let (size, at) = (size_of_val(&seen), seen.as_mut_ptr() as usize);
        self.request(libc::PTRACE_GET_SYSCALL_INFO, size, at)?;
        // SAFETY: zero, or what the kernel wrote.
        let seen = unsafe { seen.assume_init() };
        Ok(match seen.op {
            // SAFETY: the kernel says that it is this one.
            libc::PTRACE_SYSCALL_INFO_ENTRY if seen.arch == X86_64 => Stop::Enters(unsafe { seen.u.entry.nr }),
            libc::PTRACE_SYSCALL_INFO_EXIT => Stop::Leaves,
            _ => Stop::Other,
        })
    }

    /// Its registers.
    ///
    /// # Errors
    /// ESRCH where it does not stand still.
    pub fn registers(&self) -> Result<Registers, Errno> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        self.request(libc::PTRACE_GETREGS, 0, registers.as_mut_ptr() as usize)?;
        // SAFETY: all of them are numbers, and the kernel has written them.
        Ok(unsafe { registers.assume_init() })
    }

    /// Sets its registers.
    ///
    /// # Errors
    /// EIO for what a program may not have in them; ESRCH.
    pub fn set_registers(&self, registers: &Registers) -> Result<(), Errno> {
        self.request(libc::PTRACE_SETREGS, 0, std::ptr::from_ref(registers) as usize)
    }

    /// Its registers for floating-point numbers and vectors.
    ///
    /// # Errors
    /// ESRCH where it does not stand still.
    pub fn vectors(&self) -> Result<Vectors, Errno> {
        let mut vectors = MaybeUninit::<Vectors>::zeroed();
        self.request(libc::PTRACE_GETFPREGS, 0, vectors.as_mut_ptr() as usize)?;
        // SAFETY: all of them are numbers, and the kernel has written them.
        Ok(unsafe { vectors.assume_init() })
    }

    /// Sets them.
    ///
    /// # Errors
    /// ESRCH.
    pub fn set_vectors(&self, vectors: &Vectors) -> Result<(), Errno> {
        self.request(libc::PTRACE_SETFPREGS, 0, std::ptr::from_ref(vectors) as usize)
    }

    /// Two bytes of its memory, read as it would execute them.
    ///
    /// # Errors
    /// EIO where nothing is mapped.
    pub fn code(&self, address: u64) -> Result<[u8; 2], Errno> {
        let (mut bytes, from) = ([0u8; 2], address as usize as *mut c_void);
        let to = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let from = libc::iovec {
            iov_base: from,
            iov_len: bytes.len(),
        };
        // SAFETY: the kernel writes the two bytes, and checks the other process's address.
        let read = unsafe { libc::process_vm_readv(self.pid, &to, 1, &from, 1, 0) };
        if read == 2 {
            Ok(bytes)
        } else {
            Err(Errno::IO)
        }
    }

    /// Eight bytes of its memory.
    ///
    /// # Errors
    /// EIO where nothing is mapped.
    pub fn word(&self, address: u64) -> Result<u64, Errno> {
        let mut word = 0u64;
        // PTRACE_PEEKDATA itself, not as the C library has it, writes the word to `data`.
        // SAFETY: the kernel writes the word.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_ptrace,
                libc::PTRACE_PEEKDATA,
                self.pid,
                address,
                std::ptr::from_mut(&mut word),
            )
        };
        if answer == 0 {
            Ok(word)
        } else {
            Err(last_errno())
        }
    }

    /// Writes eight bytes of its memory, even where it may not itself.
    ///
    /// # Errors
    /// EIO where nothing is mapped.
    pub fn set_word(&self, address: u64, word: u64) -> Result<(), Errno> {
        self.request(libc::PTRACE_POKEDATA, address as usize, word as usize)
    }

    /// The file that it runs.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn program(&self) -> io::Result<File> {
        File::open(format!("/proc/{}/exe", self.pid))
    }

    /// Where the kernel has put the first instruction of what it runs.
    ///
    /// # Errors
    /// ENOENT where /proc does not say it.
    pub fn entry(&self) -> Result<u64, Errno> {
        const AT_ENTRY: u64 = 9;
        let told = std::fs::read(format!("/proc/{}/auxv", self.pid)).map_err(|_| Errno::NOENT)?;
        let words = told
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
        let words: Vec<u64> = words.collect();
        let pair = words.chunks_exact(2).find(|pair| pair.first() == Some(&AT_ENTRY));
        pair.and_then(|pair| pair.get(1).copied()).ok_or(Errno::NOENT)
    }

    /// Writes to its memory.
    ///
    /// # Errors
    /// EFAULT where it may not be written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let from = [IoSlice::new(bytes)];
        let to = libc::iovec {
            iov_base: address as usize as *mut c_void,
            iov_len: bytes.len(),
        };
        // SAFETY: `IoSlice` is an iovec by its documentation; the kernel checks the other process's address.
        let written = unsafe { libc::process_vm_writev(self.pid, from.as_ptr().cast(), 1, &to, 1, 0) };
        match usize::try_from(written) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(Errno::FAULT),
            Err(_) => Err(last_errno()),
        }
    }
}
