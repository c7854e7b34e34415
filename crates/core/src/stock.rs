//! The stock of free blocks: when to have how many made, and when to leave it.
//!
//! - Once per interval of its planner it asks how many blocks are wanted. The planner says how many, the host's actuator which (a stock
//!   kernel picks them itself).
//! - An order is bounded in blocks and in time. The host carries it out beside the loop; nobody waits for it.
//! - What yields nothing is left alone, twice as long each time, each reason counted by itself. One success ends all holds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::planner::{to_gain, Planner, Seen};
use crate::units::{Blocks, Time};

/// No hold is longer.
const LONGEST: Duration = Duration::from_secs(3600);
/// A pass that gains less than this part of what was ordered counts as fruitless.
const FRUITFUL_PART: u64 = 8;

/// What is to be made, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Free blocks to have beyond those that there are.
    pub blocks: Blocks,
    /// Time for it.
    pub time: Duration,
}

/// Why a compaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// As many blocks are free as were ordered.
    Amount,
    /// Its time was over.
    Time,
    /// Everything was gone through.
    Through,
    /// It was told to stop.
    Stopped,
    /// The machine does not allow it, now or at all.
    Refused,
}

impl Ended {
    /// Its word in the journal and in output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Amount => "amount",
            Self::Time => "time",
            Self::Through => "through",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
        }
    }
}

/// What a compaction came to, by the looks before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// How it was done: the actuator's name.
    pub way: &'static str,
    /// Blocks ordered.
    pub asked: Blocks,
    /// Free blocks before.
    pub before: Blocks,
    /// Free blocks after. Others take and free blocks too.
    pub after: Blocks,
    /// Memory that went onto the processors' own free lists meanwhile, in blocks. Nobody can have it as blocks until the kernel takes it
    /// from there, which it does within about ten seconds (Linux 6.7 and later keep up to an eighth of a zone there).
    pub on_lists: Blocks,
    /// Base pages moved meanwhile, by whomever.
    pub moved_pages: u64,
    /// Time it took.
    pub took: Duration,
    /// Processor time it took, the kernel's compaction thread included.
    pub cpu: Duration,
    /// Why it ended.
    pub ended: Ended,
    /// What became of the blocks that were chosen; none where the kernel chose.
    pub chosen: Option<Chosen>,
}

/// What became of chosen blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// How many came to what, by the actuator's word.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Of those that are said to have become free, how many a look right afterwards saw as nothing but free pages.
    pub seen_free: Blocks,
}

impl Chosen {
    /// As the journal has it: `freed:38,pinned:2`.
    pub fn to_text(&self) -> String {
        let each = self.outcomes.iter().map(|(word, n)| format!("{word}:{n}"));
        each.collect::<Vec<_>>().join(",")
    }
}

impl Compacted {
    /// Free blocks more than before; none where there are fewer.
    pub fn gained(&self) -> Blocks {
        Blocks(self.after.0.saturating_sub(self.before.0))
    }

    /// The reason to wait before the next one.
    fn trouble(&self) -> Option<Ended> {
        let fruitless = (self.gained().0 + self.on_lists.0) * FRUITFUL_PART < self.asked.0.max(1);
        match self.ended {
            Ended::Amount | Ended::Stopped => None,
            Ended::Refused => Some(Ended::Refused),
            ended => fruitless.then_some(ended),
        }
    }
}

/// With so many times as much to gain as when an order came to nothing, it is worth another try at once. So few blocks never are.
const MUCH_MORE: u64 = 2;
const FEW: u64 = 64;

/// Intervals for which nothing is ordered first; twice as many each time.
fn first_hold(trouble: Ended) -> u32 {
    match trouble {
        // Nothing that could be moved, or no room for it: that changes slowly.
        Ended::Through => 4,
        Ended::Time => 2,
        Ended::Refused => 12,
        Ended::Amount | Ended::Stopped => 0,
    }
}

/// What one pass found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Blocks that were asked for since the last pass.
    pub asked: Blocks,
    /// Blocks to make.
    pub wanted: Blocks,
    /// The last orders came to nothing: leave it.
    pub held: bool,
}

