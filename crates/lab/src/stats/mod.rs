//! Statistics for paired measurement: medians with their spread, and ratios taken round by round, so that a machine that
//! slows down for a while slows both sides of the ratio.
//!
//! ```text
//!   bootstrap      how far a median could be off: its 95 % interval
//!   signed_rank    could this be chance: Wilcoxon's signed-rank test, exact
//!   paired         both for the ratios of two variants, and the verdict in a word
//!   holm           many comparisons on one page
//!   exclusion      which rounds count: a frozen rule
//! ```

mod bootstrap;
pub mod exclusion;
mod holm;
mod paired;
mod signed_rank;

pub use bootstrap::{interval_of_median, Interval};
pub use holm::{holm, rounds_needed};
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

/// How often the range of `count` values holds the median that they are drawn around: all lie on one side of it once in 2^(count - 1). No
/// interval between them holds it more often.
#[must_use]
pub fn range_holds(count: usize) -> f64 {
    match count {
        0 => 0.0,
        n => 1.0 - 0.5_f64.powf((n - 1) as f64),
    }
}

/// The order of variants in a round (from 0): the rows of a Williams square (Williams 1949). The first finds the machine as the previous case
/// left it, the others as the variant before them did; so each is in each place once in as many rounds as there are variants, and behind each
/// other one equally often: once in as many rounds if they are even in number, else twice in twice as many, the second half in reverse. The
/// square is labelled so that the first round has them as they were listed.
pub fn turned(variants: usize, round: usize) -> impl Iterator<Item = usize> {
    let reversed = variants % 2 == 1 && (round / variants) % 2 == 1;
    (0..variants).map(move |place| {
        let place = if reversed { variants - 1 - place } else { place };
        // 0, 1, n - 1, 2, n - 2 ...: neighbours differ by each distance once.
        let first = if place % 2 == 1 {
            place / 2 + 1
        } else {
            variants - place / 2
        };
        listed(variants, (first + round) % variants)
    })
}

/// Which place of the square's first row a symbol has.
fn listed(variants: usize, symbol: usize) -> usize {
    match symbol {
        0 => 0,
        symbol if 2 * symbol <= variants => 2 * symbol - 1,
        symbol => 2 * (variants - symbol),
    }
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
        let order = |round| turned(4, round).collect::<Vec<_>>();
        assert_eq!([order(0), order(1)], [[0, 1, 2, 3], [1, 3, 0, 2]]);
        assert_eq!(order(4), order(0));
        assert_eq!((turned(1, 5).collect::<Vec<_>>(), turned(0, 5).count()), (vec![0], 0));
        for n in 1..10 {
            assert!(turned(n, 0).eq(0..n), "{n} variants");
            for at in 0..n {
                let mut there: Vec<_> = (0..n).map(|round| turned(n, round).nth(at).unwrap()).collect();
                there.sort_unstable();
                assert!(there.into_iter().eq(0..n), "{n} variants, place {at}");
            }
        }
    }

    #[test]
    fn each_variant_runs_behind_each_other_one_equally_often() {
        for n in 2..10 {
            let times = if n % 2 == 0 { 1 } else { 2 };
            let mut behind = vec![vec![0; n]; n];
            for round in 0..n * times {
                let order: Vec<_> = turned(n, round).collect();
                order.windows(2).for_each(|w| behind[w[0]][w[1]] += 1);
            }
            for (a, row) in behind.iter().enumerate() {
                let wanted = |b| if a == b { 0 } else { times };
                assert!((0..n).all(|b| row[b] == wanted(b)), "{n} variants: {behind:?}");
            }
        }
    }

    #[test]
    fn the_range_of_six_is_the_first_to_hold_the_median_in_95_of_100() {
        assert_eq!((range_holds(1), range_holds(3)), (0.0, 0.75));
        assert!(range_holds(5) < 0.95 && range_holds(6) > 0.95);
    }
}
