//! Which processes a look passes over: those that have not run since the look before, and small ones that have hardly changed. They are
//! observed as they were.
//!
//! That a process has not run is known exactly (the processor time of its threads), and what it did not touch has not changed: but for what
//! others do to it, so it is looked at again from time to time all the same. A small one, less than a region's worth of memory in all, is
//! looked at the more rarely the longer it stays so.

use mega_core::ageing::accessed_bits::AccessedBits;
use mega_core::observe::Observation;
use mega_core::units::{BasePages, REGION_PAGES};

use crate::process::tasks::Task;

/// Looks passed over in a row at most: a minute's at the usual interval. Small ones that have not run: [`ASLEEP_MAX`].
const PASSED_MAX: u32 = 12;
const ASLEEP_MAX: u32 = 60;
/// Faults and pages from which a small process has changed. The kernel's counters may lag by some dozen pages.
const CHANGED: u64 = 64;
/// Regions kept of a process at most: 8 GB, 200 KB of ours. Larger ones are looked at each time.
const KEPT_MAX: usize = 4096;

/// What a look saw of a process, and how the process stood then.
#[derive(Debug, Default)]
pub struct Quiet {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    ran_ns: u64,
    faults: u64,
    pages: u64,
    space: u64,
    /// It had not run since the look before, so that its accessed bits say what a look now would say.
    is_settled: bool,
    /// All its mapped pages are less than a region.
    is_small: bool,
    /// Looks passed over since, and how many may be.
    passed: u32,
    most: u32,
    /// Fewer than that, by its PID.
    early: u32,
    regions: Vec<Observation>,
}

impl Quiet {
    /// What a look now would see, if there is no need for one.
    pub fn pass(&mut self, now: &Task, aged: &mut AccessedBits) -> Option<Vec<Observation>> {
        let seen = self.seen.as_mut()?;
        if seen.space != now.space || now.space == 0 || seen.passed >= seen.most - seen.early {
            return None;
        }
        let has_run = now.ran_ns != seen.ran_ns;
        let changed = now.faults.abs_diff(seen.faults) >= CHANGED || now.resident_pages.abs_diff(seen.pages) >= CHANGED;
        let is_due = match (has_run, seen.is_settled) {
            (false, true) => changed,
            _ => changed || !seen.is_small || seen.passed >= PASSED_MAX,
        };
        if is_due {
            return None;
        }
        seen.passed += 1;
        for region in &mut seen.regions {
            region.aged = !has_run && aged.is_aged(region.region);
            if region.aged {
                region.accessed = BasePages::ZERO;
            }
        }
        aged.begin(accessed(&seen.regions));
        Some(seen.regions.clone())
    }

    /// Keeps what a look saw, of a process that stood so before it.
    pub fn keep(&mut self, before: Option<&Task>, regions: &[Observation]) {
        let Some(before) = before.filter(|_| regions.len() <= KEPT_MAX) else {
            self.seen = None;
            return;
        };
        let mapped: u64 = regions.iter().map(|seen| u64::from(seen.mapped.0)).sum();
        let is_small = mapped < u64::from(REGION_PAGES);
        let last = self.seen.take();
        let is_settled = last
            .as_ref()
            .is_some_and(|last| last.ran_ns == before.ran_ns && last.space == before.space);
        // Small ones are passed over once, then twice as often each time.
        let most = match (is_small, is_settled) {
            (true, true) => last.map_or(1, |last| last.most * 2).min(ASLEEP_MAX),
            (true, false) => last.map_or(1, |last| last.most * 2).min(PASSED_MAX),
            (false, true) => PASSED_MAX,
            (false, false) => 0,
        };
        self.seen = Some(Seen {
            ran_ns: before.ran_ns,
            faults: before.faults,
            pages: before.resident_pages,
            space: before.space,
            is_settled,
            is_small,
            passed: 0,
            // Else all that were found at the same look would be looked at at the same looks.
            most: most.max(u32::from(is_small)),
            early: before.pid % (most / 2).max(1),
            regions: regions.to_vec(),
        });
    }

    /// Something was done to it.
    pub fn forget(&mut self) {
        self.seen = None;
    }
}

