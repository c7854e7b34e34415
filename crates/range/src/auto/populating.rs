//! Populating ahead of a range that fills in order.

use super::{Auto, SAMPLES};
use crate::ahead::Limit;
use crate::density::Population;
use crate::orders::{Order, Orders};
use crate::span::{Span, REGION};
use crate::table::{Advice, Range};
use crate::world::{Conditions, Faults, Memory};

/// Regions filled one after another before a helper populates ahead.
const STREAK: u32 = 4;

impl Auto {
    /// Has the program reached the region that was left to it?
    pub(super) fn step_ahead(
        &mut self,
        range: &mut Range,
        conditions: &Conditions,
        regions: u64,
        memory: &mut impl Memory,
        orders: &mut Orders,
    ) {
        let mut steps = 0;
        let mut is_scattered = false;
        range.ahead.share(|region| memory.is_reached(region));
        while range.ahead.is_on() && steps < 4 && memory.is_reached(range.ahead.waiting()) {
            steps += 1;
            // Who fills in order has filled the regions that were left to him before he goes on.
            if range.ahead.passed().is_some_and(|region| is_thin(region, memory)) {
                is_scattered = true;
                // Where faults map huge pages this was a probe.
                range.is_sparse |= range.advice == Advice::Asked;
                break;
            }
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
            let mut passed = (0..u64::from(SAMPLES)).map_while(|nth| range.ahead.between(nth));
            if passed.any(|region| self.sample(region, memory)) {
                range.unprobed = 0;
            }
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
        let is_over =
            range.is_sparse || is_scattered || range.ahead.is_late(conditions.now_ns) || conditions.is_near_limit();
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

    /// Makes the next region that is left to the program a probe, before what was populated since the last one, or since
    /// contents have shown how densely the program fills it, may be more waste than half of what is allowed.
    fn probe(&mut self, range: &mut Range, conditions: &Conditions, group: Span, orders: &mut Orders) {
        let region = range.ahead.end();
        let [_, waiting, next] = range.probes;
        range.unprobed += group.bytes() / REGION;
        let is_due = range.unprobed >= conditions.allowed_regions() / 2;
        let may = !self.off.probe && !self.off.split && range.advice == Advice::Asked && region < range.end();
        let is_probe = is_due && may && orders.push(Order::Probe(region));
        range.probes = [waiting, next, if is_probe { region } else { 0 }];
        if is_probe {
            range.unprobed = 0;
        }
    }

    fn may_populate(&self, conditions: &Conditions) -> bool {
        let is_of_use = !conditions.is_crowded || !self.rate.is_slow();
        is_of_use
            && self.intent.allows_ahead()
            && !self.off.populate
            && !conditions.is_short_of_blocks
            && !conditions.is_near_limit()
            && conditions.now_ns >= self.back_off_until_ns
    }

    /// Begins to populate ahead of a range that fills in order.
    pub(super) fn begin_ahead(
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
}

/// Whether base pages map the region, and not many.
fn is_thin(region: u64, memory: &mut impl Memory) -> bool {
    let mut seen = [Population::default()];
    memory.populations(region, &mut seen) && seen.iter().any(|seen| seen.huge == 0 && !seen.is_dense())
}
