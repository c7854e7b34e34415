//! A process whose memory is looked at and moved by others, while it does with it whatever a program can. It knows what each page has to hold.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Dice, Stop, ARENA, ARENA_REGIONS};
use crate::memory::pin_for_dma;

pub const MADV_COLLAPSE: i32 = 25;
const MADV_COLD: i32 = 20;
const MADV_PAGEOUT: i32 = 21;
const MADV_HWPOISON: i32 = 100;
const MADV_SOFT_OFFLINE: i32 = 101;
const PAGE: u64 = 4096;
const PAGES: u64 = ARENA_REGIONS * 512;
/// Where it puts things for a while.
const SIDE: u64 = 0x2100_0000_0000;
const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// The arena, and what each of its pages has to hold at both ends.
struct Arena {
    expected: Vec<u64>,
}

fn address(page: u64) -> *mut libc::c_void {
    (ARENA + page * PAGE) as *mut libc::c_void
}

fn map(at: u64, bytes: u64, prot: i32, flags: i32, fd: i32) -> bool {
    // SAFETY: only addresses of this file's own ranges are given, which hold nothing but what it knows of.
    unsafe {
        libc::mmap(
            at as *mut libc::c_void,
            bytes as usize,
            prot,
            flags | libc::MAP_FIXED,
            fd,
            0,
        ) != libc::MAP_FAILED
    }
}

fn unmap(at: u64, bytes: u64) {
    // SAFETY: as above.
    unsafe { libc::munmap(at as *mut libc::c_void, bytes as usize) };
}

impl Arena {
    fn new() -> Self {
        assert!(map(ARENA, PAGES * PAGE, RW, PRIVATE | libc::MAP_NORESERVE, -1));
        Arena {
            expected: vec![0; PAGES as usize],
        }
    }

    fn write(&mut self, page: u64, stamp: u64) {
        for word in [0, PAGE - 8] {
            // SAFETY: inside the arena, which is mapped.
            unsafe { ((ARENA + page * PAGE + word) as *mut u64).write_volatile(stamp) };
        }
        self.expected[page as usize] = stamp;
    }

    fn check(&self, page: u64) {
        for word in [0, PAGE - 8] {
            // SAFETY: inside the arena, which is mapped.
            let found = unsafe { ((ARENA + page * PAGE + word) as *const u64).read_volatile() };
            assert_eq!(found, self.expected[page as usize], "page {page}, at {word}");
        }
    }

    /// A few pages up to a few regions.
    fn some(&self, dice: &mut Dice) -> (u64, u64) {
        let from = dice.below(PAGES);
        let len = if dice.once_in(2) {
            1 + dice.below(40)
        } else {
            512 * (1 + dice.below(4))
        };
        let from = if dice.once_in(2) { from & !511 } else { from };
        (from, (from + len).min(PAGES))
    }

    fn advise(&mut self, (from, end): (u64, u64), advice: i32) {
        // SAFETY: inside the arena; what is given back is expected to be zero.
        let error = unsafe { libc::madvise(address(from), ((end - from) * PAGE) as usize, advice) };
        if advice == libc::MADV_DONTNEED && error == 0 {
            self.expected[from as usize..end as usize].fill(0);
        }
    }

    /// Moved somewhere else, and back.
    fn move_about(&self, (from, end): (u64, u64)) {
        let len = ((end - from) * PAGE) as usize;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: to a range that holds nothing, and back; nobody looks in between.
        unsafe {
            let side = libc::mremap(address(from), len, len, flags, SIDE as *mut libc::c_void);
            if side != libc::MAP_FAILED {
                assert_eq!(libc::mremap(side, len, len, flags, address(from)), address(from));
            }
        }
    }

    /// A child that looks at its copy and changes it, while we change ours.
    fn fork(&mut self, dice: &mut Dice) {
        let pages: Vec<u64> = (0..20).map(|_| dice.below(PAGES)).collect();
        // SAFETY: the child reads and writes memory of this file's and makes plain system calls.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let at = |page: u64| (ARENA + page * PAGE) as *mut u64;
                // All of them before any is written: the same page may be among them twice.
                if pages
                    .iter()
                    .any(|&page| at(page).read_volatile() != self.expected[page as usize])
                {
                    libc::_exit(7);
                }
                pages.iter().for_each(|&page| at(page).write_volatile(1));
                libc::_exit(0);
            }
            pages.iter().for_each(|&page| self.write(page, page + 9));
            let mut status = 0;
            if child > 0 && libc::waitpid(child, &mut status, 0) == child {
                assert!(
                    status == 0 || status == libc::SIGKILL,
                    "the child ended with {status:#x}"
                );
            }
        }
    }
}

/// Pages held by a pipe for a moment: nobody can move them.
fn splice(dice: &mut Dice, (from, end): (u64, u64)) {
    let Ok((_read, write)) = rustix::pipe::pipe() else {
        return;
    };
    let iov = libc::iovec {
        iov_base: address(from),
        iov_len: ((end - from).min(8) * PAGE) as usize,
    };
    // SAFETY: the pipe takes references, and is closed unread.
    unsafe { libc::vmsplice(write.as_raw_fd(), &iov, 1, libc::SPLICE_F_NONBLOCK) };
    dice.pause(Duration::from_millis(20));
}

/// Pages pinned for DMA for a moment.
fn pin(dice: &mut Dice, (from, end): (u64, u64)) {
    let _pinned = pin_for_dma(ARENA + from * PAGE, (end - from) * PAGE);
    dice.pause(Duration::from_millis(20));
}

