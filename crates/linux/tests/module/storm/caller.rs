//! A process whose threads call the module: with requests that are right, a little wrong, and nonsense.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use mega_linux::module::uapi::{self, Age, Blocks, Compact, CompactBlock, Probe};

use super::buffers::Buffers;
use super::{Dice, Stop, ARENA, ARENA_REGIONS};

const THREADS: usize = 2;

/// What a call may answer: the errnos that uapi/mega.h names, and that of memory that ran out.
const ANSWERS: [i32; 10] = [
    0,
    libc::EFAULT,
    libc::EINVAL,
    libc::EPROTO,
    libc::E2BIG,
    libc::EINTR,
    libc::ESRCH,
    libc::EBADF,
    libc::ENOTTY,
    libc::ENOMEM,
];

pub fn run(seed: u64, end: Instant) {
    let mut dice = Dice::new(seed);
    interruptible();
    let buffers: [Buffers; THREADS] = std::array::from_fn(|_| Buffers::new());
    let stop = AtomicBool::new(false);
    let tids: [AtomicI32; THREADS] = Default::default();
    std::thread::scope(|scope| {
        for (tid, buffers) in tids.iter().zip(buffers) {
            let (mut dice, stop) = (Dice::new(dice.any()), &stop);
            scope.spawn(move || {
                // SAFETY: asks for a number.
                tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    calls(&mut dice, buffers);
                }
            });
        }
        let stopping = Stop(&stop);
        while Instant::now() < end {
            dice.pause(Duration::from_millis(40));
            match dice.below(4) {
                0 => {
                    let tid = tids[dice.below(THREADS as u64) as usize].load(Ordering::Relaxed);
                    // SAFETY: a signal to a thread of ours, whose handler does nothing; 0 before it began.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
                }
                1 => brief_fork(&mut dice),
                _ => dice.pick(&buffers).disturb(&mut dice),
            }
        }
        drop(stopping);
    });
}

