//! Evacuates chosen blocks by mega.ko: those that the task names, or those that a planner ranks highest.
//!
//! - The planner ranks as it does for everybody (SYSTOR'19, section 3.4): nothing is ranked here. What mega.ko adds to what it looks at is which
//!   pages look pinned: a block with one counts as unmovable, so it is not named.
//! - A few blocks per call, best first, so that stopping is prompt; mega.ko checks its budget before each block.
//! - Each block reported free is verified in /proc/kpageflags. Both numbers are reported.
//! - A block that could not be evacuated backs off for a while: it would rank as high the next time.
//! - The device is open only during a task: the module may be unloaded at any other time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mega_core::compaction::block::{Block, BlockKind, Hpfn};
use mega_core::compaction::history::BlockHistory;
use mega_core::compaction::planner::{Planner, PlannerInput};
use mega_core::compaction::target::{self, Ended};
use mega_core::units::{Blocks, Bytes, Time};
use rustix::io::Errno;

use super::{Actuator, CompactError, Task, Way, Work};
use crate::blocks;
use crate::module::uapi::{CompactBlock, CAN_BLOCKS, CAN_COMPACT};
use crate::module::{BlockOutcome, Module, ModuleError};
use crate::proc::{meminfo, ProcRoot};
use crate::sys;

/// Blocks of a call: some tens of milliseconds.
const BATCH: usize = 8;
/// Back-off of a block that could not be evacuated.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// The planner, and what is remembered of blocks.
pub struct ChosenBlocks {
    planner: Box<dyn Planner>,
    history: BlockHistory,
    left_alone: BTreeMap<Hpfn, Instant>,
}

/// The module, if it is loaded, permitted and capable.
pub fn find() -> Result<Module, CompactError> {
    let missing = |why: String| CompactError::Missing { way: Way::Chosen, why };
    let module = Module::open().map_err(|error| missing(error.to_string()))?;
    match module.can(CAN_COMPACT) && module.can(CAN_BLOCKS) {
        true => Ok(module),
        false => Err(missing("this mega.ko cannot evacuate blocks".into())),
    }
}

fn failed(error: ModuleError) -> CompactError {
    match error {
        ModuleError::Call { what, errno } => CompactError::Failed {
            way: Way::Chosen,
            what: format!("mega.ko, {what}"),
            errno,
        },
        other => CompactError::Missing {
            way: Way::Chosen,
            why: other.to_string(),
        },
    }
}

impl ChosenBlocks {
    /// Checks that the module is there.
    pub fn open(planner: Box<dyn Planner>) -> Result<Self, CompactError> {
        find()?;
        Ok(Self::unchecked(planner))
    }

    /// Without checking: the module is looked for at each task.
    pub fn unchecked(planner: Box<dyn Planner>) -> Self {
        Self {
            planner,
            history: BlockHistory::default(),
            left_alone: BTreeMap::new(),
        }
    }

    /// The blocks that rank highest now.
    fn choose(&mut self, module: &Module, root: &ProcRoot, most: Blocks) -> Result<Vec<Hpfn>, CompactError> {
        let (mut seen, zones) = blocks::read_by_module(root, module)?;
        self.history.update(Time(sys::monotonic().as_nanos() as u64), &mut seen);
        let now = Instant::now();
        self.left_alone.retain(|_, until| *until > now);
        seen.retain(|block| !self.left_alone.contains_key(&block.hpfn));
        let choices = self.planner.rank(
            &PlannerInput {
                blocks: &seen,
                zones: &zones,
                total: Bytes(meminfo::read(root)?.total_bytes.unwrap_or(0)),
                asked: most,
            },
            most,
        );
        Ok(choices.into_iter().map(|choice| choice.hpfn).collect())
    }

    /// Evacuates blocks until the task is over.
    fn empty(&mut self, module: &Module, list: &[Hpfn], task: &Task<'_>) -> Result<Work, CompactError> {
        let mut chosen = target::ChosenBlocks::default();
        let mut ended = None;
        let mut left = list;
        while !left.is_empty() {
            ended = task.over(0)?;
            if ended.is_some() {
                break;
            }
            let (now, later) = left.split_at(left.len().min(BATCH));
            let mut asked: Vec<_> = now.iter().map(|block| CompactBlock::asked(block.0.into())).collect();
            let budget = task.deadline.saturating_duration_since(Instant::now());
            let most = Duration::from_nanos(module.info().budget_max_ns);
            match module.compact(&mut asked, budget.min(most), false) {
                // A signal came first; whether it was meant to end this is seen above.
                Err(ModuleError::Call { errno: Errno::INTR, .. }) => continue,
                called => called.map_err(failed)?,
            };
            let mut freed = Vec::new();
            for (block, said) in now.iter().zip(&asked) {
                let outcome = said.outcome();
                *chosen.outcomes.entry(outcome.word()).or_default() += 1;
                match outcome {
                    BlockOutcome::Freed => freed.push(*block),
                    BlockOutcome::Already
                    | BlockOutcome::NoRoom
                    | BlockOutcome::Budget
                    | BlockOutcome::Interrupted
                    | BlockOutcome::Undone => {}
                    _ => {
                        self.left_alone.insert(*block, Instant::now() + LEFT_ALONE);
                    }
                }
            }
            let seen = blocks::look_at(task.root, &freed)?;
            chosen.seen_free.0 += seen.iter().filter(|block| block.kind() == BlockKind::Free).count() as u64;
            left = later;
        }
        if !left.is_empty() {
            *chosen.outcomes.entry(BlockOutcome::Undone.word()).or_default() += left.len() as u64;
        }
        let ended = match ended {
            None => task.over(0)?,
            ended => ended,
        };
        Ok(Work {
            ended: ended.unwrap_or(Ended::Through),
            helpers_cpu: Duration::ZERO,
            chosen: Some(chosen),
        })
    }

    /// Pages migrated into blocks do not make these younger.
    fn note_moved(&mut self, module: &Module, root: &ProcRoot) -> Result<(), CompactError> {
        if self.history.is_empty() {
            return Ok(());
        }
        let (seen, _): (Vec<Block>, _) = blocks::read_by_module(root, module)?;
        self.history.moved(&seen);
        Ok(())
    }
}

impl Actuator for ChosenBlocks {
    fn way(&self) -> Way {
        Way::Chosen
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        let module = find()?;
        let work = if task.chosen.is_empty() {
            let list = self.choose(&module, task.root, task.asked)?;
            self.empty(&module, &list, task)?
        } else {
            self.empty(&module, task.chosen, task)?
        };
        self.note_moved(&module, task.root)?;
        Ok(work)
    }
}
