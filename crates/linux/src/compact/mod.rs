//! Compaction: what an unmodified kernel offers to make free 2 MB blocks, and mega.ko, one file each, behind one trait.
//!
//! | file | way | what bounds it |
//! | --- | --- | --- |
//! | `node` | writes `compact` of each NUMA node in a helper process, killed once the target is reached | blocks and time |
//! | `proactive` | raises `vm.compaction_proactiveness` for a while; kcompactd compacts | time, roughly |
//! | `pool` | raises `nr_hugepages` step by step, then lowers it | blocks and time |
//! | `offline` | offlines and onlines a memory block of the kernel (128 MB) | one group, time |
//! | `collapse` | collapses memory of our own, then frees it | blocks and time |
//! | `chosen` | mega.ko evacuates chosen blocks | blocks and time |
//! | `auto` | `chosen` where mega.ko is loaded, `node` where not | |
//! | `lists` | drains the per-CPU free lists, for all of them | |
//!
//! Freed pages go to the per-CPU free lists first. These are drained before, during and after (`lists`); what they still hold counts
//! towards the target and is reported apart.
//!
//! Only `chosen` evacuates given blocks; `offline` picks the group that holds most of them.
//!
//! The gain is measured by reading free memory before and after ([`compact`]), never taken from a return value. Settings are changed
//! through [`Knobs`], which restores them even after a crash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mega_core::compaction::block::Hpfn;
use mega_core::compaction::planner::{self, Planner};
use mega_core::compaction::target::{ChosenBlocks, Compacted, Ended, Order};
use mega_core::units::{Blocks, Bytes, HUGE_PAGE_BYTES, REGION_PAGES};
use rustix::io::Errno;

use crate::blocks::BlocksError;
use crate::error::Error;
use crate::knobs::{KnobError, Knobs};
use crate::proc::{buddyinfo, meminfo, vmstat, ProcRoot};
use crate::sys;
use lists::Refresher;

mod auto;
mod chosen;
mod collapse;
mod daemon;
mod lists;
mod node;
mod offline;
mod pool;
mod proactive;
mod write;

/// A compaction method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// mega.ko evacuates chosen blocks.
    Chosen,
    /// `compact` of each NUMA node.
    Node,
    /// `vm.compaction_proactiveness`.
    Proactive,
    /// `nr_hugepages`.
    Pool,
    /// Memory taken offline and online.
    Offline,
    /// MADV_COLLAPSE of our own memory.
    Collapse,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 6] = [
        Self::Chosen,
        Self::Node,
        Self::Proactive,
        Self::Pool,
        Self::Offline,
        Self::Collapse,
    ];

    /// The methods of an unmodified kernel.
    pub const STOCK: [Self; 5] = [Self::Node, Self::Proactive, Self::Pool, Self::Offline, Self::Collapse];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::Node => "node",
            Self::Proactive => "proactive",
            Self::Pool => "pool",
            Self::Offline => "offline",
            Self::Collapse => "collapse",
        }
    }
}

/// Why compaction is not possible, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// This machine does not have this method.
    #[error("{}: not possible here: {why}", .way.word())]
    Missing {
        /// The way.
        way: Way,
        /// What is missing.
        why: String,
    },
    /// A file that has to be written cannot be.
    #[error("{}: {} cannot be written: {errno} (needs root)", .way.word(), path.display())]
    NotAllowed {
        /// The way.
        way: Way,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// The kernel said no.
    #[error("{}: {what}: {errno}", .way.word())]
    Failed {
        /// The way.
        way: Way,
        /// What was being done.
        what: String,
        /// What the kernel said.
        errno: Errno,
    },
    /// It would take memory that others need: see `limit`.
    #[error("{}: needs {wanted} transiently; limit {most}", .way.word())]
    NoRoom {
        /// The way.
        way: Way,
        /// What it would take.
        wanted: Bytes,
        /// What may be taken.
        most: Bytes,
    },
    /// A setting is not as it was.
    #[error("{}: {} is not put back: {why}", .way.word(), path.display())]
    NotPutBack {
        /// The way.
        way: Way,
        /// The setting.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A setting cannot be changed, or not safely.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A file of the kernel cannot be read.
    #[error(transparent)]
    File(#[from] Error),
    /// Blocks cannot be seen.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
}

/// What an actuator has to reach, and when it must end.
pub struct Task<'a> {
    root: &'a ProcRoot,
    /// Blocks to evacuate, best first; methods that cannot choose ignore it. Empty: the planner chooses.
    chosen: &'a [Hpfn],
    /// Blocks requested.
    asked: Blocks,
    /// Free blocks to reach.
    target: Blocks,
    /// Pages on per-CPU free lists at the beginning.
    lists_before: u64,
    /// `pgmigrate_success` at the beginning.
    moved_before: u64,
    refresher: &'a Refresher<'a>,
    deadline: Instant,
    stop: &'a dyn Fn() -> bool,
}

impl Task<'_> {
    /// It must end at once.
    pub fn is_stopped(&self) -> bool {
        (self.stop)()
    }

    /// Its deadline has passed.
    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether it must end, and why. `held`: blocks that the actuator holds and will free.
    fn over(&self, held: u64) -> Result<Option<Ended>, CompactError> {
        if self.is_stopped() {
            return Ok(Some(Ended::Stopped));
        }
        let there = || Ok::<_, CompactError>(buddyinfo::read(self.root)?.free_blocks().0.saturating_add(held));
        if there()? >= self.target.0 {
            return Ok(Some(Ended::Amount));
        }
        self.refresher.refresh_if_due(lists::pages(self.root)?);
        if there()?.saturating_add(self.on_lists()?) >= self.target.0 {
            return Ok(Some(Ended::Amount));
        }
        Ok(self.is_late().then_some(Ended::Time))
    }
}

