//! A host that is a recording: observations, events and outcomes are those of a full journal.
//!
//! Time is the journal's: each answer moves the clock to the moment of the line that it comes from. Where the loop asks for something that the
//! journal lacks (an action that was not carried out then), the answer is that it failed, which changes nothing else; the comparison
//! shows it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Snapshots;
use crate::action::{Action, ActionKind, Call, CallError, Deferred, Outcome};
use crate::control::STRETCHED;
use crate::host::{AgeingReport, Host, HostEvent, Look, Wake, Wants};
use crate::journal::{Event, JournalError, Line};
use crate::observe::{Can, Machine, Observation, ProcessId, Region, Snapshot, Why};
use crate::units::{BasePages, Blocks, Bytes, Time};

/// A wait that ends later than this after the last action is the wait for the next scan. (The text form truncates times.)
const SLACK: Duration = Duration::from_millis(1);

/// An action that was carried out.
#[derive(Debug)]
struct Past {
    at: Time,
    kind: ActionKind,
    outcome: Outcome,
    took: Duration,
    stall: Option<Duration>,
    returned: BasePages,
    /// Processor time so far; zero in journals without it.
    cpu: Duration,
    /// Host events by then that the loop asks for only after this action.
    events: Vec<HostEvent>,
}

impl Past {
    /// Whether a call was made; otherwise the look before it ruled the action out.
    fn was_tried(&self) -> bool {
        let by_call = matches!(self.outcome, Outcome::Done | Outcome::NoMemory | Outcome::Failed(_));
        // Of what was not called no stall is known either.
        by_call || self.took > Duration::ZERO || self.stall.is_some()
    }

    /// What the look before the action must have shown; none for a region that was gone.
    fn before(&self, region: Region, how: Look) -> Option<Observation> {
        let is_huge = self.kind == ActionKind::Demote;
        let mut seen = Observation {
            region,
            mapped: BasePages::REGION,
            accessed: BasePages::ZERO,
            dirty: BasePages::ZERO,
            // Enough of what an action may expect: populated pages, or zero-filled ones where contents are looked at.
            zero: Some(match how {
                Look::Tables => BasePages::ZERO,
                Look::Contents => BasePages::REGION,
            }),
            kept: BasePages::ZERO,
            huge: is_huge,
            shared: false,
            raced: false,
            aged: false,
            can: Can::ALL,
        };
        if !self.was_tried() {
            match self.outcome {
                Outcome::Gone => return None,
                Outcome::Already => seen.huge = !is_huge,
                Outcome::Busy => seen.raced = true,
                Outcome::Shared => seen.shared = true,
                Outcome::Ineligible(why) => seen.can = cannot(why),
                Outcome::Done | Outcome::NoMemory | Outcome::Failed(_) => {}
            }
        }
        Some(seen)
    }

    /// What the call must have returned.
    fn call(&self) -> Call {
        let error = match self.outcome {
            Outcome::Done | Outcome::Already | Outcome::Shared | Outcome::Gone => None,
            Outcome::Busy => Some(CallError::Busy),
            Outcome::NoMemory => Some(CallError::NoMemory),
            Outcome::Ineligible(_) => Some(CallError::Refused),
            Outcome::Failed(errno) => Some(CallError::Other(errno)),
        };
        Call {
            error,
            took: self.took,
            stall: self.stall,
        }
    }

    /// What the look after it must have shown.
    fn after(&self, region: Region) -> Option<Observation> {
        if self.outcome == Outcome::Gone {
            return None;
        }
        let mut seen = self.before(region, Look::Tables)?;
        if self.outcome == Outcome::Done {
            seen.huge = !seen.huge;
            seen.mapped = BasePages::REGION.less(self.returned);
        }
        seen.shared = self.outcome == Outcome::Shared;
        if let Outcome::Ineligible(why) = self.outcome {
            seen.can.why = Some(why);
        }
        Some(seen)
    }
}

fn cannot(why: Why) -> Can {
    Can {
        promote: false,
        demote: false,
        age: false,
        why: Some(why),
    }
}

/// What followed one scan.
#[derive(Debug, Default)]
struct Scan {
    ages: BTreeMap<u32, VecDeque<(Time, AgeingReport)>>,
    outcomes: Vec<Past>,
    /// Events not yet asked for.
    open: BTreeMap<(u32, Region), VecDeque<usize>>,
    open_promotions: usize,
    /// Whether promotions waited for free blocks.
    short_of_blocks: bool,
}

impl Scan {
    fn add(&mut self, pid: u32, region: Region, past: Past) {
        self.open_promotions += usize::from(past.kind == ActionKind::Promote);
        let open = self.open.entry((pid, region)).or_default();
        open.push_back(self.outcomes.len());
        self.outcomes.push(past);
    }

