//! Ranges followed by address, whatever the mappings do.
//!
//! The kernel merges and splits anonymous mappings; what was learned belongs to the addresses. So a mapping may hold
//! several ranges, and a range knows the mapping that it lies in: advice is for a whole mapping, since advice for a part
//! would split it, and the program's `mremap` across the two would fail.

use crate::ahead::Ahead;
use crate::density::Density;
use crate::span::{up, Span, PAGE, REGION};

/// Ranges that are followed at most.
pub const RANGES: usize = 512;
/// A range that did not grow for so long has paused.
pub const PAUSE_NS: u64 = 200_000_000;

/// What the kernel was told about a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Advice {
    /// Nothing yet.
    #[default]
    None,
    /// To map huge pages at faults.
    Asked,
    /// Not to do so any more: it turned out to be sparse, or blocks were short.
    Withdrawn,
    /// Nothing yet, since its first regions are a probe, on base pages, of how densely the program fills memory.
    Probe,
    /// The kernel refuses huge pages here, or the program does.
    Ineligible,
}

/// A range and what was learned of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// Its addresses.
    pub span: Span,
    /// The mapping that it lies in.
    pub mapping: Span,
    /// The mapping was larger before: the program has unmapped a part of it, or protected it otherwise.
    pub is_part: bool,
    /// What the kernel was told.
    pub advice: Advice,
    /// The first region that is not finished.
    pub edge: u64,
    /// The last one in which anything was found; 0 is none.
    pub last: u64,
    /// Its finished regions.
    pub density: Density,
    /// Regions finished one after another that base pages map though the range is advised.
    pub in_vain: u32,
    /// What is left of the longest part that the edge has jumped over: who fills downwards fills it next, from its end on.
    pub skipped: Span,
    /// Regions finished one after another without a pause.
    pub streak: u32,
    /// When the edge moved last.
    pub grown_ns: u64,
    /// Base pages of the region at the edge, and since when.
    pub waiting: (u32, u64),
    /// What was populated ahead.
    pub ahead: Ahead,
    /// Regions that the program fills with base pages, the next one to be judged first; 0 is none.
    pub probes: [u64; 3],
    /// Regions populated ahead since the last probe, or since contents have shown how densely they are filled.
    pub unprobed: u64,
    /// A probe was filled sparsely, or regions were that lie alone.
    pub is_sparse: bool,
    /// Advised regions of which neither neighbour was filled.
    pub lone: u32,
    /// What was populated ahead and could not be given back; the program may not have touched it.
    pub stranded: Span,
    /// Where the sweep stands: the next region that may be collapsed.
    pub sweep: u64,
    /// When to sweep next, and the pause after a sweep that found nothing.
    pub sweep_at_ns: u64,
    /// The pause after the next sweep.
    pub sweep_gap_ns: u64,
    /// A sweep has gone through all of it.
    pub is_swept: bool,
    /// Base pages that our collapses added.
    pub bloat_pages: u32,
}

impl Range {
    /// A range of which nothing is known.
    pub fn new(span: Span, mapping: Span) -> Self {
        let first = up(span.start);
        Range {
            span,
            mapping,
            edge: first,
            sweep: first,
            ..Range::default()
        }
    }

    /// Whether it grew within this time before now.
    pub fn has_grown_within(&self, ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.grown_ns) < ns
    }

    /// Forgets what was learned of contents that are gone.
    pub fn forget(&mut self) {
        *self = Range {
            advice: match self.advice {
                Advice::Ineligible => Advice::Ineligible,
                _ => Advice::None,
            },
            is_part: self.is_part,
            ..Range::new(self.span, self.mapping)
        };
    }

    /// Populating ahead is over. What is left of it counts as waste until the program has passed it.
    pub fn strand(&mut self, left: Span) {
        self.ahead = Ahead::OFF;
        self.probes = [0; 3];
        self.streak = 0;
        // What was stranded elsewhere is not followed any more.
        let before = u32::try_from(self.stranded.bytes() / PAGE).unwrap_or(u32::MAX);
        self.bloat_pages = self.bloat_pages.saturating_add(before);
        self.stranded = left;
    }

    /// The end of its last whole region.
    pub fn end(&self) -> u64 {
        self.span.regions().end
    }

    /// Takes in what lies directly above it, if all of this one is settled: what grows would be ever more ranges.
    fn joined(&self, above: &Range) -> Option<Range> {
        let is_one = self.mapping == above.mapping && self.span.end == above.span.start;
        let is_advised = self.advice == Advice::Asked && above.advice == Advice::Asked;
        let is_passed = self.edge >= self.end() && self.skipped.is_empty() && self.stranded.is_empty();
        // Without any base pages there is nothing to sweep.
        let is_swept = self.is_swept || self.density == Density::NONE;
        let is_settled = is_passed && is_swept && !self.ahead.is_on();
        let joined = Range {
            span: Span::new(self.span.start, above.span.end),
            is_part: self.is_part || above.is_part,
            last: if above.last == 0 { self.last } else { above.last },
            density: self.density.and(above.density),
            is_sparse: self.is_sparse || above.is_sparse,
            lone: self.lone.saturating_add(above.lone),
            unprobed: self.unprobed.saturating_add(above.unprobed),
            bloat_pages: self.bloat_pages.saturating_add(above.bloat_pages),
            ..*above
        };
        (is_one && is_advised && is_settled).then_some(joined)
    }

    fn clipped(mut self, span: Span, mapping: Span) -> Self {
        self.span = span;
        self.is_part = !mapping.contains(self.mapping) || (self.is_part && mapping == self.mapping);
        self.mapping = mapping;
        let first = up(span.start);
        self.edge = self.edge.clamp(first, self.end().max(first));
        self.sweep = self.sweep.max(first);
        self.stranded = self.stranded.intersection(span);
        self.skipped = self.skipped.intersection(span).regions();
        if self.ahead.is_on() && !span.contains(Span::new(self.ahead.waiting(), self.ahead.end())) {
            self.ahead = Ahead::OFF;
        }
        self
    }
}

