//! Conditions: the state of the machine around a run. Each is made before the run and undone when its value is dropped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use mega_core::units::{Bytes, Share};
use mega_linux::knobs::Knobs;
use mega_linux::proc::{buddyinfo, ProcRoot};

use crate::contiguity::{Amount, FragKind, FragOptions, Fragmenter};
use crate::memory::die_with_parent_after_exec;
use crate::program::{Launch, ProgramError};

mod group;

pub use group::Group;

/// The state of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Condition {
    /// Free memory in large pieces; compacted first when it is not.
    Unfragmented,
    /// At least this share of the free memory is in no free 2 MB block.
    Fragmented(Share),
    /// A control group with this memory limit holds the program.
    Limit(Bytes),
    /// Another program allocates, touches and frees memory all the time, on the client's processor.
    Neighbour,
}

impl Condition {
    /// The longest that it may take to bring about, in seconds: fragmenting goes through all memory, several times, on a slow machine, too.
    pub(crate) fn patience_s(&self) -> u64 {
        match self {
            Self::Fragmented(_) => 600,
            _ => 0,
        }
    }
}

/// No condition is called so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no condition; there are unfragmented, fragmented=SHARE, limit=SIZE and neighbour")]
pub struct ConditionError(String);

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let wrong = || ConditionError(text.to_string());
        match text.split_once('=') {
            None if text == "unfragmented" => Ok(Self::Unfragmented),
            None if text == "fragmented" => Ok(Self::Fragmented(Share::percent(90))),
            None if text == "neighbour" => Ok(Self::Neighbour),
            Some(("fragmented", share)) => share.parse().map(Self::Fragmented).map_err(|_| wrong()),
            Some(("limit", size)) => size.parse().map(Self::Limit).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfragmented => f.write_str("unfragmented"),
            Self::Fragmented(share) => write!(f, "fragmented={share}"),
            Self::Limit(size) => write!(f, "limit={}", exact(*size)),
            Self::Neighbour => f.write_str("neighbour"),
        }
    }
}

/// A size as it can be typed again, without loss.
fn exact(size: Bytes) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units.iter().find(|(shift, _)| size.0 > 0 && size.0 % (1 << shift) == 0);
    whole.map_or_else(
        || size.0.to_string(),
        |(shift, name)| format!("{}{name}", size.0 >> shift),
    )
}

/// More of the free memory than this outside of free blocks, and unfragmented memory is compacted first.
const COMPACT_ABOVE: f64 = 0.10;

/// Memory is fragmented anew so often until the share is reached.
const FRAGMENT_TRIES: usize = 3;

/// What keeps the condition up.
#[derive(Debug, Default)]
pub struct Kept {
    group: Option<Group>,
    neighbour: Option<Neighbour>,
    fragmenter: Option<Fragmenter>,
}

#[derive(Debug)]
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Condition {
    /// Makes the machine so. Settings that are changed for it are remembered in `state`.
    ///
    /// # Errors
    /// What stands in the way, in one line.
    pub fn make(self, root: &ProcRoot, state: &Path, launch: &Launch) -> Result<Kept, ProgramError> {
        let mut kept = Kept::default();
        match self {
            Self::Unfragmented => compact_if_needed(root)?,
            Self::Fragmented(share) => kept.fragmenter = Some(fragmented(share, root, state, launch)?),
            Self::Limit(size) => kept.group = Some(Group::limited(root, size)?),
            Self::Neighbour => kept.neighbour = Some(neighbour(launch)?),
        }
        Ok(kept)
    }
}

impl Kept {
    /// Puts a process under the condition, before it has memory.
    ///
    /// # Errors
    /// It cannot be put into the control group.
    pub fn process(&self, pid: i32) -> Result<(), ProgramError> {
        self.group.as_ref().map_or(Ok(()), |group| group.add(pid))
    }