/// The regions with accessed pages, by rising address.
pub fn accessed(regions: &[Observation]) -> Vec<mega_core::observe::Region> {
    regions
        .iter()
        .filter(|seen| seen.accessed > BasePages::ZERO || seen.raced)
        .map(|seen| seen.region)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mega_core::observe::{Can, Region};

    use super::*;

    fn task(ran_ns: u64, faults: u64) -> Task {
        Task {
            // Of the longest pause nothing is taken off.
            pid: 0,
            parent: 1,
            flags: 0,
            start_ticks: 1,
            ran_ns,
            faults,
            space: 0xabc,
            resident_pages: 1000,
            exit_signal: 17,
            threads: 1,
            is_zombie: false,
            comm: "x".into(),
        }
    }

    fn region(mapped: u32, accessed: u32) -> Observation {
        Observation {
            region: Region(5),
            mapped: BasePages(mapped),
            accessed: BasePages(accessed),
            dirty: BasePages::ZERO,
            zero: None,
            kept: BasePages(0),
            huge: false,
            shared: false,
            raced: false,
            aged: false,
            can: Can::ALL,
        }
    }

    /// Looks passed over before the next one.
    fn passed(quiet: &mut Quiet, now: &Task) -> u32 {
        let mut aged = AccessedBits::default();
        let mut passed = 0;
        while quiet.pass(now, &mut aged).is_some() {
            passed += 1;
        }
        passed
    }

    #[test]
    fn a_large_process_is_passed_over_once_two_looks_have_found_that_it_does_not_run() {
        let (mut quiet, now) = (Quiet::default(), task(10, 5));
        assert_eq!(passed(&mut quiet, &now), 0, "never looked at");
        quiet.keep(Some(&now), &[region(512, 300)]);
        assert_eq!(
            passed(&mut quiet, &now),
            0,
            "what it did before that look may show at the next"
        );
        quiet.keep(Some(&now), &[region(512, 300)]);
        assert_eq!(passed(&mut quiet, &now), PASSED_MAX);
        quiet.keep(Some(&now), &[region(512, 300)]);
        assert_eq!(passed(&mut quiet, &task(11, 5)), 0, "it has run");
        quiet.keep(Some(&now), &[region(512, 300)]);
        let moved = Task {
            space: 0xdef,
            ..now.clone()
        };
        assert_eq!(passed(&mut quiet, &moved), 0, "exec");
        let shrunk = Task {
            resident_pages: 500,
            ..now.clone()
        };
        assert_eq!(passed(&mut quiet, &shrunk), 0, "others took memory from it");
        quiet.forget();
        assert_eq!(passed(&mut quiet, &now), 0, "acted on");
        quiet.keep(None, &[region(512, 300)]);
        assert_eq!(passed(&mut quiet, &now), 0, "without a table");
    }

    #[test]
    fn a_small_process_is_looked_at_ever_more_rarely_until_it_grows() {
        let mut quiet = Quiet::default();
        let looks: Vec<u32> = (1..9)
            .map(|n| {
                quiet.keep(Some(&task(n, n)), &[region(100, 50)]);
                passed(&mut quiet, &task(n + 1, n + 1))
            })
            .collect();
        assert_eq!(looks, [1, 2, 4, 8, 12, 12, 12, 12], "while it runs");
        quiet.keep(Some(&task(100, 100)), &[region(100, 50)]);
        assert_eq!(
            passed(&mut quiet, &task(101, 100 + CHANGED)),
            0,
            "it has faulted pages in"
        );
        let mut asleep = Quiet::default();
        let looks: Vec<u32> = (1..9)
            .map(|_| {
                asleep.keep(Some(&task(1, 1)), &[region(100, 50)]);
                passed(&mut asleep, &task(1, 1))
            })
            .collect();
        assert_eq!(looks, [1, 2, 4, 8, 16, 32, 60, 60], "asleep");
    }

    #[test]
    fn what_was_cleared_and_did_not_run_was_not_accessed() {
        let (mut quiet, now) = (Quiet::default(), task(10, 5));
        quiet.keep(Some(&now), &[region(512, 300)]);
        quiet.keep(Some(&now), &[region(512, 300)]);
        let mut aged = AccessedBits::default();
        aged.begin(vec![Region(5)]);
        assert_eq!(aged.to_clear(&[Region(5)]), [Region(5)]);
        aged.cleared(&[Region(5)], &BTreeSet::new());
        let seen = quiet.pass(&now, &mut aged).unwrap();
        assert!(seen[0].aged && seen[0].accessed == BasePages::ZERO);
        assert!(aged.to_clear(&[Region(5)]).is_empty(), "its bits are clear already");
        let again = quiet.pass(&now, &mut aged).unwrap();
        assert!(!again[0].aged, "nobody asked to clear it since");
    }

    #[test]
    fn a_process_of_many_regions_is_not_kept() {
        let mut quiet = Quiet::default();
        let many = vec![region(512, 1); KEPT_MAX + 1];
        quiet.keep(Some(&task(1, 1)), &many);
        quiet.keep(Some(&task(1, 1)), &many);
        assert_eq!(passed(&mut quiet, &task(1, 1)), 0);
    }
}