impl Task<'_> {
    /// What compaction put on the per-CPU free lists so far, in blocks: their growth, capped by the pages migrated, since others free
    /// pages there too.
    fn on_lists(&self) -> Result<u64, CompactError> {
        let grown = lists::pages(self.root)?.saturating_sub(self.lists_before);
        if grown < u64::from(REGION_PAGES) {
            return Ok(0);
        }
        let moved = moved(&vmstat::read(self.root)?).saturating_sub(self.moved_before);
        Ok(grown.min(moved) / u64::from(REGION_PAGES))
    }
}

/// Pages migrated since boot, on anybody's behalf.
fn moved(counters: &vmstat::Vmstat) -> u64 {
    counters.get("pgmigrate_success").unwrap_or(0)
}

/// An actuator's own account of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Why it ended.
    pub ended: Ended,
    /// Processor time of processes that it started.
    pub helpers_cpu: Duration,
    /// What became of the blocks that were to be evacuated.
    pub chosen: Option<ChosenBlocks>,
}

impl Work {
    /// Work of a method that does not choose blocks.
    fn unchosen(ended: Ended, helpers_cpu: Duration) -> Self {
        Self {
            ended,
            helpers_cpu,
            chosen: None,
        }
    }
}

/// A compaction method, ready for use. It restores whatever it changes before a call returns.
pub trait Actuator: Send {
    /// Which.
    fn way(&self) -> Way;

    /// Compacts until the task is over.
    ///
    /// # Errors
    /// The method is missing, not allowed, or failed part way.
    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError>;
}

/// Opens a method. Changes nothing. Settings that it will change are recorded in `state_folder` (/run/mega).
///
/// # Errors
/// [`CompactError::Missing`] and [`CompactError::NotAllowed`].
pub fn open(way: Way, root: &ProcRoot, state_folder: &Path) -> Result<Box<dyn Actuator>, CompactError> {
    let knobs = || Knobs::open(root.clone(), state_folder);
    Ok(match way {
        Way::Chosen => Box::new(chosen::ChosenBlocks::open(Box::<planner::Mega>::default())?),
        Way::Node => Box::new(node::Node::open(root)?),
        Way::Proactive => Box::new(proactive::Proactive::open(root, knobs()?)?),
        Way::Pool => Box::new(pool::Pool::open(root, knobs()?)?),
        Way::Offline => Box::new(offline::Offline::open(root, knobs()?)?),
        Way::Collapse => Box::new(collapse::Collapse),
    })
}

/// Opens mega.ko to evacuate the task's blocks or, where it names none, those that the planner ranks highest.
///
/// # Errors
/// [`CompactError::Missing`] where it is not loaded.
pub fn open_chosen(planner: Box<dyn Planner>) -> Result<Box<dyn Actuator>, CompactError> {
    Ok(Box::new(chosen::ChosenBlocks::open(planner)?))
}

/// Opens both: mega.ko with the planner's choice whenever it is loaded at the time of a task, `node` otherwise.
///
/// # Errors
/// Neither is available.
pub fn open_auto(root: &ProcRoot, planner: Box<dyn Planner>) -> Result<Box<dyn Actuator>, CompactError> {
    Ok(Box::new(auto::Auto::open(root, planner)?))
}

