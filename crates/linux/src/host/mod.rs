//! This machine as a [`Host`].

pub mod actuate;
mod capacity;
mod compaction;
mod contents;
mod failures;
mod felt;
mod groups;
mod growth;
mod managed;
mod observe;
mod processes;
mod quiet;
mod sharing;
mod touch;
mod wait;
mod warm;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mega_core::action::{Action, ActionKind, Call, CallError, Expect};
use mega_core::ageing::accessed_bits::runs;
use mega_core::compaction::target::Order;
use mega_core::host::{AgeingReport, Contiguity, Host, HostEvent, Look, Wake, Wants};
use mega_core::observe::groups::MemoryGroups;
use mega_core::observe::{NodeMemory, Observation, ProcessId, Region, Snapshot};
use mega_core::units::{BasePages, Blocks, Time, HUGE_PAGE_BYTES};

use crate::compact::Actuator;
use crate::deadline;
use crate::knobs::Claims;
use crate::proc::{buddyinfo, node, vmstat, ProcRoot};
use crate::process::tasks::{TaskReader, TaskTable};
use crate::scan::partly::Partly;
use crate::scan::{RegionFlags, ScanError, ScanRange, Scanner};
use crate::sys;
use crate::vma::Vma;
use compaction::CompactionThread;
use failures::Failures;
use felt::Felt;
use groups::GroupReader;
use growth::Growth;
use managed::Managed;
use observe::read_contents;
use sharing::Kinship;
use wait::Watch;

/// Selects the processes to manage; asked at every scan.
pub trait Roster {
    /// The PIDs to manage now; already managed ones may be among them.
    ///
    /// # Errors
    /// No process can be found; the text says why.
    fn pids(&mut self, root: &ProcRoot) -> Result<Vec<u32>, String>;
    /// The same where there is a table of all processes, which spares reading /proc.
    ///
    /// # Errors
    /// As [`pids`](Self::pids).
    fn pids_in(&mut self, root: &ProcRoot, _table: &TaskTable) -> Result<Vec<u32>, String> {
        self.pids(root)
    }
    /// Whether no process will be added once the managed ones are gone.
    fn closed(&self) -> bool;
}

/// These processes, and no others later.
pub struct Listed(pub Vec<u32>);

impl Roster for Listed {
    fn pids(&mut self, _: &ProcRoot) -> Result<Vec<u32>, String> {
        Ok(self.0.clone())
    }

    fn closed(&self) -> bool {
        true
    }
}

/// Configuration of the host.
pub struct Options {
    /// Where /proc and /sys are.
    pub root: ProcRoot,
    /// Becomes readable when management must stop.
    pub stop: Option<OwnedFd>,
    /// Stops after this time.
    pub duration: Option<Duration>,
    /// Log decisions only: accessed bits cover the time since the kernel last cleared them, and are taken for one interval.
    pub dry_run: bool,
    /// Contents of huge pages may be read, to find what is zero-filled; without, nothing that they waste is known.
    pub contents: bool,
    /// Claims on processes, so that two managers never work on the same one.
    pub claims: Option<Claims>,
    /// Compaction method for the free-block target, if any.
    pub actuator: Option<Box<dyn Actuator>>,
    /// Processes are found by BPF ([`TaskReader`]), where that is to be had, and those that do not run are not looked at; else /proc is read.
    pub table: bool,
}

