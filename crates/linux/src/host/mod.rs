//! This machine as a [`Host`].

mod aged;
mod contents;
mod stock;
mod touch;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mega_core::action::{Action, Call, CallError};
use mega_core::host::{Aged as AgedReport, Contiguity, Host, HostEvent, Look, Wake, Wants};
use mega_core::observe::{Can, Machine, Observation, ProcessId, ProcessView, Region, Snapshot};
use mega_core::stock::Order;
use mega_core::units::{BasePages, Blocks, Bytes, Share, Time, HUGE_PAGE_BYTES, REGION_PAGES};
use rustix::fd::AsFd;

use crate::actuate;
use crate::compact::Actuator;
use crate::knobs::{Claim, Claims};
use crate::proc::{buddyinfo, meminfo, pressure, status, vmstat, ProcRoot};
use crate::process::Process;
use crate::scan::{RegionFlags, RegionScan, ScanError, ScanRange, Scanner};
use crate::sys;
use crate::vma::Vma;
use aged::Aged;
use contents::Contents;
use stock::StockThread;
use wait::Woken;

/// Who is to be managed: asked at every scan.
pub trait Roster {
    /// The PIDs to manage now, those that are managed already among them or not; or why nobody can be found.
    fn pids(&mut self, root: &ProcRoot) -> Result<Vec<u32>, String>;
    /// Whether nobody will come any more once the managed ones are gone.
    fn closed(&self) -> bool;
}

/// One managed process.
struct Managed {
    process: Process,
    /// Held for as long as the process is managed.
    _claim: Option<Claim>,
    vmas: Vec<Vma>,
    thp_disabled: bool,
    aged: Aged,
    contents: Contents,
}

/// How the host is set up.
pub struct Options {
    /// Where /proc and /sys are.
    pub root: ProcRoot,
    /// Becomes readable when managing is to end.
    pub stop: Option<OwnedFd>,
    /// Ends managing after this time.
    pub duration: Option<Duration>,
    /// Nothing will be acted on: accessed bits tell about the time since the kernel last cleared them, and are taken for one interval.
    pub dry_run: bool,
    /// Claims on processes, so that two managers never work on the same one.
    pub claims: Option<Claims>,
    /// What makes free blocks for the stock, if anything.
    pub actuator: Option<Box<dyn Actuator>>,
}

/// The live machine.
pub struct LinuxHost {
    scanner: Box<dyn Scanner>,
    roster: Box<dyn Roster>,
    options: Options,
    managed: BTreeMap<ProcessId, Managed>,
    /// Those who could not be taken in, with their start; said once each.
    refused: BTreeMap<u32, u64>,
    events: Vec<HostEvent>,
    began: Time,
    cpu_at_start: Duration,
    /// What clearing an accessed bit costs the program.
    touch: Duration,
    /// A split gives zero-filled base pages back (Linux 6.12): where it does not, knowing of them is of no use.
    split_frees: bool,
    seen_any: bool,
    stock: Option<StockThread>,
    said: BTreeSet<&'static str>,
}

