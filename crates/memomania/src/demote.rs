//! A mapping replaced by another with the same content, at once as far as other threads can see.
//!
//! Where other threads run, writes are held up by a userfaultfd that write-protects the old pages (hugetlb: Linux 5.19) while the content is
//! copied: a thread that writes waits, and goes on in the new pages. Then the new mapping is moved over the old one, in one
//! system call. Without the right to handle the kernel's own faults, a system call that writes there at that moment fails with EFAULT; that
//! right comes with CAP_SYS_PTRACE or `vm.unprivileged_userfaultfd`.

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

    /// Lets them go on. A forked child can do that for its parent, too: what it has of this still means the parent's memory.
    pub fn let_go(&self, address: usize, bytes: usize) {
        let _ = sys::ioctl(self.fd, WRITE_PROTECT, &mut [address as u64, bytes as u64, 0]);
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
    sys::mremap(new, bytes, bytes, MAYMOVE_FIXED, old).map(|_| ())
}
