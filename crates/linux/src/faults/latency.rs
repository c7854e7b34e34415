//! What was counted: faults by how long they took and by the size of page.
//!
//! The layout is that of `struct mega_latency` in `bpf/faults.bpf.c`, in 64-bit words.

use std::ops::Range;

/// Page orders counted: 0 is a base page, 9 a huge page.
pub const ORDERS: usize = 10;
/// 32 ns: the first bucket has everything below.
const FIRST_POWER: u32 = 5;
/// 16 buckets per power of two.
const SUB_BITS: u32 = 4;
const BUCKETS: usize = 1 + (29 << SUB_BITS);
const CLASSES: usize = 4;
const CLASS_WORDS: usize = 1 + BUCKETS;
/// Words of `struct mega_latency`.
pub(super) const WORDS: usize = 2 + ORDERS + CLASSES * CLASS_WORDS;

/// How often faults took how long: a histogram from 32 ns to 10 s whose buckets are a sixteenth of a power of two wide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    sum_ns: u64,
    buckets: Vec<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            sum_ns: 0,
            buckets: vec![0; BUCKETS],
        }
    }
}

/// The nanoseconds that belong in a bucket.
fn bounds_ns(bucket: usize) -> Range<u64> {
    let Some(above) = bucket.checked_sub(1) else {
        return 0..1 << FIRST_POWER;
    };
    let power = FIRST_POWER + (above >> SUB_BITS) as u32;
    let width = 1u64 << (power - SUB_BITS);
    let start = (1u64 << power) + (above as u64 & ((1 << SUB_BITS) - 1)) * width;
    start..start + width
}

impl Latencies {
    /// Faults counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Time that all of them took together, in nanoseconds; exact.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Mean in nanoseconds; exact. None where nothing was counted.
    pub fn mean_ns(&self) -> Option<f64> {
        match self.count() {
            0 => None,
            count => Some(self.sum_ns as f64 / count as f64),
        }
    }

    /// The time in nanoseconds within which this share (0 to 1) of the faults was done: the middle of its bucket, so at most
    /// 1/32 off from 32 ns on. None where nothing was counted.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets().find_map(|(bounds, n)| {
            seen += n;
            (seen >= rank).then_some(bounds.start + (bounds.end - bounds.start) / 2)
        })
    }

    /// The buckets that are not empty, fastest first: the range in nanoseconds, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, &n)| n > 0).map(|(i, &n)| (bounds_ns(i), n))
    }

    fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Self {
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    fn add(&mut self, words: &[u64]) {
        self.sum_ns = self.sum_ns.saturating_add(words[0]);
        for (sum, n) in self.buckets.iter_mut().zip(&words[1..]) {
            *sum = sum.saturating_add(*n);
        }
    }
}

/// All that was counted since the start, over all followed threads and all processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultLatency {
    /// Faults on anonymous memory answered with a base page.
    pub base: Latencies,
    /// Those answered with a large folio smaller than a huge page (mTHP).
    pub large: Latencies,
    /// Those answered with a huge page.
    pub huge: Latencies,
    /// Faults on files, shared memory and hugetlb; only where [`Faults::sees_all`](super::Faults::sees_all).
    pub other: Latencies,
    /// Faults on anonymous memory by the order of the page: `orders[4]` were answered with 16 base pages.
    pub orders: [u64; ORDERS],
    /// Faults that took more than 10 s; they are in none of the histograms.
    pub too_long: u64,
    /// Faults that may have been missed, at most: times that the kernel left out one of our programs because it was running
    /// already on that processor. Those of threads that are not followed are among them.
    pub missed: u64,
    /// Threads that should have been followed and are not, because the kernel had no memory for it.
    pub threads_lost: u64,
}

