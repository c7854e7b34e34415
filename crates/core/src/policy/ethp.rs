//! `ethp`, the scheme that comes with DAMON (SeongJae Park; figures in docs/papers.md).
//!
//! - `hugepage` on regions that are accessed at all: in at least 5 % of DAMON's samples. One sample checks one random page of a region, so the
//!   count is about the share of pages accessed.
//! - `nohugepage` on regions not accessed for 7 s. It splits nothing: what is huge stays huge. As nothing but this policy promotes the managed
//!   regions, the rule has no effect here; where the kernel promotes too (THP always), DAMON's would prevent that and this does not.
//!
//! DAMON merges neighbours into regions of any size from 2 MB up; here every region is considered by itself, which favours the scheme.

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::Snapshot;
use crate::policy::params::{hand_on_parameters, parameters};
use crate::policy::{Decision, Needs, Policy};
use crate::units::{BasePages, Share};

parameters! {
    /// The scheme's parameters.
    pub struct EthpParams for "ethp" {
        accessed: Share = Share::percent(5), "share of a region accessed in an interval from which it is promoted";
    }
}

/// The policy. It is stateless.
#[derive(Debug, Default)]
pub struct Ethp {
    params: EthpParams,
}

impl Policy for Ethp {
    fn name(&self) -> &'static str {
        "ethp"
    }

    fn needs(&self) -> Needs {
        Needs {
            utilization: true,
            contents: false,
            ..Needs::default()
        }
    }

    fn without_utilization(&self) -> Option<&'static str> {
        Some("promotes nothing")
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = Decision::default();
        for process in &seen.processes {
            let mut age = Vec::new();
            for region in process.regions.iter().filter(|r| !r.huge && !r.raced && !r.shared) {
                if region.can.age {
                    age.push(region.region);
                }
                let wanted = region.aged
                    && region.accessed > BasePages::ZERO
                    && self.params.accessed.reached_by_pages(region.accessed);
                decision.candidates += usize::from(wanted);
                if wanted && region.can.promote && region.populated() > BasePages::ZERO {
                    decision.actions.push(Action {
                        process: process.id,
                        region: region.region,
                        kind: ActionKind::Promote,
                        reason: Reason::Utilized,
                        utilization: Some(region.utilization()),
                        benefit: region.accessed,
                        expect: Expect::Populated(BasePages(1)),
                    });
                }
            }
            decision.age.push((process.id, age));
        }
        decision
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{base, huge, Driver};

    #[test]
    fn what_was_accessed_is_promoted_and_nothing_is_taken_back() {
        let mut d = Driver::new(Ethp::default());
        d.see_all(&[
            base(1, 512, 25), // just under 5 %
            base(2, 512, 26),
            base(3, 512, 512).unaged(),
            base(4, 512, 512).shared(),
            huge(5, false),
        ]);
        assert_eq!(d.kinds(), [(2, ActionKind::Promote, Reason::Utilized)]);
        assert_eq!(d.aged(), 3, "regions 1, 2 and 3");
    }
}
