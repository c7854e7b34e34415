//! Which processes are managed: who comes, who goes, and whom there is room for.

use std::collections::BTreeSet;
use std::time::Duration;

use mega_core::ageing::accessed_bits::AccessedBits;
use mega_core::host::{Host, HostEvent};
use mega_core::observe::ProcessId;

use super::contents::KnownContents;
use super::managed::Managed;
use super::quiet::Quiet;
use super::wait::Woken;
use super::{capacity, LinuxHost};
use crate::proc::stat;
use crate::process::{self, Process};

impl LinuxHost {
    /// Whether no process is managed and none will be. Looks for descendants of ended ones first.
    pub(super) fn nobody_left(&mut self) -> bool {
        if self.managed.is_empty() && self.roster.closed() {
            self.refresh_processes();
            return self.managed.is_empty();
        }
        false
    }

    /// Drops the processes that have exited, as far as the kernel has said so.
    pub(super) fn drop_ended(&mut self) {
        loop {
            let woken = self.watch.wait(Duration::ZERO);
            if !self.note_woken(&woken) {
                return;
            }
        }
    }

    /// Takes note of what a wait saw; whether any process was dropped.
    pub(super) fn note_woken(&mut self, woken: &Woken) -> bool {
        self.stopped |= woken.stop;
        let candidates: Vec<ProcessId> = match &woken.exited {
            Some(pids) => pids.iter().flat_map(|pid| self.ids_of(*pid)).collect(),
            None => self.managed.keys().copied().collect(),
        };
        let mut dropped = false;
        for id in candidates {
            if self.managed.get(&id).is_some_and(|managed| !managed.process.is_alive()) {
                self.drop_process(id);
                dropped = true;
            }
        }
        dropped
    }

    /// The managed process with this PID; two for a moment where one has exited and the PID is used again.
    fn ids_of(&self, pid: u32) -> Vec<ProcessId> {
        let all = ProcessId { pid, started: 0 }..=ProcessId { pid, started: u64::MAX };
        self.managed.range(all).map(|(id, _)| *id).collect()
    }

    pub(super) fn refresh_processes(&mut self) {
        self.drop_ended();
        self.read_table();
        let known: BTreeSet<u32> = self.managed.keys().map(|id| id.pid).collect();
        let named = match &self.table {
            Some(table) => self.roster.pids_in(&self.options.root, table),
            None => self.roster.pids(&self.options.root),
        };
        match named {
            Ok(pids) => {
                let named: BTreeSet<u32> = pids.into_iter().collect();
                self.refused.retain(|pid, _| named.contains(pid));
                let room = self.make_room(&named, &known);
                for pid in room.difference(&known) {
                    if self.is_stopped() {
                        return;
                    }
                    self.take_in(*pid);
                }
            }
            Err(why) => self.notice_once("roster", || format!("cannot look for further processes: {why}")),
        }
    }

    fn read_table(&mut self) {
        self.table = None;
        let Some(tasks) = &mut self.tasks else { return };
        match tasks.read() {
            Ok(table) => {
                if table.lost > 0 {
                    let lost = table.lost;
                    self.notice_once("lost", || {
                        format!("{lost} changes of processes found no room in the kernel's buffer: more start and end than are followed")
                    });
                }
                self.table = Some(table);
            }
            Err(why) => {
                // It is asked again at the next look.
                self.notice_once("tasks", || format!("processes are looked for in /proc: {why}"));
            }
        }
    }

    /// Of the named processes those that there are descriptors for. Managed ones that larger ones displace are dropped.
    fn make_room(&mut self, named: &BTreeSet<u32>, known: &BTreeSet<u32>) -> BTreeSet<u32> {
        let all: BTreeSet<u32> = named.union(known).copied().collect();
        if all.len() <= self.most {
            return all;
        }
        let (root, table) = (&self.options.root, &self.table);
        let chosen = capacity::largest(&all, known, self.most, |pid| match table {
            Some(table) => table.get(pid).map_or(0, |task| task.resident_pages),
            None => stat::read(root, pid).map_or(0, |stat| stat.rss_bytes),
        });
        for pid in known.difference(&chosen) {
            for id in self.ids_of(*pid) {
                self.drop_process(id);
            }
        }
        let (most, beyond) = (self.most, all.len() - self.most);
        self.notice_once("capacity", || {
            format!(
                "{beyond} processes are not managed: the limit of open files (ulimit -n) leaves room for {most}; the largest are managed"
            )
        });
        chosen
    }

    pub(super) fn drop_process(&mut self, id: ProcessId) {
        if self.managed.remove(&id).is_some() {
            self.kin.remove(id.pid);
            self.failures.forget(id.pid);
            self.scanner.forget(id.pid as i32);
            self.events.push(HostEvent::Gone(id));
        }
    }

    /// Adds a process if possible. A refused one is tried again at the next scan: a vfork child gets its own memory by exec, and another
    /// manager may stop.
    fn take_in(&mut self, pid: u32) {
        let process = match Process::open(&self.options.root, pid) {
            Ok(process) if process.is_exiting() => return,
            Ok(process) => process,
            Err(error) if error.is_gone() => return,
            Err(error) => return self.refuse(pid, 0, error.to_string()),
        };
        let started = process.start_ticks();
        let table = self.table.as_ref();
        let is_same = |other: u32| match table {
            Some(table) if table.get(pid).is_some() => table.is_shared(pid, other),
            _ => process::same_memory(pid, other),
        };
        if let Some(other) = self.kin.sharer(pid, process.parent(), is_same) {
            // A number may be another process's by now; the next scan asks again.
            if process.is_alive() {
                let text = format!("shares its address space with managed process {other}");
                return self.refuse(pid, started, text);
            }
            return;
        }
        let claim = match &self.options.claims {
            None => None,
            Some(claims) => match claims.claim(pid, started) {
                Ok(claim) => Some(claim),
                Err(error) => return self.refuse(pid, started, error.to_string()),
            },
        };
        let id = process.id();
        if let Err(errno) = self.watch.add(process.pidfd(), pid) {
            return self.refuse(pid, started, format!("its exit cannot be watched: {errno}"));
        }
        self.kin.add(pid, process.parent());
        self.refused.remove(&pid);
        self.seen_any = true;
        self.events.push(HostEvent::Found(id, process.name(&self.options.root)));
        self.managed.insert(
            id,
            Managed {
                process,
                _claim: claim,
                vmas: Vec::new(),
                thp_disabled: false,
                aged: AccessedBits::default(),
                contents: KnownContents::default(),
                kept: Default::default(),
                is_kept_known: false,
                quiet: Quiet::default(),
            },
        );
    }

    fn refuse(&mut self, pid: u32, started: u64, why: String) {
        if self.refused.insert(pid, started) != Some(started) {
            self.events.push(HostEvent::Refused(pid, why));
        }
    }
}
