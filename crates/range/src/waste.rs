//! How much memory may be spent on huge pages that the program does not use.

/// Waste that is allowed to every program: 64 MB.
pub const LEAST: u64 = 64 << 20;
/// The share of the resident memory that may be waste, in percent.
pub const PERCENT: u64 = 3;

/// Where less than this is left to a control group, its limit is near: 16 MB.
pub const NEAR: u64 = 16 << 20;

/// The bytes that may be wasted at any moment: max(3 % of resident, 64 MB), but at most half of what a control group has left, and none near
/// its limit.
pub fn allowance(resident: u64, left: Option<u64>) -> u64 {
    let allowed = (resident / 100 * PERCENT).max(LEAST);
    match left {
        Some(left) if left < NEAR => 0,
        Some(left) => allowed.min(left / 2),
        None => allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_is_the_larger_of_both_half_of_what_is_left_and_none_near_a_limit() {
        assert_eq!(allowance(0, None), LEAST);
        assert_eq!(allowance(1 << 30, None), LEAST);
        assert_eq!(allowance(100 << 30, None), (100u64 << 30) / 100 * 3);
        assert_eq!(allowance(100 << 30, Some(100 << 30)), (100u64 << 30) / 100 * 3);
        assert_eq!(allowance(100 << 30, Some(64 << 20)), 32 << 20);
        assert_eq!(allowance(100 << 30, Some(NEAR)), NEAR / 2);
        assert_eq!(allowance(100 << 30, Some(NEAR - 1)), 0);
    }
}
