//! HawkEye at faults (ASPLOS'19): faults map base pages (promotion is asynchronous, by [`crate::policy::Hawkeye`]), and free memory is zeroed in
//! the background, with non-temporal stores, so that faults and promotions find it zeroed.

use std::time::Duration;

use crate::fault::{Background, Chore, Fault, FaultPolicy, Place};
use crate::policy::params::{hand_on_parameters, parameters};
use crate::units::Bytes;

parameters! {
    /// HawkEye's pre-zeroing.
    pub struct HawkeyeFaultParams for "hawkeye" {
        period: Duration = Duration::from_secs(1), "time between rounds of zeroing";
        rate: Bytes = Bytes(40 << 20), "maximum of free memory zeroed per second; a modelling choice";
    }
}

/// The policy.
#[derive(Debug, Default)]
pub struct HawkeyeFault {
    params: HawkeyeFaultParams,
}

impl FaultPolicy for HawkeyeFault {
    fn name(&self) -> &'static str {
        "hawkeye"
    }

    fn place(&mut self, _: &Fault) -> Place {
        Place::Base
    }

    fn period(&self) -> Option<Duration> {
        Some(self.params.period)
    }

    fn background(&mut self, _: &Background<'_>) -> Vec<Chore> {
        let bytes = self.params.rate.0 as f64 * self.params.period.as_secs_f64();
        vec![Chore::Prezero(Bytes(bytes as u64))]
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::{background, fault};

    #[test]
    fn faults_map_base_pages_and_free_memory_is_zeroed_beside() {
        let mut policy = HawkeyeFault::default();
        assert_eq!(policy.place(&fault()), Place::Base);
        assert_eq!(background(&mut policy, 1, &[]), [Chore::Prezero(Bytes(40 << 20))]);
    }
}
