//! A machine made of cardboard: its time passes only when something takes time, its regions do what the test says.

// Each test file is a crate of its own and uses a part of this.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mega_core::action::{Action, ActionKind, Call, CallError, Expect, Outcome, Reason};
use mega_core::compaction::block::{Zone, ZoneKind};
use mega_core::compaction::target::{Compacted, Ended, FreeBlockTarget, Order};
use mega_core::control::{Control, Observer, Settings, Status};
use mega_core::host::{AgeingReport, Contiguity, Host, HostEvent, Look, Wake, Wants};
use mega_core::journal::{Event, Line};
use mega_core::observe::groups::MemoryGroups;
use mega_core::observe::{Can, Machine, NodeMemory, Observation, ProcessId, ProcessView, Region, Snapshot};
use mega_core::policy::{Decision, Needs, Param, ParamError, Policy};
use mega_core::units::{BasePages, Blocks, Bytes, Share, Time, REGION_PAGES};

pub const US: Duration = Duration::from_micros(1);
pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

pub const A: ProcessId = ProcessId { pid: 1, started: 11 };
pub const B: ProcessId = ProcessId { pid: 2, started: 22 };

/// The moment this long after the beginning.
pub fn at(after: Duration) -> Time {
    Time(0).after(after)
}

/// What a call does, and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    pub effect: Effect,
    pub says: Option<CallError>,
    pub took: Duration,
    /// How long the program is stalled, where that is known.
    pub stall: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// What was asked for.
    Works,
    /// Nothing.
    Nothing,
    /// Nothing, and the mapping goes away meanwhile.
    Unmapped,
    /// Nothing, and the process exits meanwhile.
    Exits,
    /// Nothing, and the process forks meanwhile.
    Forks,
}

pub const WORKS: Act = Act {
    effect: Effect::Works,
    says: None,
    took: Duration::from_micros(450),
    stall: None,
};

/// A call that does nothing and says this.
pub fn fails(says: CallError) -> Act {
    Act {
        effect: Effect::Nothing,
        says: Some(says),
        ..WORKS
    }
}

/// One region of the toy.
#[derive(Debug, Clone)]
pub struct Place {
    pub mapped: u32,
    /// Zero pages among the mapped, or zero-filled pages of a huge page.
    pub zero: u32,
    /// Base pages that the program touches between two scans.
    pub hot: u32,
    pub huge: bool,
    pub shared: bool,
    pub can: Can,
    /// So many looks from now on are raced.
    pub races: u32,
    /// What the next calls do; then `after`.
    pub next: VecDeque<Act>,
    pub after: Act,
}

impl Place {
    pub fn base(mapped: u32, hot: u32) -> Self {
        Self {
            mapped,
            zero: 0,
            hot,
            huge: false,
            shared: false,
            can: Can::ALL,
            races: 0,
            next: VecDeque::new(),
            after: WORKS,
        }
    }

    pub fn huge(zero: u32) -> Self {
        Self {
            zero,
            huge: true,
            ..Self::base(REGION_PAGES, REGION_PAGES)
        }
    }

    pub fn acts(mut self, act: Act) -> Self {
        self.after = act;
        self
    }

    pub fn takes(mut self, took: Duration) -> Self {
        self.after.took = took;
        self
    }

    fn look(&mut self, region: u64, aged: bool, contents: bool) -> Observation {
        let raced = self.races > 0;
        self.races = self.races.saturating_sub(1);
        let hot = if self.huge && self.hot > 0 {
            REGION_PAGES
        } else {
            self.hot.min(self.mapped)
        };
        Observation {
            region: Region(region),
            mapped: BasePages(self.mapped),
            // Nothing was cleared: everything was accessed at some time.
            accessed: BasePages(if aged { hot } else { self.mapped }),
            dirty: BasePages(0),
            zero: (!self.huge || contents).then_some(BasePages(self.zero)),
            kept: BasePages(0),
            huge: self.huge,
            shared: self.shared,
            raced,
            aged,
            can: self.can,
        }
    }

    fn work(&mut self, kind: ActionKind) {
        match kind {
            ActionKind::Promote if !self.huge => {
                self.zero += REGION_PAGES - self.mapped;
                self.mapped = REGION_PAGES;
                self.huge = true;
            }
            ActionKind::Demote => self.huge = false,
            ActionKind::Promote => {}
        }
    }
}