/// SIGUSR1 ends calls and does nothing else.
fn interruptible() {
    extern "C" fn nothing(_: i32) {}
    let handler: extern "C" fn(i32) = nothing;
    // SAFETY: all zero is a valid value of it; the handler touches nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// A copy of us that lives for a moment, while our threads call.
fn brief_fork(dice: &mut Dice) {
    let us = dice.below(3000) as u32;
    // SAFETY: the child makes plain system calls only.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::usleep(us);
            libc::_exit(0);
        }
        if child > 0 {
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}

/// Some calls through a descriptor of their own, so that the module can go in between.
fn calls(dice: &mut Dice, buffers: Buffers) {
    // The module is about to go; some try all the same.
    while Path::new(super::machine::GATE).exists() && !dice.once_in(8) {
        dice.pause(Duration::from_millis(20));
    }
    let device = match File::options().read(true).write(true).open("/dev/mega") {
        Ok(device) => device,
        Err(error) => {
            let errno = error.raw_os_error().unwrap();
            assert!(
                [libc::ENOENT, libc::ENODEV, libc::ENXIO, libc::EINTR, libc::ENOMEM].contains(&errno),
                "{error}"
            );
            dice.pause(Duration::from_millis(10));
            return;
        }
    };
    for _ in 0..1 + dice.below(40) {
        match dice.below(9) {
            0 | 1 => compact(dice, buffers, &device),
            2 => blocks(dice, buffers, &device),
            3..=5 => age(dice, buffers, &device),
            6 => probe(dice, buffers, &device),
            7 => info(dice, buffers, &device),
            _ => nonsense(dice, buffers, &device),
        }
    }
}

/// Calls with a request at some place. What came back, if it worked.
fn call<T: Copy>(dice: &mut Dice, buffers: Buffers, device: &File, number: u64, request: &T) -> Option<T> {
    let len = std::mem::size_of::<T>();
    // SAFETY: structures without holes.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(request).cast::<u8>(), len) };
    let mut changed = bytes.to_vec();
    let place = buffers.request(dice);
    Buffers::put(place, &changed);
    let errno = ioctl(device, number, place);
    assert!(ANSWERS.contains(&errno), "request {number:#x}: errno {errno}");
    if errno != 0 || !Buffers::get(place, &mut changed) {
        return None;
    }
    // SAFETY: plain integers: every value is valid.
    Some(unsafe { changed.as_ptr().cast::<T>().read_unaligned() })
}

fn ioctl(device: &File, number: u64, place: u64) -> i32 {
    // SAFETY: the kernel writes to the request's place and its lists', which nobody needs.
    match unsafe { libc::ioctl(device.as_raw_fd(), number, place) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

/// Once in a while another value.
fn perhaps(dice: &mut Dice, value: u64, others: &[u64]) -> u64 {
    match dice.below(24) {
        0 => dice.any(),
        1 => dice.pick(others),
        _ => value,
    }
}

fn version(dice: &mut Dice) -> u32 {
    perhaps(dice, uapi::VERSION.into(), &[0, 2, !0]) as u32
}

fn reserved(dice: &mut Dice) -> [u64; 2] {
    [perhaps(dice, 0, &[1]), perhaps(dice, 0, &[1 << 63])]
}

fn count(dice: &mut Dice, most: u32) -> u32 {
    match dice.below(12) {
        0 => dice.pick(&[0, 1, most - 1, most, most + 1, 1 << 31, u32::MAX]),
        1 => dice.below(u64::from(most)) as u32,
        _ => dice.below(64) as u32,
    }
}

fn budget(dice: &mut Dice) -> u64 {
    let usual = 1_000 << dice.below(19);
    perhaps(dice, usual, &[0, 1, 60_000_000_000, 60_000_000_001, !0])
}

fn compact(dice: &mut Dice, buffers: Buffers, device: &File) {
    let list = buffers.place(dice);
    let near = dice.below(1024);
    let count = count(dice, 1 << 20);
    let entries: Vec<CompactBlock> = (0..count.min(2048))
        .map(|_| {
            let block = match dice.below(8) {
                0 => dice.any(),
                1 => dice.below(1200),
                _ => near + dice.below(64),
            };
            CompactBlock::asked(block)
        })
        .collect();
    // SAFETY: structures without holes.
    let bytes =
        unsafe { std::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), std::mem::size_of_val(&entries[..])) };
    Buffers::put(list, bytes);
    let huge = u64::from(dice.once_in(3));
    let request = Compact {
        version: version(dice),
        flags: perhaps(dice, huge, &[2, 3, !0]) as u32,
        list,
        count,
        budget_ns: budget(dice),
        reserved: reserved(dice),
        ..Compact::default()
    };
    let Some(done) = call(dice, buffers, device, uapi::IOC_COMPACT, &request) else {
        return;
    };
    assert!(
        done.done <= count && done.freed <= done.tried && done.tried <= done.done,
        "{done:?}"
    );
}

fn blocks(dice: &mut Dice, buffers: Buffers, device: &File) {
    let count = count(dice, 1 << 22);
    let first = dice.below(1024);
    let request = Blocks {
        version: version(dice),
        flags: perhaps(dice, 0, &[1]) as u32,
        first: perhaps(dice, first, &[!0, 1 << 63, 1 << 40]),
        list: buffers.place(dice),
        count,
        reserved: reserved(dice),
        ..Blocks::default()
    };
    if let Some(done) = call(dice, buffers, device, uapi::IOC_BLOCKS, &request) {
        assert!(done.done <= count, "{done:?}");
    }
}

/// A descriptor that may be of a process.
fn pidfd(dice: &mut Dice) -> (i32, Option<OwnedFd>) {
    let own = match dice.below(12) {
        0 => return (dice.pick(&[-1, 0, 1, 2, 9999, i32::MAX, i32::MIN]), None),
        // SAFETY: new descriptors, which are ours.
        1 => unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) },
        2 => File::open(dice.pick(&["/proc/self/mem", "/dev/null", "/proc/self", "/dev/mega", "/"]))
            .map_or_else(|_| File::open("/").unwrap().into(), OwnedFd::from),
        3 => return opened(mega_linux::sys::pidfd_open(dice.below(4000) as u32).ok()),
        4 => return opened(mega_linux::sys::pidfd_open(std::process::id()).ok()),
        // Ended, and nobody's any more.
        5 => return opened(ended()),
        _ => return opened(somebody(dice)),
    };
    (own.as_raw_fd(), Some(own))
}

fn opened(fd: Option<OwnedFd>) -> (i32, Option<OwnedFd>) {
    (fd.as_ref().map_or(-1, AsRawFd::as_raw_fd), fd)
}

fn ended() -> Option<OwnedFd> {
    // SAFETY: the child ends at once.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        let pidfd = (child > 0).then(|| mega_linux::sys::pidfd_open(child as u32).ok())?;
        libc::waitpid(child, std::ptr::null_mut(), 0);
        pidfd
    }
}

