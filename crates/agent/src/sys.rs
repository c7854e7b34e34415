//! System calls, raw: the helper shares the program's thread-locals or has none, so no C library function may run in it.
//!
//! Addresses of the program are plain numbers here: no Rust reference ever points there.

use core::arch::{asm, global_asm};

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

pub const EPERM: Errno = Errno(1);
pub const EIO: Errno = Errno(5);
pub const ENOMEM: Errno = Errno(12);
pub const EACCES: Errno = Errno(13);
pub const EFAULT: Errno = Errno(14);
pub const EBUSY: Errno = Errno(16);
pub const EINVAL: Errno = Errno(22);
pub const ENOSYS: Errno = Errno(38);

/// Numbers of the system calls that the helper uses after it has confined itself, and of those before.
pub mod number {
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const PREAD: usize = 17;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const FTRUNCATE: usize = 77;
    pub const CHDIR: usize = 80;
    pub const SETSID: usize = 112;
    pub const GETPID: usize = 39;
    pub const CAPSET: usize = 126;
    pub const PRCTL: usize = 157;
    pub const FUTEX: usize = 202;
    pub const SET_TID_ADDRESS: usize = 218;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const WAITID: usize = 247;
    pub const OPENAT: usize = 257;
    pub const SCHED_SETATTR: usize = 314;
    pub const SCHED_GETATTR: usize = 315;
    pub const SECCOMP: usize = 317;
    pub const CLOSE_RANGE: usize = 436;
}

/// `madvise`'s advice.
pub mod advice {
    /// Only of the helper's own region: see `helper/sandbox.rs`.
    pub const DONTNEED: usize = 4;
    pub const HUGEPAGE: usize = 14;
    pub const NOHUGEPAGE: usize = 15;
    pub const WIPEONFORK: usize = 18;
    pub const COLD: usize = 20;
    pub const POPULATE_WRITE: usize = 23;
    pub const COLLAPSE: usize = 25;
}

pub const O_RDONLY: usize = 0;
pub const O_RDWR_CREAT_CLOEXEC: usize = 0o2 | 0o100 | 0o2_000_000;
pub const O_NONBLOCK: usize = 0o4000;
pub const O_CLOEXEC: usize = 0o2_000_000;

pub const PR_SET_PDEATHSIG: usize = 1;
pub const PR_SET_NAME: usize = 15;
pub const PR_GET_NAME: usize = 16;
pub const PR_SET_TIMERSLACK: usize = 29;
pub const PR_SET_NO_NEW_PRIVS: usize = 38;
pub const PR_GET_TID_ADDRESS: usize = 40;
pub const PR_GET_THP_DISABLE: usize = 42;

pub const CLONE_VM: usize = 0x100;
pub const CLONE_FILES: usize = 0x400;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the agent knows the system calls of x86-64 alone");

/// Any system call.
///
/// # Safety
/// As the system call's.
pub unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize> {
    let answer: isize;
    let [a, b, c, d, e, f] = args;
    // SAFETY: the registers are those of the calling convention (syscall(2)); the caller answers for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    match answer {
        -4095..=-1 => Err(Errno(-answer as i32)),
        _ => Ok(answer as usize),
    }
}

// A process that shares our memory begins at the top of its own stack: it must not return into the caller's frame.
global_asm!(
    ".globl mega_agent_clone",
    ".hidden mega_agent_clone",
    "mega_agent_clone:", // rdi flags, rsi stack, rdx start, rcx argument
    "sub rsi, 16",
    "mov [rsi], rcx",
    "mov [rsi + 8], rdx",
    "xor edx, edx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "xor ebp, ebp",
    "pop rdi",
    "pop rax",
    "call rax",
    "ud2",
);

extern "C" {
    fn mega_agent_clone(flags: usize, stack: usize, start: extern "C" fn(usize) -> !, argument: usize) -> isize;
}

/// A new process or thread that begins with `start(argument)` on the stack that ends at `stack`.
///
/// # Safety
/// With `CLONE_VM`, the memory below `stack` must be the new process's alone while it lives.
pub unsafe fn clone(flags: usize, stack: usize, start: extern "C" fn(usize) -> !, argument: usize) -> Result<i32> {
    // SAFETY: the caller's.
    match unsafe { mega_agent_clone(flags, stack, start, argument) } {
        error @ -4095..=-1 => Err(Errno(-error as i32)),
        pid => Ok(pid as i32),
    }
}

