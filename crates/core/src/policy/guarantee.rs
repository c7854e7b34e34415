//! A guarantee of coverage around any policy: no process has less of its memory in huge pages than a share, if that can be.
//!
//! - Coverage is the share of a process's mapped memory that huge pages map.
//! - Where the policy's own decisions leave a process below the guarantee, its demotions there are given up, those that give back the least first,
//!   and then regions are promoted, the fullest first, until the guarantee is met.
//! - A region of which less than [`LEAST_MAPPED`] is mapped is not promoted for it: a guarantee must not multiply a program's memory.
//! - Budgets, floors of free memory and back-off hold as for every other action.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::{Observation, ProcessId, ProcessView, Region, Snapshot};
use crate::policy::{Decision, Needs, Param, ParamError, Policy};
use crate::units::{BasePages, Share, REGION_PAGES};

/// Base pages: an eighth of a region.
const LEAST_MAPPED: BasePages = BasePages(REGION_PAGES / 8);

/// Its name among the parameters of every policy.
pub const PARAMETER: &str = "guarantee";

/// A policy with a guarantee; with one of 0 % it is the policy alone.
pub struct Guarantee {
    inner: Box<dyn Policy>,
    least: Share,
}

/// What a process will have mapped, in base pages, when everything decided is done.
#[derive(Debug, Default)]
struct Plan {
    mapped: u64,
    huge: u64,
}

impl Plan {
    fn promote(&mut self, seen: &Observation) {
        self.mapped += u64::from(REGION_PAGES.saturating_sub(seen.mapped.0));
        self.huge += u64::from(REGION_PAGES);
    }

    /// All of it stays mapped, by base pages and the shared zero page.
    fn demote(&mut self) {
        self.huge = self.huge.saturating_sub(u64::from(REGION_PAGES));
    }

    fn keep(&mut self) {
        self.huge += u64::from(REGION_PAGES);
    }
}

impl Guarantee {
    /// Around this policy, of 0 %.
    pub fn new(inner: Box<dyn Policy>) -> Self {
        Self {
            inner,
            least: Share::ZERO,
        }
    }

    fn is_met(&self, plan: &Plan) -> bool {
        plan.mapped == 0 || self.least.reached_by(plan.huge, plan.mapped)
    }

    /// The policy's actions on a process, with as few demotions and as many promotions more as the guarantee needs.
    fn extend(&self, process: &ProcessView, own: Vec<Action>) -> Vec<Action> {
        let seen = |action: &Action| {
            let at = process.regions.binary_search_by_key(&action.region, |seen| seen.region);
            at.ok().and_then(|at| process.regions.get(at))
        };
        let mut plan = Plan::default();
        for region in &process.regions {
            plan.mapped += u64::from(region.mapped.0);
            plan.huge += if region.huge { u64::from(REGION_PAGES) } else { 0 };
        }
        for action in &own {
            match (action.kind, seen(action)) {
                (ActionKind::Promote, Some(seen)) => plan.promote(seen),
                (ActionKind::Demote, Some(_)) => plan.demote(),
                (_, None) => {}
            }
        }
        let (mut demotions, mut actions): (Vec<Action>, Vec<Action>) =
            own.into_iter().partition(|action| action.kind == ActionKind::Demote);
        demotions.sort_by_key(|action| (action.benefit, action.region));
        let mut given_up = 0;
        for action in &demotions {
            if self.is_met(&plan) {
                break;
            }
            if seen(action).is_some() {
                plan.keep();
            }
            given_up += 1;
        }
        let promoted: BTreeSet<Region> = actions.iter().map(|action| action.region).collect();
        actions.extend(demotions.into_iter().skip(given_up));
        let is_free = |seen: &&Observation| {
            let usable = !seen.huge && !seen.raced && !seen.shared && seen.can.promote && seen.mapped >= LEAST_MAPPED;
            usable && !promoted.contains(&seen.region)
        };
        let mut fullest: Vec<&Observation> = process.regions.iter().filter(is_free).collect();
        fullest.sort_by_key(|seen| (std::cmp::Reverse(seen.mapped), seen.region));
        for seen in fullest {
            if self.is_met(&plan) {
                break;
            }
            plan.promote(seen);
            actions.push(Action {
                process: process.id,
                region: seen.region,
                kind: ActionKind::Promote,
                reason: Reason::Mapped,
                utilization: None,
                benefit: seen.mapped,
                expect: Expect::Anything,
            });
        }
        actions
    }
}

impl Policy for Guarantee {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn needs(&self) -> Needs {
        self.inner.needs()
    }

