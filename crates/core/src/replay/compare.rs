//! Compares what a replay wrote with the journal, line by line.
//!
//! Not compared is what the journal does not determine: times, processor time, and the free-block target, whose planner saw more than a
//! journal holds.

use std::collections::BTreeMap;

use crate::control::{Observer, STRETCHED};
use crate::journal::{Event, Line};
use crate::units::Time;

/// How many lines of one sort agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// In both.
    pub same: usize,
    /// Of these, how many come in another order.
    pub moved: usize,
    /// In the journal only, as its lines.
    pub missing: Vec<String>,
    /// In the replay only, as journal lines.
    pub extra: Vec<String>,
}

impl Tally {
    /// Whether they are all the same, in the same order.
    pub fn is_same(&self) -> bool {
        self.moved == 0 && self.missing.is_empty() && self.extra.is_empty()
    }

    /// Adds one scan's lines of this sort. `is_cut`: the journal ends within the scan, so that the replay goes further.
    fn add(&mut self, live: &[&Line], again: &[&Line], is_cut: bool) {
        let alike = live.iter().zip(again).take_while(|(a, b)| a.event == b.event).count();
        self.same += alike;
        let (live, again) = (&live[alike..], &again[alike..]);
        if live.is_empty() && (again.is_empty() || is_cut) {
            return;
        }
        let keys = |lines: &[&Line]| lines.iter().map(|line| key(line)).collect::<Vec<_>>();
        let (live_keys, again_keys) = (keys(live), keys(again));
        // How many more of each the replay has.
        let mut more: BTreeMap<&str, i64> = BTreeMap::new();
        again_keys.iter().for_each(|key| *more.entry(key).or_default() += 1);
        let mut missing = Vec::new();
        let mut common_live = Vec::new();
        for (line, key) in live.iter().zip(&live_keys) {
            match more.get_mut(key.as_str()).filter(|n| **n > 0) {
                Some(n) => {
                    *n -= 1;
                    common_live.push(key);
                }
                None => missing.push(line.to_text()),
            }
        }
        let mut extra = Vec::new();
        let mut common_again = Vec::new();
        // The first of each are common to both.
        for (line, key) in again.iter().zip(&again_keys).rev() {
            match more.get_mut(key.as_str()).filter(|n| **n > 0) {
                Some(n) => {
                    *n -= 1;
                    extra.push(line.to_text());
                }
                None => common_again.push(key),
            }
        }
        common_again.reverse();
        extra.reverse();
        self.same += common_live.len();
        self.moved += common_live.iter().zip(&common_again).filter(|(a, b)| a != b).count();
        self.missing.append(&mut missing);
        if !is_cut {
            self.extra.append(&mut extra);
        }
    }
}

/// A line without its time.
fn key(line: &Line) -> String {
    Line {
        at: Time(0),
        event: line.event.clone(),
    }
    .to_text()
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Scans decided again.
    pub scans: usize,
    /// The decisions.
    pub decisions: Tally,
    /// The outcomes of those carried out.
    pub outcomes: Tally,
    /// Deferred decisions, counted by reason.
    pub deferrals: Tally,
    /// All other lines.
    pub rest: Tally,
}

impl Replayed {
    /// Whether every decision is exactly the journal's.
    pub fn is_same(&self) -> bool {
        self.decisions.is_same()
    }
}

/// The line as far as the journal determines it; none if it does not at all.
fn comparable(line: &Line) -> Option<Line> {
    let mut event = line.event.clone();
    match &mut event {
        Event::Stock { .. } | Event::Compacted { .. } | Event::Felt { .. } | Event::Agent { .. } => return None,
        Event::Notice { text } if text.starts_with(STRETCHED) => return None,
        Event::Start { compact, .. } => *compact = None,
        Event::Outcome { cpu_ns, .. } | Event::Stop { cpu_ns, .. } => *cpu_ns = 0,
        _ => {}
    }
    Some(Line { at: line.at, event })
}

fn is_machine(line: &Line) -> bool {
    matches!(line.event, Event::Machine { .. })
}

/// Where lines of a sort are counted.
type Sort<'a> = (&'a mut Tally, fn(&Event) -> bool);

/// Takes what the loop writes and compares it, scan by scan.
#[derive(Debug)]
pub(super) struct Compare<'a> {
    /// The part of the journal not yet compared.
    left: &'a [Line],
    /// Whether the journal has its last line.
    is_whole: bool,
    again: Vec<Line>,
    found: Replayed,
}

impl<'a> Compare<'a> {
    pub(super) fn new(lines: &'a [Line]) -> Self {
        Self {
            left: lines,
            is_whole: matches!(lines.last(), Some(line) if matches!(line.event, Event::Stop { .. })),
            again: Vec::new(),
            found: Replayed::default(),
        }
    }

    /// Compares what there is with the part of the journal up to the next scan.
    fn close(&mut self) {
        // What precedes the first scan is a part too.
        let is_scan = self.again.first().is_none_or(is_machine);
        let first = usize::from(is_scan && self.left.first().is_some_and(is_machine));
        let end = self.left[first..].iter().position(is_machine);
        let end = end.map_or(self.left.len(), |i| first + i);
        let (part, left) = self.left.split_at(end);
        self.left = left;
        let is_cut = left.is_empty() && !self.is_whole;
        let live: Vec<Line> = part.iter().filter_map(comparable).collect();
        let again = std::mem::take(&mut self.again);
        let sorts: [Sort<'_>; 3] = [
            (&mut self.found.decisions, |e| matches!(e, Event::Decide { .. })),
            (&mut self.found.outcomes, |e| matches!(e, Event::Outcome { .. })),
            (&mut self.found.deferrals, |e| matches!(e, Event::Defer { .. })),
        ];
        let (mut live, mut again): (Vec<&Line>, Vec<&Line>) = (live.iter().collect(), again.iter().collect());
        for (tally, is_one) in sorts {
            let (ones, others): (Vec<_>, Vec<_>) = live.into_iter().partition(|line| is_one(&line.event));
            let (ones_again, others_again): (Vec<_>, Vec<_>) = again.into_iter().partition(|line| is_one(&line.event));
            tally.add(&ones, &ones_again, is_cut);
            (live, again) = (others, others_again);
        }
        // A scan that is cut off is not decided again, so it is not compared.
        if !is_cut {
            self.found.rest.add(&live, &again, false);
        }
    }

    pub(super) fn finish(mut self) -> Replayed {
        while !(self.left.is_empty() && self.again.is_empty()) {
            self.close();
        }
        self.found
    }
}

impl Observer for Compare<'_> {
    fn event(&mut self, line: &Line) {
        if is_machine(line) {
            self.close();
        }
        self.found.scans += usize::from(matches!(line.event, Event::Scanned { .. }));
        self.again.extend(comparable(line));
    }
}
