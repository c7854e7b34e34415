//! Populating ahead of the program, group by group.
//!
//! ```text
//!   T x x x x  T x x x x  T . . . .        x populated ahead, T left to the program, . not yet
//!     reached ─┘          └─ `waiting`: once the program reaches it, the group behind the next T is populated
//! ```
//!
//! At least one region before each group is left to the program, so that its own fault shows how far it has come. The
//! group behind is populated already: the program fills that one while the helper populates the next. A program that
//! does nothing but fill is faster than the helper, and would clear the very pages that the helper is clearing: it gets
//! more regions of its own before each group, until both finish at the same time.

use crate::filled::one_of;
use crate::span::{Span, REGION};

/// Regions of the largest group.
pub const MOST: u32 = 15;
/// Regions of the first group.
pub const FIRST: u32 = 4;
/// Regions of the largest group while the program maps and unmaps.
pub const MOST_WHILE_MAPPING: u32 = 4;
/// Groups grow while a call takes no longer: it holds the lock that mapping and unmapping wait for.
pub const CALL_NS: u64 = 2_000_000;
/// The most regions left to the program before a group.
pub const MOST_LEFT: u32 = 12;
/// What the program has not reached for so long it may never reach.
pub const TIMEOUT_NS: u64 = 1_000_000_000;

/// Where populating ahead stands in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ahead {
    /// The region left to the program that it has reached last, or the first one.
    reached: u64,
    /// The first of the regions left to the program that it has not reached yet.
    waiting: u64,
    /// The group behind them.
    group: u64,
    /// The end of what was populated: the next region left to the program.
    next: u64,
    /// When the program reached a region last.
    reached_ns: u64,
    /// Regions of the next group; none while nothing is populated ahead.
    size: u32,
    /// Regions left to the program before it.
    left: u32,
    /// A group was populated since the program was last looked at.
    is_fresh: bool,
}

impl Ahead {
    /// Nothing is populated ahead.
    pub const OFF: Ahead = Ahead {
        reached: 0,
        waiting: 0,
        group: 0,
        next: 0,
        reached_ns: 0,
        size: 0,
        left: 0,
        is_fresh: false,
    };

    /// Begins at the first region that the program has not touched; returns the first group.
    pub fn begin(&mut self, untouched: u64, limit: Limit) -> Option<Span> {
        *self = Ahead {
            reached: untouched,
            waiting: untouched,
            group: untouched,
            next: untouched,
            reached_ns: limit.now_ns,
            size: FIRST,
            left: 1,
            is_fresh: false,
        };
        let group = self.group(limit)?;
        self.group = group.start;
        Some(group)
    }

    /// The program has reached the region that is waited for: returns the next group, or nothing where the range ends
    /// or nothing more may be populated; then it is over.
    pub fn reached(&mut self, limit: Limit) -> Option<Span> {
        self.reached = self.waiting;
        self.waiting = self.next;
        self.reached_ns = limit.now_ns;
        let group = self.group(limit)?;
        self.group = group.start;
        Some(group)
    }

    /// Shares the work: asks how far the program came while the last group was populated.
    pub fn share(&mut self, mut is_reached: impl FnMut(u64) -> bool) {
        if !core::mem::take(&mut self.is_fresh) {
            return;
        }
        // Either it had its own regions done before the helper was, or a quarter of them left: then the helper does more.
        let most = (self.group.saturating_sub(self.waiting) / REGION).saturating_sub(1) * 3 / 4;
        if is_reached(self.group.saturating_sub(REGION)) {
            self.left = (self.left + 1).min(MOST_LEFT);
        } else if !is_reached(self.waiting.saturating_add(most * REGION)) {
            self.left = self.left.saturating_sub(1).max(1);
        }
    }

    fn group(&mut self, limit: Limit) -> Option<Span> {
        let start = self.next.saturating_add(u64::from(self.left) * REGION);
        let most =
            u64::from(self.size.min(if limit.is_mapping { MOST_WHILE_MAPPING } else { MOST })).min(limit.regions);
        let span = Span::new(start, start.saturating_add(most * REGION).min(limit.end));
        if span.is_empty() {
            *self = Ahead::OFF;
            return None;
        }
        self.next = span.end;
        Some(span)
    }

    /// Groups follow what a call took.
    pub fn took(&mut self, call_ns: u64) {
        if self.is_on() {
            self.is_fresh = true;
            self.size = if call_ns > CALL_NS {
                self.size / 2
            } else {
                self.size * 2
            }
            .clamp(1, MOST);
        }
    }

    /// Whether anything is populated ahead.
    pub fn is_on(&self) -> bool {
        self.size > 0
    }

    /// The region whose touch is waited for.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The region left to the program that it should have filled before it reaches the one that is waited for.
    pub fn passed(&self) -> Option<u64> {
        (self.reached < self.waiting).then_some(self.reached)
    }

    /// Different regions of those that the program should have filled before it reaches the one that is waited for.
    pub fn between(&self, nth: u64) -> Option<u64> {
        one_of(Span::new(self.reached, self.waiting.max(self.reached)), nth)
    }

