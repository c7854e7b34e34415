//! How long a program may be stalled: a token bucket of stall time.

/// The longest stall that may be saved up: 50 ms.
pub const MOST_NS: u64 = 50_000_000;

/// Stall time that may be spent: up to [`MOST_NS`] saved, or less than nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit {
    /// What was spent and not earned again; more than [`MOST_NS`] is owed.
    spent_ns: u64,
    at_ns: u64,
}

impl Credit {
    /// A full bucket.
    pub const fn full() -> Self {
        Credit { spent_ns: 0, at_ns: 0 }
    }

    /// Adds what was earned since the last call: this many thousandths of the time; everything where there is no limit.
    pub fn earn(&mut self, now_ns: u64, permille: Option<u32>) {
        let passed = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        let earned = permille.map_or(u64::MAX, |permille| passed.saturating_mul(u64::from(permille)) / 1000);
        self.spent_ns = self.spent_ns.saturating_sub(earned);
    }

    /// Whether something may be done that stalls.
    pub fn is_left(&self) -> bool {
        self.spent_ns < MOST_NS
    }

    /// Takes what a stall took.
    pub fn spend(&mut self, stall_ns: u64) {
        self.spent_ns = self.spent_ns.saturating_add(stall_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_spent_from_what_was_saved_and_then_owed() {
        let mut credit = Credit::full();
        credit.earn(1, Some(50));
        assert!(credit.is_left());
        credit.spend(MOST_NS + 10_000_000);
        assert!(!credit.is_left());
        credit.earn(100_000_001, Some(50));
        assert!(!credit.is_left(), "5 ms earned, 10 ms owed");
        credit.earn(300_000_001, Some(50));
        assert!(credit.is_left());
        credit.spend(u64::MAX);
        credit.earn(300_000_002, None);
        assert!(credit.is_left(), "without a limit nothing is owed");
    }
}