/// Any process with memory of its own; most are of the storm.
fn somebody(dice: &mut Dice) -> Option<OwnedFd> {
    let mut pids: Vec<u32> = Vec::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        if pid == 1 || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            pids.push(pid);
        }
    }
    mega_linux::sys::pidfd_open(dice.pick(&pids)).ok()
}

fn age(dice: &mut Dice, buffers: Buffers, device: &File) {
    let (pidfd, _held) = pidfd(dice);
    let from = dice.below(ARENA_REGIONS);
    let (start, end) = match dice.below(6) {
        0 => (0, 1 << 47),
        1 => (dice.any() & !0 << 21, dice.any() & !0 << 21),
        _ => (
            ARENA + (from << 21),
            ARENA + ((from + 1 + dice.below(ARENA_REGIONS - from)) << 21),
        ),
    };
    let count = count(dice, 1 << 20);
    let request = Age {
        version: version(dice),
        flags: perhaps(dice, 0, &[16, !0]) as u32 | dice.below(16) as u32,
        pidfd,
        count,
        start: perhaps(dice, start, &[4096, 1 << 56, !0, !0 << 21]),
        end: perhaps(dice, end, &[0, 1 << 47, (1 << 56) + (1 << 21), 1 << 63, !0 << 21, !0]),
        list: buffers.place(dice),
        maps: if dice.once_in(2) { 0 } else { buffers.place(dice) },
        reserved: reserved(dice),
        ..Age::default()
    };
    if let Some(done) = call(dice, buffers, device, uapi::IOC_AGE, &request) {
        assert!(
            done.done <= count && done.next <= done.end && done.next >= done.start,
            "{done:?}"
        );
    }
}

fn probe(dice: &mut Dice, buffers: Buffers, device: &File) {
    let order = dice.below(11) as u32;
    let count = count(dice, 1 << 22).min(if dice.once_in(8) { u32::MAX } else { 1 << 14 });
    let request = Probe {
        version: version(dice),
        flags: perhaps(dice, 0, &[32, !0]) as u32 | dice.below(32) as u32,
        order: perhaps(dice, order.into(), &[11, 12, 63, !0]) as u32,
        count,
        times: buffers.place(dice),
        budget_ns: budget(dice).min(if dice.once_in(8) { !0 } else { 200_000_000 }),
        floor_bytes: dice.pick(&[0, 1 << 20, 1 << 28, 1 << 29, !0]),
        node: dice.pick(&[-1, -1, -1, -1, 0, 1, 63, 64, 1023, 1024, 1 << 20, -2, i32::MIN]),
        reserved: reserved(dice),
        ..Probe::default()
    };
    if let Some(done) = call(dice, buffers, device, uapi::IOC_PROBE, &request) {
        assert!(done.done <= count && done.ended <= 4, "{done:?}");
    }
}

fn info(dice: &mut Dice, buffers: Buffers, device: &File) {
    let info = call(dice, buffers, device, uapi::IOC_INFO, &uapi::Info::default());
    // Another thread may have changed the place since.
    if let Some(info) = info {
        assert!(info.version == uapi::VERSION || info.block_pages != 512, "{info:?}");
    }
}

/// Any number, with any bytes at the place where a request may be.
fn nonsense(dice: &mut Dice, buffers: Buffers, device: &File) {
    let real = dice.pick(&[
        uapi::IOC_INFO,
        uapi::IOC_COMPACT,
        uapi::IOC_BLOCKS,
        uapi::IOC_AGE,
        uapi::IOC_PROBE,
    ]);
    let number = match dice.below(3) {
        0 => u64::from(dice.any() as u32),
        1 => real ^ 1 << dice.below(32),
        _ => real,
    };
    let mut bytes = [0u8; 96];
    bytes
        .chunks_mut(8)
        .for_each(|word| word.copy_from_slice(&dice.any().to_le_bytes()[..word.len()]));
    bytes[..4].copy_from_slice(&version(dice).to_le_bytes());
    // Whatever is a pointer in one of the requests: to where nobody is hurt.
    let at = if number == uapi::IOC_COMPACT { 8 } else { 16 };
    for at in [at, 40, 48] {
        bytes[at..at + 8].copy_from_slice(&buffers.place(dice).to_le_bytes());
    }
    let place = buffers.request(dice);
    Buffers::put(place, &bytes);
    let errno = ioctl(device, number, place);
    assert!(ANSWERS.contains(&errno), "request {number:#x}: errno {errno}");
}
