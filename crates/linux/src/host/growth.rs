//! Growth between two observations, seen cheaply: the resident memory of the managed processes, and whether any process was started.

use std::collections::BTreeMap;
use std::time::Duration;

use mega_core::observe::ProcessId;

use crate::proc::{read_bounded, stat, ProcRoot, SMALL_BYTES};

/// Time between two looks, and what each process beyond the first ones adds: a look costs some microseconds a process.
const EVERY: Duration = Duration::from_millis(250);
const MORE_FOR_EACH: Duration = Duration::from_millis(10);
/// Looks from one at newly started processes to the next.
const LOOKS_FOR_NEW: u32 = 4;
/// Processes whose size is read when an observation begins.
const BEGUN_MAX: usize = 256;
/// A process has grown by so much, and by this part of what it had.
const GROWN_BYTES: u64 = 16 << 20;
const GROWN_PART: u64 = 256;

/// What there was.
#[derive(Debug, Default)]
pub struct Growth {
    resident: BTreeMap<ProcessId, u64>,
    /// The PID given last.
    newest: Option<u32>,
    looks: u32,
    is_asked: bool,
}

impl Growth {
    /// Time to the next look at so many processes.
    pub fn pause(processes: usize) -> Duration {
        EVERY + MORE_FOR_EACH * u32::try_from(processes.saturating_sub(1)).unwrap_or(u32::MAX).min(1000)
    }

    /// Starts from what there is now: an observation sees all of it. Nothing is read before growth is asked for the first time, and nothing of
    /// many processes, which are hardly asked about between two observations.
    pub fn begin(&mut self, root: &ProcRoot, processes: impl ExactSizeIterator<Item = ProcessId>) {
        self.resident.clear();
        if self.is_asked && processes.len() <= BEGUN_MAX {
            self.has_grown(root, processes);
        }
    }

    /// Whether a process has grown since the first look after [`begin`](Self::begin), or has shrunk since and grown again.
    pub fn has_grown(&mut self, root: &ProcRoot, processes: impl Iterator<Item = ProcessId>) -> bool {
        self.is_asked = true;
        let mut grown = false;
        for id in processes {
            let Some(now) = stat::read(root, id.pid).ok().map(|stat| stat.rss_bytes) else {
                continue;
            };
            let had = self.resident.entry(id).or_insert(now);
            *had = (*had).min(now);
            grown |= now - *had >= GROWN_BYTES.max(*had / GROWN_PART);
        }
        grown
    }

    /// Whether processes may have been started since this was asked last; asked every few looks only, since to find them is dear.
    pub fn is_time_for_new(&mut self, root: &ProcRoot) -> bool {
        self.looks += 1;
        if self.looks % LOOKS_FOR_NEW != 0 {
            return false;
        }
        let newest = newest_pid(root);
        let is_new = newest != self.newest;
        self.newest = newest;
        is_new
    }
}

/// The PID that was given last on this machine.
fn newest_pid(root: &ProcRoot) -> Option<u32> {
    let text = read_bounded(&root.proc.join("loadavg"), SMALL_BYTES).ok()?;
    let text = std::str::from_utf8(&text).ok()?;
    text.split_ascii_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, started: 1 }
    }

    /// A process as the kernel would show it. A real one of this test's would do, but other tests beside it take and give back memory, too.
    fn resident(root: &ProcRoot, id: ProcessId, bytes: u64) {
        let folder = root.proc.join(id.pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let real = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (name, rest) = real.rsplit_once(") ").unwrap();
        let mut fields: Vec<_> = rest.split(' ').map(str::to_owned).collect();
        // Fields are counted from 1, and the state, which follows the name, is the third.
        fields[24 - 3] = (bytes / 4096).to_string();
        std::fs::write(folder.join("stat"), format!("{name}) {}", fields.join(" "))).unwrap();
    }

    #[test]
    fn a_program_that_takes_memory_has_grown_and_one_that_does_not_has_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::under(folder.path());
        let one = || std::iter::once(id(100));
        let mut growth = Growth::default();
        resident(&root, id(100), 1 << 30);
        growth.begin(&root, one());
        assert!(growth.resident.is_empty(), "nobody asks");
        assert!(!growth.has_grown(&root, one()));
        assert_eq!(growth.resident[&id(100)], 1 << 30);
        resident(&root, id(100), (1 << 30) + GROWN_BYTES - 4096);
        assert!(!growth.has_grown(&root, one()), "a page too little");
        resident(&root, id(100), (1 << 30) + GROWN_BYTES);
        assert!(growth.has_grown(&root, one()));
        growth.begin(&root, one());
        assert!(!growth.has_grown(&root, one()), "it is seen by then");
        resident(&root, id(100), 1 << 29);
        assert!(!growth.has_grown(&root, one()), "it shrinks");
        resident(&root, id(100), (1 << 29) + GROWN_BYTES);
        assert!(growth.has_grown(&root, one()), "it has shrunk and grown again");
        resident(&root, id(100), 64 << 30);
        growth.begin(&root, one());
        resident(&root, id(100), (64 << 30) + 2 * GROWN_BYTES);
        assert!(!growth.has_grown(&root, one()), "little of so much");
        resident(&root, id(100), (64 << 30) + (64 << 30) / GROWN_PART);
        assert!(growth.has_grown(&root, one()));
        assert!(
            !growth.has_grown(&root, std::iter::once(id(101))),
            "a process that is gone"
        );
    }

    #[test]
    fn started_processes_are_asked_for_every_few_looks() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::under(folder.path());
        std::fs::create_dir(&root.proc).unwrap();
        let newest =
            |pid: u32| std::fs::write(root.proc.join("loadavg"), format!("0.1 0.1 0.1 1/200 {pid}\n")).unwrap();
        newest(100);
        let mut growth = Growth::default();
        let four = |growth: &mut Growth| (0..4).map(|_| growth.is_time_for_new(&root)).collect::<Vec<_>>();
        four(&mut growth);
        assert_eq!(four(&mut growth), [false; 4]);
        newest(101);
        assert_eq!(four(&mut growth), [false, false, false, true]);
        assert_eq!(four(&mut growth), [false; 4]);
    }

    #[test]
    fn many_processes_are_looked_at_less_often() {
        assert_eq!(Growth::pause(1), EVERY);
        assert_eq!(Growth::pause(0), EVERY);
        assert_eq!(Growth::pause(101), EVERY + Duration::from_secs(1));
    }
}
