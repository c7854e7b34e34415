//! Hears the events of one loop, and tells those who keep figures and the journal.

use std::sync::Arc;

use mega_core::control::Observer;
use mega_core::journal::{Event, Line};

use super::figures::Book;
use super::journal::Journal;
use super::metrics::totals::Totals;

/// Who is told beside the book of each configuration.
#[derive(Default, Clone)]
pub struct Tell {
    /// Counters since the daemon's start.
    pub totals: Totals,
    /// The journal, if there is one.
    pub journal: Option<Arc<Journal>>,
}

/// Of one loop.
pub struct Watcher {
    number: usize,
    policy: String,
    book: Book,
    tell: Tell,
}

impl Watcher {
    /// Of the loop of this number and policy.
    pub fn new(number: usize, policy: &str, book: &Book, tell: &Tell) -> Self {
        Self {
            number,
            policy: policy.to_owned(),
            book: book.clone(),
            tell: tell.clone(),
        }
    }
}

impl Observer for Watcher {
    fn event(&mut self, line: &Line) {
        let place = line.event.pid().and_then(|pid| self.book.place_of(pid));
        if let Some(journal) = &self.tell.journal {
            journal.event(&self.policy, place.as_deref(), line);
        }
        match (&line.event, &place) {
            (Event::Scanned { took_ns, cpu_ns, .. }, _) => {
                self.tell.totals.scanned(&self.policy, self.number, *took_ns, *cpu_ns);
            }
            (event, Some(place)) => self.tell.totals.event(place, event),
            _ => {}
        }
        self.book.event(line);
    }
}
