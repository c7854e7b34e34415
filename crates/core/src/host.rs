//! The seam between what is decided and where: a live machine or the simulator.

use std::time::Duration;

use crate::action::{Action, Call};
use crate::block::Zone;
use crate::observe::{Observation, ProcessId, Region, Snapshot};
use crate::stock::{Compacted, Order};
use crate::units::{Blocks, Time};

/// What a policy wants to have looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// Accessed bits that tell about one interval.
    pub utilization: bool,
    /// Zero-filled base pages inside huge pages.
    pub contents: bool,
    /// Processor time that may go into looking at contents at this scan.
    pub contents_cpu: Duration,
}

/// How closely to look at one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Page tables and sharing.
    Tables,
    /// The contents of a huge page too.
    Contents,
}

/// What ageing did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aged {
    /// Regions whose accessed bits were cleared, or were clear.
    pub regions: usize,
    /// Regions for which the host said no.
    pub refused: usize,
    /// Time in calls during which the program's mmap and munmap may have waited.
    pub took: Duration,
}

/// Something that happened on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// A process is managed from now on.
    Found(ProcessId, String),
    /// A process is no more.
    Gone(ProcessId),
    /// A process could not be managed, and why.
    Refused(u32, String),
    /// Something that people should know; said once.
    Notice(String),
    /// A compaction is over.
    Compacted(Compacted),
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The time came.
    Time,
    /// It is over: asked to stop, or nothing is left to manage.
    Stop,
}

/// Free memory by zone, and who asked for blocks: what planners of compaction decide on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contiguity {
    /// The zones with memory.
    pub zones: Vec<Zone>,
    /// Faults of the whole machine that wanted a huge page since some beginning, whether they got one or not.
    pub huge_faults: u64,
}

/// A machine, live or simulated. Everything that the control loop knows and does goes through here.
pub trait Host {
    /// The time now.
    fn now(&self) -> Time;

    /// Processor time that managing has cost so far.
    fn cpu_time(&self) -> Duration;

    /// What it costs a program to touch a base page again whose accessed bit was cleared; nothing where that is free.
    fn touch_cost(&self) -> Duration {
        Duration::ZERO
    }

    /// Looks at everything that is managed.
    fn observe(&mut self, wants: &Wants) -> Snapshot;

    /// Clears the accessed bits of these regions (by rising address), so that the next scan tells what was used in between.
    fn age(&mut self, process: ProcessId, regions: &[Region]) -> Aged;

    /// Looks at one region, now; none when the process or the mapping is gone.
    fn look(&mut self, process: ProcessId, region: Region, how: Look) -> Option<Observation>;

    /// Does it. Says what the call said, which is not yet what happened.
    fn act(&mut self, action: &Action) -> Call;

    /// Free memory now, zone by zone; none where nobody can say.
    fn contiguity(&mut self) -> Option<Contiguity> {
        None
    }

    /// Free blocks now; none where nobody can say.
    fn free_blocks(&mut self) -> Option<Blocks> {
        None
    }

    /// Begins to make free blocks, beside everything else. What comes of it is told by [`HostEvent::Compacted`]. False: it cannot, because
    /// the last one is still under way or there is no way to do it here.
    fn compact(&mut self, _order: &Order) -> bool {
        false
    }

    /// Waits for this moment.
    fn wait(&mut self, until: Time) -> Wake;

    /// What happened since the last time that this was asked.
    fn events(&mut self) -> Vec<HostEvent>;
}
