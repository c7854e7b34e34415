//! Making free blocks: the ways that a stock kernel has, and mega.ko's, one file each, behind one trait.
//!
//! | file | way | what bounds it |
//! | --- | --- | --- |
//! | `node` | `compact` of each NUMA node, written by a process that is killed once there is enough | blocks and time |
//! | `proactive` | `vm.compaction_proactiveness` raised for a while: kcompactd does it | time, roughly |
//! | `pool` | `nr_hugepages` raised step by step, and lowered again | blocks and time |
//! | `offline` | a block group of memory taken offline and online again | one group, time |
//! | `collapse` | memory of our own collapsed into huge pages, and freed | blocks and time |
//! | `chosen` | chosen blocks emptied by mega.ko | blocks and time |
//! | `auto` | `chosen` where mega.ko is loaded, `node` where not | |
//! | `lists` | no way of its own: has the processors give their free pages back | |
//!
//! What is emptied goes onto the processors' own free lists first. They are given back before, while and after ([`lists`]); what is on them
//! nevertheless counts towards the amount, and is told apart.
//!
//! Only `chosen` can be told which blocks to empty; `offline` picks the group in which most of the chosen blocks are.
//!
//! What an action gained is what the looks before and after it say ([`compact`]), never what a call returned. All settings that a way
//! changes go through [`Knobs`], so that they are put back after a crash, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mega_core::block::Hpfn;
use mega_core::planner::{self, Planner};
use mega_core::stock::{Chosen, Compacted, Ended, Order};
use mega_core::units::{Blocks, Bytes, HUGE_PAGE_BYTES, REGION_PAGES};
use rustix::io::Errno;

use crate::blocks::BlocksError;
use crate::error::Error;
use crate::knobs::{KnobError, Knobs};
use crate::proc::{buddyinfo, meminfo, vmstat, ProcRoot};
use crate::sys;

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

/// A way of making free blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Chosen blocks are emptied, by mega.ko.
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

    /// The ways that a stock kernel has.
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

/// Why blocks cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// This machine does not have this way.
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
    /// It would take memory that others need.
    #[error("{}: it would hold {wanted} for a moment, and at most {most} may be taken", .way.word())]
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

/// What an actuator has to do, and when it has done enough.
pub struct Task<'a> {
    root: &'a ProcRoot,
    /// Blocks to empty, best first. Who cannot choose takes no notice of it; who can chooses by itself where there are none.
    chosen: &'a [Hpfn],
    /// How many blocks were ordered.
    asked: Blocks,
    /// Free blocks to have.
    target: Blocks,
    /// Pages on the processors' own lists at the beginning.
    lists_before: u64,
    /// Pages moved by anybody since boot, at the beginning.
    moved_before: u64,
    deadline: Instant,
    stop: &'a dyn Fn() -> bool,
}

impl Task<'_> {
    /// It is to end at once.
    pub fn is_stopped(&self) -> bool {
        (self.stop)()
    }

    /// Its time is over.
    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether it is over, and why. `held`: blocks that the actuator holds and will free.
    fn over(&self, held: u64) -> Result<Option<Ended>, CompactError> {
        if self.is_stopped() {
            return Ok(Some(Ended::Stopped));
        }
        lists::refresh(self.root);
        let free = buddyinfo::read(self.root)?.free_blocks().0;
        let there = free.saturating_add(held);
        if there >= self.target.0 || there.saturating_add(self.on_lists()?) >= self.target.0 {
            return Ok(Some(Ended::Amount));
        }
        Ok(self.is_late().then_some(Ended::Time))
    }
}

impl Task<'_> {
    /// What compaction put onto the processors' own lists so far, in blocks: what they grew by, but no more than was moved. Others free
    /// pages there, too.
    fn on_lists(&self) -> Result<u64, CompactError> {
        let grown = lists::pages(self.root)?.saturating_sub(self.lists_before);
        if grown < u64::from(REGION_PAGES) {
            return Ok(0);
        }
        let moved = moved(&vmstat::read(self.root)?).saturating_sub(self.moved_before);
        Ok(grown.min(moved) / u64::from(REGION_PAGES))
    }
}

/// Pages moved by anybody since boot.
fn moved(counters: &vmstat::Vmstat) -> u64 {
    counters.get("pgmigrate_success").unwrap_or(0)
}

/// What an actuator says of its own work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Why it ended.
    pub ended: Ended,
    /// Processor time of processes that it started.
    pub helpers_cpu: Duration,
    /// What became of the blocks that it was told, or chose, to empty.
    pub chosen: Option<Chosen>,
}

