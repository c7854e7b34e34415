//! What a zone remembers between compactions: where the scanners continue, and how often compaction is deferred
//! (mm/compaction.c, `defer_compaction`).

use crate::unit::BLOCK_ORDER;

/// The maximum shift of deferral: 64 times.
const MAX_DEFER_SHIFT: u8 = 6;

/// What a zone remembers between compactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Positions {
    /// Where the migrate scanner continues: asynchronous, and otherwise.
    pub cached_migrate: [u32; 2],
    /// Where the free scanner continues.
    pub cached_free: u32,
    /// Where they started after the hints were last cleared.
    pub init_migrate: u32,
    pub init_free: u32,
    /// The scanners met in a direct compaction: the hints are out of date.
    pub flush_hints: bool,
    considered: u32,
    defer_shift: u8,
    /// The lowest order that failed.
    order_failed: u8,
}

impl Positions {
    pub fn new(start: u32, end: u32) -> Self {
        let mut new = Self {
            cached_migrate: [0; 2],
            cached_free: 0,
            init_migrate: 0,
            init_free: 0,
            flush_hints: false,
            considered: 0,
            defer_shift: 0,
            order_failed: 0,
        };
        new.reset(start, end);
        new
    }

    /// To both ends of the zone.
    pub fn reset(&mut self, start: u32, end: u32) {
        self.cached_migrate = [start; 2];
        self.cached_free = end - (1 << BLOCK_ORDER);
    }

    /// A compaction for this order did not help.
    pub fn defer(&mut self, order: u8) {
        self.considered = 0;
        self.defer_shift = (self.defer_shift + 1).min(MAX_DEFER_SHIFT);
        self.order_failed = self.order_failed.min(order);
    }

    /// Whether to skip compaction this time.
    pub fn deferred(&mut self, order: u8) -> bool {
        if order < self.order_failed {
            return false;
        }
        let limit = 1 << self.defer_shift;
        self.considered = (self.considered + 1).min(limit);
        self.considered < limit
    }

    /// A compaction for this order helped; `allocated`: certainly.
    pub fn defer_reset(&mut self, order: u8, allocated: bool) {
        if allocated {
            self.considered = 0;
            self.defer_shift = 0;
        }
        self.order_failed = self.order_failed.max(order + 1);
    }

    /// Whether it is retried after the longest deferral.
    pub fn restarting(&self, order: u8) -> bool {
        order >= self.order_failed && self.defer_shift == MAX_DEFER_SHIFT && self.considered >= 1 << MAX_DEFER_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_attempts_that_are_left_out_up_to_64() {
        let mut positions = Positions::new(0, 1024);
        for shift in [1, 2, 3, 4, 5, 6, 6, 6] {
            positions.defer(9);
            let skipped = (0..).take_while(|_| positions.deferred(9)).count();
            assert_eq!(skipped, (1 << shift) - 1);
            assert_eq!(positions.restarting(9), shift == 6);
        }
        assert!(!positions.deferred(8), "a lower order did not fail");
        positions.defer_reset(9, true);
        assert!(!positions.deferred(9) && !positions.deferred(10));
    }
}
