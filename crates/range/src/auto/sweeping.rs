//! Collapses of what was filled before.

use super::{Auto, CHUNK};
use crate::density::Population;
use crate::intent::Intent;
use crate::orders::{Order, Orders};
use crate::span::{PAGES, REGION};
use crate::table::Advice;
use crate::waste;
use crate::world::{Conditions, Faults, Memory};

/// A range that did not grow for so long has paused.
const PAUSE_NS: u64 = 200_000_000;
/// The same where no processor is spare: what is soon freed again is not worth the time.
const BUSY_PAUSE_NS: u64 = 1_000_000_000;
/// The pauses between sweeps of a range.
const SWEEP_NS: (u64, u64) = (1_000_000_000, 64_000_000_000);

impl Auto {
    /// Collapses what is densely populated in a range that has paused.
    pub(super) fn sweep(
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

    /// Base pages that collapses may yet add.
    pub(super) fn pages_left(&self, conditions: &Conditions) -> u64 {
        if self.intent == Intent::Memory {
            return 0;
        }
        let allowed = waste::allowed_regions(conditions.resident_bytes, conditions.is_near_limit);
        (allowed.saturating_sub(self.table.regions_ahead()) * u64::from(PAGES)).saturating_sub(self.table.bloat_pages())
    }
}
