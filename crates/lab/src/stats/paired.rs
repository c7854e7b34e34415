//! One variant against another, round by round: the ratio, its interval, and whether it can be chance.

use serde::Serialize;

use super::holm::least_p;
use super::{interval_of_median, median, signed_rank, Interval};
use crate::result::Better;

/// A difference is significant when chance alone would produce it in fewer than this share of experiments.
pub const SIGNIFICANT: f64 = 0.05;

/// With fewer rounds the signed-rank test cannot come out below [`SIGNIFICANT`], whatever was measured: 2 / 2^5 is 0.0625.
pub const ROUNDS_TO_TELL: usize = 6;

/// A verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better, and not by chance.
    Better,
    /// Worse, and not by chance.
    Worse,
    /// Not distinguishable from chance; that is not a proof of equality.
    NoDifference,
    /// Whatever had been measured in so few rounds, it could not have been significant among so many comparisons.
    TooFew,
}

/// A variant against the first, from the rounds in which both have a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Paired {
    /// Rounds in which both have a value.
    pub rounds: usize,
    /// Median of the ratios; `None` without rounds, and when a value is zero or less in either.
    pub ratio: Option<f64>,
    /// 95 % interval of that median.
    pub ratio_interval: Option<Interval>,
    /// Wilcoxon's signed-rank test, two-sided, of the logarithms of the ratios; where there are none, of the differences.
    pub p: Option<f64>,
    /// The variant's values are the larger ones, by the sums of ranks.
    #[serde(skip)]
    pub larger: bool,
}

/// Compares `variant` with `base`: values with their rounds, ascending by round. Non-finite values are skipped.
#[must_use]
pub fn paired(base: &[(usize, f64)], variant: &[(usize, f64)]) -> Paired {
    let pairs: Vec<(f64, f64)> = base
        .iter()
        .filter_map(|(round, b)| {
            let found = variant.binary_search_by_key(round, |(r, _)| *r).ok()?;
            Some((*b, variant[found].1))
        })
        .filter(|(b, v)| b.is_finite() && v.is_finite())
        .collect();
    let ratios: Option<Vec<f64>> = pairs
        .iter()
        .map(|(b, v)| (*b > 0.0 && *v > 0.0).then(|| v / b))
        .collect();
    let ratios = ratios.filter(|ratios| !ratios.is_empty());
    let differences: Vec<f64> = match &ratios {
        Some(ratios) => ratios.iter().map(|r| r.ln()).collect(),
        None => pairs.iter().map(|(b, v)| v - b).collect(),
    };
    let test = signed_rank(&differences);
    Paired {
        rounds: pairs.len(),
        ratio: ratios.as_deref().and_then(median),
        ratio_interval: ratios.as_deref().and_then(interval_of_median),
        p: test.map(|t| t.p),
        larger: test.is_some_and(|t| t.plus > t.minus),
    }
}

impl Paired {
    /// The verdict of a comparison that stands alone; `None` without a round, and when neither direction is better.
    #[must_use]
    pub fn verdict(&self, better: Better) -> Option<Verdict> {
        self.verdict_among(1, self.p?, better)
    }

