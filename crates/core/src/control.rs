//! The control loop over a host: observe, decide, budget, act, verify, journal.
//!
//! ```text
//! observe ──► decide ──► budget ──► act ──► verify ──► journal
//!   Host       Policy     Budget     Host     Host       one line per event
//! ```
//!
//! Once per interval the loop observes everything and decides anew. It then carries the decisions out one region at a time, best benefit per
//! cost first, spaced so that the budgets hold, until the next scan is due. What is left over by then is dropped: the next scan decides
//! on the state of that moment.

mod act;
mod admit;
mod compaction;
mod events;
mod others;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::action::ActionKind;
use crate::ageing::turns::Ageing;
use crate::backoff::BackOff;
use crate::budget::{pause_after, Budget, CpuBucket, Pacing};
use crate::compaction::target::FreeBlockTarget;
use crate::host::{Host, Wake, Wants};
use crate::journal::{Event, Line};
use crate::observe::groups::MemoryGroups;
use crate::observe::{ProcessId, ProcessView, Snapshot};
use crate::policy::{Decision, Policy};
use crate::units::{Blocks, Bytes, Time};

use others::Others;

/// Settings of the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Time between scans.
    pub interval: Duration,
    /// Limits on stall, processor time and memory.
    pub budget: Budget,
    /// Log decisions only: no actions, no clearing of accessed bits.
    pub dry_run: bool,
    /// Also journal every observation and decision, so that the decisions can be replayed.
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

/// The state of the loop, for a status line. Counts and sums are since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Processes managed.
    pub processes: usize,
    /// Managed processes that the last scan could not read; the reason is reported once per process and kind of error.
    pub unscanned: u64,
    /// Regions with anything mapped.
    pub regions: u64,
    /// Those mapped by a huge page.
    pub huge: u64,
    /// Candidates of the policy at the last scan.
    pub candidates: u64,
    /// Zero-filled memory found in huge pages at the last scan.
    pub waste: Bytes,
    /// Scans made.
    pub scans: u64,
    /// Duration of the last scan.
    pub scan_took: Duration,
    /// Promotions done.
    pub promoted: u64,
    /// Demotions done.
    pub demoted: u64,
    /// Actions that were tried and not done.
    pub failed: u64,
    /// Decisions deferred at the last scan.
    pub waiting: u64,
    /// Regions that others have collapsed: khugepaged, the programs, agents in them.
    pub by_others: u64,
    /// Memory given back to the system.
    pub returned: Bytes,
    /// Time for which programs may have been stalled, summed over processes.
    pub stall: Duration,
    /// Processor time spent on managing.
    pub cpu: Duration,
    /// Time since the start.
    pub elapsed: Duration,
    /// Free blocks as of the last look; none without a free-block target.
    pub free_blocks: Option<Blocks>,
    /// Compactions ordered for the free-block target.
    pub compactions: u64,
    /// Free blocks gained by them.
    pub made: Blocks,
    /// Processor time spent on them; part of `cpu`.
    pub compaction_cpu: Duration,
    /// Outcomes of the blocks selected for evacuation, by the actuator's word.
    pub chosen: BTreeMap<&'static str, u64>,
}

/// Receives what happens.
pub trait Observer {
    /// An event, as it happens.
    fn event(&mut self, line: &Line);
    /// The state of the loop: after each scan and each action.
    fn status(&mut self, _status: &Status) {}
}

/// Divisor: the part of the processor budget that reading contents may take.
const CONTENTS_PART: u32 = 2;
/// Divisor: the part of the processor budget that scanning may take; where scans cost more, they become less frequent.
const SCAN_PART: u32 = 2;

/// Intervals' worth of promotions that may be open while accessed bits are still cleared for more of them: as many as a region needs to
/// qualify for MEGA.
const BACKLOG: u32 = 5;

/// Maximum number of intervals between two scans, whatever they cost.
const STRETCH_MAX: u32 = 12;

/// How the loop's own notice begins, which says that scans are expensive; all other notices are the host's.
pub(crate) const STRETCHED: &str = "a scan with its clearing of accessed bits takes";

/// The loop: a policy, a host, and the state between scans.
pub struct Control<'a, H> {
    host: &'a mut H,
    policy: &'a mut dyn Policy,
    settings: Settings,
    observer: &'a mut dyn Observer,
    back_off: BackOff,
    others: Others,
    pacing: Pacing,
    ageing: Ageing,
    cpu: CpuBucket,
    started: Time,
    status: Status,
    stretched: bool,
    target: Option<FreeBlockTarget>,
    /// Blocks that single NUMA nodes lacked, when it last acted, while others had enough.
    lacking_on_nodes: Blocks,
    /// The machine's memory, as of the last scan.
    total: Bytes,
    /// The control groups of the managed processes, as of the last scan.
    groups: MemoryGroups,
    /// Moving averages of the duration of an action.
    costs: BTreeMap<ActionKind, Duration>,
    /// Time to the next scan, as of the last one.
    pace: Duration,
}

impl<'a, H: Host> Control<'a, H> {
    /// A loop that has not run yet.
    pub fn new(
        host: &'a mut H,
        policy: &'a mut dyn Policy,
        settings: Settings,
        observer: &'a mut dyn Observer,
    ) -> Self {
        let (now, spent) = (host.now(), host.cpu_time());
        Self {
            back_off: BackOff::new(settings.interval),
            others: Others::default(),
            pacing: Pacing::default(),
            ageing: Ageing::new(host.touch_cost(), settings.interval, settings.budget.stall),
            cpu: CpuBucket::new(settings.budget.cpu, settings.interval, now, spent),
            started: now,
            status: Status::default(),
            stretched: false,
            target: None,
            lacking_on_nodes: Blocks(0),
            total: Bytes(0),
            groups: MemoryGroups::default(),
            // Measured on a quiet machine (docs/linux.md); replaced by what is measured here.
            costs: BTreeMap::from([
                (ActionKind::Promote, Duration::from_micros(430)),
                (ActionKind::Demote, Duration::from_micros(350)),
            ]),
            pace: settings.interval,
            host,
            policy,
            settings,
            observer,
        }
    }

