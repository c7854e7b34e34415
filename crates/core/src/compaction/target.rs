//! The free-block target: when to order a compaction of how many blocks, and when to back off.
//!
//! - Once per interval the planner says how many blocks are wanted. The host's actuator selects which ones to evacuate (an unmodified kernel
//!   selects them itself).
//! - An order is bounded in blocks and in time. The host carries it out in the background; nobody waits for it.
//! - After a fruitless order it backs off, twice as long each time, counted per reason. One success ends all back-off.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::compaction::planner::{to_gain, Planner, PlannerInput};
use crate::units::{Blocks, Time};

/// The longest back-off.
const LONGEST: Duration = Duration::from_secs(3600);
/// Divisor: a pass that gains less than this part of its order counts as fruitless.
const FRUITFUL_PART: u64 = 8;

/// An upper bound on one compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Free blocks to gain beyond the present ones.
    pub blocks: Blocks,
    /// Time limit.
    pub time: Duration,
}

/// Why a compaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Target reached: as many blocks are free as were ordered.
    Amount,
    /// Time limit reached.
    Time,
    /// All of memory was scanned.
    Through,
    /// It was told to stop.
    Stopped,
    /// Not possible on this machine, now or at all.
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

/// The result of a compaction, by the looks before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// The actuator's name.
    pub way: &'static str,
    /// Blocks ordered.
    pub asked: Blocks,
    /// Free blocks before.
    pub before: Blocks,
    /// Free blocks after. Other activity allocates and frees blocks too.
    pub after: Blocks,
    /// Memory that went onto per-CPU free lists meanwhile, in blocks. It is unavailable as blocks until the kernel drains the lists, within about
    /// ten seconds (Linux 6.7 and later keep up to an eighth of a zone there).
    pub on_lists: Blocks,
    /// Base pages migrated meanwhile, by anyone.
    pub moved_pages: u64,
    /// Its duration.
    pub took: Duration,
    /// Its processor time, the kernel's compaction thread included.
    pub cpu: Duration,
    /// Why it ended.
    pub ended: Ended,
    /// Outcomes of the selected blocks; none where the kernel selected them.
    pub chosen: Option<ChosenBlocks>,
}

/// Outcomes of selected blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenBlocks {
    /// Number of blocks by outcome, by the actuator's word.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Of those reported as freed, how many a look right afterwards found entirely free.
    pub seen_free: Blocks,
}

impl ChosenBlocks {
    /// As in the journal: `freed:38,pinned:2`.
    pub fn to_text(&self) -> String {
        let each = self.outcomes.iter().map(|(word, n)| format!("{word}:{n}"));
        each.collect::<Vec<_>>().join(",")
    }
}

impl Compacted {
    /// Free blocks gained; zero if there are fewer than before.
    pub fn gained(&self) -> Blocks {
        Blocks(self.after.0.saturating_sub(self.before.0))
    }

    /// The reason to back off, if any.
    fn trouble(&self) -> Option<Ended> {
        let fruitless = (self.gained().0 + self.on_lists.0) * FRUITFUL_PART < self.asked.0.max(1);
        match self.ended {
            Ended::Amount | Ended::Stopped => None,
            Ended::Refused => Some(Ended::Refused),
            ended => fruitless.then_some(ended),
        }
    }
}

/// If so many times as much can be gained as when an order last failed, back-off ends. Amounts up to [`FEW`] blocks never end it.
const MUCH_MORE: u64 = 2;
const FEW: u64 = 64;

/// Planner intervals of the first back-off; doubled each time.
fn first_hold(trouble: Ended) -> u32 {
    match trouble {
        // Nothing could be migrated, or there was no room for it: that changes slowly.
        Ended::Through => 4,
        Ended::Time => 2,
        Ended::Refused => 12,
        Ended::Amount | Ended::Stopped => 0,
    }
}

/// The result of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Demand: blocks asked for since the last pass.
    pub asked: Blocks,
    /// Blocks to make free.
    pub wanted: Blocks,
    /// Backing off: the last orders were fruitless.
    pub held: bool,
}

/// A planner, and the results of its orders.
pub struct FreeBlockTarget {
    planner: Box<dyn Planner>,
    due: Time,
    until: Time,
    failures: BTreeMap<Ended, u32>,
    /// Blocks that compaction could gain at the last pass, and when an order was last fruitless.
    to_gain: u64,
    failed_to_gain: u64,
    huge_faults: Option<u64>,
    promoted: u64,
}

impl FreeBlockTarget {
    /// A target without any orders yet; its first pass is due at once.
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

    /// The planner that says how many blocks are wanted.
    pub fn planner(&self) -> &dyn Planner {
        self.planner.as_ref()
    }

    /// When the next pass is due.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Demand since the last pass, in blocks: promotions done, promotions waiting now, and huge faults of the whole machine. Both `promoted` and
    /// `huge_faults` are counted from any origin.
    pub fn asked(&mut self, promoted: u64, waiting: u64, huge_faults: u64) -> Blocks {
        let done = promoted.saturating_sub(std::mem::replace(&mut self.promoted, promoted));
        let before = self.huge_faults.replace(huge_faults).unwrap_or(huge_faults);
        let faults = huge_faults.saturating_sub(before);
        Blocks(done.saturating_add(waiting).saturating_add(faults))
    }

