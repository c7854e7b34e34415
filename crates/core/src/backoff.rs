//! Backing off: regions whose action failed, by reason, and regions that flap.
//!
//! A region that was demoted and is huge again is flapping (khugepaged promotes what we demote, or a program fills and empties it). It is left
//! huge twice as long after each demotion. Delays are multiples of the scan interval, so that a fast loop retries fast.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::action::{Action, ActionKind, Deferred, Outcome};
use crate::observe::{ProcessId, Region, Why};
use crate::units::Time;

/// The longest delay.
const LONGEST: Duration = Duration::from_secs(3600);

/// Scan intervals of the first delay after this outcome; doubled each time.
fn first_hold(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Done | Outcome::Already | Outcome::Gone | Outcome::Ineligible(Why::Changed) => 0,
        // Checked at every scan, cheaply, so that it is promoted soon after the sharing process exits.
        Outcome::Shared => 0,
        Outcome::Busy => 1,
        Outcome::NoMemory => 2,
        Outcome::Failed(_) => 6,
        Outcome::Ineligible(_) => 12,
    }
}

/// Scan intervals of the first delay after a demoted region becomes huge again.
const FLAPPING: u32 = 6;

/// Failures and demotions are counted separately, so that a busy moment does not make a flapping region look new.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    until: Time,
    forget: Time,
    failures: u8,
    demotions: u8,
    flapping: bool,
}

/// The delays in force. Bounded: an entry is dropped once its delay has been over for three times its length.
#[derive(Debug)]
pub struct BackOff {
    interval: Duration,
    entries: BTreeMap<(ProcessId, Region, ActionKind), Entry>,
    /// Memory control groups in which a promotion found no memory.
    groups: BTreeMap<u64, Entry>,
}

impl BackOff {
    /// No delays yet; lengths are multiples of this scan interval.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            entries: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Why this action is deferred, if it is.
    pub fn holds(&self, action: &Action, now: Time) -> Option<Deferred> {
        let entry = self.entries.get(&(action.process, action.region, action.kind))?;
        (now < entry.until).then_some(if entry.flapping {
            Deferred::Flapping
        } else {
            Deferred::BackOff
        })
    }

    /// Whether promotions of processes in this memory control group have to wait.
    pub fn holds_group(&self, group: u64, now: Time) -> bool {
        self.groups.get(&group).is_some_and(|entry| now < entry.until)
    }

    /// Takes note that a promotion found no memory within this control group: none of another of its processes would.
    pub fn note_group(&mut self, group: u64, now: Time) {
        let entry = self.groups.entry(group).or_default();
        let doubling = 1u32.checked_shl(entry.failures.into()).unwrap_or(u32::MAX);
        entry.failures = entry.failures.saturating_add(1);
        let hold = self.interval.saturating_mul(first_hold(Outcome::NoMemory));
        let hold = hold.saturating_mul(doubling).min(LONGEST);
        entry.until = now.after(hold);
        entry.forget = now.after(hold * 4);
    }

    /// Records the outcome of an action.
    pub fn note(&mut self, action: &Action, outcome: Outcome, now: Time) {
        let key = (action.process, action.region, action.kind);
        let demoted = outcome == Outcome::Done && action.kind == ActionKind::Demote;
        let mut entry = self.entries.get(&key).copied().unwrap_or_default();
        let (intervals, times) = if demoted {
            (FLAPPING, &mut entry.demotions)
        } else {
            (first_hold(outcome), &mut entry.failures)
        };
        if intervals == 0 {
            match outcome {
                Outcome::Done | Outcome::Already if entry.demotions > 0 => entry.failures = 0,
                Outcome::Done | Outcome::Already | Outcome::Gone => {
                    self.entries.remove(&key);
                    return;
                }
                _ => return,
            }
            self.entries.insert(key, entry);
            return;
        }
        let doubling = 1u32.checked_shl((*times).into()).unwrap_or(u32::MAX);
        *times = times.saturating_add(1);
        let hold = self
            .interval
            .saturating_mul(intervals)
            .saturating_mul(doubling)
            .min(LONGEST);
        entry.until = now.after(hold);
        entry.forget = entry.forget.max(now.after(hold * 4));
        entry.flapping = demoted;
        self.entries.insert(key, entry);
    }

    /// Drops entries that are long over, and processes that are gone.
    pub fn sweep(&mut self, now: Time, alive: impl Fn(ProcessId) -> bool) {
        self.entries
            .retain(|(process, ..), entry| now < entry.forget && alive(*process));
        self.groups.retain(|_, entry| now < entry.forget);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Expect, Reason};
    use crate::units::BasePages;

