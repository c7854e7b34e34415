//! Quicksilver (Zhu, Cox, Rixner: ATC'20), from LRBHPS, section 2.5 (docs/papers.md).
//!
//! - Reservations as FreeBSD's; huge from a threshold of t = 64 populated pages. Dirty and accessed bits do not matter for anonymous memory.
//! - sync: the fault that reaches the threshold zeroes the rest in bulk. async: the rest is zeroed page by page in the background, the most
//!   active reservation (the one that changed last) first.
//! - Every second, partly populated reservations unchanged for 5 s are broken and their pages migrated away, at most 1 GB/s.

use std::time::Duration;

use crate::fault::{
    Background, Chore, Effort, Fault, FaultPolicy, HugeAdvice, Place, Reservation, Rest, Step, Unmapped,
};
use crate::policy::params::{hand_on_parameters, parameters, Count};
use crate::units::{BasePages, Bytes};

parameters! {
    /// Quicksilver's parameters.
    pub struct QuicksilverParams for "quicksilver" {
        threshold: Count<1, 512> = Count(64), "t: populated base pages from which a reservation is filled and mapped huge";
        sync: bool = true, "fill at the fault that reaches the threshold (Quicksilver-sync); off: in the background (async)";
        fills_per_period: Count<1, 1_000_000> = Count(1000), "async: maximum of reservations filled per period";
        period: Duration = Duration::from_secs(1), "time between searches for idle reservations";
        idle: Duration = Duration::from_secs(5), "time without a change after which a reservation is evacuated";
        rate: Bytes = Bytes(1 << 30), "maximum of memory migrated away per second";
    }
}

/// The policy.
#[derive(Debug, Default)]
pub struct Quicksilver {
    params: QuicksilverParams,
}

impl FaultPolicy for Quicksilver {
    fn name(&self) -> &'static str {
        "quicksilver"
    }

    fn place(&mut self, fault: &Fault) -> Place {
        match fault.advice {
            HugeAdvice::NoHuge => Place::Base,
            _ => Place::Reserve(Effort::Free),
        }
    }

    fn populated(&mut self, reservation: &Reservation) -> Step {
        match reservation.populated.0 {
            512 => Step::Fill,
            n if n >= self.params.threshold.0 && self.params.sync => Step::Fill,
            n if n >= self.params.threshold.0 => Step::FillLater,
            _ => Step::Wait,
        }
    }

    fn unmapped(&mut self, _: &Unmapped) -> Rest {
        Rest::Reserved
    }

    fn period(&self) -> Option<Duration> {
        Some(self.params.period)
    }

    fn background(&mut self, seen: &Background<'_>) -> Vec<Chore> {
        let mut chores = Vec::new();
        if !self.params.sync {
            let ripe = seen.reservations.iter().rev();
            let ripe = ripe.filter(|r| r.populated.0 >= self.params.threshold.0);
            let most = self.params.fills_per_period.0 as usize;
            chores.extend(ripe.take(most).map(|r| Chore::Fill(r.process, r.region)));
        }
        let mut left = (self.params.rate.0 as f64 * self.params.period.as_secs_f64()) as u64;
        for r in seen.reservations {
            if seen.at.since(r.changed) < self.params.idle {
                break;
            }
            if !self.params.sync && r.populated.0 >= self.params.threshold.0 {
                continue;
            }
            let bytes = BasePages(r.populated.0.max(1)).bytes().0;
            if bytes > left {
                break;
            }
            left -= bytes;
            chores.push(Chore::Evacuate(r.process, r.region));
        }
        chores
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::{background, reservation, PROCESS};
    use crate::observe::Region;

    #[test]
    fn sync_fills_at_the_threshold_and_async_leaves_it_to_the_background() {
        let mut policy = Quicksilver::default();
        assert_eq!(policy.populated(&reservation(1, 63, 0)), Step::Wait);
        assert_eq!(policy.populated(&reservation(1, 64, 0)), Step::Fill);
        policy.set("sync", "off").unwrap();
        assert_eq!(policy.populated(&reservation(1, 64, 0)), Step::FillLater);
        let all = [reservation(1, 70, 1), reservation(2, 10, 2), reservation(3, 64, 3)];
        let fills = [Chore::Fill(PROCESS, Region(3)), Chore::Fill(PROCESS, Region(1))];
        assert_eq!(background(&mut policy, 4, &all), fills, "the most active first");
    }

    #[test]
    fn what_did_not_change_for_five_seconds_is_evacuated_at_the_given_rate() {
        let mut policy = Quicksilver::default();
        let all = [reservation(1, 20, 1), reservation(2, 20, 2), reservation(3, 20, 6)];
        let idle = [Chore::Evacuate(PROCESS, Region(1)), Chore::Evacuate(PROCESS, Region(2))];
        assert_eq!(background(&mut policy, 7, &all), idle);
        policy.set("rate", "100K").unwrap();
        assert_eq!(background(&mut policy, 7, &all), idle[..1]);
    }
}