/// Something of another kind beside the arena, for a moment.
fn beside(dice: &mut Dice) {
    const BYTES: u64 = 4 << 20;
    // SAFETY: a new descriptor, or -1.
    let memfd = unsafe { libc::memfd_create(c"side".as_ptr(), 0) };
    // SAFETY: ours.
    let memfd = (memfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(memfd) });
    let mapped = match (dice.below(3), &memfd) {
        (0, _) => map(SIDE, BYTES, RW, PRIVATE | libc::MAP_HUGETLB, -1),
        (1, Some(memfd)) => {
            // SAFETY: a length for a file of ours.
            unsafe { libc::ftruncate(memfd.as_raw_fd(), BYTES as i64) };
            map(SIDE, BYTES, RW, libc::MAP_SHARED, memfd.as_raw_fd())
        }
        _ => map(SIDE, BYTES, RW, PRIVATE, -1),
    };
    if !mapped {
        return;
    }
    for at in (SIDE..SIDE + BYTES).step_by(4096 << dice.below(6)) {
        // SAFETY: mapped just now.
        unsafe { (at as *mut u64).write_volatile(at) };
    }
    if dice.once_in(40) {
        let how = dice.pick(&[MADV_SOFT_OFFLINE, MADV_SOFT_OFFLINE, MADV_HWPOISON]);
        let at = SIDE + (dice.below(512) << 12);
        // SAFETY: a page that nobody looks at any more.
        unsafe { libc::madvise(at as *mut libc::c_void, 4096, how) };
    }
    dice.pause(Duration::from_millis(10));
    unmap(SIDE, BYTES);
}

/// Begins anew as another program, at any moment.
fn exec(dice: &mut Dice, end: Instant) {
    let left = end.saturating_duration_since(Instant::now()).as_millis();
    let error = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "storm::one_of_many", "--nocapture"])
        .env("MEGA_STORM_SEED", dice.any().to_string())
        .env("MEGA_STORM_LIFE_MS", left.to_string())
        .exec();
    panic!("exec: {error}");
}

pub fn run(seed: u64, end: Instant) {
    let mut dice = Dice::new(seed);
    let mut arena = Arena::new();
    let (hot, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Written all the time, by locked instructions: no addition may be lost.
        let writer = scope.spawn(|| {
            let mut added = 0;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    hot.fetch_add(1, Ordering::Relaxed);
                }
                added += 100;
                std::thread::sleep(Duration::from_millis(1));
            }
            added
        });
        let stopping = Stop(&stop);
        while Instant::now() < end {
            act(&mut dice, &mut arena, end);
        }
        (0..PAGES).for_each(|page| arena.check(page));
        drop(stopping);
        let added: u64 = writer.join().unwrap();
        assert_eq!(hot.load(Ordering::Relaxed), added);
    });
}

fn act(dice: &mut Dice, arena: &mut Arena, end: Instant) {
    let some = arena.some(dice);
    let len = ((some.1 - some.0) * PAGE) as usize;
    match dice.below(20) {
        0..=4 => (some.0..some.1).for_each(|page| arena.write(page, (page << 32) | (1 + dice.below(1 << 20)))),
        5 | 6 => (some.0..some.1).for_each(|page| arena.check(page)),
        7 => arena.advise(some, libc::MADV_DONTNEED),
        8 => arena.advise(some, dice.pick(&[libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE])),
        9 => arena.advise(some, MADV_COLLAPSE),
        10 => arena.advise(some, dice.pick(&[MADV_COLD, MADV_PAGEOUT])),
        11 => arena.move_about(some),
        12 => {
            unmap(ARENA + some.0 * PAGE, len as u64);
            assert!(map(
                ARENA + some.0 * PAGE,
                len as u64,
                RW,
                PRIVATE | libc::MAP_NORESERVE,
                -1
            ));
            arena.expected[some.0 as usize..some.1 as usize].fill(0);
        }
        // SAFETY: read only for a moment in which nobody writes; locked and unlocked.
        13 => unsafe {
            libc::mprotect(address(some.0), len, libc::PROT_READ);
            arena.check(some.0);
            assert_eq!(libc::mprotect(address(some.0), len, RW), 0);
        },
        // SAFETY: changes no contents.
        14 => unsafe {
            libc::mlock(address(some.0), len);
            dice.pause(Duration::from_millis(5));
            libc::munlock(address(some.0), len);
        },
        15 => arena.fork(dice),
        16 => splice(dice, some),
        17 => pin(dice, some),
        18 => beside(dice),
        _ if dice.once_in(30) => exec(dice, end),
        _ => dice.pause(Duration::from_millis(5)),
    }
}

/// Takes much of what memory there is, and gives it back, until the end.
pub fn hog(seed: u64, end: Instant) {
    std::fs::write("/proc/self/oom_score_adj", "1000").unwrap();
    let mut dice = Dice::new(seed);
    while Instant::now() < end {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find(|line| line.starts_with("MemAvailable")).unwrap();
        let available_kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        let bytes = (available_kb * (20 + dice.below(85)) / 100) << 10 & !4095;
        if map(SIDE, bytes, RW, PRIVATE | libc::MAP_NORESERVE, -1) {
            for at in (SIDE..SIDE + bytes).step_by(4096) {
                // SAFETY: mapped just now.
                unsafe { (at as *mut u64).write_volatile(at) };
                if at % (1 << 24) == 0 && Instant::now() >= end {
                    break;
                }
            }
            dice.pause(Duration::from_secs(1));
            unmap(SIDE, bytes);
        }
        dice.pause(Duration::from_secs(2));
    }
}
