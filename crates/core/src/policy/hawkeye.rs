//! HawkEye (Panwar, Bansal, Gopinath: ASPLOS'19), from LRBHPS, section 2.3, and code (docs/papers.md).
//!
//! - A region is promoted, asynchronously, once it has **one** mapped page.
//! - Order: access coverage. Every 30 s the accessed bits are cleared and read 1 s later; a moving average of the accessed share puts each
//!   region into one of 10 buckets; the highest bucket goes first. Here the read comes with the next scan: with `--interval 1s` it is the
//!   paper's second.
//! - Bloat recovery under pressure (code: less than 15 % of memory free, until 30 %): huge pages are read for zero-filled base pages; those
//!   with more than a threshold are demoted, most zeroes first, until enough is recovered.
//! - Not here: pre-zeroing of free pages, which no process's memory shows (the fault policy `hawkeye` has it), and the order across processes
//!   by measured MMU overhead, which no host measures. Processes take turns.

use std::time::Duration;

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::Snapshot;
use crate::policy::params::{hand_on_parameters, parameters, Count, ParamError};
use crate::policy::table::Table;
use crate::policy::{Decision, Needs, Policy, ZERO_FILLED_LIMIT};
use crate::units::{BasePages, Share, Time, BASE_PAGE_BYTES, REGION_PAGES};

parameters! {
    /// HawkEye's parameters.
    pub struct HawkeyeParams for "hawkeye" {
        sample: Duration = Duration::from_secs(30), "time between two samples of accessed bits";
        buckets: Count<1, 512> = Count(10), "buckets of access coverage";
        newest: Share = Share::percent(40), "weight of the newest sample in the moving average of access coverage";
        min_mapped: Count<1, 512> = Count(1), "mapped base pages from which a region is promoted";
        low: Share = Share::percent(15), "available memory below which bloat is recovered";
        aim: Share = Share::percent(30), "available memory at which bloat recovery stops";
        zero: Share = ZERO_FILLED_LIMIT, "zero-filled share from which bloat recovery demotes a huge page";
    }
}

/// The policy, and the access coverage of every region.
#[derive(Debug, Default)]
pub struct Hawkeye {
    params: HawkeyeParams,
    coverage: Table<Share>,
    sampled: Option<Time>,
}

impl Hawkeye {
    /// Average coverage after a look; a look that does not tell about one interval changes nothing.
    fn average(&self, had: Option<Share>, newest: Share, aged: bool) -> Option<Share> {
        match (had, aged) {
            (_, false) => had,
            (None, true) => Some(newest),
            (Some(old), true) => {
                let weight = self.params.newest.fraction();
                let mean = weight * newest.fraction() + (1.0 - weight) * old.fraction();
                Some(Share::millionths((mean * 1e6).round() as u32))
            }
        }
    }

    /// Benefit of a promotion: higher in a higher bucket, equal within one. A region never sampled is in the lowest.
    fn worth(&self, coverage: Option<Share>) -> BasePages {
        let n = self.params.buckets.0;
        let millionths = u64::from(coverage.unwrap_or(Share::ZERO).as_millionths());
        let bucket = (millionths * u64::from(n) / 1_000_000).min(u64::from(n) - 1) as u32;
        BasePages((bucket + 1) * REGION_PAGES / n)
    }
}

