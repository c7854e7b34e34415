//! Deciding again from a full journal.
//!
//! ```text
//!                 ┌► Recorded, a Host ─► Control with the journal's policy and settings ─► Compare: line by line    [`replay`]
//! lines, Snapshots┤
//!                 └► another policy ─► which decisions both make, which only one                                    [`contrast`]
//! ```
//!
//! Policies are pure, and the loop depends only on its host: given the same answers, both decide the same again.

mod compare;
mod contrast;
mod recorded;

pub use compare::{Replayed, Tally};
pub use contrast::{contrast, Contrast};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::budget::Budget;
use crate::control::{Control, Settings};
use crate::journal::{seen, Event, JournalError, Line, SEEN_MAX};
use crate::observe::{Machine, ProcessId, ProcessView, Snapshot};
use crate::policy::{by_name, Policy};
use crate::units::{Blocks, Bytes, Share, Time};
use compare::Compare;
use recorded::Recorded;

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

/// The settings of the loop that wrote a journal, from its `start` event; none if it is another event.
fn settings_of(start: &Event) -> Option<Settings> {
    let Event::Start {
        interval_ns,
        stall_budget_ppm,
        cpu_budget_ppm,
        free_memory_ppm,
        free_blocks,
        pressure_ppm,
        dry_run,
        ..
    } = start
    else {
        return None;
    };
    Some(Settings {
        interval: Duration::from_nanos(*interval_ns),
        budget: Budget {
            stall: Share::millionths(*stall_budget_ppm),
            cpu: Share::millionths(*cpu_budget_ppm),
            free_memory: Share::millionths(*free_memory_ppm),
            free_blocks: Blocks(*free_blocks),
            pressure: Share::millionths(*pressure_ppm),
        },
        dry_run: *dry_run,
        full_journal: true,
    })
}

/// Rebuilds the observations, scan by scan, from the lines of a full journal.
#[derive(Debug, Default)]
pub struct Snapshots {
    machine: Option<(Time, Machine)>,
    processes: Vec<ProcessView>,
    regions: u64,
    /// Start times by PID: a process with nothing mapped has no `see` event to carry its own.
    started: BTreeMap<u32, u64>,
}

impl Snapshots {
    /// Takes the next line; returns a snapshot when its scan is complete. Its time is the journal's.
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
                let id = self.id(*pid);
                self.process(id);
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

    /// The process that last had this PID.
    fn id(&self, pid: u32) -> ProcessId {
        let started = self.started.get(&pid).copied().unwrap_or_default();
        ProcessId { pid, started }
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

/// Whether there is a scan to decide on. A journal with decisions but no observations before them is not a full one.
fn is_full(journal: &[Line]) -> Result<bool, JournalError> {
    for line in journal {
        match line.event {
            Event::Machine { .. } => return Ok(true),
            Event::Decide { .. } => {
                let what = "a decision without the observations before it: this is not a full journal";
                return Err(JournalError::new(what.to_string()));
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Runs the loop again on a full journal, with this policy and the journal's settings, and compares its output with the
/// journal.
pub fn replay(journal: &[Line], policy: &mut dyn Policy) -> Result<Replayed, JournalError> {
    let mut host = Recorded::new(journal);
    if !is_full(journal)? || !host.has_more() {
        // Nothing was decided; the lines may still be invalid.
        let mut snapshots = Snapshots::default();
        journal.iter().try_for_each(|line| snapshots.take(line).map(drop))?;
        return Ok(Replayed::default());
    }
    let settings = journal.iter().find_map(|line| settings_of(&line.event));
    let settings = settings.unwrap_or(Settings {
        full_journal: true,
        ..Settings::default()
    });
    let mut compare = Compare::new(journal);
    Control::new(&mut host, policy, settings, &mut compare).run();
    host.error().map_or(Ok(()), Err)?;
    Ok(compare.finish())
}