    fn take(&mut self, pid: u32, region: Region) -> Option<usize> {
        let open = self.open.get_mut(&(pid, region))?;
        let i = open.pop_front()?;
        if open.is_empty() {
            self.open.remove(&(pid, region));
        }
        self.open_promotions -= usize::from(self.outcomes[i].kind == ActionKind::Promote);
        Some(i)
    }
}

/// The recording.
#[derive(Debug)]
pub(super) struct Recorded<'a> {
    lines: &'a [Line],
    /// The next line to tell.
    at: usize,
    snapshots: Snapshots,
    /// The host's clock at time 0 of the journal.
    clock_ns: u64,
    touch: Duration,
    now: Time,
    cpu: Duration,
    scan: Scan,
    events: Vec<HostEvent>,
    /// The action between its two looks, and whether the call was made.
    under_way: Option<(usize, bool)>,
    error: Option<JournalError>,
}

impl<'a> Recorded<'a> {
    pub(super) fn new(lines: &'a [Line]) -> Self {
        let start = lines.iter().find_map(|line| match line.event {
            Event::Start { clock_ns, touch_ns, .. } => Some((clock_ns, touch_ns)),
            _ => None,
        });
        let (clock_ns, touch_ns) = start.unwrap_or_default();
        Self {
            lines,
            at: 0,
            snapshots: Snapshots::default(),
            clock_ns,
            touch: Duration::from_nanos(touch_ns.unwrap_or(0)),
            now: Time(clock_ns),
            cpu: Duration::ZERO,
            scan: Scan::default(),
            events: Vec::new(),
            under_way: None,
            error: None,
        }
    }

    /// Whether there is another complete scan.
    pub(super) fn has_more(&self) -> bool {
        self.next_tick().is_some()
    }

    /// What was wrong with the journal.
    pub(super) fn error(self) -> Option<JournalError> {
        self.error
    }

    /// A moment of the journal on the host's clock.
    fn moment(&self, at: Time) -> Time {
        Time(self.clock_ns.saturating_add(at.0))
    }

    /// When the next scan began, from its end and its duration.
    fn next_tick(&self) -> Option<Time> {
        let rest = &self.lines[self.at..];
        let machine = rest.iter().position(|l| matches!(l.event, Event::Machine { .. }))?;
        rest[machine..].iter().find_map(|line| match line.event {
            Event::Scanned { took_ns, .. } => Some(Time(self.moment(line.at).0.saturating_sub(took_ns))),
            _ => None,
        })
    }

    /// The line as a host event.
    fn happened(&self, line: &Line) -> Option<HostEvent> {
        Some(match &line.event {
            Event::Found { pid, started, name } => {
                let id = ProcessId {
                    pid: *pid,
                    started: *started,
                };
                HostEvent::Found(id, name.clone())
            }
            Event::Gone { pid } => HostEvent::Gone(self.snapshots.id(*pid)),
            Event::Refused { pid, why } => HostEvent::Refused(*pid, why.clone()),
            Event::Notice { text } if !text.starts_with(STRETCHED) => HostEvent::Notice(text.clone()),
            _ => return None,
        })
    }

