//! How far a median could be off: the percentile bootstrap (Efron 1979). Samples of the same size are drawn from the
//! values with replacement; the middle 95 % of their medians is the interval.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::quantile;

/// Samples drawn.
const RESAMPLES: usize = 10_000;

/// Up to this many values every possible sample is used (6^6 = 46,656) instead of random ones.
const ENUMERATED_MAX: usize = 6;

/// A fixed seed: the same values always give the same interval.
const SEED: u64 = 0x6d65_6761;

/// A 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The 95 % interval of the median of `values`. `None` for fewer than two, and when one is not a finite number.
#[must_use]
pub fn interval_of_median(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 || !values.iter().all(|v| v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut medians = if sorted.len() <= ENUMERATED_MAX {
        every_sample(&sorted)
    } else {
        drawn_samples(&sorted)
    };
    medians.sort_by(f64::total_cmp);
    Some(Interval {
        low: quantile(&medians, 0.025),
        high: quantile(&medians, 0.975),
    })
}

/// The median of the values at `indices`, which it sorts. `values` are sorted, so the indices are enough.
fn median_at(values: &[f64], indices: &mut [usize]) -> f64 {
    indices.sort_unstable();
    let middle = indices.len() / 2;
    let upper = values[indices[middle]];
    if indices.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(values[indices[middle - 1]], upper)
    }
}

/// The medians of all n^n samples.
fn every_sample(values: &[f64]) -> Vec<f64> {
    let n = values.len();
    let samples = n.pow(n as u32);
    let mut indices = vec![0; n];
    (0..samples)
        .map(|sample| {
            let mut rest = sample;
            for index in &mut indices {
                *index = rest % n;
                rest /= n;
            }
            median_at(values, &mut indices)
        })
        .collect()
}

/// The medians of [`RESAMPLES`] samples.
fn drawn_samples(values: &[f64]) -> Vec<f64> {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut indices = vec![0; values.len()];
    (0..RESAMPLES)
        .map(|_| {
            for index in &mut indices {
                // A multiplication instead of a remainder: negligible bias at these sizes.
                *index = ((u128::from(random.next_u64()) * values.len() as u128) >> 64) as usize;
            }
            median_at(values, &mut indices)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::median;
    use proptest::prelude::*;

    #[test]
    fn the_interval_of_three_values_reaches_from_the_first_to_the_last() {
        // 7 of the 27 samples of three have the smallest value as their median, which is more than 2.5 %.
        let i = interval_of_median(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((i.low, i.high), (1.0, 3.0));
    }

    #[test]
    fn nothing_is_said_about_the_spread_of_one_value() {
        assert_eq!(interval_of_median(&[]), None);
        assert_eq!(interval_of_median(&[1.0]), None);
        assert_eq!(interval_of_median(&[1.0, f64::NAN]), None);
        assert_eq!(interval_of_median(&[1.0, f64::INFINITY]), None);
    }

    #[test]
    fn drawing_comes_close_to_taking_every_sample() {
        let values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let mut every = every_sample(&values);
        let mut drawn = drawn_samples(&values);
        every.sort_by(f64::total_cmp);
        drawn.sort_by(f64::total_cmp);
        for q in [0.1, 0.25, 0.5, 0.75, 0.9] {
            assert_eq!(quantile(&every, q), quantile(&drawn, q), "at {q}");
        }
    }

    #[test]
    fn more_rounds_make_the_interval_narrower() {
        let wide: Vec<f64> = (0..8).map(|i| f64::from(i) / 7.0).collect();
        let many: Vec<f64> = (0..200).map(|i| f64::from(i) / 199.0).collect();
        let width = |v: &[f64]| interval_of_median(v).map(|i| i.high - i.low).unwrap();
        assert!(width(&many) < width(&wide) / 2.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_interval_encloses_the_median_and_lies_among_the_values(values in prop::collection::vec(-1e9..1e9f64, 2..20)) {
            let i = interval_of_median(&values).unwrap();
            let m = median(&values).unwrap();
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(min <= i.low && i.low <= m && m <= i.high && i.high <= max);
            let mut reversed = values.clone();
            reversed.reverse();
            prop_assert_eq!(interval_of_median(&reversed), Some(i), "the order does not matter");
        }
    }
}
