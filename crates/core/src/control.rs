//! The control loop over a host: observe, decide, budget, act, verify, journal.
//!
//! ```text
//! observe ──► decide ──► budget ──► act ──► verify ──► journal
//!   Host       Policy     Budget     Host     Host       one line per event
//! ```
//!
//! Once per interval everything is looked at and decided anew. What was decided is then carried out one region at a time,
//! best benefit per cost first, spaced so that the budgets hold, until the next scan is due; what is left over by then is
//! dropped, because the next scan decides on what is true by then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::action::{judge, precheck, Action, Expect, Kind, Outcome};
use crate::ageing::Ageing;
use crate::backoff::BackOff;
use crate::budget::{pause_after, Budget, CpuBucket, MemoryRoom, Pacing};
use crate::host::{Host, HostEvent, Look, Wake, Wants};
use crate::journal::{decide, see, Deferred, Event, Line, SCHEMA};
use crate::observe::{Machine, ProcessId, ProcessView, Snapshot};
use crate::planner::Seen;
use crate::policy::{Decision, Param, Policy};
use crate::stock::{Chosen, Compacted, Order, Stock};
use crate::units::{BasePages, Blocks, Bytes, Time};

/// How to manage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Time between scans.
    pub interval: Duration,
    /// What it may cost.
    pub budget: Budget,
    /// Decide and journal, act on nothing; accessed bits are not cleared either.
    pub dry_run: bool,
    /// Journal also what was seen and every decision, so that the decisions can be replayed.
    pub full_journal: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            budget: Budget::default(),
            dry_run: false,
            full_journal: false,
        }
    }
}

/// Where things stand, for a status line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Processes managed.
    pub processes: usize,
    /// Regions with anything mapped.
    pub regions: u64,
    /// Those that are huge.
    pub huge: u64,
    /// Candidates of the policy.
    pub candidates: u64,
    /// Zero-filled memory seen in huge pages at the last scan.
    pub waste: Bytes,
    /// Scans made.
    pub scans: u64,
    /// Time that the last scan took.
    pub scan_took: Duration,
    /// Promotions done.
    pub promoted: u64,
    /// Demotions done.
    pub demoted: u64,
    /// Actions that did not come to be.
    pub failed: u64,
    /// Decisions that wait.
    pub waiting: u64,
    /// Memory given back.
    pub returned: Bytes,
    /// Time for which programs may have been held up.
    pub stall: Duration,
    /// Processor time that managing took.
    pub cpu: Duration,
    /// Time since the start.
    pub elapsed: Duration,
    /// Free blocks as of the last look; none without a stock.
    pub stock: Option<Blocks>,
    /// Compactions made for the stock.
    pub compactions: u64,
    /// Free blocks that they gained.
    pub made: Blocks,
    /// Processor time that they took; part of `cpu`.
    pub compaction_cpu: Duration,
    /// Of blocks that were chosen for it, how many came to what.
    pub chosen: BTreeMap<&'static str, u64>,
}

/// Who is told what happens.
pub trait Observer {
    /// An event, as it happens.
    fn event(&mut self, line: &Line);
    /// Where things stand: after each scan and each action.
    fn status(&mut self, _status: &Status) {}
}

/// Part of the processor budget that looking at contents may take.
const CONTENTS_PART: u32 = 2;
/// Part of the processor budget that scanning may take; where scans cost more, they are made less often.
const SCAN_PART: u32 = 2;
/// Part of the processor budget that keeping the stock may take.
const STOCK_PART: u32 = 2;

/// Intervals' worth of promotions that may wait while accessed bits are still cleared for more of them: as long as a region needs to qualify
/// for MEGA.
const BACKLOG: u32 = 5;

/// How the loop's own notice begins, which says that scans are dear; all others are the host's.
pub(crate) const STRETCHED: &str = "a scan with its clearing of accessed bits takes";

/// Decisions that wait: how many of which kind in which process, and for what.
type Waiting = BTreeMap<(u32, Kind, Deferred), u64>;

fn put_off(waiting: &mut Waiting, action: &Action, why: Deferred) {
    *waiting.entry((action.process.pid, action.kind, why)).or_default() += 1;
}