/// A planner, and what became of its orders.
pub struct Stock {
    planner: Box<dyn Planner>,
    due: Time,
    until: Time,
    failures: BTreeMap<Ended, u32>,
    /// Blocks that could be made of free memory at the last pass, and when an order last came to nothing.
    to_gain: u64,
    failed_to_gain: u64,
    huge_faults: Option<u64>,
    promoted: u64,
}

impl Stock {
    /// A stock for which nothing was ordered yet; its first pass is due at once.
    pub fn new(planner: Box<dyn Planner>) -> Self {
        Self {
            planner,
            due: Time(0),
            until: Time(0),
            failures: BTreeMap::new(),
            to_gain: 0,
            failed_to_gain: 0,
            huge_faults: None,
            promoted: 0,
        }
    }

    /// Who says how many.
    pub fn planner(&self) -> &dyn Planner {
        self.planner.as_ref()
    }

    /// When the next pass is due.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Blocks asked for since the last pass: promotions done and those that wait now, and the huge faults of the whole machine. Both
    /// `promoted` and `huge_faults` are counted from some beginning.
    pub fn asked(&mut self, promoted: u64, waiting: u64, huge_faults: u64) -> Blocks {
        let done = promoted.saturating_sub(std::mem::replace(&mut self.promoted, promoted));
        let before = self.huge_faults.replace(huge_faults).unwrap_or(huge_faults);
        let faults = huge_faults.saturating_sub(before);
        Blocks(done.saturating_add(waiting).saturating_add(faults))
    }

    /// One pass: what is wanted, and whether to leave it. The next one is due an interval after this one was: whoever looks every five seconds, give
    /// or take, misses none.
    pub fn pass(&mut self, now: Time, seen: &Seen<'_>) -> Pass {
        let interval = self.planner.interval();
        let next = self.due.after(interval);
        self.due = if next > now { next } else { now.after(interval) };
        self.to_gain = seen.zones.iter().map(to_gain).fold(0, u64::saturating_add);
        let much_more = self.to_gain > MUCH_MORE * self.failed_to_gain.max(FEW);
        Pass {
            asked: seen.asked,
            wanted: self.planner.want(seen),
            held: now < self.until && !much_more,
        }
    }