/// Something that the test does to the world at a time.
type Change = Box<dyn FnOnce(&mut World)>;

/// What is there.
pub struct World {
    pub machine: Machine,
    pub groups: MemoryGroups,
    /// The NUMA node that a process's memory is on, where that is not all there is.
    pub nodes: BTreeMap<ProcessId, NodeMemory>,
    pub processes: BTreeMap<ProcessId, BTreeMap<u64, Place>>,
    events: Vec<HostEvent>,
}

impl World {
    pub fn add(&mut self, id: ProcessId, places: impl IntoIterator<Item = (u64, Place)>) {
        if !self.processes.contains_key(&id) {
            self.events.push(HostEvent::Found(id, format!("toy {}", id.pid)));
        }
        self.processes.entry(id).or_default().extend(places);
    }

    pub fn exit(&mut self, id: ProcessId) {
        if self.processes.remove(&id).is_some() {
            self.events.push(HostEvent::Gone(id));
        }
    }

    /// Something that the host has to say.
    pub fn notify(&mut self, event: HostEvent) {
        self.events.push(event);
    }

    pub fn place(&mut self, id: ProcessId, region: u64) -> Option<&mut Place> {
        self.processes.get_mut(&id)?.get_mut(&region)
    }
}

/// The host.
pub struct Toy {
    pub world: World,
    now: Time,
    cpu: Duration,
    stop: Time,
    changes: BTreeMap<Time, Vec<Change>>,
    aged: BTreeSet<(ProcessId, u64)>,
    /// Processor time that looking at everything takes.
    pub scan_cpu: Duration,
    /// Processor time that clearing one region takes.
    pub age_cpu: Duration,
    /// What a base page costs that is touched again after its region was aged.
    pub touch: Duration,
    /// The calls that were made: when they began, what, and what they took.
    pub acts: Vec<(Time, Action, Duration)>,
    /// The regions that were aged, by call.
    pub ages: Vec<(Time, ProcessId, usize)>,
    pub scans: Vec<Time>,
    /// The machine as of the last scan.
    pub seen: Option<Machine>,
    /// Orders to make blocks: when, and what.
    pub orders: Vec<(Time, Order)>,
    /// One in so many of the blocks ordered is made; 0: none.
    pub yields: u64,
    /// How long making blocks takes.
    pub compacting: Duration,
    under_way: Option<(Time, Compacted)>,
}

impl Toy {
    /// An empty machine that runs for this long.
    pub fn new(run: Duration) -> Self {
        Self {
            world: World {
                machine: Machine {
                    available_bytes: Bytes(16 << 30),
                    total_bytes: Bytes(24 << 30),
                    free_blocks: Blocks(8000),
                    pressure: Some(Share::ZERO),
                },
                groups: MemoryGroups::default(),
                nodes: BTreeMap::new(),
                processes: BTreeMap::new(),
                events: Vec::new(),
            },
            now: Time(0),
            cpu: Duration::ZERO,
            stop: at(run),
            changes: BTreeMap::new(),
            aged: BTreeSet::new(),
            scan_cpu: MS,
            age_cpu: US,
            touch: Duration::ZERO,
            acts: Vec::new(),
            ages: Vec::new(),
            scans: Vec::new(),
            seen: None,
            orders: Vec::new(),
            yields: 1,
            compacting: 20 * MS,
            under_way: None,
        }
    }

    pub fn with(mut self, id: ProcessId, places: impl IntoIterator<Item = (u64, Place)>) -> Self {
        self.world.add(id, places);
        self
    }

    /// Changes the world at this time.
    pub fn change(&mut self, when: Duration, change: impl FnOnce(&mut World) + 'static) {
        self.changes.entry(at(when)).or_default().push(Box::new(change));
    }

    /// Manages it until its time is over.
    pub fn run(&mut self, policy: &mut dyn Policy, settings: Settings) -> Run {
        let mut log = Log::default();
        self.run_with(policy, settings, None, &mut log)
    }

    /// Manages it with a free-block target.
    pub fn run_with_target(&mut self, policy: &mut dyn Policy, settings: Settings, target: FreeBlockTarget) -> Run {
        let mut log = Log::default();
        self.run_with(policy, settings, Some(target), &mut log)
    }

