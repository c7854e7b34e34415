//! Which of a program's mappings are followed: those of several regions, and what has grown at an end of one.
//!
//! What grows does not merge with a mapping that is advised, since the flags differ. An allocator that grows by a few
//! megabytes at a time would be looked at only once it has grown twice.

use crate::span::Span;
use crate::table::RANGES;

/// Whole regions that a mapping needs to be followed by itself.
pub const LEAST_REGIONS: u64 = 4;

/// The mappings that are followed, by address.
#[derive(Debug, Clone)]
pub struct Mappings {
    list: [Span; RANGES],
    len: usize,
    /// Behind those: the last ones, each too small by itself, that adjoin each other.
    small: usize,
    /// What is smaller is left out; grows where there are too many.
    least_regions: u64,
    is_full: bool,
}

impl Mappings {
    /// None.
    pub const fn new() -> Self {
        Mappings {
            list: [Span { start: 0, end: 0 }; RANGES],
            len: 0,
            small: 0,
            least_regions: 0,
            is_full: false,
        }
    }

    /// Begins with another program.
    pub fn begin(&mut self) {
        self.least_regions = LEAST_REGIONS;
        self.is_full = false;
        self.clear();
    }

    /// Begins to read a program's mappings anew. Where there were too many before, only larger ones are followed now.
    pub fn clear(&mut self) {
        if self.is_full {
            self.least_regions = self.least_regions.saturating_mul(2);
        }
        self.len = 0;
        self.small = 0;
        self.is_full = false;
    }

    /// The next one by address.
    pub fn add(&mut self, mapping: Span) {
        let count = self.len + self.small;
        let before = count.checked_sub(1).and_then(|last| self.list.get(last));
        let adjoins = before.is_some_and(|before| before.end == mapping.start);
        let regions = mapping.region_count();
        let is_large = regions >= self.least_regions;
        if !adjoins || regions == 0 {
            self.small = 0;
        }
        if regions == 0 {
            return;
        }
        let count = self.len + self.small;
        match self.list.get_mut(count) {
            Some(place) => *place = mapping,
            None => {
                self.is_full |= is_large;
                return;
            }
        }
        if is_large || (adjoins && self.small == 0) {
            self.len = count + 1;
            self.small = 0;
        } else {
            self.small += 1;
        }
    }

    /// Those that are followed.
    pub fn list(&self) -> &[Span] {
        self.list.get(..self.len).unwrap_or(&[])
    }
}

impl Default for Mappings {
    fn default() -> Self {
        Mappings::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::REGION;

    fn followed(mappings: &mut Mappings, all: &[(u64, u64)]) -> [(u64, u64); 8] {
        mappings.clear();
        for (start, end) in all {
            mappings.add(Span::new(start * REGION, end * REGION));
        }
        let mut found = [(0, 0); 8];
        for (place, span) in found.iter_mut().zip(mappings.list()) {
            *place = (span.start / REGION, span.end / REGION);
        }
        found
    }

    #[test]
    fn small_mappings_are_followed_only_where_they_adjoin_a_large_one() {
        let all = [
            (0, 3),
            (8, 10),
            (10, 13),
            (13, 20),
            (20, 22),
            (22, 23),
            (30, 33),
            (34, 40),
            (41, 42),
            (42, 45),
        ];
        let mut mappings = Mappings::new();
        mappings.begin();
        let found = followed(&mut mappings, &all);
        let expected = [(8, 10), (10, 13), (13, 20), (20, 22), (22, 23), (34, 40)];
        assert_eq!(found, [&expected[..], &[(0, 0); 2]].concat()[..]);
    }

    #[test]
    fn where_there_are_too_many_smaller_ones_are_left_out() {
        let mut mappings = Mappings::new();
        mappings.begin();
        for regions in [4, 8] {
            mappings.clear();
            for nth in 0..RANGES as u64 + 1 {
                let start = nth * 100 * REGION;
                mappings.add(Span::new(start, start + regions * REGION));
            }
            assert_eq!(mappings.list().len(), RANGES);
        }
        assert_eq!(followed(&mut mappings, &[(0, 15), (20, 36)])[..2], [(20, 36), (0, 0)]);
    }
}
