//! Whose accessed bits are cleared at a scan, where clearing all of them would stall the program too long.
//!
//! A base page that the program touches again after its accessed bit was cleared costs it a page walk and the processor's write into the page
//! table: half a microsecond on virtual machines. That is stall like any other, so it has a part of the stall budget. Regions beyond it take
//! turns: a region is aged for [`TURN`] scans in a row, as many as MEGA's history holds, or until the policy no longer asks for it; then the
//! next ones by address follow. Regions that cost next to nothing (huge ones have one bit, unused ones nothing to set again) are aged at
//! each scan.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::observe::{Observation, ProcessId, ProcessView, Region};
use crate::units::{Share, REGION_PAGES};

/// Scans in a row for which a region is aged when its turn comes.
pub const TURN: u8 = 10;
/// Divisor: the part of the stall budget that ageing may take.
const PART: u32 = 2;

/// The regions to age in one process at one scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgeingChoice {
    /// Regions, by rising address.
    pub regions: Vec<Region>,
    /// Expected stall of the program, if it uses again what it used since the last scan.
    pub stall: Duration,
    /// Number of regions that wait for their turn.
    pub later: usize,
}

/// The turns of the regions of one process.
#[derive(Debug, Default)]
struct Turns {
    /// By region whose turn it is: the scans at which it was aged so far.
    scans: BTreeMap<Region, u8>,
    /// The region from which the next ones are taken.
    next: u64,
}

/// The cost of ageing, and whose turn it is.
#[derive(Debug)]
pub struct Ageing {
    /// Cost of touching a base page again.
    touch: Duration,
    /// Stall allowed for one ageing of a process.
    room: Duration,
    /// The stall budget is 100 %.
    is_free: bool,
    turns: BTreeMap<ProcessId, Turns>,
}

/// Base pages that are expected to be touched again.
fn pages(seen: Option<&Observation>) -> u64 {
    match seen {
        Some(seen) if seen.huge => 1,
        Some(seen) if !seen.raced => seen.accessed.0.into(),
        _ => REGION_PAGES.into(),
    }
}

impl Ageing {
    /// For scans at this interval, within this stall budget, where touching a base page again costs `touch`.
    pub fn new(touch: Duration, interval: Duration, stall: Share) -> Self {
        Self {
            touch,
            room: interval.mul_f64(stall.fraction()) / PART,
            is_free: stall == Share::FULL,
            turns: BTreeMap::new(),
        }
    }

    /// Drops processes that are gone.
    pub fn keep(&mut self, alive: impl Fn(ProcessId) -> bool) {
        self.turns.retain(|process, _| alive(*process));
    }

    /// Of the regions `asked` for (by rising address), those whose turn it is: at least one, so that each gets its turn. If the process `is_behind`,
    /// with more open work than the stall budget allows anyway, only regions that cost next to nothing are chosen, and the turns go on
    /// later.
    pub fn choose(&mut self, process: &ProcessView, asked: &[Region], is_behind: bool) -> AgeingChoice {
        let mut seen = process.regions.iter().peekable();
        let costs: Vec<u64> = asked
            .iter()
            .map(|region| {
                while seen.next_if(|seen| seen.region < *region).is_some() {}
                pages(seen.next_if(|seen| seen.region == *region))
            })
            .collect();
        let room = match self.touch.as_nanos() {
            0 => u64::MAX,
            _ if self.is_free => u64::MAX,
            each => u64::try_from(self.room.as_nanos() / each).unwrap_or(u64::MAX),
        };
        if is_behind && room < u64::MAX {
            return self.chosen(asked, &costs, |i| costs[i] <= 1);
        }
        if costs.iter().sum::<u64>() <= room {
            self.turns.remove(&process.id);
            return self.chosen(asked, &costs, |_| true);
        }

        let turns = self.turns.entry(process.id).or_default();
        let mut is_chosen: Vec<bool> = costs.iter().map(|cost| *cost <= 1).collect();
        let mut left = room.saturating_sub(costs.iter().filter(|cost| **cost <= 1).sum());
        let mut scans = BTreeMap::new();
        let mut take = |i: usize, is_chosen: &mut [bool]| {
            let fits = costs[i] <= left || scans.is_empty();
            if fits {
                left = left.saturating_sub(costs[i]);
                is_chosen[i] = true;
                let so_far: u8 = turns.scans.get(&asked[i]).copied().unwrap_or(0);
                scans.insert(asked[i], so_far + 1);
            }
            fits
        };
        for i in 0..asked.len() {
            if !is_chosen[i] && turns.scans.get(&asked[i]).is_some_and(|scans| *scans < TURN) {
                take(i, &mut is_chosen);
            }
        }
        let first = asked.partition_point(|region| region.0 < turns.next);
        let waiting = (first..asked.len()).chain(0..first);
        for i in waiting {
            if is_chosen[i] || turns.scans.contains_key(&asked[i]) {
                continue;
            }
            if !take(i, &mut is_chosen) {
                turns.next = asked[i].0;
                break;
            }
            turns.next = asked[i].0 + 1;
        }
        turns.scans = scans;
        self.chosen(asked, &costs, |i| is_chosen[i])
    }

