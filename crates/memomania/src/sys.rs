//! System calls, raw: the C library's functions of these names are our own, and looking up the next ones would allocate.
//!
//! Addresses are plain numbers here. They are of memory that we have reserved or that the program passed to the function we stand in for;
//! no Rust reference ever points there, so that no call can break one. What the program does to its own memory is its own affair.

use std::fmt;

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Of a system call.
pub type Result<T> = std::result::Result<T, Errno>;

pub const ENOMEM: Errno = Errno(libc::ENOMEM);
pub const EINVAL: Errno = Errno(libc::EINVAL);
pub const EFAULT: Errno = Errno(libc::EFAULT);
pub const EEXIST: Errno = Errno(libc::EEXIST);

/// Any system call.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: i64, args: [usize; 6]) -> Result<usize> {
    let answer: isize;
    // SAFETY: the registers are those of the calling convention (syscall(2)); the caller answers for the arguments.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    checked(answer)
}

/// Any system call.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: i64, args: [usize; 6]) -> Result<usize> {
    let answer: isize;
    // SAFETY: the registers are those of the calling convention (syscall(2)); the caller answers for the arguments.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => answer,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    checked(answer)
}

/// What a system call answered, as a result.
pub fn checked(answer: isize) -> Result<usize> {
    match answer {
        -4095..=-1 => Err(Errno(-answer as i32)),
        _ => Ok(answer as usize),
    }
}

pub fn mmap(address: usize, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> Result<usize> {
    // SAFETY: see the module: addresses are ours or the program's.
    unsafe {
        let args = [
            address,
            length,
            protection as usize,
            flags as usize,
            fd as usize,
            offset as usize,
        ];
        call(libc::SYS_mmap, args)
    }
}

pub fn munmap(address: usize, length: usize) -> Result<usize> {
    // SAFETY: see the module.
    unsafe { call(libc::SYS_munmap, [address, length, 0, 0, 0, 0]) }
}

pub fn mprotect(address: usize, length: usize, protection: i32) -> Result<usize> {
    // SAFETY: see the module.
    unsafe { call(libc::SYS_mprotect, [address, length, protection as usize, 0, 0, 0]) }
}

pub fn madvise(address: usize, length: usize, advice: i32) -> Result<usize> {
    // SAFETY: see the module.
    unsafe { call(libc::SYS_madvise, [address, length, advice as usize, 0, 0, 0]) }
}

pub fn mremap(old: usize, old_length: usize, new_length: usize, flags: i32, new: usize) -> Result<usize> {
    // SAFETY: see the module.
    unsafe { call(libc::SYS_mremap, [old, old_length, new_length, flags as usize, new, 0]) }
}

/// Makes memory zeros. It must be mapped writable.
pub fn zero(address: usize, length: usize) {
    // SAFETY: see the module; the pool's map says that it is mapped writable, and nobody else uses free memory.
    unsafe { std::ptr::write_bytes(address as *mut u8, 0, length) }
}

/// Reads from memory, so that there is a page. It must be mapped readable.
pub fn touch(address: usize) {
    // SAFETY: see the module; the pool's map says that it is mapped readable.
    let _ = unsafe { std::ptr::read_volatile(address as *const u8) };
}

/// Copies memory. Both must be mapped, and not overlap.
pub fn copy(from: usize, to: usize, length: usize) {
    // SAFETY: see the module. The program may write to `from` meanwhile only by a race of its own.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, length) }
}

/// Memory is all zeros. It must be mapped readable, and the address aligned to 8.
pub fn is_zero(address: usize, length: usize) -> bool {
    let words = (0..length / 8).map(|index| {
        // SAFETY: see the module; the pool's map says that it is mapped readable.
        unsafe { std::ptr::read_volatile((address as *const u64).add(index)) }
    });
    words.fold(0, |all, word| all | word) == 0
}

/// Waits while the word is `value`, or a signal comes.
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: the word lives through the call.
    let _ = unsafe {
        call(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                libc::FUTEX_WAIT as usize,
                value as usize,
                0,
                0,
                0,
            ],
        )
    };
}

/// Wakes so many that wait for the word.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32, count: usize) {
    // SAFETY: the word lives through the call.
    let _ = unsafe {
        call(
            libc::SYS_futex,
            [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, count, 0, 0, 0],
        )
    };
}

/// This thread's number.
pub fn thread() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// This process's number.
pub fn process() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

/// Holds these signals back; answers those held back until now.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let (new, was) = (&raw const mask as usize, &raw mut old as usize);
    // SAFETY: both words live through the call; 8 is the size of the kernel's set.
    let _ = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, new, was, 8, 0, 0],
        )
    };
    old
}

/// Writes to a file descriptor, all that can be.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the bytes live through the call.
    unsafe {
        call(
            libc::SYS_write,
            [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0],
        )
    }
}

