//! Linux's khugepaged (Documentation/admin-guide/mm/transhuge.rst), for comparison: it scans memory round-robin at `pages_to_scan` base pages
//! per `scan_sleep` and promotes every region with at least 512 − `max_ptes_none` = 1 mapped page. As in the kernel, the shared zero page
//! counts as not mapped. It considers neither how much is mapped nor whether it is used, and never demotes.

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::{ProcessId, Region, Snapshot};
use crate::policy::params::{hand_on_parameters, parameters, Count};
use crate::policy::{Decision, Needs, Policy};
use crate::units::{BasePages, Time, REGION_PAGES};

parameters! {
    /// The kernel's settings with its defaults.
    pub struct KhugepagedParams for "khugepaged" {
        pages_to_scan: Count<1, 100_000_000> = Count(4096), "base pages scanned per pass";
        scan_sleep_s: Count<1, 1000> = Count(10), "seconds between passes";
        min_mapped: Count<1, 512> = Count(1), "mapped base pages from which a region is promoted (512 - max_ptes_none)";
    }
}

/// The policy: its scan position and the pages that it may still scan.
#[derive(Debug, Default)]
pub struct Khugepaged {
    params: KhugepagedParams,
    /// The next region. The scan covers all processes in turn, so that none starves.
    cursor: Option<(ProcessId, Region)>,
    last: Option<Time>,
    /// Base pages that may be scanned, in billionths, so that short intervals add up.
    credit: u128,
}

const BILLION: u128 = 1_000_000_000;

impl Khugepaged {
    /// Number of regions that may be scanned now.
    fn earn(&mut self, now: Time) -> u64 {
        let per_second = u128::from(self.params.pages_to_scan.0) * BILLION / u128::from(self.params.scan_sleep_s.0);
        let pass = u128::from(self.params.pages_to_scan.0) * BILLION;
        let since = self.last.map_or(0, |last| now.since(last).as_nanos());
        self.last = Some(now);
        // At most one pass's worth accumulates, or one region where a pass is less.
        let most = pass.max(u128::from(REGION_PAGES) * BILLION);
        self.credit = (self.credit + per_second * since / BILLION).min(most.max(per_second * since / BILLION));
        let regions = self.credit / BILLION / u128::from(REGION_PAGES);
        self.credit -= regions * u128::from(REGION_PAGES) * BILLION;
        u64::try_from(regions).unwrap_or(u64::MAX)
    }
}

impl Policy for Khugepaged {
    fn name(&self) -> &'static str {
        "khugepaged"
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = Decision::default();
        let left = usize::try_from(self.earn(seen.at)).unwrap_or(usize::MAX);
        // One round at most: from the cursor to the end, then from the beginning to the cursor.
        let cursor = self.cursor;
        let is_ahead = |process: ProcessId, region: Region| cursor.is_none_or(|at| (process, region) >= at);
        let all = || {
            seen.processes
                .iter()
                .flat_map(|process| process.regions.iter().map(|region| (process.id, region)))
        };
        let mut round = all()
            .filter(|(id, o)| is_ahead(*id, o.region))
            .chain(all().filter(|(id, o)| !is_ahead(*id, o.region)));
        for (process, region) in round.by_ref().take(left) {
            let wanted = !region.huge && !region.raced && region.can.promote && !region.shared;
            if wanted && region.populated().0 >= self.params.min_mapped.0 {
                decision.actions.push(Action {
                    process,
                    region: region.region,
                    kind: ActionKind::Promote,
                    reason: Reason::Mapped,
                    utilization: None,
                    benefit: region.populated(),
                    expect: Expect::Populated(BasePages(self.params.min_mapped.0)),
                });
            }
        }
        self.cursor = match round.next() {
            Some((process, region)) => Some((process, region.region)),
            // A whole round was completed, or there is nothing to scan.
            None => cursor,
        };
        decision
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{base, huge, Driver};

    #[test]
    fn it_looks_at_eight_regions_per_ten_seconds_and_goes_round() {
        let mut d = Driver::new(Khugepaged::default());
        let regions: Vec<_> = (0..10).map(|i| base(i, 1, 0)).collect();
        let mut promoted = Vec::new();
        for _ in 0..7 {
            d.see_all(&regions); // every five seconds: four regions
            promoted.push(d.actions().iter().map(|a| a.region.0).collect::<Vec<_>>());
        }
        assert_eq!(
            promoted[..4],
            [vec![], vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 0, 1]]
        );
        assert_eq!(promoted[4], [2, 3, 4, 5], "it goes on where it stopped");
    }

    #[test]
    fn one_mapped_page_is_enough_and_none_is_not() {
        let mut d = Driver::new(Khugepaged::default());
        let regions = [
            base(0, 0, 0),
            base(1, 1, 0),
            huge(2, true),
            base(3, 512, 0).shared(),
            base(4, 512, 0).zero(512),
        ];
        d.see_all(&regions);
        d.policy.set("pages_to_scan", "8192").unwrap();
        d.see_all(&regions);
        assert_eq!(d.kinds(), [(1, ActionKind::Promote, Reason::Mapped)]);
    }

    #[test]
    fn a_small_process_does_not_keep_a_large_one_waiting() {
        let mut d = Driver::new(Khugepaged::default());
        let (a, b) = (ProcessId { pid: 1, started: 1 }, ProcessId { pid: 2, started: 1 });
        let many: Vec<_> = (0..12).map(|i| base(i, 5, 0)).collect();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..5 {
            d.see_processes(&[(a, &many), (b, &many[..4])]);
            seen.extend(d.actions().iter().map(|action| (action.process.pid, action.region.0)));
        }
        assert_eq!(seen.len(), 16, "{seen:?}");
    }

    #[test]
    fn processes_take_turns() {
        let mut d = Driver::new(Khugepaged::default());
        let (a, b) = (ProcessId { pid: 1, started: 1 }, ProcessId { pid: 2, started: 1 });
        let many: Vec<_> = (0..6).map(|i| base(i, 5, 0)).collect();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..5 {
            d.see_processes(&[(a, &many), (b, &many)]);
            seen.extend(d.actions().iter().map(|action| (action.process.pid, action.region.0)));
        }
        assert_eq!(seen.len(), 12, "{seen:?}");
    }
}
