//! How densely a range is filled: judged by its finished regions.

use crate::span::PAGES;

/// A region is dense from this many populated base pages on: 90 %.
pub const DENSE_PAGES: u32 = PAGES * 9 / 10;
/// A range is sparse once sparse regions are a twentieth of the dense ones.
pub const SPARSE_SHARE: u32 = 20;
/// Dense regions before a range counts as dense.
pub const DENSE_REGIONS: u32 = 4;
/// The same in a program whose other ranges were dense.
pub const DENSE_REGIONS_BY_HISTORY: u32 = 1;
/// Dense regions of a whole program before its history counts.
pub const HISTORY_REGIONS: u32 = 32;

/// What is populated of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Population {
    /// Base pages present, without those that map the shared zero page.
    pub present: u32,
    /// Base pages of those that a huge page maps.
    pub huge: u32,
}

impl Population {
    /// Every page is there.
    pub const FULL: Population = Population {
        present: PAGES,
        huge: 0,
    };

    /// Whether nothing is there.
    pub fn is_empty(self) -> bool {
        self.present == 0
    }

    /// Whether every page is there.
    pub fn is_full(self) -> bool {
        self.present >= PAGES
    }

    /// Whether it is populated densely enough for a huge page.
    pub fn is_dense(self) -> bool {
        self.present >= DENSE_PAGES
    }

    /// Whether huge pages map it, wholly.
    pub fn is_huge(self) -> bool {
        self.huge >= PAGES
    }

    /// Base pages that a huge page would add.
    pub fn holes(self) -> u32 {
        PAGES.saturating_sub(self.present)
    }
}

/// Finished regions, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Density {
    /// Regions that were dense.
    pub dense: u32,
    /// Regions that were not.
    pub sparse: u32,
    /// Base pages of all of them that were not populated.
    pub holes: u32,
}

impl Density {
    /// Nothing counted.
    pub const NONE: Density = Density {
        dense: 0,
        sparse: 0,
        holes: 0,
    };

    /// Counts a finished region.
    pub fn count(&mut self, population: Population) {
        if population.is_dense() {
            self.dense = self.dense.saturating_add(1);
        } else {
            self.sparse = self.sparse.saturating_add(1);
        }
        self.holes = self.holes.saturating_add(population.holes());
    }

    /// Counts regions of which next to nothing is populated.
    pub fn count_isolated(&mut self, regions: u64) {
        let regions = u32::try_from(regions).unwrap_or(u32::MAX);
        self.sparse = self.sparse.saturating_add(regions);
        self.holes = self.holes.saturating_add(regions.saturating_mul(PAGES));
    }

    /// What huge pages would waste of so much memory that is filled like this.
    pub fn waste(self, bytes: u64) -> u64 {
        let pages = (u64::from(self.dense) + u64::from(self.sparse)) * u64::from(PAGES);
        let waste = u128::from(bytes) * u128::from(self.holes);
        u64::try_from(waste / u128::from(pages.max(1))).unwrap_or(u64::MAX)
    }

    /// Whether at least `least` regions were dense, and sparse ones are under a twentieth of them.
    pub fn is_dense(self, least: u32) -> bool {
        self.dense >= least && u64::from(self.sparse) * u64::from(SPARSE_SHARE) <= u64::from(self.dense)
    }

    /// As much of it as earlier runs may count for in a new one: as if this one had seen so few regions that what it
    /// sees itself soon outweighs them.
    #[must_use]
    pub fn as_prior(self) -> Density {
        let most = self.dense.max(self.sparse);
        if most <= HISTORY_REGIONS {
            return self;
        }
        let part = |count: u32| u64::from(count) * u64::from(HISTORY_REGIONS);
        let of = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
        Density {
            dense: of(part(self.dense) / u64::from(most)),
            sparse: of(part(self.sparse).div_ceil(u64::from(most))),
            holes: of(part(self.holes).div_ceil(u64::from(most))),
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Density) -> Density {
        Density {
            dense: self.dense.saturating_add(other.dense),
            sparse: self.sparse.saturating_add(other.sparse),
            holes: self.holes.saturating_add(other.holes),
        }
    }

    /// What was counted on top of this.
    #[must_use]
    pub fn since(self, before: Density) -> Density {
        Density {
            dense: self.dense.saturating_sub(before.dense),
            sparse: self.sparse.saturating_sub(before.sparse),
            holes: self.holes.saturating_sub(before.holes),
        }
    }

    /// How many dense regions a new range of a program with this history needs.
    pub fn least_for_new_range(self) -> u32 {
        if self.is_dense(HISTORY_REGIONS) {
            DENSE_REGIONS_BY_HISTORY
        } else {
            DENSE_REGIONS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(dense: u32, sparse: u32) -> Density {
        Density {
            dense,
            sparse,
            holes: 0,
        }
    }

    impl Density {
        fn with_holes(self, holes: u32) -> Density {
            Density { holes, ..self }
        }
    }

    #[test]
    fn a_region_is_dense_from_nine_tenths_on() {
        let of = |present| Population { present, huge: 0 };
        assert!(!of(459).is_dense());
        assert!(of(460).is_dense());
        assert_eq!(of(460).holes(), 52);
        let mut density = Density::default();
        density.count(of(512));
        density.count(of(85));
        assert_eq!((density.dense, density.sparse, density.holes), (1, 1, 427));
        density.count_isolated(2);
        assert_eq!((density.sparse, density.holes), (3, 427 + 1024));
    }

    #[test]
    fn what_would_be_wasted_is_what_was_not_populated_so_far() {
        let half = Density {
            dense: 1,
            sparse: 1,
            holes: 512,
        };
        assert_eq!(half.waste(1 << 30), 1 << 29);
        assert_eq!(Density::default().waste(1 << 30), 0);
    }

    #[test]
    fn a_range_is_dense_while_sparse_regions_are_under_a_twentieth() {
        assert!(counted(4, 0).is_dense(4));
        assert!(!counted(3, 0).is_dense(4));
        assert!(counted(20, 1).is_dense(4));
        assert!(!counted(19, 1).is_dense(4));
        assert!(!counted(u32::MAX, u32::MAX).is_dense(4));
    }

    #[test]
    fn dense_history_shortens_what_a_new_range_must_show() {
        assert_eq!(counted(31, 0).least_for_new_range(), 4);
        assert_eq!(counted(32, 0).least_for_new_range(), 1);
        assert_eq!(counted(32, 2).least_for_new_range(), 4);
    }

    #[test]
    fn earlier_runs_count_for_as_many_regions_as_a_history_needs_and_keep_its_shares() {
        let few = counted(20, 12);
        assert_eq!(few.as_prior(), few);
        let dense = counted(32_000, 320).as_prior();
        assert_eq!((dense.dense, dense.sparse), (32, 1));
        assert_eq!(dense.least_for_new_range(), DENSE_REGIONS_BY_HISTORY);
        let mixed = counted(32_000, 1_700).as_prior();
        assert_eq!((mixed.dense, mixed.sparse), (32, 2));
        assert!(!mixed.is_dense(HISTORY_REGIONS));
        let sparse = Density {
            dense: 1,
            sparse: u32::MAX,
            holes: u32::MAX,
        };
        assert_eq!(sparse.as_prior(), counted(0, 32).with_holes(32));
    }

    #[test]
    fn what_this_run_has_seen_is_what_was_counted_on_top_of_earlier_ones() {
        let prior = counted(32, 1);
        let mut density = prior;
        density.count(Population { present: 512, huge: 0 });
        density.count(Population { present: 100, huge: 0 });
        assert_eq!(density.since(prior), counted(1, 1).with_holes(412));
    }
}
