//! Which regions' accessed bits tell about exactly one interval: those that were clear when it began. The live host's rules (mega-linux, `host::aged`).

use std::collections::BTreeSet;

use mega_core::observe::Region;

/// The state of one process's accessed bits, by rising address.
#[derive(Debug, Default)]
pub struct Aged {
    clear: Vec<Region>,
    accessed: Vec<Region>,
    spoiled: BTreeSet<Region>,
}

impl Aged {
    /// Whether the region was clear when the interval began.
    pub fn is_aged(&self, region: Region) -> bool {
        self.clear.binary_search(&region).is_ok() && !self.spoiled.contains(&region)
    }

    /// Begins an interval: what the scan found accessed, by rising address.
    pub fn begin(&mut self, accessed: Vec<Region>) {
        self.accessed = accessed;
        self.clear.clear();
        self.spoiled.clear();
    }

    /// Of the regions asked for, those that must be cleared; the others were not accessed and are clear.
    pub fn to_clear(&self, regions: &[Region]) -> Vec<Region> {
        let accessed = |region: &&Region| self.accessed.binary_search(region).is_ok();
        regions.iter().filter(accessed).copied().collect()
    }

    /// Takes note that these regions (by rising address) are clear now, but for the ones that were refused.
    pub fn cleared(&mut self, regions: &[Region], refused: &BTreeSet<Region>) {
        let kept = regions.iter().filter(|region| !refused.contains(region));
        self.clear = kept.copied().collect();
    }

    /// Takes note that a region was acted on: that sets accessed bits.
    pub fn spoil(&mut self, region: Region) {
        self.spoiled.insert(region);
    }
}
