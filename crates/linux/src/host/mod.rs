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
mod quiet;
mod sharing;
mod touch;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mega_core::action::{Action, ActionKind, Call, CallError};
use mega_core::ageing::accessed_bits::{runs, AccessedBits};
use mega_core::compaction::target::Order;
use mega_core::host::{AgeingReport, Contiguity, Host, HostEvent, Look, Wake, Wants};
use mega_core::observe::groups::MemoryGroups;
use mega_core::observe::{Machine, Observation, ProcessId, ProcessView, Region, Snapshot};
use mega_core::units::{Blocks, Bytes, Share, Time, HUGE_PAGE_BYTES, REGION_PAGES};

use crate::compact::Actuator;
use crate::deadline;
use crate::knobs::Claims;
use crate::proc::{buddyinfo, meminfo, pressure, stat, status, vmstat, ProcRoot};
use crate::process::tasks::{TaskReader, TaskTable};
use crate::process::{self, Process};
use crate::scan::{RegionFlags, ScanError, ScanRange, Scanner};
use crate::sys;
use crate::vma::Vma;
use compaction::CompactionThread;
use contents::KnownContents;
use failures::Failures;
use groups::GroupReader;
use growth::Growth;
use managed::Managed;
use quiet::Quiet;
use sharing::Kinship;
use wait::{Watch, Woken};

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
            tasks: (options.table && options.root.is_live())
                .then(|| TaskReader::new().ok())
                .flatten(),
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
            options,
            seen_any: false,
            said: BTreeSet::new(),
        }
    }

    /// Whether any process was managed so far.
    pub fn seen_any(&self) -> bool {
        self.seen_any
    }

    /// Whether no process is managed and none will be. Looks for descendants of ended ones first.
    fn nobody_left(&mut self) -> bool {
        if self.managed.is_empty() && self.roster.closed() {
            self.refresh_processes();
            return self.managed.is_empty();
        }
        false
    }

    /// Drops the processes that have exited, as far as the kernel has said so.
    fn drop_ended(&mut self) {
        loop {
            let woken = self.watch.wait(Duration::ZERO);
            if !self.note_woken(&woken) {
                return;
            }
        }
    }

    /// Takes note of what a wait saw; whether any process was dropped.
    fn note_woken(&mut self, woken: &Woken) -> bool {
        self.stopped |= woken.stop;
        let candidates: Vec<ProcessId> = match &woken.exited {
            Some(pids) => pids.iter().flat_map(|pid| self.ids_of(*pid)).collect(),
            None => self.managed.keys().copied().collect(),
        };
        let mut dropped = false;
        for id in candidates {
            if self.managed.get(&id).is_some_and(|managed| !managed.process.is_alive()) {
                self.drop_process(id);
                dropped = true;
            }
        }
        dropped
    }

    /// The managed process with this PID; two for a moment where one has exited and the PID is used again.
    fn ids_of(&self, pid: u32) -> Vec<ProcessId> {
        let all = ProcessId { pid, started: 0 }..=ProcessId { pid, started: u64::MAX };
        self.managed.range(all).map(|(id, _)| *id).collect()
    }

    fn refresh_processes(&mut self) {
        self.drop_ended();
        self.read_table();
        let known: BTreeSet<u32> = self.managed.keys().map(|id| id.pid).collect();
        let named = match &self.table {
            Some(table) => self.roster.pids_in(&self.options.root, table),
            None => self.roster.pids(&self.options.root),
        };
        match named {
            Ok(pids) => {
                let named: BTreeSet<u32> = pids.into_iter().collect();
                self.refused.retain(|pid, _| named.contains(pid));
                let room = self.make_room(&named, &known);
                for pid in room.difference(&known) {
                    if self.is_stopped() {
                        return;
                    }
                    self.take_in(*pid);
                }
            }
            Err(why) => self.notice_once("roster", || format!("cannot look for further processes: {why}")),
        }
    }

    fn read_table(&mut self) {
        self.table = None;
        let Some(tasks) = &mut self.tasks else { return };
        match tasks.read() {
            Ok(table) => {
                if table.lost > 0 {
                    let lost = table.lost;
                    self.notice_once("lost", || {
                        format!("{lost} changes of processes found no room in the kernel's buffer: more start and end than are followed")
                    });
                }
                self.table = Some(table);
            }
            Err(why) => {
                // It is asked again at the next look.
                self.notice_once("tasks", || format!("processes are looked for in /proc: {why}"));
            }
        }
    }

    /// Of the named processes those that there are descriptors for. Managed ones that larger ones displace are dropped.
    fn make_room(&mut self, named: &BTreeSet<u32>, known: &BTreeSet<u32>) -> BTreeSet<u32> {
        let all: BTreeSet<u32> = named.union(known).copied().collect();
        if all.len() <= self.most {
            return all;
        }
        let (root, table) = (&self.options.root, &self.table);
        let chosen = capacity::largest(&all, known, self.most, |pid| match table {
            Some(table) => table.get(pid).map_or(0, |task| task.resident_pages),
            None => stat::read(root, pid).map_or(0, |stat| stat.rss_bytes),
        });
        for pid in known.difference(&chosen) {
            for id in self.ids_of(*pid) {
                self.drop_process(id);
            }
        }
        let (most, beyond) = (self.most, all.len() - self.most);
        self.notice_once("capacity", || {
            format!(
                "{beyond} processes are not managed: the limit of open files (ulimit -n) leaves room for {most}; the largest are managed"
            )
        });
        chosen
    }

    fn drop_process(&mut self, id: ProcessId) {
        if self.managed.remove(&id).is_some() {
            self.kin.remove(id.pid);
            self.failures.forget(id.pid);
            self.events.push(HostEvent::Gone(id));
        }
    }

    /// Adds a process if possible. A refused one is tried again at the next scan: a vfork child gets its own memory by exec, and another
    /// manager may stop.
    fn take_in(&mut self, pid: u32) {
        let process = match Process::open(&self.options.root, pid) {
            Ok(process) if process.is_exiting() => return,
            Ok(process) => process,
            Err(error) if error.is_gone() => return,
            Err(error) => return self.refuse(pid, 0, error.to_string()),
        };
        let started = process.start_ticks();
        let table = self.table.as_ref();
        let is_same = |other: u32| match table {
            Some(table) if table.get(pid).is_some() => table.is_shared(pid, other),
            _ => process::same_memory(pid, other),
        };
        if let Some(other) = self.kin.sharer(pid, process.parent(), is_same) {
            // A number may be another process's by now; the next scan asks again.
            if process.is_alive() {
                let text = format!("shares its address space with managed process {other}");
                return self.refuse(pid, started, text);
            }
            return;
        }
        let claim = match &self.options.claims {
            None => None,
            Some(claims) => match claims.claim(pid, started) {
                Ok(claim) => Some(claim),
                Err(error) => return self.refuse(pid, started, error.to_string()),
            },
        };
        let id = process.id();
        if let Err(errno) = self.watch.add(process.pidfd(), pid) {
            return self.refuse(pid, started, format!("its exit cannot be watched: {errno}"));
        }
        self.kin.add(pid, process.parent());
        self.refused.remove(&pid);
        self.seen_any = true;
        self.events.push(HostEvent::Found(id, process.name(&self.options.root)));
        self.managed.insert(
            id,
            Managed {
                process,
                _claim: claim,
                vmas: Vec::new(),
                thp_disabled: false,
                aged: AccessedBits::default(),
                contents: KnownContents::default(),
                quiet: Quiet::default(),
            },
        );
    }

    fn refuse(&mut self, pid: u32, started: u64, why: String) {
        if self.refused.insert(pid, started) != Some(started) {
            self.events.push(HostEvent::Refused(pid, why));
        }
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

    fn machine(&mut self) -> Machine {
        let root = &self.options.root;
        let (info, buddy, pressure) = (meminfo::read(root), buddyinfo::read(root), pressure::read(root));
        let mut machine = Machine {
            available_bytes: Bytes(0),
            total_bytes: Bytes(0),
            free_blocks: Blocks(0),
            pressure: None,
        };
        match info {
            Ok(info) => {
                machine.available_bytes = Bytes(info.available_bytes.unwrap_or(0));
                machine.total_bytes = Bytes(info.total_bytes.unwrap_or(u64::MAX));
            }
            Err(error) => self.notice_once("meminfo", || format!("promotions suspended: {error}")),
        }
        match buddy {
            Ok(buddy) => machine.free_blocks = buddy.free_blocks(),
            Err(error) => self.notice_once("buddyinfo", || format!("promotions suspended: {error}")),
        }
        match pressure {
            Ok(Some(pressure)) => {
                machine.pressure = Some(Share::millionths((pressure.some.avg10_percent * 1e4) as u32))
            }
            Ok(None) => self.notice_once("pressure", || "PSI unavailable; pressure limit disabled".into()),
            Err(error) => self.notice_once("pressure", || {
                format!("PSI unavailable; pressure limit disabled: {error}")
            }),
        }
        machine
    }

    fn scan_all(&mut self, wants: &Wants) -> Vec<ProcessView> {
        // Processes with the least to read go first; what they leave of their share goes to the others.
        let mut ids: Vec<_> = self.managed.keys().copied().collect();
        ids.sort_by_cached_key(|id| self.managed[id].contents.unread());
        self.unscanned = 0;
        let mut allowance = wants.contents_cpu;
        let mut views = Vec::with_capacity(ids.len());
        for (done, &id) in ids.iter().enumerate() {
            if self.is_stopped() {
                break;
            }
            let share = allowance / (ids.len() - done) as u32;
            match self.scan_one(id, wants, share) {
                Ok((regions, spent)) => {
                    allowance = allowance.saturating_sub(spent);
                    views.push(ProcessView { id, regions });
                }
                Err(ScanError::Gone) => self.drop_process(id),
                // The process stays: the next scan may well succeed.
                Err(error) => {
                    self.unscanned += 1;
                    self.note_failure(id, error.kind(), || {
                        format!("process {} cannot be scanned: {error}", id.pid)
                    });
                }
            }
        }
        views.sort_by_key(|view| view.id);
        views
    }

    fn scan_one(
        &mut self,
        id: ProcessId,
        wants: &Wants,
        allowance: Duration,
    ) -> Result<(Vec<Observation>, Duration), ScanError> {
        let Some(managed) = self.managed.get_mut(&id) else {
            return Err(ScanError::Gone);
        };
        let table = self.table.as_ref().and_then(|table| table.get(id.pid));
        let now = table.filter(|now| now.start_ticks == id.started);
        let reads_contents = wants.contents && self.options.contents && self.split_frees;
        if let Some(now) = now.filter(|_| !reads_contents || managed.contents.unread() == 0) {
            if let Some(regions) = managed.quiet.pass(now, &mut managed.aged) {
                return Ok((regions, Duration::ZERO));
            }
        }
        let scanner = self.scanner.as_mut();
        let pid = id.pid as i32;
        let mut status_error = None;
        // A kernel that does not say (before 5.0) is asked by trying.
        match status::read(&self.options.root, id.pid) {
            Err(error) if error.is_gone() => return Err(ScanError::Gone),
            Err(error) => status_error = Some(error),
            Ok(status) => {
                let disabled = status.thp_enabled == Some(false);
                if disabled && !std::mem::replace(&mut managed.thp_disabled, disabled) {
                    self.events.push(HostEvent::Notice(format!(
                    "process {} ({}) disabled THP for itself by prctl(PR_SET_THP_DISABLE): none of its memory can be promoted \
                     (Redis: start it with --disable-thp no)",
                    id.pid, status.name
                )));
                }
                managed.thp_disabled = disabled;
            }
        }
        managed.vmas = scanner.vmas(pid)?.iter().map(Vma::from).collect();
        let ranges: Vec<ScanRange> = managed
            .vmas
            .iter()
            .filter(|vma| vma.is_manageable())
            .filter_map(|vma| vma.regions().map(|range| (range.start, range.end)))
            .map(|(start, end)| ScanRange {
                start,
                end,
                young: wants.utilization && managed.aged.any_in(Region::at(start), Region::at(end)),
            })
            .collect();
        let mut found = Vec::new();
        for batch in batches(&ranges) {
            scanner.scan(pid, &batch, &mut found)?;
            // The whole observation is thrown away then; a terabyte takes seconds.
            if self.watch.is_stopped() {
                return Ok((Vec::new(), Duration::ZERO));
            }
        }
        // The look was at a number: was it our process's all the while?
        if !managed.process.is_alive() {
            return Err(ScanError::Gone);
        }
        managed.contents.begin_scan(
            found
                .iter()
                .filter(|scan| scan.flags.contains(RegionFlags::HUGE))
                .map(|scan| Region::at(scan.address)),
        );
        let mut spent = Duration::ZERO;
        if reads_contents {
            spent = managed
                .contents
                .inspect(allowance, |regions| read_contents(scanner, pid, regions, false));
        }
        let sees_accessed = scanner.sees_accessed();
        let regions: Vec<_> = found
            .iter()
            .filter_map(|scan| managed.observation(scan, sees_accessed, self.options.dry_run))
            .collect();
        managed.aged.begin(quiet::accessed(&regions));
        managed.quiet.keep(now, &regions);
        if let Some(error) = status_error {
            self.note_failure(id, format!("status: {:?}", error.errno()), || {
                format!("whether process {} disabled THP for itself is unknown: {error}", id.pid)
            });
        }
        Ok((regions, spent))
    }
}

