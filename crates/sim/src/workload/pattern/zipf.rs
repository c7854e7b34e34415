//! Zipf-distributed ranks, by the method of Gray et al. that YCSB uses: constant time and no tables.

/// Ranks `0..n`, of which rank r has weight 1/(r+1)^theta. Theta 0 is uniform.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    n: u64,
    theta: f64,
    alpha: f64,
    zeta_n: f64,
    eta: f64,
}

fn zeta(n: u64, theta: f64) -> f64 {
    (1..=n).map(|i| (i as f64).powf(-theta)).sum()
}

impl Zipf {
    /// Of `n` ranks (at least one) and exponent `theta`, 0 up to but not 1. Takes time linear in `n`.
    #[must_use]
    pub fn new(n: u64, theta: f64) -> Self {
        let n = n.max(1);
        let theta = theta.clamp(0.0, 0.999);
        let zeta_n = if theta == 0.0 { n as f64 } else { zeta(n, theta) };
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta(2, theta) / zeta_n);
        Self {
            n,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta_n,
            eta,
        }
    }

    /// The rank for 64 random bits.
    #[inline]
    #[must_use]
    pub fn rank(&self, random: u64) -> u64 {
        if self.theta == 0.0 || self.n <= 2 {
            return super::below(random, self.n);
        }
        let u = (random >> 11) as f64 / (1u64 << 53) as f64;
        let uz = u * self.zeta_n;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::pattern::mix;

    #[test]
    fn the_first_ranks_get_the_share_that_the_law_gives_them() {
        let z = Zipf::new(10_000, 0.99);
        let mut first = 0;
        let n = 100_000;
        for i in 0..n {
            let r = z.rank(mix(i));
            assert!(r < 10_000);
            first += u64::from(r == 0);
        }
        let expected = 1.0 / zeta(10_000, 0.99);
        assert!(
            (first as f64 / n as f64 - expected).abs() < 0.01,
            "{first} of {n}, expected {expected}"
        );
    }

    #[test]
    fn exponent_zero_is_uniform_and_small_numbers_work() {
        let z = Zipf::new(4, 0.0);
        let mut seen = [0u32; 4];
        (0..4000).for_each(|i| seen[z.rank(mix(i)) as usize] += 1);
        assert!(seen.iter().all(|c| (800..1200).contains(c)), "{seen:?}");
        assert_eq!(Zipf::new(0, 0.9).rank(u64::MAX), 0);
        assert!(Zipf::new(2, 0.9).rank(u64::MAX) < 2);
    }
}
