//! Latencies: a histogram in nanoseconds and its summary.

use crate::result::Distribution;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies in nanoseconds, three significant digits, up to a minute.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
}

/// The summary of a [`Latency`]. All zero when nothing was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Mean in ns.
    pub mean_ns: f64,
    /// Median in ns.
    pub p50_ns: u64,
    /// 90th percentile in ns.
    pub p90_ns: u64,
    /// 99th percentile in ns.
    pub p99_ns: u64,
    /// 99.9th percentile in ns.
    pub p999_ns: u64,
    /// Largest in ns.
    pub max_ns: u64,
}

const HIGHEST_NS: u64 = 60_000_000_000;

/// The quantiles of a [`Distribution`].
pub const QUANTILES: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("constant bounds are valid");
        Self { histogram, sum_ns: 0 }
    }

    /// Records one latency; more than a minute counts as a minute.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum_ns += u128::from(ns);
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all histograms have the same bounds");
        self.sum_ns += other.sum_ns;
    }

    /// Clears it.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.sum_ns = 0;
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value at quantile `q` (0 to 1) in ns; 0 when nothing was recorded.
    #[must_use]
    pub fn at(&self, q: f64) -> u64 {
        self.histogram.value_at_quantile(q)
    }

    /// The distribution so far, at [`QUANTILES`]. Without quantiles when nothing was recorded.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let h = &self.histogram;
        if h.is_empty() {
            return Distribution::default();
        }
        let at = |q: f64| (q, h.value_at_quantile(q).min(h.max()) as f64);
        Distribution {
            count: h.len(),
            mean_ns: self.sum_ns as f64 / h.len() as f64,
            quantiles: QUANTILES.map(at).to_vec(),
        }
    }

    /// The summary so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let h = &self.histogram;
        if h.is_empty() {
            return Summary::default();
        }
        Summary {
            count: h.len(),
            mean_ns: self.sum_ns as f64 / h.len() as f64,
            p50_ns: h.value_at_quantile(0.5),
            p90_ns: h.value_at_quantile(0.9),
            p99_ns: h.value_at_quantile(0.99),
            p999_ns: h.value_at_quantile(0.999),
            max_ns: h.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_ramp_are_where_they_belong() {
        let mut l = Latency::new();
        (1..=1000).for_each(|v| l.record(v));
        let s = l.summary();
        assert_eq!(
            (s.count, s.p50_ns, s.p90_ns, s.p99_ns, s.max_ns),
            (1000, 500, 900, 990, 1000)
        );
        assert!((s.mean_ns - 500.5).abs() < 0.01);
    }

    #[test]
    fn a_distribution_ascends_from_the_first_hundredth_to_the_largest_value() {
        let mut l = Latency::new();
        (1..=1000).for_each(|v| l.record(v));
        let d = l.distribution();
        assert_eq!((d.count, d.mean_ns), (1000, 500.5));
        assert_eq!(d.quantiles[0], (0.01, 10.0));
        assert_eq!(d.quantiles.last(), Some(&(1.0, 1000.0)));
        assert_eq!(d.quantiles.len(), QUANTILES.len());
        assert!(d.quantiles.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1));
        assert_eq!(Latency::new().distribution(), Distribution::default());
    }

    #[test]
    fn adding_keeps_counts_and_clearing_empties() {
        let (mut a, mut b) = (Latency::new(), Latency::new());
        a.record(10);
        b.record(u64::MAX);
        a.add(&b);
        assert_eq!(a.count(), 2);
        a.clear();
        assert_eq!(a.summary(), Summary::default());
    }
}
