//! Scans as accesses: what a program did between two looks, as far as they tell. A recording of a real program has scans and mappings and no
//! accesses; so it is replayed all the same.
//!
//! At each scan, in each 2 MB region: pages that are there for the first time are written, pages that are gone are given back, and as many of the
//! others are read as had their accessed bit set. A scan says how many they are, not which: pages count from the first one that is mapped. It does
//! not say how often one was accessed either. So memory, huge pages and what a policy decides follow from it, run times do not.

use std::collections::{BTreeMap, VecDeque};

use mega_core::observe::{Observation, Region};
use mega_core::units::{BASE_PAGE_BYTES as PAGE, HUGE_PAGE_BYTES as HUGE, REGION_PAGES};

use super::{Advice, Kind, Record, Source, TraceError};

const PAGES: usize = REGION_PAGES as usize;
/// The most regions that are remembered (32 TB), as in a scan: a small file cannot ask for all memory.
const MOST_REGIONS: usize = 1 << 24;

/// The pages of a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pages([u64; PAGES / 64]);

impl Pages {
    fn has(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 == 1
    }

    fn set(&mut self, page: usize, on: bool) {
        let bit = 1 << (page % 64);
        match on {
            true => self.0[page / 64] |= bit,
            false => self.0[page / 64] &= !bit,
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// A region as the replay has it.
#[derive(Debug, Default)]
struct Held {
    pages: Pages,
    /// It was in the scan that goes on.
    is_seen: bool,
}

/// A source of accesses made from the scans of another, of one process: the given one, or the first.
#[derive(Debug)]
pub struct Visits<S> {
    source: S,
    process: Option<u32>,
    is_ours: bool,
    is_scan: bool,
    ended: bool,
    /// Mappings: first address, end.
    mappings: BTreeMap<u64, u64>,
    held: BTreeMap<Region, Held>,
    ready: VecDeque<Record>,
    records: u64,
    /// Regions of the process in all scans.
    regions: u64,
}

impl<S: Source> Visits<S> {
    /// Of this source.
    pub fn new(source: S, process: Option<u32>) -> Self {
        Self {
            source,
            process,
            is_ours: process.is_none(),
            is_scan: false,
            ended: false,
            mappings: BTreeMap::new(),
            held: BTreeMap::new(),
            ready: VecDeque::new(),
            records: 0,
            regions: 0,
        }
    }

    fn wrong(&self, what: String) -> TraceError {
        TraceError::Replay {
            record: self.records.saturating_sub(1),
            what,
        }
    }

    fn take(&mut self, record: Record) -> Result<(), TraceError> {
        match record {
            Record::Region(seen) => {
                if self.is_ours && self.is_scan {
                    self.region(&seen)?;
                }
                return Ok(());
            }
            Record::Process(id) => {
                self.is_ours = *self.process.get_or_insert(id.pid) == id.pid;
                return Ok(());
            }
            _ => self.scan_ends(),
        }
        match record {
            Record::Scan(_) => self.is_scan = true,
            Record::Time(_) => {}
            _ if !self.is_ours => return Ok(()),
            Record::Map { address, bytes } => self.map(address, bytes),
            Record::Unmap { address, bytes } => self.unmap(address, bytes),
            // Recordings of processes have nothing else.
            _ => return Ok(()),
        }
        self.ready.push_back(record);
        Ok(())
    }

    fn map(&mut self, address: u64, bytes: u64) {
        self.forget(address, bytes);
        if bytes > 0 {
            self.mappings.insert(address, address.saturating_add(bytes));
        }
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        self.forget(address, bytes);
    }

    /// A range is mapped no longer, or anew: nothing is in it.
    fn forget(&mut self, address: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let end = address.saturating_add(bytes);
        let before = self.mappings.range(..end).rev();
        let met: Vec<(u64, u64)> = before
            .take_while(|(_, to)| **to > address)
            .map(|(from, to)| (*from, *to))
            .collect();
        for (from, to) in met {
            self.mappings.remove(&from);
            if from < address {
                self.mappings.insert(from, address);
            }
            if to > end {
                self.mappings.insert(end, to);
            }
        }
        let regions = Region(address / HUGE)..=Region(end.saturating_sub(1) / HUGE);
        for (region, held) in self.held.range_mut(regions) {
            let start = region.0 * HUGE;
            for page in 0..PAGES {
                let at = start + page as u64 * PAGE;
                if at.saturating_add(PAGE) > address && at < end {
                    held.pages.set(page, false);
                }
            }
        }
    }

    /// The pages of a region that are mapped.
    fn mapped(&self, region: Region) -> Pages {
        let mut pages = Pages::default();
        let start = region.0 * HUGE;
        for (from, to) in self
            .mappings
            .range(..start + HUGE)
            .rev()
            .take_while(|(_, to)| **to > start)
        {
            let first = from.saturating_sub(start).div_ceil(PAGE) as usize;
            let end = ((*to - start) / PAGE).min(PAGES as u64) as usize;
            (first..end).for_each(|page| pages.set(page, true));
        }
        pages
    }

    fn region(&mut self, seen: &Observation) -> Result<(), TraceError> {
        if !seen.is_sane() || seen.region.0 >= u64::MAX / HUGE {
            return Err(self.wrong(format!("impossible page counts for region {}", seen.region)));
        }
        if self.held.len() >= MOST_REGIONS {
            return Err(self.wrong(format!("more than {MOST_REGIONS} regions")));
        }
        let mapped = self.mapped(seen.region);
        let (held, ready) = (self.held.entry(seen.region).or_default(), &mut self.ready);
        held.is_seen = true;
        self.regions += 1;
        let (before, now) = (held.pages.count(), seen.mapped.0 as usize);
        let old = held.pages;
        // What no mapping is known for comes last: the replay counts it as left out.
        let places = (0..PAGES).filter(|page| mapped.has(*page));
        let others = (0..PAGES).filter(|page| !mapped.has(*page));
        let new: Vec<usize> = places
            .chain(others)
            .filter(|page| !old.has(*page))
            .take(now.saturating_sub(before))
            .collect();
        new.iter().for_each(|page| held.pages.set(*page, true));
        runs(ready, seen.region, &new, Kind::Write);
        let mut gone: Vec<usize> = (0..PAGES)
            .rev()
            .filter(|page| old.has(*page))
            .take(before.saturating_sub(now))
            .collect();
        gone.reverse();
        gone.iter().for_each(|page| held.pages.set(*page, false));
        give_back(ready, seen.region, &gone);
        let again = (seen.accessed.0 as usize).saturating_sub(new.len());
        let again: Vec<usize> = (0..PAGES)
            .filter(|page| old.has(*page) && held.pages.has(*page))
            .take(again)
            .collect();
        runs(ready, seen.region, &again, Kind::Read);
        Ok(())
    }

    /// What the scan did not have is gone.
    fn scan_ends(&mut self) {
        if !std::mem::take(&mut self.is_scan) {
            return;
        }
        let ready = &mut self.ready;
        self.held.retain(|region, held| {
            let is_seen = std::mem::take(&mut held.is_seen);
            if !is_seen {
                let gone: Vec<usize> = (0..PAGES).filter(|page| held.pages.has(*page)).collect();
                give_back(ready, *region, &gone);
            }
            is_seen
        });
    }
}

/// Adjacent pages: the first, and how many.
fn adjacent(pages: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    pages.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run.len()))
}

fn address(region: Region, page: usize) -> u64 {
    region.0 * HUGE + page as u64 * PAGE
}

fn runs(ready: &mut VecDeque<Record>, region: Region, pages: &[usize], kind: Kind) {
    ready.extend(adjacent(pages).map(|(first, count)| Record::Run {
        address: address(region, first),
        stride: PAGE as i64,
        count: count as u64,
        kind,
    }));
}

fn give_back(ready: &mut VecDeque<Record>, region: Region, pages: &[usize]) {
    ready.extend(adjacent(pages).map(|(first, count)| Record::Advise {
        address: address(region, first),
        bytes: count as u64 * PAGE,
        advice: Advice::DontNeed,
    }));
}

impl<S: Source> Source for Visits<S> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(None);
            }
            match self.source.next_record()? {
                Some(record) => {
                    self.records += 1;
                    self.take(record)?;
                }
                None => {
                    self.ended = true;
                    self.scan_ends();
                    if self.regions == 0 {
                        return Err(self.wrong("no scan shows memory of the process".to_string()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scans::testing::{process, region, scan};
    use crate::testing::any_record;
    use proptest::prelude::*;

    const R: u64 = 5;

    fn map(page: u64, pages: u64) -> Record {
        Record::Map {
            address: R * HUGE + page * PAGE,
            bytes: pages * PAGE,
        }
    }

    fn run(page: u64, count: u64, kind: Kind) -> Record {
        Record::Run {
            address: R * HUGE + page * PAGE,
            stride: PAGE as i64,
            count,
            kind,
        }
    }

    fn gone(page: u64, pages: u64) -> Record {
        Record::Advise {
            address: R * HUGE + page * PAGE,
            bytes: pages * PAGE,
            advice: Advice::DontNeed,
        }
    }

    fn all(records: Vec<Record>) -> Vec<Record> {
        let mut visits = Visits::new(records.into_iter(), None);
        std::iter::from_fn(|| visits.next_record().unwrap())
            .filter(|record| !matches!(record, Record::Scan(_)))
            .collect()
    }

    #[test]
    fn new_pages_are_written_gone_ones_given_back_and_accessed_ones_read() {
        let records = vec![
            process(1),
            // Its first ten pages are no memory of the process.
            map(10, 502),
            scan(),
            region(R, 100, 100),
            Record::Time(9),
            scan(),
            region(R, 120, 50),
            scan(),
            region(R, 90, 0),
            scan(),
        ];
        let expected = vec![
            map(10, 502),
            run(10, 100, Kind::Write),
            Record::Time(9),
            run(110, 20, Kind::Write),
            // Twenty of the fifty are new.
            run(10, 30, Kind::Read),
            gone(100, 30),
            // The last scan does not have it.
            gone(10, 90),
        ];
        assert_eq!(all(records), expected);
    }

    #[test]
    fn what_was_unmapped_is_not_held_and_others_are_left_out() {
        let unmap = Record::Unmap {
            address: R * HUGE,
            bytes: 50 * PAGE,
        };
        let records = vec![
            process(1),
            map(0, 100),
            scan(),
            region(R, 100, 100),
            process(2),
            region(R, 512, 512),
            process(1),
            unmap,
            scan(),
            region(R, 50, 50),
            process(2),
            map(0, 512),
        ];
        let expected = vec![map(0, 100), run(0, 100, Kind::Write), unmap, run(50, 50, Kind::Read)];
        assert_eq!(all(records), expected);
    }

    #[test]
    fn without_scans_of_the_process_there_is_nothing_to_do() {
        let records = vec![process(1), map(0, 100), scan(), process(2), region(R, 512, 512)];
        let mut visits = Visits::new(records.into_iter(), None);
        let found = std::iter::from_fn(|| visits.next_record().transpose()).find_map(Result::err);
        assert!(found.is_some_and(|error| error.to_string().contains("no scan shows memory")));
    }

    proptest! {
        #[test]
        fn the_pages_held_are_those_of_the_last_scan(counts in proptest::collection::vec(0u32..=512, 1..20)) {
            let scans = counts.iter().flat_map(|n| [scan(), region(R, *n, *n / 2)]);
            let mut visits = Visits::new([process(1), map(0, 512)].into_iter().chain(scans).collect::<Vec<_>>().into_iter(), None);
            while visits.next_record().unwrap().is_some() {
                let held = visits.held.get(&Region(R)).map_or(0, |held| held.pages.count());
                prop_assert!(held <= 512);
            }
            let held = visits.held.get(&Region(R)).map_or(0, |held| held.pages.count());
            prop_assert_eq!(held, *counts.last().unwrap() as usize);
        }

        #[test]
        fn no_trace_makes_it_panic(records in proptest::collection::vec(any_record(), 0..60)) {
            let mut visits = Visits::new(records.into_iter(), None);
            while let Ok(Some(_)) = visits.next_record() {}
        }
    }
}
