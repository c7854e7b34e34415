//! Ours: leave huge pages to the kernel, with the fast start-up that huge faults give, and take back what they waste.
//!
//! Promotes nothing. Demotes huge pages whose zero-filled share passes a threshold, most waste first; the split gives the zero-filled base
//! pages back (Linux 6.12 and later). Splits huge pages of which the program has unmapped a part, which the kernel keeps. What khugepaged collapses again is left alone longer each time (the control loop's back-off).

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::Snapshot;
use crate::policy::params::{hand_on_parameters, parameters};
use crate::policy::{release, Decision, Needs, Policy, ZERO_FILLED_LIMIT};
use crate::units::{BasePages, Share};

parameters! {
    /// Its one threshold.
    pub struct TrimParams for "trim" {
        zero: Share = ZERO_FILLED_LIMIT, "zero-filled share from which a huge page is demoted";
    }
}

/// The policy. It is stateless.
#[derive(Debug, Default)]
pub struct Trim {
    params: TrimParams,
}

impl Policy for Trim {
    fn name(&self) -> &'static str {
        "trim"
    }

    fn needs(&self) -> Needs {
        Needs {
            utilization: false,
            contents: true,
            ..Needs::default()
        }
    }

    fn wants_small_faults(&self) -> bool {
        false
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = Decision::default();
        for process in &seen.processes {
            let released = process.regions.iter().filter_map(|seen| release(process.id, seen));
            decision.actions.extend(released);
            for region in &process.regions {
                let zero = region.zero.unwrap_or_default();
                let wasteful = zero > BasePages::ZERO && self.params.zero.reached_by_pages(zero);
                if region.huge && wasteful && region.can.demote && !region.shared && !region.raced {
                    decision.actions.push(Action {
                        process: process.id,
                        region: region.region,
                        kind: ActionKind::Demote,
                        reason: Reason::ZeroFilled,
                        utilization: None,
                        benefit: zero,
                        expect: Expect::Zero(BasePages(zero.0 - zero.0 / 8)),
                    });
                }
            }
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
    fn what_is_unmapped_of_a_huge_page_and_kept_is_released() {
        let mut d = Driver::new(Trim::default());
        d.see_all(&[
            base(1, 128, 128).kept(384),
            base(2, 448, 448).kept(64),
            base(3, 449, 449).kept(63), // too little for a split
            base(4, 128, 128).kept(384).shared(),
            base(5, 128, 128), // nothing known
        ]);
        let released = (ActionKind::Demote, Reason::PartlyUnmapped);
        assert_eq!(d.kinds(), [(1, released.0, released.1), (2, released.0, released.1)]);
    }

    #[test]
    fn only_huge_pages_with_enough_zeroes_are_demoted() {
        let mut d = Driver::new(Trim::default());
        d.see_all(&[
            huge(1, true),           // contents not read yet
            huge(2, true).zero(0),   // no waste
            huge(3, true).zero(255), // just under
            huge(4, true).zero(256), // at the threshold
            huge(5, true).zero(512),
            huge(6, true).zero(512).shared(),
            base(7, 512, 512).zero(512),
            base(8, 512, 512),
        ]);
        assert_eq!(
            d.kinds(),
            [
                (4, ActionKind::Demote, Reason::ZeroFilled),
                (5, ActionKind::Demote, Reason::ZeroFilled)
            ]
        );
        assert!(
            d.actions()[1].benefit > d.actions()[0].benefit,
            "most waste is worth most"
        );
        assert_eq!(d.aged(), 0, "it clears no accessed bits");
    }
}
