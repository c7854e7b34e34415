//! Raises `nr_hugepages` step by step, then lowers it: the kernel compacts and reclaims for each page of the hugetlb pool.
//!
//! The pool takes free blocks first, so it transiently holds all of them before compaction frees any more.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mega_core::compaction::target::Ended;

use super::write::{self, numbered};
use super::{Actuator, CompactError, Task, Way, Work};
use crate::knobs::Knobs;
use crate::proc::{buddyinfo, ProcRoot};

/// Pages between two looks at what there is by now, once free blocks are used up: 16 MB, some milliseconds.
const STEP: u64 = 8;
/// Pages of free blocks taken in one write: some milliseconds.
const FREE_STEP: u64 = 256;

/// The settings, one for each node or one for all, with undo.
pub struct Pool {
    paths: Vec<PathBuf>,
    knobs: Knobs,
}

/// The settings, if they may be written.
pub fn find(root: &ProcRoot) -> Result<Vec<PathBuf>, CompactError> {
    const NAME: &str = "hugepages-2048kB/nr_hugepages";
    let nodes = numbered(&root.sys.join("devices/system/node"), "node");
    let mut paths: Vec<PathBuf> = nodes
        .into_iter()
        .map(|(_, node)| node.join("hugepages").join(NAME))
        .collect();
    paths.retain(|path| path.exists());
    let all = root.sys.join("kernel/mm/hugepages").join(NAME);
    if paths.is_empty() && all.exists() {
        paths.push(all);
    }
    write::writable(Way::Pool, &paths, "the kernel has no hugetlb pages of 2 MB")?;
    Ok(paths)
}

impl Pool {
    /// Finds them.
    pub fn open(root: &ProcRoot, knobs: Knobs) -> Result<Self, CompactError> {
        let paths = find(root)?;
        Ok(Self { paths, knobs })
    }

    fn raise(&mut self, task: &Task<'_>) -> Result<Ended, CompactError> {
        let mut held = 0;
        for path in &self.paths {
            let mut now = number(&self.knobs, path)?;
            loop {
                if let Some(ended) = task.over(held)? {
                    return Ok(ended);
                }
                let free = buddyinfo::read(task.root)?.free_blocks().0;
                let step = free.clamp(STEP, FREE_STEP);
                let mut ended = None;
                let reached = self
                    .knobs
                    .raise_by(path, now.saturating_add(step), &mut |path, value| {
                        let file = std::fs::OpenOptions::new().write(true).open(path)?;
                        // A page for which the kernel has to compact and reclaim may take it seconds; it looks for signals after each.
                        let written = write::until(Way::Pool, &file, value, || late(task)).map_err(io::Error::other)?;
                        ended = written.ended;
                        match (written.said, ended) {
                            // What it made until then is there.
                            (_, Some(_)) | (Ok(()), None) => Ok(()),
                            (Err(errno), None) => Err(errno.into()),
                        }
                    })?;
                held += reached.saturating_sub(now);
                let had = reached > now;
                now = reached;
                if let Some(ended) = ended {
                    return Ok(ended);
                }
                if !had {
                    break;
                }
            }
        }
        Ok(Ended::Through)
    }
}

/// Whether its time is over. How much there is is looked at between two writes: those of a step take what is free first.
fn late(task: &Task<'_>) -> Result<Option<Ended>, CompactError> {
    Ok(match task.is_stopped() {
        true => Some(Ended::Stopped),
        false => task.is_late().then_some(Ended::Time),
    })
}

fn number(knobs: &Knobs, path: &Path) -> Result<u64, CompactError> {
    let text = knobs.get(path)?;
    text.parse().map_err(|_| CompactError::Missing {
        way: Way::Pool,
        why: format!("{}: '{text}' is not a number of pages", path.display()),
    })
}

impl Actuator for Pool {
    fn way(&self) -> Way {
        Way::Pool
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        super::check_room(Way::Pool, task)?;
        let ended = self.raise(task);
        super::put_back(&mut self.knobs, Way::Pool)?;
        Ok(Work::unchosen(ended?, Duration::ZERO))
    }
}
