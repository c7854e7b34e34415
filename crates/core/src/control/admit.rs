//! Admission: which decisions fit into the budgets until the next scan, and in which order.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Control;
use crate::action::{Action, ActionKind, Deferred};
use crate::budget::{credit, MemoryRoom};
use crate::host::Host;
use crate::journal::decide;
use crate::observe::{ProcessId, Snapshot};
use crate::policy::Decision;
use crate::units::Time;

/// Divisor: the part of a call's usual duration for which it may stall a program, at least.
const CHEAPEST_PART: u32 = 64;

/// Deferred decisions: number of regions by PID, action and reason.
pub(super) type Waiting = BTreeMap<(u32, ActionKind, Deferred), u64>;

pub(super) fn put_off(waiting: &mut Waiting, action: &Action, why: Deferred) {
    *waiting.entry((action.process.pid, action.kind, why)).or_default() += 1;
}

/// Interleaves processes among actions of equal worth, so that scarce memory goes to all of them.
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
    /// The actions that fit until the next scan, by process, best last; at most `room` per process. The others are journalled as deferred.
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
        let memory = MemoryRoom::new(&self.settings.budget, &snapshot.machine, self.groups.clone());
        let mut memory = memory.clear_of_limits(self.policy.needs().clear_of_limits);
        let mut queues: BTreeMap<ProcessId, Vec<Action>> = BTreeMap::new();
        let mut waiting = Waiting::new();
        for action in actions {
            let queue = queues.entry(action.process).or_default();
            let why = if self.settings.dry_run {
                Some(Deferred::DryRun)
            } else if let Some(why) = self.back_off.holds(&action, snapshot.at) {
                Some(why)
            } else if action.kind == ActionKind::Promote && self.group_holds(action.process, snapshot.at) {
                Some(Deferred::BackOff)
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

    /// Whether a promotion found no memory in a control group of this process not long ago.
    pub(super) fn group_holds(&self, process: ProcessId, now: Time) -> bool {
        self.groups
            .above(process)
            .any(|group| self.back_off.holds_group(group.id, now))
    }

    /// An upper bound on the actions on one process before the next scan; bounds the queue.
    pub(super) fn room_in(&self, time: Duration) -> usize {
        let cheapest = self
            .costs
            .values()
            .min()
            .copied()
            .unwrap_or_default()
            .max(Duration::from_micros(20))
            / CHEAPEST_PART;
        let budget = self.settings.budget.stall;
        let stall = time.as_secs_f64() * budget.fraction() + credit(budget).as_secs_f64();
        (stall / cheapest.as_secs_f64()).ceil().max(1.0) as usize
    }
}