    /// One pass: how many blocks are wanted, and whether to back off. The next one is due an interval after this one was, so that a caller that
    /// looks about every five seconds misses none.
    pub fn pass(&mut self, now: Time, seen: &PlannerInput<'_>) -> Pass {
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

    /// Records the result of an order.
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
    use crate::compaction::block::ZoneKind;
    use crate::compaction::planner::{by_name, testing::zone};
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

    fn target() -> FreeBlockTarget {
        FreeBlockTarget::new(by_name("mega").unwrap())
    }

    fn pass(target: &mut FreeBlockTarget, now: Time) -> Pass {
        let seen = PlannerInput {
            blocks: &[],
            zones: &[],
            total: Bytes(0),
            asked: Blocks(0),
        };
        target.pass(now, &seen)
    }

    /// Seconds from `now` for which nothing is ordered.
    fn hold(target: &mut FreeBlockTarget, now: Time) -> u64 {
        (0..10_000)
            .find(|s| !pass(target, now.after(SECOND * *s as u32)).held)
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
            let mut target = target();
            let mut now = Time(0);
            for seconds in expected {
                target.note(now, &compacted(100, 0, ended));
                assert_eq!(hold(&mut target, now), seconds, "{ended:?}");
                now = now.after(SECOND * seconds as u32);
            }
        }
    }

    #[test]
    fn reasons_are_counted_apart_and_one_success_ends_them_all() {
        let mut target = target();
        target.note(Time(0), &compacted(100, 0, Ended::Through));
        target.note(Time(0), &compacted(100, 0, Ended::Time));
        assert_eq!(hold(&mut target, Time(0)), 10, "the first of its reason");
        target.note(Time(0), &compacted(100, 100, Ended::Amount));
        target.note(Time(0), &compacted(100, 0, Ended::Through));
        assert_eq!(hold(&mut target, Time(0)), 20, "as if it were the first");
    }

    #[test]
    fn an_eighth_of_what_was_ordered_is_fruit_enough() {
        for (gained, seconds) in [(13, 0), (12, 20), (0, 20)] {
            let mut target = target();
            target.note(Time(0), &compacted(100, gained, Ended::Through));
            assert_eq!(hold(&mut target, Time(0)), seconds, "{gained} of 100");
        }
    }

    #[test]
    fn what_went_onto_the_processors_lists_counts_as_fruit() {
        let mut target = target();
        let done = Compacted {
            on_lists: Blocks(20),
            ..compacted(100, 0, Ended::Through)
        };
        target.note(Time(0), &done);
        assert_eq!(hold(&mut target, Time(0)), 0);
    }

    #[test]
    fn no_hold_is_longer_than_an_hour_however_often_it_fails() {
        let mut target = target();
        for _ in 0..100 {
            target.note(Time(0), &compacted(100, 0, Ended::Refused));
        }
        assert_eq!(hold(&mut target, Time(0)), 3600);
    }

    #[test]
    fn demand_is_what_was_promoted_what_waits_and_huge_faults_each_once() {
        let mut target = target();
        assert_eq!(
            target.asked(3, 10, 5000),
            Blocks(13),
            "faults from before the start do not count"
        );
        assert_eq!(
            target.asked(13, 0, 5007),
            Blocks(17),
            "what waited was promoted, and seven faults"
        );
        assert_eq!(target.asked(13, 4, 5007), Blocks(4));
        assert_eq!(target.asked(13, 4, 1), Blocks(4), "counters that went back say nothing");
    }

    #[test]
    fn a_pass_is_due_an_interval_after_the_last_was() {
        let mut target = target();
        assert_eq!(target.due(), Time(0));
        pass(&mut target, Time(7));
        assert_eq!(
            target.due(),
            Time(0).after(5 * SECOND),
            "the next look is five seconds after the last, not more"
        );
        let late = Time(0).after(17 * SECOND);
        pass(&mut target, late);
        assert_eq!(
            target.due(),
            late.after(5 * SECOND),
            "what was missed is not made up for"
        );
    }

    #[test]
    fn much_more_to_gain_ends_a_hold() {
        for (failed, now, held) in [(200, 400, true), (200, 401, false), (0, 128, true), (0, 129, false)] {
            let mut target = target();
            let mut pass = |to_gain: u64| {
                let zones = [zone(ZoneKind::Normal, to_gain * 512, 0)];
                let seen = PlannerInput {
                    blocks: &[],
                    zones: &zones,
                    total: Bytes(0),
                    asked: Blocks(0),
                };
                let held = target.pass(Time(0), &seen).held;
                target.note(Time(0), &compacted(100, 0, Ended::Through));
                held
            };
            assert!(!pass(failed));
            assert_eq!(pass(now), held, "{failed} and then {now}");
        }
    }
}