/// The live machine.
pub struct LinuxHost {
    scanner: Box<dyn Scanner>,
    roster: Box<dyn Roster>,
    options: Options,
    managed: BTreeMap<ProcessId, Managed>,
    /// Processes at most, by the limit of open files.
    most: usize,
    kin: Kinship,
    watch: Watch,
    /// Has been seen, and stays.
    stopped: bool,
    /// Managed processes that could not be scanned the last time.
    unscanned: u64,
    failures: Failures,
    /// Without, /proc is read instead, and every process is looked at each time.
    tasks: Option<TaskReader>,
    table: Option<TaskTable>,
    felt: Felt,
    groups: GroupReader,
    growth: Growth,
    /// Processes that could not be added, by PID with their start time; reported once each.
    refused: BTreeMap<u32, u64>,
    events: Vec<HostEvent>,
    began: Time,
    cpu_at_start: Duration,
    /// Cost to the program of an access after its accessed bit was cleared.
    touch: Duration,
    /// There are several NUMA nodes.
    has_nodes: bool,
    /// A split frees zero-filled base pages (Linux 6.12); elsewhere contents are not read.
    split_frees: bool,
    partly: Partly,
    seen_any: bool,
    compaction: Option<CompactionThread>,
    said: BTreeSet<&'static str>,
}

impl LinuxHost {
    /// A host that observes the roster's processes through this scanner.
    pub fn new(scanner: Box<dyn Scanner>, roster: Box<dyn Roster>, mut options: Options) -> Self {
        let mut events = Vec::new();
        let compaction = options.actuator.take().and_then(|actuator| {
            CompactionThread::new(actuator, options.root.clone())
                .map_err(|error| {
                    events.push(HostEvent::Notice(format!(
                        "no proactive compaction: no thread can be started: {error}"
                    )));
                })
                .ok()
        });
        let tasks = (options.table && options.root.is_live())
            .then(|| TaskReader::new().ok())
            .flatten();
        Self {
            compaction,
            scanner,
            roster,
            managed: BTreeMap::new(),
            most: capacity::most(),
            kin: Kinship::default(),
            watch: Watch::new(options.stop.take()),
            stopped: false,
            unscanned: 0,
            failures: Failures::default(),
            // Whoever reads the kernel's numbers of processes knows that they are ours, too.
            felt: Felt::new(options.root.clone(), tasks.is_some()),
            tasks,
            table: None,
            groups: GroupReader::default(),
            growth: Growth::default(),
            refused: BTreeMap::new(),
            events,
            began: Time(u64::try_from(sys::monotonic().as_nanos()).unwrap_or(u64::MAX)),
            touch: touch::cost(),
            has_nodes: buddyinfo::read(&options.root).is_ok_and(|free| free.has_nodes()),
            cpu_at_start: sys::process_cpu_time(),
            split_frees: crate::capabilities::split_frees(&options.root),
            // What is read from files cannot be asked for its page flags.
            partly: options.root.is_live().then(Partly::new).unwrap_or_default(),
            options,
            seen_any: false,
            said: BTreeSet::new(),
        }
    }

    /// Whether any process was managed so far.
    pub fn seen_any(&self) -> bool {
        self.seen_any
    }

    /// Says an error of a managed process, once for each process and kind of error.
    fn note_failure(&mut self, id: ProcessId, kind: String, text: impl FnOnce() -> String) {
        let text = self.failures.note(id.pid, kind, text);
        self.events.extend(text.map(HostEvent::Notice));
    }

    fn notice_once(&mut self, key: &'static str, text: impl FnOnce() -> String) {
        if self.said.insert(key) {
            self.events.push(HostEvent::Notice(text()));
        }
    }
}

impl Host for LinuxHost {
    fn now(&self) -> Time {
        Time(u64::try_from(sys::monotonic().as_nanos()).unwrap_or(u64::MAX))
    }

    fn cpu_time(&self) -> Duration {
        let beside = self
            .compaction
            .as_ref()
            .map_or(Duration::ZERO, CompactionThread::cpu_elsewhere);
        sys::process_cpu_time().saturating_sub(self.cpu_at_start) + beside
    }

    fn touch_cost(&self) -> Duration {
        self.touch
    }

    fn observe(&mut self, wants: &Wants) -> Snapshot {
        self.refresh_processes();
        self.growth.begin(&self.options.root, self.managed.keys().copied());
        let processes = self.scan_all(wants);
        Snapshot {
            at: self.now(),
            machine: self.machine(),
            processes,
        }
    }

