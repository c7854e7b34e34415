//! Good and bad places for requests and their lists. The kernel writes where a request says, so every place is one that nobody needs: memory of this
//! file's own, followed by more reserved address space than the longest list has, or addresses that are the kernel's.

use std::os::fd::AsRawFd;

use super::Dice;

/// The longest list: 2^20 maps of regions, 256 bytes each; and room.
const RESERVED: usize = 1 << 29;
/// How much of it there is memory for.
const LEN: usize = 1 << 22;
const PAGE: usize = 4096;

/// Places in one mapping of address space; threads of the process change what is there while calls write to it.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    base: usize,
}

fn map(at: usize, len: usize, prot: i32, flags: i32) -> usize {
    // SAFETY: address space of the kernel's choice, or a part of what it chose before and nobody needs.
    let got = unsafe { libc::mmap(at as *mut libc::c_void, len, prot, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        0
    } else {
        got as usize
    }
}

impl Buffers {
    pub fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = map(0, RESERVED + 2 * LEN, libc::PROT_NONE, flags);
        assert_ne!(base, 0);
        let buffers = Buffers {
            base: base.next_multiple_of(LEN),
        };
        buffers.restore();
        buffers
    }

    /// Ordinary memory at the beginning again.
    fn restore(self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        map(self.base, LEN, libc::PROT_READ | libc::PROT_WRITE, flags);
    }

    /// A place for a list; three of four are good until somebody changes them.
    pub fn place(self, dice: &mut Dice) -> u64 {
        let inside = dice.below(LEN as u64 / 2) & !7;
        match dice.below(16) {
            0 => 0,
            1 => dice.pick(&[
                !0,
                !0 << 12,
                1 << 47,
                (1 << 47) - 64,
                1 << 63,
                0xffff_8880_0000_0000,
                !0 << 20,
            ]),
            // The last of what is there, and beyond.
            2 => self.base as u64 + LEN as u64 - dice.below(512),
            3 => (self.base + LEN + PAGE) as u64,
            // Aligned to nothing.
            4 => self.base as u64 + inside + 1 + dice.below(7),
            _ => self.base as u64 + inside,
        }
    }

    /// A place for a request: as above, but rarely bad.
    pub fn request(self, dice: &mut Dice) -> u64 {
        if dice.once_in(10) {
            self.place(dice)
        } else {
            (self.base + LEN - PAGE) as u64 - (dice.below(1024) & !7) * 2
        }
    }

    /// Copies a value to a place, if it can be written: through a pipe, since it may be nowhere.
    pub fn put(place: u64, bytes: &[u8]) {
        let Ok((read, write)) = rustix::pipe::pipe() else {
            return;
        };
        assert!(bytes.len() <= 1 << 16, "a pipe holds no more");
        let _ = rustix::io::write(&write, bytes);
        // SAFETY: fails where the place cannot be written, and what can be nobody needs.
        unsafe { libc::read(read.as_raw_fd(), place as *mut libc::c_void, bytes.len()) };
    }

    /// What a place holds, if it can be read.
    pub fn get(place: u64, bytes: &mut [u8]) -> bool {
        let Ok((read, write)) = rustix::pipe::pipe() else {
            return false;
        };
        // SAFETY: fails where the place cannot be read.
        let wrote = unsafe { libc::write(write.as_raw_fd(), place as *const libc::c_void, bytes.len()) };
        wrote == bytes.len() as isize && rustix::io::read(&read, &mut *bytes) == Ok(bytes.len())
    }

    /// Changes what is there: read-only, gone, huge, given back, moved away.
    pub fn disturb(self, dice: &mut Dice) {
        let at = self.base + (dice.below((LEN / PAGE) as u64) as usize) * PAGE;
        let len = (self.base + LEN - at).min(PAGE << dice.below(10));
        let address = at as *mut libc::c_void;
        // SAFETY: a part of the mapping, which nobody needs.
        unsafe {
            match dice.below(8) {
                0 => drop(libc::mprotect(address, len, libc::PROT_READ)),
                1 => drop(libc::mprotect(address, len, libc::PROT_NONE)),
                2 => drop(libc::munmap(address, len)),
                3 => drop(libc::madvise(address, len, libc::MADV_DONTNEED)),
                4 => {
                    libc::madvise(self.base as *mut libc::c_void, LEN, libc::MADV_HUGEPAGE);
                    libc::madvise(self.base as *mut libc::c_void, LEN, super::victim::MADV_COLLAPSE);
                }
                // A shared mapping, whose pages are in the page cache.
                5 => {
                    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                    map(at, len, libc::PROT_READ | libc::PROT_WRITE, flags);
                }
                _ => self.restore(),
            }
        }
        if dice.once_in(2) {
            self.restore();
        }
    }
}
