//! Rules on which the live and the simulated form of a workload must agree, besides what is drawn.

use super::{draw::share_limit, mix};

/// Updates of `gups` between checks of the end time.
pub const GUPS_UPDATES: u64 = 16_384;
/// Visits of `chunks` between checks of the end time.
pub const CHUNK_VISITS: u64 = 4096;
/// One lookup of `btree` in this many asks for an absent key.
pub const BTREE_ABSENT: u64 = 64;
/// Minimum number of deleted keys while `kv` serves.
pub const KV_DELETED: u64 = 1024;

/// Step between the words that a read checks, for about `probe` words of a value (two words of which are its head).
#[must_use]
pub fn probe_step(value_bytes: u64, probe: u64) -> u64 {
    ((value_bytes / 8).saturating_sub(2) / probe.max(1)).max(1)
}

/// Whether `item` is in the share (0 to 1) drawn by `seed`.
#[inline]
#[must_use]
pub fn is_in_share(seed: u64, item: u64, share: f64) -> bool {
    share >= 1.0 || mix(seed ^ mix(item)) < share_limit(share)
}

/// First touches due after `elapsed_ns` at `per_second`.
#[inline]
#[must_use]
pub fn touches_due(elapsed_ns: u64, per_second: u64) -> u64 {
    let due = u128::from(elapsed_ns) * u128::from(per_second) / 1_000_000_000;
    u64::try_from(due).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_one_is_everything_and_of_zero_nothing() {
        assert!((0..100).all(|i| is_in_share(1, i, 1.0) && !is_in_share(1, i, 0.0)));
        let half = (0..1000).filter(|i| is_in_share(1, *i, 0.5)).count();
        assert!((440..560).contains(&half), "{half}");
    }

    #[test]
    fn touches_come_due_in_time_and_never_overflow() {
        assert_eq!(touches_due(1_500_000_000, 10), 15);
        assert_eq!(touches_due(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_probe_has_one_step_at_least() {
        assert_eq!((probe_step(4096, 8), probe_step(32, 0), probe_step(8, 100)), (63, 2, 1));
    }
}
