//! The compaction planner: which blocks of physical memory to empty, in which order, under a budget. Pure, as policies are: blocks and
//! zones in, an ordered list out. Who empties them, and how, is the host's affair.
//!
//! Rules that hold for every planner (ours; the papers leave them to the kernel):
//! - Only blocks of [`BlockKind::Movable`] are named: emptying a free block or a huge page gains nothing, and one with an unmovable page
//!   cannot be emptied (what SYSTOR'19 leaves as future work).
//! - A page without a flag is free on a processor's list or the kernel's own, which cannot be told apart. A block may have a few
//!   (`unflagged_max`): on the machine looked at, nearly all were free.
//! - The budget is the size of the blocks named, not the bytes moved. Table 7 is the ground: Ingens' 100 MB per zone made the kernel scan
//!   55,256 pages for migration per pass, which is 216 MB, while 1,432 pages were moved.
//! - What moves has to go somewhere: a plan never moves more pages than are free in used blocks that it does not name, or it would use up
//!   one free block to gain another.

use serde::{Deserialize, Serialize};

use crate::block::{Block, BlockKind, Hpfn, PageKind, Zone};
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

/// What a planner decides on.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The blocks, by rising number.
    pub blocks: &'a [Block],
    /// The zones that the blocks' `zone` are indices into.
    pub zones: &'a [Zone],
    /// All memory.
    pub total: Bytes,
    /// Blocks that promotions and huge faults asked for since the last plan, whether they got them or not.
    pub asked: Blocks,
}

/// Why a block is to be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It ranks high by benefit per cost.
    CostBenefit,
    /// It is the lowest in a fragmented zone.
    Lowest,
    /// Fewer blocks are free than are likely to be asked for; it ranks high by benefit per cost.
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

/// One block to empty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Choice {
    /// Which.
    pub hpfn: Hpfn,
    /// Why.
    pub reason: Reason,
    /// Base pages that have to move.
    #[serde(rename = "moves_pages")]
    pub moves: BasePages,
    /// Benefit per cost, where the planner ranks by it (see [`benefit_per_cost`]).
    pub benefit: Option<f64>,
}

/// A planner. What it remembers is bounded and says nothing about single blocks.
pub trait Planner: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Time from one plan to the next.
    fn interval(&self) -> Duration;

    /// Blocks that this pass would empty at most, from the zones alone: for actuators that cannot choose. `seen.blocks` is not looked
    /// at, so they need not be read, which costs 20 ms per GB. A pass calls either this or [`Planner::plan`].
    fn want(&mut self, seen: &Seen<'_>) -> Blocks;

    /// Names the blocks to empty, in this order.
    fn plan(&mut self, seen: &Seen<'_>) -> Vec<Choice>;

    /// Names the blocks to empty where it was said before how many ([`Planner::want`]): these many at most, in the order of
    /// [`Planner::plan`]. Remembers nothing.
    fn rank(&self, seen: &Seen<'_>, most: Blocks) -> Vec<Choice>;

    /// Sets a parameter.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParamError>;

    /// Its parameters.
    fn params(&self) -> Vec<Param>;
}

/// Every planner: its name and what it does in a line.
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
        "as many free blocks as the last minutes asked for, best benefit per cost first",
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

/// No planner is written so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlannerError {
    /// None of this name.
    #[error("no planner '{name}' (there are: {known})")]
    Unknown {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// Not `key=value`.
    #[error("parameter '{setting}' of planner '{name}' is not KEY=VALUE")]
    NoValue {
        /// The planner.
        name: String,
        /// What was given.
        setting: String,
    },
    /// The planner does not take it.
    #[error(transparent)]
    Parameter(#[from] ParamError),
}

/// The planner that `NAME` or `NAME:key=value,key=value` means.
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

/// Nothing known stands in the way of emptying it, and there is something to empty.
fn can_be_emptied(block: &Block, unflagged_max: Share) -> bool {
    let unflagged = u128::from(block.pages(PageKind::Unflagged).0);
    let within = unflagged * 1_000_000 <= u128::from(unflagged_max.as_millionths()) * u128::from(REGION_PAGES);
    block.kind() == BlockKind::Movable && within
}

/// Blocks that could be made of a zone's free memory outside of free blocks: no compaction gains more.
pub(crate) fn to_gain(zone: &Zone) -> u64 {
    zone.free_pages.saturating_sub(zone.free_pages_in_blocks()) / u64::from(REGION_PAGES)
}

/// The same of these zones, given by their indices.
fn to_gain_in(seen: &Seen<'_>, zones: &[u8]) -> u64 {
    let of = |i: &u8| seen.zones.get(usize::from(*i)).map_or(0, to_gain);
    zones.iter().map(of).fold(0, u64::saturating_add)
}

/// Whole blocks that a budget pays for.
fn blocks_for(budget: Bytes) -> u64 {
    budget.0 / HUGE_PAGE_BYTES
}

/// A plan in the making: what it may still name, and the room for what it moves.
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

    /// Names the first of `ordered` that the budget pays for; ends at the first whose pages find no room.
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
