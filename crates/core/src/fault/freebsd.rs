//! FreeBSD's reservations (sys/vm/vm_reserv.c; as the LRBHPS text describes them).
//!
//! - A region's first fault reserves a block; its base pages are prepared one by one, by their own faults.
//! - It is mapped huge when all 512 are populated, with equal protection, dirty and access bits.
//! - A partial unmap breaks the huge mapping at once; what was unmapped goes back to the reservation.
//! - No direct compaction: without a free block the region gets base pages.
//! - For anonymous memory a reservation may reach beyond the mapping.
//! - Under memory shortage the reservation unchanged for longest is broken first: that is up to reclaim.

use crate::fault::{Effort, Fault, FaultPolicy, HugeAdvice, Place, Reservation, Rest, Step, Unmapped};
use crate::policy::params::{hand_on_parameters, parameters, Count};

parameters! {
    /// FreeBSD's rules.
    pub struct FreeBsdParams for "freebsd" {
        threshold: Count<1, 512> = Count(512), "populated base pages at which a reservation is mapped huge";
        beyond: bool = true, "also reserve where the mapping does not cover the whole region";
    }
}

/// The policy.
#[derive(Debug, Default)]
pub struct FreeBsd {
    params: FreeBsdParams,
}

impl FaultPolicy for FreeBsd {
    fn name(&self) -> &'static str {
        "freebsd"
    }

    fn place(&mut self, fault: &Fault) -> Place {
        if fault.advice != HugeAdvice::NoHuge && (fault.fits || self.params.beyond) {
            Place::Reserve(Effort::Free)
        } else {
            Place::Base
        }
    }

    fn populated(&mut self, reservation: &Reservation) -> Step {
        if reservation.populated.0 >= self.params.threshold.0 {
            Step::Fill
        } else {
            Step::Wait
        }
    }

    fn unmapped(&mut self, _: &Unmapped) -> Rest {
        Rest::Reserved
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::{fault, reservation};

    #[test]
    fn it_reserves_even_past_the_end_and_promotes_only_what_is_full() {
        let mut policy = FreeBsd::default();
        let past = Fault { fits: false, ..fault() };
        assert_eq!(policy.place(&past), Place::Reserve(Effort::Free));
        assert_eq!(policy.populated(&reservation(7, 511, 0)), Step::Wait);
        assert_eq!(policy.populated(&reservation(7, 512, 0)), Step::Fill);
        policy.set("beyond", "off").unwrap();
        assert_eq!(policy.place(&past), Place::Base);
    }
}
