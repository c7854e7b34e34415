//! `auto` at faults: what a range's next faults map is judged by how its regions were filled.
//!
//! Live, the agent inside a program does this by advising ranges (crates/range); [`crate::policy::Auto`] promotes what filled before. Here a
//! range's first regions map base pages, inside reservations, which tell how densely they get filled. Once four of them were filled
//! densely (one where the program's other ranges were), and sparse ones are under a twentieth of the dense, the next ones are mapped
//! huge at their first fault, from free blocks only. Every 32nd stays a probe. A reservation that is left alone is broken: it wastes
//! nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use mega_range::density::{Density, Population};

use crate::fault::{
    Background, Chore, Effort, Fault, FaultPolicy, HugeAdvice, Place, Reservation, Rest, Step, Unmapped,
};
use crate::observe::{ProcessId, Region};
use crate::policy::params::{hand_on_parameters, parameters, Count};

parameters! {
    /// How ranges are judged.
    pub struct AutoFaultParams for "auto" {
        probe: Count<1, 512> = Count(32), "every so many regions of a dense range one is filled with base pages, to see how densely";
        idle: Duration = Duration::from_secs(1), "idle time after which a reservation is broken and its region counts as finished";
    }
}

/// Most ranges that are followed; the oldest by address is forgotten.
const RANGES: usize = 4096;

/// A run of regions in which faults came next to each other.
#[derive(Debug, Clone, Copy)]
struct Range {
    end: Region,
    density: Density,
    huge: u32,
}

/// The policy.
#[derive(Debug, Default)]
pub struct AutoFault {
    params: AutoFaultParams,
    /// By process and first region.
    ranges: BTreeMap<(ProcessId, Region), Range>,
    history: BTreeMap<ProcessId, Density>,
}

impl AutoFault {
    /// The range that this region continues or is in; a new one where there is none.
    fn range(&mut self, process: ProcessId, region: Region) -> &mut Range {
        let before = self.ranges.range(..=(process, region)).next_back();
        let near = before.filter(|((of, _), range)| *of == process && region.0 <= range.end.0 + 1);
        let key = near.map_or((process, region), |(key, _)| *key);
        if near.is_none() && self.ranges.len() >= RANGES {
            self.ranges.pop_first();
        }
        let new = Range {
            end: region,
            density: Density::default(),
            huge: 0,
        };
        let range = self.ranges.entry(key).or_insert(new);
        range.end = range.end.max(region);
        range
    }

    /// Counts a region that was filled, or that was left alone.
    fn finished(&mut self, process: ProcessId, region: Region, pages: u32) {
        let population = Population {
            present: pages,
            huge: 0,
        };
        self.range(process, region).density.count(population);
        if self.history.len() >= RANGES && !self.history.contains_key(&process) {
            self.history.pop_first();
        }
        self.history.entry(process).or_default().count(population);
    }
}

impl FaultPolicy for AutoFault {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn place(&mut self, fault: &Fault) -> Place {
        if !fault.fits || fault.advice == HugeAdvice::NoHuge || !fault.write {
            return Place::Base;
        }
        let least = self
            .history
            .get(&fault.process)
            .copied()
            .unwrap_or_default()
            .least_for_new_range();
        let probe = self.params.probe.0;
        let range = self.range(fault.process, fault.region);
        if !range.density.is_dense(least) {
            return Place::Reserve(Effort::Free);
        }
        range.huge += 1;
        match range.huge % probe {
            0 => Place::Reserve(Effort::Free),
            _ => Place::Huge(Effort::Free),
        }
    }

    fn populated(&mut self, reservation: &Reservation) -> Step {
        let population = Population {
            present: reservation.populated.0,
            huge: 0,
        };
        if !population.is_full() {
            return Step::Wait;
        }
        self.finished(reservation.process, reservation.region, reservation.populated.0);
        // Nothing is added: all its pages are there.
        Step::Fill
    }

    fn unmapped(&mut self, unmapped: &Unmapped) -> Rest {
        match unmapped.huge {
            true => Rest::Deferred,
            false => Rest::Broken,
        }
    }

    fn period(&self) -> Option<Duration> {
        Some(self.params.idle / 4)
    }

