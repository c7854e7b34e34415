//! Free page runs of an arena, in two states: dirty (their pages are there) and retained (given back, or never touched).

use crate::workload::PAGE;
use std::collections::{BTreeMap, BTreeSet};

/// Index of the class of page runs (four in each doubling) that holds runs of `pages` and more, up to the next class.
fn floor_class(pages: u64) -> usize {
    if pages < 8 {
        return pages as usize;
    }
    let shift = pages.ilog2() - 2;
    (shift as usize + 1) * 4 + ((pages >> shift) - 4) as usize
}

/// Index of the first class all runs of which have at least `pages`.
fn ceil_class(pages: u64) -> usize {
    let floor = floor_class(pages);
    let exact = pages < 8 || pages.trailing_zeros() >= pages.ilog2() - 2;
    floor + usize::from(!exact)
}

const CLASSES: usize = 256;

/// Free runs of one state, by place and by size.
#[derive(Debug)]
pub(super) struct Extents {
    /// Address to pages and the time of the last change.
    by_place: BTreeMap<u64, (u64, u64)>,
    by_class: Vec<BTreeSet<u64>>,
    /// By the time of the last change, oldest first.
    by_age: BTreeSet<(u64, u64)>,
    pages: u64,
}

impl Default for Extents {
    fn default() -> Self {
        Self {
            by_place: BTreeMap::new(),
            by_class: vec![BTreeSet::new(); CLASSES],
            by_age: BTreeSet::new(),
            pages: 0,
        }
    }
}

impl Extents {
    /// Pages of all runs.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    fn take(&mut self, address: u64) -> Option<u64> {
        let (pages, stamp) = self.by_place.remove(&address)?;
        self.by_class[floor_class(pages)].remove(&address);
        self.by_age.remove(&(stamp, address));
        self.pages -= pages;
        Some(pages)
    }

    fn put(&mut self, address: u64, pages: u64, stamp: u64) {
        self.by_place.insert(address, (pages, stamp));
        self.by_class[floor_class(pages)].insert(address);
        self.by_age.insert((stamp, address));
        self.pages += pages;
    }

    /// Adds a run and joins it with its neighbours of the same state. `joins` says whether runs on both sides of an address may be
    /// one: they must come from one mapping.
    pub(super) fn add(&mut self, address: u64, pages: u64, stamp: u64, joins: impl Fn(u64) -> bool) {
        let (mut from, mut count) = (address, pages);
        if let Some((before, n)) = self.by_place.range(..from).next_back().map(|(a, (n, _))| (*a, *n)) {
            if before + n * PAGE == from && joins(from) {
                self.take(before);
                (from, count) = (before, n + count);
            }
        }
        let end = from + count * PAGE;
        if self.by_place.contains_key(&end) && joins(end) {
            count += self.take(end).unwrap_or(0);
        }
        self.put(from, count, stamp);
    }

    /// Takes `pages` from the lowest run that surely fits (jemalloc's `extents_first_fit`); what is left of the run stays.
    pub(super) fn fit(&mut self, pages: u64) -> Option<u64> {
        let fitting = self.by_class[ceil_class(pages)..].iter();
        let address = fitting.filter_map(|class| class.first()).min().copied()?;
        let stamp = self.by_place[&address].1;
        let all = self.take(address)?;
        if all > pages {
            self.put(address + pages * PAGE, all - pages, stamp);
        }
        Some(address)
    }

    /// Takes the run that has not changed for longest.
    pub(super) fn oldest(&mut self) -> Option<(u64, u64)> {
        let (_, address) = self.by_age.first().copied()?;
        Some((address, self.take(address)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn classes_keep_their_promise(pages in 1u64..1 << 40, other in 1u64..1 << 40) {
            proptest::prop_assert!(floor_class(pages) < CLASSES);
            // Every run in a class at or above the ceiling of a request fits it.
            if floor_class(other) >= ceil_class(pages) {
                proptest::prop_assert!(other >= pages);
            }
            if other >= pages {
                proptest::prop_assert!(floor_class(other) >= floor_class(pages));
            }
        }

        #[test]
        fn no_page_is_lost_or_handed_out_twice(ops in proptest::collection::vec((1u64..20, 0usize..4), 1..100)) {
            let mut e = Extents::default();
            e.add(0, 1000, 0, |_| true);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (stamp, (pages, what)) in ops.into_iter().enumerate() {
                if what == 0 && !taken.is_empty() {
                    let (address, n) = taken.swap_remove(pages as usize % taken.len());
                    e.add(address, n, stamp as u64, |at| at != 500 * PAGE);
                } else if what == 1 {
                    if let Some((address, n)) = e.oldest() {
                        e.add(address, n, stamp as u64, |at| at != 500 * PAGE);
                    }
                } else if let Some(address) = e.fit(pages) {
                    for (a, n) in &taken {
                        proptest::prop_assert!(address + pages * PAGE <= *a || a + n * PAGE <= address);
                    }
                    taken.push((address, pages));
                }
                let out: u64 = taken.iter().map(|(_, n)| n).sum();
                proptest::prop_assert_eq!(e.pages() + out, 1000);
                proptest::prop_assert_eq!(e.by_place.len(), e.by_age.len());
            }
        }
    }
}
