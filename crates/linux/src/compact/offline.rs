//! Offlines and onlines a memory block of the kernel (128 MB on most machines, "group" here): the kernel migrates everything out of it.
//!
//! The only method of an unmodified kernel that can choose, by groups: the one with most of the chosen blocks, or the first that works.
//! Offlining retries for ever where pages are pinned, so a helper process writes and is killed at the deadline. A group with unmovable
//! pages is refused at once.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mega_core::compaction::target::Ended;

use super::write::{self, numbered, Written};
use super::{Actuator, CompactError, Task, Way, Work};
use crate::knobs::{KnobError, Knobs};
use crate::proc::{read_bounded, ProcRoot};

/// Groups that are tried at most before it is given up.
const TRIED_MAX: usize = 16;

/// The block groups, with undo.
pub struct Offline {
    groups: BTreeMap<u32, PathBuf>,
    group_bytes: u64,
    knobs: Knobs,
    /// Where the next search without chosen blocks begins.
    next: u32,
}

/// The groups by number, and their size in bytes, if they may be written.
pub fn find(root: &ProcRoot) -> Result<(BTreeMap<u32, PathBuf>, u64), CompactError> {
    let folder = root.sys.join("devices/system/memory");
    let missing = |why: &str| CompactError::Missing {
        way: Way::Offline,
        why: why.to_string(),
    };
    let size = read_bounded(&folder.join("block_size_bytes"), 64)
        .map_err(|_| missing("the kernel cannot take memory offline (CONFIG_MEMORY_HOTREMOVE)"))?;
    let size = String::from_utf8_lossy(&size).trim().to_string();
    let bytes = u64::from_str_radix(&size, 16).ok().filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| missing("block_size_bytes is not a size"))?;
    let groups = numbered(&folder, "memory").into_iter();
    let mut groups: BTreeMap<u32, PathBuf> = groups.map(|(n, folder)| (n, folder.join("state"))).collect();
    groups.retain(|_, state| zone_of(state).is_some_and(|zone| zone == "Normal" || zone == "Movable"));
    let first: Vec<PathBuf> = groups.values().take(1).cloned().collect();
    write::writable(
        Way::Offline,
        &first,
        "no block group of memory is in ZONE_NORMAL or ZONE_MOVABLE",
    )?;
    Ok((groups, bytes))
}

/// The zone that a group is in; none where it is not online, or in several.
fn zone_of(state: &Path) -> Option<String> {
    let read = |path: &Path| {
        read_bounded(path, 4096)
            .ok()
            .map(|text| String::from_utf8_lossy(&text).trim().to_string())
    };
    (read(state)? == "online").then_some(())?;
    let zone = read(&state.with_file_name("valid_zones"))?;
    (!zone.contains(' ')).then_some(zone)
}

impl Offline {
    /// Finds them.
    pub fn open(root: &ProcRoot, knobs: Knobs) -> Result<Self, CompactError> {
        let (groups, group_bytes) = find(root)?;
        Ok(Self {
            groups,
            group_bytes,
            knobs,
            next: 0,
        })
    }

    /// The groups in the order in which to try them.
    fn order(&self, task: &Task<'_>) -> Vec<u32> {
        let mut named: BTreeMap<u32, usize> = BTreeMap::new();
        for hpfn in task.chosen {
            let group = u32::try_from(hpfn.address() / self.group_bytes).unwrap_or(u32::MAX);
            if self.groups.contains_key(&group) {
                *named.entry(group).or_default() += 1;
            }
        }
        let mut order: Vec<u32> = match named.is_empty() {
            true => self
                .groups
                .range(self.next..)
                .chain(self.groups.range(..self.next))
                .map(|(n, _)| *n)
                .collect(),
            false => named.keys().copied().collect(),
        };
        order.sort_by_key(|group| std::cmp::Reverse(named.get(group).copied().unwrap_or(0)));
        order.truncate(TRIED_MAX);
        order
    }

    /// Takes a group offline and online again. Answers how the write that took it offline ended.
    fn empty(&mut self, state: &Path, task: &Task<'_>) -> Result<Option<Written>, CompactError> {
        let mut written = None;
        let result = self.knobs.set_by(state, "offline", &mut |path, value| {
            let file = std::fs::OpenOptions::new().write(true).open(path)?;
            // Free blocks of this very group are gone until it is online again: the amount is looked at afterwards.
            let over = || Ok(task.over(0)?.filter(|ended| *ended != Ended::Amount));
            let done = write::until(Way::Offline, &file, value, over).map_err(io::Error::other)?;
            let said = done.said;
            written = Some(done);
            said.map_err(io::Error::from)
        });
        super::put_back(&mut self.knobs, Way::Offline)?;
        match result {
            // What the kernel said to the write is the answer; everything else is a failure.
            Ok(()) | Err(KnobError::File(_)) if written.is_some() => Ok(written),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(None),
        }
    }
}

impl Actuator for Offline {
    fn way(&self) -> Way {
        Way::Offline
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        let mut cpu = Duration::ZERO;
        for group in self.order(task) {
            if let Some(ended) = task.over(0)? {
                return Ok(Work::unchosen(ended, cpu));
            }
            let Some(state) = self.groups.get(&group).cloned() else {
                continue;
            };
            let written = self.empty(&state, task)?;
            cpu += written.map_or(Duration::ZERO, |written| written.cpu);
            self.next = group.saturating_add(1);
        }
        Ok(Work::unchosen(task.over(0)?.unwrap_or(Ended::Through), cpu))
    }
}