impl LinuxHost {
    /// A host that looks through this scanner at whom the roster names.
    pub fn new(scanner: Box<dyn Scanner>, roster: Box<dyn Roster>, mut options: Options) -> Self {
        let actuator = options.actuator.take();
        Self {
            stock: actuator.map(|actuator| StockThread::new(actuator, options.root.clone())),
            scanner,
            roster,
            managed: BTreeMap::new(),
            refused: BTreeMap::new(),
            events: Vec::new(),
            began: Time(u64::try_from(sys::monotonic().as_nanos()).unwrap_or(u64::MAX)),
            touch: touch::cost(),
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

    /// Whether nobody is managed and nobody will be. What the managed ones left behind when they ended is looked for first.
    fn nobody_left(&mut self) -> bool {
        if self.managed.is_empty() && self.roster.closed() {
            self.refresh_processes();
            return self.managed.is_empty();
        }
        false
    }

    fn drop_ended(&mut self) {
        let gone: Vec<_> = self
            .managed
            .iter()
            .filter(|(_, managed)| !managed.process.is_alive())
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.drop_process(id);
        }
    }

    fn refresh_processes(&mut self) {
        self.drop_ended();
        let known: BTreeSet<u32> = self.managed.keys().map(|id| id.pid).collect();
        match self.roster.pids(&self.options.root) {
            Ok(pids) => {
                let named: BTreeSet<u32> = pids.into_iter().collect();
                self.refused.retain(|pid, _| named.contains(pid));
                named.difference(&known).for_each(|pid| self.take_in(*pid));
            }
            Err(why) => self.notice_once("roster", || format!("no further processes can be found: {why}")),
        }
    }

    fn drop_process(&mut self, id: ProcessId) {
        if self.managed.remove(&id).is_some() {
            self.events.push(HostEvent::Gone(id));
        }
    }

    /// Begins to manage a process if that can be. Who is refused is asked again at the next scan: what shares memory since a vfork gets
    /// its own by exec, and another manager lets go some time.
    fn take_in(&mut self, pid: u32) {
        let process = match Process::open(&self.options.root, pid) {
            Ok(process) => process,
            Err(error) if error.is_gone() => return,
            Err(error) => return self.refuse(pid, 0, error.to_string()),
        };
        let started = process.start_ticks();
        let shares = self
            .managed
            .values()
            .find(|other| other.process.shares_memory_with(&process));
        if let Some(other) = shares {
            let text = format!("shares its memory with {}, which is managed", other.process.pid());
            return self.refuse(pid, started, text);
        }
        let claim = match &self.options.claims {
            None => None,
            Some(claims) => match claims.claim(pid, started) {
                Ok(claim) => Some(claim),
                Err(error) => return self.refuse(pid, started, error.to_string()),
            },
        };
        let id = process.id();
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
                aged: Aged::default(),
                contents: Contents::default(),
            },
        );
    }

    fn refuse(&mut self, pid: u32, started: u64, why: String) {
        if self.refused.insert(pid, started) != Some(started) {
            self.events.push(HostEvent::Refused(pid, why));
        }
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
            Err(error) => self.notice_once("meminfo", || format!("nothing is promoted: {error}")),
        }
        match buddy {
            Ok(buddy) => machine.free_blocks = buddy.free_blocks(),
            Err(error) => self.notice_once("buddyinfo", || format!("nothing is promoted: {error}")),
        }
        match pressure {
            Ok(Some(pressure)) => {
                machine.pressure = Some(Share::millionths((pressure.some.avg10_percent * 1e4) as u32))
            }
            Ok(None) => self.notice_once("pressure", || {
                "memory pressure (PSI) is not watched: this kernel does not tell".into()
            }),
            Err(error) => self.notice_once("pressure", || format!("memory pressure (PSI) is not watched: {error}")),
        }
        machine
    }

    fn scan_all(&mut self, wants: &Wants) -> Vec<ProcessView> {
        // Those with the least to read go first, and what they leave of their share goes to the others.
        let mut ids: Vec<_> = self.managed.keys().copied().collect();
        ids.sort_by_key(|id| self.managed[id].contents.unread());
        let mut allowance = wants.contents_cpu;
        let mut views = Vec::with_capacity(ids.len());
        for (done, &id) in ids.iter().enumerate() {
            let share = allowance / (ids.len() - done) as u32;
            match self.scan_one(id, wants, share) {
                Ok((regions, spent)) => {
                    allowance = allowance.saturating_sub(spent);
                    views.push(ProcessView { id, regions });
                }
                Err(ScanError::Gone) => self.drop_process(id),
                // Once, and the process stays: the next scan may well succeed.
                Err(error) => self.notice_once("scan", || format!("process {} cannot be scanned: {error}", id.pid)),
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
        let scanner = self.scanner.as_mut();
        let pid = id.pid as i32;
        // A kernel that does not say (before 5.0) is asked by trying.
        if let Ok(status) = status::read(&self.options.root, id.pid) {
            let disabled = status.thp_enabled == Some(false);
            if disabled && !std::mem::replace(&mut managed.thp_disabled, disabled) {
                self.events.push(HostEvent::Notice(format!(
                    "process {} ({}) has switched THP off for itself by prctl(PR_SET_THP_DISABLE): nothing of it can be promoted \
                     (Redis: start it with --disable-thp no)",
                    id.pid, status.name
                )));
            }
            managed.thp_disabled = disabled;
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
        scanner.scan(pid, &ranges, &mut found)?;
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
        if wants.contents && self.split_frees {
            spent = managed
                .contents
                .inspect(allowance, |regions| read_contents(scanner, pid, regions, false));
        }
        let sees_accessed = scanner.sees_accessed();
        let regions: Vec<_> = found
            .iter()
            .filter_map(|scan| managed.observation(scan, sees_accessed, self.options.dry_run))
            .collect();
        let accessed = regions
            .iter()
            .filter(|seen| seen.accessed > BasePages::ZERO || seen.raced)
            .map(|seen| seen.region)
            .collect();
        managed.aged.begin(accessed);
        Ok((regions, spent))
    }
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

impl Managed {
    fn vma_of(&self, region: Region) -> Option<&Vma> {
        let i = self.vmas.partition_point(|vma| vma.end <= region.address());
        let vma = self.vmas.get(i)?;
        (vma.start <= region.address() && vma.end - region.address() >= HUGE_PAGE_BYTES).then_some(vma)
    }

    fn observation(&self, scan: &RegionScan, sees_accessed: bool, dry_run: bool) -> Option<Observation> {
        let region = Region::at(scan.address);
        let vma = self.vma_of(region)?;
        let huge = scan.flags.contains(RegionFlags::HUGE);
        // The shared zero page counts as accessed for ever: MADV_COLD passes it over.
        let accessed = if huge {
            scan.accessed
        } else {
            scan.accessed.saturating_sub(scan.zero)
        };
        let zero = if huge {
            self.contents.zero(region)
        } else {
            Some(BasePages(scan.zero.into()))
        };
        Some(Observation {
            region,
            mapped: BasePages(scan.mapped.into()),
            accessed: BasePages(accessed.into()),
            dirty: BasePages(scan.dirty.into()),
            zero,
            huge,
            shared: scan.flags.contains(RegionFlags::SHARED),
            raced: scan.flags.contains(RegionFlags::RACED),
            aged: sees_accessed && (dry_run || self.aged.is_aged(region)),
            can: can(vma, self.thp_disabled),
        })
    }
}

/// What can be done with the regions of a mapping.
fn can(vma: &Vma, thp_disabled: bool) -> Can {
    let mut can = vma.can();
    if thp_disabled {
        can.promote = false;
        can.why = can.why.or(Some(mega_core::observe::Why::Prctl));
    }
    can
}

impl Host for LinuxHost {
    fn now(&self) -> Time {
        Time(u64::try_from(sys::monotonic().as_nanos()).unwrap_or(u64::MAX))
    }

    fn cpu_time(&self) -> Duration {
        let beside = self.stock.as_ref().map_or(Duration::ZERO, StockThread::cpu_elsewhere);
        sys::process_cpu_time().saturating_sub(self.cpu_at_start) + beside
    }

    fn touch_cost(&self) -> Duration {
        self.touch
    }

    fn observe(&mut self, wants: &Wants) -> Snapshot {
        self.refresh_processes();
        let processes = self.scan_all(wants);
        Snapshot {
            at: self.now(),
            machine: self.machine(),
            processes,
        }
    }

    fn age(&mut self, process: ProcessId, regions: &[Region]) -> AgedReport {
        let mut report = AgedReport::default();
        let Some(managed) = self.managed.get_mut(&process) else {
            return report;
        };
        let mut refused = BTreeSet::new();
        for (first, count) in managed.aged.to_clear(regions) {
            let began = Instant::now();
            let pidfd = managed.process.pidfd();
            let cleared = self.scanner.clear(pidfd, first.address(), count);
            let result = cleared.unwrap_or_else(|| actuate::age(pidfd, first, count));
            let took = began.elapsed();
            report.took += took;
            let reached = result.unwrap_or(0);
            refused.extend((first.0 + reached as u64..first.0 + count as u64).map(Region));
            // mmap and munmap of the program wait for a call: let them in between.
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
        if how == Look::Contents && scan.flags.contains(RegionFlags::HUGE) {
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
            seen.shared = scanner.fork_shared(pid, address).is_ok_and(|shared| shared > 0);
        }
        Some(seen)
    }

    fn act(&mut self, action: &Action) -> Call {
        let gone = Call {
            error: Some(CallError::Gone),
            took: Duration::ZERO,
        };
        let Some(managed) = self.managed.get_mut(&action.process) else {
            return gone;
        };
        managed.aged.spoil(action.region);
        let call = actuate::act(managed.process.pidfd(), action.kind, action.region);
        if matches!(call.error, Some(CallError::Refused | CallError::NoMemory)) {
            // The mapping may not be what it was at the last scan (a hole too says ENOMEM): see what it is, so that the outcome can say why.
            if let Ok(vmas) = self.scanner.vmas(action.process.pid as i32) {
                managed.vmas = vmas.iter().map(Vma::from).collect();
            }
        }
        call
    }

    fn wait(&mut self, until: Time) -> Wake {
        loop {
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
            let processes = self.managed.values().map(|managed| managed.process.pidfd());
            match wait::wait(self.options.stop.as_ref().map(AsFd::as_fd), processes, left) {
                Woken::Stop => return Wake::Stop,
                Woken::ProcessEnded => self.drop_ended(),
                Woken::Time => {}
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
                self.notice_once("contiguity", || format!("no stock of free blocks is kept: {error}"));
                None
            }
        }
    }

    fn free_blocks(&mut self) -> Option<Blocks> {
        buddyinfo::read(&self.options.root).ok().map(|free| free.free_blocks())
    }

    fn compact(&mut self, order: &Order) -> bool {
        self.stock.as_mut().is_some_and(|stock| stock.begin(order))
    }

    fn events(&mut self) -> Vec<HostEvent> {
        self.drop_ended();
        if let Some(stock) = &mut self.stock {
            self.events.extend(stock.take());
        }
        std::mem::take(&mut self.events)
    }
}
