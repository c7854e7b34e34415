//! Deciding again from a full journal: the observations in it go through a policy anew, and its decisions are compared with those
//! that the journal holds. Policies are pure, so they must be the same line by line.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::{Action, Kind, Reason};
use crate::journal::{seen, Event, JournalError, Line, SEEN_MAX};
use crate::observe::{Machine, ProcessId, ProcessView, Region, Snapshot};
use crate::policy::{by_name, Policy};
use crate::units::{Blocks, Bytes, Share, Time};

/// What a replay found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Scans decided again.
    pub scans: usize,
    /// Decisions in the journal that the policy made again.
    pub same: usize,
    /// Decisions in the journal that the policy did not make, as journal lines.
    pub missing: Vec<String>,
    /// Decisions that the policy made and the journal does not have, as journal lines.
    pub extra: Vec<String>,
}

impl Replayed {
    /// Whether the policy decided exactly as the journal says.
    pub fn is_same(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty()
    }
}

/// The policy that wrote a journal, from its `start` event; none if it is another event.
pub fn policy_of(start: &Event) -> Option<Result<Box<dyn Policy>, JournalError>> {
    let Event::Start { policy, params, .. } = start else {
        return None;
    };
    let build = || {
        let mut built = by_name(policy).ok_or_else(|| JournalError::new(format!("no policy '{policy}'")))?;
        for setting in params.split(',').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| JournalError::new(format!("parameter '{setting}' without '='")))?;
            built.set(name, value).map_err(|e| JournalError::new(e.to_string()))?;
        }
        built.check().map_err(|e| JournalError::new(e.to_string()))?;
        Ok(built)
    };
    Some(build())
}

/// Rebuilds what was seen, scan by scan, from the lines of a full journal.
#[derive(Debug, Default)]
pub struct Snapshots {
    machine: Option<(Time, Machine)>,
    processes: Vec<ProcessView>,
    regions: u64,
    /// Start times by PID: a process of which nothing is mapped has no `see` event to tell its own.
    started: BTreeMap<u32, u64>,
}

impl Snapshots {
    /// Takes the next line; returns a snapshot when its scan is complete.
    pub fn take(&mut self, line: &Line) -> Result<Option<Snapshot>, JournalError> {
        match &line.event {
            Event::Found { pid, started, .. } => {
                self.started.insert(*pid, *started);
            }
            Event::Gone { pid } => {
                self.started.remove(pid);
            }
            Event::Machine {
                seen_ns,
                available_bytes,
                total_bytes,
                free_blocks,
                pressure_ppm,
            } => {
                self.processes.clear();
                self.regions = 0;
                let machine = Machine {
                    available_bytes: Bytes(*available_bytes),
                    total_bytes: Bytes(*total_bytes),
                    free_blocks: Blocks(*free_blocks),
                    pressure: pressure_ppm.map(Share::millionths),
                };
                self.machine = Some((Time(*seen_ns), machine));
            }
            Event::See {
                pid, started, count, ..
            } => {
                self.regions = self.regions.saturating_add(*count);
                if self.regions > SEEN_MAX {
                    return Err(JournalError::new(format!("more than {SEEN_MAX} regions in one scan")));
                }
                let process = self.process(ProcessId {
                    pid: *pid,
                    started: *started,
                });
                process.regions.extend(seen(&line.event)?.unwrap_or_default());
            }
            Event::Scan { pid, regions: 0, .. } => {
                let started = self.started.get(pid).copied().unwrap_or_default();
                self.process(ProcessId { pid: *pid, started });
            }
            Event::Scanned { .. } => {
                return Ok(self.machine.take().map(|(at, machine)| Snapshot {
                    at,
                    machine,
                    processes: std::mem::take(&mut self.processes),
                }))
            }
            _ => {}
        }
        Ok(None)
    }

    fn process(&mut self, id: ProcessId) -> &mut ProcessView {
        let known = self.processes.iter().rposition(|process| process.id == id);
        let i = known.unwrap_or_else(|| {
            self.processes.push(ProcessView {
                id,
                regions: Vec::new(),
            });
            self.processes.len() - 1
        });
        &mut self.processes[i]
    }
}

/// A decision as a journal has it.
type Decided = (u32, Region, Kind, Reason, u32, Option<u32>);

fn decided(action: &Action) -> Decided {
    (
        action.process.pid,
        action.region,
        action.kind,
        action.reason,
        action.benefit.0,
        action.utilization.map(|u| u.as_millionths()),
    )
}

/// Decisions as journal lines.
fn as_lines(at: Time, decisions: BTreeSet<Decided>) -> impl Iterator<Item = String> {
    decisions
        .into_iter()
        .map(move |(pid, region, action, reason, benefit_pages, utilization_ppm)| {
            let event = Event::Decide {
                pid,
                region,
                action,
                reason,
                utilization_ppm,
                benefit_pages,
            };
            Line { at, event }.to_text()
        })
}

/// Runs the lines of a full journal through the policy.
pub fn replay<'a>(journal: impl Iterator<Item = &'a Line>, policy: &mut dyn Policy) -> Result<Replayed, JournalError> {
    let mut snapshots = Snapshots::default();
    let mut found = Replayed::default();
    // What the policy decided at this scan and the journal did not mention yet.
    let mut open: BTreeSet<Decided> = BTreeSet::new();
    for line in journal {
        if let Some(snapshot) = snapshots.take(line)? {
            found.scans += 1;
            open = policy.decide(&snapshot).actions.iter().map(decided).collect();
            continue;
        }
        match &line.event {
            Event::Age { .. } | Event::Notice { .. } | Event::Stock { .. } => {}
            Event::Decide { .. } if found.scans == 0 => {
                let what = "a decision without what was seen before it: this is not a full journal";
                return Err(JournalError::new(what.to_string()));
            }
            Event::Decide {
                pid,
                region,
                action,
                reason,
                utilization_ppm,
                benefit_pages,
            } => {
                let key = (*pid, *region, *action, *reason, *benefit_pages, *utilization_ppm);
                if open.remove(&key) {
                    found.same += 1;
                } else {
                    found.missing.push(line.to_text());
                }
            }
            // A scan's decisions are all written by now. (A journal may end in the middle of them.)
            _ => found.extra.extend(as_lines(line.at, std::mem::take(&mut open))),
        }
    }
    Ok(found)
}
