//! How much memory may be spent on huge pages that the program does not use.

use crate::span::REGION;

/// Waste that is allowed to every program: 64 MB.
pub const LEAST: u64 = 64 << 20;
/// The share of the resident memory that may be waste, in percent.
pub const PERCENT: u64 = 3;

/// The bytes that may be wasted at any moment: max(3 % of resident, 64 MB), and none near a limit of memory.
pub fn allowance(resident: u64, near_limit: bool) -> u64 {
    if near_limit {
        0
    } else {
        (resident / 100 * PERCENT).max(LEAST)
    }
}

/// The regions that may be waste.
pub fn allowed_regions(resident: u64, near_limit: bool) -> u64 {
    allowance(resident, near_limit) / REGION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_is_the_larger_of_both_and_none_near_a_limit() {
        assert_eq!(allowance(0, false), LEAST);
        assert_eq!(allowance(1 << 30, false), LEAST);
        assert_eq!(allowance(100 << 30, false), (100u64 << 30) / 100 * 3);
        assert_eq!(allowance(100 << 30, true), 0);
        assert_eq!(allowed_regions(1 << 30, false), 32);
    }
}