/// Lets processes take turns among actions that are worth the same, so that scarce memory goes to all of them.
fn take_turns(actions: &mut [Action], worth: impl Fn(&Action) -> f64) {
    for equals in actions.chunk_by_mut(|a, b| worth(a) == worth(b)) {
        let mut turns: BTreeMap<ProcessId, usize> = BTreeMap::new();
        let mut order: Vec<_> = equals
            .iter()
            .map(|action| {
                let turn = turns.entry(action.process).or_default();
                *turn += 1;
                (*turn, *action)
            })
            .collect();
        order.sort_by_key(|(turn, action)| (*turn, action.process));
        for (place, (_, action)) in equals.iter_mut().zip(order) {
            *place = action;
        }
    }
}

/// The loop: a policy, a host, and what has to be remembered between scans.
pub struct Control<'a, H> {
    host: &'a mut H,
    policy: &'a mut dyn Policy,
    settings: Settings,
    observer: &'a mut dyn Observer,
    back_off: BackOff,
    pacing: Pacing,
    ageing: Ageing,
    cpu: CpuBucket,
    started: Time,
    status: Status,
    stretched: bool,
    stock: Option<Stock>,
    /// Moving averages of what an action takes.
    costs: BTreeMap<Kind, Duration>,
}

impl<'a, H: Host> Control<'a, H> {
    /// A loop that has done nothing yet.
    pub fn new(
        host: &'a mut H,
        policy: &'a mut dyn Policy,
        settings: Settings,
        observer: &'a mut dyn Observer,
    ) -> Self {
        let (now, spent) = (host.now(), host.cpu_time());
        Self {
            back_off: BackOff::new(settings.interval),
            pacing: Pacing::default(),
            ageing: Ageing::new(host.touch_cost(), settings.interval, settings.budget.stall),
            cpu: CpuBucket::new(settings.budget.cpu, settings.interval, now, spent),
            started: now,
            status: Status::default(),
            stretched: false,
            stock: None,
            // Measured on a quiet machine (FACTS); replaced by what is measured here.
            costs: BTreeMap::from([
                (Kind::Promote, Duration::from_micros(430)),
                (Kind::Demote, Duration::from_micros(350)),
            ]),
            host,
            policy,
            settings,
            observer,
        }
    }

    /// Keeps this stock of free blocks as well.
    pub fn with_stock(mut self, stock: Option<Stock>) -> Self {
        self.stock = stock;
        self
    }

    /// Manages until the host says that it is over.
    pub fn run(mut self) -> Status {
        self.say_start();
        loop {
            let tick = self.host.now();
            let snapshot = self.observe();
            let decision = self.policy.decide(&snapshot);
            self.status.candidates = decision.candidates as u64;
            let decided = self.host.now();
            let took = decided.since(tick);
            self.status.scan_took = took;
            self.status.scans += 1;
            let scanned = Event::Scanned {
                processes: snapshot.processes.len() as u64,
                candidates: decision.candidates as u64,
                took_ns: nanos(took),
                cpu_ns: nanos(self.host.cpu_time().saturating_sub(self.status.cpu)),
            };
            self.say_at(decided, scanned);
            self.age(&snapshot, &decision);
            let next = self.next_scan(tick);
            // Ahead of promotions: what is short now is made while they are carried out.
            self.keep_stock(&snapshot.machine, &decision);
            let room = self.room_in(next.since(decided));
            let queues = self.admit(&snapshot, decision, room);
            self.tell_status();
            if self.carry_out(queues, next) == Wake::Stop || self.host.wait(next) == Wake::Stop {
                break;
            }
        }
        self.say_events();
        self.say_stop();
        self.status
    }

    fn say(&mut self, event: Event) {
        self.say_at(self.host.now(), event);
    }

    /// Where the loop reckons with a moment, the journal has that very moment: a replay of it then reckons the same.
    fn say_at(&mut self, at: Time, event: Event) {
        let line = Line {
            at: Time(at.0.saturating_sub(self.started.0)),
            event,
        };
        self.observer.event(&line);
    }

    fn say_start(&mut self) {
        let changed = |params: Vec<Param>| {
            let changed = params.into_iter().filter(|param| param.value != param.default);
            let settings: Vec<_> = changed.map(|param| format!("{}={}", param.name, param.value)).collect();
            settings.join(",")
        };
        let compact = self.stock.as_ref().map(|stock| {
            let (name, params) = (stock.planner().name(), changed(stock.planner().params()));
            let colon = if params.is_empty() { "" } else { ":" };
            format!("{name}{colon}{params}")
        });
        self.say(Event::Start {
            schema: SCHEMA,
            clock_ns: self.started.0,
            policy: self.policy.name().to_string(),
            params: changed(self.policy.params()),
            interval_ns: nanos(self.settings.interval),
            stall_budget_ppm: self.settings.budget.stall.as_millionths(),
            cpu_budget_ppm: self.settings.budget.cpu.as_millionths(),
            free_memory_ppm: self.settings.budget.free_memory.as_millionths(),
            free_blocks: self.settings.budget.free_blocks.0,
            pressure_ppm: self.settings.budget.pressure.as_millionths(),
            dry_run: self.settings.dry_run,
            compact,
            touch_ns: Some(nanos(self.host.touch_cost())).filter(|ns| *ns > 0),
        });
    }