    /// Undoes it. What held memory fragmented has checked its own.
    ///
    /// # Errors
    /// Memory of the fragmenter was changed by somebody.
    pub fn undo(self) -> Result<(), ProgramError> {
        let Some(fragmenter) = self.fragmenter else {
            return Ok(());
        };
        fragmenter.release().map(drop).map_err(|e| ProgramError::Wrong {
            program: "the fragmenter".to_string(),
            why: e.to_string(),
        })
    }

    /// Whether the kernel killed somebody for the limit.
    #[must_use]
    pub fn out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Group::out_of_memory)
    }
}

fn compact_if_needed(root: &ProcRoot) -> Result<(), ProgramError> {
    let free = buddyinfo::read(root).map_err(|e| system("see how fragmented memory is", std::io::Error::other(e)))?;
    if free.fragmentation() > COMPACT_ABOVE {
        let path: PathBuf = root.proc.join("sys/vm/compact_memory");
        std::fs::write(&path, "1").map_err(|e| system("compact memory", e))?;
    }
    Ok(())
}

/// The allocation-latency study's way: most of the memory taken, three quarters of the pages of each chunk freed again.
///
/// The kernel compacts in the background once nine tenths of free memory are useless for huge pages (vm.compaction_proactiveness, 20 by
/// default), until it is eight: on a slow machine faster than this gets on. It is held off meanwhile.
fn fragmented(share: Share, root: &ProcRoot, state: &Path, launch: &Launch) -> Result<Fragmenter, ProgramError> {
    let mut knobs = Knobs::open(root.clone(), state).map_err(setting)?;
    let proactiveness = root.proc.join("sys/vm/compaction_proactiveness");
    // Linux 5.9 and later.
    if proactiveness.exists() {
        knobs.set(&proactiveness, "0").map_err(setting)?;
    }
    let options = FragOptions {
        kind: FragKind::Study,
        amount: Amount::Most,
        keep: None,
        pin: false,
        target: Some(share),
        seed: launch.seed,
    };
    let failed = |why: String| ProgramError::Start {
        program: "the fragmenter".to_string(),
        why,
    };
    let limit_s = launch.deadline.saturating_duration_since(Instant::now()).as_secs();
    let mut best = 0.0f64;
    // The kernel's own compaction may undo a part of it meanwhile; not each time.
    for _ in 0..FRAGMENT_TRIES {
        let fragmenter = Fragmenter::start(&launch.mega, &options).map_err(|e| failed(e.to_string()))?;
        let reached = fragmenter.made().after.unusable_share;
        if reached + 0.005 >= share.fraction() {
            knobs.restore().map_err(setting)?;
            return Ok(fragmenter);
        }
        best = best.max(reached);
        launch.check("the fragmenter", limit_s)?;
    }
    Err(failed(format!(
        "only {:.0}% of the free memory could be made useless for huge pages",
        100.0 * best
    )))
}

fn neighbour(launch: &Launch) -> Result<Neighbour, ProgramError> {
    let mut command = Command::new(&launch.mega);
    command.args(["workload", "churn", "--mib", "512", "--times", "1000000000"]);
    if let Some(cpu) = launch.client_cpu {
        command.args(["--pin", &cpu.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = die_with_parent_after_exec(&mut command).spawn();
    child.map(Neighbour).map_err(|e| system("start the neighbour", e))
}

fn setting(error: impl std::error::Error) -> ProgramError {
    system(
        "hold the kernel's compaction off",
        std::io::Error::other(error.to_string()),
    )
}

fn system(doing: &str, source: std::io::Error) -> ProgramError {
    ProgramError::System {
        doing: format!("cannot {doing}"),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_were_written() {
        for name in [
            "unfragmented",
            "fragmented=90%",
            "limit=4G",
            "limit=1536M",
            "limit=12345",
            "limit=300M",
            "neighbour",
        ] {
            assert_eq!(name.parse::<Condition>().unwrap().to_string(), name);
        }
        for bad in [
            "",
            "fragmented=x",
            "limit",
            "limit=-1",
            "limit=0x",
            "neighbour=2",
            "fragmented=101%",
        ] {
            assert!(bad.parse::<Condition>().is_err(), "{bad}");
        }
    }
}
