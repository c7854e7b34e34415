//! `compact` of each NUMA node: the kernel goes through the whole node, from its lowest address up, and moves what it can to the top.
//!
//! It knows no amount. But it looks whether its process is being killed at every few pages (mm/compaction.c,
//! `fatal_signal_pending`), and what it has made by then stays. So a process of its own writes, and is killed once enough blocks are free.
//! It skips what it has emptied already, so the next time goes on about where this one ended.
//!
//! Nothing is changed that would have to be put back.

use std::path::PathBuf;
use std::time::Duration;

use mega_core::stock::Ended;

use super::write::{self, numbered};
use super::{Actuator, CompactError, Task, Way, Work};
use crate::proc::ProcRoot;

/// The files to write to, one for each node or one for all.
pub struct Node {
    files: Vec<PathBuf>,
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
        Ok(Self { files })
    }
}

impl Actuator for Node {
    fn way(&self) -> Way {
        Way::Node
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        let mut cpu = Duration::ZERO;
        for path in &self.files {
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
