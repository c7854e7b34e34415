//! Collapses of what was filled before, and splits of what the program has unmapped a part of.
//!
//! A huge page stays whole while any of it is mapped: what the program gives back of it is not free until the kernel is
//! short of memory, and no figure of the program's shows it. Split, it is free at once. And khugepaged makes huge pages of
//! what is populated sparsely: those are split again.

use super::{Auto, CHUNK};
use crate::density::Population;
use crate::intent::Intent;
use crate::orders::{Order, Orders};
use crate::span::{up, PAGES, REGION};
use crate::table::{Advice, Range, PAUSE_NS};
use crate::world::{Conditions, Faults, Memory};

/// When a range has paused where no processor is spare, or while the program maps and unmaps: what is soon freed again is
/// not worth the time, and what was mapped a moment ago is to be advised before the program has filled it.
const BUSY_PAUSE_NS: u64 = 1_000_000_000;
/// When a range has paused whose program forks short children: each copies the page tables of what is not huge.
const FORKING_PAUSE_NS: u64 = 50_000_000;
/// The pauses between sweeps of a range.
const SWEEP_NS: (u64, u64) = (1_000_000_000, 64_000_000_000);

/// Regions that a range which grows keeps between its edge and what is collapsed behind it.
const MARGIN: u64 = 8;
/// Regions of it that may have been filled before the advice.
const FIRST: u64 = 16;
/// Collapses of one tick.
const COLLAPSES: u32 = 4;
/// Regions of one tick whose huge pages are split.
const RELEASES: u32 = 8;
/// The part of the waste allowed that may be copies of memory shared with children. It is small and never given back:
/// nobody says when the last child has ended. Where children are short the copies last no longer than they do, unless one
/// turns out to stay.
const COPIES_PART: u64 = 8;
const SHORT_COPIES_PART: u64 = 2;

/// What sweeps may yet do.
pub(super) struct Left {
    collapses: u32,
    /// Regions whose huge pages may yet be split, and whether any may be partly unmapped.
    releases: u32,
    partly_unmapped: Option<bool>,
    /// Base pages that collapses may add.
    pages: u64,
    /// Regions shared with another process that they may copy.
    copies: u64,
}

impl Auto {
    /// Collapses what is densely populated in a range that has paused, and releases what is unmapped of it.
    pub(super) fn sweep(
        &mut self,
        index: usize,
        conditions: &Conditions,
        left: &mut Left,
        memory: &mut impl Memory,
        orders: &mut Orders,
    ) {
        let Some(&range) = self.table.ranges().get(index) else {
            return;
        };
        let mut range = range;
        self.sweep_range(&mut range, conditions, left, memory, orders);
        if let Some(place) = self.table.ranges_mut().get_mut(index) {
            *place = range;
        }
    }

