//! Statistics for paired measurement: medians with their spread, and ratios taken round by round, so that a machine that
//! slows down for a while slows both sides of the ratio.
//!
//! ```text
//!   bootstrap      how far a median could be off: its 95 % interval
//!   signed_rank    could this come of chance: Wilcoxon's signed-rank test, exact
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

/// The spread of `variant / base` taken round by round: `variant[i]` and `base[i]` must come from the same round.
/// `None` when the numbers of rounds differ, are zero, or a base is zero.
#[must_use]
pub fn paired_ratio(base: &[f64], variant: &[f64]) -> Option<Spread> {
    if base.len() != variant.len() || base.contains(&0.0) {
        return None;
    }
    let ratios: Vec<f64> = base.iter().zip(variant).map(|(b, v)| v / b).collect();
    spread(&ratios)
}

/// The order in which to run `variants` for `rounds` rounds: A B C A B C.
#[must_use]
pub fn alternate<T: Clone>(variants: &[T], rounds: usize) -> Vec<(usize, T)> {
    (0..rounds)
        .flat_map(|round| variants.iter().cloned().map(move |v| (round, v)))
        .collect()
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
    fn a_ratio_is_taken_round_by_round() {
        let s = paired_ratio(&[1.0, 10.0, 100.0], &[2.0, 20.0, 200.0]).unwrap();
        assert_eq!((s.min, s.median, s.max), (2.0, 2.0, 2.0));
        assert!(paired_ratio(&[1.0], &[]).is_none());
        assert!(paired_ratio(&[0.0], &[1.0]).is_none());
    }

    #[test]
    fn variants_alternate_within_each_round() {
        let order: Vec<char> = alternate(&['a', 'b'], 2).into_iter().map(|(_, v)| v).collect();
        assert_eq!(order, ['a', 'b', 'a', 'b']);
    }
}
