//! The simulated machine as the control loop sees it: a [`Host`]. Any scan-time policy of core runs on it unchanged.
//!
//! The manager has a processor and a clock of its own. Its work takes as long as on a live machine ([`Costs`](crate::cost::Costs)); the
//! programs run meanwhile, and wait where live ones would.

mod compaction;
#[cfg(test)]
mod tests;

pub use compaction::Compacting;

use std::collections::{btree_map, BTreeMap, BTreeSet};
use std::time::Duration;

use mega_core::action::{Action, ActionKind, Call, CallError};
use mega_core::ageing::accessed_bits::AccessedBits;
use mega_core::compaction::history::BlockHistory;
use mega_core::compaction::target::{Compacted, Order};
use mega_core::fault::Effort as BlockEffort;
use mega_core::host::{AgeingReport, Contiguity, Host, HostEvent, Look, Wake, Wants};
use mega_core::observe::{Observation, ProcessId, ProcessView, Region, Snapshot};
use mega_core::units::{BasePages, Blocks, Time, REGION_PAGES};

use crate::machine::{Machine, Refusal};
use crate::space::{Entry, Space, Table};
use crate::unit::Owner;

/// Looking at one region between scans: a system call and a scan of one region, in ns. A modelling choice: docs/linux.md has no figure for it.
const LOOK_ONE_NS: u64 = 10_000;

/// Runs the programs.
pub trait Drive {
    /// Runs them until their clocks reach this moment, in ns. False: all have ended.
    fn run(&mut self, machine: &mut Machine, until_ns: u64) -> bool;
}

impl<F: FnMut(&mut Machine, u64) -> bool> Drive for F {
    fn run(&mut self, machine: &mut Machine, until_ns: u64) -> bool {
        self(machine, until_ns)
    }
}

/// The manager's state of one process.
#[derive(Debug, Default)]
struct Managed {
    aged: AccessedBits,
    /// Zero-filled base pages of the huge pages read so far.
    contents: BTreeMap<Region, u16>,
    /// Base pages unmapped of huge pages that are whole still, by the last reading.
    kept: BTreeMap<Region, BasePages>,
    /// Where reading contents continues.
    next: Option<Region>,
}

/// The host.
pub struct SimHost<D> {
    /// The machine.
    pub machine: Machine,
    /// The programs.
    pub drive: D,
    /// How it compacts.
    pub compacting: Compacting,
    /// Only processes of these names are managed; none: all.
    pub only: Option<BTreeSet<String>>,
    now_ns: u64,
    cpu_ns: u64,
    stop_ns: u64,
    over: bool,
    managed: BTreeMap<ProcessId, Managed>,
    events: Vec<HostEvent>,
    under_way: Option<(u64, Compacted)>,
    history: BlockHistory,
}

impl<D: Drive> SimHost<D> {
    /// A host of this machine, on which `drive` runs the programs, until this moment in ns or the programs' end.
    pub fn new(machine: Machine, drive: D, stop_ns: u64) -> Self {
        Self {
            now_ns: machine.now_ns(),
            machine,
            drive,
            compacting: Compacting::default(),
            only: None,
            cpu_ns: 0,
            stop_ns,
            over: false,
            managed: BTreeMap::new(),
            events: Vec::new(),
            under_way: None,
            history: BlockHistory::default(),
        }
    }

    /// Charges the manager for so much work.
    fn work(&mut self, ns: u64) {
        self.now_ns += ns;
        self.cpu_ns += ns;
    }

    /// Runs the programs up to the manager's clock.
    fn catch_up(&mut self) {
        if !self.over {
            self.over = !self.drive.run(&mut self.machine, self.now_ns);
        }
        self.machine.pass_until(self.now_ns);
    }

    /// Adds new processes and drops ended ones.
    fn refresh(&mut self) {
        let alive: BTreeMap<ProcessId, String> = self
            .machine
            .spaces()
            .filter(|space| self.only.as_ref().is_none_or(|names| names.contains(&space.name)))
            .filter_map(|space| Some((self.machine.process_id(space.id)?, space.name.clone())))
            .collect();
        let gone: Vec<_> = self
            .managed
            .keys()
            .filter(|id| !alive.contains_key(id))
            .copied()
            .collect();
        for id in gone {
            self.managed.remove(&id);
            self.events.push(HostEvent::Gone(id));
        }
        for (id, name) in alive {
            if let btree_map::Entry::Vacant(place) = self.managed.entry(id) {
                place.insert(Managed::default());
                self.events.push(HostEvent::Found(id, name));
            }
        }
    }

