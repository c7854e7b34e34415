//! What is drawn: words to update, pages of a share, chunks that go, keys and sizes.

use super::{below, mix};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

/// The updates of GUPS: see [`updates`].
#[derive(Debug)]
pub struct Updates<'a> {
    rng: &'a mut Pcg64Mcg,
    words: u64,
}

/// Random updates of a table of `words` words, without end: which word, and what it is combined with.
#[inline]
pub fn updates(rng: &mut Pcg64Mcg, words: u64) -> Updates<'_> {
    Updates { rng, words }
}

impl Iterator for Updates<'_> {
    type Item = (u64, u64);

    #[inline]
    fn next(&mut self) -> Option<(u64, u64)> {
        let random = self.rng.next_u64();
        Some((below(random, self.words), random))
    }
}

/// The content's seed of chunk `chunk`.
#[inline]
#[must_use]
pub fn chunk_seed(seed: u64, chunk: u64) -> u64 {
    mix(seed ^ mix(chunk))
}

/// Which of `used` chunks 64 random bits visit.
#[inline]
#[must_use]
pub fn chunk_visited(random: u64, used: u64) -> u64 {
    below(random, used)
}

/// Which of the `words` of that chunk the same 64 random bits visit.
#[inline]
#[must_use]
pub fn chunk_word(random: u64, words: u64) -> u64 {
    below(mix(random), words)
}

/// Whether chunk `chunk` is among the half that is freed: every second one, or drawn by seed.
#[inline]
#[must_use]
pub fn hole_goes(seed: u64, chunk: u64, random: bool) -> bool {
    let draw = if random { mix(seed ^ mix(chunk)) } else { chunk };
    draw & 1 == 1
}

/// Sizes in bytes from `from_kib` on, doubling up to `to_kib`; what does not fit 64 bits is left out.
pub fn object_sizes(from_kib: u64, to_kib: u64) -> impl Iterator<Item = u64> {
    let doubled = std::iter::successors(Some(from_kib), |kib| kib.checked_mul(2));
    doubled
        .take_while(move |kib| *kib <= to_kib)
        .filter_map(|kib| kib.checked_mul(1024))
}

/// The bound below which 64 random bits lie with probability `share` (0 to 1; from 1 on all of them must be taken).
#[must_use]
pub fn share_limit(share: f64) -> u64 {
    (share * 2f64.powi(64)) as u64
}

/// A scattered `share` (0 to 1) of `pages` pages, drawn by `seed`, in the order in which they are touched, shuffled by `rng`.
#[must_use]
pub fn sparse_pages(pages: u32, share: f64, seed: u64, rng: &mut Pcg64Mcg) -> Vec<u32> {
    let limit = share_limit(share);
    let drawn = |p: &u32| share >= 1.0 || mix(seed ^ (u64::from(*p) << 20)) < limit;
    let mut pages: Vec<u32> = (0..pages).filter(drawn).collect();
    for i in (1..pages.len()).rev() {
        pages.swap(i, below(rng.next_u64(), i as u64 + 1) as usize);
    }
    pages
}

/// Which of `touched` pages, and which word of it, 64 random bits visit.
#[inline]
#[must_use]
pub fn sparse_visit(random: u64, touched: u64) -> (usize, usize) {
    (below(random, touched) as usize, (random % 512) as usize)
}

/// The key of rank `rank` of a table.
#[inline]
#[must_use]
pub fn table_key(seed: u64, rank: u64) -> u64 {
    mix(seed.wrapping_mul(0x1_0001).wrapping_add(rank)) | 1
}

/// Rank of the value that is first at a place of a table of `count`: a fixed shuffle, so that hot keys share no pages.
/// `stride` is `scatter(count)`.
#[inline]
#[must_use]
pub fn table_rank_at(place: u64, stride: u64, count: u64) -> u64 {
    (u128::from(place) * u128::from(stride) % u128::from(count)) as u64
}

/// Bytes of item `i` whose size is uniform between `least` and `most`.
#[inline]
#[must_use]
pub fn item_bytes(seed: u64, i: u64, least: u64, most: u64) -> u64 {
    least + below(mix(seed ^ mix(!i)), most.max(least) - least + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::pattern::rng;

    #[test]
    fn a_share_of_the_pages_is_drawn_and_all_of_them_when_it_is_one() {
        let drawn = sparse_pages(8192, 1.0 / 6.0, 2, &mut rng(2));
        assert!((1200..1530).contains(&drawn.len()));
        let mut all = sparse_pages(256, 1.0, 2, &mut rng(2));
        assert_ne!(all, (0..256).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..256).collect::<Vec<_>>());
    }

    #[test]
    fn sizes_double_and_never_overflow() {
        assert_eq!(object_sizes(8, 32).collect::<Vec<_>>(), [8192, 16_384, 32_768]);
        assert_eq!(object_sizes(u64::MAX, u64::MAX).count(), 0);
    }

    #[test]
    fn about_half_of_the_chunks_go() {
        assert_eq!((0..100).filter(|c| hole_goes(1, *c, false)).count(), 50);
        let random = (0..1000).filter(|c| hole_goes(1, *c, true)).count();
        assert!((440..560).contains(&random), "{random}");
    }
}
