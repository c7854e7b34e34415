//! What Linux's khugepaged does (Documentation/admin-guide/mm/transhuge.rst), for comparison: it goes round the memory at
//! `pages_to_scan` base pages per `scan_sleep` and promotes every region with at least 512 − `max_ptes_none` = 1 mapped page.
//! It asks neither how much is mapped nor whether it is used, and never demotes.

use std::collections::BTreeMap;

use crate::action::{Action, Expect, Kind, Reason};
use crate::observe::{ProcessId, Region, Snapshot};
use crate::policy::params::{parameters, Count};
use crate::policy::{Decision, Needs, Param, ParamError, Policy};
use crate::units::{BasePages, Time, REGION_PAGES};

parameters! {
    /// The kernel's knobs with its defaults.
    pub struct KhugepagedParams for "khugepaged" {
        pages_to_scan: Count<1, 100_000_000> = Count(4096), "base pages looked at per pass";
        scan_sleep_s: Count<1, 1000> = Count(10), "seconds between passes";
        min_mapped: Count<1, 512> = Count(1), "mapped base pages from which a region is promoted (512 - max_ptes_none)";
    }
}

/// The policy: how far it has come in each process, and how many pages it may still look at.
#[derive(Debug, Default)]
pub struct Khugepaged {
    params: KhugepagedParams,
    cursors: BTreeMap<ProcessId, Region>,
    last: Option<Time>,
    /// Base pages that may be looked at, in billionths, so that short intervals add up.
    credit: u128,
}

const BILLION: u128 = 1_000_000_000;

impl Khugepaged {
    /// Regions that may be looked at now.
    fn earn(&mut self, now: Time) -> u64 {
        let per_second = u128::from(self.params.pages_to_scan.0) * BILLION / u128::from(self.params.scan_sleep_s.0);
        let pass = u128::from(self.params.pages_to_scan.0) * BILLION;
        let since = self.last.map_or(0, |last| now.since(last).as_nanos());
        self.last = Some(now);
        // Never more than a pass in stock, or one region where a pass is less than that.
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
        let mut left = self.earn(seen.at);
        self.cursors
            .retain(|id, _| seen.processes.iter().any(|process| process.id == *id));
        // The process that is furthest behind goes first, so that one large process cannot keep the others waiting for ever.
        let mut order: Vec<_> = seen.processes.iter().collect();
        order.sort_by_key(|process| (self.cursors.get(&process.id).is_some(), process.id));
        for process in order {
            let from = self.cursors.get(&process.id).copied();
            let start = from.map_or(0, |from| process.regions.partition_point(|o| o.region < from));
            for region in &process.regions[start..] {
                if left == 0 {
                    self.cursors.insert(process.id, region.region);
                    return decision;
                }
                left -= 1;
                let wanted = !region.huge && !region.raced && region.can.promote && !region.shared;
                if wanted && region.mapped.0 >= self.params.min_mapped.0 {
                    decision.actions.push(Action {
                        process: process.id,
                        region: region.region,
                        kind: Kind::Promote,
                        reason: Reason::Mapped,
                        utilization: None,
                        benefit: region.mapped,
                        expect: Expect::Populated(BasePages(0)),
                    });
                }
            }
            self.cursors.remove(&process.id);
        }
        decision
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParamError> {
        self.params.set(name, value)
    }

    fn params(&self) -> Vec<Param> {
        self.params.list()
    }
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
        assert_eq!(promoted[..4], [vec![], vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
        assert_eq!(promoted[4][0], 0, "it begins again");
    }

    #[test]
    fn one_mapped_page_is_enough_and_none_is_not() {
        let mut d = Driver::new(Khugepaged::default());
        let regions = [base(0, 0, 0), base(1, 1, 0), huge(2, true), base(3, 512, 0).shared()];
        d.see_all(&regions);
        d.see_all(&regions);
        assert_eq!(d.kinds(), [(1, Kind::Promote, Reason::Mapped)]);
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