    fn sweep_range(
        &mut self,
        range: &mut Range,
        conditions: &Conditions,
        left: &mut Left,
        memory: &mut impl Memory,
        orders: &mut Orders,
    ) {
        let now = conditions.now_ns;
        let memory_only = self.intent == Intent::Memory;
        if range.advice == Advice::Ineligible {
            return;
        }
        // Where faults may not map huge pages, what lies well behind the edge is collapsed while the range grows.
        let pause = if conditions.has_short_children {
            FORKING_PAUSE_NS
        } else if conditions.is_busy || conditions.is_mapping {
            BUSY_PAUSE_NS
        } else {
            PAUSE_NS
        };
        let first = up(range.span.start);
        let is_growing = range.has_grown_within(pause, now);
        let is_mapped_huge = range.advice == Advice::Asked || conditions.faults == Faults::Always;
        // A program that has unmapped a range may soon unmap this one.
        let is_kept = self.table.gone() == 0 && !conditions.is_busy;
        let end = match (range.ahead.is_on(), is_growing) {
            (false, false) => range.end(),
            // What the program has not touched yet is still waited for.
            (true, false) => range.ahead.at_most_untouched().start,
            (false, true) if !is_mapped_huge => range.edge.saturating_sub(MARGIN * REGION).min(range.end()),
            // What was filled before the advice: few regions, and each fork would copy their page tables.
            (_, true) if is_kept && range.edge >= first.saturating_add((FIRST + MARGIN) * REGION) => {
                first + FIRST * REGION
            }
            (_, true) => 0,
        };
        if now < range.sweep_at_ns {
            return;
        }
        self.is_swept = false;
        if range.sweep >= end {
            if !is_growing && !range.ahead.is_on() {
                // A sweep that found something is followed by another soon.
                range.sweep = first;
                range.is_swept = true;
                range.sweep_gap_ns = (range.sweep_gap_ns * 2).clamp(SWEEP_NS.0, SWEEP_NS.1);
                range.sweep_at_ns = now.saturating_add(range.sweep_gap_ns);
            }
            return;
        }
        if !self.credit.is_left() {
            return;
        }
        let may_collapse = !self.off.collapse && now >= self.back_off_until_ns && !conditions.is_near_limit();
        let may_release = !self.off.split
            && left.releases > 0
            && *left.partly_unmapped.get_or_insert_with(|| memory.has_partly_unmapped());
        if !may_collapse && !may_release {
            return;
        }
        let mut seen = [Population::default(); CHUNK];
        let ahead = usize::try_from((end - range.sweep) / REGION).unwrap_or(CHUNK);
        let Some(seen) = seen.get_mut(..ahead.min(CHUNK)) else {
            return;
        };
        if !memory.populations(range.sweep, seen) {
            range.sweep = end;
            return;
        }
        for population in seen.iter() {
            if left.collapses == 0 || left.releases == 0 {
                return;
            }
            let region = range.sweep;
            range.sweep += REGION;
            let is_wanted = if memory_only {
                population.is_full()
            } else {
                population.is_dense()
            };
            let holes = u64::from(population.holes());
            if population.huge > 0 {
                // It was sparse, and has no holes any more: somebody has filled them with zeroes.
                let is_filled = range.is_swept && population.is_huge() && self.sparse.has(region);
                let may = is_filled && !self.off.split && !self.off.probe && left.releases > 0;
                if may && orders.push(Order::GiveBack(region)) {
                    left.releases -= 1;
                    range.sweep_gap_ns = 0;
                } else if !is_filled {
                    self.sparse.note(region, false);
                }
                continue;
            }
            self.sparse.note(region, !is_wanted && population.present > 0);
            if !is_wanted || !may_collapse || holes > left.pages {
                // Whether it has been a huge page is not known; one page tells the kernel.
                let is_part = population.present > 0 && holes > 0;
                left.releases -= u32::from(may_release && is_part && orders.push(Order::Release(region)));
                // It is wanted once it may be.
                range.sweep_gap_ns *= u64::from(!is_wanted || may_collapse);
                continue;
            }
            let is_copy = memory.is_shared(region);
            // Whatever was populated ahead in this very tick counts, too.
            if is_copy && (left.copies == 0 || left.pages < u64::from(PAGES) || self.regions_left(conditions) == 0) {
                continue;
            }
            if !orders.push(Order::Collapse(region)) {
                range.sweep = region;
                return;
            }
            range.sweep_gap_ns = 0;
            range.bloat_pages = range.bloat_pages.saturating_add(population.holes());
            self.copied_regions += u64::from(is_copy);
            left.copies -= u64::from(is_copy);
            left.pages -= if is_copy { u64::from(PAGES) } else { holes };
            left.collapses -= 1;
        }
    }

    /// Sweeps follow soon where the program has given memory back, and where what is resident grew by half of what may be
    /// wasted while no range did.
    pub(super) fn sweep_after(&mut self, changed: bool, grew: bool, conditions: &Conditions) {
        let now_ns = conditions.now_ns;
        let grows = |range: &Range| range.has_grown_within(PAUSE_NS, now_ns);
        if grew && self.table.ranges().iter().any(grows) {
            self.swept_resident = self.resident;
        }
        let is_filled = grew && self.resident > self.swept_resident.saturating_add(conditions.allowance() / 2);
        if !is_filled && (grew || !changed) {
            return;
        }
        self.swept_resident = self.resident;
        let soon = now_ns.saturating_add(SWEEP_NS.0);
        for range in self.table.ranges_mut() {
            range.sweep_gap_ns = 0;
            range.sweep_at_ns = range.sweep_at_ns.min(soon);
        }
    }

    /// What sweeps may yet do in this tick.
    pub(super) fn left(&self, conditions: &Conditions) -> Left {
        let allowed = match self.intent {
            Intent::Memory => 0,
            _ => conditions.allowed_regions(),
        };
        let regions = allowed.saturating_sub(self.table.regions_ahead() + self.copied_regions);
        let copies = if conditions.is_forked {
            0
        } else if conditions.has_short_children {
            allowed / SHORT_COPIES_PART
        } else {
            allowed / COPIES_PART
        };
        Left {
            collapses: COLLAPSES,
            releases: RELEASES,
            partly_unmapped: None,
            pages: (regions * u64::from(PAGES)).saturating_sub(self.table.bloat_pages()),
            copies: copies.saturating_sub(self.copied_regions),
        }
    }
}
