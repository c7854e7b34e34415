//! From decisions to actions: which there is room for, in which order and how far apart, and what came of each.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{nanos, Control};
use crate::action::{judge, precheck, Action, Expect, Kind, Outcome};
use crate::budget::MemoryRoom;
use crate::host::{Host, Look, Wake};
use crate::journal::{decide, Deferred, Event};
use crate::observe::{ProcessId, Snapshot};
use crate::policy::Decision;
use crate::units::{BasePages, Time};

/// Decisions that wait: how many of which kind in which process, and for what.
pub(super) type Waiting = BTreeMap<(u32, Kind, Deferred), u64>;

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

impl<H: Host> Control<'_, H> {
    /// What there is room for until the next scan, by process, best last; `room` actions on each at most. The rest is said to wait.
    pub(super) fn admit(
        &mut self,
        snapshot: &Snapshot,
        decision: Decision,
        room: usize,
    ) -> BTreeMap<ProcessId, Vec<Action>> {
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

    /// How many actions on one process can fit into the time before the next scan at the very best; bounds the queue.
    pub(super) fn room_in(&self, time: Duration) -> usize {
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
    pub(super) fn carry_out(&mut self, mut queues: BTreeMap<ProcessId, Vec<Action>>, next: Time) -> Wake {
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
