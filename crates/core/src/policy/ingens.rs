//! Ingens (Kwon, Yu, Peter, Rossbach, Witchel: OSDI'16), from SYSTOR'19, section 2.5, its poster and code (docs/papers.md).
//!
//! - A region is promoted, asynchronously, once `util_threshold` = 90 % of its base pages are mapped ("utilization" is Ingens'
//!   word for the mapped share).
//! - Demotion is deferred: a partially freed huge page is split only when the rest falls under the threshold. Linux splits the mapping on a
//!   partial unmap anyway, and the region is then promoted again if enough of it remains; an unused part of a whole huge page shows only as
//!   zero-filled.
//! - Access frequency is an exponential moving average over scans.
//! - Fair sharing: a process's claim on the next huge page is its weight over what it holds, where idle huge pages count τ times (the idle
//!   memory tax of ESX, adopted by Ingens): `claim = S / (H · (f + τ·(1 − f)))`, with `S` the weight, `H` the huge pages held (including the
//!   next one) and `f` the share of them in use. With one process it has no effect.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::{Observation, ProcessId, Snapshot};
use crate::policy::params::{hand_on_parameters, parameters, Count};
use crate::policy::table::Table;
use crate::policy::{Decision, Needs, Policy};
use crate::units::{BasePages, Share, REGION_PAGES};

parameters! {
    /// Ingens' parameters.
    pub struct IngensParams for "ingens" {
        util_threshold: Share = Share::percent(90), "mapped share from which a region is promoted, and below which a huge page is split";
        fairness: bool = true, "order promotions across processes by the fairness metric";
        idle_penalty: Count<1, 1000> = Count(4), "tau: how many times an idle huge page counts against its process";
        frequency_weight: Share = Share::percent(40), "weight of the newest scan in the moving average of access frequency";
        idle_under: Share = Share::percent(10), "access frequency below which a huge page counts as idle";
    }
}

/// The policy and the access frequency of every huge page.
#[derive(Debug, Default)]
pub struct Ingens {
    params: IngensParams,
    frequency: Table<Share>,
}

/// Huge pages of one process.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    huge: u64,
    idle: u64,
}

/// `S / (H · (f + τ·(1 − f)))` with equal weights: the larger, the more the process deserves the next huge page.
fn claim(held: Held, idle_penalty: u32) -> f64 {
    let active = held.huge.saturating_sub(held.idle) as f64;
    1.0 / (1.0 + active + f64::from(idle_penalty) * held.idle as f64)
}

impl Ingens {
    fn average(&self, had: Option<Share>, seen: &Observation) -> Share {
        match had {
            _ if !seen.aged => had.unwrap_or(Share::FULL),
            None => seen.utilization(),
            Some(old) => {
                let weight = self.params.frequency_weight.fraction();
                let mean = weight * seen.utilization().fraction() + (1.0 - weight) * old.fraction();
                Share::millionths((mean * 1e6).round() as u32)
            }
        }
    }
}

impl Policy for Ingens {
    fn name(&self) -> &'static str {
        "ingens"
    }

    fn needs(&self) -> Needs {
        Needs {
            utilization: self.params.fairness,
            contents: true,
            ..Needs::default()
        }
    }

    fn without_utilization(&self) -> Option<&'static str> {
        self.params
            .fairness
            .then_some("promotes and demotes as usual; fairness between processes cannot tell idle huge pages")
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = Decision::default();
        let mut held: BTreeMap<ProcessId, Held> = BTreeMap::new();
        let mut table = std::mem::take(&mut self.frequency);
        table.keep_only(&seen.processes);
        // Clearing accessed bits pays only where processes compete.
        let competing = self.params.fairness && seen.processes.len() > 1;
        for process in &seen.processes {
            let mut age = Vec::new();
            let holds = held.entry(process.id).or_default();
            table.update(process, |region, had| {
                if region.raced {
                    return had;
                }
                let populated = region.populated();
                let enough = self.params.util_threshold.reached_by_pages(populated);
                decision.candidates += usize::from(!region.huge && enough);
                let wanted = if region.shared {
                    None
                } else if !region.huge {
                    (enough && region.can.promote).then_some((ActionKind::Promote, Reason::Mapped, populated, {
                        Expect::Populated(populated.less(BasePages(REGION_PAGES / 8)))
                    }))
                } else {
                    (!enough && region.can.demote).then(|| {
                        let zero = region.zero.unwrap_or_default();
                        (
                            ActionKind::Demote,
                            Reason::Unmapped,
                            zero,
                            Expect::Zero(BasePages(zero.0 - zero.0 / 8)),
                        )
                    })
                };
                if let Some((kind, reason, benefit, expect)) = wanted {
                    decision.actions.push(Action {
                        process: process.id,
                        region: region.region,
                        kind,
                        reason,
                        utilization: None,
                        benefit,
                        expect,
                    });
                }
                if !region.huge {
                    return None;
                }
                let frequency = self.average(had, region);
                holds.huge += 1;
                holds.idle += u64::from(frequency < self.params.idle_under);
                if competing && region.can.age && !region.shared {
                    age.push(region.region);
                }
                Some(frequency)
            });
            decision.age.push((process.id, age));
        }
        self.frequency = table;
        if competing {
            share_out(&mut decision.actions, held, self.params.idle_penalty.0);
        }
        decision
    }

    hand_on_parameters!();
}

