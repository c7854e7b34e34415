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

mod queue;
mod say;
mod stock;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::action::{Action, Kind};
use crate::ageing::Ageing;
use crate::backoff::BackOff;
use crate::budget::{pause_after, Budget, CpuBucket, Pacing};
use crate::host::{Host, Wake, Wants};
use crate::journal::{Event, Line};
use crate::observe::{ProcessId, Snapshot};
use crate::policy::{Decision, Policy};
use crate::stock::Stock;
use crate::units::{Blocks, Bytes, Time};

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

/// Intervals' worth of promotions that may wait while accessed bits are still cleared for more of them: as long as a region needs to qualify
/// for MEGA.
const BACKLOG: u32 = 5;

/// How the loop's own notice begins, which says that scans are dear; all others are the host's.
pub(crate) const STRETCHED: &str = "a scan with its clearing of accessed bits takes";

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

    /// Brings the processor budget up to date; returns the moment.
    fn account(&mut self) -> Time {
        let (now, spent) = (self.host.now(), self.host.cpu_time());
        self.cpu.note(now, spent);
        self.status.cpu = spent;
        self.status.elapsed = now.since(self.started);
        now
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
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
