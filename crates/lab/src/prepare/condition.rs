//! Conditions: the state of the machine around a run. Each is made before the run and undone when its value is dropped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use mega_core::units::{Bytes, Share};
use mega_linux::knobs::Knobs;
use mega_linux::proc::{buddyinfo, stat, ProcRoot};
use rustix::process::{kill_process, Pid, Signal};

use super::group::{Account, Group};
use super::system;
use crate::contiguity::{Amount, FragKind, FragOptions, Fragmenter};
use crate::memory::die_with_parent_after_exec;
use crate::program::{Launch, ProgramError};

/// The state of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Condition {
    /// Free memory is contiguous; compacted first if it is not.
    Unfragmented,
    /// At least this share of free memory lies outside of free 2 MB blocks, made so by this kind of fragmenter.
    Fragmented(Share, FragKind),
    /// The program runs in a control group with this memory limit.
    Limit(Bytes),
    /// Another program allocates, touches and frees memory all the time, on the client's processor.
    Neighbour,
    /// A computation runs on every processor, so that nothing can be done beside the program for free.
    Busy,
}

impl Condition {
    /// Time limit for setting it up, in seconds: fragmenting touches all memory several times.
    pub(crate) fn patience_s(&self) -> u64 {
        match self {
            Self::Fragmented(..) => 600,
            _ => 0,
        }
    }
}

/// The name of no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a condition: unfragmented, fragmented=SHARE (fragmented=SHARE:KIND; study, reserve or holes), limit=SIZE, neighbour or busy")]
pub struct ConditionError(String);

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let wrong = || ConditionError(text.to_string());
        match text.split_once('=') {
            None if text == "unfragmented" => Ok(Self::Unfragmented),
            None if text == "fragmented" => Ok(Self::Fragmented(Share::percent(90), FragKind::Study)),
            None if text == "neighbour" => Ok(Self::Neighbour),
            None if text == "busy" => Ok(Self::Busy),
            Some(("fragmented", how)) => {
                let (share, kind) = how.split_once(':').unwrap_or((how, FragKind::Study.name()));
                let share = share.parse().map_err(|_| wrong())?;
                Ok(Self::Fragmented(share, kind.parse().map_err(|_| wrong())?))
            }
            Some(("limit", size)) => size.parse().map(Self::Limit).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfragmented => f.write_str("unfragmented"),
            Self::Fragmented(share, FragKind::Study) => write!(f, "fragmented={share}"),
            Self::Fragmented(share, kind) => write!(f, "fragmented={share}:{kind}"),
            Self::Limit(size) => write!(f, "limit={}", exact(*size)),
            Self::Neighbour => f.write_str("neighbour"),
            Self::Busy => f.write_str("busy"),
        }
    }
}

/// A size in the form that parses back without loss.
fn exact(size: Bytes) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units.iter().find(|(shift, _)| size.0 > 0 && size.0 % (1 << shift) == 0);
    whole.map_or_else(
        || size.0.to_string(),
        |(shift, name)| format!("{}{name}", size.0 >> shift),
    )
}

/// Unfragmented memory is compacted first if more of it than this lies outside of free blocks.
const COMPACT_ABOVE: f64 = 0.10;

/// Attempts to reach the share.
const FRAGMENT_TRIES: usize = 3;

/// Holds the condition.
#[derive(Debug, Default)]
pub struct Kept {
    group: Option<Group>,
    neighbours: Vec<Neighbour>,
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
    /// Sets the condition up. Changed settings are saved in `state`.
    ///
    /// # Errors
    /// What prevents it, in one line.
    pub fn make(self, root: &ProcRoot, state: &Path, launch: &Launch) -> Result<Kept, ProgramError> {
        let group = match self {
            Self::Limit(size) => Some(Group::make(root, Some(size))?),
            // To count memory alone: it can do without.
            _ => Group::make(root, None).ok(),
        };
        let mut kept = Kept {
            group,
            ..Kept::default()
        };
        match self {
            Self::Limit(_) => {}
            Self::Unfragmented => compact_if_needed(root)?,
            Self::Fragmented(share, kind) => kept.fragmenter = Some(fragmented(share, kind, root, state, launch)?),
            Self::Neighbour => {
                let words = ["churn", "--mib", "512", "--times", "1000000000"];
                kept.neighbours = vec![neighbour(launch, &words, launch.client_cpu)?];
            }
            Self::Busy => {
                compact_if_needed(root)?;
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                let one = |cpu| neighbour(launch, &["compute", "--passes", "1000000000000"], Some(cpu));
                kept.neighbours = (0..processors).map(one).collect::<Result<_, _>>()?;
            }
        }
        Ok(kept)
    }
}