    /// The end of what was populated.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// The group behind the region that is waited for: the program has touched none of it.
    pub fn untouched(&self) -> Span {
        if self.is_on() {
            Span::new(self.group, self.next)
        } else {
            Span::default()
        }
    }

    /// All that was populated and that the program may not have touched.
    pub fn at_most_untouched(&self) -> Span {
        if self.is_on() {
            Span::new(self.reached.saturating_add(REGION), self.next)
        } else {
            Span::default()
        }
    }

    /// Whether the program has paused for too long.
    pub fn is_late(&self, now_ns: u64) -> bool {
        self.is_on() && now_ns.saturating_sub(self.reached_ns) > TIMEOUT_NS
    }
}

/// What bounds a group.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Now.
    pub now_ns: u64,
    /// The end of the range's last whole region.
    pub end: u64,
    /// Regions that may be populated.
    pub regions: u64,
    /// Whether the program maps and unmaps just now.
    pub is_mapping: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(end: u64) -> Limit {
        Limit {
            now_ns: 0,
            end: end * REGION,
            regions: 30,
            is_mapping: false,
        }
    }

    fn regions(from: u64, to: u64) -> Option<Span> {
        Some(Span::new(from * REGION, to * REGION))
    }

    #[test]
    fn each_group_leaves_its_first_region_to_the_program() {
        let mut ahead = Ahead::OFF;
        assert_eq!(ahead.begin(10 * REGION, limit(100)), regions(11, 15));
        ahead.took(1);
        assert_eq!(ahead.waiting(), 10 * REGION);
        assert_eq!(ahead.reached(limit(100)), regions(16, 24));
        assert_eq!(ahead.waiting(), 15 * REGION);
        ahead.took(1);
        ahead.took(1);
        assert_eq!(ahead.reached(limit(100)), regions(25, 40));
        assert_eq!(Some(ahead.untouched()), regions(25, 40));
    }

    #[test]
    fn a_program_that_is_faster_than_the_helper_gets_more_regions_of_its_own() {
        let mut ahead = Ahead::OFF;
        assert_eq!(ahead.begin(0, limit(1000)), regions(1, 5));
        ahead.took(CALL_NS + 1);
        // It is within the group.
        ahead.share(|region| region < 3 * REGION);
        assert_eq!(ahead.reached(limit(1000)), regions(7, 9));
        assert_eq!((ahead.waiting(), ahead.untouched().start), (5 * REGION, 7 * REGION));
        // At one's own regions: it is well shared.
        ahead.took(CALL_NS + 1);
        ahead.share(|region| region < 6 * REGION);
        assert_eq!(ahead.reached(limit(1000)), regions(11, 12));
        // Asked once for each group.
        ahead.share(|_| true);
        assert_eq!(ahead.reached(limit(1000)), regions(14, 15));
        // Not there yet.
        for _ in 0..9 {
            ahead.took(CALL_NS + 1);
            ahead.share(|_| false);
        }
        assert_eq!(ahead.reached(limit(1000)), regions(16, 17));
        for _ in 0..2 * MOST_LEFT {
            ahead.took(CALL_NS + 1);
            ahead.share(|_| true);
        }
        let left = u64::from(MOST_LEFT);
        assert_eq!(ahead.reached(limit(1000)), regions(17 + left, 18 + left));
    }

    #[test]
    fn a_program_that_has_many_of_its_own_regions_left_gets_fewer() {
        let left_after = |reached: u64| {
            let mut ahead = Ahead {
                waiting: 0,
                group: 6 * REGION,
                left: 6,
                size: 8,
                is_fresh: true,
                ..Ahead::OFF
            };
            ahead.share(|region| region < reached * REGION);
            ahead.left
        };
        // Reached: none, the first three, four, five and all of its six.
        assert_eq!([0, 3, 4, 5, 6].map(left_after), [5, 5, 6, 6, 7]);
    }

    #[test]
    fn groups_shrink_where_calls_are_slow_and_where_the_program_maps() {
        let mut ahead = Ahead::OFF;
        ahead.begin(0, limit(100));
        for _ in 0..5 {
            ahead.took(CALL_NS + 1);
        }
        assert_eq!(ahead.reached(limit(100)), regions(6, 7));
        for _ in 0..9 {
            ahead.took(0);
        }
        let mapping = Limit {
            is_mapping: true,
            ..limit(100)
        };
        assert_eq!(ahead.reached(mapping), regions(8, 12));
    }

    #[test]
    fn it_is_over_at_the_end_of_the_range_and_without_regions_to_spend() {
        let mut ahead = Ahead::OFF;
        assert_eq!(ahead.begin(0, limit(3)), regions(1, 3));
        assert_eq!(ahead.reached(limit(3)), None);
        assert!(!ahead.is_on() && ahead.untouched().is_empty());
        let none = Limit {
            regions: 0,
            ..limit(100)
        };
        assert_eq!(ahead.begin(0, none), None);
    }
}
