//! Whether the processes of a loop have the coverage that their rules guarantee, and why not.

use std::collections::BTreeMap;

use mega_core::journal::Event;
use mega_core::units::{Share, REGION_PAGES};

/// Scans below the guarantee until it counts as missed: promotions take their time.
const SCANS: u32 = 3;
/// There was nothing to refuse: what is mapped cannot be promoted, or is nearly empty.
const NOTHING_LEFT: &str = "nothing-to-promote";

/// A change that is worth an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The process.
    pub pid: u32,
    /// Its coverage.
    pub coverage: Share,
    /// Why it is too little; none: it is enough again.
    pub why: Option<String>,
}

/// The processes of one loop.
#[derive(Debug)]
pub struct Guarantees {
    least: Share,
    /// Scans in a row for which a process was below.
    below: BTreeMap<u32, u32>,
}

impl Guarantees {
    /// Of this share.
    pub fn new(least: Share) -> Self {
        Self {
            least,
            below: BTreeMap::new(),
        }
    }

    /// The share.
    pub fn least(&self) -> Share {
        self.least
    }

    /// Hears an event; `why_not` is what stood in the way since the last scan.
    pub fn event(&mut self, event: &Event, why_not: impl FnOnce() -> Option<String>) -> Option<Change> {
        let (pid, huge, mapped) = match event {
            Event::Gone { pid } => {
                self.below.remove(pid);
                return None;
            }
            Event::Scan {
                pid,
                huge,
                mapped_pages,
                ..
            } => (*pid, huge.saturating_mul(u64::from(REGION_PAGES)), *mapped_pages),
            _ => return None,
        };
        let coverage = Share::of(huge, mapped);
        if mapped == 0 || self.least.reached_by(huge, mapped) {
            let was_missed = self.below.remove(&pid).is_some_and(|scans| scans >= SCANS);
            return was_missed.then_some(Change {
                pid,
                coverage,
                why: None,
            });
        }
        let scans = self.below.entry(pid).or_default();
        *scans = scans.saturating_add(1);
        (*scans == SCANS).then(|| Change {
            pid,
            coverage,
            why: Some(why_not().unwrap_or_else(|| NOTHING_LEFT.to_owned())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(huge: u64) -> Event {
        Event::Scan {
            pid: 7,
            regions: 4,
            huge,
            mapped_pages: 2048,
            accessed_pages: 0,
            waste_pages: 0,
            inspected: 0,
        }
    }

    #[test]
    fn it_is_missed_after_three_scans_below_with_the_reason_and_met_again_once() {
        let mut of = Guarantees::new(Share::percent(75));
        let mut hear = |event: &Event| of.event(event, || Some("pressure".to_owned()));
        assert_eq!((hear(&scan(2)), hear(&scan(2))), (None, None));
        let missed = hear(&scan(2)).unwrap();
        assert_eq!(
            (missed.coverage, missed.why.as_deref()),
            (Share::percent(50), Some("pressure"))
        );
        assert_eq!(hear(&scan(2)), None);
        assert_eq!(hear(&scan(3)).unwrap().why, None);
        assert_eq!(hear(&scan(4)), None);
    }

    #[test]
    fn a_short_dip_is_none_and_one_that_is_gone_is_forgotten() {
        let mut of = Guarantees::new(Share::percent(75));
        for event in [
            scan(1),
            scan(1),
            scan(3),
            scan(1),
            scan(1),
            Event::Gone { pid: 7 },
            scan(1),
            scan(1),
        ] {
            assert_eq!(of.event(&event, || None), None);
        }
        assert_eq!(of.event(&scan(1), || None).unwrap().why.as_deref(), Some(NOTHING_LEFT));
    }
}
