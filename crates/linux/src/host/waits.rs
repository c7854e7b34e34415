//! How long the threads of a process waited for its mmap_lock while we acted on it, by `bpf/waits.bpf.c`.
//!
//! A collapse holds the lock for most of its time, and page faults, mmap and munmap of the program wait for it. What else it may wait for (the
//! lock of a page table, a flush of the TLB) is short and not seen.

use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};

use crate::bpf::{self, libbpf};

/// A thread that waited is seen to go on this much later, when it runs again.
const WAKES_WITHIN: Duration = Duration::from_micros(60);
/// The programs on the functions that wait for a semaphore, and those on the tracepoints of contended locks.
const SLOW: &str = "mega_slow_";
const CONTENDED: &str = "mega_wait_";
/// What `struct mega_act` has: pid, turn, ns, begun, ended.
const WORDS: usize = 5;

/// The programs, loaded and attached.
pub struct Waits {
    // Fields are dropped in this order.
    _links: Vec<Link>,
    act: MapHandle,
    _object: Object,
    turn: u64,
    /// The kernel knows of the action under way.
    is_set: bool,
}

impl Waits {
    /// Loads and attaches them.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn new() -> Result<Self, String> {
        Self::by(SLOW).or_else(|_| Self::by(CONTENDED))
    }

    /// By the programs whose names begin so.
    fn by(prefix: &str) -> Result<Self, String> {
        if let Some(why) = bpf::absence(bpf::WAITS) {
            return Err(why.to_owned());
        }
        libbpf::listen();
        let said = |doing: &str, error: &dyn std::fmt::Display| format!("{doing}: {error}: {}", libbpf::complaints());
        let object = ObjectBuilder::default()
            .open_memory(bpf::WAITS)
            .and_then(|mut open| {
                for mut program in open.progs_mut() {
                    let is_wanted = program.name().to_string_lossy().starts_with(prefix);
                    program.set_autoload(is_wanted);
                }
                open.load()
            })
            .map_err(|error| said("loading the programs (needs CAP_BPF and CAP_PERFMON)", &error))?;
        let act = object
            .maps()
            .find(|map| map.name() == "mega_act")
            .ok_or("no map of actions")?;
        let act = MapHandle::try_from(&act).map_err(|error| said("opening the map", &error))?;
        let wanted = object
            .progs_mut()
            .filter(|program| program.name().to_string_lossy().starts_with(prefix));
        let attached: Result<Vec<Link>, _> = wanted.map(|program| program.attach()).collect();
        Ok(Self {
            _links: attached.map_err(|error| said("attaching", &error))?,
            act,
            _object: object,
            turn: 0,
            is_set: false,
        })
    }

    fn write(&self, words: [u64; WORDS]) -> bool {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.act.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY).is_ok()
    }

    /// Time waited, and the number of waits that have not ended.
    fn read(&self) -> Option<(Duration, u64)> {
        let bytes = self.act.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
        let word = |at: usize| {
            let bytes = bytes.get(at * 8..at * 8 + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let (ns, begun, ended) = (word(2)?, word(3)?, word(4)?);
        Some((Duration::from_nanos(ns), begun.saturating_sub(ended)))
    }

    /// From now on this process is acted on.
    pub fn begin(&mut self, pid: u32) {
        self.turn += 1;
        self.is_set = self.write([pid.into(), self.turn, 0, 0, 0]);
    }

    /// That is over. The time that its threads waited meanwhile, all together; none if some wait still, or it cannot be told.
    pub fn end(&mut self) -> Option<Duration> {
        if !self.is_set {
            return None;
        }
        let mut seen = self.read();
        if seen.is_some_and(|(_, waiting)| waiting > 0) {
            std::thread::sleep(WAKES_WITHIN);
            seen = self.read();
        }
        self.write([0, self.turn, 0, 0, 0]);
        seen.and_then(|(waited, waiting)| (waiting == 0).then_some(waited))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Runs `f` while another thread faults all the time; returns what `f` does and the longest time that a fault took.
    fn while_faulting<T>(f: impl FnOnce() -> T) -> (T, Duration) {
        use std::sync::atomic::{AtomicBool, Ordering};
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let faults = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                let length = 1 << 20;
                while !over.load(Ordering::Relaxed) {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    // SAFETY: a new mapping, touched and unmapped here.
                    unsafe {
                        let began = Instant::now();
                        let start = libc::mmap(
                            std::ptr::null_mut(),
                            length,
                            libc::PROT_READ | libc::PROT_WRITE,
                            flags,
                            -1,
                            0,
                        );
                        assert_ne!(start, libc::MAP_FAILED);
                        libc::munmap(start, length);
                        longest = longest.max(began.elapsed());
                    }
                }
                longest
            });
            let done = f();
            over.store(true, Ordering::Relaxed);
            (done, faults.join().unwrap())
        })
    }

    #[test]
    fn a_thread_that_waits_for_the_lock_is_seen_and_one_of_another_process_is_not() {
        if let Err(why) = Waits::new() {
            eprintln!("SKIPPED: {why}");
            return;
        }
        for by in [SLOW, CONTENDED] {
            match Waits::by(by) {
                Ok(waits) => sees_waits(by, waits),
                Err(why) => eprintln!("EXPECTED: not by {by}*: {why}"),
            }
        }
    }

    fn sees_waits(by: &str, mut waits: Waits) {
        // Populating holds our own lock for reading, in pieces; mmap and munmap wait for it.
        let populate = || {
            let (length, flags) = (256 << 20, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping, unmapped here.
            unsafe {
                let start = libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    -1,
                    0,
                );
                assert_ne!(start, libc::MAP_FAILED);
                libc::madvise(start, length, libc::MADV_POPULATE_WRITE);
                libc::munmap(start, length);
            }
        };
        let mut measured = |pid: u32| {
            let (waited, longest) = while_faulting(|| {
                waits.begin(pid);
                populate();
                std::thread::sleep(Duration::from_millis(1));
                waits.end()
            });
            eprintln!("by {by}*, of {pid}: {waited:?} waited; the longest call {longest:?}");
            waited
        };
        let own = (0..20).find_map(|_| measured(std::process::id()).filter(|waited| *waited > Duration::ZERO));
        assert!(own.is_some(), "nobody was seen to wait");
        assert_eq!(measured(1), Some(Duration::ZERO));
    }
}