pub fn exit_thread(status: usize) -> ! {
    loop {
        // SAFETY: ends this thread alone.
        let _ = unsafe { call(number::EXIT, [status, 0, 0, 0, 0, 0]) };
    }
}

pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { call(number::EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

pub fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { call(number::SCHED_YIELD, [0; 6]) };
}

pub fn getpid() -> i32 {
    // SAFETY: no arguments.
    unsafe { call(number::GETPID, [0; 6]) }.map_or(0, |pid| pid as i32)
}

/// Opens the file of this path, which ends with a NUL.
pub fn open(path: &[u8], flags: usize) -> Result<i32> {
    const AT_FDCWD: usize = -100isize as usize;
    if path.last() != Some(&0) {
        return Err(EINVAL);
    }
    // SAFETY: the path ends with a NUL.
    unsafe { call(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0o600, 0, 0]) }.map(|fd| fd as i32)
}

pub fn close(fd: i32) {
    // SAFETY: descriptors are numbers.
    let _ = unsafe { call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Gives the caller a table of descriptors of its own, with nothing in it.
pub fn close_all() -> Result<()> {
    const UNSHARE: usize = 1 << 1;
    // SAFETY: descriptors are numbers.
    unsafe { call(number::CLOSE_RANGE, [0, u32::MAX as usize, UNSHARE, 0, 0, 0]) }.map(drop)
}

/// Reads at an offset; returns what was read.
pub fn pread(fd: i32, into: &mut [u8], offset: u64) -> Result<&[u8]> {
    let (at, len) = (into.as_mut_ptr() as usize, into.len());
    // SAFETY: the buffer is ours and of this length.
    let read = unsafe { call(number::PREAD, [fd as usize, at, len, offset as usize, 0, 0]) }?;
    into.get(..read).ok_or(EIO)
}

/// # Safety
/// `argument` must point to what `request` wants.
pub unsafe fn ioctl(fd: i32, request: usize, argument: usize) -> Result<usize> {
    // SAFETY: the caller's.
    unsafe { call(number::IOCTL, [fd as usize, request, argument, 0, 0, 0]) }
}

/// # Safety
/// As the system call of this name.
pub unsafe fn mremap(old: usize, size: usize, new_size: usize, flags: i32, new: usize) -> Result<usize> {
    // SAFETY: the caller's.
    unsafe { call(number::MREMAP, [old, size, new_size, flags as usize, new, 0]) }
}

/// Advice that changes no contents: see [`advice`].
pub fn madvise(start: u64, bytes: u64, advice: usize) -> Result<()> {
    // SAFETY: none of the advices changes what the memory holds.
    unsafe { call(number::MADVISE, [start as usize, bytes as usize, advice, 0, 0, 0]) }.map(drop)
}

pub fn now_ns() -> u64 {
    const MONOTONIC: usize = 1;
    clock_ns(MONOTONIC)
}

/// Processor time of the caller: time that passes while others have the processor is not in it.
pub fn processor_ns() -> u64 {
    const THREAD_CPUTIME: usize = 3;
    clock_ns(THREAD_CPUTIME)
}

/// The processor time of all threads of a process.
pub fn processor_ns_of(pid: i32) -> u64 {
    const SCHEDULED: usize = 2;
    clock_ns((!(pid as usize) << 3) | SCHEDULED)
}

fn clock_ns(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: a timespec is two words.
    let _ = unsafe { call(number::CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let [seconds, nanoseconds] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// Sleeps while the word at this address holds `value`, for so long at most. The kernel's own wake at a thread's end
/// reaches it, so it is not the private kind.
///
/// # Safety
/// The word must be mapped.
pub unsafe fn futex_wait(word: usize, value: u32, ns: u64) {
    let time = [ns / 1_000_000_000, ns % 1_000_000_000];
    // SAFETY: the caller's; FUTEX_WAIT is 0.
    let _ = unsafe { call(number::FUTEX, [word, 0, value as usize, time.as_ptr() as usize, 0, 0]) };
}

/// Wakes whoever waits for the word at this address.
pub fn futex_wake(word: usize) {
    // SAFETY: the kernel checks the address; FUTEX_WAKE is 1.
    let _ = unsafe { call(number::FUTEX, [word, 1, i32::MAX as usize, 0, 0, 0]) };
}

/// # Safety
/// As the option's.
pub unsafe fn prctl(option: usize, argument: usize) -> Result<usize> {
    // SAFETY: the caller's.
    unsafe { call(number::PRCTL, [option, argument, 0, 0, 0, 0]) }
}

/// Sets the caller's slice to the shortest: a task that wakes may then preempt one with a longer slice, and gets no more
/// than its share of the processor (`PREEMPT_SHORT`, Linux 6.12).
pub fn run_in_short_slices() {
    const PR_GET_SECCOMP: usize = 21;
    /// The shortest that the kernel takes.
    const SLICE_NS: u64 = 100_000;
    const OTHER: u32 = 0;
    /// `struct sched_attr`, its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        slice_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    // SAFETY: asks only. A filter may kill whoever makes a call that it does not know.
    if unsafe { prctl(PR_GET_SECCOMP, 0) } != Ok(0) {
        return;
    }
    let mut now = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes no more than is said.
    let read = unsafe { call(number::SCHED_GETATTR, [0, &raw mut now as usize, size, 0, 0, 0]) };
    if read.is_ok() && now.policy == OTHER {
        let short = Attributes {
            slice_ns: SLICE_NS,
            ..now
        };
        // SAFETY: what was read, but for the slice. Older kernels take it for nothing.
        let _ = unsafe { call(number::SCHED_SETATTR, [0, &raw const short as usize, 0, 0, 0, 0]) };
    }
}

/// Sets the signals that are blocked; returns those that were.
pub fn block_signals(mask: u64) -> u64 {
    const SETMASK: usize = 2;
    let mut old = 0u64;
    let (new_at, old_at) = (&raw const mask as usize, &raw mut old as usize);
    // SAFETY: both are words of the size that is said.
    let _ = unsafe { call(number::SIGPROCMASK, [SETMASK, new_at, old_at, 8, 0, 0]) };
    old
}

/// Shared memory of a file.
pub fn map_shared(fd: Option<i32>, bytes: usize) -> Result<usize> {
    const READ_WRITE: usize = 3;
    const SHARED: usize = 1;
    const ANONYMOUS: usize = 0x20;
    let (flags, fd) = match fd {
        Some(fd) => (SHARED, fd as usize),
        None => (SHARED | ANONYMOUS, usize::MAX),
    };
    // SAFETY: a new mapping, where the kernel likes.
    unsafe { call(number::MMAP, [0, bytes, READ_WRITE, flags, fd, 0]) }
}

/// Private memory for a stack, with a page below it that faults.
pub fn map_stack(bytes: usize) -> Result<usize> {
    const GUARD: usize = 4096;
    let start = reserve(bytes + GUARD)?;
    // SAFETY: within what was just reserved.
    unsafe { map_at(start + GUARD, bytes) }.map(|start| start + bytes)
}

/// Maps this power of two of bytes, aligned to it, between addresses that nothing can be mapped at. Gives its start.
pub fn map_region(bytes: usize) -> Result<usize> {
    let start = reserve(2 * bytes + 1)?;
    let aligned = (start + bytes) & !(bytes - 1);
    // SAFETY: within what was just reserved.
    unsafe { map_at(aligned, bytes) }
}

const PRIVATE_ANONYMOUS: usize = 0x22;

/// Reserves addresses, where the kernel likes.
fn reserve(bytes: usize) -> Result<usize> {
    // SAFETY: a new mapping that nobody can use.
    unsafe { call(number::MMAP, [0, bytes, 0, PRIVATE_ANONYMOUS, usize::MAX, 0]) }
}

/// Maps memory at an address.
///
/// # Safety
/// Whatever is mapped there is replaced.
unsafe fn map_at(start: usize, bytes: usize) -> Result<usize> {
    const FIXED: usize = 0x10;
    const READ_WRITE: usize = 3;
    let args = [start, bytes, READ_WRITE, PRIVATE_ANONYMOUS | FIXED, usize::MAX, 0];
    // SAFETY: the caller's.
    unsafe { call(number::MMAP, args) }
}