    /// Observes one region, free of charge. None where nothing is mapped, or the mapping does not cover it.
    fn seen(&self, space: &Space, managed: &Managed, region: Region) -> Option<Observation> {
        let can = space.can(region)?;
        if !space.covers(region) {
            return None;
        }
        let owner_is_shared = |frame| matches!(self.machine.physical().owner(frame), Some(Owner::Shared(_)));
        let mut seen = Observation {
            region,
            mapped: BasePages::ZERO,
            accessed: BasePages::ZERO,
            dirty: BasePages::ZERO,
            zero: Some(BasePages::ZERO),
            kept: BasePages::ZERO,
            huge: false,
            shared: false,
            raced: false,
            aged: managed.aged.is_aged(region),
            can,
        };
        match space.tables.get(region) {
            Entry::None => return None,
            Entry::Huge(at) => {
                let huge = space.tables.huge(at);
                let all_if = |yes| if yes { BasePages::REGION } else { BasePages::ZERO };
                seen.mapped = BasePages::REGION;
                seen.accessed = all_if(huge.accessed);
                seen.dirty = all_if(huge.dirty);
                seen.zero = managed.contents.get(&region).map(|zero| BasePages((*zero).into()));
                seen.huge = true;
                seen.shared = owner_is_shared(huge.frame(0));
            }
            Entry::Table(at) => {
                let table = space.tables.table(at);
                let counts = table.counts();
                seen.mapped = BasePages(counts.mapped);
                seen.accessed = BasePages(counts.accessed);
                seen.dirty = BasePages(counts.dirty);
                seen.zero = Some(BasePages(counts.zero));
                let mut frames = table.ptes.iter().filter_map(|pte| pte.frame());
                seen.kept = managed.kept.get(&region).copied().unwrap_or_default();
                seen.shared = counts.protected > 0 && frames.any(owner_is_shared);
            }
        }
        (seen.mapped > BasePages::ZERO).then_some(seen)
    }

    /// Reads the contents of huge pages within the allowance, from where it stopped. Returns the time spent, in ns.
    fn read_contents(&self, space: &Space, managed: &mut Managed, allowance_ns: u64) -> u64 {
        let huge = |region: &Region| matches!(space.tables.get(*region), Entry::Huge(_));
        managed.contents.retain(|region, _| huge(region));
        managed.kept.clear();
        let is_kept = |region: &Region| {
            space
                .tables
                .table_of(*region)
                .is_some_and(|table| table.kept().is_some())
        };
        let to_read = |region: &Region| huge(region) || is_kept(region);
        let regions: Vec<Region> = space.tables.all_used().into_iter().filter(to_read).collect();
        let first = managed
            .next
            .map_or(0, |next| regions.partition_point(|region| *region < next));
        let mut spent = 0;
        managed.next = None;
        for region in regions[first..].iter().chain(&regions[..first]) {
            if spent >= allowance_ns {
                managed.next = Some(*region);
                break;
            }
            spent += self.read_one(space, managed, *region);
        }
        spent
    }

    fn read_one(&self, space: &Space, managed: &mut Managed, region: Region) -> u64 {
        managed.kept.remove(&region);
        if let Some(kept) = space.tables.table_of(region).and_then(Table::kept) {
            managed.kept.insert(region, kept);
            return self.machine.costs().scan_region_base_ns;
        }
        let Some(huge) = space.tables.huge_of(region) else {
            return 0;
        };
        let zero = REGION_PAGES - huge.held();
        managed.contents.insert(region, zero as u16);
        // A non-zero page is left after its first bytes.
        let price = self.machine.costs().check_zero_ns;
        u64::from(zero) * price + u64::from(huge.held()) * price / 8
    }

    fn scan(&mut self, id: ProcessId, wants: &Wants, allowance_ns: u64) -> Option<(ProcessView, u64)> {
        let space_id = self.machine.by_process_id(id)?;
        let mut managed = self.managed.remove(&id)?;
        let space = self.machine.space(space_id)?;
        let mut read_ns = 0;
        if wants.contents && self.machine.split_frees {
            read_ns = self.read_contents(space, &mut managed, allowance_ns);
        }
        let used = space.tables.all_used();
        let regions: Vec<_> = used
            .into_iter()
            .filter_map(|region| self.seen(space, &managed, region))
            .collect();
        let huge = regions.iter().filter(|seen| seen.huge).count() as u64;
        let base = regions.len() as u64 - huge;
        let accessed = regions.iter().filter(|seen| seen.accessed > BasePages::ZERO);
        managed.aged.begin(accessed.map(|seen| seen.region).collect());
        self.managed.insert(id, managed);
        let costs = self.machine.costs();
        let took = read_ns + base * costs.scan_region_base_ns + huge * costs.scan_region_huge_ns;
        self.work(took);
        Some((ProcessView { id, regions }, read_ns))
    }

    fn report_compaction(&mut self) {
        if let Some((_, done)) = self.under_way.take_if(|(at, _)| *at <= self.now_ns) {
            self.events.push(HostEvent::Compacted(done));
        }
    }
}

fn call_error(refusal: Refusal) -> CallError {
    match refusal {
        Refusal::NoMemory => CallError::NoMemory,
        Refusal::Refused => CallError::Refused,
        Refusal::Gone => CallError::Gone,
    }
}

