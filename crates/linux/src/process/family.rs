//! Processes and all that they start.
//!
//! A family begins with ancestors and grows at every look by the children of its members. What was once a member stays
//! one, so a daemon that leaves its parent is kept if a look saw it before the parent ended. To miss none,
//! [`become a subreaper`](crate::sys::become_subreaper): then orphans come back to us, and everything below us is ours.
//!
//! A member that has another one's address space (a vfork child before its exec, a clone with CLONE_VM) is not managed: its
//! memory already is. It is looked at again each time, since after exec it has its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::error::{Error, Result};
use crate::proc::stat::{self, Stat};
use crate::proc::{task, ProcRoot};
use crate::process::tasks::{Change, TaskTable};

/// One process of the family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its PID.
    pub pid: u32,
    /// When it was started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its parent when it was found.
    pub ppid: u32,
    /// Its name when it was found.
    pub comm: String,
    /// The member, or ancestor, whose address space it has.
    pub shares_with: Option<u32>,
}

/// What a look found changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// Processes with memory of their own that were not there, or shared another one's, the last time.
    pub found: Vec<Member>,
    /// Members with memory of their own that have ended.
    pub gone: Vec<Member>,
    /// Processes about which the kernel's files could not be read, and why.
    pub unread: Vec<(u32, Error)>,
}

/// Processes and their descendants.
#[derive(Debug, Default)]
pub struct Family {
    /// Not a member, but its descendants are.
    above: Option<u32>,
    roots: BTreeSet<u32>,
    members: BTreeMap<u32, Member>,
}

impl Family {
    /// These processes and everything below them.
    pub fn of(pids: impl IntoIterator<Item = u32>) -> Self {
        Self {
            above: None,
            roots: pids.into_iter().collect(),
            members: BTreeMap::new(),
        }
    }

    /// Everything below this process, but not itself: for a manager that is a child subreaper and runs a command.
    pub fn below(pid: u32) -> Self {
        Self {
            above: Some(pid),
            ..Self::default()
        }
    }

    /// Adds a process, which is looked at the next time.
    pub fn add(&mut self, pid: u32) {
        self.roots.insert(pid);
    }

