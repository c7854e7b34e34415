//! The rules together: from what memory looks like to what is to be done.
//!
//! A range is unadvised at first. Once four of its regions were filled densely (one in a program whose other ranges were
//! dense) its mapping is advised, so that faults map 2 MB; a helper populates ahead of a program that goes on filling in
//! order. A range that is touched here and there instead loses the advice before more is wasted than is allowed. What was
//! filled before the advice, or without it, is collapsed once the range has paused, within the stall budget.

mod advice;
mod births;
mod filling;
mod populating;
mod sweeping;

use crate::ahead::Ahead;
use crate::credit::Credit;
use crate::density::{Density, Population};
use crate::filled::Filled;
use crate::intent::Intent;
use crate::orders::{Order, Orders, Outcome};
use crate::rate::Rate;
use crate::span::{Span, PAGES, REGION};
use crate::sparse::Sparse;
use crate::table::{Advice, Range, Table, PAUSE_NS};
use crate::world::{Conditions, Faults, Memory};

/// What is switched off since the kernel refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Off {
    /// Advice.
    pub advise: bool,
    /// Populating ahead.
    pub populate: bool,
    /// Collapses.
    pub collapse: bool,
    /// Splits.
    pub split: bool,
    /// Probes.
    pub probe: bool,
}

/// How soon to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A region that is left to the program may be reached at any moment.
    Ahead,
    /// Something was found or done.
    Growing,
    /// Nothing happened.
    Idle,
}

/// Regions looked at in one tick, in all ranges together.
const LOOKS: u32 = 512;
/// Regions whose contents are sampled in one tick.
const SAMPLES: u32 = 4;
/// Regions looked at in one call.
const CHUNK: usize = 32;
/// Part of the time for collapses that is left where no processor is spare.
const BUSY_PART: u32 = 5;
/// The same where the program is filling the range: each of its faults then waits for the call.
const GROWING_PART: u64 = 5;
/// After a failure for want of a block or of memory.
const BACK_OFF_NS: (u64, u64) = (1_000_000_000, 64_000_000_000);

/// The state of the rules for one program.
#[derive(Debug, Clone)]
pub struct Auto {
    intent: Intent,
    table: Table,
    prior: Density,
    history: Density,
    credit: Credit,
    sparse: Sparse,
    rate: Rate,
    filled: Filled,
    /// Samples of this look, and whether they show that the program fills what it gets.
    samples: u32,
    is_filled: bool,
    off: Off,
    /// Mappings that might have been a probe, since contents have shown how they are filled.
    candidates: u32,
    resident: u64,
    /// What was resident when the program last grew, or sweeps were last hastened.
    swept_resident: u64,
    copied_regions: u64,
    back_off_until_ns: u64,
    back_off_ns: u64,
    turn: usize,
    is_swept: bool,
}

impl Auto {
    /// Nothing known.
    pub const fn new() -> Self {
        Auto {
            intent: Intent::Balanced,
            table: Table::new(),
            prior: Density::NONE,
            history: Density::NONE,
            credit: Credit::full(),
            sparse: Sparse::new(),
            rate: Rate::new(),
            filled: Filled::new(),
            samples: 0,
            is_filled: false,
            off: Off {
                advise: false,
                populate: false,
                collapse: false,
                split: false,
                probe: false,
            },
            candidates: 0,
            resident: 0,
            swept_resident: 0,
            copied_regions: 0,
            back_off_until_ns: 0,
            back_off_ns: 0,
            turn: 0,
            is_swept: false,
        }
    }

    /// Forgets everything, for a program with this intent that in earlier runs filled its memory like this. Touches no
    /// more memory than was used.
    pub fn begin(&mut self, intent: Intent, earlier: Density) {
        self.intent = intent;
        self.table.clear();
        self.prior = earlier.as_prior();
        self.history = self.prior;
        self.credit = Credit::full();
        self.sparse.clear();
        self.rate = Rate::new();
        self.filled = Filled::new();
        self.samples = 0;
        self.is_filled = false;
        self.off = Off::default();
        self.candidates = 0;
        self.resident = 0;
        self.swept_resident = 0;
        self.copied_regions = 0;
        self.back_off_until_ns = 0;
        self.back_off_ns = 0;
        self.turn = 0;
        self.is_swept = false;
    }

    /// The ranges.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// What is switched off.
    pub fn off(&self) -> Off {
        self.off
    }

    /// Follows the mappings; see [`Table::follow`].
    pub fn follow(&mut self, mappings: &[Span]) -> u32 {
        self.table.follow(mappings)
    }

    /// Finished regions of all ranges of this run.
    pub fn seen(&self) -> Density {
        self.history.since(self.prior)
    }

    /// Whether all ranges were swept and nothing is due.
    pub fn is_swept(&self) -> bool {
        self.is_swept
    }

