//! Compaction planners: how many free blocks are wanted, and which blocks of physical memory to evacuate for them, in which order, within a
//! budget. Pure, as policies are: blocks and zones in, an ordered list out. The host evacuates them.
//!
//! Rules that hold for every planner (ours; the papers leave them to the kernel):
//! - Only blocks of [`BlockKind::Movable`] are named: evacuating a free block or a huge page gains nothing, and a block with an unmovable
//!   page cannot be evacuated (future work in SYSTOR'19).
//! - A page without a flag is on a per-CPU free list or is kernel memory; the two cannot be told apart. A block may have a few
//!   (`unflagged_max`): on the machine examined, nearly all were free.
//! - The budget is the size of the blocks named, not of the pages migrated. This follows Table 7: Ingens' 100 MB per zone made the kernel
//!   scan 55,256 pages for migration per pass, which is 216 MB, while 1,432 pages were migrated.
//! - Migrated pages need room: a plan never migrates more pages than are free in used blocks that it does not name, or it would use up
//!   one free block to gain another.

use serde::{Deserialize, Serialize};

use crate::compaction::block::{Block, BlockKind, Hpfn, PageKind, Zone};
use crate::policy::{Param, ParamError};
use crate::units::{BasePages, Blocks, Bytes, Share, HUGE_PAGE_BYTES, REGION_PAGES};

mod demand;
mod ingens;
mod mega;
mod rank;

pub use demand::{Demand, DemandParams};
pub use ingens::{Ingens, IngensParams};
pub use mega::{Mega, MegaParams};
pub use rank::benefit_per_cost;

use std::time::Duration;

/// What a planner decides on: one look at physical memory.
#[derive(Debug, Clone, Copy)]
pub struct PlannerInput<'a> {
    /// The blocks, by rising number.
    pub blocks: &'a [Block],
    /// The zones; a block's `zone` is an index into them.
    pub zones: &'a [Zone],
    /// All memory of the machine.
    pub total: Bytes,
    /// Blocks that promotions and huge faults asked for since the last plan, whether they got them or not.
    pub asked: Blocks,
}

/// Why a block is to be evacuated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It ranks high by benefit per cost.
    CostBenefit,
    /// It has the lowest address in a fragmented zone.
    Lowest,
    /// Fewer blocks are free than are likely to be asked for, and it ranks high by benefit per cost.
    Shortfall,
}

impl Reason {
    /// Its word in the journal.
    pub fn word(self) -> &'static str {
        match self {
            Self::CostBenefit => "cost-benefit",
            Self::Lowest => "lowest",
            Self::Shortfall => "shortfall",
        }
    }
}

/// One block to evacuate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Choice {
    /// The block.
    pub hpfn: Hpfn,
    /// Why it was chosen.
    pub reason: Reason,
    /// Base pages to migrate.
    #[serde(rename = "moves_pages")]
    pub moves: BasePages,
    /// Benefit per cost, where the planner ranks by it (see [`benefit_per_cost`]).
    pub benefit: Option<f64>,
}

