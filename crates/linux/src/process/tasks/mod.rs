//! All processes by one read, and who came and went since the read before: what /proc tells in a file each, by `bpf/tasks.bpf.c`.
//!
//! Where that is not to be had (no CAP_BPF or CAP_PERFMON, no BTF, a PID namespace of our own) there is no [`TaskReader`], and callers read /proc
//! as before. Changes that found no room in the kernel's buffer are counted; what they would have told is in the table all the same, but for
//! processes that came and went in between.

mod object;

use std::collections::BTreeMap;

use crate::proc::stat::Stat;

pub use object::TaskReader;

/// Nanoseconds in a clock tick of /proc/PID/stat.
const TICK_NS: u64 = 10_000_000;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its PID.
    pub pid: u32,
    /// Its parent now.
    pub parent: u32,
    /// The kernel's PF_* bits.
    pub flags: u32,
    /// When it was started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Processor time of all of its threads, ended ones too.
    pub ran_ns: u64,
    /// Their page faults.
    pub faults: u64,
    /// Tells address spaces apart; 0 where it has none.
    pub space: u64,
    /// Resident, by counters that may be off by some dozen pages per processor.
    pub resident_pages: u64,
    /// The signal that its parent gets when it ends.
    pub exit_signal: i32,
    /// Threads that have not ended.
    pub threads: u32,
    /// Its main thread has ended.
    pub is_zombie: bool,
    /// Its name.
    pub comm: String,
}

/// A record of the iterator: a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    tid: u32,
    pid: u32,
    parent: u32,
    flags: u32,
    started_ns: u64,
    ran_ns: u64,
    faults: u64,
    mm: u64,
    pages: i64,
    exit_signal: i32,
    is_over: u32,
    comm: [u8; 16],
}

/// Bytes of a record.
const THREAD_BYTES: usize = 80;

impl Thread {
    /// The record at the beginning of `bytes`; `None` where it is cut off.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            tid: word(0)?,
            pid: word(4)?,
            parent: word(8)?,
            flags: word(12)?,
            started_ns: long(16)?,
            ran_ns: long(24)?,
            faults: long(32)?,
            mm: long(40)?,
            pages: long(48)? as i64,
            exit_signal: word(56)? as i32,
            is_over: word(60)?,
            comm: bytes.get(64..80)?.try_into().ok()?,
        })
    }

    fn task(&self) -> Task {
        let end = self.comm.iter().position(|byte| *byte == 0).unwrap_or(self.comm.len());
        Task {
            pid: self.pid,
            parent: self.parent,
            flags: self.flags,
            start_ticks: self.started_ns / TICK_NS,
            ran_ns: self.ran_ns,
            faults: self.faults,
            space: self.mm,
            resident_pages: u64::try_from(self.pages).unwrap_or(0),
            exit_signal: self.exit_signal,
            threads: u32::from(self.is_over == 0),
            is_zombie: self.is_over != 0,
            comm: String::from_utf8_lossy(&self.comm[..end]).into_owned(),
        }
    }
}

/// What happened to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was started by this one.
    Fork {
        /// The child.
        pid: u32,
        /// Who called fork, vfork or clone.
        parent: u32,
    },
    /// It runs another program now, with new memory.
    Exec {
        /// The process.
        pid: u32,
    },
    /// Its main thread has ended.
    Exit {
        /// The process.
        pid: u32,
    },
}

impl Change {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (kind, pid, parent) = (word(0)?, word(4)?, word(8)?);
        match kind {
            1 => Some(Self::Fork { pid, parent }),
            2 => Some(Self::Exec { pid }),
            3 => Some(Self::Exit { pid }),
            _ => None,
        }
    }
}

/// All processes at one moment, and what changed since the moment before.
#[derive(Debug, Clone, Default)]
pub struct TaskTable {
    tasks: Vec<Task>,
    /// In their order, since the read before.
    pub changes: Vec<Change>,
    /// Changes that were lost since then.
    pub lost: u64,
}

impl TaskTable {
    /// Of the iterator's records.
    fn of(bytes: &[u8]) -> Self {
        let threads: Vec<Thread> = bytes.chunks_exact(THREAD_BYTES).filter_map(Thread::parse).collect();
        let mut tasks: Vec<Task> = threads.iter().filter(|t| t.tid == t.pid).map(Thread::task).collect();
        tasks.sort_by_key(|task| task.pid);
        for thread in threads.iter().filter(|t| t.tid != t.pid) {
            if let Ok(at) = tasks.binary_search_by_key(&thread.pid, |task| task.pid) {
                let task = &mut tasks[at];
                task.ran_ns += thread.ran_ns;
                task.faults += thread.faults;
                task.threads += u32::from(thread.is_over == 0);
            }
        }
        Self {
            tasks,
            ..Self::default()
        }
    }