    /// The verdict as one of several comparisons, by its adjusted p-value.
    #[must_use]
    pub fn verdict_among(&self, comparisons: usize, adjusted_p: f64, better: Better) -> Option<Verdict> {
        self.p?;
        let good = match better {
            Better::Higher => self.larger,
            Better::Lower => !self.larger,
            Better::Neither => return None,
        };
        Some(match adjusted_p < SIGNIFICANT {
            true if good => Verdict::Better,
            true => Verdict::Worse,
            false if least_p(self.rounds) * comparisons as f64 >= SIGNIFICANT => Verdict::TooFew,
            false => Verdict::NoDifference,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn rounds(values: &[f64]) -> Vec<(usize, f64)> {
        values.iter().copied().enumerate().collect()
    }

    /// About normal: twelve uniform numbers added up.
    fn normal(random: &mut Pcg64Mcg) -> f64 {
        let uniform = |r: &mut Pcg64Mcg| r.next_u64() as f64 / u64::MAX as f64;
        (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
    }

    /// One experiment of `n` rounds: each round's machine speed differs by 3 %, each run by `noise`; the variant's mean is `factor`.
    fn experiment(random: &mut Pcg64Mcg, n: usize, noise: f64, factor: f64) -> Paired {
        let (mut base, mut variant) = (vec![], vec![]);
        for _ in 0..n {
            let machine = 100.0 * (1.0 + 0.03 * normal(random));
            base.push(machine * (1.0 + noise * normal(random)));
            variant.push(machine * factor * (1.0 + noise * normal(random)));
        }
        paired(&rounds(&base), &rounds(&variant))
    }

    #[test]
    fn only_rounds_that_both_have_are_compared() {
        let base = [(0, 1.0), (1, 10.0), (3, 100.0)];
        let variant = [(1, 20.0), (2, 7.0), (3, 200.0), (4, f64::NAN)];
        let found = paired(&base, &variant);
        assert_eq!((found.rounds, found.ratio), (2, Some(2.0)));
        let none = paired(&base, &[]);
        assert_eq!(
            (none.rounds, none.ratio, none.p, none.verdict(Better::Higher)),
            (0, None, None, None)
        );
    }

    #[test]
    fn zero_has_no_ratio_but_can_be_told_apart() {
        let base = rounds(&[0.0; 6]);
        let found = paired(&base, &rounds(&[5.0, 6.0, 7.0, 8.0, 9.0, 10.0]));
        assert_eq!((found.ratio, found.ratio_interval), (None, None));
        assert_eq!(found.verdict(Better::Lower), Some(Verdict::Worse));
        assert_eq!(paired(&base, &base).verdict(Better::Lower), Some(Verdict::NoDifference));
    }

    #[test]
    fn five_rounds_are_too_few_to_tell_and_six_can() {
        let base = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];
        let double = base.map(|v| v * 2.0);
        let of = |n: usize| paired(&rounds(&base[..n]), &rounds(&double[..n]));
        assert_eq!(of(ROUNDS_TO_TELL - 1).verdict(Better::Higher), Some(Verdict::TooFew));
        assert_eq!(of(ROUNDS_TO_TELL).verdict(Better::Higher), Some(Verdict::Better));
        assert_eq!(of(ROUNDS_TO_TELL).verdict(Better::Lower), Some(Verdict::Worse));
        assert_eq!(of(ROUNDS_TO_TELL).verdict(Better::Neither), None);
    }

    #[test]
    fn the_same_thing_measured_twice_is_rarely_called_different() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for n in [6, 8, 12] {
            let experiments = 400;
            let wrong = (0..experiments)
                .filter(|_| {
                    let verdict = experiment(&mut random, n, 0.02, 1.0).verdict(Better::Higher);
                    verdict != Some(Verdict::NoDifference)
                })
                .count();
            let share = wrong as f64 / f64::from(experiments);
            assert!(share <= 0.055, "{n} rounds: {share}");
        }
    }

    #[test]
    fn a_slowdown_of_five_percent_is_found_in_eight_rounds() {
        let mut random = Pcg64Mcg::seed_from_u64(2);
        for noise in [0.01, 0.02] {
            let found = (0..200)
                .filter(|_| {
                    let verdict = experiment(&mut random, 8, noise, 0.95).verdict(Better::Higher);
                    verdict == Some(Verdict::Worse)
                })
                .count();
            assert!(found >= 180, "noise {noise}: {found} of 200");
        }
    }

    #[test]
    fn the_interval_of_the_ratio_holds_the_true_one_nearly_always() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let holds = (0..200)
            .filter(|_| {
                let i = experiment(&mut random, 8, 0.02, 1.2).ratio_interval.unwrap();
                i.low <= 1.2 && 1.2 <= i.high
            })
            .count();
        assert!(holds >= 180, "{holds} of 200");
    }
}
