//! The programs of `bpf/tasks.bpf.c`, loaded and attached.

use std::cell::RefCell;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use libbpf_rs::{Link, MapCore, MapFlags, ObjectBuilder, RingBuffer, RingBufferBuilder};

use super::{Change, TaskTable};
use crate::bpf::{self, libbpf};
use crate::proc::{stat, ProcRoot};
use crate::sys::{self, Tasks};

/// The iterator over all threads; the other programs are attached to tracepoints.
const ITERATOR: &str = "mega_tasks";
/// What is read of the iterator at most: a million threads.
const BYTES_MAX: u64 = 80 << 20;

/// Reads all processes. Not for several threads: each has its own.
pub struct TaskReader {
    // Fields are dropped in this order.
    ring: RingBuffer<'static>,
    _links: Vec<Link>,
    iterator: OwnedFd,
    object: libbpf_rs::Object,
    changes: Rc<RefCell<Vec<Change>>>,
    lost: u64,
    buffer: Vec<u8>,
}

impl TaskReader {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn new() -> Result<Self, String> {
        if let Some(why) = bpf::absence(bpf::TASKS) {
            return Err(why.to_owned());
        }
        libbpf::listen();
        let said = |doing: &str, error: &dyn std::fmt::Display| format!("{doing}: {error}: {}", libbpf::complaints());
        let object = ObjectBuilder::default()
            .open_memory(bpf::TASKS)
            .and_then(|open| open.load())
            .map_err(|error| said("loading the programs (needs CAP_BPF and CAP_PERFMON)", &error))?;
        let mut links = Vec::new();
        let mut iterator = None;
        for program in object.progs_mut() {
            if program.name() == ITERATOR {
                let link = sys::link_tasks(program.as_fd(), Tasks::All);
                iterator = Some(link.map_err(|error| said("attaching the iterator", &error))?);
            } else {
                links.push(program.attach().map_err(|error| said("attaching", &error))?);
            }
        }
        let iterator = iterator.ok_or("no iterator")?;
        let changes = Rc::new(RefCell::new(Vec::new()));
        let ring = {
            let map = object
                .maps()
                .find(|map| map.name() == "mega_changes")
                .ok_or("no ring")?;
            let to = Rc::clone(&changes);
            let mut builder = RingBufferBuilder::new();
            builder
                .add(&map, move |bytes| {
                    to.borrow_mut().extend(Change::parse(bytes));
                    0
                })
                .map_err(|error| said("mapping the ring", &error))?;
            builder.build().map_err(|error| said("mapping the ring", &error))?
        };
        let mut reader = Self {
            ring,
            _links: links,
            iterator,
            object,
            changes,
            lost: 0,
            buffer: Vec::new(),
        };
        reader.check()?;
        Ok(reader)
    }

    /// The kernel's numbers are those of the first PID namespace, /proc's those of ours: they must be the same. So must be the start times.
    fn check(&mut self) -> Result<(), String> {
        let pid = std::process::id();
        let own = stat::read(&ProcRoot::default(), pid).map_err(|error| error.to_string())?;
        let table = self.read()?;
        match table.get(pid) {
            Some(task) if task.start_ticks == own.start_ticks && task.parent == own.ppid => Ok(()),
            Some(_) => Err("its start times or parents are not those of /proc".to_owned()),
            None => Err("PIDs are those of a PID namespace".to_owned()),
        }
    }

    /// All processes now, and the changes since the last read.
    ///
    /// # Errors
    /// The iterator cannot be read; what, in words.
    pub fn read(&mut self) -> Result<TaskTable, String> {
        // Changes first: what happens between the two reads is in the table now and among the changes next time.
        self.ring
            .consume()
            .map_err(|error| format!("reading the ring: {error}"))?;
        let iterator =
            sys::open_iterator(self.iterator.as_fd()).map_err(|error| format!("opening the iterator: {error}"))?;
        self.buffer.clear();
        iterator
            .take(BYTES_MAX)
            .read_to_end(&mut self.buffer)
            .map_err(|error| format!("reading the iterator: {error}"))?;
        let mut table = TaskTable::of(&self.buffer);
        // Seen on 6.18: the iterator begins with the second process.
        if let (None, Ok(first)) = (table.get(1), stat::read(&ProcRoot::default(), 1)) {
            table.insert_first(&first);
        }
        table.changes = std::mem::take(&mut self.changes.borrow_mut());
        let lost = self.lost_so_far();
        table.lost = lost.saturating_sub(self.lost);
        self.lost = lost.max(self.lost);
        Ok(table)
    }

    fn lost_so_far(&self) -> u64 {
        let map = self.object.maps().find(|map| map.name() == "mega_lost");
        let value = map.and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        value.map_or(0, |bytes| bytes.try_into().map_or(0, u64::from_ne_bytes))
    }
}
