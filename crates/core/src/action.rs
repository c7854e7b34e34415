//! What is decided, and what came of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::observe::{Observation, ProcessId, Region, Why};
use crate::units::{BasePages, Share, UnitError};

/// What to do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
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
    /// Demote: this policy keeps no huge pages.
    Unwanted,
}

/// What must still be so when an action's turn comes; otherwise it is dropped as `ineligible(changed)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing in particular.
    Anything,
    /// At least so many base pages populated.
    Populated(BasePages),
    /// At least so many base pages zero-filled.
    Zero(BasePages),
}

/// One decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    /// Whose region.
    pub process: ProcessId,
    /// Which region.
    pub region: Region,
    /// What to do.
    pub kind: Kind,
    /// Why.
    pub reason: Reason,
    /// Mean utilization that the decision rests on, where it rests on one.
    pub utilization: Option<Share>,
    /// What it is expected to be worth, in base pages: for a promotion those that are used and so are reached faster, for
    /// a demotion those given back. The budget takes the best benefit per cost first.
    pub benefit: BasePages,
    /// What must still be so.
    pub expect: Expect,
}

/// What became of an action, by what the page tables say afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is as decided.
    Done,
    /// It was so before we came.
    Already,
    /// It cannot be done with this region.
    Ineligible(Why),
    /// Something held its pages; worth another try.
    Busy,
    /// No block, or no memory within the limits.
    NoMemory,
    /// Shared with a forked process.
    Shared,
    /// The process or the mapping is no more.
    Gone,
    /// The system call failed otherwise.
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

/// What the host's call said and cost. Not yet the outcome: that is what the next look says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// How it failed, if it said so.
    pub error: Option<CallError>,
    /// How long it took; the program may have been held up for as long.
    pub took: Duration,
}

/// How a call may fail, by meaning rather than by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// No block or no memory (Linux: ENOMEM from collapse; EBUSY when the memory cgroup is full).
    NoMemory,
    /// Pages were held by someone (EAGAIN).
    Busy,
    /// The kernel will not do it with this mapping (EINVAL).
    Refused,
    /// No such process or mapping (ESRCH, or a hole where the region was).
    Gone,
    /// Anything else, by number.
    Other(i32),
}

/// Whether the action still makes sense on what is there now; the outcome to record if it does not.
pub fn precheck(action: &Action, before: Option<&Observation>) -> Option<Outcome> {
    let Some(now) = before else {
        return Some(Outcome::Gone);
    };
    let (reached, can) = match action.kind {
        Kind::Promote => (now.huge, now.can.promote),
        Kind::Demote => (!now.huge, now.can.demote),
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
    };
    (!holds).then_some(Outcome::Ineligible(Why::Changed))
}

/// The outcome of an action, from the look after it. What the call returned only explains a failure.
pub fn judge(action: &Action, call: &Call, after: Option<&Observation>) -> Outcome {
    let Some(now) = after else {
        return Outcome::Gone;
    };
    let reached = match action.kind {
        Kind::Promote => now.huge,
        Kind::Demote => !now.huge,
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
        // A call that says it worked, on a region that does not show it: either its pages are shared (Linux skips
        // those in silence), or someone undid it, or someone held them.
        None | Some(CallError::Busy) if now.shared => Outcome::Shared,
        None | Some(CallError::Busy) => Outcome::Busy,
    }
}
