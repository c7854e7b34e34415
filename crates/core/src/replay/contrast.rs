//! What another policy would have decided on the same observations, in a world shaped by the recorded policy.

use std::collections::BTreeMap;

use super::{is_full, Snapshots};
use crate::action::ActionKind;
use crate::journal::{decide, Event, JournalError, Line};
use crate::observe::Region;
use crate::policy::Policy;
use crate::units::Time;

/// One scan's decisions. Two decisions are equal if they want the same action on the same region, for whatever reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contrast {
    /// When the scan was, in the journal's time.
    pub at: Time,
    /// Decisions of both.
    pub both: usize,
    /// Decisions in the journal only, as its lines.
    pub only_live: Vec<String>,
    /// Decisions of the other policy only, as journal lines.
    pub only_other: Vec<String>,
}

type Wanted = (u32, Region, ActionKind);

/// Lets another policy, or the same with other parameters, decide on each scan of a full journal.
pub fn contrast(journal: &[Line], policy: &mut dyn Policy) -> Result<Vec<Contrast>, JournalError> {
    is_full(journal)?;
    let mut snapshots = Snapshots::default();
    let mut scans: Vec<Contrast> = Vec::new();
    // What the policy decided at this scan, less what the journal has.
    let mut open: BTreeMap<Wanted, Line> = BTreeMap::new();
    for line in journal {
        if let Some(snapshot) = snapshots.take(line)? {
            close(&mut scans, &mut open);
            let decided = policy.decide(&snapshot).actions;
            open = decided
                .iter()
                .map(|action| {
                    let wanted = (action.process.pid, action.region, action.kind);
                    let event = decide(action);
                    (wanted, Line { at: line.at, event })
                })
                .collect();
            scans.push(Contrast {
                at: line.at,
                ..Contrast::default()
            });
            continue;
        }
        let (
            Event::Decide {
                pid, region, action, ..
            },
            Some(scan),
        ) = (&line.event, scans.last_mut())
        else {
            continue;
        };
        match open.remove(&(*pid, *region, *action)) {
            Some(_) => scan.both += 1,
            None => scan.only_live.push(line.to_text()),
        }
    }
    close(&mut scans, &mut open);
    Ok(scans)
}

/// What remains at the end of a scan was decided by the other policy alone.
fn close(scans: &mut [Contrast], open: &mut BTreeMap<Wanted, Line>) {
    if let Some(scan) = scans.last_mut() {
        scan.only_other = std::mem::take(open).values().map(Line::to_text).collect();
    }
}