    fn say_stop(&mut self) {
        self.account();
        let s = &self.status;
        self.say(Event::Stop {
            scans: s.scans,
            promoted: s.promoted,
            demoted: s.demoted,
            failed: s.failed,
            returned_bytes: s.returned.0,
            stall_ns: nanos(s.stall),
            cpu_ns: nanos(s.cpu),
        });
    }

    /// Journals what happened on the host; returns the processes that are no more.
    fn say_events(&mut self) -> Vec<ProcessId> {
        let mut gone = Vec::new();
        for event in self.host.events() {
            if let HostEvent::Gone(id) = event {
                gone.push(id);
            }
            let event = match event {
                HostEvent::Found(id, name) => Event::Found {
                    pid: id.pid,
                    started: id.started,
                    name,
                },
                HostEvent::Gone(id) => Event::Gone { pid: id.pid },
                HostEvent::Refused(pid, why) => Event::Refused { pid, why },
                HostEvent::Notice(text) => Event::Notice { text },
                HostEvent::Compacted(done) => self.note_compacted(&done),
            };
            self.say(event);
        }
        gone
    }

    /// Brings the processor budget up to date; returns the moment.
    fn account(&mut self) -> Time {
        let (now, spent) = (self.host.now(), self.host.cpu_time());
        self.cpu.note(now, spent);
        self.status.cpu = spent;
        self.status.elapsed = now.since(self.started);
        now
    }

    fn tell_status(&mut self) {
        self.account();
        self.observer.status(&self.status);
    }

    fn observe(&mut self) -> Snapshot {
        self.account();
        let needs = self.policy.needs();
        let wants = Wants {
            utilization: needs.utilization,
            contents: needs.contents,
            contents_cpu: self.settings.interval.mul_f64(self.settings.budget.cpu.fraction()) / CONTENTS_PART,
        };
        let mut snapshot = self.host.observe(&wants);
        // Page tables are read without a lock: what cannot be is left out rather than believed.
        for process in &mut snapshot.processes {
            process.regions.retain_mut(|seen| {
                if seen.raced && !seen.is_sane() {
                    *seen = seen.without_counts();
                }
                seen.is_sane()
            });
        }
        self.say_events();
        let alive: BTreeSet<_> = snapshot.processes.iter().map(|process| process.id).collect();
        self.back_off.sweep(snapshot.at, |id| alive.contains(&id));
        self.pacing.keep(|id| alive.contains(&id));
        self.ageing.keep(|id| alive.contains(&id));
        self.journal_snapshot(&snapshot);
        snapshot
    }

    fn journal_snapshot(&mut self, snapshot: &Snapshot) {
        if self.settings.full_journal {
            let machine = &snapshot.machine;
            self.say(Event::Machine {
                seen_ns: nanos(snapshot.at.since(self.started)),
                available_bytes: machine.available_bytes.0,
                total_bytes: machine.total_bytes.0,
                free_blocks: machine.free_blocks.0,
                pressure_ppm: machine.pressure.map(|p| p.as_millionths()),
            });
        }
        let (mut regions, mut huge, mut waste) = (0, 0, 0);
        for process in &snapshot.processes {
            if self.settings.full_journal {
                self.journal_regions(process);
            }
            let pages =
                |f: fn(&crate::observe::Observation) -> u32| process.regions.iter().map(|o| u64::from(f(o))).sum();
            let scan = Event::Scan {
                pid: process.id.pid,
                regions: process.regions.len() as u64,
                huge: process.regions.iter().filter(|o| o.huge).count() as u64,
                mapped_pages: pages(|o| o.mapped.0),
                accessed_pages: pages(|o| o.accessed.0),
                waste_pages: pages(|o| if o.huge { o.zero.unwrap_or_default().0 } else { 0 }),
                inspected: process.regions.iter().filter(|o| o.huge && o.zero.is_some()).count() as u64,
            };
            if let Event::Scan {
                regions: r,
                huge: h,
                waste_pages: w,
                ..
            } = scan
            {
                regions += r;
                huge += h;
                waste += w;
            }
            self.say(scan);
        }
        self.status.processes = snapshot.processes.len();
        self.status.regions = regions;
        self.status.huge = huge;
        self.status.waste = Bytes(waste * BasePages(1).bytes().0);
    }

