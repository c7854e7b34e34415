//! Actions and their outcomes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::observe::{Observation, ProcessId, Region, Why};
use crate::units::{BasePages, Share, UnitError};

/// What is done with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// Base pages to a huge page (Linux: collapse).
    Promote,
    /// A huge page to base pages (Linux: split).
    Demote,
}

/// Why a policy wants an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Promote: mapped and utilized enough.
    Utilized,
    /// Promote: mapped enough.
    Mapped,
    /// Demote: utilized too little.
    Unutilized,
    /// Demote: too little of it is mapped.
    Unmapped,
    /// Demote: too much of it is zero-filled.
    ZeroFilled,
    /// Demote: a part of it is unmapped, and the kernel keeps that.
    PartlyUnmapped,
    /// Demote: this policy keeps no huge pages.
    Unwanted,
}

/// What must still hold when an action's turn comes; otherwise it is dropped as `ineligible(changed)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No condition.
    Anything,
    /// At least so many base pages populated.
    Populated(BasePages),
    /// At least so many base pages zero-filled.
    Zero(BasePages),
    /// At least so many base pages unmapped and kept.
    Kept(BasePages),
}

/// One decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    /// The process.
    pub process: ProcessId,
    /// The region.
    pub region: Region,
    /// The action.
    pub kind: ActionKind,
    /// The reason.
    pub reason: Reason,
    /// Mean utilization that the decision is based on, if any.
    pub utilization: Option<Share>,
    /// Expected benefit in base pages: for a promotion those in use, whose accesses get faster; for a demotion those given back. The budget
    /// takes the best benefit per cost first.
    pub benefit: BasePages,
    /// What must still hold.
    pub expect: Expect,
}

/// The outcome of an action, according to the page tables afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done as decided.
    Done,
    /// It was so before the action.
    Already,
    /// Not possible for this region.
    Ineligible(Why),
    /// Pages were locked or referenced; worth a retry.
    Busy,
    /// No free block, or no memory within the limits.
    NoMemory,
    /// Shared with a forked process.
    Shared,
    /// The process or the mapping is gone.
    Gone,
    /// The system call failed for another reason (errno).
    Failed(i32),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Already => f.write_str("already"),
            Self::Ineligible(why) => write!(f, "ineligible({})", why.word()),
            Self::Busy => f.write_str("busy"),
            Self::NoMemory => f.write_str("no-memory"),
            Self::Shared => f.write_str("shared"),
            Self::Gone => f.write_str("gone"),
            Self::Failed(errno) => write!(f, "failed({errno})"),
        }
    }
}

impl FromStr for Outcome {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let inside = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        Ok(match text {
            "done" => Self::Done,
            "already" => Self::Already,
            "busy" => Self::Busy,
            "no-memory" => Self::NoMemory,
            "shared" => Self::Shared,
            "gone" => Self::Gone,
            _ => {
                let bad = || UnitError::new(text, "an outcome such as done or ineligible(mlocked)");
                match (inside("ineligible"), inside("failed")) {
                    (Some(why), _) => Self::Ineligible(Why::from_word(why).ok_or_else(bad)?),
                    (_, Some(errno)) => Self::Failed(errno.parse().map_err(|_| bad())?),
                    _ => return Err(bad()),
                }
            }
        })
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Why a decision is deferred. The next scan decides anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deferred {
    /// The stall or the processor budget of this interval is used up.
    Budget,
    /// The action failed not long ago: backing off.
    BackOff,
    /// The region was demoted and became huge again: backing off.
    Flapping,
    /// Available memory is below its floor.
    FreeMemory,
    /// Free blocks are below their floor.
    FreeBlocks,
    /// Memory pressure: tasks stall on memory.
    Pressure,
    /// A promotion in the same process found no memory during this scan.
    NoMemory,
    /// A dry run: decisions are only logged.
    DryRun,
    /// The last compaction is still running.
    Busy,
}

/// The status and duration of the host's call. The outcome is what the next look shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The error, if the call reported one.
    pub error: Option<CallError>,
    /// Duration of the call; the program may have been stalled for as long.
    pub took: Duration,
    /// How long the program was stalled, where the host knows better.
    pub stall: Option<Duration>,
}

/// Why a call failed, by meaning rather than by errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// No block or no memory (Linux: ENOMEM from collapse; EBUSY when the memory cgroup is full).
    NoMemory,
    /// Pages were locked or referenced (EAGAIN).
    Busy,
    /// The kernel does not do it for this mapping (EINVAL).
    Refused,
    /// No such process or mapping (ESRCH, or a hole in place of the region).
    Gone,
    /// Any other errno.
    Other(i32),
}

/// Nothing of it is a part of a huge page, as far as is known.
fn is_demoted(now: &Observation) -> bool {
    !now.huge && now.kept == BasePages::ZERO
}

/// Whether the action still makes sense in the present state; if not, the outcome to record.
pub fn precheck(action: &Action, before: Option<&Observation>) -> Option<Outcome> {
    let Some(now) = before else {
        return Some(Outcome::Gone);
    };
    let (reached, can) = match action.kind {
        ActionKind::Promote => (now.huge, now.can.promote),
        ActionKind::Demote => (is_demoted(now), now.can.demote),
    };
    if now.raced {
        return Some(Outcome::Busy);
    }
    if reached {
        return Some(Outcome::Already);
    }
    if !can {
        return Some(Outcome::Ineligible(now.can.why.unwrap_or(Why::Refused)));
    }
    if now.shared {
        return Some(Outcome::Shared);
    }
    let holds = match action.expect {
        Expect::Anything => true,
        Expect::Populated(least) => now.populated() >= least,
        Expect::Zero(least) => now.zero.is_some_and(|zero| zero >= least),
        Expect::Kept(least) => now.kept >= least,
    };
    (!holds).then_some(Outcome::Ineligible(Why::Changed))
}

/// The outcome of an action, from the look after it. The call's status only explains a failure.
pub fn judge(action: &Action, call: &Call, after: Option<&Observation>) -> Outcome {
    let Some(now) = after else {
        return Outcome::Gone;
    };
    let reached = match action.kind {
        ActionKind::Promote => now.huge,
        ActionKind::Demote => is_demoted(now),
    };
    if reached && !now.raced {
        return Outcome::Done;
    }
    match call.error {
        Some(CallError::NoMemory) => Outcome::NoMemory,
        Some(CallError::Gone) => Outcome::Gone,
        Some(CallError::Other(errno)) => Outcome::Failed(errno),
        Some(CallError::Refused) if now.shared => Outcome::Shared,
        Some(CallError::Refused) => Outcome::Ineligible(now.can.why.unwrap_or(Why::Refused)),
        // The call succeeded and the region does not show it: its pages are shared (Linux skips those silently), or another actor undid it or
        // held them.
        None | Some(CallError::Busy) if now.shared => Outcome::Shared,
        None | Some(CallError::Busy) => Outcome::Busy,
    }
}