/// Bytes of address space scanned between two looks at the stop request: some tenths of a second where everything is mapped and cold.
const BATCH_BYTES: u64 = 64 << 30;

/// The ranges in order, in pieces of at most [`BATCH_BYTES`] together.
fn batches(ranges: &[ScanRange]) -> Vec<Vec<ScanRange>> {
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + (BATCH_BYTES - bytes));
            batch.push(ScanRange { start, end, ..*range });
            bytes += end - start;
            start = end;
            if bytes == BATCH_BYTES {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

fn read_contents(scanner: &mut dyn Scanner, pid: i32, regions: &[Region], quick: bool) -> Vec<(Region, u16)> {
    let addresses: Vec<_> = regions.iter().map(|region| region.address()).collect();
    let mut found = Vec::new();
    // A process that goes away meanwhile simply has no contents; the next look at it says so.
    let _ = match quick {
        false => scanner.zero_filled(pid, &addresses, &mut found),
        true => scanner.at_most_zero_filled(pid, &addresses, &mut found),
    };
    found
        .iter()
        .filter(|contents| contents.checked == REGION_PAGES as u16 && !contents.raced)
        .map(|contents| (Region::at(contents.address), contents.zero_filled))
        .collect()
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
        let faults = felt::faults(&self.options.root, pid);
        let mut call = actuate::act(&managed.process, action.kind, action.region);
        if action.kind == ActionKind::Promote {
            call.stall = felt::stall(&self.options.root, pid, faults, call.took);
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

    fn free_blocks_near(&mut self, process: ProcessId, region: Region) -> Option<Blocks> {
        if !self.has_nodes {
            return None;
        }
        let free = buddyinfo::read(&self.options.root).ok()?;
        // The kernel takes the block from the node on which most of the region's pages are; a sample says which.
        let sample: Vec<u64> = (0..8).map(|i| region.address() + i * HUGE_PAGE_BYTES / 8).collect();
        let pid = process.pid;
        match deadline::within(pid, deadline::CALL, move || sys::node_of(pid, &sample)) {
            Ok(Some(node)) => Some(free.free_blocks_of(node)),
            Ok(None) | Err(_) => Some(free.free_blocks()),
        }
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