    fn journal_regions(&mut self, process: &ProcessView) {
        let mut rest = process.regions.as_slice();
        while let Some(first) = rest.first() {
            let alike = rest
                .iter()
                .enumerate()
                .take_while(|(i, o)| {
                    let mut moved = **o;
                    moved.region = first.region;
                    moved == *first && o.region.0 == first.region.0 + *i as u64
                })
                .count();
            self.say(see(process.id.pid, process.id.started, first, alike as u64));
            rest = &rest[alike..];
        }
    }

    /// When the next scan is due: after the interval, or later where looking and clearing accessed bits (which costs thirty times as
    /// much per base page) would take more than their part of the budget.
    fn next_scan(&mut self, tick: Time) -> Time {
        let cpu = self.host.cpu_time().saturating_sub(self.status.cpu);
        let share = self.settings.budget.cpu.fraction() / f64::from(SCAN_PART);
        let least = Duration::try_from_secs_f64(cpu.as_secs_f64() / share.max(1e-6)).unwrap_or(self.settings.interval);
        if least > self.settings.interval.mul_f64(1.5) && !self.stretched {
            self.stretched = true;
            let text = format!(
                "{STRETCHED} {} of processor time: scanning every {} instead of every {} to stay within the budget",
                crate::units::show_duration(cpu),
                crate::units::show_duration(least),
                crate::units::show_duration(self.settings.interval),
            );
            self.say(Event::Notice { text });
        }
        tick.after(self.settings.interval.max(least))
    }

    /// Has blocks made if free ones are short. Waits for nothing.
    fn keep_stock(&mut self, machine: &Machine, decision: &Decision) {
        let Some(mut stock) = self.stock.take() else { return };
        self.status.stock = Some(machine.free_blocks);
        let now = self.host.now();
        if now >= stock.due() {
            if let Some(seen) = self.host.contiguity() {
                let promotions = decision.actions.iter().filter(|action| {
                    action.kind == Kind::Promote && self.back_off.holds(action, now) != Some(Deferred::Flapping)
                });
                let asked = stock.asked(self.status.promoted, promotions.count() as u64, seen.huge_faults);
                let pass = stock.pass(
                    now,
                    &Seen {
                        blocks: &[],
                        zones: &seen.zones,
                        total: machine.total_bytes,
                        asked,
                    },
                );
                if pass.wanted > Blocks(0) {
                    let order = Order {
                        blocks: pass.wanted,
                        time: stock.planner().interval().mul_f64(self.settings.budget.cpu.fraction()) / STOCK_PART,
                    };
                    let why = self.order(&order, pass.held, machine);
                    self.say(Event::Stock {
                        asked_blocks: pass.asked.0,
                        free_blocks: machine.free_blocks.0,
                        wanted_blocks: pass.wanted.0,
                        why,
                    });
                }
            }
        }
        self.stock = Some(stock);
    }

    /// Orders it, or says why not now.
    fn order(&mut self, order: &Order, held: bool, machine: &Machine) -> Option<Deferred> {
        if self.settings.dry_run {
            Some(Deferred::DryRun)
        } else if held {
            Some(Deferred::BackOff)
        } else if self.settings.budget.under_pressure(machine) {
            Some(Deferred::Pressure)
        } else if self.cpu.free_from() > self.host.now() {
            Some(Deferred::Budget)
        } else {
            (!self.host.compact(order)).then_some(Deferred::Busy)
        }
    }

    fn note_compacted(&mut self, done: &Compacted) -> Event {
        let now = self.host.now();
        if let Some(stock) = &mut self.stock {
            stock.note(now, done);
            self.status.stock = Some(done.after);
        }
        self.status.compactions += 1;
        self.status.made.0 += done.gained().0;
        self.status.compaction_cpu += done.cpu;
        for (word, n) in done.chosen.iter().flat_map(|chosen| &chosen.outcomes) {
            *self.status.chosen.entry(word).or_default() += n;
        }
        Event::Compacted {
            way: done.way.to_string(),
            asked_blocks: done.asked.0,
            before_blocks: done.before.0,
            after_blocks: done.after.0,
            on_lists_blocks: done.on_lists.0,
            ended: done.ended,
            moved_pages: done.moved_pages,
            took_ns: nanos(done.took),
            cpu_ns: nanos(done.cpu),
            outcomes: done.chosen.as_ref().map(Chosen::to_text),
            seen_free_blocks: done.chosen.as_ref().map(|chosen| chosen.seen_free.0),
        }
    }