    fn without_utilization(&self) -> Option<&'static str> {
        self.inner.without_utilization()
    }

    fn stall_budget(&self) -> Option<Share> {
        self.inner.stall_budget()
    }

    fn wants_small_faults(&self) -> bool {
        self.inner.wants_small_faults()
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = self.inner.decide(seen);
        if self.least > Share::ZERO {
            let mut own: BTreeMap<ProcessId, Vec<Action>> = BTreeMap::new();
            for action in decision.actions.drain(..) {
                own.entry(action.process).or_default().push(action);
            }
            for process in &seen.processes {
                let of = own.remove(&process.id).unwrap_or_default();
                decision.actions.append(&mut self.extend(process, of));
            }
        }
        decision
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParamError> {
        if name != PARAMETER {
            return self.inner.set(name, value);
        }
        self.least = value.parse().map_err(|source| ParamError::Unreadable {
            name: PARAMETER,
            source,
        })?;
        Ok(())
    }

    fn check(&self) -> Result<(), ParamError> {
        if self.least > Share::ZERO && self.name() == "base" {
            return Err(ParamError::Inconsistent {
                policy: self.name(),
                rule: "it keeps no huge pages, and guarantees none",
            });
        }
        self.inner.check()
    }

    /// The guarantee is listed where there is one.
    fn params(&self) -> Vec<Param> {
        let mut params = self.inner.params();
        if self.least > Share::ZERO {
            params.push(Param {
                name: PARAMETER,
                value: self.least.to_string(),
                default: Share::ZERO.to_string(),
                meaning: "least share of a process's mapped memory in huge pages",
            });
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Why;
    use crate::policy::testing::{base, huge, Driver};
    use crate::policy::{by_name, Trim, POLICIES};
    use ActionKind::{Demote, Promote};

    fn with(guarantee: &str) -> Driver<Guarantee> {
        let mut policy = Guarantee::new(Box::<Trim>::default());
        policy.set(PARAMETER, guarantee).unwrap();
        policy.check().unwrap();
        Driver::new(policy)
    }

    fn acts(driver: &Driver<Guarantee>) -> Vec<(u64, ActionKind)> {
        let mut acts: Vec<_> = driver
            .kinds()
            .into_iter()
            .map(|(region, kind, _)| (region, kind))
            .collect();
        acts.sort();
        acts
    }

    #[test]
    fn the_fullest_regions_are_promoted_until_the_guarantee_is_met_and_no_more() {
        let regions = [base(1, 200, 0), base(2, 400, 0), base(3, 300, 0), huge(4, true)];
        // 512 of 1412 are huge: 36 %; with region 2 1024 of 1524: 67 %; with region 3 1536 of 1736: 88 %.
        for (guarantee, expected) in [
            ("0%", vec![]),
            ("36%", vec![]),
            ("50%", vec![(2, Promote)]),
            ("80%", vec![(2, Promote), (3, Promote)]),
            ("100%", vec![(1, Promote), (2, Promote), (3, Promote)]),
        ] {
            let mut driver = with(guarantee);
            driver.see_all(&regions);
            assert_eq!(acts(&driver), expected, "{guarantee}");
        }
    }

    #[test]
    fn what_cannot_be_promoted_or_is_nearly_empty_is_left_as_it_is() {
        let mut driver = with("100%");
        driver.see_all(&[
            base(1, 512, 0).cannot(Why::Mlocked),
            base(2, 63, 0),
            base(3, 64, 0),
            base(4, 512, 0).raced(),
            base(5, 512, 0).shared(),
        ]);
        assert_eq!(acts(&driver), [(3, Promote)]);
    }

    #[test]
    fn demotions_are_given_up_as_far_as_the_guarantee_needs_them_the_least_useful_first() {
        let regions = [huge(1, true).zero(511), huge(2, true).zero(400), huge(3, true).zero(0)];
        let mut driver = with("0%");
        driver.see_all(&regions);
        assert_eq!(acts(&driver), [(1, Demote), (2, Demote)]);
        // One of the three may go: that which gives back the most.
        let mut driver = with("60%");
        driver.see_all(&regions);
        assert_eq!(acts(&driver), [(1, Demote)]);
        let mut driver = with("95%");
        driver.see_all(&regions);
        assert_eq!(acts(&driver), []);
    }

    #[test]
    fn every_policy_takes_a_guarantee_but_the_one_that_keeps_no_huge_pages() {
        for (name, _) in POLICIES {
            let mut policy = by_name(name).unwrap();
            assert!(policy.params().iter().all(|param| param.name != PARAMETER));
            policy.set(PARAMETER, "95%").unwrap();
            assert_eq!(policy.check().is_ok(), *name != "base", "{name}");
            assert!(policy
                .params()
                .iter()
                .any(|param| param.name == PARAMETER && param.value == "95%"));
            assert!(policy.set(PARAMETER, "120%").is_err());
        }
    }
}
