//! The rules together: from what memory looks like to what is to be done.
//!
//! A range is unadvised at first. Once four of its regions were filled densely (one in a program whose other ranges were
//! dense) its mapping is advised, so that faults map 2 MB; a helper populates ahead of a program that goes on filling in
//! order. A range that is touched here and there instead loses the advice before more is wasted than is allowed. What was
//! filled before the advice, or without it, is collapsed once the range has paused, within the stall budget.

use crate::ahead::{Ahead, Limit};
use crate::birth::{Births, LEAST_DENSE, MOST_PROBED, PROBES};
use crate::credit::Credit;
use crate::density::{Density, Population};
use crate::intent::Intent;
use crate::orders::{Order, Orders, Outcome};
use crate::span::{Span, PAGE, PAGES, REGION};
use crate::table::{Advice, Range, Table};
use crate::waste;
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
/// Regions looked at in one call.
const CHUNK: usize = 32;
/// Regions filled one after another before a helper populates ahead.
const STREAK: u32 = 4;
/// A range that did not grow for so long has paused.
pub const PAUSE_NS: u64 = 200_000_000;
/// The same where no processor is spare: what is soon freed again is not worth the time.
pub const BUSY_PAUSE_NS: u64 = 1_000_000_000;
/// Part of the time for collapses that is left where no processor is spare.
const BUSY_PART: u32 = 5;
/// What a region that is not full has waited before the program is taken to have gone elsewhere.
const ELSEWHERE_NS: u64 = 50_000_000;
/// The pauses between sweeps of a range.
const SWEEP_NS: (u64, u64) = (1_000_000_000, 64_000_000_000);
/// Collapses of one tick.
const COLLAPSES: u32 = 4;
/// After a failure for want of a block or of memory.
const BACK_OFF_NS: (u64, u64) = (1_000_000_000, 64_000_000_000);

