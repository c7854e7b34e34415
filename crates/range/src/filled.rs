//! Whether the program fills what is mapped huge: page tables do not say, contents do.
//!
//! A region was filled if each of some pages of it holds anything but zeroes. Where one holds nothing else, nothing is
//! known: the program may have written zeroes, or not have come so far.

use crate::span::{Span, PAGE, PAGES, REGION};
use crate::waste;

/// Parts of a region, of each of which a page is looked at.
const PARTS: usize = 16;
/// An odd number: what is multiplied by it has all of its bits in the upper ones.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Samples in a row that show it: where half of the regions are filled, one row in sixteen does.
const LEAST: u32 = 4;

/// A filled region counts as one that the program has filled densely as long as so many were for each that was not: no
/// more of what it gets is wasted than may be.
const FILLED_FOR_EACH_OTHER: u32 = 100 / waste::PERCENT as u32;
/// So many samples are remembered; older ones fade.
const REMEMBERED: u32 = 256;

/// What samples have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filled {
    streak: u32,
    filled: u32,
    others: u32,
}

impl Filled {
    /// Nothing yet.
    pub const fn new() -> Self {
        Filled {
            streak: 0,
            filled: 0,
            others: 0,
        }
    }

    /// Takes in a sample. True where this one and those before it show that the program fills what it gets.
    pub fn note(&mut self, is_filled: bool) -> bool {
        self.streak = if is_filled { self.streak.saturating_add(1) } else { 0 };
        if self.filled + self.others >= REMEMBERED {
            self.filled /= 2;
            self.others = self.others.div_ceil(2);
        }
        self.filled += u32::from(is_filled);
        self.others += u32::from(!is_filled);
        self.streak >= LEAST
    }

    /// Whether hardly any of the regions sampled were not filled.
    pub fn is_dense(&self) -> bool {
        self.filled >= self.others.saturating_mul(FILLED_FOR_EACH_OTHER)
    }
}

/// The pages of a region to look at: one of each part, other ones in each region, so that no stride of a program is theirs.
pub fn pages(region: u64) -> impl Iterator<Item = u64> {
    const PART: u64 = PAGES as u64 / PARTS as u64;
    let mut mixed = (region / REGION).wrapping_mul(MIX);
    (0..PARTS as u64).map(move |part| {
        mixed = mixed.rotate_left(7).wrapping_mul(MIX);
        let page = part * PART + (mixed >> 32) % PART;
        region.saturating_add(page * PAGE)
    })
}

/// A number of different regions of a span, in an order that begins anywhere; none past the last one.
pub fn one_of(span: Span, nth: u64) -> Option<u64> {
    let count = span.region_count();
    let first = (span.start / REGION).wrapping_mul(MIX) >> 32;
    let region = first.wrapping_add(nth).checked_rem(count)?;
    (nth < count).then(|| span.start.saturating_add(region * REGION))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn four_filled_regions_in_a_row_show_it_and_one_that_is_not_ends_it() {
        let mut filled = Filled::new();
        assert_eq!(
            [true; 5].map(|sample| filled.note(sample)),
            [false, false, false, true, true]
        );
        assert!(!filled.note(false));
        assert_eq!([true; 4].map(|sample| filled.note(sample)), [false, false, false, true]);
    }

    #[test]
    fn samples_show_a_dense_program_while_three_in_a_hundred_are_not_filled_and_older_ones_fade() {
        let of = |others: u32, filled: u32| {
            let mut all = Filled::new();
            (0..others).for_each(|_| _ = all.note(false));
            (0..filled).for_each(|_| _ = all.note(true));
            all.is_dense()
        };
        assert!(of(0, 4));
        assert_eq!([32, 33].map(|filled| of(1, filled)), [false, true]);
        assert_eq!([65, 66].map(|filled| of(2, filled)), [false, true]);
        assert_eq!([200, 2000].map(|filled| of(1000, filled)), [false, true]);
    }

    #[test]
    fn each_part_of_a_region_is_looked_at_and_each_page_of_it_in_some_regions() {
        const PART: usize = PAGES as usize / PARTS;
        let mut seen = [[false; PART]; PARTS];
        for region in 0..1000 {
            let region = region * REGION;
            for (place, page) in pages(region).enumerate() {
                let page = ((page - region) / PAGE) as usize;
                assert_eq!(page / PART, place);
                seen[place][page % PART] = true;
            }
        }
        assert!(seen.iter().flatten().all(|&is_seen| is_seen));
    }

    #[test]
    fn regions_of_a_span_are_all_different_and_any_may_be_the_first() {
        let of = |place: u64, nth| {
            let span = Span::new(place * REGION, (place + 15) * REGION);
            Some((one_of(span, nth)? - span.start) / REGION)
        };
        let mut seen = [false; 15];
        (0..500).for_each(|place| seen[of(place, 0).unwrap() as usize] = true);
        assert!(seen.iter().all(|&is_seen| is_seen));
        let mut all: Vec<_> = (0..20).map_while(|nth| of(7, nth)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..15).collect::<Vec<_>>());
        assert_eq!(one_of(Span::new(3 * REGION, 3 * REGION), 0), None);
    }
}