    /// Reads on to the end of the next scan and what followed it.
    fn read_scan(&mut self) -> Result<Option<Snapshot>, JournalError> {
        let lines = self.lines;
        while let Some(line) = lines.get(self.at) {
            self.at += 1;
            self.events.extend(self.happened(line));
            if let Some(mut snapshot) = self.snapshots.take(line)? {
                snapshot.at = self.moment(snapshot.at);
                self.now = self.moment(line.at);
                if let Event::Scanned { cpu_ns, .. } = line.event {
                    self.cpu = self.cpu.saturating_add(Duration::from_nanos(cpu_ns));
                }
                self.read_deeds()?;
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    /// Reads what was done after a scan, up to the beginning of the next.
    fn read_deeds(&mut self) -> Result<(), JournalError> {
        self.scan = Scan::default();
        // The loop asks for events when something is gone, and otherwise not before the next scan.
        let mut asked = false;
        let lines = self.lines;
        while let Some(line) = lines.get(self.at) {
            match &line.event {
                Event::Age {
                    pid,
                    regions,
                    refused,
                    took_ns,
                    ..
                } => {
                    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                    let aged = AgeingReport {
                        regions: size(*regions),
                        refused: size(*refused),
                        took: Duration::from_nanos(*took_ns),
                    };
                    let at = self.moment(line.at);
                    self.scan.ages.entry(*pid).or_default().push_back((at, aged));
                }
                Event::Outcome {
                    pid,
                    region,
                    action,
                    outcome,
                    took_ns,
                    stall_ns,
                    returned_pages,
                    cpu_ns,
                } => {
                    asked = *outcome == Outcome::Gone;
                    let past = Past {
                        at: self.moment(line.at),
                        kind: *action,
                        outcome: *outcome,
                        took: Duration::from_nanos(*took_ns),
                        stall: stall_ns.map(Duration::from_nanos),
                        returned: BasePages(*returned_pages),
                        cpu: Duration::from_nanos(*cpu_ns),
                        events: Vec::new(),
                    };
                    self.scan.add(*pid, *region, past);
                }
                Event::Defer { why, action, .. } => {
                    asked = false;
                    self.scan.short_of_blocks |= *why == Deferred::FreeBlocks && *action == ActionKind::Promote;
                }
                Event::Stock { .. }
                | Event::Compacted { .. }
                | Event::Felt { .. }
                | Event::Agent { .. }
                | Event::Decide { .. } => {}
                Event::Notice { text } if text.starts_with(STRETCHED) => {}
                Event::Found { .. } | Event::Gone { .. } | Event::Refused { .. } | Event::Notice { .. } if asked => {
                    let event = self.happened(line);
                    self.snapshots.take(line)?;
                    if let Some(past) = self.scan.outcomes.last_mut() {
                        past.events.extend(event);
                    }
                }
                _ => break,
            }
            self.at += 1;
        }
        Ok(())
    }

    /// The remaining events, after the last scan.
    fn read_end(&mut self) -> Result<(), JournalError> {
        let lines = self.lines;
        while let Some(line) = lines.get(self.at) {
            self.at += 1;
            self.events.extend(self.happened(line));
            self.snapshots.take(line)?;
        }
        Ok(())
    }

    fn keep_error<T>(&mut self, result: Result<T, JournalError>) -> Option<T> {
        result.map_err(|error| self.error = Some(error)).ok()
    }
}

impl Host for Recorded<'_> {
    fn now(&self) -> Time {
        self.now
    }

    fn cpu_time(&self) -> Duration {
        self.cpu
    }

    fn touch_cost(&self) -> Duration {
        self.touch
    }

    fn observe(&mut self, _: &Wants) -> Snapshot {
        let read = self.read_scan();
        let nothing = Snapshot {
            at: self.now,
            machine: Machine {
                available_bytes: Bytes(0),
                total_bytes: Bytes(0),
                free_blocks: Blocks(0),
                pressure: None,
            },
            processes: Vec::new(),
        };
        self.keep_error(read).flatten().unwrap_or_else(|| {
            // Nothing sensible can follow.
            self.at = self.lines.len();
            self.scan = Scan::default();
            nothing
        })
    }

    fn age(&mut self, process: ProcessId, _: &[Region]) -> AgeingReport {
        let aged = self.scan.ages.get_mut(&process.pid).and_then(VecDeque::pop_front);
        let (at, aged) = aged.unwrap_or((self.now, AgeingReport::default()));
        self.now = at;
        // Nearly all of it is processor time; the next outcome has the exact figure.
        self.cpu = self.cpu.saturating_add(aged.took);
        aged
    }

    fn look(&mut self, process: ProcessId, region: Region, how: Look) -> Option<Observation> {
        if let Some((i, true)) = self.under_way.take() {
            return self.scan.outcomes[i].after(region);
        }
        let Some(i) = self.scan.take(process.pid, region) else {
            // It was not carried out then: nothing is known of it, and this outcome changes nothing.
            let unknown = Past {
                at: self.now,
                kind: ActionKind::Promote,
                outcome: Outcome::Ineligible(Why::Changed),
                took: Duration::ZERO,
                stall: None,
                returned: BasePages::ZERO,
                cpu: Duration::ZERO,
                events: Vec::new(),
            };
            return unknown.before(region, how);
        };
        let past = &mut self.scan.outcomes[i];
        self.now = past.at;
        if past.cpu > Duration::ZERO {
            self.cpu = past.cpu;
        }
        self.events.append(&mut past.events);
        self.under_way = past.was_tried().then_some((i, false));
        past.before(region, how)
    }

    fn act(&mut self, _: &Action) -> Call {
        match &mut self.under_way {
            Some((i, is_called)) => {
                *is_called = true;
                self.scan.outcomes[*i].call()
            }
            None => Call {
                error: Some(CallError::Refused),
                took: Duration::ZERO,
                stall: None,
            },
        }
    }

    fn free_blocks(&mut self) -> Option<Blocks> {
        (self.scan.short_of_blocks && self.scan.open_promotions == 0).then_some(Blocks(0))
    }

    fn wait(&mut self, until: Time) -> Wake {
        let last = self.scan.outcomes.last().map_or(Time(0), |past| past.at);
        if !self.scan.open.is_empty() && until <= last.after(SLACK) {
            self.now = self.now.max(until);
            return Wake::Time;
        }
        // What was carried out then and is not now is skipped.
        self.scan.open.clear();
        self.scan.open_promotions = 0;
        match self.next_tick() {
            Some(tick) if self.error.is_none() => {
                self.now = tick;
                Wake::Time
            }
            _ => {
                let read = self.read_end();
                self.keep_error(read);
                Wake::Stop
            }
        }
    }

    fn events(&mut self) -> Vec<HostEvent> {
        std::mem::take(&mut self.events)
    }
}
