//! Memory control groups: what limits a process's memory besides the machine's.

use std::collections::BTreeMap;

use super::ProcessId;
use crate::units::{Bytes, Share};

/// One group at one scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryGroup {
    /// Names it from scan to scan.
    pub id: u64,
    /// The group that it is part of, and whose limits hold for it too: its place among the others.
    pub parent: Option<usize>,
    /// What its limit leaves, where it has one.
    pub room: Option<Bytes>,
    /// Share of the last ten seconds in which some task of it waited for memory (PSI), where the host can say.
    pub pressure: Option<Share>,
}

/// The groups of the managed processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryGroups {
    groups: Vec<MemoryGroup>,
    of: BTreeMap<ProcessId, usize>,
}

impl MemoryGroups {
    /// Adds a group, after the one that it is part of; answers its place.
    pub fn add(&mut self, group: MemoryGroup) -> usize {
        debug_assert!(group.parent.is_none_or(|parent| parent < self.groups.len()));
        self.groups.push(group);
        self.groups.len() - 1
    }

    /// Says which group a process is in.
    pub fn assign(&mut self, process: ProcessId, group: usize) {
        self.of.insert(process, group);
    }

    /// The places of a process's group and of those that it is part of.
    fn chain(&self, process: ProcessId) -> impl Iterator<Item = usize> + '_ {
        let first = self.of.get(&process).copied();
        // A parent comes before its children, so this ends.
        std::iter::successors(first, |place| {
            self.groups[*place].parent.filter(|parent| parent < place)
        })
    }

    /// The groups that a process is in, from its own up.
    pub fn above(&self, process: ProcessId) -> impl Iterator<Item = &MemoryGroup> + '_ {
        self.chain(process).map(|place| &self.groups[place])
    }

    /// The group that leaves a process the least room; none where no group limits it.
    pub fn tightest(&self, process: ProcessId) -> Option<&MemoryGroup> {
        let limited = self.above(process).filter(|group| group.room.is_some());
        limited.min_by_key(|group| group.room)
    }

    /// Takes memory out of the room of all groups that a process is in.
    pub fn take(&mut self, process: ProcessId, bytes: Bytes) {
        let places: Vec<usize> = self.chain(process).collect();
        for place in places {
            if let Some(room) = &mut self.groups[place].room {
                room.0 = room.0.saturating_sub(bytes.0);
            }
        }
    }
}