    const SECOND: Duration = Duration::from_secs(1);

    fn action(kind: ActionKind) -> Action {
        Action {
            process: ProcessId { pid: 1, started: 1 },
            region: Region(1),
            kind,
            reason: Reason::Mapped,
            utilization: None,
            benefit: BasePages(1),
            expect: Expect::Anything,
        }
    }

    /// Seconds from `now` until the action may be tried.
    fn wait(b: &BackOff, action: &Action, now: Time) -> u64 {
        (0..5000)
            .find(|s| b.holds(action, now.after(SECOND * *s as u32)).is_none())
            .unwrap()
    }

    #[test]
    fn a_failure_holds_twice_as_long_each_time_and_by_its_reason() {
        let promote = action(ActionKind::Promote);
        for (outcome, expected) in [
            (Outcome::Busy, [1, 2, 4]),
            (Outcome::NoMemory, [2, 4, 8]),
            (Outcome::Failed(5), [6, 12, 24]),
            (Outcome::Ineligible(Why::Refused), [12, 24, 48]),
            (Outcome::Shared, [0, 0, 0]),
        ] {
            let mut b = BackOff::new(SECOND);
            let mut now = Time(0);
            for hold in expected {
                b.note(&promote, outcome, now);
                assert_eq!(wait(&b, &promote, now), hold, "{outcome}");
                now = now.after(SECOND * hold as u32);
            }
        }
    }

    #[test]
    fn a_demoted_region_that_comes_back_is_left_alone_longer_each_time() {
        let mut b = BackOff::new(SECOND);
        let demote = action(ActionKind::Demote);
        let mut now = Time(0);
        for hold in [6, 12, 24, 48] {
            b.note(&demote, Outcome::Done, now);
            assert_eq!(b.holds(&demote, now), Some(Deferred::Flapping));
            assert_eq!(b.holds(&action(ActionKind::Promote), now), None);
            assert_eq!(wait(&b, &demote, now), hold);
            now = now.after(SECOND * hold as u32);
        }
    }

    #[test]
    fn a_success_ends_the_hold_and_time_ends_the_memory() {
        let mut b = BackOff::new(SECOND);
        let promote = action(ActionKind::Promote);
        b.note(&promote, Outcome::Busy, Time(0));
        b.note(&promote, Outcome::Done, Time(0));
        assert!(b.is_empty());
        b.note(&promote, Outcome::Busy, Time(0));
        b.sweep(Time(0).after(SECOND * 3), |_| true);
        assert_eq!(b.len(), 1);
        b.sweep(Time(0).after(SECOND * 4), |_| true);
        assert!(b.is_empty());
        b.note(&promote, Outcome::Busy, Time(0));
        b.sweep(Time(0), |_| false);
        assert!(b.is_empty(), "the process is gone");
    }

    #[test]
    fn a_failure_or_an_outside_split_does_not_make_a_flapping_region_look_new() {
        for between in [Outcome::Busy, Outcome::Already, Outcome::Ineligible(Why::Changed)] {
            let mut b = BackOff::new(SECOND);
            let demote = action(ActionKind::Demote);
            b.note(&demote, Outcome::Done, Time(0));
            let later = Time(0).after(SECOND * 6);
            b.note(&demote, between, later);
            let later = later.after(SECOND * wait(&b, &demote, later) as u32);
            b.note(&demote, Outcome::Done, later);
            assert_eq!(wait(&b, &demote, later), 12, "{between}");
        }
    }

    #[test]
    fn a_group_without_memory_is_held_twice_as_long_each_time_and_then_forgotten() {
        let mut b = BackOff::new(SECOND);
        let mut now = Time(0);
        for hold in [2, 4, 8] {
            b.note_group(7, now);
            assert!(b.holds_group(7, now.after(SECOND * (hold - 1))) && !b.holds_group(8, now));
            now = now.after(SECOND * hold);
            assert!(!b.holds_group(7, now));
        }
        b.sweep(now.after(SECOND * 24), |_| true);
        assert!(b.groups.is_empty());
    }

    #[test]
    fn no_hold_is_longer_than_an_hour_however_often_it_fails() {
        let mut b = BackOff::new(SECOND);
        let promote = action(ActionKind::Promote);
        for _ in 0..300 {
            b.note(&promote, Outcome::Failed(5), Time(0));
        }
        assert_eq!(wait(&b, &promote, Time(0)), 3600);
    }
}