/// All ranges, by address.
#[derive(Debug, Clone)]
pub struct Table {
    /// The ranges now and before, in turns: to copy them all would take longer than anything else here.
    turns: [[Range; RANGES]; 2],
    turn: usize,
    len: usize,
    missed: u64,
    gone: u64,
}

const NOTHING: Range = Range {
    span: Span { start: 0, end: 0 },
    mapping: Span { start: 0, end: 0 },
    is_part: false,
    advice: Advice::None,
    edge: 0,
    last: 0,
    density: Density::NONE,
    in_vain: 0,
    skipped: Span { start: 0, end: 0 },
    streak: 0,
    grown_ns: 0,
    waiting: (0, 0),
    ahead: Ahead::OFF,
    probes: [0; 3],
    unprobed: 0,
    is_sparse: false,
    lone: 0,
    stranded: Span { start: 0, end: 0 },
    sweep: 0,
    sweep_at_ns: 0,
    sweep_gap_ns: 0,
    is_swept: false,
    bloat_pages: 0,
};

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

impl Table {
    /// An empty table.
    pub const fn new() -> Self {
        Table {
            turns: [[NOTHING; RANGES]; 2],
            turn: 0,
            len: 0,
            missed: 0,
            gone: 0,
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.len = 0;
        self.missed = 0;
        self.gone = 0;
    }

    /// The ranges, by address.
    pub fn ranges(&self) -> &[Range] {
        let [even, odd] = &self.turns;
        let now = if self.turn == 0 { even } else { odd };
        now.get(..self.len).unwrap_or(&[])
    }

    /// The ranges, by address.
    pub fn ranges_mut(&mut self) -> &mut [Range] {
        let len = self.len;
        self.now().get_mut(..len).unwrap_or(&mut [])
    }

    /// Ranges that found no room.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Ranges that the program has unmapped, or whose contents it has freed.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Counts a range whose contents are gone.
    pub(crate) fn count_gone(&mut self) {
        self.gone = self.gone.saturating_add(1);
    }

    /// Follows the mappings as they are now, by address and without overlaps. Returns how many ranges are new or gone.
    ///
    /// What lies in no mapping any more is forgotten. Addresses that are new in a mapping are a range of their own where
    /// they lie below what is known (the kernel places new mappings there), and belong to the range below them where
    /// they lie above one (growth by `brk`, `mremap`).
    pub fn follow(&mut self, mappings: &[Span]) -> u32 {
        let old_len = self.len;
        self.turn ^= 1;
        self.len = 0;
        let mut next = 0;
        let mut kept = 0u32;
        let mut fresh = 0u32;
        for &mapping in mappings {
            let mut cursor = mapping.start;
            let mut is_first = true;
            while let Some(&known) = self.before().get(next).filter(|_| next < old_len) {
                if known.span.start >= mapping.end {
                    break;
                }
                let common = known.span.intersection(mapping);
                if !common.is_empty() {
                    if common.start > cursor {
                        let gap = Span::new(cursor, common.start);
                        if !is_first {
                            self.extend_last(gap.end);
                        } else if gap.region_count() > 0 {
                            fresh += self.push(Range::new(gap, mapping));
                        }
                    }
                    kept += self.push(known.clipped(common, mapping));
                    cursor = common.end;
                    is_first = false;
                }
                if known.span.end > mapping.end {
                    break;
                }
                next += 1;
            }
            if cursor < mapping.end {
                if is_first {
                    fresh += self.push(Range::new(mapping, mapping));
                } else {
                    self.extend_last(mapping.end);
                }
            }
        }
        self.share_advice();
        let gone = u32::try_from(old_len).unwrap_or(u32::MAX).saturating_sub(kept);
        self.gone = self.gone.saturating_add(gone.into());
        fresh.saturating_add(gone)
    }

    fn now(&mut self) -> &mut [Range; RANGES] {
        let [even, odd] = &mut self.turns;
        if self.turn == 0 {
            even
        } else {
            odd
        }
    }

    fn before(&self) -> &[Range; RANGES] {
        let [even, odd] = &self.turns;
        if self.turn == 0 {
            odd
        } else {
            even
        }
    }

    /// A mapping has one set of flags: what one of its ranges was advised holds for all of it.
    fn share_advice(&mut self) {
        let mut of = (Span::default(), Advice::None);
        let mut share = |range: &mut Range| {
            let is_shared = matches!(of.1, Advice::Asked | Advice::Withdrawn | Advice::Ineligible);
            if range.mapping == of.0 && is_shared {
                range.advice = of.1;
            } else {
                of = (range.mapping, range.advice);
            }
        };
        self.ranges_mut().iter_mut().for_each(&mut share);
        self.ranges_mut().iter_mut().rev().for_each(&mut share);
    }

    fn push(&mut self, range: Range) -> u32 {
        let last = self.ranges_mut().last_mut();
        if let Some((last, joined)) = last.and_then(|last| last.joined(&range).map(|joined| (last, joined))) {
            *last = joined;
            return 1;
        }
        let len = self.len;
        match self.now().get_mut(len) {
            Some(place) => {
                *place = range;
                self.len += 1;
                1
            }
            None => {
                self.missed = self.missed.saturating_add(1);
                0
            }
        }
    }

    fn extend_last(&mut self, end: u64) {
        if let Some(last) = self.ranges_mut().last_mut() {
            last.span.end = end;
        }
    }

    /// The base pages that our collapses added and that are still there.
    pub fn bloat_pages(&self) -> u64 {
        self.ranges().iter().map(|range| u64::from(range.bloat_pages)).sum()
    }

    /// The regions populated ahead that the program may not have touched.
    pub fn regions_ahead(&self) -> u64 {
        let of = |range: &Range| (range.ahead.at_most_untouched().bytes() + range.stranded.bytes()) / REGION;
        self.ranges().iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, to: u64) -> Span {
        Span::new(from * REGION, to * REGION)
    }

    fn spans(table: &Table) -> [Option<(u64, u64)>; 6] {
        let mut spans = [None; 6];
        for (place, range) in spans.iter_mut().zip(table.ranges()) {
            *place = Some((range.span.start / REGION, range.span.end / REGION));
        }
        spans
    }

    #[test]
    fn a_mapping_that_grew_downwards_holds_a_new_range_and_the_known_one() {
        let mut table = Table::new();
        assert_eq!(table.follow(&[span(100, 200)]), 1);
        table.ranges_mut()[0].density.dense = 50;
        assert_eq!(table.follow(&[span(40, 200)]), 1);
        assert_eq!(spans(&table)[..3], [Some((40, 100)), Some((100, 200)), None]);
        assert_eq!(table.ranges()[1].density.dense, 50);
        assert_eq!(table.ranges()[0].mapping, span(40, 200));
    }

    #[test]
    fn a_mapping_that_grew_upwards_is_the_same_range() {
        let mut table = Table::new();
        table.follow(&[span(100, 200)]);
        table.ranges_mut()[0].density.dense = 50;
        assert_eq!(table.follow(&[span(100, 300)]), 0);
        assert_eq!(spans(&table)[..2], [Some((100, 300)), None]);
        assert_eq!(table.ranges()[0].density.dense, 50);
    }

    #[test]
    fn a_split_mapping_keeps_what_is_known_of_both_parts() {
        let mut table = Table::new();
        table.follow(&[span(0, 100)]);
        table.ranges_mut()[0].density.dense = 9;
        table.ranges_mut()[0].edge = 90 * REGION;
        table.follow(&[span(0, 40), span(50, 100)]);
        assert_eq!(spans(&table)[..3], [Some((0, 40)), Some((50, 100)), None]);
        assert_eq!(table.ranges()[0].edge, 40 * REGION);
        assert_eq!(table.ranges()[1].edge, 90 * REGION);
    }

    #[test]
    fn what_is_unmapped_is_forgotten() {
        let mut table = Table::new();
        table.follow(&[span(0, 100), span(200, 300)]);
        assert_eq!(table.follow(&[span(200, 300)]), 1);
        assert_eq!(spans(&table)[..2], [Some((200, 300)), None]);
        table.follow(&[]);
        assert!(table.ranges().is_empty());
    }

    #[test]
    fn advice_holds_for_the_whole_mapping() {
        let mut table = Table::new();
        table.follow(&[span(100, 200)]);
        table.ranges_mut()[0].advice = Advice::Asked;
        table.follow(&[span(40, 200)]);
        assert!(table.ranges().iter().all(|range| range.advice == Advice::Asked));
    }
}
