//! Statistics for paired measurement: medians with their spread, and ratios taken round by round, so that a machine that
//! slows down for a while slows both sides of the ratio.
//!
//! ```text
//!   bootstrap      how far a median could be off: its 95 % interval
//!   signed_rank    could this be chance: Wilcoxon's signed-rank test, exact
//!   paired         both for the ratios of two variants, and the verdict in a word
//! ```

mod bootstrap;
mod paired;
mod signed_rank;

pub use bootstrap::{interval_of_median, Interval};
pub use paired::{paired, Paired, Verdict, ROUNDS_TO_TELL, SIGNIFICANT};
pub use signed_rank::{signed_rank, SignedRank};

use serde::Serialize;

/// Median and spread of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// Smallest.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Largest.
    pub max: f64,
}

/// The value at share `q` (0 to 1) of sorted `values`, interpolated between neighbours. NaN for none.
fn quantile(values: &[f64], q: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = q * last as f64;
    let low = position.floor() as usize;
    let high = (low + 1).min(last);
    values[low] + (values[high] - values[low]) * (position - low as f64)
}

/// Median and spread of `values`; `None` when there are none or one is not a number.
#[must_use]
pub fn spread(values: &[f64]) -> Option<Spread> {
    if values.is_empty() || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Spread {
        count: sorted.len(),
        min: sorted[0],
        q1: quantile(&sorted, 0.25),
        median: quantile(&sorted, 0.5),
        q3: quantile(&sorted, 0.75),
        max: sorted[sorted.len() - 1],
    })
}

/// The median of `values`.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    spread(values).map(|s| s.median)
}

/// The order of variants in a round (from 0): A B C, then B C A, then C A B. The first finds the machine as the previous case left it, with
/// memory that the host may have reclaimed; after as many rounds as variants each has been in each place once.
pub fn turned(variants: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..variants).map(move |place| (place + round) % variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
    }

    #[test]
    fn quartiles_enclose_the_middle_half() {
        let s = spread(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((s.min, s.q1, s.median, s.q3, s.max), (1.0, 2.0, 3.0, 4.0, 5.0));
    }

    #[test]
    fn each_variant_runs_once_in_a_round_and_in_each_place_once_in_all() {
        let order = |round| turned(3, round).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(order(3), order(0));
        assert_eq!((turned(1, 5).collect::<Vec<_>>(), turned(0, 5).count()), (vec![0], 0));
    }
}