    fn background(&mut self, now: &Background<'_>) -> Vec<Chore> {
        let idle: Vec<Reservation> = now
            .reservations
            .iter()
            .take_while(|reservation| now.at.since(reservation.changed) >= self.params.idle)
            .copied()
            .collect();
        for reservation in &idle {
            self.finished(reservation.process, reservation.region, reservation.populated.0);
        }
        idle.iter().map(|r| Chore::Break(r.process, r.region)).collect()
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use mega_range::density::HISTORY_REGIONS;

    use super::*;
    use crate::fault::testing::{background, fault, reservation, PROCESS};

    fn at(region: u64) -> Fault {
        Fault {
            region: Region(region),
            ..fault()
        }
    }

    const BASE: Place = Place::Reserve(Effort::Free);
    const HUGE: Place = Place::Huge(Effort::Free);

    /// Fills a region to so many pages and leaves it.
    fn fill(policy: &mut AutoFault, region: u64, pages: u32) -> Place {
        let place = policy.place(&at(region));
        if pages == 512 {
            assert_eq!(policy.populated(&reservation(region, 511, 0)), Step::Wait);
            assert_eq!(policy.populated(&reservation(region, 512, 0)), Step::Fill);
        } else {
            let chores = background(policy, 2, &[reservation(region, pages, 0)]);
            assert_eq!(chores, [Chore::Break(PROCESS, Region(region))]);
        }
        place
    }

    #[test]
    fn four_dense_regions_make_the_next_ones_huge_and_every_32nd_a_probe() {
        let mut policy = AutoFault::default();
        for region in 0..4 {
            assert_eq!(fill(&mut policy, region, 512), BASE, "{region}");
        }
        let places: Vec<_> = (4..36).map(|region| policy.place(&at(region))).collect();
        assert_eq!(places.iter().filter(|place| **place == HUGE).count(), 31);
        assert_eq!(places[31], BASE);
        assert_eq!(policy.place(&at(1000)), BASE, "another range");
    }

    #[test]
    fn sparse_regions_keep_a_range_on_base_pages_and_too_many_bring_it_back() {
        let mut policy = AutoFault::default();
        for region in 0..100 {
            assert_eq!(fill(&mut policy, region, 85), BASE);
        }
        let mut policy = AutoFault::default();
        for region in 0..19 {
            fill(&mut policy, region, 460);
        }
        fill(&mut policy, 19, 459);
        assert_eq!(policy.place(&at(20)), BASE, "1 of 19");
        fill(&mut policy, 20, 460);
        assert_eq!(policy.place(&at(21)), HUGE, "1 of 20");
    }

    #[test]
    fn in_a_program_with_a_dense_history_one_region_is_enough() {
        let mut policy = AutoFault::default();
        for region in 0..HISTORY_REGIONS.into() {
            fill(&mut policy, region, 512);
        }
        assert_eq!(fill(&mut policy, 1000, 512), BASE);
        assert_eq!(policy.place(&at(1001)), HUGE);
        let other = Fault {
            process: ProcessId { pid: 9, started: 1 },
            ..at(33)
        };
        assert_eq!(policy.place(&other), BASE, "another program's says nothing");
    }

    #[test]
    fn loads_small_mappings_and_those_advised_against_get_base_pages() {
        let mut policy = AutoFault::default();
        for region in 0..8 {
            fill(&mut policy, region, 512);
        }
        for other in [
            Fault { write: false, ..at(8) },
            Fault { fits: false, ..at(8) },
            Fault {
                advice: HugeAdvice::NoHuge,
                ..at(8)
            },
        ] {
            assert_eq!(policy.place(&other), Place::Base);
        }
        assert_eq!(policy.place(&at(8)), HUGE);
    }

    #[test]
    fn a_reservation_in_use_is_kept() {
        let mut policy = AutoFault::default();
        assert!(background(&mut policy, 2, &[reservation(1, 85, 2)]).is_empty());
    }

    #[test]
    fn the_ranges_followed_are_bounded() {
        let mut policy = AutoFault::default();
        for i in 0..2 * RANGES as u64 {
            policy.place(&at(10 * i));
        }
        assert_eq!(policy.ranges.len(), RANGES);
    }
}