    /// Takes note of what came of an order.
    pub fn note(&mut self, now: Time, done: &Compacted) {
        let Some(trouble) = done.trouble() else {
            if done.gained() > Blocks(0) {
                self.failures.clear();
            }
            return;
        };
        let times = self.failures.entry(trouble).or_default();
        let doubling = 1u32.checked_shl(*times).unwrap_or(u32::MAX);
        *times = times.saturating_add(1);
        self.failed_to_gain = self.to_gain;
        let hold = self.planner.interval().saturating_mul(first_hold(trouble));
        self.until = now.after(hold.saturating_mul(doubling).min(LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::ZoneKind;
    use crate::planner::{by_name, testing::zone};
    use crate::units::Bytes;

    const SECOND: Duration = Duration::from_secs(1);

    fn compacted(asked: u64, gained: u64, ended: Ended) -> Compacted {
        Compacted {
            way: "test",
            asked: Blocks(asked),
            before: Blocks(10),
            after: Blocks(10 + gained),
            on_lists: Blocks(0),
            moved_pages: 0,
            took: SECOND,
            cpu: SECOND,
            ended,
            chosen: None,
        }
    }

    fn stock() -> Stock {
        Stock::new(by_name("mega").unwrap())
    }

    fn pass(stock: &mut Stock, now: Time) -> Pass {
        let seen = Seen {
            blocks: &[],
            zones: &[],
            total: Bytes(0),
            asked: Blocks(0),
        };
        stock.pass(now, &seen)
    }

    /// Seconds from `now` for which nothing is ordered.
    fn hold(stock: &mut Stock, now: Time) -> u64 {
        (0..10_000)
            .find(|s| !pass(stock, now.after(SECOND * *s as u32)).held)
            .unwrap()
    }

    #[test]
    fn what_yields_nothing_is_left_alone_twice_as_long_each_time_by_its_reason() {
        for (ended, expected) in [
            (Ended::Through, [20, 40, 80]),
            (Ended::Time, [10, 20, 40]),
            (Ended::Refused, [60, 120, 240]),
            (Ended::Stopped, [0, 0, 0]),
        ] {
            let mut stock = stock();
            let mut now = Time(0);
            for seconds in expected {
                stock.note(now, &compacted(100, 0, ended));
                assert_eq!(hold(&mut stock, now), seconds, "{ended:?}");
                now = now.after(SECOND * seconds as u32);
            }
        }
    }

    #[test]
    fn reasons_are_counted_apart_and_one_success_ends_them_all() {
        let mut stock = stock();
        stock.note(Time(0), &compacted(100, 0, Ended::Through));
        stock.note(Time(0), &compacted(100, 0, Ended::Time));
        assert_eq!(hold(&mut stock, Time(0)), 10, "the first of its reason");
        stock.note(Time(0), &compacted(100, 100, Ended::Amount));
        stock.note(Time(0), &compacted(100, 0, Ended::Through));
        assert_eq!(hold(&mut stock, Time(0)), 20, "as if it were the first");
    }

    #[test]
    fn an_eighth_of_what_was_ordered_is_fruit_enough() {
        for (gained, seconds) in [(13, 0), (12, 20), (0, 20)] {
            let mut stock = stock();
            stock.note(Time(0), &compacted(100, gained, Ended::Through));
            assert_eq!(hold(&mut stock, Time(0)), seconds, "{gained} of 100");
        }
    }

    #[test]
    fn what_went_onto_the_processors_lists_counts_as_fruit() {
        let mut stock = stock();
        let done = Compacted {
            on_lists: Blocks(20),
            ..compacted(100, 0, Ended::Through)
        };
        stock.note(Time(0), &done);
        assert_eq!(hold(&mut stock, Time(0)), 0);
    }

    #[test]
    fn no_hold_is_longer_than_an_hour_however_often_it_fails() {
        let mut stock = stock();
        for _ in 0..100 {
            stock.note(Time(0), &compacted(100, 0, Ended::Refused));
        }
        assert_eq!(hold(&mut stock, Time(0)), 3600);
    }

    #[test]
    fn demand_is_what_was_promoted_what_waits_and_huge_faults_each_once() {
        let mut stock = stock();
        assert_eq!(
            stock.asked(3, 10, 5000),
            Blocks(13),
            "faults from before we came are nobody's"
        );
        assert_eq!(
            stock.asked(13, 0, 5007),
            Blocks(17),
            "what waited was promoted, and seven faults"
        );
        assert_eq!(stock.asked(13, 4, 5007), Blocks(4));
        assert_eq!(stock.asked(13, 4, 1), Blocks(4), "counters that went back say nothing");
    }

    #[test]
    fn a_pass_is_due_an_interval_after_the_last_was() {
        let mut stock = stock();
        assert_eq!(stock.due(), Time(0));
        pass(&mut stock, Time(7));
        assert_eq!(
            stock.due(),
            Time(0).after(5 * SECOND),
            "the next look is five seconds after the last, not more"
        );
        let late = Time(0).after(17 * SECOND);
        pass(&mut stock, late);
        assert_eq!(
            stock.due(),
            late.after(5 * SECOND),
            "what was missed is not made up for"
        );
    }

    #[test]
    fn much_more_to_gain_ends_a_hold() {
        for (failed, now, held) in [(200, 400, true), (200, 401, false), (0, 128, true), (0, 129, false)] {
            let mut stock = stock();
            let mut pass = |to_gain: u64| {
                let zones = [zone(ZoneKind::Normal, to_gain * 512, 0)];
                let seen = Seen {
                    blocks: &[],
                    zones: &zones,
                    total: Bytes(0),
                    asked: Blocks(0),
                };
                let held = stock.pass(Time(0), &seen).held;
                stock.note(Time(0), &compacted(100, 0, Ended::Through));
                held
            };
            assert!(!pass(failed));
            assert_eq!(pass(now), held, "{failed} and then {now}");
        }
    }
}
