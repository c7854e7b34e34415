//! Whether free blocks are backed. The host of a virtual machine may give memory at its first touch only, and take back what is free.
//!
//! A collapse into such a block holds `mmap_lock` for writing ten times as long (5 ms instead of 0.5), and every fault of the
//! program waits. Who first touches and frees a block of its own waits alone: the kernel then takes that block, which
//! was freed last on this processor.

/// Clearing or collapsing a backed block takes less.
pub const COLD_NS: u64 = 1_000_000;
/// So many touches in a row find backed blocks before it is taken that all are; so many touches in a row do not help before they are given up.
const IN_A_ROW: u8 = 4;

/// What touches and collapses have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warmth {
    /// Touches in a row that found a backed block.
    backed: u8,
    /// Collapses that were slow all the same.
    slow: u8,
}

impl Warmth {
    /// Nothing known.
    pub const fn new() -> Self {
        Warmth { backed: 0, slow: 0 }
    }

    /// Whether a block is to be touched and freed before the next collapse.
    pub fn is_wanted(&self) -> bool {
        self.backed < IN_A_ROW && self.slow < IN_A_ROW
    }

    /// A block was touched, for so much of the processor's time.
    pub fn touched(&mut self, ns: u64) {
        self.backed = if ns >= COLD_NS {
            0
        } else {
            self.backed.saturating_add(1)
        };
    }

    /// A collapse took so long; a block had been touched for it or not.
    pub fn collapsed(&mut self, ns: u64, was_touched: bool) {
        if ns < COLD_NS {
            self.slow = 0;
        } else if was_touched {
            self.slow = self.slow.saturating_add(1);
        } else {
            self.backed = 0;
        }
    }
}

impl Default for Warmth {
    fn default() -> Self {
        Warmth::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: u64 = COLD_NS / 10;
    const SLOW: u64 = COLD_NS * 4;

    #[test]
    fn where_blocks_are_backed_touches_end_and_begin_again_with_a_slow_collapse() {
        let mut warmth = Warmth::new();
        for _ in 0..IN_A_ROW {
            assert!(warmth.is_wanted());
            warmth.touched(QUICK);
            warmth.collapsed(QUICK, true);
        }
        assert!(!warmth.is_wanted());
        warmth.collapsed(QUICK, false);
        assert!(!warmth.is_wanted());
        warmth.collapsed(SLOW, false);
        assert!(warmth.is_wanted());
    }

    #[test]
    fn where_they_are_not_touches_go_on() {
        let mut warmth = Warmth::new();
        for turn in 0..100 {
            assert!(warmth.is_wanted(), "turn {turn}");
            warmth.touched(if turn % 4 == 0 { SLOW } else { QUICK });
            warmth.collapsed(QUICK, true);
        }
    }

    #[test]
    fn touches_that_do_not_help_end_until_collapses_are_quick_again() {
        let mut warmth = Warmth::new();
        for _ in 0..IN_A_ROW {
            assert!(warmth.is_wanted());
            warmth.touched(SLOW);
            warmth.collapsed(SLOW, true);
        }
        warmth.collapsed(SLOW, false);
        assert!(!warmth.is_wanted());
        warmth.collapsed(QUICK, false);
        warmth.collapsed(SLOW, false);
        assert!(warmth.is_wanted());
    }
}