    fn run_with(
        &mut self,
        policy: &mut dyn Policy,
        settings: Settings,
        target: Option<FreeBlockTarget>,
        log: &mut Log,
    ) -> Run {
        let status = Control::new(self, policy, settings, log)
            .with_free_block_target(target)
            .run();
        Run {
            status,
            lines: std::mem::take(&mut log.lines),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        if let Some((_, done)) = self.under_way.take_if(|(at, _)| *at <= self.now) {
            self.world.machine.free_blocks.0 += done.gained().0;
            self.cpu += done.cpu;
            self.world.events.push(HostEvent::Compacted(done));
        }
        while let Some(entry) = self.changes.first_entry().filter(|entry| *entry.key() <= self.now) {
            for change in entry.remove() {
                change(&mut self.world);
            }
        }
    }

    fn work(&mut self, time: Duration) {
        self.cpu += time;
        self.pass(time);
    }
}

impl Host for Toy {
    fn now(&self) -> Time {
        self.now
    }

    fn cpu_time(&self) -> Duration {
        self.cpu
    }

    fn touch_cost(&self) -> Duration {
        self.touch
    }

    fn observe(&mut self, wants: &Wants) -> Snapshot {
        let at = self.now;
        self.scans.push(at);
        self.work(self.scan_cpu);
        let aged = std::mem::take(&mut self.aged);
        self.seen = Some(self.world.machine);
        let look = |id: ProcessId, places: &mut BTreeMap<u64, Place>| {
            places
                .iter_mut()
                .map(|(region, place)| place.look(*region, aged.contains(&(id, *region)), wants.contents))
                .filter(|seen| seen.mapped > BasePages::ZERO)
                .collect()
        };
        Snapshot {
            at,
            machine: self.world.machine,
            processes: self
                .world
                .processes
                .iter_mut()
                .map(|(id, places)| ProcessView {
                    id: *id,
                    regions: look(*id, places),
                })
                .collect(),
        }
    }

    fn age(&mut self, process: ProcessId, regions: &[Region]) -> AgeingReport {
        assert!(regions.is_sorted(), "regions are aged by rising address");
        self.ages.push((self.now, process, regions.len()));
        let took = self.age_cpu * regions.len() as u32;
        self.work(took);
        let mut aged = AgeingReport {
            took,
            ..AgeingReport::default()
        };
        for region in regions {
            match self.world.place(process, region.0) {
                Some(place) if place.can.age && !place.shared => {
                    self.aged.insert((process, region.0));
                    aged.regions += 1;
                }
                _ => aged.refused += 1,
            }
        }
        aged
    }

    fn look(&mut self, process: ProcessId, region: Region, how: Look) -> Option<Observation> {
        self.work(5 * US);
        let place = self.world.place(process, region.0)?;
        Some(place.look(region.0, false, how == Look::Contents))
    }

    fn act(&mut self, action: &Action) -> Call {
        let (id, region) = (action.process, action.region.0);
        let Some(place) = self.world.place(id, region) else {
            return Call {
                error: Some(CallError::Gone),
                took: Duration::ZERO,
                stall: None,
            };
        };
        let act = place.next.pop_front().unwrap_or(place.after);
        match act.effect {
            Effect::Works => {
                let takes = u64::from(action.kind == ActionKind::Promote && !place.huge);
                place.work(action.kind);
                self.world.machine.free_blocks.0 = self.world.machine.free_blocks.0.saturating_sub(takes);
            }
            Effect::Forks => place.shared = true,
            Effect::Nothing => {}
            Effect::Unmapped => {
                self.world.processes.entry(id).or_default().remove(&region);
            }
            Effect::Exits => self.world.exit(id),
        }
        self.acts.push((self.now, *action, act.took));
        self.work(act.took);
        Call {
            error: act.says,
            took: act.took,
            stall: act.stall,
        }
    }

    fn node_memory(&mut self, process: ProcessId, _: Region) -> Option<NodeMemory> {
        self.world.nodes.get(&process).copied()
    }

    fn memory_groups(&mut self) -> MemoryGroups {
        self.world.groups.clone()
    }

    fn is_stopped(&mut self) -> bool {
        self.now >= self.stop
    }

    fn wait(&mut self, until: Time) -> Wake {
        let until = until.min(self.stop);
        self.pass(until.since(self.now));
        if self.now >= self.stop {
            Wake::Stop
        } else {
            Wake::Time
        }
    }

