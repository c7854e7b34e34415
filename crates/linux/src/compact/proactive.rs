//! `vm.compaction_proactiveness` (5.9) raised for a while: writing it wakes kcompactd, which compacts in the background until the zone's
//! fragmentation score is low enough, and reads the setting again on the way. Restoring it ends that, somewhat later.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mega_core::compaction::target::Ended;

use super::{write, Actuator, CompactError, Task, Way, Work};
use crate::knobs::Knobs;
use crate::proc::{vmstat, ProcRoot};

/// As high as it goes.
const HIGH: &str = "100";
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// kcompactd that scans nothing for so long is done.
const QUIET: Duration = Duration::from_millis(200);

/// The setting, with undo.
pub struct Proactive {
    path: PathBuf,
    knobs: Knobs,
}

/// The setting, if it may be written.
pub fn find(root: &ProcRoot) -> Result<PathBuf, CompactError> {
    let path = root.proc.join("sys/vm/compaction_proactiveness");
    write::open(Way::Proactive, &path)?;
    Ok(path)
}

impl Proactive {
    /// Finds it.
    pub fn open(root: &ProcRoot, knobs: Knobs) -> Result<Self, CompactError> {
        let path = find(root)?;
        Ok(Self { path, knobs })
    }

    fn wait(task: &Task<'_>) -> Result<Ended, CompactError> {
        let moved =
            || vmstat::read(task.root).map(|counters| counters.get("compact_daemon_migrate_scanned").unwrap_or(0));
        let (mut before, mut since) = (moved()?, Instant::now());
        loop {
            if let Some(ended) = task.over(0)? {
                return Ok(ended);
            }
            std::thread::sleep(LOOK_EVERY);
            let now = moved()?;
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() > QUIET {
                return Ok(Ended::Through);
            }
        }
    }
}

impl Actuator for Proactive {
    fn way(&self) -> Way {
        Way::Proactive
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        self.knobs.set(&self.path, HIGH)?;
        let ended = Self::wait(task);
        super::put_back(&mut self.knobs, Way::Proactive)?;
        Ok(Work::unchosen(ended?, Duration::ZERO))
    }
}