/// A planner. Its state is bounded and does not refer to single blocks.
pub trait Planner: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Time from one plan to the next.
    fn interval(&self) -> Duration;

    /// Number of blocks that this pass would evacuate at most, from the zones alone: for actuators that cannot select blocks. `seen.blocks` is
    /// not read, so it may be empty; reading blocks costs 20 ms per GB. A pass calls either this or [`Planner::plan`].
    fn want(&mut self, seen: &PlannerInput<'_>) -> Blocks;

    /// Selects the blocks to evacuate, in order.
    fn plan(&mut self, seen: &PlannerInput<'_>) -> Vec<Choice>;

    /// Selects the blocks to evacuate where [`Planner::want`] has already said how many: at most `most`, in the order of [`Planner::plan`].
    /// Changes no state.
    fn rank(&self, seen: &PlannerInput<'_>, most: Blocks) -> Vec<Choice>;

    /// Sets a parameter from text.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParamError>;

    /// Its parameters with their values.
    fn params(&self) -> Vec<Param>;
}

/// Every planner: its name and one line of description. Help texts and errors list these.
pub const PLANNERS: &[(&str, &str)] = &[
    (
        "mega",
        "200 MB every 5 s by age, mapped and accessed shares (SYSTOR'19)",
    ),
    (
        "ingens",
        "100 MB per fragmented zone every 5 s, lowest addresses first (OSDI'16)",
    ),
    (
        "demand",
        "as many free blocks as the last minutes demanded, best benefit per cost first (ours)",
    ),
];

/// The planner of this name with default parameters.
pub fn by_name(name: &str) -> Option<Box<dyn Planner>> {
    Some(match name {
        "mega" => Box::<Mega>::default(),
        "ingens" => Box::<Ingens>::default(),
        "demand" => Box::<Demand>::default(),
        _ => return None,
    })
}

/// Why a text does not name a planner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlannerError {
    /// No planner has this name.
    #[error("no planner '{name}' (there are: {known})")]
    Unknown {
        /// The name given.
        name: String,
        /// The known names.
        known: String,
    },
    /// Not `key=value`.
    #[error("parameter '{setting}' of planner '{name}' is not KEY=VALUE")]
    NoValue {
        /// The planner.
        name: String,
        /// The setting given.
        setting: String,
    },
    /// The planner does not accept the parameter or its value.
    #[error(transparent)]
    Parameter(#[from] ParamError),
}

/// The planner described by `NAME` or `NAME:key=value,key=value`.
pub fn from_text(text: &str) -> Result<Box<dyn Planner>, PlannerError> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let short = |text: &str| text.chars().take(64).collect();
    let mut planner = by_name(name).ok_or_else(|| PlannerError::Unknown {
        name: short(name),
        known: PLANNERS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
    })?;
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting.split_once('=').ok_or_else(|| PlannerError::NoValue {
            name: name.to_string(),
            setting: short(setting),
        })?;
        planner.set(key, value)?;
    }
    Ok(planner)
}

/// Whether nothing known prevents evacuating the block, and there is something to evacuate.
fn can_be_evacuated(block: &Block, unflagged_max: Share) -> bool {
    let unflagged = u128::from(block.pages(PageKind::Unflagged).0);
    let within = unflagged * 1_000_000 <= u128::from(unflagged_max.as_millionths()) * u128::from(REGION_PAGES);
    block.kind() == BlockKind::Movable && within
}

/// Blocks that could be made of a zone's free memory outside free blocks: the most that compaction can gain.
pub(crate) fn to_gain(zone: &Zone) -> u64 {
    zone.free_pages.saturating_sub(zone.free_pages_in_blocks()) / u64::from(REGION_PAGES)
}

/// The same, summed over these zones (by index).
fn to_gain_in(seen: &PlannerInput<'_>, zones: &[u8]) -> u64 {
    let of = |i: &u8| seen.zones.get(usize::from(*i)).map_or(0, to_gain);
    zones.iter().map(of).fold(0, u64::saturating_add)
}

/// Whole blocks that a budget allows.
fn blocks_for(budget: Bytes) -> u64 {
    budget.0 / HUGE_PAGE_BYTES
}

/// A plan under construction: what it may still name, and the room for what it migrates.
struct Making {
    choices: Vec<Choice>,
    left: u64,
    room: u64,
    moves: u64,
}

impl Making {
    fn new(blocks: &[Block]) -> Self {
        let used = |b: &&Block| matches!(b.kind(), BlockKind::Movable | BlockKind::Unmovable);
        Self {
            choices: Vec::new(),
            left: 0,
            room: blocks
                .iter()
                .filter(used)
                .map(|b| u64::from(b.pages(PageKind::Free).0))
                .sum(),
            moves: 0,
        }
    }

    /// Names the first of `ordered` that the budget allows; stops at the first whose pages find no room.
    fn take<'a>(&mut self, budget: u64, ordered: impl IntoIterator<Item = (&'a Block, Option<f64>)>, reason: Reason) {
        self.left = budget;
        for (block, benefit) in ordered {
            let moves = block.pages(PageKind::Movable);
            let free = u64::from(block.pages(PageKind::Free).0);
            if self.left == 0 || self.moves + u64::from(moves.0) > self.room.saturating_sub(free) {
                return;
            }
            self.left -= 1;
            self.room -= free;
            self.moves += u64::from(moves.0);
            self.choices.push(Choice {
                hpfn: block.hpfn,
                reason,
                moves,
                benefit,
            });
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
