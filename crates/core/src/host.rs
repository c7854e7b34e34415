//! The seam between deciding and acting: a live machine, the simulator or a recording.

use std::time::Duration;

use crate::action::{Action, Call};
use crate::compaction::block::Zone;
use crate::compaction::target::{Compacted, Order};
use crate::observe::groups::MemoryGroups;
use crate::observe::{NodeMemory, Observation, ProcessId, Region, Snapshot};
use crate::units::{Blocks, Time};

/// What a policy needs to be observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// Accessed bits that cover exactly one interval.
    pub utilization: bool,
    /// Zero-filled base pages inside huge pages.
    pub contents: bool,
    /// Processor time available for reading contents at this scan.
    pub contents_cpu: Duration,
}

/// How closely to look at one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Page tables and sharing.
    Tables,
    /// Also the contents of a huge page.
    Contents,
}

/// The result of clearing accessed bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgeingReport {
    /// Regions whose accessed bits were cleared, or were clear.
    pub regions: usize,
    /// Regions that the host refused to clear.
    pub refused: usize,
    /// Duration of the calls; the program's mmap and munmap may have waited for them.
    pub took: Duration,
}

/// An event on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// A process is managed from now on; its command.
    Found(ProcessId, String),
    /// A process is gone.
    Gone(ProcessId),
    /// A process (PID) cannot be managed, and why.
    Refused(u32, String),
    /// A notice for the user; reported once.
    Notice(String),
    /// A compaction ended.
    Compacted(Compacted),
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The time has come.
    Time,
    /// Stop: asked to, or nothing is left to manage.
    Stop,
}

/// Free memory by zone, and the demand for blocks: what compaction planners decide on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contiguity {
    /// The zones with memory.
    pub zones: Vec<Zone>,
    /// Faults of the whole machine that wanted a huge page, counted from any origin, whether they got one or not.
    pub huge_faults: u64,
}

/// A machine. Everything that the control loop learns and does goes through here.
pub trait Host {
    /// The time now.
    fn now(&self) -> Time;

    /// Processor time that managing has cost so far.
    fn cpu_time(&self) -> Duration;

    /// What it costs a program to touch a base page again after its accessed bit was cleared; zero where that is free.
    fn touch_cost(&self) -> Duration {
        Duration::ZERO
    }

    /// Observes all managed processes and the machine.
    fn observe(&mut self, wants: &Wants) -> Snapshot;

    /// Clears the accessed bits of these regions (by rising address), so that the next scan shows what was used in between.
    fn age(&mut self, process: ProcessId, regions: &[Region]) -> AgeingReport;

    /// Looks at one region now; none if the process or the mapping is gone.
    fn look(&mut self, process: ProcessId, region: Region, how: Look) -> Option<Observation>;

    /// Issues the action; returns the call's status, not the verified outcome.
    fn act(&mut self, action: &Action) -> Call;

    /// Free memory now, by zone; none if unknown.
    fn contiguity(&mut self) -> Option<Contiguity> {
        None
    }

    /// Free blocks now; none if unknown.
    fn free_blocks(&mut self) -> Option<Blocks> {
        None
    }

    /// Starts a compaction in the background; its result arrives as [`HostEvent::Compacted`]. False: not possible, because the last one is
    /// still running or the host has no way to compact.
    fn compact(&mut self, _order: &Order) -> bool {
        false
    }

    /// The memory control groups of the managed processes, as of the last observation; none where nothing limits them.
    fn memory_groups(&mut self) -> MemoryGroups {
        MemoryGroups::default()
    }

    /// The NUMA node that a promotion of this region would take a block from, as it is now; `None` where there is one node only, or the host
    /// cannot say.
    fn node_memory(&mut self, _process: ProcessId, _region: Region) -> Option<NodeMemory> {
        None
    }

    /// Whether managing must stop now. Asked after an observation, which may have ended early for this reason.
    fn is_stopped(&mut self) -> bool {
        false
    }

    /// Managed processes that the last observation could not scan.
    fn unscanned(&self) -> u64 {
        0
    }

    /// Waits until this moment.
    fn wait(&mut self, until: Time) -> Wake;

    /// Waits until this moment, or until managed programs have grown noticeably since the last observation, where the host sees that.
    fn wait_for_growth(&mut self, until: Time) -> Wake {
        self.wait(until)
    }

    /// Events since the last call.
    fn events(&mut self) -> Vec<HostEvent>;
}
