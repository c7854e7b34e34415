//! Wilcoxon's signed-rank test: are paired differences centred on zero? It assumes only a symmetric
//! distribution, and a single outlier cannot decide it.

/// Up to this many differences the distribution of the rank sum is exact; beyond, the normal approximation is used.
const EXACT_MAX: usize = 25;

/// What the test found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedRank {
    /// Sum of the ranks of differences above zero.
    pub plus: f64,
    /// Sum of the ranks of differences below zero.
    pub minus: f64,
    /// Two-sided: how often chance alone gives rank sums at least as uneven.
    pub p: f64,
}

/// The test on `differences`. Ties share their middle rank. Differences of zero take part in the ranking and then drop out
/// (Pratt 1959). `None` for none and when one is not a number.
#[must_use]
pub fn signed_rank(differences: &[f64]) -> Option<SignedRank> {
    if differences.is_empty() || differences.iter().any(|d| d.is_nan()) {
        return None;
    }
    let ranks = twice_the_ranks(differences);
    let sum = |side: fn(f64) -> bool| -> usize {
        let chosen = differences.iter().zip(&ranks).filter(|(d, _)| side(**d));
        chosen.map(|(_, rank)| rank).sum()
    };
    let (plus, minus) = (sum(|d| d > 0.0), sum(|d| d < 0.0));
    let signed: Vec<usize> = differences
        .iter()
        .zip(&ranks)
        .filter(|(d, _)| **d != 0.0)
        .map(|(_, rank)| *rank)
        .collect();
    let tail = if signed.len() <= EXACT_MAX {
        exact_tail(&signed, plus.min(minus))
    } else {
        normal_tail(&signed, plus.min(minus))
    };
    Some(SignedRank {
        plus: plus as f64 / 2.0,
        minus: minus as f64 / 2.0,
        p: (2.0 * tail).min(1.0),
    })
}

/// The ranks by size regardless of sign, doubled so that the middle rank of ties is a whole number.
fn twice_the_ranks(differences: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..differences.len()).collect();
    order.sort_by(|a, b| differences[*a].abs().total_cmp(&differences[*b].abs()));
    let mut ranks = vec![0; differences.len()];
    for tied in order.chunk_by(|a, b| differences[*a].abs() == differences[*b].abs()) {
        // The ranks begin at 1. `chunk_by` goes through in order, so the first of these has as many before it as have a rank.
        let before = ranks.iter().filter(|rank| **rank > 0).count();
        for index in tied {
            ranks[*index] = 2 * before + tied.len() + 1;
        }
    }
    ranks
}

/// The share of all ways to give signs to `ranks` in which the sum of the positive ones is at most `sum`.
fn exact_tail(ranks: &[usize], sum: usize) -> f64 {
    let mut ways = vec![0u64; sum + 1];
    ways[0] = 1;
    for &rank in ranks {
        for total in (rank..=sum).rev() {
            ways[total] += ways[total - rank];
        }
    }
    ways.iter().sum::<u64>() as f64 / (1u64 << ranks.len()) as f64
}

/// The same by the normal distribution of the same mean and variance, with the correction for continuity.
fn normal_tail(ranks: &[usize], sum: usize) -> f64 {
    let mean = ranks.iter().sum::<usize>() as f64 / 2.0;
    let variance = ranks.iter().map(|rank| (rank * rank) as f64).sum::<f64>() / 4.0;
    let z = (mean - sum as f64 - 1.0).max(0.0) / variance.sqrt();
    upper_normal(z)
}

