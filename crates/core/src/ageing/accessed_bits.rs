//! Which regions' accessed bits tell about exactly one interval: those that were clear when it began. Each host keeps one per process.

use std::collections::BTreeSet;

use crate::observe::Region;

/// The most regions (64 MB) cleared by one call: mmap and munmap of the program wait for it.
const RUN_MAX: usize = 32;

/// Groups regions (by rising address) into runs of neighbours, one call each: the first region and the count, at most 32.
pub fn runs(regions: &[Region]) -> Vec<(Region, usize)> {
    let mut runs: Vec<(Region, usize)> = Vec::new();
    for &region in regions {
        match runs.last_mut() {
            Some((first, count)) if first.0 + *count as u64 == region.0 && *count < RUN_MAX => *count += 1,
            _ => runs.push((region, 1)),
        }
    }
    runs
}

/// The state of one process's accessed bits, by rising address.
#[derive(Debug, Default)]
pub struct AccessedBits {
    /// Clear since the last scan, by rising address.
    clear: Vec<Region>,
    /// Had accessed pages at the last scan, by rising address.
    accessed: Vec<Region>,
    /// Acted on since the last scan: collapse and split set accessed bits.
    spoiled: BTreeSet<Region>,
}

impl AccessedBits {
    /// Whether the region was clear when the interval began.
    pub fn is_aged(&self, region: Region) -> bool {
        self.clear.binary_search(&region).is_ok() && !self.spoiled.contains(&region)
    }

    /// Whether any region in `from..to` was clear when the interval began, so that a closer look at that range pays.
    pub fn any_in(&self, from: Region, to: Region) -> bool {
        let first = self.clear.partition_point(|region| *region < from);
        self.clear.get(first).is_some_and(|region| *region < to)
    }

    /// Begins an interval with the regions that the scan found accessed, by rising address. No region counts as clear until its bits are
    /// cleared.
    pub fn begin(&mut self, accessed: Vec<Region>) {
        self.accessed = accessed;
        self.clear.clear();
        self.spoiled.clear();
    }

    /// Those of `regions` whose bits must be cleared. The others were not accessed, so their bits are clear already.
    pub fn to_clear(&self, regions: &[Region]) -> Vec<Region> {
        let accessed = |region: &&Region| self.accessed.binary_search(region).is_ok();
        regions.iter().filter(accessed).copied().collect()
    }

    /// Notes that these regions (by rising address) are clear now, except those that the host refused to clear.
    pub fn cleared(&mut self, regions: &[Region], refused: &BTreeSet<Region>) {
        self.clear = regions
            .iter()
            .filter(|region| !refused.contains(region))
            .copied()
            .collect();
    }

    /// Notes that a region was acted on, which sets its accessed bits.
    pub fn spoil(&mut self, region: Region) {
        self.spoiled.insert(region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(list: &[u64]) -> Vec<Region> {
        list.iter().map(|&n| Region(n)).collect()
    }

    #[test]
    fn only_accessed_regions_are_cleared_in_bounded_runs() {
        let mut a = AccessedBits::default();
        a.begin((0..40).chain(50..52).map(Region).collect());
        let asked: Vec<_> = (0..60).map(Region).collect();
        assert_eq!(
            runs(&a.to_clear(&asked)),
            [(Region(0), 32), (Region(32), 8), (Region(50), 2)]
        );
        assert_eq!(a.to_clear(&r(&[3, 5, 6, 45])), r(&[3, 5, 6]));
        assert_eq!(runs(&r(&[3, 5, 6])), [(Region(3), 1), (Region(5), 2)]);
    }

    #[test]
    fn refused_and_acted_on_regions_do_not_count_as_clear() {
        let mut a = AccessedBits::default();
        a.begin(r(&[1, 2]));
        a.cleared(&r(&[1, 2, 3, 4]), &BTreeSet::from([Region(2)]));
        a.spoil(Region(3));
        let aged: Vec<_> = (0..6).filter(|&n| a.is_aged(Region(n))).collect();
        assert_eq!(aged, [1, 4]);
        assert!(a.any_in(Region(2), Region(4)) && !a.any_in(Region(5), Region(9)));
        a.begin(Vec::new());
        assert!(!a.is_aged(Region(1)), "a new interval begins with nothing known");
    }
}