/// Reads from a file descriptor.
pub fn read(fd: i32, bytes: &mut [u8]) -> Result<usize> {
    // SAFETY: the bytes live through the call.
    unsafe {
        call(
            libc::SYS_read,
            [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0],
        )
    }
}

/// Opens a file; the path ends with a NUL.
pub fn open(path: &[u8], flags: i32) -> Result<i32> {
    if path.last() != Some(&0) {
        return Err(EINVAL);
    }
    let args = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        (flags | libc::O_CLOEXEC) as usize,
        0o666,
        0,
        0,
    ];
    // SAFETY: the path lives through the call and ends with a NUL.
    unsafe { call(libc::SYS_openat, args) }.map(|fd| fd as i32)
}

pub fn close(fd: i32) {
    // SAFETY: the descriptor is our own.
    let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Ends the process.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// This process has more threads than this one; true where that cannot be known.
pub fn has_threads() -> bool {
    // A folder's links: itself, its name in its parent, and one for each folder in it.
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let args = [
        libc::AT_FDCWD as usize,
        c"/proc/self/task".as_ptr() as usize,
        status.as_mut_ptr() as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the path ends with a NUL, and the kernel's struct has this type on 64-bit machines.
    let answer = unsafe { call(libc::SYS_newfstatat, args) };
    // SAFETY: zeros are a valid value of it.
    let links = unsafe { status.assume_init() }.st_nlink;
    answer.is_err() || links != 3
}

/// The machine's memory in bytes; 0 where that cannot be known.
pub fn memory() -> usize {
    let mut info = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the struct lives through the call.
    let answer = unsafe { call(libc::SYS_sysinfo, [info.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) };
    // SAFETY: zeros are a valid value of it.
    let info = unsafe { info.assume_init() };
    match answer {
        Ok(_) => (info.totalram as usize).saturating_mul(info.mem_unit as usize),
        Err(_) => 0,
    }
}

/// The limit of this process's address space in bytes.
pub fn address_space_limit() -> usize {
    let mut limit = [u64::MAX; 2];
    let args = [0, libc::RLIMIT_AS as usize, 0, limit.as_mut_ptr() as usize, 0, 0];
    // SAFETY: the two words live through the call.
    let _ = unsafe { call(libc::SYS_prlimit64, args) };
    usize::try_from(limit[0]).unwrap_or(usize::MAX)
}

/// Sets the kernel's own program break; answers what it is.
pub fn brk(address: usize) -> usize {
    // SAFETY: the program's own break, which it asks to be set.
    unsafe { call(libc::SYS_brk, [address, 0, 0, 0, 0, 0]) }.unwrap_or(0)
}

/// A pipe: the end to read and the end to write.
pub fn pipe() -> Result<(i32, i32)> {
    let mut ends = [0i32; 2];
    // SAFETY: the two numbers live through the call.
    unsafe {
        call(
            libc::SYS_pipe2,
            [ends.as_mut_ptr() as usize, libc::O_CLOEXEC as usize, 0, 0, 0, 0],
        )
    }?;
    Ok((ends[0], ends[1]))
}

/// A file in memory.
pub fn memory_file(name: &std::ffi::CStr) -> Result<i32> {
    let args = [name.as_ptr() as usize, libc::MFD_CLOEXEC as usize, 0, 0, 0, 0];
    // SAFETY: the name ends with a NUL and lives through the call.
    unsafe { call(libc::SYS_memfd_create, args) }.map(|fd| fd as i32)
}

/// Gives a file a length.
pub fn truncate(fd: i32, bytes: usize) -> Result<usize> {
    // SAFETY: takes numbers only.
    unsafe { call(libc::SYS_ftruncate, [fd as usize, bytes, 0, 0, 0, 0]) }
}

/// A userfaultfd.
pub fn userfaultfd(flags: i32) -> Result<i32> {
    // SAFETY: takes numbers only.
    unsafe { call(libc::SYS_userfaultfd, [flags as usize, 0, 0, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// An ioctl with a struct of words.
pub fn ioctl<const N: usize>(fd: i32, request: u64, words: &mut [u64; N]) -> Result<usize> {
    // SAFETY: the caller passes the struct of this request, which is made of words.
    unsafe {
        call(
            libc::SYS_ioctl,
            [fd as usize, request as usize, words.as_mut_ptr() as usize, 0, 0, 0],
        )
    }
}

/// The C library's error number of this thread.
pub fn errno() -> i32 {
    // SAFETY: the C library's own, for this thread.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(errno: i32) {
    // SAFETY: the C library's own, for this thread.
    unsafe { *libc::__errno_location() = errno }
}

/// A line of text without an allocation. What does not fit is cut.
pub struct Line {
    bytes: [u8; 4096],
    length: usize,
}

impl Line {
    pub const fn new() -> Self {
        Self {
            bytes: [0; 4096],
            length: 0,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}

/// Says something in one line on standard error.
pub fn tell(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = fmt::Write::write_fmt(&mut line, format_args!("memomania: {text}\n"));
    let _ = write(2, line.bytes());
}