    /// Decides what is to be done now.
    pub fn decide(&mut self, conditions: &Conditions, memory: &mut impl Memory, orders: &mut Orders) -> Pace {
        orders.clear();
        self.credit.earn(conditions.now_ns, self.stall_permille(conditions));
        if conditions.faults == Faults::Never {
            self.is_swept = true;
            return Pace::Idle;
        }
        let grew = conditions.resident_bytes > self.resident.saturating_add(REGION / 2);
        let changed = grew || conditions.resident_bytes.saturating_add(REGION / 2) < self.resident;
        if changed {
            self.resident = conditions.resident_bytes;
        }
        self.rate.note(conditions.program_ns, conditions.resident_bytes);
        self.sweep_after(changed, grew, conditions);
        let mut pace = if grew { Pace::Growing } else { Pace::Idle };
        let births = self.births_seen(conditions);
        let mut looks = LOOKS;
        self.samples = 0;
        self.is_filled = false;
        let mut left = self.left(conditions);
        self.is_swept = true;
        let count = self.table.ranges().len();
        for step in 0..count {
            let index = self.turn.wrapping_add(step).checked_rem(count).unwrap_or(0);
            let regions_left = self.regions_left(conditions);
            let Some(&range) = self.table.ranges().get(index) else {
                continue;
            };
            let mut range = range;
            // New, or moved: it may go on.
            if range.grown_ns == 0 {
                range.grown_ns = conditions.now_ns;
            }
            if range.ahead.is_on() {
                self.step_ahead(&mut range, conditions, regions_left, memory, orders);
            }
            if !range.ahead.is_on() && changed {
                if looks == 0 {
                    self.turn = index;
                    pace = Pace::Growing;
                    break;
                }
                if self.judge(&mut range, conditions, &mut looks, memory) {
                    pace = Pace::Growing;
                }
            }
            if let Some(place) = self.table.ranges_mut().get_mut(index) {
                *place = range;
            }
            if grew {
                self.advise(index, conditions, births, memory, orders);
            }
            if self.begin_ahead(index, conditions, regions_left, memory, orders) {
                pace = Pace::Growing;
            }
            self.sweep(index, conditions, &mut left, memory, orders);
            if self.table.ranges().get(index).is_some_and(|range| range.ahead.is_on()) {
                pace = Pace::Ahead;
            }
        }
        pace
    }

    /// The share of time for collapses: where no processor is spare, the program pays for all of a call, not for a stall
    /// alone.
    fn stall_permille(&self, conditions: &Conditions) -> Option<u32> {
        let permille = self.intent.stall_permille();
        permille.map(|permille| {
            if conditions.is_busy {
                permille / BUSY_PART
            } else {
                permille
            }
        })
    }

    /// Looks at what is in a region that the program should have filled. True where that shows that it fills what it gets.
    fn sample(&mut self, region: u64, memory: &mut impl Memory) -> bool {
        if self.samples >= SAMPLES {
            return false;
        }
        self.samples += 1;
        let is_shown = memory
            .is_filled(region)
            .is_some_and(|is_filled| self.filled.note(is_filled));
        if is_shown {
            self.is_filled = true;
            self.candidates = 0;
            if self.filled.is_dense() {
                self.history.count(Population::FULL);
            }
        }
        is_shown
    }

    /// Regions that may yet be populated ahead.
    fn regions_left(&self, conditions: &Conditions) -> u64 {
        let bloat = self.table.bloat_pages() / u64::from(PAGES) + self.copied_regions;
        conditions
            .allowed_regions()
            .saturating_sub(self.table.regions_ahead() + bloat)
    }

    /// Takes in what came of an order, and what the call took. True if the rest of the orders may go on.
    pub fn done(&mut self, order: Order, outcome: Outcome, call_ns: u64, now_ns: u64) -> bool {
        match (order, outcome) {
            (Order::Populate(span), outcome) => {
                let of = self.table.ranges_mut().iter_mut();
                for range in of.filter(|range| range.span.contains(span)) {
                    match outcome {
                        Outcome::Done => range.ahead.took(call_ns),
                        _ => range.strand(range.ahead.at_most_untouched()),
                    }
                }
            }
            (Order::Collapse(region) | Order::Release(region), _) => {
                let at = |range: &&Range| range.span.contains(Span::region(region));
                let is_growing = self
                    .table
                    .ranges()
                    .iter()
                    .find(at)
                    .is_some_and(|range| range.has_grown_within(PAUSE_NS, now_ns));
                let weight = if is_growing { GROWING_PART } else { 1 };
                self.credit.spend(call_ns.saturating_mul(weight));
            }
            (Order::Probe(_), outcome) => self.off.probe |= outcome == Outcome::Busy,
            // The mapping has changed meanwhile, or the call came at a bad moment: it is decided anew.
            (Order::Advise { mapping, .. }, outcome) if outcome != Outcome::Done => {
                self.mark(mapping, |range| range.advice = Advice::None);
            }
            _ => {}
        }
        match outcome {
            Outcome::Done | Outcome::Busy | Outcome::Gone => {
                if outcome == Outcome::Done {
                    self.back_off_ns = 0;
                }
            }
            Outcome::NoBlock | Outcome::Limit => {
                self.back_off_ns = (self.back_off_ns * 2).clamp(BACK_OFF_NS.0, BACK_OFF_NS.1);
                self.back_off_until_ns = now_ns.saturating_add(self.back_off_ns);
            }
            Outcome::Ineligible => {
                let at = match order {
                    Order::Advise { mapping, .. } | Order::Withdraw { mapping, .. } => mapping.start,
                    Order::Populate(span) => span.start,
                    Order::Collapse(region)
                    | Order::GiveBack(region)
                    | Order::Release(region)
                    | Order::Probe(region) => region,
                };
                for range in self.table.ranges_mut() {
                    if range.span.start <= at && at < range.span.end || range.mapping.start == at {
                        range.advice = Advice::Ineligible;
                        range.ahead = Ahead::OFF;
                    }
                }
            }
            Outcome::Refused => match order {
                Order::Advise { .. } | Order::Withdraw { .. } => self.off.advise = true,
                Order::Populate(_) => self.off.populate = true,
                Order::Collapse(_) => self.off.collapse = true,
                Order::GiveBack(_) | Order::Release(_) | Order::Probe(_) => self.off.split = true,
            },
        }
        let is_charged = matches!(order, Order::Collapse(_) | Order::Release(_));
        outcome == Outcome::Done && (!is_charged || self.credit.is_left())
    }
}

impl Default for Auto {
    fn default() -> Self {
        Auto::new()
    }
}
