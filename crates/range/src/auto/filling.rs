//! Which regions are finished, and how densely they were filled.

use super::{Auto, CHUNK};
use crate::density::Population;
use crate::span::{Span, REGION};
use crate::table::{Advice, Range};
use crate::world::{Conditions, Memory};

/// What a region that is not full has waited before the program is taken to have gone elsewhere.
const ELSEWHERE_NS: u64 = 50_000_000;

impl Auto {
    /// Counts finished regions; true if there were any.
    pub(super) fn judge(
        &mut self,
        range: &mut Range,
        conditions: &Conditions,
        looks: &mut u32,
        memory: &mut impl Memory,
    ) -> bool {
        let end = range.end();
        let before = range.edge;
        let mut seen = [Population::default(); CHUNK];
        // Contents that are gone: freed, and mapped or filled anew.
        if range.span.contains(Span::region(range.last)) {
            let Some(last) = seen.get_mut(..1) else { return false };
            *looks = looks.saturating_sub(1);
            if memory.populations(range.last, last) && last.iter().all(|population| population.is_empty()) {
                range.forget();
                self.table.count_gone();
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
            let is_begun = !first.is_empty() && !first.is_full();
            let is_settled = is_begun && self.is_elsewhere(range, first, conditions);
            let mut finished = 0;
            let mut next = seen.iter().skip(1);
            for population in seen.iter() {
                let next_begun = next.next().is_some_and(|next| !next.is_empty());
                let is_finished = population.is_full() || (next_begun && is_settled);
                if !is_finished {
                    break;
                }
                self.count(range, *population);
                finished += 1;
            }
            range.edge += finished * REGION;
            range.streak = range.streak.saturating_add(finished as u32);
            if finished > 0 {
                range.last = range.edge - REGION;
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
            let mut skipped = Span::new(range.edge, region);
            if !at_edge.is_empty() {
                range.density.count(at_edge);
                self.history.count(at_edge);
                range.last = range.edge;
                skipped.start += REGION;
            }
            if skipped.bytes() > range.skipped.bytes() {
                range.skipped = skipped;
            }
            // One region, and then elsewhere, again and again: that of each which is mapped huge is mostly waste.
            range.lone += u32::from(range.streak == 1 && range.advice == Advice::Asked);
            range.is_sparse |= u64::from(range.lone) > conditions.allowed_regions() / 2;
            range.edge = region;
            range.streak = 0;
            range.waiting = (0, conditions.now_ns);
        }
        if range.edge > range.stranded.end {
            range.stranded = Span::default();
        }
        // The last one that was begun may not be full yet.
        let before_last = range.edge.saturating_sub(2 * REGION);
        let is_new = range.edge != before && range.span.contains(Span::region(before_last));
        if is_new && range.advice == Advice::Asked {
            self.sample(before_last, memory);
        }
        let went_down = range.edge >= end && self.judge_downwards(range, conditions, looks, memory);
        let moved = range.edge != before || went_down;
        if moved {
            range.grown_ns = conditions.now_ns;
        }
        moved
    }

    /// Counts a finished region. What is mapped huge says nothing about how densely the program fills it.
    fn count(&mut self, range: &mut Range, population: Population) {
        if population.is_huge() {
            range.in_vain = 0;
            return;
        }
        range.in_vain += u32::from(range.advice == Advice::Asked);
        range.density.count(population);
        self.history.count(population);
    }

    /// Counts finished regions of what the edge has jumped over, from its end downwards; true if there were any.
    fn judge_downwards(
        &mut self,
        range: &mut Range,
        conditions: &Conditions,
        looks: &mut u32,
        memory: &mut impl Memory,
    ) -> bool {
        let mut seen = [Population::default(); CHUNK];
        let before = range.skipped.end;
        while !range.skipped.is_empty() && *looks > 0 {
            let left = usize::try_from(range.skipped.region_count()).unwrap_or(CHUNK);
            let Some(seen) = seen.get_mut(..left.min(CHUNK)) else {
                break;
            };
            *looks = looks.saturating_sub(seen.len() as u32);
            let from = range.skipped.end.saturating_sub(seen.len() as u64 * REGION);
            if !memory.populations(from, seen) {
                break;
            }
            let mut finished = 0;
            let mut below = seen.iter().rev().skip(1);
            for population in seen.iter().rev() {
                let is_next_begun = below.next().is_some_and(|below| !below.is_empty());
                let is_left =
                    is_next_begun && !population.is_empty() && self.is_elsewhere(range, *population, conditions);
                if !population.is_full() && !is_left {
                    break;
                }
                self.count(range, *population);
                finished += 1;
                range.waiting = (0, conditions.now_ns);
            }
            range.skipped.end -= finished * REGION;
            if finished < seen.len() as u64 {
                break;
            }
        }
        let moved = range.skipped.end != before;
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

    /// Counts the probe that the program has passed by now.
    pub(super) fn judge_probe(&mut self, range: &mut Range, memory: &mut impl Memory) {
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
}
