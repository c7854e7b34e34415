//! Latencies in a histogram of fixed size: whole numbers only, so that the same run gives the same bytes.

/// Steps in each doubling: a value is known to one part in 64, its quantile to 1.6 %.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Below 64 each value has a bucket of its own; then 64 for each of the 58 doublings.
const BUCKETS: usize = ((64 - STEP_BITS + 1) as usize) << STEP_BITS;

/// Latencies in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    (((u64::from(shift) + 1) << STEP_BITS) + ((ns >> shift) - STEPS)) as usize
}

/// The largest value of a bucket.
fn highest_of(bucket: usize) -> u64 {
    let b = bucket as u64;
    if b < STEPS {
        return b;
    }
    let shift = (b >> STEP_BITS) - 1;
    let low = (STEPS + (b & (STEPS - 1))) << shift;
    low + ((1 << shift) - 1)
}

impl Latency {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.buckets[bucket_of(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean in ns, rounded down; 0 of none.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        u64::try_from(self.sum_ns / u128::from(self.count.max(1))).unwrap_or(u64::MAX)
    }

    /// The largest in ns.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The value in ns that `per_million` millionths of all do not exceed (999,000: p99.9), known to 1.6 %; 0 of none.
    #[must_use]
    pub fn quantile_ns(&self, per_million: u32) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(per_million))
            .div_ceil(1_000_000)
            .max(1);
        let mut seen = 0u128;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += u128::from(*n);
            if seen >= wanted {
                return highest_of(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(a, b)| *a += b);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_thousand_values_are_what_they_are() {
        let mut l = Latency::new();
        (1..=1000).for_each(|ns| l.record(ns));
        assert_eq!((l.count(), l.mean_ns(), l.max_ns()), (1000, 500, 1000));
        for (q, exact) in [(500_000, 500u64), (990_000, 990), (1_000_000, 1000), (1000, 1)] {
            assert!(
                l.quantile_ns(q).abs_diff(exact) <= exact / 64 + 1,
                "{q}: {}",
                l.quantile_ns(q)
            );
        }
        let mut both = l.clone();
        both.add(&l);
        assert_eq!(
            (both.count(), both.quantile_ns(500_000)),
            (2000, l.quantile_ns(500_000))
        );
        assert_eq!(Latency::new().quantile_ns(500_000), 0);
    }

    proptest::proptest! {
        #[test]
        fn any_value_lies_in_its_bucket_and_is_known_to_one_part_in_64(ns: u64, shift in 0u32..64) {
            let ns = ns >> shift;
            let (b, high) = (bucket_of(ns), highest_of(bucket_of(ns)));
            proptest::prop_assert!(b < BUCKETS);
            proptest::prop_assert!(high >= ns && high - ns <= ns / 64);
            proptest::prop_assert!(b == 0 || highest_of(b - 1) < ns);
        }
    }
}
