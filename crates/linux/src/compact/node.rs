//! `compact` of each NUMA node: the kernel migrates what it can from the bottom of the node to its top.
//!
//! The interface has no target. But it checks for a fatal signal every few pages (mm/compaction.c,
//! `fatal_signal_pending`), and keeps what it freed by then. So a helper process writes, and is killed once enough blocks are free.
//! It skips what was compacted already, so the next run continues about where this one ended. No setting is changed.

use std::path::PathBuf;
use std::time::Duration;

use mega_core::compaction::target::Ended;

use super::write::{self, numbered};
use super::{Actuator, CompactError, Task, Way, Work};
use crate::proc::ProcRoot;

/// The files to write to, one for each node or one for all.
pub struct Node {
    files: Vec<PathBuf>,
    /// The next task begins here: one node alone would be compacted for ever where its free blocks are enough for each target.
    next: usize,
}

impl Node {
    /// Finds them.
    pub fn open(root: &ProcRoot) -> Result<Self, CompactError> {
        let nodes = numbered(&root.sys.join("devices/system/node"), "node");
        let mut files: Vec<PathBuf> = nodes.into_iter().map(|(_, folder)| folder.join("compact")).collect();
        files.retain(|file| file.exists());
        let all = root.proc.join("sys/vm/compact_memory");
        if files.is_empty() && all.exists() {
            // Built without NUMA.
            files.push(all);
        }
        write::writable(Way::Node, &files, "the kernel has no compaction (CONFIG_COMPACTION)")?;
        Ok(Self { files, next: 0 })
    }
}

impl Actuator for Node {
    fn way(&self) -> Way {
        Way::Node
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        let mut cpu = Duration::ZERO;
        let first = self.next % self.files.len().max(1);
        self.next = first + 1;
        let (before, after) = self.files.split_at(first);
        for path in after.iter().chain(before) {
            if let Some(ended) = task.over(0)? {
                return Ok(Work::unchosen(ended, cpu));
            }
            let file = write::open(Way::Node, path)?;
            let written = write::until(Way::Node, &file, "1", write::over(task))?;
            cpu += written.cpu;
            if let Some(ended) = written.ended {
                return Ok(Work::unchosen(ended, cpu));
            }
            written.said.map_err(|errno| CompactError::Failed {
                way: Way::Node,
                what: format!("writing {}", path.display()),
                errno,
            })?;
        }
        Ok(Work::unchosen(task.over(0)?.unwrap_or(Ended::Through), cpu))
    }
}
