//! Fault latency against children whose faults we know. Needs root and eBPF; a test that cannot run says why.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{mpsc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};
use mega_linux::faults::{FaultLatency, Faults, FaultsError};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet};

const PAGE: usize = 4096;
const HUGE: usize = 512 * PAGE;
/// Base faults that a child's own stack and library may add to what it was told to do.
const SLACK: u64 = 16;

/// One at a time: some follow this process, and all count what is attached.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn start(pids: &[u32]) -> Option<Faults> {
    match Faults::start(pids) {
        Ok(faults) => Some(faults),
        Err(error @ FaultsError::Gone { .. }) => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// Private anonymous memory, or shared memory of ours and our children.
struct Memory {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory that is only reached through methods that stay inside it.
unsafe impl Send for Memory {}

impl Memory {
    fn map(bytes: usize, kind: i32) -> Memory {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_ANONYMOUS);
        // SAFETY: new memory at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Memory {
            base: base.cast(),
            bytes,
        }
    }

    /// Base pages only.
    fn base_pages(pages: usize) -> Memory {
        let memory = Memory::map(pages * PAGE, libc::MAP_PRIVATE);
        memory.advise(0, pages * PAGE, libc::MADV_NOHUGEPAGE);
        memory
    }

    /// Where the first aligned huge page begins.
    fn aligned(&self) -> usize {
        (self.base as usize).next_multiple_of(HUGE) - self.base as usize
    }

    fn advise(&self, from: usize, bytes: usize, advice: i32) {
        assert!(from + bytes <= self.bytes);
        // SAFETY: inside the mapping.
        let done = unsafe { libc::madvise(self.base.add(from).cast(), bytes, advice) };
        assert_eq!(done, 0, "madvise {advice}: {}", std::io::Error::last_os_error());
    }

    fn word(&self, offset: usize) -> *mut u64 {
        assert!(offset + 8 <= self.bytes);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset).cast() }
    }

    fn write(&self, offset: usize, value: u64) {
        // SAFETY: inside the mapping, see `word`.
        unsafe { self.word(offset).write_volatile(value) }
    }

    fn read(&self, offset: usize) -> u64 {
        // SAFETY: inside the mapping, see `word`.
        unsafe { self.word(offset).read_volatile() }
    }

    fn touch(&self, from: usize, count: usize, step: usize) {
        (0..count).for_each(|i| self.write(from + i * step, 1));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: what was mapped in `map`.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// A forked child that waits to be told, does its work, tells, and waits to be killed.
struct Child {
    pid: u32,
    gate: UnixStream,
}

impl Child {
    /// The work may only touch memory and make system calls.
    fn fork(work: impl FnOnce()) -> Child {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        // SAFETY: the child touches memory, makes system calls, and never returns.
        match unsafe { libc::fork() } {
            0 => {
                let mut byte = [0u8];
                let told = (&theirs).read(&mut byte).unwrap_or(0);
                if told == 1 {
                    work();
                    let _ = (&theirs).write(&byte);
                }
                loop {
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            pid => {
                assert!(pid > 0, "fork");
                Child {
                    pid: pid as u32,
                    gate: ours,
                }
            }
        }
    }

    /// Has it do its work.
    fn go(&mut self) {
        self.gate.write_all(&[1]).expect("telling the child");
        self.gate.read_exact(&mut [0]).expect("the child's answer");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: a child of ours that has not been waited for.
        unsafe {
            libc::kill(self.pid as i32, libc::SIGKILL);
            libc::waitpid(self.pid as i32, std::ptr::null_mut(), 0);
        }
    }
}

fn minor_faults() -> u64 {
    // SAFETY: rusage is plain numbers, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    usage.ru_minflt as u64
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn anonymous(latency: &FaultLatency) -> u64 {
    latency.base.count() + latency.large.count() + latency.huge.count()
}

#[track_caller]
fn assert_nothing_lost(latency: &FaultLatency) {
    assert_eq!((latency.too_long, latency.threads_lost), (0, 0), "{latency:?}");
    assert_eq!(latency.orders.iter().sum::<u64>(), anonymous(latency), "{latency:?}");
}

/// What the child's `work` was seen to do, if faults can be measured here.
fn seen(work: impl FnOnce()) -> Option<FaultLatency> {
    let mut child = Child::fork(work);
    let faults = start(&[child.pid])?;
    child.go();
    let latency = faults.read().expect("counters");
    assert_nothing_lost(&latency);
    Some(latency)
}

#[test]
fn each_first_touch_is_counted_as_the_kernel_counts_minor_faults() {
    let _alone = alone();
    const PAGES: usize = 3000;
    let shared = Memory::map(PAGE, libc::MAP_SHARED);
    let (of_child, of_test) = (shared.word(0) as usize, &shared);
    let seen = seen(move || {
        let memory = Memory::base_pages(PAGES);
        let before = minor_faults();
        memory.touch(0, PAGES, PAGE);
        let faults = minor_faults() - before;
        // SAFETY: the first word of the shared page, which the test reads after this.
        unsafe { (of_child as *mut u64).write_volatile(faults) };
    });
    let Some(seen) = seen else { return };
    let kernel = of_test.read(0);
    assert!(kernel >= PAGES as u64, "the kernel counted {kernel}");
    assert!(
        (PAGES as u64..=kernel + SLACK).contains(&seen.base.count()),
        "{} seen, {kernel} counted by the kernel",
        seen.base.count()
    );
    assert_eq!(seen.orders[0], seen.base.count());
    assert_eq!((seen.large.count(), seen.huge.count()), (0, 0));
}

#[test]
fn huge_faults_are_told_from_base_faults() {
    let _alone = alone();
    const REGIONS: usize = 8;
    let mut child = Child::fork(|| {
        let memory = Memory::map((REGIONS + 1) * HUGE, libc::MAP_PRIVATE);
        memory.advise(memory.aligned(), REGIONS * HUGE, libc::MADV_HUGEPAGE);
        memory.touch(memory.aligned(), REGIONS, HUGE);
        std::mem::forget(memory);
    });
    let Some(faults) = start(&[child.pid]) else { return };
    child.go();
    let seen = faults.read().expect("counters");
    assert_nothing_lost(&seen);
    // Of the mapping that asked for them only: khugepaged collapses what it likes elsewhere, and what the test had is inherited.
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", child.pid)).expect("smaps");
    let (mut kilobytes, mut of_mapping) = (0u64, 0u64);
    for mut words in smaps.lines().map(str::split_ascii_whitespace) {
        match words.next() {
            Some("AnonHugePages:") => of_mapping = words.next().and_then(|n| n.parse().ok()).expect("kB"),
            Some("VmFlags:") if words.any(|flag| flag == "hg") => kilobytes += of_mapping,
            _ => {}
        }
    }
    let huge = kilobytes * 1024 / HUGE as u64;
    if huge == 0 {
        eprintln!("SKIPPED: the kernel had no huge page for us");
        return;
    }
    assert_eq!(seen.huge.count(), huge, "{seen:?}");
    assert_eq!(seen.orders[9], huge);
    assert!(seen.base.count() <= REGIONS as u64 - huge + SLACK, "{seen:?}");
    // A huge page is 2 MB of zeros: 20 GB/s and more is not to be had from one processor with cold caches.
    let median = seen.huge.quantile_ns(0.5).expect("some");
    assert!(median > 20_000, "median {median} ns");
}

/// A setting of the machine, until it is dropped.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    /// None, and why, where the kernel has no such setting or does not let us.
    fn make(path: &'static str, value: &str) -> Option<Self> {
        let before = std::fs::read_to_string(path).unwrap_or_default();
        let Some(chosen) = before.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
            eprintln!("SKIPPED: {path} is '{}'", before.trim());
            return None;
        };
        if let Err(error) = std::fs::write(path, value) {
            eprintln!("SKIPPED: {path} cannot be set: {error}");
            return None;
        }
        let before = chosen.0.to_string();
        Some(Self { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        std::fs::write(self.path, &self.before).expect("the setting as it was");
    }
}

#[test]
fn middle_sizes_are_counted_by_order() {
    let _alone = alone();
    let path = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    let Some(_advised) = Setting::make(path, "madvise") else {
        return;
    };
    let seen = seen(|| {
        // Half a region long, so that no huge page fits.
        let memory = Memory::map(HUGE / 2, libc::MAP_PRIVATE);
        memory.advise(0, HUGE / 2, libc::MADV_HUGEPAGE);
        memory.touch(0, HUGE / 2 / PAGE, PAGE);
    });
    let Some(seen) = seen else { return };
    // The ends of the mapping need not be aligned to 64 kB.
    assert!((14..=16).contains(&seen.orders[4]), "{:?}", seen.orders);
    assert_eq!(seen.large.count(), seen.orders[1..9].iter().sum::<u64>());
    assert_eq!(seen.huge.count(), 0);
}

#[test]
fn what_a_followed_process_forks_is_followed_too() {
    let _alone = alone();
    const PAGES: usize = 500;
    let seen = seen(|| {
        // SAFETY: both only touch memory, and the grandchild never returns.
        match unsafe { libc::fork() } {
            0 => {
                Memory::base_pages(PAGES).touch(0, PAGES, PAGE);
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: waits for the grandchild.
            pid => unsafe {
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            },
        }
        Memory::base_pages(PAGES).touch(0, PAGES, PAGE);
    });
    let Some(seen) = seen else { return };
    let twice = 2 * PAGES as u64;
    // Two processes, each with what fork makes it copy and allocate.
    let allowed = twice..=twice + 4 * SLACK + if seen.other.count() > 0 { 500 } else { 0 };
    assert!(allowed.contains(&seen.base.count()), "{} seen", seen.base.count());
}

#[test]
fn threads_that_were_there_before_and_threads_that_come_later_are_followed() {
    let _alone = alone();
    const PAGES: usize = 2000;
    let touch = |go: mpsc::Receiver<()>| {
        if go.recv().is_ok() {
            Memory::base_pages(PAGES).touch(0, PAGES, PAGE);
        }
    };
    let (go, told) = mpsc::channel();
    let earlier = thread::spawn(move || touch(told));
    let Some(mut faults) = start(&[std::process::id()]) else {
        drop(go);
        return;
    };
    // A second time does no harm.
    faults.add(std::process::id()).expect("following ourselves");
    go.send(()).expect("telling");
    earlier.join().expect("the thread");
    let first = faults.read().expect("counters");
    assert!(
        first.base.count() >= PAGES as u64,
        "{} of the earlier thread",
        first.base.count()
    );
    let (go, told) = mpsc::channel();
    go.send(()).expect("telling");
    thread::spawn(move || touch(told)).join().expect("the thread");
    let second = faults.read().expect("counters").since(&first);
    assert_nothing_lost(&second);
    // The test harness runs beside us, so there may be more.
    let allowed = PAGES as u64..PAGES as u64 * 2;
    assert!(
        allowed.contains(&second.base.count()),
        "{} of the later one",
        second.base.count()
    );
}

#[test]
fn a_process_that_is_not_followed_adds_nothing() {
    let _alone = alone();
    let idle = Child::fork(|| ());
    let Some(faults) = start(&[idle.pid]) else { return };
    let mut busy = Child::fork(|| Memory::base_pages(5000).touch(0, 5000, PAGE));
    busy.go();
    let seen = faults.read().expect("counters");
    assert_eq!((anonymous(&seen), seen.other.count()), (0, 0));
}

#[test]
fn what_is_no_fault_of_the_program_is_not_taken_for_the_end_of_one() {
    let _alone = alone();
    const PAGES: usize = 64;
    // Long beside the longest time for which a busy machine may take the processor from a program in a fault.
    const PAUSE: Duration = Duration::from_secs(1);
    let pause = || {
        let time = libc::timespec {
            tv_sec: PAUSE.as_secs() as i64,
            tv_nsec: 0,
        };
        // SAFETY: reads the timespec.
        unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    };
    let seen = seen(|| {
        let memory = Memory::base_pages(PAGES);
        let other = Memory::base_pages(PAGES);
        other.touch(0, PAGES, PAGE);
        // A read maps the zero page, which is no change of memory's size ...
        std::hint::black_box(memory.read(0));
        pause();
        // ... and then a system call gives memory back,
        other.advise(0, PAGES * PAGE, libc::MADV_DONTNEED);
        std::hint::black_box(memory.read(PAGE));
        pause();
        // another one has the kernel fault memory in,
        // SAFETY: fills our own memory.
        unsafe { libc::getrandom(other.base.cast(), PAGES * PAGE, 0) };
        std::hint::black_box(memory.read(2 * PAGE));
        pause();
        // and a third populates it.
        let _more = Memory::map(PAGES * PAGE, libc::MAP_PRIVATE | libc::MAP_POPULATE);
    });
    let Some(seen) = seen else { return };
    let allowed = PAGES as u64..=PAGES as u64 + SLACK + if seen.other.count() > 0 { 64 } else { 0 };
    assert!(allowed.contains(&seen.base.count()), "{} seen", seen.base.count());
    let longest = seen.base.quantile_ns(1.0).expect("some");
    assert!(
        u128::from(longest) < PAUSE.as_nanos() / 2,
        "the longest took {longest} ns"
    );
}

/// A process's own times of its touches, and ours of the same faults.
fn timed(pages: usize, step: usize, advice: i32) -> Option<(Vec<u64>, FaultLatency)> {
    let shared = Memory::map(pages * 8, libc::MAP_SHARED);
    let times = &shared;
    let seen = seen(|| {
        let memory = Memory::map(pages * step + HUGE, libc::MAP_PRIVATE);
        let aligned = memory.aligned();
        memory.advise(aligned, pages * step, advice);
        (0..pages).for_each(|i| times.write(i * 8, 0));
        for i in 0..pages {
            let before = now_ns();
            memory.write(aligned + i * step, 1);
            times.write(i * 8, now_ns() - before);
        }
    })?;
    let mut own: Vec<u64> = (0..pages).map(|i| shared.read(i * 8)).collect();
    own.sort_unstable();
    Some((own, seen))
}

#[test]
fn the_median_agrees_with_what_the_program_measures_itself() {
    let _alone = alone();
    let Some((own, seen)) = timed(20_000, PAGE, libc::MADV_NOHUGEPAGE) else {
        return;
    };
    let (own, ours) = (own[own.len() / 2], seen.base.quantile_ns(0.5).expect("some"));
    eprintln!("base fault, median: the program {own} ns, we {ours} ns");
    // Ours is a part of the program's: it leaves out the way into the kernel and back.
    assert!(ours * 3 >= own && ours <= own, "the program {own} ns, we {ours} ns");
    // Clearing 4096 bytes at 64 bytes per nanosecond, and a few hundred instructions.
    assert!(ours >= 100, "{ours} ns");
}

#[test]
fn the_sum_over_huge_faults_agrees_with_what_the_program_measures_itself() {
    let _alone = alone();
    let Some((own, seen)) = timed(16, HUGE, libc::MADV_HUGEPAGE) else {
        return;
    };
    if seen.huge.count() < 16 {
        eprintln!("SKIPPED: the kernel had {} huge pages for us", seen.huge.count());
        return;
    }
    let (own, ours) = (own.iter().sum::<u64>(), seen.huge.sum_ns());
    eprintln!("16 huge faults: the program {own} ns, we {ours} ns");
    assert!(ours * 2 >= own && ours <= own, "the program {own} ns, we {ours} ns");
}

#[test]
fn copies_after_fork_are_seen_where_every_fault_is_and_nowhere_else() {
    let _alone = alone();
    const PAGES: usize = 1000;
    let memory = Memory::base_pages(PAGES);
    memory.touch(0, PAGES, PAGE);
    let mut child = Child::fork(|| memory.touch(0, PAGES, PAGE));
    let Some(faults) = start(&[child.pid]) else { return };
    eprintln!("{} ({:?})", faults.how(), faults.refused());
    child.go();
    let seen = faults.read().expect("counters");
    assert_nothing_lost(&seen);
    let expected = if faults.sees_all() { PAGES as u64 } else { 0 };
    let allowed = expected..=expected + SLACK;
    assert!(allowed.contains(&seen.base.count()), "{} seen", seen.base.count());
    assert!(faults.sees_all() || seen.other.count() == 0, "{seen:?}");
}

fn attached() -> (BTreeSet<u32>, usize) {
    let programs = ProgInfoIter::default()
        .filter(|p| p.name.to_string_lossy().starts_with("mega_begin"))
        .map(|p| p.id)
        .collect();
    (programs, LinkInfoIter::default().count())
}

#[test]
fn nothing_stays_attached_after_the_drop() {
    let _alone = alone();
    let child = Child::fork(|| ());
    let (before, _) = attached();
    let Some(faults) = start(&[child.pid]) else { return };
    let (during, _) = attached();
    let ours: BTreeSet<u32> = during.difference(&before).copied().collect();
    assert_eq!(ours.len(), 1, "one program at the beginning of faults");
    let links = |program: &BTreeSet<u32>| LinkInfoIter::default().filter(|l| program.contains(&l.prog_id)).count();
    assert_eq!(links(&ours), 1);
    drop(faults);
    // The kernel frees programs after a grace period.
    let deadline = Instant::now() + Duration::from_secs(10);
    while links(&ours) > 0 || attached().0.intersection(&ours).count() > 0 {
        assert!(Instant::now() < deadline, "the program is still there");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    let _alone = alone();
    let pid = Child::fork(|| ()).pid;
    for pid in [0, pid, u32::MAX] {
        match Faults::start(&[pid]) {
            Err(FaultsError::Gone { pid: named }) => assert_eq!(named, pid),
            Err(error) => eprintln!("SKIPPED: {error}"),
            Ok(_) => panic!("{pid} is no process"),
        }
    }
}

#[test]
fn a_missing_capability_is_named() {
    let _alone = alone();
    // Capabilities are a thread's own.
    let refused = thread::spawn(|| {
        let mut sets = capabilities(None).expect("our capabilities");
        sets.effective = CapabilitySet::BPF & sets.effective;
        set_capabilities(None, sets).expect("fewer capabilities");
        Faults::start(&[]).err().map(|e| e.to_string())
    });
    let refused = refused.join().expect("the thread").expect("a refusal");
    assert!(
        refused.contains("CAP_PERFMON") || refused.contains("CAP_BPF") || refused.contains("BTF"),
        "{refused}"
    );
}
