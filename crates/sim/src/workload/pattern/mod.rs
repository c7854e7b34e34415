//! What the workloads draw, and in which order they access memory: pure functions of a seed. The lab's live workloads use the same
//! functions (all but [`strides`]), so a seed gives the same accesses live and simulated.

mod draw;
mod order;
mod rmat;
mod rules;
mod zipf;

pub use draw::{
    chunk_seed, chunk_visited, chunk_word, hole_goes, item_bytes, object_sizes, share_limit, sparse_pages,
    sparse_visit, table_key, table_rank_at, updates, Updates,
};
pub use order::{strides, PageOrder, Strides};
pub use rmat::{Rmat, DAMPING};
pub use rules::{is_in_share, probe_step, touches_due, BTREE_ABSENT, CHUNK_VISITS, GUPS_UPDATES, KV_DELETED};
pub use zipf::Zipf;

use rand_pcg::Pcg64Mcg;

/// Mixes 64 bits (the finaliser of splitmix64): a bijection without visible structure.
#[inline]
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The word at `index` of content `seed`. Never zero, so that a page lost to the zero page is always seen.
#[inline]
#[must_use]
pub const fn word(seed: u64, index: u64) -> u64 {
    mix(seed.rotate_left(17) ^ index) | 1
}

/// Maps 64 random bits onto `0..n` without a division. `n` must not be zero.
#[inline]
#[must_use]
pub const fn below(random: u64, n: u64) -> u64 {
    ((random as u128 * n as u128) >> 64) as u64
}

/// A number coprime to `n`, near its golden section: its multiples modulo `n` visit all of `0..n`, neighbours far apart.
#[must_use]
pub fn scatter(n: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut stride = (n as f64 * 0.618_033_988) as u64 | 1;
    while gcd(stride, n) != 1 {
        stride += 2;
    }
    stride
}

/// The generator of a seed.
#[must_use]
pub fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::new(u128::from(mix(seed)) << 64 | u128::from(seed) << 1 | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::RngCore;

    #[test]
    fn a_scattered_walk_visits_everything_once() {
        for n in [1, 2, 3, 10, 96, 1000] {
            let mut seen: Vec<u64> = (0..n).map(|i| i * scatter(n) % n).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn below_stays_below() {
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(0, 10), 0);
    }

    #[test]
    fn what_a_seed_gives_never_changes() {
        // Recordings and results name a seed: these values are a promise.
        assert_eq!(mix(1), 0x910a_2dec_8902_5cc1);
        assert_eq!(word(1, 0) & 1, 1);
        assert_ne!(rng(1).next_u64(), rng(2).next_u64());
        assert_eq!(rng(1).next_u64(), rng(1).next_u64());
    }
}
