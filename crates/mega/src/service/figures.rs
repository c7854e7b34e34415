//! What the loops have seen and done, by process, for `mega status` and the metrics: taken from the journal's events as they happen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mega_core::action::{ActionKind, Deferred, Outcome};
use mega_core::control::Observer;
use mega_core::journal::{Event, Felt, Line};
use mega_core::units::{BasePages, HUGE_PAGE_BYTES};
use serde_json::{json, Value as Json};

use crate::output::felt_json;

/// One process, since it came under its rule.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Figures {
    since_ns: u64,
    until_ns: u64,
    mapped_bytes: u64,
    huge_bytes: u64,
    waste_bytes: u64,
    promotions: u64,
    demotions: u64,
    by_others: u64,
    stall_ns: u64,
    felt: Felt,
    /// Of the last scan, and of the actions after it.
    refusals: BTreeMap<String, u64>,
}

/// Where a process belongs.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its rule's name.
    pub rule: String,
    /// Its unit, or else its control group.
    pub service: String,
}

/// What is mapped at the last scan.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// All.
    pub bytes: u64,
    /// By huge pages.
    pub huge: u64,
    /// Zero-filled in huge pages.
    pub waste: u64,
}

#[derive(Debug, Default)]
struct Inner {
    processes: BTreeMap<u32, Figures>,
    /// With the number of the loop that has the process.
    places: BTreeMap<u32, (usize, Arc<Place>)>,
}

/// The figures of all managed processes; clones share them.
#[derive(Debug, Default, Clone)]
pub struct Book(Arc<Mutex<Inner>>);

impl Book {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a loop is about to look at. One that it manages keeps its place.
    pub fn place(&self, number: usize, found: &[(u32, Arc<Place>)]) {
        let inner = &mut *self.inner();
        let listed: BTreeSet<u32> = found.iter().map(|(pid, _)| *pid).collect();
        let processes = &inner.processes;
        inner
            .places
            .retain(|pid, (of, _)| *of != number || listed.contains(pid) || processes.contains_key(pid));
        for (pid, place) in found {
            // Another loop's rule may match it by now; it stays with the loop that has it.
            let others = inner.places.get(pid).is_some_and(|(of, _)| *of != number);
            if !others || !processes.contains_key(pid) {
                inner.places.insert(*pid, (number, Arc::clone(place)));
            }
        }
    }

    /// What a process maps, if a loop has looked at it.
    pub fn mapped(&self, pid: u32) -> Option<Mapped> {
        self.inner().processes.get(&pid).map(|of| Mapped {
            bytes: of.mapped_bytes,
            huge: of.huge_bytes,
            waste: of.waste_bytes,
        })
    }

    /// Why a process has not more in huge pages: what was refused or deferred most often since the last scan.
    pub fn why_not(&self, pid: u32) -> Option<String> {
        let inner = self.inner();
        let refusals = &inner.processes.get(&pid)?.refusals;
        refusals
            .iter()
            .max_by_key(|(_, times)| **times)
            .map(|(why, _)| why.clone())
    }

    /// Where a managed process belongs.
    pub fn place_of(&self, pid: u32) -> Option<Arc<Place>> {
        self.inner().places.get(&pid).map(|(_, place)| Arc::clone(place))
    }

    /// The figures of some processes together; none if no loop has looked at any of them.
    pub fn sum(&self, pids: &[u32]) -> Option<Json> {
        let book = self.inner();
        let each: Vec<&Figures> = pids.iter().filter_map(|pid| book.processes.get(pid)).collect();
        let sum = |of: fn(&Figures) -> u64| each.iter().map(|one| of(one)).fold(0, u64::saturating_add);
        let (mapped, huge, stall) = (sum(|f| f.mapped_bytes), sum(|f| f.huge_bytes), sum(|f| f.stall_ns));
        let managed = sum(|f| f.until_ns.saturating_sub(f.since_ns));
        let mut refusals: BTreeMap<&str, u64> = BTreeMap::new();
        for (why, times) in each.iter().flat_map(|one| &one.refusals) {
            *refusals.entry(why).or_default() += times;
        }
        let mut felt = Felt::default();
        each.iter().for_each(|one| felt.add(&one.felt));
        (!each.is_empty()).then(|| {
            json!({
                "mapped_bytes": mapped, "huge_bytes": huge, "coverage": share(huge, mapped), "waste_bytes": sum(|f| f.waste_bytes),
                "promotions": sum(|f| f.promotions), "demotions": sum(|f| f.demotions),
                "collapsed_by_others": sum(|f| f.by_others), "refusals": refusals,
                "stall": share(stall, managed), "stall_ns": stall, "felt": felt_json(&felt),
            })
        })
    }
}

/// As the journal has it.
pub fn word(why: Deferred) -> String {
    json!(why).as_str().unwrap_or_default().to_owned()
}

