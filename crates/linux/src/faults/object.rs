//! The programs of `bpf/faults.bpf.c`, loaded and attached, and their counters.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::btf::types::Struct;
use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, MapCore, MapFlags, ObjectBuilder, Program};
use rustix::thread::CapabilitySet;

use super::latency::{FaultLatency, WORDS};
use super::FaultsError;
use crate::bpf::{self, libbpf};
use crate::knobs::thp;
use crate::sys::{self, Tasks};

const BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
/// Ends the fault where the kernel's function returns.
const END_RETURN: &str = "mega_end";
/// Ends the fault where the kernel counts the new page.
const END_RSS: &str = "mega_end_rss";
const MARK: &str = "mega_mark";
/// No process has more threads (PID_MAX_LIMIT).
const THREADS_MAX: u64 = 4 << 20;
/// Looks for threads that appeared during the look before.
const PASSES_MAX: u32 = 64;

pub(super) struct Object {
    // Links before the object: they are dropped in this order.
    links: Vec<Link>,
    object: libbpf_rs::Object,
    threads_lost: u64,
}

/// What is needed whichever way faults are measured.
fn check_machine() -> Result<(), FaultsError> {
    if let Some(why) = bpf::absence(bpf::FAULTS) {
        return Err(FaultsError::NotBuilt { why });
    }
    if !Path::new(BTF).exists() {
        return Err(FaultsError::NoBtf { path: BTF });
    }
    if let Ok(text) = fs::read_to_string(LOCKDOWN) {
        if thp::chosen(&text) == "confidentiality" {
            return Err(FaultsError::Lockdown);
        }
    }
    // Where they cannot be asked for, loading will tell.
    match sys::effective_capabilities() {
        Ok(have) => check_capabilities(have),
        Err(_) => Ok(()),
    }
}

fn check_capabilities(have: CapabilitySet) -> Result<(), FaultsError> {
    // CAP_SYS_ADMIN includes the two that were split off from it.
    if have.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    for (bit, name) in [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")] {
        if !have.contains(bit) {
            return Err(FaultsError::Capability { missing: name });
        }
    }
    Ok(())
}

/// Up to 6.1 each thread keeps its changes to itself until there are 64 of them, and only then reports them.
fn rss_is_batched() -> Result<bool, FaultsError> {
    let btf = Btf::from_vmlinux().map_err(|e| FaultsError::load("reading the kernel's BTF", e.to_string()))?;
    let task: Option<Struct<'_>> = btf.type_by_name("task_struct");
    let named = |name: Option<&OsStr>| name == Some(OsStr::new("rss_stat"));
    Ok(task.is_some_and(|task| task.iter().any(|member| named(member.name))))
}

impl Object {
    /// The object with every fault seen, or else with what can be seen, and why it is not all.
    pub(super) fn start() -> Result<(Object, Option<String>), FaultsError> {
        check_machine()?;
        let refused = match Object::load(END_RETURN) {
            Ok(object) => return Ok((object, None)),
            Err(FaultsError::Load { doing, why }) => format!("{doing}: {why}"),
            Err(other) => return Err(other),
        };
        if rss_is_batched()? {
            return Err(FaultsError::Batched { refused });
        }
        Ok((Object::load(END_RSS)?, Some(refused)))
    }

    fn load(end: &str) -> Result<Object, FaultsError> {
        libbpf::listen();
        let failed = |doing: &'static str| {
            move |e: libbpf_rs::Error| FaultsError::load(doing, format!("{e}: {}", libbpf::complaints()))
        };
        let mut open = ObjectBuilder::default()
            .open_memory(bpf::FAULTS)
            .map_err(failed("opening the programs"))?;
        for mut program in open.progs_mut() {
            let is_other_end = [END_RETURN, END_RSS].iter().any(|&e| e != end && program.name() == e);
            program.set_autoload(!is_other_end);
        }
        let object = open.load().map_err(failed("loading the programs"))?;
        let map = object.maps().find(|m| m.name() == "mega_latency");
        match map.map(|m| m.value_size() as usize) {
            Some(bytes) if bytes == WORDS * 8 => {}
            other => {
                let why = format!("{other:?} bytes, not {}", WORDS * 8);
                return Err(FaultsError::load("checking the counters' layout", why));
            }
        }
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if program.autoload() && program.name() != MARK {
                links.push(program.attach().map_err(failed("attaching the programs"))?);
            }
        }
        Ok(Object {
            links,
            object,
            threads_lost: 0,
        })
    }

    fn program(&self, name: &str) -> Option<Program<'_>> {
        self.object.progs().find(|p| p.name() == name)
    }

    /// Follows all threads of a process from now on.
    pub(super) fn follow(&mut self, pid: u32) -> Result<(), FaultsError> {
        let gone = || FaultsError::Gone { pid };
        if i32::try_from(pid).map_or(true, |pid| pid <= 0) {
            return Err(gone());
        }
        let program = self.program(MARK).ok_or_else(gone)?;
        let io = |doing| move |source| FaultsError::Io { doing, source };
        let link = sys::link_tasks(program.as_fd(), Tasks::Process(pid))
            .map_err(io("attaching the BPF iterator (needs Linux 6.1)"))?;
        let mut answers = Vec::new();
        for _ in 0..PASSES_MAX {
            answers.clear();
            let iterator = sys::open_iterator(link.as_fd()).map_err(io("opening the BPF iterator"))?;
            iterator
                .take(THREADS_MAX)
                .read_to_end(&mut answers)
                .map_err(io("reading the BPF iterator"))?;
            // A thread may have appeared behind our back; what followed threads start is followed by itself.
            if !answers.contains(&1) {
                break;
            }
        }
        self.threads_lost += answers.iter().filter(|&&a| a == 2).count() as u64;
        if answers.is_empty() {
            return Err(gone());
        }
        Ok(())
    }

    /// The counters of all processors, added up.
    pub(super) fn read(&self) -> Result<FaultLatency, FaultsError> {
        let failed = |why: String| FaultsError::load("reading the counters", why);
        let map = self.object.maps().find(|m| m.name() == "mega_latency");
        let map = map.ok_or_else(|| failed("there are none".into()))?;
        let values = map
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| failed(e.to_string()))?
            .unwrap_or_default();
        let mut latency = FaultLatency::default();
        for value in &values {
            let mut words = [0u64; WORDS];
            for (word, bytes) in words.iter_mut().zip(value.chunks_exact(8)) {
                *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            }
            latency.add(&words);
        }
        latency.threads_lost += self.threads_lost;
        for program in self.object.progs().filter(|p| p.autoload() && p.name() != MARK) {
            latency.missed += sys::recursion_misses(program.as_fd()).map_err(|source| FaultsError::Io {
                doing: "asking for a program's misses",
                source,
            })?;
        }
        Ok(latency)
    }

    /// Programs attached.
    pub(super) fn attached(&self) -> usize {
        self.links.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_that_is_missing_is_named() {
        let missing = |have| check_capabilities(have).map_err(|e| e.to_string());
        assert_eq!(missing(CapabilitySet::SYS_ADMIN), Ok(()));
        assert_eq!(missing(CapabilitySet::BPF | CapabilitySet::PERFMON), Ok(()));
        assert!(missing(CapabilitySet::BPF).unwrap_err().contains("CAP_PERFMON"));
        assert!(missing(CapabilitySet::SYS_NICE).unwrap_err().contains("CAP_BPF"));
    }
}