impl Kept {
    /// Processor time that its load has used.
    #[must_use]
    pub fn cpu_ns(&self, root: &ProcRoot) -> u64 {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let used = |of: &Neighbour| stat::read(root, of.0.id()).map_or(0, |stat| stat.user_ticks + stat.system_ticks);
        self.neighbours.iter().map(used).sum::<u64>() * tick_ns
    }

    /// Does something while its load rests: the reference workload tells of the machine, not of the condition.
    pub fn at_rest<T>(&self, work: impl FnOnce() -> T) -> T {
        self.signal(Signal::STOP);
        let done = work();
        self.signal(Signal::CONT);
        done
    }

    fn signal(&self, signal: Signal) {
        // Children of ours that were not waited for: their numbers are theirs.
        for pid in self.neighbours.iter().filter_map(|of| Pid::from_raw(of.0.id() as i32)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Puts a process under the condition, before it touches memory.
    ///
    /// # Errors
    /// It cannot be put into the control group.
    pub fn process(&self, pid: i32) -> Result<(), ProgramError> {
        self.group.as_ref().map_or(Ok(()), |group| group.add(pid))
    }

    /// Where the memory of the processes put under it is counted.
    #[must_use]
    pub fn account(&self) -> Option<Account> {
        self.group.as_ref().map(Group::account)
    }

    /// Undoes it. The fragmenter verifies its memory first.
    ///
    /// # Errors
    /// The fragmenter's memory has changed.
    pub fn undo(self) -> Result<(), ProgramError> {
        let Some(fragmenter) = self.fragmenter else {
            return Ok(());
        };
        fragmenter.release().map(drop).map_err(|e| ProgramError::Wrong {
            program: "the fragmenter".to_string(),
            why: e.to_string(),
        })
    }

    /// Whether the kernel killed a process at the limit.
    #[must_use]
    pub fn out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Group::out_of_memory)
    }
}

fn compact_if_needed(root: &ProcRoot) -> Result<(), ProgramError> {
    let free = buddyinfo::read(root).map_err(|e| system("read how fragmented memory is", std::io::Error::other(e)))?;
    if free.fragmentation() > COMPACT_ABOVE {
        let path: PathBuf = root.proc.join("sys/vm/compact_memory");
        std::fs::write(&path, "1").map_err(|e| system("compact memory", e))?;
    }
    Ok(())
}

/// Takes memory and frees parts of each chunk of it: which, the kind says.
///
/// The kernel compacts proactively once nine tenths of free memory are unusable for huge pages (vm.compaction_proactiveness, 20 by
/// default), down to eight tenths: on a slow machine faster than this fragments. It is disabled meanwhile.
fn fragmented(
    share: Share,
    kind: FragKind,
    root: &ProcRoot,
    state: &Path,
    launch: &Launch,
) -> Result<Fragmenter, ProgramError> {
    let mut knobs = Knobs::open(root.clone(), state).map_err(setting)?;
    let proactiveness = root.proc.join("sys/vm/compaction_proactiveness");
    // Linux 5.9 and later.
    if proactiveness.exists() {
        knobs.set(&proactiveness, "0").map_err(setting)?;
    }
    let options = FragOptions {
        kind,
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
    // Background compaction may undo part of it; retry.
    for _ in 0..FRAGMENT_TRIES {
        let fragmenter = Fragmenter::start(&launch.lab, &options).map_err(|e| failed(e.to_string()))?;
        let reached = fragmenter.made().after.unusable_share;
        if reached + 0.005 >= share.fraction() {
            knobs.restore().map_err(setting)?;
            return Ok(fragmenter);
        }
        best = best.max(reached);
        launch.check("the fragmenter", limit_s)?;
    }
    Err(failed(format!(
        "only {:.0}% of free memory could be made unusable for huge pages",
        100.0 * best
    )))
}

fn neighbour(launch: &Launch, words: &[&str], cpu: Option<usize>) -> Result<Neighbour, ProgramError> {
    let mut command = Command::new(&launch.lab);
    command.arg("workload").args(words);
    if let Some(cpu) = cpu {
        command.args(["--pin", &cpu.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = die_with_parent_after_exec(&mut command).spawn();
    child.map(Neighbour).map_err(|e| system("start the neighbour", e))
}

fn setting(error: impl std::error::Error) -> ProgramError {
    system("disable proactive compaction", std::io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_were_written() {
        for name in [
            "unfragmented",
            "fragmented=90%",
            "fragmented=80%:reserve",
            "fragmented=90%:holes",
            "limit=4G",
            "limit=1536M",
            "limit=12345",
            "limit=300M",
            "neighbour",
            "busy",
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
            "fragmented=90%:",
            "fragmented=90%:dust",
        ] {
            assert!(bad.parse::<Condition>().is_err(), "{bad}");
        }
    }
}