/// The state of the rules for one program.
#[derive(Debug, Clone)]
pub struct Auto {
    intent: Intent,
    table: Table,
    history: Density,
    credit: Credit,
    off: Off,
    candidates: u32,
    resident: u64,
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
            history: Density::NONE,
            credit: Credit::full(),
            off: Off {
                advise: false,
                populate: false,
                collapse: false,
                split: false,
                probe: false,
            },
            candidates: 0,
            resident: 0,
            back_off_until_ns: 0,
            back_off_ns: 0,
            turn: 0,
            is_swept: false,
        }
    }

    /// Forgets everything, for a program with this intent. Touches no more memory than was used.
    pub fn begin(&mut self, intent: Intent) {
        self.intent = intent;
        self.table.clear();
        self.history = Density::default();
        self.credit = Credit::full();
        self.off = Off::default();
        self.candidates = 0;
        self.resident = 0;
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

    /// Takes in that the mapping at this address was advised at birth.
    pub fn born(&mut self, address: u64) {
        let of = |range: &&Range| range.mapping.start <= address && address < range.mapping.end;
        let Some(mapping) = self.table.ranges().iter().find(of).map(|range| range.mapping) else {
            return;
        };
        self.mark(mapping, |range| {
            if matches!(range.advice, Advice::None | Advice::Probe) {
                range.advice = Advice::Asked;
            }
        });
    }

    /// What may be advised at birth under these conditions.
    pub fn births(&self, conditions: &Conditions) -> Births {
        let resident = conditions.resident_bytes;
        let waste = self.history.waste(resident) + self.table.bloat_pages() * PAGE;
        let may = conditions.faults == Faults::Advised
            && !self.off.advise
            && self.intent.allows_huge_faults()
            && !conditions.is_short_of_blocks
            && !conditions.is_near_limit
            && conditions.now_ns >= self.back_off_until_ns
            && self.history.dense >= LEAST_DENSE
            && waste <= waste::allowance(resident, false);
        Births {
            most_bytes: if may { resident } else { 0 },
        }
    }

    /// Finished regions of all ranges.
    pub fn history(&self) -> Density {
        self.history
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
        let mut pace = if grew { Pace::Growing } else { Pace::Idle };
        let mut looks = LOOKS;
        let mut collapses = COLLAPSES;
        let mut pages_left = self.pages_left(conditions);
        self.is_swept = true;
        let count = self.table.ranges().len();
        for step in 0..count {
            let index = self.turn.wrapping_add(step).checked_rem(count).unwrap_or(0);
            let regions_left = self.regions_left(conditions);
            let Some(&range) = self.table.ranges().get(index) else {
                continue;
            };
            let mut range = range;
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
                self.advise(index, conditions, memory, orders);
            }
            if self.begin_ahead(index, conditions, regions_left, memory, orders) {
                pace = Pace::Growing;
            }
            self.sweep(index, conditions, &mut collapses, &mut pages_left, memory, orders);
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

    /// Regions that may yet be populated ahead.
    fn regions_left(&self, conditions: &Conditions) -> u64 {
        if conditions.is_near_limit {
            return 0;
        }
        let bloat = self.table.bloat_pages() / u64::from(PAGES);
        waste::allowed_regions(conditions.resident_bytes, false).saturating_sub(self.table.regions_ahead() + bloat)
    }

    /// Base pages that collapses may yet add.
    fn pages_left(&self, conditions: &Conditions) -> u64 {
        if self.intent == Intent::Memory {
            return 0;
        }
        let allowed = waste::allowed_regions(conditions.resident_bytes, conditions.is_near_limit);
        (allowed.saturating_sub(self.table.regions_ahead()) * u64::from(PAGES)).saturating_sub(self.table.bloat_pages())
    }

    /// Has the program reached the region that was left to it?
    fn step_ahead(
        &mut self,
        range: &mut Range,
        conditions: &Conditions,
        regions: u64,
        memory: &mut impl Memory,
        orders: &mut Orders,
    ) {
        let mut steps = 0;
        range.ahead.share(|region| memory.is_reached(region));
        while range.ahead.is_on() && steps < 4 && memory.is_reached(range.ahead.waiting()) {
            steps += 1;
            range.edge = range.ahead.waiting();
            range.grown_ns = conditions.now_ns;
            let may = self.may_populate(conditions);
            let limit = Limit {
                now_ns: conditions.now_ns,
                end: range.end(),
                regions: if may { regions } else { 0 },
                is_mapping: conditions.is_mapping,
            };
            let group = range.ahead.untouched();
            self.judge_probe(range, memory);
            if range.is_sparse {
                break;
            }
            match range.ahead.reached(limit) {
                Some(span) => {
                    orders.push(Order::Populate(span));
                    self.probe(range, conditions, span, orders);
                    break;
                }
                None => range.strand(group),
            }
        }
        let is_over = range.is_sparse || range.ahead.is_late(conditions.now_ns) || conditions.is_near_limit;
        if range.ahead.is_on() && is_over {
            let untouched = range.ahead.untouched();
            let mut left = range.ahead.at_most_untouched();
            // Base pages cannot be given back so.
            if !self.off.split && (range.advice == Advice::Asked || conditions.faults == Faults::Always) {
                let mut region = untouched;
                while !region.is_empty() && orders.push(Order::GiveBack(region.start)) {
                    region.start += REGION;
                }
                left.end = untouched.start;
            }
            range.edge = range.ahead.waiting();
            range.strand(left);
        }
    }

    /// Makes the next region that is left to the program a probe, before what was populated since the last one may be
    /// more waste than half of what is allowed.
    fn probe(&mut self, range: &mut Range, conditions: &Conditions, group: Span, orders: &mut Orders) {
        let region = range.ahead.end();
        let [_, waiting, next] = range.probes;
        range.unprobed += group.bytes() / REGION;
        let is_due = range.unprobed >= waste::allowed_regions(conditions.resident_bytes, false) / 2;
        let may = !self.off.probe && !self.off.split && range.advice == Advice::Asked && region < range.end();
        let is_probe = is_due && may && orders.push(Order::Probe(region));
        range.probes = [waiting, next, if is_probe { region } else { 0 }];
        if is_probe {
            range.unprobed = 0;
        }
    }

    /// Counts the probe that the program has passed by now.
    fn judge_probe(&mut self, range: &mut Range, memory: &mut impl Memory) {
        let [probe, ..] = range.probes;
        let mut seen = [Population::default()];
        if probe == 0 || probe >= range.ahead.waiting() || !memory.populations(probe, &mut seen) {
            return;
        }
        let [population] = seen;
        range.probes[0] = 0;
        if !population.is_huge() {
            range.is_sparse |= !population.is_dense();
            self.history.count(population);
        }
    }

    fn may_populate(&self, conditions: &Conditions) -> bool {
        self.intent.allows_ahead()
            && !self.off.populate
            && !conditions.is_short_of_blocks
            && !conditions.is_near_limit
            && conditions.now_ns >= self.back_off_until_ns
    }

    /// Counts finished regions; true if there were any.
    fn judge(&mut self, range: &mut Range, conditions: &Conditions, looks: &mut u32, memory: &mut impl Memory) -> bool {
        let first = crate::span::up(range.span.start);
        let end = range.end();
        let before = range.edge;
        let mut seen = [Population::default(); CHUNK];
        // Contents that are gone: freed, and mapped or filled anew.
        if range.edge > first {
            let Some(last) = seen.get_mut(..1) else { return false };
            *looks = looks.saturating_sub(1);
            if memory.populations(range.edge - REGION, last) && last.iter().all(|population| population.is_empty()) {
                range.forget();
            }
        }
        while range.edge < end && *looks > 0 {
            let left = usize::try_from((end - range.edge) / REGION).unwrap_or(CHUNK);
            let Some(seen) = seen.get_mut(..left.min(CHUNK)) else {
                break;
            };
            *looks = looks.saturating_sub(seen.len() as u32);
            if !memory.populations(range.edge, seen) {
                break;
            }
            // Several threads may fill at once, each a region of its own: what is not full is finished once it stays so.
            let first = seen.first().copied().unwrap_or_default();
            let is_settled = !first.is_full() && self.is_elsewhere(range, first, conditions);
            let mut finished = 0;
            let mut next = seen.iter().skip(1);
            for population in seen.iter() {
                let next_begun = next.next().is_some_and(|next| !next.is_empty());
                if !population.is_full() && !(next_begun && is_settled) {
                    break;
                }
                // What is mapped huge says nothing about how densely the program fills it.
                if !population.is_huge() {
                    range.density.count(*population);
                    self.history.count(*population);
                }
                finished += 1;
            }
            range.edge += finished * REGION;
            range.streak = range.streak.saturating_add(finished as u32);
            if finished > 0 {
                range.waiting = (0, conditions.now_ns);
            }
            if finished as usize + 1 >= seen.len() && seen.len() > 1 && finished > 0 {
                continue;
            }
            let at_edge = seen.get(finished as usize).copied().unwrap_or_default();
            if range.edge >= end || !self.is_elsewhere(range, at_edge, conditions) {
                break;
            }
            let beyond = Span::new(range.edge.saturating_add(REGION), end);
            let Some(region) = memory.first_populated(beyond) else {
                break;
            };
            if !at_edge.is_empty() {
                range.density.count(at_edge);
                self.history.count(at_edge);
            }
            // One region, and then elsewhere, again and again: that of each which is mapped huge is mostly waste.
            range.lone += u32::from(range.streak == 1 && range.advice == Advice::Asked);
            range.is_sparse |= u64::from(range.lone) > waste::allowed_regions(conditions.resident_bytes, false) / 2;
            range.edge = region;
            range.streak = 0;
            range.waiting = (0, conditions.now_ns);
        }
        if range.edge > range.stranded.end {
            range.stranded = Span::default();
        }
        let moved = range.edge != before;
        if moved {
            range.grown_ns = conditions.now_ns;
        }
        moved
    }

    /// Whether the program fills other regions than the one at the edge.
    fn is_elsewhere(&self, range: &mut Range, at_edge: Population, conditions: &Conditions) -> bool {
        if at_edge.is_empty() {
            return true;
        }
        if range.waiting.0 != at_edge.present {
            range.waiting = (at_edge.present, conditions.now_ns);
            range.grown_ns = conditions.now_ns;
        }
        conditions.now_ns.saturating_sub(range.waiting.1) > ELSEWHERE_NS
    }

    /// Advises a range that fills densely, and withdraws the advice where it does not any more.
    fn advise(&mut self, index: usize, conditions: &Conditions, memory: &mut impl Memory, orders: &mut Orders) {
        let Some(&range) = self.table.ranges().get(index) else {
            return;
        };
        if conditions.faults != Faults::Advised || self.off.advise {
            return;
        }
        let rest = Span::new(range.edge.max(range.ahead.end()).saturating_add(REGION), range.end());
        match range.advice {
            Advice::Asked => {
                let withdraw = Order::Withdraw {
                    mapping: range.mapping,
                    is_part: range.is_part,
                };
                let is_blocked = conditions.is_short_of_blocks || conditions.is_near_limit;
                if rest.is_empty() {
                    return;
                }
                let allowed = waste::allowed_regions(conditions.resident_bytes, conditions.is_near_limit) / 2;
                let isolated = if is_blocked { 0 } else { memory.isolated(rest) };
                if (is_blocked || range.is_sparse || isolated > allowed) && orders.push(withdraw) {
                    self.history.count_isolated(isolated);
                    self.mark(range.mapping, |range| {
                        range.advice = Advice::Withdrawn;
                        // It is learned anew; holes that were seen count at once.
                        range.density = Density::NONE;
                        range.density.count_isolated(isolated);
                        range.is_sparse = false;
                        range.lone = 0;
                    });
                }
            }
            Advice::None | Advice::Withdrawn => {
                let is_worth = rest.region_count() > 0 && range.density.is_dense(self.history.least_for_new_range());
                let may =
                    self.intent.allows_huge_faults() && !conditions.is_short_of_blocks && !conditions.is_near_limit;
                if !is_worth || !may || conditions.now_ns < self.back_off_until_ns || self.has_sparse(range.mapping) {
                    return;
                }
                if range.advice == Advice::None {
                    self.candidates = self.candidates.wrapping_add(1);
                    if self.candidates % PROBES == 0 && range.span.region_count() < MOST_PROBED {
                        self.mark(range.mapping, |range| range.advice = Advice::Probe);
                        return;
                    }
                }
                let advise = Order::Advise {
                    mapping: range.mapping,
                    is_part: range.is_part,
                };
                if orders.push(advise) {
                    self.mark(range.mapping, |range| range.advice = Advice::Asked);
                }
            }
            Advice::Probe | Advice::Ineligible => {}
        }
    }

    /// Whether another range of the mapping fills sparsely, or may: its holes would be mapped huge with the rest.
    fn has_sparse(&self, mapping: Span) -> bool {
        let of = self.table.ranges().iter().filter(|range| range.mapping == mapping);
        of.into_iter().any(|range| {
            let is_unknown = range.density.dense == 0 && range.waiting.0 > 0;
            is_unknown || (range.density.sparse > 0 && !range.density.is_dense(0))
        })
    }

    fn mark(&mut self, mapping: Span, mark: impl Fn(&mut Range)) {
        for range in self.table.ranges_mut() {
            if range.mapping == mapping {
                mark(range);
            }
        }
    }

    /// Begins to populate ahead of a range that fills in order.
    fn begin_ahead(
        &mut self,
        index: usize,
        conditions: &Conditions,
        regions: u64,
        memory: &mut impl Memory,
        orders: &mut Orders,
    ) -> bool {
        let may = self.may_populate(conditions);
        let is_latency = !self.intent.allows_huge_faults();
        let Some(range) = self.table.ranges_mut().get_mut(index) else {
            return false;
        };
        let is_mapped_huge = range.advice == Advice::Asked || conditions.faults == Faults::Always;
        let is_dense = range.density.is_dense(1) || conditions.faults == Faults::Always;
        let is_filling = range.streak >= STREAK && range.grown_ns == conditions.now_ns && is_dense;
        if !may || range.ahead.is_on() || !is_filling || !(is_mapped_huge || is_latency) {
            return false;
        }
        let mut at_edge = [Population::default()];
        if range.edge >= range.end() || !memory.populations(range.edge, &mut at_edge) {
            return false;
        }
        let is_begun = at_edge.iter().any(|population| !population.is_empty());
        let untouched = range.edge + if is_begun { REGION } else { 0 };
        let limit = Limit {
            now_ns: conditions.now_ns,
            end: range.end(),
            regions,
            is_mapping: conditions.is_mapping,
        };
        match range.ahead.begin(untouched, limit) {
            Some(span) if orders.push(Order::Populate(span)) => {
                let mut filling = *range;
                self.probe(&mut filling, conditions, span, orders);
                if let Some(place) = self.table.ranges_mut().get_mut(index) {
                    *place = filling;
                }
                true
            }
            _ => false,
        }
    }

    /// Collapses what is densely populated in a range that has paused.
    fn sweep(
        &mut self,
        index: usize,
        conditions: &Conditions,
        collapses: &mut u32,
        pages_left: &mut u64,
        memory: &mut impl Memory,
        orders: &mut Orders,
    ) {
        let now = conditions.now_ns;
        let memory_only = self.intent == Intent::Memory;
        let may =
            !self.off.collapse && self.credit.is_left() && now >= self.back_off_until_ns && !conditions.is_near_limit;
        let Some(range) = self.table.ranges_mut().get_mut(index) else {
            return;
        };
        if range.advice == Advice::Ineligible || range.ahead.is_on() {
            return;
        }
        // Where faults may not map huge pages, what lies well behind the edge is collapsed while the range grows.
        let pause = if conditions.is_busy { BUSY_PAUSE_NS } else { PAUSE_NS };
        let is_growing = now.saturating_sub(range.grown_ns) < pause;
        let end = if !is_growing {
            range.end()
        } else if range.advice == Advice::Asked || conditions.faults == Faults::Always {
            0
        } else {
            range.edge.saturating_sub(8 * REGION).min(range.end())
        };
        if now < range.sweep_at_ns {
            return;
        }
        self.is_swept = false;
        if !may || *collapses == 0 || range.sweep >= end {
            if range.sweep >= end && !is_growing {
                // A sweep that found something is followed by another soon.
                range.sweep = crate::span::up(range.span.start);
                range.sweep_gap_ns = (range.sweep_gap_ns * 2).clamp(SWEEP_NS.0, SWEEP_NS.1);
                range.sweep_at_ns = now.saturating_add(range.sweep_gap_ns);
            }
            return;
        }
        let mut seen = [Population::default(); CHUNK];
        let left = usize::try_from((end - range.sweep) / REGION).unwrap_or(CHUNK);
        let Some(seen) = seen.get_mut(..left.min(CHUNK)) else {
            return;
        };
        if !memory.populations(range.sweep, seen) {
            range.sweep = end;
            return;
        }
        for population in seen.iter() {
            if *collapses == 0 {
                return;
            }
            let region = range.sweep;
            range.sweep += REGION;
            let is_wanted = if memory_only {
                population.is_full()
            } else {
                population.is_dense()
            };
            let holes = population.holes();
            if !is_wanted || population.huge > 0 || u64::from(holes) > *pages_left {
                continue;
            }
            if !orders.push(Order::Collapse(region)) {
                range.sweep = region;
                return;
            }
            range.sweep_gap_ns = 0;
            range.bloat_pages = range.bloat_pages.saturating_add(holes);
            *pages_left -= u64::from(holes);
            *collapses -= 1;
        }
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
            (Order::Collapse(_), _) => self.credit.spend(call_ns),
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
                    Order::Collapse(region) | Order::GiveBack(region) | Order::Probe(region) => region,
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
                Order::GiveBack(_) | Order::Probe(_) => self.off.split = true,
            },
        }
        outcome == Outcome::Done && (!matches!(order, Order::Collapse(_)) || self.credit.is_left())
    }
}

impl Default for Auto {
    fn default() -> Self {
        Auto::new()
    }
}
