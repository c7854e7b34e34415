//! Drives a policy by hand: observations in, actions out.

use crate::action::{Action, ActionKind, Reason};
use crate::observe::{Can, Machine, Observation, ProcessId, ProcessView, Region, Snapshot, Why};
use crate::policy::{Decision, Policy};
use crate::units::{BasePages, Blocks, Bytes, Share, Time};

/// An observation under construction.
#[derive(Debug, Clone, Copy)]
pub struct SeenRegion(pub Observation);

/// A region of base pages, aged, able to do anything.
pub fn base(region: u64, mapped: u32, accessed: u32) -> SeenRegion {
    SeenRegion(Observation {
        region: Region(region),
        mapped: BasePages(mapped),
        accessed: BasePages(accessed.min(mapped)),
        dirty: BasePages(0),
        zero: Some(BasePages(0)),
        kept: BasePages(0),
        huge: false,
        shared: false,
        raced: false,
        aged: true,
        can: Can::ALL,
    })
}

/// A huge page, accessed or not, contents not read.
pub fn huge(region: u64, accessed: bool) -> SeenRegion {
    let mut seen = base(region, 512, if accessed { 512 } else { 0 });
    seen.0.huge = true;
    seen.0.zero = None;
    seen
}

impl SeenRegion {
    pub fn zero(mut self, pages: u32) -> Self {
        self.0.zero = Some(BasePages(pages));
        self
    }
    pub fn kept(mut self, pages: u32) -> Self {
        self.0.kept = BasePages(pages);
        self
    }
    pub fn unaged(mut self) -> Self {
        self.0.aged = false;
        self
    }
    pub fn shared(mut self) -> Self {
        self.0.shared = true;
        self
    }
    pub fn raced(mut self) -> Self {
        self.0.raced = true;
        self
    }
    pub fn cannot(mut self, why: Why) -> Self {
        self.0.can = Can {
            promote: false,
            demote: false,
            age: false,
            why: Some(why),
        };
        self
    }
}

/// A machine with plenty of everything.
pub fn machine() -> Machine {
    Machine {
        available_bytes: Bytes(16 << 30),
        total_bytes: Bytes(24 << 30),
        free_blocks: Blocks(8000),
        pressure: Some(Share::ZERO),
    }
}

pub const PROCESS: ProcessId = ProcessId { pid: 7, started: 1 };

/// A policy with its last decision.
pub struct Driver<P> {
    pub policy: P,
    pub at: Time,
    /// Time between two looks.
    pub step: std::time::Duration,
    pub machine: Machine,
    pub last: Decision,
}

impl<P: Policy> Driver<P> {
    pub fn new(policy: P) -> Self {
        Self {
            policy,
            at: Time(0),
            step: std::time::Duration::from_secs(5),
            machine: machine(),
            last: Decision::default(),
        }
    }

    pub fn see(&mut self, seen: SeenRegion) {
        self.see_all(&[seen]);
    }

    pub fn see_all(&mut self, seen: &[SeenRegion]) {
        self.see_processes(&[(PROCESS, seen)]);
    }

    pub fn see_processes(&mut self, seen: &[(ProcessId, &[SeenRegion])]) {
        self.at = self.at.after(self.step);
        let snapshot = Snapshot {
            at: self.at,
            machine: self.machine,
            processes: seen
                .iter()
                .map(|(id, regions)| ProcessView {
                    id: *id,
                    regions: regions.iter().map(|seen| seen.0).collect(),
                })
                .collect(),
        };
        self.last = self.policy.decide(&snapshot);
    }

    pub fn actions(&self) -> &[Action] {
        &self.last.actions
    }

    pub fn kinds(&self) -> Vec<(u64, ActionKind, Reason)> {
        self.actions().iter().map(|a| (a.region.0, a.kind, a.reason)).collect()
    }

    pub fn aged(&self) -> usize {
        self.last.age.iter().map(|(_, regions)| regions.len()).sum()
    }
}