    fn age(&mut self, snapshot: &Snapshot, decision: &Decision) {
        // Cleared bits make pages look cold to reclaim: not while reclaim is at work.
        let under_pressure = self.settings.budget.under_pressure(&snapshot.machine);
        if self.settings.dry_run || under_pressure || !self.policy.needs().utilization {
            return;
        }
        for (id, asked) in &decision.age {
            let Some(process) = snapshot.processes.iter().find(|process| process.id == *id) else {
                continue;
            };
            if asked.is_empty() {
                continue;
            }
            let is_behind = self.is_behind(*id, decision);
            let chosen = self.ageing.choose(process, asked, is_behind);
            let aged = self.host.age(*id, &chosen.regions);
            let now = self.host.now();
            if chosen.stall > Duration::ZERO {
                self.status.stall += chosen.stall;
                // The program pays as it touches its pages; actions wait as if it had paid at once.
                self.pacing
                    .note(*id, now.after(chosen.stall), chosen.stall, self.settings.budget.stall);
            }
            let age = Event::Age {
                pid: id.pid,
                regions: aged.regions as u64,
                refused: aged.refused as u64,
                later: chosen.later as u64,
                stall_ns: nanos(chosen.stall),
                took_ns: nanos(aged.took),
            };
            self.say_at(now, age);
        }
    }

    /// Whether what was and is to be done with a process takes the next [`BACKLOG`] intervals, as far as stall goes: then there is no sense
    /// in looking for more to do.
    fn is_behind(&self, process: ProcessId, decision: &Decision) -> bool {
        let now = self.host.now();
        let promotes = |action: &&Action| action.process == process && action.kind == Kind::Promote;
        let open = decision.actions.iter().filter(promotes);
        let open = open.filter(|action| self.back_off.holds(action, now).is_none()).count();
        let cost = self.costs.get(&Kind::Promote).copied().unwrap_or_default();
        let work = cost.saturating_mul(u32::try_from(open).unwrap_or(u32::MAX));
        let from = now.max(self.pacing.free_from(process));
        from.after(work + pause_after(work, self.settings.budget.stall)) > now.after(self.settings.interval * BACKLOG)
    }

