//! Summary of latencies that are all kept: exact percentiles and a histogram.

use serde::{Deserialize, Serialize};

/// The percentiles that a summary has: the allocation-latency study's, and those of a long tail.
pub const PERCENTILES: [f64; 14] = [
    5.0, 10.0, 25.0, 30.0, 40.0, 50.0, 60.0, 75.0, 80.0, 90.0, 95.0, 99.0, 99.9, 99.99,
];

/// Latencies from `from_ns`, below `to_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Inclusive lower bound.
    pub from_ns: u64,
    /// Exclusive upper bound.
    pub to_ns: u64,
    /// Number of latencies.
    pub count: u64,
}

/// A summary of latencies; all zero and empty if there are none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Number of latencies.
    pub count: u64,
    /// Minimum.
    pub min_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Population standard deviation.
    pub deviation_ns: f64,
    /// Each of [`PERCENTILES`] with the least value that this share of latencies does not exceed.
    pub percentiles: Vec<(f64, u64)>,
    /// Adjacent bins, bounded by 1, 2 and 5 times powers of ten, from the first non-empty one to the last.
    pub histogram: Vec<Bin>,
}

impl Latencies {
    /// Summarizes latencies in any order.
    #[must_use]
    pub fn of(values_ns: &[u64]) -> Self {
        let mut sorted = values_ns.to_vec();
        sorted.sort_unstable();
        let (Some(&min_ns), Some(&max_ns)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let n = sorted.len() as f64;
        let mean = sorted.iter().map(|ns| *ns as f64).sum::<f64>() / n;
        let variance = sorted.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / n;
        let at = |percent: f64| {
            // 99.9 / 100 is not exact in binary; that must not shift the rank.
            let rank = (percent * n / 100.0 - 1e-9).ceil().max(1.0) as usize;
            sorted[rank.min(sorted.len()) - 1]
        };
        Self {
            count: sorted.len() as u64,
            min_ns,
            max_ns,
            mean_ns: mean,
            deviation_ns: variance.sqrt(),
            percentiles: PERCENTILES.iter().map(|percent| (*percent, at(*percent))).collect(),
            histogram: histogram(&sorted),
        }
    }

    /// The value at one of [`PERCENTILES`].
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let found = self.percentiles.iter().find(|(p, _)| *p == percent);
        found.map(|(_, ns)| *ns)
    }
}

/// The bins of sorted values.
fn histogram(sorted: &[u64]) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    let mut rest = sorted;
    let mut from_ns = 0;
    for to_ns in edges() {
        let count = rest.partition_point(|ns| *ns < to_ns);
        if count > 0 || !bins.is_empty() {
            bins.push(Bin {
                from_ns,
                to_ns,
                count: count as u64,
            });
        }
        rest = &rest[count..];
        if rest.is_empty() {
            break;
        }
        from_ns = to_ns;
    }
    bins
}

/// 1, 2, 5, 10, 20 … and at last the largest number.
fn edges() -> impl Iterator<Item = u64> {
    let powers = (0..19).map(|exponent| 10u64.pow(exponent));
    powers
        .flat_map(|power| [power, 2 * power, 5 * power])
        .chain(std::iter::once(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_has_its_percentiles_where_they_belong() {
        let ramp: Vec<u64> = (1..=10_000).rev().collect();
        let l = Latencies::of(&ramp);
        assert_eq!((l.count, l.min_ns, l.max_ns, l.mean_ns), (10_000, 1, 10_000, 5000.5));
        let values: Vec<u64> = l.percentiles.iter().map(|(_, ns)| *ns).collect();
        let expected = [
            500, 1000, 2500, 3000, 4000, 5000, 6000, 7500, 8000, 9000, 9500, 9900, 9990, 9999,
        ];
        assert_eq!(values, expected);
        assert!((l.deviation_ns - 2886.751).abs() < 0.001);
        assert_eq!(l.percentile_ns(50.0), Some(5000));
    }

    #[test]
    fn every_value_is_in_one_bin_and_the_bins_are_next_to_each_other() {
        let values = [3, 4, 700, 701, 1999, 2000, u64::MAX - 1];
        let bins = Latencies::of(&values).histogram;
        assert_eq!(bins.iter().map(|b| b.count).sum::<u64>(), 7);
        assert_eq!((bins[0].from_ns, bins[0].to_ns, bins[0].count), (2, 5, 2));
        assert!(bins.windows(2).all(|w| w[0].to_ns == w[1].from_ns));
        let of = |ns| bins.iter().find(|b| b.from_ns <= ns && ns < b.to_ns).unwrap().count;
        assert_eq!((of(700), of(1999), of(2000)), (2, 1, 1));
    }

    #[test]
    fn one_value_is_all_percentiles_and_none_is_nothing() {
        let one = Latencies::of(&[42]);
        assert!(one.percentiles.iter().all(|(_, ns)| *ns == 42));
        assert_eq!((one.deviation_ns, one.histogram.len()), (0.0, 1));
        assert_eq!(Latencies::of(&[]), Latencies::default());
    }
}
