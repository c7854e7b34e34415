//! Many comparisons on one page: Holm's step-down correction (Holm 1979). It keeps the probability of one false verdict or more among
//! all of them at the level of a single test, whatever the tests have to do with each other, and is never weaker than Bonferroni's.

use super::SIGNIFICANT;

/// Adjusted p-values, in the order of `p`: below a level exactly where Holm's procedure rejects at that level.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut highest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        // What was rejected no longer counts; nothing behind may be more significant than what stands before it.
        highest = highest.max((p[index] * (p.len() - rank) as f64).min(1.0));
        adjusted[index] = highest;
    }
    adjusted
}

/// The least two-sided p-value of a signed-rank test of so many rounds: all of them differ in the same direction.
#[must_use]
pub fn least_p(rounds: usize) -> f64 {
    (2.0 * 0.5_f64.powf(rounds as f64)).min(1.0)
}

/// How many rounds it takes until one of `comparisons` can be significant. One comparison takes six.
#[must_use]
pub fn rounds_needed(comparisons: usize) -> usize {
    let comparisons = comparisons.max(1) as f64;
    (1..)
        .find(|rounds| least_p(*rounds) * comparisons < SIGNIFICANT)
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ROUNDS_TO_TELL;
    use proptest::prelude::*;

    #[test]
    fn the_adjusted_values_are_those_of_the_textbook() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, wanted) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - wanted).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[0.04]), [0.04]);
    }

    #[test]
    fn one_comparison_takes_six_rounds_and_a_doubling_of_them_one_more() {
        assert_eq!(rounds_needed(1), ROUNDS_TO_TELL);
        assert_eq!([0, 2, 3, 4, 6, 12, 24].map(rounds_needed), [6, 7, 7, 8, 8, 9, 10]);
    }

    proptest! {
        #[test]
        fn no_adjusted_value_is_below_its_own_or_above_bonferronis_and_their_order_stays(p in prop::collection::vec(0.0..=1.0f64, 1..30)) {
            let adjusted = holm(&p);
            for (i, a) in adjusted.iter().enumerate() {
                prop_assert!(p[i] <= *a && *a <= (p[i] * p.len() as f64).min(1.0) + 1e-12);
                for (j, b) in adjusted.iter().enumerate() {
                    prop_assert!(p[i] > p[j] || a <= b);
                }
            }
        }
    }
}