    fn age(&mut self, process: ProcessId, regions: &[Region]) -> AgeingReport {
        let mut report = AgeingReport::default();
        let Some(managed) = self.managed.get_mut(&process) else {
            return report;
        };
        let mut refused = BTreeSet::new();
        for (first, count) in runs(&managed.aged.to_clear(regions)) {
            if self.watch.is_stopped() {
                refused.extend((first.0..first.0 + count as u64).map(Region));
                continue;
            }
            let began = Instant::now();
            let cleared = self.scanner.clear(&managed.process, first.address(), count);
            let result = cleared.unwrap_or_else(|| actuate::age(&managed.process, first, count));
            let took = began.elapsed();
            report.took += took;
            let reached = result.unwrap_or(0);
            refused.extend((first.0 + reached as u64..first.0 + count as u64).map(Region));
            // mmap and munmap of the program wait for mmap_lock during a call: let them in between.
            if took > Duration::from_micros(200) {
                std::thread::sleep(took);
            }
        }
        report.refused = refused.len();
        report.regions = regions.len().saturating_sub(refused.len());
        managed.aged.cleared(regions, &refused);
        report
    }

    fn look(&mut self, process: ProcessId, region: Region, how: Look) -> Option<Observation> {
        let managed = self.managed.get_mut(&process)?;
        let pid = process.pid as i32;
        let scanner = self.scanner.as_mut();
        let address = region.address();
        let range = ScanRange {
            start: address,
            end: address + HUGE_PAGE_BYTES,
            young: false,
        };
        let mut found = Vec::with_capacity(1);
        scanner.scan(pid, &[range], &mut found).ok()?;
        let scan = found.first()?;
        if !managed.process.is_alive() {
            return None;
        }
        managed.kept.remove(&region);
        if how == Look::Contents && self.options.contents && !scan.flags.contains(RegionFlags::HUGE) {
            let kept = self.partly.read(pid, &[address]).unwrap_or_default();
            managed
                .kept
                .extend(kept.first().map(|kept| (region, BasePages(kept.pages.into()))));
        }
        if how == Look::Contents && self.options.contents && scan.flags.contains(RegionFlags::HUGE) {
            // Most likely it is as it was; the quick look sees what has been written since.
            let known = managed.contents.zero(region);
            for (region, zero) in read_contents(scanner, pid, &[region], known.is_some()) {
                managed
                    .contents
                    .note(region, known.map_or(zero, |known| zero.min(known.0 as u16)));
            }
        }
        let mut seen = managed.observation(scan, scanner.sees_accessed(), self.options.dry_run)?;
        // Only pages that are write-protected can be shared with a forked process: for those, ask precisely.
        if scan.write_protected > 0 || seen.shared {
            // What cannot be known counts as shared: to promote it would copy it.
            match scanner.fork_shared(pid, address) {
                Ok(shared) => seen.shared = shared > 0,
                Err(ScanError::Gone) => return None,
                Err(error) => {
                    seen.shared = true;
                    self.note_failure(process, error.kind(), || {
                        format!(
                            "process {}: which pages are shared through fork is unknown: {error}",
                            process.pid
                        )
                    });
                }
            }
        }
        Some(seen)
    }

    fn act(&mut self, action: &Action) -> Call {
        let gone = Call {
            error: Some(CallError::Gone),
            took: Duration::ZERO,
            stall: None,
        };
        let Some(managed) = self.managed.get_mut(&action.process) else {
            return gone;
        };
        managed.aged.spoil(action.region);
        managed.quiet.forget();
        let pid = action.process.pid;
        let before = (action.kind == ActionKind::Promote).then(|| self.felt.begin(pid));
        let mut call = match action.expect {
            Expect::Kept(_) => {
                let kept = self.partly.read(pid as i32, &[action.region.address()]);
                let pages = kept.unwrap_or_default().into_iter().flat_map(|kept| kept.addresses);
                actuate::split(&managed.process, pages.collect())
            }
            _ => actuate::act(&managed.process, action.kind, action.region),
        };
        if let Some(before) = before {
            call.stall = self.felt.end(pid, &before, call.took);
        }
        if matches!(call.error, Some(CallError::Refused | CallError::NoMemory)) {
            // The mapping may not be what it was at the last scan (a hole too says ENOMEM): see what it is, so that the outcome can say why.
            if let Ok(vmas) = self.scanner.vmas(action.process.pid as i32) {
                managed.vmas = vmas.iter().map(Vma::from).collect();
            }
        }
        call
    }