/// Gives the promotions of competing processes benefits in the order in which the metric grants them: the process with the largest
/// claim gets the next huge page, which lowers its claim. Within a process, best-mapped regions first.
fn share_out(actions: &mut [Action], mut held: BTreeMap<ProcessId, Held>, idle_penalty: u32) {
    let mut queues: BTreeMap<ProcessId, Vec<usize>> = BTreeMap::new();
    for (i, action) in actions.iter().enumerate() {
        if action.kind == ActionKind::Promote {
            queues.entry(action.process).or_default().push(i);
        }
    }
    for queue in queues.values_mut() {
        queue.sort_by_key(|&i| (actions[i].benefit, Reverse(actions[i].region)));
    }
    let total = queues.values().map(Vec::len).sum::<usize>();
    // Positive floats order as their bits do.
    let bid = |held: &BTreeMap<ProcessId, Held>, id: ProcessId| (claim(held[&id], idle_penalty).to_bits(), Reverse(id));
    let mut bids: BinaryHeap<_> = queues.keys().map(|id| bid(&held, *id)).collect();
    let mut granted = 0;
    while let Some((_, Reverse(id))) = bids.pop() {
        let Some(i) = queues.get_mut(&id).and_then(Vec::pop) else {
            continue;
        };
        // Any falling sequence within a region's worth will do: only the order counts, and it stays comparable with demotions.
        let rank = (total - granted) as u64 * u64::from(REGION_PAGES) / total as u64;
        actions[i].benefit = BasePages(rank as u32);
        granted += 1;
        held.entry(id).or_default().huge += 1;
        bids.push(bid(&held, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{base, huge, Driver};

    #[test]
    fn ninety_percent_mapped_is_promoted_at_first_sight_and_just_under_is_not() {
        let mut d = Driver::new(Ingens::default());
        d.see_all(&[base(1, 460, 0), base(2, 461, 0), base(3, 512, 0)]);
        assert_eq!(
            d.kinds(),
            [
                (2, ActionKind::Promote, Reason::Mapped),
                (3, ActionKind::Promote, Reason::Mapped)
            ]
        );
    }

    #[test]
    fn demotion_is_deferred_until_less_than_the_threshold_remains() {
        let mut d = Driver::new(Ingens::default());
        d.see_all(&[
            huge(1, true),
            huge(2, true).zero(51),
            huge(3, true).zero(52),
            huge(4, true).zero(52).shared(),
        ]);
        assert_eq!(d.kinds(), [(3, ActionKind::Demote, Reason::Unmapped)]);
    }

    #[test]
    fn what_was_demoted_for_its_zeroes_is_not_promoted_again() {
        let mut d = Driver::new(Ingens::default());
        d.see(base(1, 512, 512).zero(52));
        assert!(d.actions().is_empty());
    }

    const A: ProcessId = ProcessId { pid: 1, started: 1 };
    const B: ProcessId = ProcessId { pid: 2, started: 1 };

    fn order(d: &Driver<Ingens>) -> Vec<u32> {
        let mut actions: Vec<_> = d.actions().to_vec();
        actions.sort_by_key(|a| std::cmp::Reverse(a.benefit));
        actions.iter().map(|a| a.process.pid).collect()
    }

    #[test]
    fn a_process_whose_huge_pages_are_idle_pays_more() {
        let mut d = Driver::new(Ingens::default());
        let wanting: Vec<_> = (10..13).map(|i| base(i, 512, 512)).collect();
        let with = |accessed| {
            (0..4)
                .map(|i| huge(i, accessed))
                .chain(wanting.clone())
                .collect::<Vec<_>>()
        };
        for _ in 0..10 {
            d.see_processes(&[(A, &with(false)), (B, &with(true))]);
        }
        assert_eq!(order(&d), [2, 2, 2, 1, 1, 1], "both hold four; A's are idle");
    }

    #[test]
    fn equal_processes_share_equally_and_one_with_fewer_huge_pages_comes_first() {
        let mut d = Driver::new(Ingens::default());
        let wanting: Vec<_> = (10..13).map(|i| base(i, 512, 512)).collect();
        d.see_processes(&[(A, &wanting), (B, &wanting)]);
        assert_eq!(order(&d), [1, 2, 1, 2, 1, 2]);
        let rich: Vec<_> = (0..8).map(|i| huge(i, true)).chain(wanting.clone()).collect();
        d.see_processes(&[(A, &rich), (B, &wanting)]);
        assert_eq!(order(&d), [2, 2, 2, 1, 1, 1]);
    }

    #[test]
    fn accessed_bits_are_cleared_only_where_processes_compete() {
        let mut d = Driver::new(Ingens::default());
        d.see(huge(1, true));
        assert_eq!(d.aged(), 0);
        d.see_processes(&[(A, &[huge(1, true)]), (B, &[huge(1, true)])]);
        assert_eq!(d.aged(), 2);
    }
}