    /// What there is room for until the next scan, by process, best last; `room` actions on each at most. The rest is said to wait.
    fn admit(&mut self, snapshot: &Snapshot, decision: Decision, room: usize) -> BTreeMap<ProcessId, Vec<Action>> {
        let mut actions = decision.actions;
        let worth = |action: &Action| {
            let cost = self.costs.get(&action.kind).map_or(1e-4, Duration::as_secs_f64);
            f64::from(action.benefit.0) / cost.max(1e-6)
        };
        actions.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.region.cmp(&b.region)));
        take_turns(&mut actions, worth);
        let mut memory = MemoryRoom::new(&self.settings.budget, &snapshot.machine);
        let mut queues: BTreeMap<ProcessId, Vec<Action>> = BTreeMap::new();
        let mut waiting = Waiting::new();
        for action in actions {
            let queue = queues.entry(action.process).or_default();
            let why = if self.settings.dry_run {
                Some(Deferred::DryRun)
            } else if let Some(why) = self.back_off.holds(&action, snapshot.at) {
                Some(why)
            } else if queue.len() >= room {
                Some(Deferred::Budget)
            } else {
                memory.take(&action).err()
            };
            match why {
                Some(why) => put_off(&mut waiting, &action, why),
                None => queue.push(action),
            }
            if why.is_none() || self.settings.dry_run || self.settings.full_journal {
                self.say(decide(&action));
            }
        }
        self.status.waiting = 0;
        self.say_waiting(waiting);
        for queue in queues.values_mut() {
            queue.reverse();
        }
        queues
    }

    fn say_waiting(&mut self, waiting: Waiting) {
        for ((pid, action, why), regions) in waiting {
            self.status.waiting += regions;
            self.say(Event::Defer {
                pid,
                action,
                why,
                regions,
            });
        }
    }

    /// How many actions on one process can fit into the time before the next scan at the very best; bounds the queue.
    fn room_in(&self, time: Duration) -> usize {
        let cheapest = self
            .costs
            .values()
            .min()
            .copied()
            .unwrap_or_default()
            .max(Duration::from_micros(20))
            / 4;
        let stall = time.as_secs_f64() * self.settings.budget.stall.fraction();
        (stall / cheapest.as_secs_f64()).ceil().max(1.0) as usize
    }

    /// Acts until the queues are empty or the next scan is due. What was decided and not reached is said to wait.
    fn carry_out(&mut self, mut queues: BTreeMap<ProcessId, Vec<Action>>, next: Time) -> Wake {
        let mut waiting = Waiting::new();
        loop {
            queues.retain(|_, queue| !queue.is_empty());
            // The process that was held up least lately goes first, so that processes share the time.
            let Some((ready, id)) = queues.keys().map(|id| (self.pacing.free_from(*id), *id)).min() else {
                break;
            };
            let ready = ready.max(self.cpu.free_from());
            if ready >= next {
                for action in queues.values().flatten() {
                    put_off(&mut waiting, action, Deferred::Budget);
                }
                break;
            }
            if self.host.wait(ready) == Wake::Stop {
                return Wake::Stop;
            }
            let Some(action) = queues.get_mut(&id).and_then(Vec::pop) else {
                continue;
            };
            if action.kind == Kind::Promote && !self.in_stock() {
                // A collapse would have to compact by itself, and the program would wait for it. All other promotions wait, too.
                put_off(&mut waiting, &action, Deferred::FreeBlocks);
                for queue in queues.values_mut() {
                    queue.retain(|other| {
                        let promotes = other.kind == Kind::Promote;
                        if promotes {
                            put_off(&mut waiting, other, Deferred::FreeBlocks);
                        }
                        !promotes
                    });
                }
                continue;
            }
            match (self.carry_out_one(&action), action.kind) {
                // The next one would find none either. Of other processes one may: their memory groups may have room.
                (Outcome::NoMemory, Kind::Promote) => {
                    if let Some(queue) = queues.get_mut(&id) {
                        queue.retain(|other| {
                            let hopeless = other.kind == Kind::Promote;
                            if hopeless {
                                put_off(&mut waiting, other, Deferred::NoMemory);
                            }
                            !hopeless
                        });
                    }
                }
                // The mapping, or the whole process; the host knows which.
                (Outcome::Gone, _) => {
                    for id in self.say_events() {
                        queues.remove(&id);
                    }
                }
                _ => {}
            }
        }
        self.say_waiting(waiting);
        self.observer.status(&self.status);
        Wake::Time
    }

    /// A block can be had without compaction, as of now.
    fn in_stock(&mut self) -> bool {
        let free = self.host.free_blocks();
        free.is_none_or(|free| free > self.settings.budget.free_blocks)
    }

    fn carry_out_one(&mut self, action: &Action) -> Outcome {
        let how = match action.expect {
            Expect::Zero(_) => Look::Contents,
            Expect::Anything | Expect::Populated(_) => Look::Tables,
        };
        let before = self.host.look(action.process, action.region, how);
        let (outcome, took, returned) = match precheck(action, before.as_ref()) {
            Some(outcome) => (outcome, Duration::ZERO, BasePages::ZERO),
            None => {
                let call = self.host.act(action);
                let after = self.host.look(action.process, action.region, Look::Tables);
                let outcome = judge(action, &call, after.as_ref());
                let returned = match (outcome, action.kind, before, after) {
                    (Outcome::Done, Kind::Demote, Some(before), Some(after)) => before.mapped.less(after.populated()),
                    _ => BasePages::ZERO,
                };
                (outcome, call.took, returned)
            }
        };
        let now = self.account();
        if took > Duration::ZERO {
            self.pacing.note(action.process, now, took, self.settings.budget.stall);
        }
        self.back_off.note(action, outcome, now);
        self.status.stall += took;
        match (outcome, action.kind) {
            (Outcome::Done, Kind::Promote) => self.status.promoted += 1,
            (Outcome::Done, Kind::Demote) => self.status.demoted += 1,
            _ => self.status.failed += 1,
        }
        self.status.returned.0 += returned.bytes().0;
        if outcome == Outcome::Done {
            if let Some(cost) = self.costs.get_mut(&action.kind) {
                *cost = (*cost * 7 + took) / 8;
            }
        }
        let said = Event::Outcome {
            pid: action.process.pid,
            region: action.region,
            action: action.kind,
            outcome,
            took_ns: nanos(took),
            returned_pages: returned.0,
            cpu_ns: nanos(self.status.cpu),
        };
        self.say_at(now, said);
        self.observer.status(&self.status);
        outcome
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