    fn memory_groups(&mut self) -> MemoryGroups {
        self.groups.read(&self.options.root, self.managed.keys().copied())
    }

    fn is_stopped(&mut self) -> bool {
        self.stopped = self.stopped || self.watch.is_stopped();
        self.stopped
    }

    fn unscanned(&self) -> u64 {
        self.unscanned
    }

    fn wait(&mut self, until: Time) -> Wake {
        loop {
            // Asked even where there is nothing to wait for: a budget of everything never waits.
            if self.is_stopped() {
                return Wake::Stop;
            }
            let now = self.now();
            let limit = self.options.duration.map(|limit| self.began.after(limit));
            if limit.is_some_and(|limit| now >= limit) {
                return Wake::Stop;
            }
            if self.nobody_left() {
                return Wake::Stop;
            }
            if now >= until {
                return Wake::Time;
            }
            let left = limit.map_or(until, |limit| until.min(limit)).since(now);
            let woken = self.watch.wait(left);
            self.note_woken(&woken);
        }
    }

    fn wait_for_growth(&mut self, until: Time) -> Wake {
        loop {
            let now = self.now();
            let pause = Growth::pause(self.managed.len());
            if until.since(now) <= pause {
                return self.wait(until);
            }
            if self.growth.has_grown(&self.options.root, self.managed.keys().copied()) {
                return Wake::Time;
            }
            if self.growth.is_time_for_new(&self.options.root) {
                let had = self.managed.len();
                self.refresh_processes();
                if self.managed.len() > had {
                    return Wake::Time;
                }
            }
            if self.wait(now.after(pause)) == Wake::Stop {
                return Wake::Stop;
            }
        }
    }

    fn contiguity(&mut self) -> Option<Contiguity> {
        let seen = crate::blocks::free_by_zone(&self.options.root).and_then(|zones| {
            let counters = vmstat::read(&self.options.root)?;
            let faults = [counters.thp_fault_alloc(), counters.thp_fault_fallback()];
            Ok(Contiguity {
                zones,
                huge_faults: faults.into_iter().flatten().fold(0, u64::saturating_add),
            })
        });
        match seen {
            Ok(seen) => Some(seen),
            Err(error) => {
                self.notice_once("contiguity", || format!("free-block target disabled: {error}"));
                None
            }
        }
    }

    fn free_blocks(&mut self) -> Option<Blocks> {
        buddyinfo::read(&self.options.root).ok().map(|free| free.free_blocks())
    }

    fn node_memory(&mut self, process: ProcessId, region: Region) -> Option<NodeMemory> {
        if !self.has_nodes {
            return None;
        }
        // The kernel takes the block from the node on which most of the region's pages are; a sample says which.
        let sample: Vec<u64> = (0..8).map(|i| region.address() + i * HUGE_PAGE_BYTES / 8).collect();
        let pid = process.pid;
        let node = deadline::within(pid, deadline::CALL, move || sys::node_of(pid, &sample)).ok()??;
        node::read(&self.options.root, node).ok()
    }

    fn compact(&mut self, order: &Order) -> bool {
        self.compaction.as_mut().is_some_and(|thread| thread.begin(order))
    }

    fn events(&mut self) -> Vec<HostEvent> {
        self.drop_ended();
        if let Some(thread) = &mut self.compaction {
            self.events.extend(thread.take());
        }
        std::mem::take(&mut self.events)
    }
}
