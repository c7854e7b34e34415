//! Queries on the machine.

use mega_core::fault::FaultPolicy;
use mega_core::observe::ProcessId;

use super::{BackgroundTime, Counters, Machine};
use crate::cost::Costs;
use crate::physical::Physical;
use crate::space::Space;
use crate::tlb::{Counts, Tlb};
use crate::unit::SpaceId;
use crate::workload::Latency;

impl Machine {
    /// A process that is alive.
    #[must_use]
    pub fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id)
    }

    /// The processes, by number.
    pub fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.spaces.iter()
    }

    /// A process as core names it.
    #[must_use]
    pub fn process_id(&self, id: SpaceId) -> Option<ProcessId> {
        self.spaces.get(id).map(|space| ProcessId {
            pid: id.0.get().into(),
            started: space.started_ns,
        })
    }

    /// The process that core names, if it is alive.
    #[must_use]
    pub fn by_process_id(&self, id: ProcessId) -> Option<SpaceId> {
        let pid = u16::try_from(id.pid).ok().and_then(std::num::NonZeroU16::new)?;
        let space = self.spaces.get(SpaceId(pid))?;
        (space.started_ns == id.started).then_some(space.id)
    }

    /// The physical memory.
    #[must_use]
    pub fn physical(&self) -> &Physical {
        &self.physical
    }

    /// Its costs.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let physical = self.physical.counters();
        Counters {
            compact_migrate_scanned: physical.compact_migrate_scanned,
            compact_free_scanned: physical.compact_free_scanned,
            compact_isolated: physical.compact_isolated,
            compact_stall: physical.compact_stall,
            compact_success: physical.compact_success,
            compact_fail: physical.compact_fail,
            compact_daemon_wake: physical.compact_daemon_wake,
            pgmigrate_success: physical.pgmigrate_success,
            pgmigrate_fail: physical.pgmigrate_fail,
            ..self.counters
        }
    }

    /// Processor time of background work.
    #[must_use]
    pub fn background(&self) -> &BackgroundTime {
        &self.background
    }

    /// The TLB's counts; none without a TLB.
    #[must_use]
    pub fn tlb_counts(&self) -> Option<Counts> {
        self.tlb.as_ref().map(Tlb::counts)
    }

    /// Latencies of all faults.
    #[must_use]
    pub fn fault_latency(&self) -> &Latency {
        &self.latency
    }

    /// The policy that decides at faults.
    #[must_use]
    pub fn policy(&self) -> &dyn FaultPolicy {
        self.policy.as_ref()
    }

    /// The first content mismatch, as text; only where contents are checked.
    #[must_use]
    pub fn content_error(&self) -> Option<&str> {
        self.content.as_ref().and_then(|content| content.first_error.as_deref())
    }

    /// The latest moment that any process has reached, in ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ps / 1000
    }

    /// The clock of a process, in ns; 0 if it has ended.
    #[must_use]
    pub fn clock_ns(&self, id: SpaceId) -> u64 {
        self.spaces.get(id).map_or(0, |space| space.clock_ps / 1000)
    }
}