/// Whether a method is available, or why not. Changes nothing.
///
/// # Errors
/// As [`open`].
pub fn available(way: Way, root: &ProcRoot) -> Result<(), CompactError> {
    match way {
        Way::Chosen => chosen::find().map(|_| ()),
        Way::Node => node::Node::open(root).map(|_| ()),
        Way::Proactive => proactive::find(root).map(|_| ()),
        Way::Pool => pool::find(root).map(|_| ()),
        Way::Offline => offline::find(root).map(|_| ()),
        Way::Collapse => Ok(()),
    }
}

/// The result of a compaction, with the kernel's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The result.
    pub done: Compacted,
    /// Processor time spent outside the calling thread: helper processes, kcompactd, and processors that drained their free lists.
    pub elsewhere: Duration,
    /// Increase of the compact_* and pgmigrate_* counters of /proc/vmstat.
    pub counters: BTreeMap<String, u64>,
}

/// Compacts, and measures the result by free memory before and after.
///
/// # Errors
/// The method cannot do it at all; what it changed is restored.
pub fn compact(
    actuator: &mut dyn Actuator,
    root: &ProcRoot,
    order: &Order,
    chosen: &[Hpfn],
    stop: &dyn Fn() -> bool,
) -> Result<Report, CompactError> {
    let kernel_threads = daemon::find(root);
    let began = Instant::now();
    let own_cpu = sys::thread_cpu_time();
    let their_cpu = daemon::cpu_time(root, &kernel_threads);
    let counters = vmstat::read(root)?;
    let before = buddyinfo::read(root)?.free_blocks();
    let deadline = began + order.time;
    let refresher = Refresher::new(root);
    refresher.drain(&|| stop() || Instant::now() >= deadline)?;
    let task = Task {
        root,
        lists_before: lists::pages(root)?,
        moved_before: moved(&counters),
        chosen,
        asked: order.blocks,
        target: Blocks(before.0.saturating_add(order.blocks.0)),
        refresher: &refresher,
        deadline,
        stop,
    };
    let work = match task.over(0)? {
        Some(ended) => Work::unchosen(ended, Duration::ZERO),
        None => actuator.make(&task)?,
    };
    refresher.drain(&|| stop() || Instant::now() >= deadline)?;
    let took = began.elapsed();
    let after = buddyinfo::read(root)?.free_blocks();
    let counters = grown(&counters, &vmstat::read(root)?);
    let their_cpu = daemon::cpu_time(root, &kernel_threads).saturating_sub(their_cpu);
    let elsewhere = work.helpers_cpu + their_cpu + refresher.spent();
    Ok(Report {
        elsewhere,
        done: Compacted {
            way: actuator.way().word(),
            asked: order.blocks,
            before,
            after,
            on_lists: Blocks(task.on_lists()?),
            moved_pages: counters.get("pgmigrate_success").copied().unwrap_or(0),
            took,
            cpu: sys::thread_cpu_time().saturating_sub(own_cpu) + elsewhere,
            ended: work.ended,
            chosen: work.chosen,
        },
        counters,
    })
}

/// Restores what an action changed.
fn put_back(knobs: &mut Knobs, way: Way) -> Result<(), CompactError> {
    let done = knobs.restore()?;
    let left = done
        .left
        .into_iter()
        .map(|left| (left.path, format!("changed externally to '{}'", left.current)));
    match left.chain(done.failed).next() {
        None => Ok(()),
        Some((path, why)) => Err(CompactError::NotPutBack { way, path, why }),
    }
}

/// Refuses what would leave less than 1 GB, or less than a twentieth of all memory, available.
fn check_room(way: Way, task: &Task<'_>) -> Result<(), CompactError> {
    let info = meminfo::read(task.root)?;
    let margin = (1 << 30).max(info.total_bytes.unwrap_or(0) / 20);
    let most = info.available_bytes.unwrap_or(0).saturating_sub(margin);
    let wanted = task.target.0.saturating_mul(HUGE_PAGE_BYTES);
    if wanted > most {
        let (wanted, most) = (Bytes(wanted), Bytes(most));
        return Err(CompactError::NoRoom { way, wanted, most });
    }
    Ok(())
}

fn grown(before: &vmstat::Vmstat, after: &vmstat::Vmstat) -> BTreeMap<String, u64> {
    let ours = |name: &str| name.starts_with("compact_") || name.starts_with("pgmigrate_");
    let all = after.iter().filter(|(name, _)| ours(name));
    all.map(|(name, now)| (name.to_owned(), now.saturating_sub(before.get(name).unwrap_or(now))))
        .collect()
}

#[cfg(test)]
mod tests;
