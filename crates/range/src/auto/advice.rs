//! Advises a range that fills densely, and withdraws the advice where it does not any more.

use super::Auto;
use crate::birth::{Births, New, MOST_PROBED, PROBED, PROBES};
use crate::density::Density;
use crate::mappings::LEAST_REGIONS;
use crate::orders::{Order, Orders};
use crate::span::{Span, REGION};
use crate::table::{Advice, Range};
use crate::world::{Conditions, Faults, Memory};

/// Regions that base pages map though they were advised, before the advice is given again.
const IN_VAIN: u32 = 2;

impl Auto {
    /// Advises a range that fills densely, and withdraws the advice where it does not any more.
    pub(super) fn advise(
        &mut self,
        index: usize,
        conditions: &Conditions,
        births: Births,
        memory: &mut impl Memory,
        orders: &mut Orders,
    ) {
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
                let is_blocked = conditions.is_short_of_blocks || conditions.is_near_limit();
                if rest.is_empty() && range.skipped.is_empty() {
                    return;
                }
                // The program may have unmapped what was advised, and mapped this in its place.
                let is_in_vain = range.in_vain >= IN_VAIN && rest.region_count() > 0 && !is_blocked;
                let again = Order::Advise {
                    mapping: range.mapping,
                    is_part: range.is_part,
                };
                if is_in_vain && orders.push(again) {
                    self.mark(range.mapping, |range| range.in_vain = 0);
                }
                let allowed = conditions.allowed_regions() / 2;
                let mut isolated = 0;
                for part in [rest, range.skipped] {
                    if !is_blocked && !part.is_empty() {
                        isolated += memory.isolated(part);
                    }
                }
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
            Advice::None | Advice::Withdrawn | Advice::Probe => {
                // What was mapped where the program's own call was not seen is as good as born now.
                let is_born = range.advice == Advice::None
                    && range.density == Density::NONE
                    && births.is_candidate(New {
                        bytes: range.mapping.bytes(),
                        is_piece: self.has_grown_to(range.mapping),
                    });
                let is_filled = match range.advice {
                    Advice::Probe => range.density.is_dense(PROBED),
                    _ => {
                        let least = self.history.least_for_new_range();
                        range.density.is_dense(1) && self.density(range.mapping).is_dense(least)
                    }
                };
                let is_dense = is_born || is_filled;
                let has_room = rest.region_count() > 0 || range.skipped.region_count() >= LEAST_REGIONS;
                let is_worth = has_room && is_dense;
                let may =
                    self.intent.allows_huge_faults() && !conditions.is_short_of_blocks && !conditions.is_near_limit();
                if !is_worth || !may || conditions.now_ns < self.back_off_until_ns || self.has_sparse(range) {
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
            Advice::Ineligible => {}
        }
    }

    /// How densely all of a mapping is filled.
    fn density(&self, mapping: Span) -> Density {
        let of = self.table.ranges().iter().filter(|range| range.mapping == mapping);
        of.fold(Density::NONE, |density, range| density.and(range.density))
    }

    /// Whether an advised mapping adjoins: it has grown, and the kernel merges both only once this one is advised, too.
    fn has_grown_to(&self, mapping: Span) -> bool {
        let adjoins = |other: &Range| other.mapping.end == mapping.start || other.mapping.start == mapping.end;
        let of = |other: &Range| other.advice == Advice::Asked && adjoins(other);
        self.table.ranges().iter().any(of)
    }

    /// Whether another range of its mapping fills sparsely, or may: its holes would be mapped huge with the rest.
    fn has_sparse(&self, range: Range) -> bool {
        let beside = |other: &&Range| other.mapping == range.mapping && other.span != range.span;
        self.table.ranges().iter().filter(beside).any(|other| {
            let is_unknown = other.density.dense == 0 && other.waiting.0 > 0;
            is_unknown || (other.density.sparse > 0 && !other.density.is_dense(0))
        })
    }

    pub(super) fn mark(&mut self, mapping: Span, mark: impl Fn(&mut Range)) {
        for range in self.table.ranges_mut() {
            if range.mapping == mapping {
                mark(range);
            }
        }
    }
}