    /// Also compacts for this free-block target.
    pub fn with_free_block_target(mut self, target: Option<FreeBlockTarget>) -> Self {
        self.target = target;
        self
    }

    /// Manages until the host stops it.
    pub fn run(mut self) -> Status {
        self.say_start();
        loop {
            let tick = self.host.now();
            let Some(snapshot) = self.observe() else { break };
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
            self.pace = decision
                .look_again
                .map_or(self.settings.interval, |soon| soon.min(self.settings.interval));
            let watch_growth = decision.watch_growth;
            let next = self.next_scan(tick);
            // Before promotions: compaction then runs while they are carried out.
            self.keep_free_blocks(&snapshot.machine, &decision);
            let room = self.room_in(next.since(decided));
            let queues = self.admit(&snapshot, decision, room);
            self.tell_status();
            if self.carry_out(queues, next) == Wake::Stop {
                break;
            }
            let woken = match watch_growth {
                true => self.host.wait_for_growth(next),
                false => self.host.wait(next),
            };
            if woken == Wake::Stop {
                break;
            }
        }
        self.say_events();
        self.say_stop();
        self.status
    }

    /// Brings the processor budget up to date; returns the time.
    fn account(&mut self) -> Time {
        let (now, spent) = (self.host.now(), self.host.cpu_time());
        self.cpu.note(now, spent);
        self.status.cpu = spent;
        self.status.elapsed = now.since(self.started);
        now
    }

    /// What there is now; `None` when it is time to stop: such a look may be incomplete, so nothing is decided on it.
    fn observe(&mut self) -> Option<Snapshot> {
        self.account();
        let needs = self.policy.needs();
        let wants = Wants {
            utilization: needs.utilization,
            contents: needs.contents,
            contents_cpu: self.pace.mul_f64(self.settings.budget.cpu.fraction()) / CONTENTS_PART,
        };
        let mut snapshot = self.host.observe(&wants);
        self.status.unscanned = self.host.unscanned();
        self.groups = self.host.memory_groups();
        self.total = snapshot.machine.total_bytes;
        if self.host.is_stopped() {
            return None;
        }
        // Page tables are read without a lock: inconsistent observations are dropped.
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
        self.others.keep(|id| alive.contains(&id));
        self.pacing.keep(|id| alive.contains(&id));
        self.ageing.keep(|id| alive.contains(&id));
        self.journal_snapshot(&snapshot);
        Some(snapshot)
    }

    /// When the next scan is due: after the interval (or sooner, where the policy asks for it), or later where scanning and clearing accessed bits (which costs thirty times as much per
    /// base page) would exceed their part of the budget; but never later than [`STRETCH_MAX`] intervals, so that a user who starts thousands
    /// of processes cannot stop scanning for minutes.
    fn next_scan(&mut self, tick: Time) -> Time {
        let cpu = self.host.cpu_time().saturating_sub(self.status.cpu);
        let share = self.settings.budget.cpu.fraction() / f64::from(SCAN_PART);
        let longest = self.settings.interval.saturating_mul(STRETCH_MAX);
        let least = Duration::try_from_secs_f64(cpu.as_secs_f64() / share.max(1e-6)).unwrap_or(longest);
        let least = least.min(longest);
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
        tick.after(self.pace.max(least))
    }

    fn age(&mut self, snapshot: &Snapshot, decision: &Decision) {
        // Cleared bits make pages look cold to reclaim: do not clear them while reclaim is at work.
        let under_pressure = self.settings.budget.under_pressure(&snapshot.machine);
        if self.settings.dry_run || under_pressure || !self.policy.needs().utilization {
            return;
        }
        let processes: BTreeMap<ProcessId, &ProcessView> = snapshot.processes.iter().map(|p| (p.id, p)).collect();
        let open = self.open_promotions(decision);
        for (id, asked) in &decision.age {
            let Some(process) = processes.get(id) else { continue };
            // MADV_COLD moves pages to where reclaim looks first: not while a group reclaims.
            let reclaims = self.settings.budget.group_under_pressure(&self.groups, *id)
                || self.groups.above(*id).any(|group| group.room == Some(Bytes(0)));
            if asked.is_empty() || reclaims {
                continue;
            }
            if self.host.is_stopped() {
                return;
            }
            let is_behind = self.is_behind(*id, open.get(id).copied().unwrap_or(0));
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

    /// Number of promotions by process that are not backing off.
    fn open_promotions(&self, decision: &Decision) -> BTreeMap<ProcessId, u32> {
        let now = self.host.now();
        let mut open: BTreeMap<ProcessId, u32> = BTreeMap::new();
        for action in &decision.actions {
            if action.kind == ActionKind::Promote && self.back_off.holds(action, now).is_none() {
                *open.entry(action.process).or_default() += 1;
            }
        }
        open
    }

    /// Whether the `open` promotions of a process, with the actions already done, fill the stall budget of the next [`BACKLOG`] intervals:
    /// then there is no point in looking for more.
    fn is_behind(&self, process: ProcessId, open: u32) -> bool {
        let now = self.host.now();
        let cost = self.costs.get(&ActionKind::Promote).copied().unwrap_or_default();
        let work = cost.saturating_mul(open);
        let from = now.max(self.pacing.free_from(process, self.settings.budget.stall));
        from.after(work + pause_after(work, self.settings.budget.stall)) > now.after(self.settings.interval * BACKLOG)
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