    /// Adds the first process, of which the iterator did not tell: what only that tells is 0, so that it is looked at each time.
    fn insert_first(&mut self, stat: &Stat) {
        let task = Task {
            pid: stat.pid,
            parent: stat.ppid,
            flags: stat.flags,
            start_ticks: stat.start_ticks,
            ran_ns: 0,
            faults: stat.minor_faults,
            space: 0,
            resident_pages: stat.rss_bytes / mega_core::units::BASE_PAGE_BYTES,
            exit_signal: stat.exit_signal.unwrap_or(0),
            threads: stat.threads,
            is_zombie: stat.is_zombie(),
            comm: stat.comm.clone(),
        };
        self.tasks.insert(0, task);
    }

    /// The process with this PID.
    pub fn get(&self, pid: u32) -> Option<&Task> {
        let at = self.tasks.binary_search_by_key(&pid, |task| task.pid).ok()?;
        self.tasks.get(at)
    }

    /// All, by PID.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter()
    }

    /// Whether both have the same address space.
    pub fn is_shared(&self, pid: u32, other: u32) -> bool {
        let space = |pid| self.get(pid).map_or(0, |task| task.space);
        space(pid) != 0 && space(pid) == space(other)
    }

    /// The children of each process that has any, by PID.
    pub fn children(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for task in self.tasks.iter().filter(|task| !task.is_over()) {
            children.entry(task.parent).or_default().push(task.pid);
        }
        children
    }
}

impl Task {
    /// The whole process is over, and only waits for its parent.
    pub fn is_over(&self) -> bool {
        self.is_zombie && self.threads == 0
    }

    /// A thread of the kernel's own.
    pub fn is_kernel_thread(&self) -> bool {
        self.stat().is_kernel_thread()
    }

    /// What of it /proc/PID/stat has, too; the fields that the table lacks are 0.
    pub(super) fn stat(&self) -> Stat {
        Stat {
            pid: self.pid,
            comm: self.comm.clone(),
            state: if self.is_zombie { 'Z' } else { 'S' },
            ppid: self.parent,
            flags: self.flags,
            minor_faults: self.faults,
            major_faults: 0,
            user_ticks: 0,
            system_ticks: 0,
            // A zombie leader counts in /proc.
            threads: self.threads + u32::from(self.is_zombie),
            start_ticks: self.start_ticks,
            size_bytes: 0,
            rss_bytes: self.resident_pages * mega_core::units::BASE_PAGE_BYTES,
            exit_signal: Some(self.exit_signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tid: u32, pid: u32, parent: u32, ran_ns: u64, is_over: u32) -> Vec<u8> {
        let mut bytes: Vec<u8> = [tid, pid, parent, 0].iter().flat_map(|w| w.to_ne_bytes()).collect();
        for long in [20_000_000, ran_ns, 3, u64::from(pid) << 8, 5] {
            bytes.extend(u64::to_ne_bytes(long));
        }
        bytes.extend(17u32.to_ne_bytes());
        bytes.extend(is_over.to_ne_bytes());
        bytes.extend(*b"name\0\0\0\0\0\0\0\0\0\0\0\0");
        bytes
    }

    #[test]
    fn threads_add_to_their_process_wherever_their_records_are() {
        let mut bytes = [record(5, 9, 0, 70, 0), record(7, 7, 1, 1, 0)].concat();
        bytes.extend(record(9, 9, 7, 30, 1));
        bytes.extend(record(12, 99, 7, 30, 0));
        bytes.extend([1, 2, 3]);
        let table = TaskTable::of(&bytes);
        let nine = table.get(9).unwrap();
        assert_eq!(
            (nine.ran_ns, nine.faults, nine.threads, nine.start_ticks),
            (100, 6, 1, 2)
        );
        assert!(nine.is_zombie && !nine.is_over() && !nine.stat().is_over());
        assert_eq!(nine.comm, "name");
        assert_eq!(table.iter().count(), 2, "a thread without its leader is nobody's");
        assert_eq!(table.children(), BTreeMap::from([(1, vec![7]), (7, vec![9])]));
        assert!(!table.is_shared(7, 9) && table.is_shared(9, 9) && !table.is_shared(8, 10));
    }

    #[test]
    fn what_is_no_change_is_none() {
        let words = |list: [u32; 4]| list.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        assert_eq!(
            Change::parse(&words([1, 8, 7, 0])),
            Some(Change::Fork { pid: 8, parent: 7 })
        );
        assert_eq!(Change::parse(&words([2, 8, 0, 0])), Some(Change::Exec { pid: 8 }));
        assert_eq!(Change::parse(&words([9, 8, 0, 0])), None);
        assert_eq!(Change::parse(&[1, 0]), None);
    }
}