    fn chosen(&self, asked: &[Region], costs: &[u64], is_chosen: impl Fn(usize) -> bool) -> AgeingChoice {
        let mut chosen = AgeingChoice::default();
        let mut pages = 0u64;
        for (i, region) in asked.iter().enumerate() {
            if is_chosen(i) {
                chosen.regions.push(*region);
                pages += costs[i];
            }
        }
        chosen.later = asked.len() - chosen.regions.len();
        chosen.stall = self.touch.saturating_mul(u32::try_from(pages).unwrap_or(u32::MAX));
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing;

    const P: ProcessId = ProcessId { pid: 1, started: 1 };

    fn base(region: u64, mapped: u32, accessed: u32) -> Observation {
        testing::base(region, mapped, accessed).0
    }

    fn view(regions: Vec<Observation>) -> (ProcessView, Vec<Region>) {
        let asked = regions.iter().map(|seen| seen.region).collect();
        (ProcessView { id: P, regions }, asked)
    }

    /// Room for this many base pages at a scan.
    fn room_for(pages: u64) -> Ageing {
        let us = Duration::from_micros(1);
        Ageing::new(us, us * 40 * u32::try_from(pages).unwrap(), Share::percent(5))
    }

    fn numbers(chosen: &AgeingChoice) -> Vec<u64> {
        chosen.regions.iter().map(|region| region.0).collect()
    }

    #[test]
    fn what_fits_is_aged_at_once_and_its_cost_is_told() {
        let (view, asked) = view((0..4).map(|i| base(i, 512, 100)).collect());
        let chosen = room_for(400).choose(&view, &asked, false);
        assert_eq!((chosen.regions.len(), chosen.later), (4, 0));
        assert_eq!(chosen.stall, Duration::from_micros(400));
        assert_eq!(room_for(399).choose(&view, &asked, false).regions.len(), 3);
    }

    #[test]
    fn each_region_is_aged_ten_times_in_a_row_and_then_the_next_ones_are() {
        let (view, asked) = view((0..5).map(|i| base(i, 512, 512)).collect());
        let mut ageing = room_for(1024);
        let mut turns = Vec::new();
        for _ in 0..30 {
            let chosen = ageing.choose(&view, &asked, false);
            assert_eq!(chosen.later, 3);
            turns.push(numbers(&chosen));
        }
        assert!(turns[..10].iter().all(|turn| *turn == [0, 1]), "{turns:?}");
        assert!(turns[10..20].iter().all(|turn| *turn == [2, 3]), "{turns:?}");
        assert!(turns[20..].iter().all(|turn| *turn == [0, 4]), "round again: {turns:?}");
    }

    #[test]
    fn a_place_is_free_for_the_next_as_soon_as_its_region_is_no_longer_asked_for() {
        let (mut seen, mut asked) = view((0..4).map(|i| base(i, 512, 512)).collect());
        let mut ageing = room_for(1024);
        assert_eq!(numbers(&ageing.choose(&seen, &asked, false)), [0, 1]);
        seen.regions[0] = testing::huge(0, true).0;
        assert_eq!(
            numbers(&ageing.choose(&seen, &asked, false)),
            [0, 1],
            "one bit: there is not room for a third"
        );
        asked.remove(0);
        seen.regions[1] = base(1, 512, 0);
        assert_eq!(
            numbers(&ageing.choose(&seen, &asked, false)),
            [1, 2, 3],
            "nothing to set again in 1"
        );
    }

    #[test]
    fn one_region_is_always_aged_and_what_costs_nothing_too() {
        let mut regions: Vec<_> = (0..3).map(|i| base(i, 512, 512)).collect();
        regions.extend((3..6).map(|i| testing::huge(i, true).0));
        regions.push(base(6, 512, 0));
        let (view, asked) = view(regions);
        assert_eq!(numbers(&room_for(0).choose(&view, &asked, false)), [0, 3, 4, 5, 6]);
    }

    #[test]
    fn a_program_that_is_behind_pays_for_nothing_more() {
        let (view, asked) = view(vec![
            base(1, 512, 512),
            testing::huge(2, true).0,
            base(3, 512, 0),
            base(4, 512, 512),
        ]);
        let chosen = room_for(600).choose(&view, &asked, true);
        assert_eq!((numbers(&chosen), chosen.later), (vec![2, 3], 2));
        let mut ageing = room_for(512);
        for i in 0..40 {
            let chosen = ageing.choose(&view, &asked, i % 2 == 1);
            let (is_behind, first) = (i % 2 == 1, i < 20);
            assert!(
                is_behind || first == chosen.regions.contains(&Region(1)),
                "{i}: turns go on later"
            );
        }
    }

    #[test]
    fn where_touching_costs_nothing_or_stall_does_not_matter_all_are_aged() {
        let (view, asked) = view((0..1000).map(|i| base(i, 512, 512)).collect());
        let mut free = Ageing::new(Duration::ZERO, Duration::ZERO, Share::ZERO);
        let chosen = free.choose(&view, &asked, false);
        assert_eq!((chosen.regions.len(), chosen.stall), (1000, Duration::ZERO));
        let mut unlimited = Ageing::new(Duration::from_secs(1), Duration::ZERO, Share::FULL);
        assert_eq!(unlimited.choose(&view, &asked, false).regions.len(), 1000);
    }

    proptest::proptest! {
        /// Never more than fits (beyond one region and those that cost a page at most), and each gets its turn.
        #[test]
        fn the_stall_fits_and_every_region_gets_its_turn(
            accessed in proptest::collection::vec(0u32..=512, 1..40), room in 0u64..4096
        ) {
            let (view, asked) = view(accessed.iter().enumerate().map(|(i, a)| base(i as u64, 512, *a)).collect());
            let mut ageing = room_for(room);
            let mut aged = vec![0; asked.len()];
            for _ in 0..=usize::from(TURN) * asked.len() {
                let chosen = ageing.choose(&view, &asked, false);
                proptest::prop_assert_eq!(chosen.regions.len() + chosen.later, asked.len());
                proptest::prop_assert!(chosen.regions.is_sorted());
                let dear: Vec<u64> =
                    chosen.regions.iter().map(|r| u64::from(accessed[r.0 as usize])).filter(|a| *a > 1).collect();
                proptest::prop_assert!(dear.len() <= 1 || dear.iter().sum::<u64>() <= room, "{:?} of {}", dear, room);
                chosen.regions.iter().for_each(|r| aged[r.0 as usize] += 1);
            }
            proptest::prop_assert!(aged.iter().all(|n| *n > 0), "{:?}", aged);
        }
    }
}