impl FaultLatency {
    /// Every fault counted, whatever it was answered with.
    pub fn all(&self) -> Latencies {
        let mut all = Latencies::default();
        for part in [&self.base, &self.large, &self.huge, &self.other] {
            all.sum_ns = all.sum_ns.saturating_add(part.sum_ns);
            for (sum, n) in all.buckets.iter_mut().zip(&part.buckets) {
                *sum = sum.saturating_add(*n);
            }
        }
        all
    }

    /// What came after an earlier reading of the same [`Faults`](super::Faults).
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            base: self.base.since(&earlier.base),
            large: self.large.since(&earlier.large),
            huge: self.huge.since(&earlier.huge),
            other: self.other.since(&earlier.other),
            orders: std::array::from_fn(|i| self.orders[i].saturating_sub(earlier.orders[i])),
            too_long: self.too_long.saturating_sub(earlier.too_long),
            missed: self.missed.saturating_sub(earlier.missed),
            threads_lost: self.threads_lost.saturating_sub(earlier.threads_lost),
        }
    }

    /// Adds one processor's `struct mega_latency`, which must be whole.
    pub(super) fn add(&mut self, words: &[u64; WORDS]) {
        let (head, classes) = words.split_at(2 + ORDERS);
        self.too_long += head[0];
        self.threads_lost += head[1];
        for (sum, n) in self.orders.iter_mut().zip(&head[2..]) {
            *sum += n;
        }
        let into = [&mut self.base, &mut self.large, &mut self.huge, &mut self.other];
        for (latencies, words) in into.into_iter().zip(classes.chunks_exact(CLASS_WORDS)) {
            latencies.add(words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `bucket_of` in the program.
    fn bucket_of(ns: u64) -> usize {
        if ns < 1 << FIRST_POWER {
            return 0;
        }
        let power = ns.ilog2();
        let sub = (ns >> (power - SUB_BITS)) & ((1 << SUB_BITS) - 1);
        1 + (((power - FIRST_POWER) << SUB_BITS) as usize) + sub as usize
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap_and_reach_ten_seconds() {
        for bucket in 1..BUCKETS {
            assert_eq!(bounds_ns(bucket).start, bounds_ns(bucket - 1).end, "{bucket}");
        }
        assert!(bounds_ns(BUCKETS - 1).end > 10_000_000_000);
        for ns in [0, 31, 32, 33, 63, 64, 1000, 99_999, 10_000_000_000] {
            assert!(bounds_ns(bucket_of(ns)).contains(&ns), "{ns}");
        }
    }

    #[test]
    fn a_quantile_is_within_a_thirty_second_of_the_truth() {
        let mut words = [0; WORDS];
        let class = 2 + ORDERS;
        for ns in 1..=1000u64 {
            words[class] += ns;
            words[class + 1 + bucket_of(ns)] += 1;
        }
        let mut latency = FaultLatency::default();
        latency.add(&words);
        assert_eq!(latency.base.count(), 1000);
        assert_eq!(latency.base.mean_ns(), Some(500.5));
        for (share, truth) in [(0.1, 100.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = latency.base.quantile_ns(share).unwrap() as f64;
            assert!((got / truth - 1.0).abs() <= 1.0 / 32.0, "{share}: {got} for {truth}");
        }
    }

    #[test]
    fn nothing_counted_has_no_quantile() {
        let latency = FaultLatency::default();
        assert_eq!((latency.huge.quantile_ns(0.5), latency.huge.mean_ns()), (None, None));
    }

    #[test]
    fn processors_are_added_up_and_an_earlier_reading_taken_away() {
        let mut words = [0; WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            *word = i as u64;
        }
        let (mut once, mut twice) = (FaultLatency::default(), FaultLatency::default());
        once.add(&words);
        twice.add(&words);
        twice.add(&words);
        assert_eq!(once.too_long + 1, once.threads_lost);
        assert_eq!(once.orders[9], 11);
        assert_eq!(once.other.sum_ns(), (2 + ORDERS + 3 * CLASS_WORDS) as u64);
        assert_eq!(twice.since(&once), once);
    }
}