/// None where there is no whole.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Observer for Book {
    fn event(&mut self, line: &Line) {
        let inner = &mut *self.inner();
        let book = &mut inner.processes;
        let at = line.at.0;
        let pid = match &line.event {
            Event::Found { pid, .. } => {
                let new = Figures {
                    since_ns: at,
                    ..Figures::default()
                };
                book.insert(*pid, new);
                return;
            }
            Event::Gone { pid } => {
                book.remove(pid);
                inner.places.remove(pid);
                return;
            }
            Event::Scan { pid, .. }
            | Event::Collapsed { pid, .. }
            | Event::Age { pid, .. }
            | Event::Defer { pid, .. }
            | Event::Outcome { pid, .. } => pid,
            _ => return,
        };
        let Some(of) = book.get_mut(pid) else { return };
        of.until_ns = at;
        match &line.event {
            Event::Scan {
                huge,
                mapped_pages,
                waste_pages,
                ..
            } => {
                let page = BasePages(1).bytes().0;
                of.mapped_bytes = mapped_pages.saturating_mul(page);
                of.huge_bytes = huge.saturating_mul(HUGE_PAGE_BYTES);
                of.waste_bytes = waste_pages.saturating_mul(page);
                of.refusals.clear();
            }
            Event::Collapsed { regions, .. } => of.by_others += regions,
            Event::Age { stall_ns, .. } => of.stall_ns = of.stall_ns.saturating_add(*stall_ns),
            Event::Defer { why, regions, .. } => *of.refusals.entry(word(*why)).or_default() += regions,
            Event::Outcome {
                action,
                outcome,
                took_ns,
                stall_ns,
                ..
            } => {
                of.stall_ns = of.stall_ns.saturating_add(stall_ns.unwrap_or(*took_ns));
                of.felt.note(&line.event);
                match (outcome, action) {
                    (Outcome::Done, ActionKind::Promote) => of.promotions += 1,
                    (Outcome::Done, ActionKind::Demote) => of.demotions += 1,
                    (Outcome::Already, _) => {}
                    (refused, _) => *of.refusals.entry(refused.to_string()).or_default() += 1,
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::observe::Region;
    use mega_core::units::Time;

    #[test]
    fn a_process_keeps_the_place_of_the_loop_that_has_it_until_it_is_gone() {
        let mut book = Book::default();
        let place = |rule: &str| {
            Arc::new(Place {
                rule: rule.to_owned(),
                service: String::new(),
            })
        };
        book.place(0, &[(1, place("a")), (2, place("a"))]);
        let mut say = |event| book.event(&Line { at: Time(0), event });
        say(Event::Found {
            pid: 1,
            started: 1,
            name: String::new(),
        });
        book.place(0, &[]);
        book.place(1, &[(1, place("b")), (2, place("b"))]);
        let rule = |book: &Book, pid| book.place_of(pid).map(|place| place.rule.clone());
        assert_eq!(
            (rule(&book, 1).as_deref(), rule(&book, 2).as_deref()),
            (Some("a"), Some("b"))
        );
        book.event(&Line {
            at: Time(0),
            event: Event::Gone { pid: 1 },
        });
        assert_eq!(rule(&book, 1), None);
    }

    #[test]
    fn figures_follow_the_events_of_each_process_and_end_with_it() {
        let mut book = Book::default();
        let mut say = |at: u64, event| {
            let line = Line { at: Time(at), event };
            book.event(&line);
        };
        let found = |pid| Event::Found {
            pid,
            started: 1,
            name: "x".to_owned(),
        };
        let scan = |pid, huge| Event::Scan {
            pid,
            regions: 4,
            huge,
            mapped_pages: 1024,
            accessed_pages: 0,
            waste_pages: 3,
            inspected: 0,
        };
        let outcome = |pid, outcome| Event::Outcome {
            pid,
            region: Region(1),
            action: ActionKind::Promote,
            outcome,
            took_ns: 50,
            stall_ns: Some(10),
            returned_pages: 0,
            cpu_ns: 0,
        };
        let defer = |pid| Event::Defer {
            pid,
            action: ActionKind::Promote,
            why: Deferred::Pressure,
            regions: 2,
        };
        // One that nobody found is not counted.
        for event in [
            found(1),
            found(2),
            scan(1, 1),
            defer(1),
            outcome(1, Outcome::Busy),
            outcome(3, Outcome::Done),
        ] {
            say(0, event);
        }
        say(1000, outcome(1, Outcome::Done));
        say(1000, scan(2, 2));
        let one = book.sum(&[1]).unwrap();
        assert_eq!((&one["huge_bytes"], &one["coverage"]), (&json!(2 << 20), &json!(0.5)));
        assert_eq!((&one["waste_bytes"], &one["promotions"]), (&json!(3 * 4096), &json!(1)));
        assert_eq!((&one["stall_ns"], &one["stall"]), (&json!(20), &json!(0.02)));
        assert_eq!(
            one["felt"],
            json!({"actions": 2, "stall_ns": 20, "longest_ns": 10, "under_us": [[1, 2]]})
        );
        assert_eq!(one["refusals"], json!({"pressure": 2, "busy": 1}));
        let both = book.sum(&[1, 2, 3]).unwrap();
        assert_eq!((&both["coverage"], &both["stall"]), (&json!(0.75), &json!(0.01)));
        // What was refused is refused until the next scan.
        book.event(&Line {
            at: Time(2000),
            event: scan(1, 1),
        });
        assert_eq!(book.sum(&[1]).unwrap()["refusals"], json!({}));
        book.event(&Line {
            at: Time(2000),
            event: Event::Gone { pid: 1 },
        });
        assert_eq!((book.sum(&[1]), book.sum(&[3])), (None, None));
    }
}