impl Policy for Hawkeye {
    fn name(&self) -> &'static str {
        "hawkeye"
    }

    fn needs(&self) -> Needs {
        Needs {
            utilization: true,
            contents: true,
            ..Needs::default()
        }
    }

    fn without_utilization(&self) -> Option<&'static str> {
        Some("promotes in no particular order")
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = Decision::default();
        let mut table = std::mem::take(&mut self.coverage);
        table.keep_only(&seen.processes);
        let due = self
            .sampled
            .is_none_or(|last| seen.at.since(last) >= self.params.sample);
        if due {
            self.sampled = Some(seen.at);
        }
        let machine = &seen.machine;
        let (available, total) = (machine.available_bytes.0, machine.total_bytes.0);
        let short = !self.params.low.reached_by(available, total);
        let mut recovered = Vec::new();
        for process in &seen.processes {
            let mut age = Vec::new();
            table.update(process, |region, had| {
                if region.raced {
                    return had;
                }
                if due && region.can.age && !region.shared {
                    age.push(region.region);
                }
                let coverage = self.average(had, region.utilization(), region.aged);
                let action = |kind, reason, benefit, expect| Action {
                    process: process.id,
                    region: region.region,
                    kind,
                    reason,
                    utilization: coverage,
                    benefit,
                    expect,
                };
                if !region.huge {
                    let enough = region.populated().0 >= self.params.min_mapped.0;
                    decision.candidates += usize::from(enough);
                    if enough && region.can.promote && !region.shared && !short {
                        let expect = Expect::Populated(BasePages(self.params.min_mapped.0));
                        let worth = self.worth(coverage);
                        decision
                            .actions
                            .push(action(ActionKind::Promote, Reason::Utilized, worth, expect));
                    }
                } else if short && region.can.demote && !region.shared {
                    let zero = region.zero.unwrap_or_default();
                    if zero > BasePages::ZERO && self.params.zero.reached_by_pages(zero) {
                        let expect = Expect::Zero(zero.less(BasePages(zero.0 / 8)));
                        recovered.push(action(ActionKind::Demote, Reason::ZeroFilled, zero, expect));
                    }
                }
                coverage
            });
            decision.age.push((process.id, age));
        }
        self.coverage = table;
        // Most zeroes first, as much as the goal needs.
        recovered.sort_by_key(|action| std::cmp::Reverse(action.benefit));
        let aim = (total as f64 * self.params.aim.fraction()) as u64;
        let mut missing = aim.saturating_sub(available);
        for action in recovered {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(u64::from(action.benefit.0) * BASE_PAGE_BYTES);
            decision.actions.push(action);
        }
        decision
    }

    hand_on_parameters!();

    fn check(&self) -> Result<(), ParamError> {
        if self.params.aim < self.params.low {
            return Err(ParamError::Inconsistent {
                policy: "hawkeye",
                rule: "aim must be at least low",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::ProcessView;
    use crate::policy::testing::{base, huge, machine, Driver, PROCESS};
    use crate::units::Bytes;

    #[test]
    fn one_mapped_page_is_enough_and_what_is_accessed_most_goes_first() {
        let mut d = Driver::new(Hawkeye::default());
        d.see_all(&[
            base(1, 1, 0),
            base(2, 512, 60),
            base(3, 512, 500),
            base(4, 0, 0),
            huge(5, true),
        ]);
        let mut actions = d.actions().to_vec();
        actions.sort_by_key(|action| std::cmp::Reverse(action.benefit));
        let order: Vec<_> = actions.iter().map(|action| action.region.0).collect();
        assert_eq!(order, [3, 2, 1]);
        assert!(actions.iter().all(|action| action.kind == ActionKind::Promote));
    }

    #[test]
    fn regions_of_one_bucket_are_worth_the_same() {
        let policy = Hawkeye::default();
        let of = |percent| policy.worth(Some(Share::percent(percent)));
        assert_eq!(of(90), of(100));
        assert!(of(89) < of(90));
        assert_eq!(of(0), policy.worth(None));
        assert!(of(0) > BasePages::ZERO);
    }

    #[test]
    fn it_looks_every_thirty_seconds_and_averages() {
        let mut d = Driver::new(Hawkeye::default());
        let mut aged = Vec::new();
        for _ in 0..7 {
            d.see(base(1, 512, 512)); // every five seconds
            aged.push(d.aged());
        }
        assert_eq!(aged, [1, 0, 0, 0, 0, 0, 1]);
        let policy = &d.policy;
        let mean = policy.average(Some(Share::FULL), Share::ZERO, true);
        assert_eq!(mean, Some(Share::percent(60)));
        assert_eq!(policy.average(Some(Share::FULL), Share::ZERO, false), Some(Share::FULL));
    }

    #[test]
    fn bloat_is_recovered_only_when_memory_is_short_and_only_to_the_aim() {
        let mut policy = Hawkeye::default();
        let mut look = |available_percent: u64| {
            let mut machine = machine();
            machine.total_bytes = Bytes(1000 << 20);
            machine.available_bytes = Bytes((available_percent * 10) << 20);
            let all: Vec<_> = (0..400).map(|i| huge(i, true).zero(300 + i as u32 / 4).0).collect();
            policy.decide(&Snapshot {
                at: Time(0),
                machine,
                processes: vec![ProcessView {
                    id: PROCESS,
                    regions: all,
                }],
            })
        };
        assert!(look(15).actions.is_empty());
        let actions = look(14).actions;
        // 160 MB are missing; each page gives back some 1.5 MB.
        assert!((100..120).contains(&actions.len()), "{}", actions.len());
        assert!(actions
            .iter()
            .all(|action| action.kind == ActionKind::Demote && action.benefit.0 > 350));
    }

    #[test]
    fn an_aim_under_the_mark_makes_no_sense() {
        let mut policy = Hawkeye::default();
        policy.set("aim", "10%").unwrap();
        assert!(policy.check().is_err());
    }
}