    fn contiguity(&mut self) -> Option<Contiguity> {
        let zone = Zone {
            node: 0,
            name: "Normal".into(),
            kind: ZoneKind::Normal,
            start_frame: 0,
            spanned_frames: 1 << 23,
            free_pages: self.world.machine.available_bytes.0 / 4096,
            free_blocks: self.world.machine.free_blocks,
        };
        Some(Contiguity {
            zones: vec![zone],
            huge_faults: 0,
        })
    }

    fn free_blocks(&mut self) -> Option<Blocks> {
        Some(self.world.machine.free_blocks)
    }

    fn compact(&mut self, order: &Order) -> bool {
        if self.under_way.is_some() {
            return false;
        }
        self.orders.push((self.now, *order));
        let before = self.world.machine.free_blocks;
        let gained = order.blocks.0.checked_div(self.yields).unwrap_or(0);
        let done = Compacted {
            way: "toy",
            asked: order.blocks,
            before,
            after: Blocks(before.0 + gained),
            on_lists: Blocks(0),
            moved_pages: 0,
            took: self.compacting,
            cpu: self.compacting,
            ended: if self.yields == 1 {
                Ended::Amount
            } else {
                Ended::Through
            },
            chosen: None,
        };
        self.under_way = Some((self.now.after(self.compacting), done));
        true
    }

    fn events(&mut self) -> Vec<HostEvent> {
        std::mem::take(&mut self.world.events)
    }
}

#[derive(Default)]
struct Log {
    lines: Vec<Line>,
}

impl Observer for Log {
    fn event(&mut self, line: &Line) {
        self.lines.push(line.clone());
    }
}

/// What a run left.
pub struct Run {
    pub status: Status,
    pub lines: Vec<Line>,
}

impl Run {
    /// The outcomes, in order: when, whose, which, what, what came of it.
    pub fn outcomes(&self) -> Vec<(Time, u32, u64, ActionKind, Outcome)> {
        let lines = self.lines.iter();
        lines
            .filter_map(|line| match line.event {
                Event::Outcome {
                    pid,
                    region,
                    action,
                    outcome,
                    ..
                } => Some((line.at, pid, region.0, action, outcome)),
                _ => None,
            })
            .collect()
    }

    /// The outcomes of one region.
    pub fn of(&self, id: ProcessId, region: u64) -> Vec<Outcome> {
        let all = self.outcomes().into_iter();
        all.filter(|o| (o.1, o.2) == (id.pid, region)).map(|o| o.4).collect()
    }

    /// Seconds at which there was an outcome for a region, rounded down.
    pub fn seconds(&self, id: ProcessId, region: u64) -> Vec<u64> {
        let all = self.outcomes().into_iter();
        all.filter(|o| (o.1, o.2) == (id.pid, region))
            .map(|o| o.0 .0 / 1_000_000_000)
            .collect()
    }

    pub fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.lines.iter().any(|line| wanted(&line.event))
    }

    /// The journal as people read it.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| line.to_text() + "\n").collect()
    }
}

/// What a wish wants of a region.
pub type Wanted = Option<(ActionKind, u32, Expect)>;

/// A policy that wants what the test wants, with a benefit.
pub struct Wish(pub fn(&Observation) -> Wanted);

/// Wants every base-mapped region promoted, whatever is in it.
pub fn promote_all() -> Wish {
    Wish(|o| (!o.huge).then_some((ActionKind::Promote, o.mapped.0, Expect::Anything)))
}

impl Policy for Wish {
    fn name(&self) -> &'static str {
        "wish"
    }

    fn needs(&self) -> Needs {
        Needs {
            utilization: true,
            contents: true,
            ..Needs::default()
        }
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = Decision::default();
        for process in &seen.processes {
            for o in &process.regions {
                if let Some((kind, benefit, expect)) = (self.0)(o) {
                    decision.actions.push(Action {
                        process: process.id,
                        region: o.region,
                        kind,
                        reason: Reason::Mapped,
                        utilization: None,
                        benefit: BasePages(benefit),
                        expect,
                    });
                }
            }
            let regions = process.regions.iter().map(|o| o.region).collect();
            decision.age.push((process.id, regions));
        }
        decision
    }

    fn set(&mut self, name: &str, _: &str) -> Result<(), ParamError> {
        Err(ParamError::Unknown {
            policy: "wish",
            name: name.to_string(),
            known: String::new(),
        })
    }

    fn params(&self) -> Vec<Param> {
        Vec::new()
    }
}
