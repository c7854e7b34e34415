//! Hears the events of one loop, and tells those who keep figures and the journal.

use std::sync::Arc;

use mega_core::control::Observer;
use mega_core::journal::{Event, Line, Repeats};
use serde_json::json;

use super::config::Loop;
use super::figures::{Book, Place};
use super::guarantee::Guarantees;
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
    guarantees: Option<Guarantees>,
    repeats: Repeats,
}

impl Watcher {
    /// Of the loop of this number and policy.
    pub fn new(number: usize, needs: &Loop, book: &Book, tell: &Tell) -> Self {
        Self {
            number,
            policy: needs.policy.clone(),
            book: book.clone(),
            tell: tell.clone(),
            guarantees: needs.guarantee().map(Guarantees::new),
            repeats: Repeats::default(),
        }
    }

    fn guarantee(&mut self, line: &Line, place: Option<&Place>) {
        let (Some(of), Some(place)) = (&mut self.guarantees, place) else {
            return;
        };
        let pid = line.event.pid().unwrap_or(0);
        let change = of.event(&line.event, || self.book.why_not(pid));
        if let (Event::Gone { .. }, None) = (&line.event, &change) {
            self.tell.totals.guarantee(place, pid, None);
        }
        let Some(change) = change else { return };
        if let Some(journal) = &self.tell.journal {
            let fields = json!({
                "rule": place.rule, "service": place.service, "pid": change.pid, "kept": change.why.is_none(),
                "coverage_ppm": change.coverage.as_millionths(), "guarantee_ppm": of.least().as_millionths(),
                "why": change.why,
            });
            journal.say("guarantee", &fields);
        }
        self.tell.totals.guarantee(place, change.pid, change.why);
    }
}

impl Observer for Watcher {
    fn event(&mut self, line: &Line) {
        let place = line.event.pid().and_then(|pid| self.book.place_of(pid));
        let is_news = self.repeats.is_news(&line.event);
        if let Some(journal) = self.tell.journal.as_ref().filter(|_| is_news) {
            journal.event(&self.policy, place.as_deref(), line);
        }
        // Before the book forgets what was refused.
        self.guarantee(line, place.as_deref());
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
