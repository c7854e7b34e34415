//! How long the threads of a process waited for its mmap_lock while we acted on it, by `bpf/waits.bpf.c`.
//!
//! A collapse holds the lock for most of its time, and page faults, mmap and munmap of the program wait for it. What else it may wait for (the
//! lock of a page table, a flush of the TLB) is short and not seen.

use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};

use crate::bpf::{self, libbpf};

/// The programs on the functions that wait for a semaphore, and those on the tracepoints of contended locks.
const SLOW: &str = "mega_slow_";
const CONTENDED: &str = "mega_wait_";
/// What waited is counted this much later, when its thread runs again.
pub(crate) const WAKES_WITHIN: Duration = Duration::from_micros(60);
/// What `struct mega_act` has: pid, turn, ns, begun, ended.
const WORDS: usize = 5;

/// The programs, loaded and attached.
pub struct Waits {
    // Fields are dropped in this order.
    _links: Vec<Link>,
    act: MapHandle,
    _object: Object,
    turn: u64,
    prefix: &'static str,
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
    fn by(prefix: &'static str) -> Result<Self, String> {
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
            prefix,
            is_set: false,
        })
    }

    /// Where they are measured.
    pub fn place(&self) -> &'static str {
        match self.prefix {
            SLOW => "in the slow paths of rw_semaphore",
            _ => "at the tracepoints of contended locks",
        }
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
    use super::*;

    /// Maps so much, does something to it, and unmaps it.
    fn with_mapping(length: usize, f: impl FnOnce(*mut libc::c_void)) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, unmapped here.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            f(start);
            libc::munmap(start, length);
        }
    }

    /// Runs `f` while another thread maps and unmaps all the time.
    fn while_mapping<T>(f: impl FnOnce() -> T) -> T {
        use std::sync::atomic::{AtomicBool, Ordering};
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    with_mapping(1 << 20, |_| {});
                }
            });
            let done = f();
            over.store(true, Ordering::Relaxed);
            done
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
        // Populating takes our own lock for reading, mapping and unmapping for writing: they wait for each other.
        let mut measured = |pid: u32| {
            let waited = while_mapping(|| {
                waits.begin(pid);
                with_mapping(256 << 20, |start| {
                    // SAFETY: all of a mapping of ours.
                    unsafe { libc::madvise(start, 256 << 20, libc::MADV_POPULATE_WRITE) };
                });
                std::thread::sleep(Duration::from_millis(1));
                waits.end()
            });
            eprintln!("by {by}*, of {pid}: {waited:?} waited");
            waited
        };
        let own = (0..20).find_map(|_| measured(std::process::id()).filter(|waited| *waited > Duration::ZERO));
        assert!(own.is_some(), "nobody was seen to wait");
        assert_eq!(measured(1), Some(Duration::ZERO));
    }
}
