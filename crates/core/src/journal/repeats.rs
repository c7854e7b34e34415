//! Which deferrals are news: one that goes on is said once.

use std::collections::BTreeMap;

use super::Event;
use crate::action::{ActionKind, Deferred};

/// Scans without it after which a deferral has ceased; one that comes back earlier is still the same.
const CEASED: u64 = 10;

/// What has been said of deferrals. Holds a few entries for each process, until it is gone.
#[derive(Debug, Default)]
pub struct Repeats {
    scan: u64,
    /// The scan at which it was last seen.
    going_on: BTreeMap<(u32, ActionKind, Deferred), u64>,
}

impl Repeats {
    /// Whether it says something that the events before it have not. Wants to see every event.
    pub fn is_news(&mut self, event: &Event) -> bool {
        match event {
            Event::Defer { pid, action, why, .. } => self.going_on.insert((*pid, *action, *why), self.scan).is_none(),
            Event::Scanned { .. } => {
                self.scan += 1;
                let scan = self.scan;
                self.going_on.retain(|_, seen| scan - *seen <= CEASED);
                true
            }
            Event::Gone { pid, .. } => {
                self.going_on.retain(|(of, ..), _| of != pid);
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defer(pid: u32, why: Deferred, regions: u64) -> Event {
        Event::Defer {
            pid,
            action: ActionKind::Promote,
            why,
            regions,
        }
    }

    fn scanned() -> Event {
        Event::Scanned {
            processes: 1,
            candidates: 0,
            took_ns: 0,
            cpu_ns: 0,
        }
    }

    #[test]
    fn a_deferral_that_goes_on_is_said_once_and_another_reason_or_process_at_once() {
        let mut repeats = Repeats::default();
        let mut said = Vec::new();
        for scan in 0..100 {
            repeats.is_news(&scanned());
            for (pid, why) in [(1, Deferred::Budget), (2, Deferred::Budget), (1, Deferred::Pressure)] {
                let regions = 10 + scan;
                if (why != Deferred::Pressure || scan >= 50) && repeats.is_news(&defer(pid, why, regions)) {
                    said.push((scan, pid, why));
                }
            }
        }
        assert_eq!(
            said,
            [
                (0, 1, Deferred::Budget),
                (0, 2, Deferred::Budget),
                (50, 1, Deferred::Pressure)
            ]
        );
    }

    #[test]
    fn one_that_ceased_is_said_again_and_one_that_only_paused_is_not() {
        let mut repeats = Repeats::default();
        let mut said = |pause: u64| {
            (0..pause).for_each(|_| {
                repeats.is_news(&scanned());
            });
            repeats.is_news(&defer(1, Deferred::FreeBlocks, 1))
        };
        assert!(said(1));
        assert!(!said(2));
        assert!(!said(CEASED));
        assert!(said(CEASED + 1));
    }

    #[test]
    fn nothing_is_kept_of_a_process_that_is_gone() {
        let mut repeats = Repeats::default();
        repeats.is_news(&defer(1, Deferred::Budget, 1));
        repeats.is_news(&defer(2, Deferred::Budget, 1));
        repeats.is_news(&Event::Gone { pid: 1 });
        assert_eq!(repeats.going_on.len(), 1);
        assert!(repeats.is_news(&defer(1, Deferred::Budget, 1)));
    }
}
