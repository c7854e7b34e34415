//! Base pages only, for comparison: every huge page is demoted.

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::Snapshot;
use crate::policy::{Decision, Needs, Policy};

/// The policy. It is stateless.
#[derive(Debug, Default)]
pub struct Base;

impl Policy for Base {
    fn name(&self) -> &'static str {
        "base"
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let actions = seen
            .processes
            .iter()
            .flat_map(|process| process.regions.iter().map(|region| (process.id, region)))
            .filter(|(_, region)| region.huge && region.can.demote && !region.shared && !region.raced)
            .map(|(process, region)| Action {
                process,
                region: region.region,
                kind: ActionKind::Demote,
                reason: Reason::Unwanted,
                utilization: None,
                benefit: region.zero.unwrap_or_default(),
                expect: Expect::Anything,
            })
            .collect();
        Decision {
            actions,
            ..Decision::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{base, huge, Driver};

    #[test]
    fn every_huge_page_is_demoted_and_nothing_else_is_touched() {
        let mut d = Driver::new(Base);
        d.see_all(&[
            base(1, 512, 512),
            huge(2, true),
            huge(3, false),
            huge(4, true).shared(),
            huge(5, true).raced(),
        ]);
        assert_eq!(
            d.kinds(),
            [
                (2, ActionKind::Demote, Reason::Unwanted),
                (3, ActionKind::Demote, Reason::Unwanted)
            ]
        );
        assert_eq!(d.aged(), 0);
    }
}
