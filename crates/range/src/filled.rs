//! Whether the program fills what is mapped huge: page tables do not say, contents do.
//!
//! A region was filled if each of some pages of it holds anything but zeroes. Where one holds nothing else, nothing is
//! known: the program may have written zeroes, or not have come so far.

use crate::span::{Span, PAGE, PAGES, REGION};

/// Pages of a region that are looked at.
pub const SAMPLES: usize = 16;
/// Samples in a row that show it: of who fills half of its regions, one in sixteen rows does.
const LEAST: u32 = 4;

/// What samples have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filled {
    streak: u32,
}

impl Filled {
    /// Nothing yet.
    pub const fn new() -> Self {
        Filled { streak: 0 }
    }

    /// Takes in a sample. True where this one and those before it show that the program fills what it gets.
    pub fn note(&mut self, is_filled: bool) -> bool {
        self.streak = if is_filled { self.streak.saturating_add(1) } else { 0 };
        self.streak >= LEAST
    }
}

/// The pages of a region to look at: one of each part, other ones in each region, so that no stride of a program is theirs.
pub fn pages(region: u64) -> impl Iterator<Item = u64> {
    const PART: u64 = PAGES as u64 / SAMPLES as u64;
    // Multiplied by an odd number, the upper bits depend on all of the region's.
    let mut mixed = (region / REGION).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..SAMPLES as u64).map(move |part| {
        mixed = mixed.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let page = part * PART + (mixed >> 32) % PART;
        region.saturating_add(page * PAGE)
    })
}

/// One of the regions of a span, another one for each number and place.
pub fn one_of(span: Span, nth: u64) -> u64 {
    let mixed = (span.start / REGION)
        .wrapping_add(nth)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> 32;
    let region = mixed.checked_rem(span.region_count()).unwrap_or(0);
    span.start.saturating_add(region * REGION)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn each_part_of_a_region_is_looked_at_and_each_page_of_it_in_some_regions() {
        const PART: usize = PAGES as usize / SAMPLES;
        let mut seen = [[false; PART]; SAMPLES];
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
    fn any_region_of_several_may_be_the_one() {
        let of = |place: u64| {
            let span = Span::new(place * REGION, (place + 15) * REGION);
            (one_of(span, 0) - span.start) / REGION
        };
        let mut seen = [false; 15];
        (0..500).for_each(|place| seen[of(place) as usize] = true);
        assert!(seen.iter().all(|&is_seen| is_seen));
        assert_eq!(one_of(Span::new(3 * REGION, 3 * REGION), 0), 3 * REGION);
    }
}
