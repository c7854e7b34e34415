//! How fast the program fills memory, by the time for which it runs.
//!
//! Where there is more to run than there are processors, a helper that populates ahead takes one from somebody: it may be
//! the program's own client. A program that does nothing but fill gains by that all the same, since a group costs less
//! than as many faults. One that does more than filling gains nothing, and is disturbed.

use crate::span::REGION;

/// A program that runs for longer until it has filled a region does more than filling.
pub const FILLING_NS: u64 = 1_000_000;
/// So much growth is judged together: what is populated ahead is a small part of it.
pub const WINDOW: u64 = 32 * REGION;

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate {
    program_ns: u64,
    resident: u64,
    is_slow: bool,
}

impl Rate {
    /// Nothing seen.
    pub const fn new() -> Self {
        Rate {
            program_ns: 0,
            resident: 0,
            is_slow: false,
        }
    }

    /// The program has run for so long by now, and so much is resident.
    pub fn note(&mut self, program_ns: u64, resident: u64) {
        let grown = resident.saturating_sub(self.resident);
        if resident >= self.resident && grown < WINDOW {
            return;
        }
        if grown >= WINDOW {
            let regions = grown / REGION;
            self.is_slow = program_ns.saturating_sub(self.program_ns) > regions.saturating_mul(FILLING_NS);
        }
        self.program_ns = program_ns;
        self.resident = resident;
    }

    /// Whether the program does more than filling.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_for_long_until_a_region_is_filled_does_more_than_filling() {
        let mut rate = Rate::new();
        let limit = WINDOW / REGION * FILLING_NS;
        rate.note(limit, WINDOW);
        assert!(!rate.is_slow());
        rate.note(2 * limit + 1, 2 * WINDOW);
        assert!(rate.is_slow());
        // Not enough to tell.
        rate.note(2 * limit + 2, 3 * WINDOW - 1);
        assert!(rate.is_slow());
        rate.note(2 * limit + 3, 3 * WINDOW);
        assert!(!rate.is_slow());
        // What was freed is not grown: it begins anew.
        rate.note(9 * limit, 0);
        rate.note(10 * limit, WINDOW);
        assert!(!rate.is_slow());
    }
}
