//! Collapses by others: khugepaged, the program's allocator, an agent in it.
//!
//! A region that had base pages at one scan and is one huge page at the next was collapsed, if not by us; one that the program gave back and
//! filled again in between looks the same. Others are not fought: [`crate::backoff`] leaves a region that was split and is huge again alone,
//! twice as long each time.

use std::collections::{BTreeMap, BTreeSet};

use crate::observe::{ProcessId, ProcessView, Region};
use crate::units::BasePages;

/// Base pages that a region must have had: fewer may have been given back meanwhile, and the region mapped huge at a fault.
const MAPPED: BasePages = BasePages(256);

/// What the last scan saw, of each process.
#[derive(Debug, Default)]
pub struct Others {
    seen: BTreeMap<ProcessId, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Regions of base pages, by rising address.
    base: Vec<Region>,
    /// Promoted by us since then.
    ours: BTreeSet<Region>,
}

impl Others {
    /// We have promoted this region.
    pub fn promoted(&mut self, process: ProcessId, region: Region) {
        self.seen.entry(process).or_default().ours.insert(region);
    }

    /// How many regions of a process others have collapsed since the scan before.
    pub fn collapsed(&mut self, process: &ProcessView) -> u64 {
        let base = process
            .regions
            .iter()
            .filter(|seen| !seen.huge && seen.mapped >= MAPPED);
        let now = Seen {
            base: base.map(|seen| seen.region).collect(),
            ours: BTreeSet::new(),
        };
        let before = self.seen.insert(process.id, now).unwrap_or_default();
        let huge = process.regions.iter().filter(|seen| seen.huge && !seen.raced);
        let by_others = |region: &Region| before.base.binary_search(region).is_ok() && !before.ours.contains(region);
        huge.filter(|seen| by_others(&seen.region)).count() as u64
    }

    /// Forgets the processes that are gone.
    pub fn keep(&mut self, alive: impl Fn(ProcessId) -> bool) {
        self.seen.retain(|id, _| alive(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Can, Observation};

    fn view(regions: &[(u64, u32, bool)]) -> ProcessView {
        let seen = |&(region, mapped, huge): &(u64, u32, bool)| Observation {
            region: Region(region),
            mapped: BasePages(mapped),
            accessed: BasePages(0),
            dirty: BasePages(0),
            zero: None,
            kept: BasePages(0),
            huge,
            shared: false,
            raced: false,
            aged: false,
            can: Can::ALL,
        };
        ProcessView {
            id: ProcessId { pid: 1, started: 2 },
            regions: regions.iter().map(seen).collect(),
        }
    }

    #[test]
    fn what_had_base_pages_and_is_huge_without_us_was_collapsed_by_others() {
        let mut others = Others::default();
        let before = view(&[
            (1, 512, false),
            (2, 512, false),
            (3, 10, false),
            (4, 512, true),
            (5, 300, false),
        ]);
        assert_eq!(others.collapsed(&before), 0);
        others.promoted(before.id, Region(2));
        // 1: by others. 2: by us. 3: hardly anything was there. 4: as before. 5: not. 6: new, mapped at a fault.
        let after = view(&[
            (1, 512, true),
            (2, 512, true),
            (3, 512, true),
            (4, 512, true),
            (5, 300, false),
            (6, 512, true),
        ]);
        assert_eq!(others.collapsed(&after), 1);
        assert_eq!(others.collapsed(&after), 0, "each once");
        others.keep(|_| false);
        assert_eq!(others.collapsed(&before), 0);
    }
}