    /// Those with memory of their own, by PID.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.shares_with.is_none())
    }

    /// Every member, also those that share another one's memory, by PID.
    pub fn everyone(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Looks who is there now. Costs about two small files per member and thread.
    ///
    /// # Errors
    /// /proc cannot be listed. What cannot be read of one process is in the result.
    pub fn look(&mut self, root: &ProcRoot) -> Result<Changes> {
        self.look_at(View { root, table: None })
    }

    /// The same by a table of all processes, without a look at /proc. What members started between two looks is found even where those in
    /// between have ended.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn look_in(&mut self, root: &ProcRoot, table: &TaskTable) -> Result<Changes> {
        self.adopt(table);
        self.look_at(View {
            root,
            table: Some(table),
        })
    }

    fn look_at(&mut self, view: View<'_>) -> Result<Changes> {
        let mut look = Changes::default();
        self.bury(view, &mut look);
        self.take_in_roots(view, &mut look);
        self.follow_children(view, &mut look)?;
        self.settle_sharing(view, &mut look);
        Ok(look)
    }

    /// Takes in as roots what the changes say members have started, them or what they started, that is not below them any more.
    fn adopt(&mut self, table: &TaskTable) {
        let mut ours: BTreeSet<u32> = self.members.keys().chain(&self.roots).copied().collect();
        for change in &table.changes {
            match change {
                Change::Fork { pid, parent } if ours.contains(parent) => {
                    ours.insert(*pid);
                    let is_below = |task: &super::tasks::Task| ours.contains(&task.parent) && task.parent != *pid;
                    if table.get(*pid).is_some_and(|task| !is_below(task)) {
                        self.roots.insert(*pid);
                    }
                }
                // Its number was given again, by somebody else.
                Change::Fork { pid, .. } => {
                    ours.remove(pid);
                }
                Change::Exec { .. } | Change::Exit { .. } => {}
            }
        }
    }

    /// Drops the members that have ended, or whose PID is another process's now.
    fn bury(&mut self, view: View<'_>, look: &mut Changes) {
        let pids: Vec<u32> = self.members.keys().copied().collect();
        for pid in pids {
            let there = match living(view, pid, look) {
                Some(stat) => self
                    .members
                    .get(&pid)
                    .is_some_and(|m| m.start_ticks == stat.start_ticks),
                // Unreadable is not ended.
                None => look.unread.last().is_some_and(|(unread, _)| *unread == pid),
            };
            if !there {
                let member = self.members.remove(&pid);
                look.gone.extend(member.filter(|member| member.shares_with.is_none()));
            }
        }
    }

    fn take_in_roots(&mut self, view: View<'_>, look: &mut Changes) {
        for pid in std::mem::take(&mut self.roots) {
            if let Some(stat) = living(view, pid, look) {
                self.insert(stat, look);
            }
        }
    }

    /// Finds all descendants, through the children files or, where the kernel has none, a list of all processes.
    fn follow_children(&mut self, view: View<'_>, look: &mut Changes) -> Result<()> {
        let mut queue: VecDeque<u32> = self.above.into_iter().chain(self.members.keys().copied()).collect();
        let mut seen: BTreeSet<u32> = queue.iter().copied().collect();
        let mut everyone: Option<BTreeMap<u32, Vec<u32>>> = view.table.map(TaskTable::children);
        let root = view.root;
        while let Some(parent) = queue.pop_front() {
            let children: Vec<u32> = match &everyone {
                Some(by_parent) => by_parent.get(&parent).cloned().unwrap_or_default(),
                None => match task::children(root, parent) {
                    Ok(Some(children)) => children.into_iter().collect(),
                    Ok(None) if !root.of_process(parent, "stat").exists() => continue,
                    Ok(None) => {
                        let by_parent = everyone.insert(children_by_parent(view, look)?);
                        by_parent.get(&parent).cloned().unwrap_or_default()
                    }
                    Err(error) if error.is_gone() => continue,
                    Err(error) => {
                        look.unread.push((parent, error));
                        continue;
                    }
                },
            };
            for pid in children {
                if !seen.insert(pid) {
                    continue;
                }
                let Some(stat) = living(view, pid, look) else { continue };
                // A helper of the manager's own ([`sys::Writer`]), not of what it runs.
                if self.above == Some(stat.ppid) && stat.exit_signal == Some(0) {
                    continue;
                }
                // Not so if the child ended meanwhile and its PID is another's now.
                if stat.ppid == parent || self.above == Some(stat.ppid) || self.members.contains_key(&stat.ppid) {
                    self.insert(stat, look);
                    queue.push_back(pid);
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, stat: Stat, look: &mut Changes) {
        if stat.is_kernel_thread() || self.above == Some(stat.pid) || self.members.contains_key(&stat.pid) {
            return;
        }
        let member = Member {
            pid: stat.pid,
            start_ticks: stat.start_ticks,
            ppid: stat.ppid,
            comm: stat.comm,
            shares_with: None,
        };
        look.found.push(member.clone());
        self.members.insert(stat.pid, member);
    }

    /// Finds out who has another one's address space: newcomers and those that had one the last time.
    fn settle_sharing(&mut self, view: View<'_>, look: &mut Changes) {
        // kcmp knows real PIDs only, not those of a made-up tree.
        if !view.root.is_live() {
            return;
        }
        let is_same = |pid, owner| match view.table {
            Some(table) => table.is_shared(pid, owner),
            None => super::same_memory(pid, owner),
        };
        let found = std::mem::take(&mut look.found);
        let newcomers: BTreeSet<u32> = found.iter().map(|member| member.pid).collect();
        let sharing = self.members.values().filter(|member| member.shares_with.is_some());
        let mut asked: Vec<u32> = sharing
            .map(|member| member.pid)
            .chain(newcomers.iter().copied())
            .collect();
        asked.sort_by_key(|pid| self.members.get(pid).map(|member| (member.start_ticks, *pid)));
        // Those whose owner has ended and that keep its memory; the first of them is the owner now.
        let mut heirs: BTreeMap<u32, u32> = BTreeMap::new();
        for pid in asked {
            let Some(member) = self.members.get(&pid) else { continue };
            let before = member.shares_with;
            let owner = before.or_else(|| self.owner_of(member.ppid));
            let owner = owner.map(|owner| heirs.get(&owner).copied().unwrap_or(owner));
            let there = owner.filter(|owner| self.above == Some(*owner) || self.members.contains_key(owner));
            let shares_with = there.filter(|owner| *owner != pid && is_same(pid, *owner));
            if let (Some(before), None) = (before, there) {
                heirs.insert(before, pid);
            }
            if let Some(member) = self.members.get_mut(&pid) {
                member.shares_with = shares_with;
                let is_new = before.is_some() || newcomers.contains(&pid);
                if shares_with.is_none() && is_new {
                    look.found.push(member.clone());
                }
            }
        }
    }

    /// Whose address space a child of this process would share.
    fn owner_of(&self, pid: u32) -> Option<u32> {
        match self.members.get(&pid) {
            Some(member) => Some(member.shares_with.unwrap_or(pid)),
            None => self.above.filter(|above| *above == pid),
        }
    }
}

/// Where a look finds out: by the table, where there is one.
#[derive(Clone, Copy)]
struct View<'a> {
    root: &'a ProcRoot,
    table: Option<&'a TaskTable>,
}

/// The process, unless it is over. What cannot be read is noted.
fn living(view: View<'_>, pid: u32, look: &mut Changes) -> Option<Stat> {
    // One that the table does not have was started since, or has ended; or the table lacks it: /proc says which.
    if let Some(task) = view.table.and_then(|table| table.get(pid)) {
        return (!task.is_over()).then(|| task.stat());
    }
    match stat::read(view.root, pid) {
        Ok(stat) => (!stat.is_over()).then_some(stat),
        Err(error) if error.is_gone() => None,
        Err(error) => {
            look.unread.push((pid, error));
            None
        }
    }
}

fn children_by_parent(view: View<'_>, look: &mut Changes) -> Result<BTreeMap<u32, Vec<u32>>> {
    let mut by_parent: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in task::processes(view.root)? {
        if let Some(stat) = living(view, pid, look) {
            by_parent.entry(stat.ppid).or_default().push(pid);
        }
    }
    Ok(by_parent)
}
