//! LRBHPS (reservation-based huge pages for Linux 6.1.38), sections 3 to 3.2 of its paper (docs/papers.md).
//!
//! - A reservation at the first fault in any aligned 2 MB region of anonymous memory, even past the mapping's end, so that a growing heap gets
//!   huge pages without khugepaged.
//! - One base page is prepared per fault until t = 64 (or 256) are populated; then the rest is zeroed in bulk and the region is mapped huge in
//!   place, without a copy.
//! - Without a free block: direct compaction, which migrates reservations idle for over 5 s first.
//! - Demotion only under pressure or when fewer than t pages remain mapped; the reservation stays and may be promoted again or be migrated.

use std::time::Duration;

use crate::fault::{Effort, Fault, FaultPolicy, HugeAdvice, Place, Reservation, Rest, Step, Unmapped};
use crate::policy::params::{hand_on_parameters, parameters, Count};

parameters! {
    /// LRBHPS's parameters.
    pub struct LrbhpsParams for "lrbhps" {
        t: Count<1, 512> = Count(64), "populated base pages from which the rest is zeroed in bulk and the region mapped huge";
        idle: Duration = Duration::from_secs(5), "idle time after which direct compaction migrates a reservation's pages first";
        compact: bool = true, "direct compaction when no block is free";
    }
}

/// The policy.
#[derive(Debug, Default)]
pub struct Lrbhps {
    params: LrbhpsParams,
}

impl FaultPolicy for Lrbhps {
    fn name(&self) -> &'static str {
        "lrbhps"
    }

    fn place(&mut self, fault: &Fault) -> Place {
        match (fault.advice, self.params.compact) {
            (HugeAdvice::NoHuge, _) => Place::Base,
            (_, true) => Place::Reserve(Effort::Hard),
            (_, false) => Place::Reserve(Effort::Free),
        }
    }

    fn populated(&mut self, reservation: &Reservation) -> Step {
        if reservation.populated.0 >= self.params.t.0 {
            Step::Fill
        } else {
            Step::Wait
        }
    }

    fn unmapped(&mut self, unmapped: &Unmapped) -> Rest {
        if unmapped.huge && unmapped.stays_mapped && unmapped.left.0 >= self.params.t.0 {
            Rest::Huge
        } else {
            Rest::Reserved
        }
    }

    fn moves_idle(&self) -> Option<Duration> {
        Some(self.params.idle)
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::reservation;
    use crate::units::BasePages;

    #[test]
    fn it_promotes_at_t_and_demotes_under_t() {
        let mut policy = Lrbhps::default();
        assert_eq!(policy.populated(&reservation(1, 63, 0)), Step::Wait);
        assert_eq!(policy.populated(&reservation(1, 64, 0)), Step::Fill);
        policy.set("t", "256").unwrap();
        assert_eq!(policy.populated(&reservation(1, 64, 0)), Step::Wait);
        let left = |pages, stays_mapped| Unmapped {
            left: BasePages(pages),
            huge: true,
            stays_mapped,
        };
        assert_eq!(policy.unmapped(&left(256, true)), Rest::Huge);
        assert_eq!(policy.unmapped(&left(255, true)), Rest::Reserved);
        assert_eq!(
            policy.unmapped(&left(500, false)),
            Rest::Reserved,
            "what is unmapped cannot stay mapped"
        );
    }
}
