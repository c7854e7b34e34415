//! Deciding again from a full journal: the observations in it go through a policy anew, and its decisions are compared with those
//! that the journal holds. Policies are pure, so they must be the same line by line.

use std::collections::BTreeSet;

use crate::journal::{seen, Event, JournalError, Line};
use crate::observe::{Machine, ProcessId, ProcessView, Snapshot};
use crate::policy::Policy;
use crate::units::{Blocks, Bytes, Share};

/// What a replay found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Scans decided again.
    pub scans: usize,
    /// Decisions in the journal that the policy made again.
    pub same: usize,
    /// Decisions in the journal that the policy did not make, as journal lines.
    pub missing: Vec<String>,
}

/// Rebuilds what was seen, scan by scan, from the lines of a full journal.
#[derive(Debug, Default)]
pub struct Snapshots {
    machine: Option<Machine>,
    processes: Vec<ProcessView>,
}

impl Snapshots {
    /// Takes the next line; returns a snapshot when its scan is complete.
    pub fn take(&mut self, line: &Line) -> Result<Option<Snapshot>, JournalError> {
        match &line.event {
            Event::Machine {
                available_bytes,
                total_bytes,
                free_blocks,
                pressure_ppm,
            } => {
                self.processes.clear();
                self.machine = Some(Machine {
                    available_bytes: Bytes(*available_bytes),
                    total_bytes: Bytes(*total_bytes),
                    free_blocks: Blocks(*free_blocks),
                    pressure: pressure_ppm.map(Share::millionths),
                });
                Ok(None)
            }
            Event::See { pid, started, .. } => {
                let id = ProcessId {
                    pid: *pid,
                    started: *started,
                };
                if self.processes.last().is_none_or(|last| last.id != id) {
                    self.processes.push(ProcessView {
                        id,
                        regions: Vec::new(),
                    });
                }
                if let (Some(process), Some(regions)) = (self.processes.last_mut(), seen(&line.event)?) {
                    process.regions.extend(regions);
                }
                Ok(None)
            }
            Event::Scanned { .. } => Ok(self.machine.take().map(|machine| Snapshot {
                at: line.at,
                machine,
                processes: std::mem::take(&mut self.processes),
            })),
            _ => Ok(None),
        }
    }
}

/// Runs the lines of a full journal through the policy.
pub fn replay<'a>(lines: impl Iterator<Item = &'a Line>, policy: &mut dyn Policy) -> Result<Replayed, JournalError> {
    let mut snapshots = Snapshots::default();
    let mut found = Replayed::default();
    let mut decided = BTreeSet::new();
    for line in lines {
        if let Some(snapshot) = snapshots.take(line)? {
            found.scans += 1;
            decided = policy
                .decide(&snapshot)
                .actions
                .iter()
                .map(|a| {
                    (
                        a.process.pid,
                        a.region,
                        a.kind,
                        a.benefit,
                        a.utilization.map(|u| u.as_millionths()),
                    )
                })
                .collect();
        }
        if let Event::Decide {
            pid,
            region,
            action,
            utilization_ppm,
            benefit_pages,
            ..
        } = &line.event
        {
            let key = (
                *pid,
                *region,
                *action,
                crate::units::BasePages(*benefit_pages),
                *utilization_ppm,
            );
            if decided.contains(&key) {
                found.same += 1;
            } else {
                found.missing.push(line.to_text());
            }
        }
    }
    Ok(found)
}