/// The share of the standard normal distribution above `z`, for z of 0 and more: Abramowitz and Stegun, 26.2.17, whose error
/// is under 7.5e-8.
fn upper_normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let coefficients = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let series = coefficients.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Differences 1 to n of which those in `negative` are negative.
    fn ranks_with(n: usize, negative: &[usize]) -> Vec<f64> {
        let sign = |i: &usize| if negative.contains(i) { -1.0 } else { 1.0 };
        (1..=n).map(|i| i as f64 * sign(&i)).collect()
    }

    #[test]
    fn the_exact_values_are_those_of_the_tables() {
        // Lower tail P(W <= w): n = 5, w = 0: 1/32. n = 6: 1/64. n = 8, w = 3: 5/256. n = 10, w = 8: 25/1024.
        let p = |n, negative: &[usize]| signed_rank(&ranks_with(n, negative)).unwrap().p;
        assert_eq!(p(5, &[]), 2.0 / 32.0);
        assert_eq!(p(6, &[]), 2.0 / 64.0);
        assert_eq!(p(8, &[3]), 2.0 * 5.0 / 256.0);
        assert_eq!(p(10, &[8]), 2.0 * 25.0 / 1024.0);
        // The table's critical value for 25 at 0.05, two-sided, is 89.
        let critical = [25, 24, 23, 17];
        assert_eq!(critical.iter().sum::<usize>(), 89);
        assert!(p(25, &critical) < 0.05);
        assert!(p(25, &[25, 24, 23, 18]) > 0.05);
    }

    #[test]
    fn ties_share_their_middle_rank() {
        // Three ties of rank 2 and one of rank 4, the smallest against the rest: W- = 2; sums at most 2: none, and each of
        // the three alone: 4 of 16.
        let found = signed_rank(&[1.0, -1.0, 1.0, 5.0]).unwrap();
        assert_eq!((found.plus, found.minus), (8.0, 2.0));
        assert_eq!(found.p, 2.0 * 4.0 / 16.0);
    }

    #[test]
    fn differences_of_zero_decide_nothing() {
        assert_eq!(signed_rank(&[0.0; 8]).unwrap().p, 1.0);
        // Five of the same sign after one zero: no more certain than five.
        assert_eq!(signed_rank(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap().p, 2.0 / 32.0);
        assert_eq!(signed_rank(&[]), None);
        assert_eq!(signed_rank(&[f64::NAN]), None);
    }

    #[test]
    fn beyond_the_exact_the_normal_distribution_is_close() {
        for z in [0.0, 1.0, 1.959_963_985, 3.0] {
            let known = [0.5, 0.158_655_254, 0.025, 0.001_349_898];
            let index = [0.0, 1.0, 1.959_963_985, 3.0].iter().position(|v| *v == z).unwrap();
            assert!((upper_normal(z) - known[index]).abs() < 1e-7, "at {z}");
        }
        let ranks: Vec<usize> = (1..=25).map(|r| 2 * r).collect();
        for sum in [100, 178, 250, 325] {
            let (exact, normal) = (exact_tail(&ranks, sum), normal_tail(&ranks, sum));
            assert!((exact - normal).abs() < 0.003, "{sum}: {exact} and {normal}");
        }
        let many: Vec<f64> = (1..=40).map(f64::from).collect();
        assert!(signed_rank(&many).unwrap().p < 1e-6);
        assert!(
            signed_rank(&ranks_with(40, &[40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30]))
                .unwrap()
                .p
                > 0.5
        );
    }

    proptest! {
        #[test]
        fn turning_every_sign_changes_nothing_and_p_is_a_share(d in prop::collection::vec(-5i8..=5, 1..40)) {
            let d: Vec<f64> = d.into_iter().map(f64::from).collect();
            let turned: Vec<f64> = d.iter().map(|v| -v).collect();
            let (a, b) = (signed_rank(&d).unwrap(), signed_rank(&turned).unwrap());
            prop_assert_eq!((a.plus, a.minus, a.p), (b.minus, b.plus, b.p));
            prop_assert!(a.p > 0.0 && a.p <= 1.0);
        }

        #[test]
        fn the_exact_tail_is_what_counting_every_choice_of_signs_gives(d in prop::collection::vec(-4i8..=4, 1..10)) {
            let d: Vec<f64> = d.into_iter().map(f64::from).collect();
            let found = signed_rank(&d).unwrap();
            let ranks: Vec<usize> = twice_the_ranks(&d).into_iter().zip(&d).filter(|(_, v)| **v != 0.0).map(|(r, _)| r).collect();
            let least = (2.0 * found.plus.min(found.minus)) as usize;
            let sum = |signs: u32| -> usize { ranks.iter().enumerate().filter(|(i, _)| signs >> i & 1 == 1).map(|(_, r)| r).sum() };
            let ways = (0..1u32 << ranks.len()).filter(|signs| sum(*signs) <= least).count();
            let p = (2.0 * ways as f64 / f64::from(1u32 << ranks.len())).min(1.0);
            prop_assert!((p - found.p).abs() < 1e-12);
        }
    }
}
