//! A mapping replaced by another with the same content, at once as far as other threads can see.
//!
//! Where other threads run, writes are held up by a userfaultfd that write-protects the old pages (hugetlb: Linux 5.19) while the content is
//! copied: a thread that writes waits, and goes on in the new pages. Then the new mapping is moved over the old one, in one
//! system call. Without the right to handle the kernel's own faults, a system call that writes there at that moment fails with EFAULT; that
//! right comes with CAP_SYS_PTRACE or `vm.unprivileged_userfaultfd`.
//!
//! The calling thread's own stack may be in there, if the program made it itself: it must neither wait for itself nor lose what it writes between
//! copy and move. Then all of that is done by a few instructions that use registers only.

use memomania_layout::page::BASE;

use crate::sys::{self, Result};

const USER_MODE_ONLY: i32 = 1;
const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const WRITE_PROTECT: u64 = 0xc018_aa06;
const VERSION: u64 = 0xaa;
const FEATURE_WRITE_PROTECT: u64 = 1;
const FEATURE_HUGETLB: u64 = 1 << 12;
const MODE_WRITE_PROTECT: u64 = 2;
const PROTECT: u64 = 1;

const MAYMOVE_FIXED: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;

/// Holds writers to some ranges back until dropped.
pub struct Held {
    fd: i32,
}

impl Held {
    /// Holds nobody yet.
    pub fn new() -> Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let fd = sys::userfaultfd(flags).or_else(|_| sys::userfaultfd(flags | USER_MODE_ONLY))?;
        let held = Self { fd };
        sys::ioctl(fd, API, &mut [VERSION, FEATURE_WRITE_PROTECT | FEATURE_HUGETLB, 0])?;
        Ok(held)
    }

    /// Holds writers to a range.
    pub fn hold(&self, address: usize, bytes: usize) -> Result<()> {
        let (start, length) = (address as u64, bytes as u64);
        sys::ioctl(self.fd, REGISTER, &mut [start, length, MODE_WRITE_PROTECT, 0])?;
        sys::ioctl(self.fd, WRITE_PROTECT, &mut [start, length, PROTECT])?;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The last one that closes it wakes whoever waits.
        sys::close(self.fd);
    }
}

/// Has `copy` fill the memory at `new`, and moves that over the memory at `old`. With `shared`, other threads may write to `old` meanwhile;
/// nothing has changed if that cannot be dealt with.
pub fn replace(old: usize, bytes: usize, new: usize, shared: bool, copy: impl FnOnce() -> Result<()>) -> Result<()> {
    let held = match shared {
        true => Some(Held::new()?),
        false => None,
    };
    if let Some(held) = &held {
        held.hold(old, bytes)?;
    }
    copy()?;
    place(new, bytes, old)
}

/// Moves a mapping over another one.
pub fn place(new: usize, bytes: usize, old: usize) -> Result<()> {
    sys::mremap(new, bytes, bytes, MAYMOVE_FIXED, old).map(|_| ())
}

/// Where this thread's stack is now, with room for calls to come.
#[inline(never)]
pub fn own_stack() -> (usize, usize) {
    const DEPTH: usize = 64 << 10;
    let here = 0u8;
    let here = std::hint::black_box(&raw const here as usize);
    let low = here.saturating_sub(DEPTH) / BASE * BASE;
    (low, low + 2 * DEPTH)
}

/// This thread's stack is there, or may soon be.
pub fn is_own_stack(old: usize, bytes: usize) -> bool {
    let (low, high) = own_stack();
    low < old + bytes && old < high
}

/// As [`replace`] with a copy of all the memory at `old`, which is readable and has this thread's stack.
#[cfg(target_arch = "x86_64")]
pub fn replace_own_stack(old: usize, bytes: usize, new: usize, shared: bool) -> Result<()> {
    let held = match shared {
        true => Some(Held::new()?),
        false => None,
    };
    let (start, length) = (old as u64, bytes as u64);
    if let Some(held) = &held {
        sys::ioctl(held.fd, REGISTER, &mut [start, length, MODE_WRITE_PROTECT, 0])?;
    }
    // To hold, and to let go if it comes to nothing.
    let orders = [start, length, PROTECT, start, length, 0];
    let answer: isize;
    // SAFETY: `old` is readable and `new` writable, both for so many bytes, and `new` is ours alone. System calls change rax, rcx and r11 only.
    // No memory is written but `new`, until that is the stack, with what the stack had.
    unsafe {
        std::arch::asm!(
            // if fd >= 0: ioctl(fd, WRITE_PROTECT, orders); on failure that is the answer
            "test r15, r15",
            "js 2f",
            "mov rdi, r15",
            "mov esi, {write_protect}",
            "mov rdx, r9",
            "mov eax, {ioctl}",
            "syscall",
            "test rax, rax",
            "js 4f",
            // copy
            "2:",
            "mov rsi, r12",
            "mov rdi, r14",
            "mov rcx, r13",
            "cld",
            "rep movsb",
            // mremap(new, bytes, bytes, flags, old)
            "mov rdi, r14",
            "mov rsi, r13",
            "mov rdx, r13",
            "mov r10d, {flags}",
            "mov r8, r12",
            "mov eax, {mremap}",
            "syscall",
            "test rax, rax",
            "jns 4f",
            // on failure, if fd >= 0: ioctl(fd, WRITE_PROTECT, orders + 3), and the answer is the failure
            "test r15, r15",
            "js 4f",
            "mov r14, rax",
            "mov rdi, r15",
            "mov esi, {write_protect}",
            "lea rdx, [r9 + 24]",
            "mov eax, {ioctl}",
            "syscall",
            "mov rax, r14",
            "4:",
            write_protect = const WRITE_PROTECT as u32,
            ioctl = const libc::SYS_ioctl,
            mremap = const libc::SYS_mremap,
            flags = const MAYMOVE_FIXED,
            in("r9") orders.as_ptr(),
            in("r12") old,
            in("r13") bytes,
            inout("r14") new => _,
            in("r15") held.as_ref().map_or(-1, |held| held.fd as isize),
            out("rax") answer,
            out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _, out("r8") _, out("r10") _, out("r11") _,
            options(nostack),
        );
    }
    sys::checked(answer).map(|_| ())
}

/// Not done on this processor: the request fails, and is counted.
#[cfg(not(target_arch = "x86_64"))]
pub fn replace_own_stack(_old: usize, _bytes: usize, _new: usize, _shared: bool) -> Result<()> {
    Err(sys::ENOMEM)
}
