//! The loaded BPF object: its one shared value, its links by task, and running it once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, ObjectBuilder};

use super::intf::*;
use super::raw::Mapping;
use super::ScanError;
use crate::bpf::{self, libbpf};
use crate::deadline;
use crate::sys::{self, Tasks};

/// BPF links that the eBPF scanner keeps open, a descriptor each; the least recently used one makes room.
pub fn links_max() -> usize {
    (crate::sys::open_files_limit() / 4).clamp(8, 256) as usize
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    Task,
    Vma,
}

struct Link {
    fd: OwnedFd,
    used: u64,
}

/// The two programs, loaded, and the memory that they share with us.
pub(super) struct Object {
    // Dropping the object closes programs and maps; the mapping may outlive it.
    object: libbpf_rs::Object,
    shared: Mapping,
    links: BTreeMap<(i32, Program), Link>,
    links_max: usize,
    clock: u64,
}

// SAFETY: libbpf objects hold no thread-local state; all use is through &mut self.
unsafe impl Send for Object {}

impl Object {
    pub(super) fn load() -> Result<Object, ScanError> {
        let refused = |why: String| ScanError::refused("ebpf", why);
        if let Some(absence) = bpf::absence(bpf::SCAN) {
            return Err(refused(absence.into()));
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(refused("the kernel has no BTF (/sys/kernel/btf/vmlinux)".into()));
        }
        libbpf::listen();
        let object = ObjectBuilder::default()
            .open_memory(bpf::SCAN)
            .and_then(|open| open.load())
            .map_err(|e| {
                refused(format!(
                    "loading the program (needs CAP_BPF and CAP_PERFMON): {e}: {}",
                    libbpf::complaints()
                ))
            })?;
        let map = object
            .maps()
            .find(|m| m.name() == "mega_shared")
            .ok_or_else(|| refused("no shared map".into()))?;
        if map.value_size() as usize != size_of::<Shared>() {
            return Err(refused(format!(
                "shared map of {} bytes, not {}",
                map.value_size(),
                size_of::<Shared>()
            )));
        }
        let shared = Mapping::shared(map.as_fd(), size_of::<Shared>().next_multiple_of(4096))
            .map_err(ScanError::io("mapping the BPF map"))?;
        Ok(Object {
            object,
            shared,
            links: BTreeMap::new(),
            links_max: links_max(),
            clock: 0,
        })
    }

    /// The shared value. Between runs nobody else touches it.
    pub(super) fn shared(&mut self) -> &mut Shared {
        // SAFETY: the mapping is page-aligned, as long as a Shared (checked against the map's value size), lives as
        // long as self, and is plain integers. The program writes it only within `read` of an iterator in `run`, which
        // takes &mut self, so no reference is alive then.
        unsafe { self.shared.base().cast::<Shared>().as_mut() }
    }

    /// A new iterator over task `tid`, at its beginning.
    fn iterator(&mut self, tid: i32, program: Program) -> Result<File, ScanError> {
        self.clock += 1;
        if !self.links.contains_key(&(tid, program)) {
            if self.links.len() >= self.links_max {
                if let Some(oldest) = self.links.iter().min_by_key(|(_, l)| l.used).map(|(k, _)| *k) {
                    self.links.remove(&oldest);
                }
            }
            let fd = self.attach(tid, program)?;
            self.links.insert((tid, program), Link { fd, used: 0 });
        }
        let link = self.links.get_mut(&(tid, program)).expect("just inserted");
        link.used = self.clock;
        sys::open_iterator(link.fd.as_fd()).map_err(ScanError::io("opening a BPF iterator"))
    }

    fn attach(&self, tid: i32, program: Program) -> Result<OwnedFd, ScanError> {
        let name = match program {
            Program::Task => "mega_task",
            Program::Vma => "mega_vma",
        };
        let program = self
            .object
            .progs()
            .find(|p| p.name() == name)
            .ok_or_else(|| ScanError::refused("ebpf", name))?;
        let tid = u32::try_from(tid).map_err(|_| ScanError::Gone)?;
        sys::link_tasks(program.as_fd(), Tasks::Thread(tid))
            .map_err(ScanError::io("attaching the BPF iterator (needs Linux 6.1)"))
    }

    /// Runs the request on a process. `Ok` means that its page tables were there from beginning to end.
    pub(super) fn run(&mut self, pid: i32) -> Result<Reply, ScanError> {
        self.on_live_thread(pid, |object, tid| object.run_thread(tid))
    }

    /// Runs the request on one thread; `None` if it has no memory or is gone.
    fn run_thread(&mut self, tid: i32) -> Result<Option<Reply>, ScanError> {
        self.shared().reply = Reply::default();
        let mut iterator = self.iterator(tid, Program::Task)?;
        let mut nothing = [0u8; 16];
        loop {
            match iterator.read(&mut nothing) {
                Ok(_) => break,
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => continue,
                Err(e) => return Err(ScanError::io("reading the BPF iterator")(e)),
            }
        }
        let reply = self.shared().reply;
        match reply.status {
            STATUS_NOT_RUN | STATUS_NO_MM => {
                self.forget(tid);
                Ok(None)
            }
            STATUS_MM_CHANGED => Err(ScanError::Gone),
            _ => Ok(Some(reply)),
        }
    }

    /// Lets go of the links of a thread.
    pub(super) fn forget(&mut self, tid: i32) {
        for program in [Program::Task, Program::Vma] {
            self.links.remove(&(tid, program));
        }
    }

    /// The process's leader, or, if that has exited before its threads, one of them.
    fn on_live_thread<T>(
        &mut self,
        pid: i32,
        mut run: impl FnMut(&mut Object, i32) -> Result<Option<T>, ScanError>,
    ) -> Result<T, ScanError> {
        if pid <= 0 {
            return Err(ScanError::Gone);
        }
        if let Some(done) = run(self, pid)? {
            return Ok(done);
        }
        for tid in super::maps::other_threads(pid) {
            if let Some(done) = run(self, tid)? {
                return Ok(done);
            }
        }
        Err(ScanError::Gone)
    }

    /// The binary VMA records of a process. The iterator takes the lock of its address space.
    pub(super) fn vma_records(&mut self, pid: i32) -> Result<Vec<u8>, ScanError> {
        self.on_live_thread(pid, |object, tid| {
            let iterator = object.iterator(tid, Program::Vma)?;
            let bytes = super::within(pid, deadline::CALL, move || read_records(iterator))?;
            if bytes.is_empty() {
                object.links.remove(&(tid, Program::Vma));
                return Ok(None);
            }
            Ok(Some(bytes))
        })
    }
}

/// All records of an iterator over mappings.
fn read_records(mut iterator: File) -> Result<Vec<u8>, ScanError> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut buffer = vec![0u8; 2048 * VMA_RECORD];
    let mut last = 0;
    loop {
        let n = match iterator.read(&mut buffer) {
            Ok(n) => n / VMA_RECORD * VMA_RECORD,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(ScanError::io("reading the VMA iterator")(e)),
        };
        // Seen on 6.18: at its end the iterator repeats the last VMA for ever. Addresses only grow otherwise.
        let end = n.checked_sub(VMA_RECORD).map_or(0, |at| {
            u64::from_ne_bytes(buffer[at + 8..at + 16].try_into().expect("eight bytes"))
        });
        if end <= last {
            return Ok(bytes);
        }
        last = end;
        bytes.extend_from_slice(&buffer[..n]);
    }
}