impl<D: Drive> Host for SimHost<D> {
    fn now(&self) -> Time {
        Time(self.now_ns)
    }

    fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns)
    }

    fn touch_cost(&self) -> Duration {
        Duration::from_nanos(self.machine.prices.set_accessed_believed / 1000)
    }

    fn observe(&mut self, wants: &Wants) -> Snapshot {
        self.catch_up();
        self.refresh();
        self.follow_blocks();
        let ids: Vec<_> = self.managed.keys().copied().collect();
        let mut allowance = u64::try_from(wants.contents_cpu.as_nanos()).unwrap_or(u64::MAX);
        let mut processes = Vec::with_capacity(ids.len());
        for (done, id) in ids.iter().enumerate() {
            let share = allowance / (ids.len() - done) as u64;
            if let Some((view, spent)) = self.scan(*id, wants, share) {
                allowance = allowance.saturating_sub(spent);
                processes.push(view);
            }
        }
        Snapshot {
            at: self.now(),
            machine: self.machine.view(),
            processes,
        }
    }

    fn age(&mut self, process: ProcessId, regions: &[Region]) -> AgeingReport {
        let mut report = AgeingReport::default();
        let Some(id) = self.machine.by_process_id(process) else {
            return report;
        };
        let Some(mut managed) = self.managed.remove(&process) else {
            return report;
        };
        let mut refused = BTreeSet::new();
        self.machine.take_bill();
        for region in managed.aged.to_clear(regions) {
            let can = self.machine.space(id).and_then(|space| space.can(region));
            if can
                .filter(|can| can.age)
                .and_then(|_| self.machine.age_region(id, region))
                .is_none()
            {
                refused.insert(region);
            }
        }
        let took = self.machine.take_bill() / 1000;
        report.refused = refused.len();
        report.regions = regions.len() - refused.len();
        report.took = Duration::from_nanos(took);
        managed.aged.cleared(regions, &refused);
        self.managed.insert(process, managed);
        self.work(took);
        report
    }

    fn look(&mut self, process: ProcessId, region: Region, how: Look) -> Option<Observation> {
        self.work(LOOK_ONE_NS);
        let id = self.machine.by_process_id(process)?;
        let mut managed = self.managed.remove(&process)?;
        let space = self.machine.space(id);
        let mut read = 0;
        let seen = space.and_then(|space| {
            if how == Look::Contents {
                read = self.read_one(space, &mut managed, region);
            }
            self.seen(space, &managed, region)
        });
        self.managed.insert(process, managed);
        self.work(read);
        seen
    }

    fn act(&mut self, action: &Action) -> Call {
        self.catch_up();
        let gone = Call {
            error: Some(CallError::Gone),
            took: Duration::ZERO,
            stall: None,
        };
        let Some(id) = self.machine.by_process_id(action.process) else {
            return gone;
        };
        let Some(managed) = self.managed.get_mut(&action.process) else {
            return gone;
        };
        managed.aged.spoil(action.region);
        managed.contents.remove(&action.region);
        managed.kept.remove(&action.region);
        self.machine.reach(self.now_ns.saturating_mul(1000));
        self.machine.take_bill();
        let began = self.now_ns.saturating_mul(1000);
        let (result, bill) = match action.kind {
            ActionKind::Promote => {
                let result = self.machine.collapse(id, action.region, BlockEffort::Hard);
                let bill = self.machine.take_bill();
                self.machine.block_collapse(id, action.region, began, bill);
                (result, bill)
            }
            ActionKind::Demote => {
                let result = self.machine.demote(id, action.region);
                let bill = self.machine.take_bill();
                self.machine.block(id, Some(action.region), began, bill);
                (result, bill)
            }
        };
        let took = bill / 1000;
        self.work(took);
        Call {
            error: result.err().map(call_error),
            took: Duration::from_nanos(took),
            stall: None,
        }
    }

    fn contiguity(&mut self) -> Option<Contiguity> {
        let counters = self.machine.counters();
        Some(Contiguity {
            zones: self.machine.physical().zones(),
            huge_faults: counters.thp_fault_alloc
                + counters.thp_fault_fallback
                + counters.reserved
                + counters.reserve_failed,
        })
    }

    fn free_blocks(&mut self) -> Option<Blocks> {
        Some(Blocks(self.machine.physical().free_blocks()))
    }

    fn compact(&mut self, order: &Order) -> bool {
        self.begin_compaction(order)
    }

    fn wait(&mut self, until: Time) -> Wake {
        let until = until.0.min(self.stop_ns);
        self.now_ns = self.now_ns.max(until);
        self.catch_up();
        self.report_compaction();
        if self.over || self.now_ns >= self.stop_ns {
            Wake::Stop
        } else {
            Wake::Time
        }
    }

    fn events(&mut self) -> Vec<HostEvent> {
        self.refresh();
        self.report_compaction();
        std::mem::take(&mut self.events)
    }
}