impl Work {
    /// Work of a way that does not choose.
    fn unchosen(ended: Ended, helpers_cpu: Duration) -> Self {
        Self {
            ended,
            helpers_cpu,
            chosen: None,
        }
    }
}

/// A way of making free blocks, ready to be used. Whatever it changes it has put back when a call returns.
pub trait Actuator: Send {
    /// Which.
    fn way(&self) -> Way;

    /// Works until the task is over.
    ///
    /// # Errors
    /// When nothing can be done, or no more.
    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError>;
}

/// Makes a way ready, or says why it is not there. Nothing is changed. Settings are remembered in `state_folder` (/run/mega).
///
/// # Errors
/// [`CompactError::Missing`] and [`CompactError::NotAllowed`].
pub fn open(way: Way, root: &ProcRoot, state_folder: &Path) -> Result<Box<dyn Actuator>, CompactError> {
    let knobs = || Knobs::open(root.clone(), state_folder);
    Ok(match way {
        Way::Chosen => Box::new(chosen::Chosen::open(Box::<planner::Mega>::default())?),
        Way::Node => Box::new(node::Node::open(root)?),
        Way::Proactive => Box::new(proactive::Proactive::open(root, knobs()?)?),
        Way::Pool => Box::new(pool::Pool::open(root, knobs()?)?),
        Way::Offline => Box::new(offline::Offline::open(root, knobs()?)?),
        Way::Collapse => Box::new(collapse::Collapse),
    })
}

/// Makes mega.ko ready to empty blocks: those of the task, or where it names none those that this planner ranks highest.
///
/// # Errors
/// [`CompactError::Missing`] where it is not loaded.
pub fn open_chosen(planner: Box<dyn Planner>) -> Result<Box<dyn Actuator>, CompactError> {
    Ok(Box::new(chosen::Chosen::open(planner)?))
}

/// Makes ready what empties the blocks that the planner chooses wherever mega.ko is loaded when there is something to do, and has the
/// kernel choose them (`node`) wherever it is not. It may be loaded and unloaded meanwhile.
///
/// # Errors
/// Neither is possible.
pub fn open_auto(root: &ProcRoot, planner: Box<dyn Planner>) -> Result<Box<dyn Actuator>, CompactError> {
    Ok(Box::new(auto::Auto::open(root, planner)?))
}

/// Whether a way is there and may be used, or why not; nothing is changed.
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

/// What a compaction came to, and the kernel's counters of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it came to.
    pub done: Compacted,
    /// Of its processor time what was not the calling thread's: processes that it started, and the kernel's compaction threads.
    pub elsewhere: Duration,
    /// How far the kernel's compaction counters went up meanwhile, by their names in /proc/vmstat.
    pub counters: BTreeMap<String, u64>,
}

/// Makes blocks, and says what came of it by the looks before and after.
///
/// # Errors
/// When the way cannot do it at all; what it changed is put back then, too.
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
    lists::drain(root, &|| stop() || Instant::now() >= deadline)?;
    let task = Task {
        root,
        lists_before: lists::pages(root)?,
        moved_before: moved(&counters),
        chosen,
        asked: order.blocks,
        target: Blocks(before.0.saturating_add(order.blocks.0)),
        deadline,
        stop,
    };
    let work = match task.over(0)? {
        Some(ended) => Work::unchosen(ended, Duration::ZERO),
        None => actuator.make(&task)?,
    };
    lists::drain(root, &|| stop() || Instant::now() >= deadline)?;
    let took = began.elapsed();
    let after = buddyinfo::read(root)?.free_blocks();
    let counters = grown(&counters, &vmstat::read(root)?);
    let their_cpu = daemon::cpu_time(root, &kernel_threads).saturating_sub(their_cpu);
    let elsewhere = work.helpers_cpu + their_cpu;
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

/// Puts back what an action has changed.
fn put_back(knobs: &mut Knobs, way: Way) -> Result<(), CompactError> {
    let done = knobs.restore()?;
    let left = done
        .left
        .into_iter()
        .map(|left| (left.path, format!("somebody else made it '{}'", left.current)));
    match left.chain(done.failed).next() {
        None => Ok(()),
        Some((path, why)) => Err(CompactError::NotPutBack { way, path, why }),
    }
}

/// Refuses what would take memory that others need: at least 1 GB and a twentieth of all memory stay available.
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
