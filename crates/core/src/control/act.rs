//! Acting: one action at a time, spaced by how long the last one took, each between two looks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::admit::{put_off, Waiting};
use super::{nanos, Control};
use crate::action::{judge, precheck, Action, ActionKind, Deferred, Expect, Outcome};
use crate::host::{Host, Look, Wake};
use crate::journal::Event;
use crate::observe::ProcessId;
use crate::units::{BasePages, Blocks, Time};

impl<H: Host> Control<'_, H> {
    /// Acts until the queues are empty or the next scan is due. Decisions not reached are journalled as deferred.
    pub(super) fn carry_out(&mut self, mut queues: BTreeMap<ProcessId, Vec<Action>>, next: Time) -> Wake {
        let mut waiting = Waiting::new();
        let mut lacking: u64 = 0;
        let mut below_floor: u64 = 0;
        // The process stalled least recently goes first, so that processes share the time. Only an action moves its process's turn.
        let mut turns: BinaryHeap<Reverse<(Time, ProcessId)>> = queues
            .keys()
            .map(|id| Reverse((self.pacing.earned_at(*id), *id)))
            .collect();
        while let Some(Reverse((turn, id))) = turns.pop() {
            if queues.get(&id).is_none_or(Vec::is_empty) {
                continue;
            }
            let free_from = self.pacing.free_from(id, self.settings.budget.stall);
            let ready = free_from.max(self.cpu.free_from());
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
            if action.kind == ActionKind::Promote && !self.has_free_block() {
                // The collapse would use direct compaction, and the program would wait for it. Defer all other promotions too.
                put_off(&mut waiting, &action, Deferred::FreeBlocks);
                for queue in queues.values_mut() {
                    queue.retain(|other| {
                        let promotes = other.kind == ActionKind::Promote;
                        if promotes {
                            put_off(&mut waiting, other, Deferred::FreeBlocks);
                        }
                        !promotes
                    });
                }
                turns.push(Reverse((turn, id)));
                continue;
            }
            // Another node's memory does not help: this one waits alone.
            if let Some((why, short)) = self.node_holds(&action) {
                if why == Deferred::FreeBlocks {
                    lacking += 1;
                    below_floor = below_floor.max(short.0);
                }
                put_off(&mut waiting, &action, why);
                turns.push(Reverse((turn, id)));
                continue;
            }
            match (self.carry_out_one(&action), action.kind) {
                // The next one would find none either, and in a control group without room none of its other processes.
                (Outcome::NoMemory, ActionKind::Promote) => {
                    let now = self.host.now();
                    if let Some(group) = self.groups.tightest(id) {
                        self.back_off.note_group(group.id, now);
                    }
                    for (other, queue) in &mut queues {
                        if *other != id && !self.group_holds(*other, now) {
                            continue;
                        }
                        queue.retain(|other| {
                            let hopeless = other.kind == ActionKind::Promote;
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
            turns.push(Reverse((self.pacing.earned_at(id), id)));
        }
        self.lacking_on_nodes = Blocks(lacking + below_floor);
        self.say_waiting(waiting);
        self.observer.status(&self.status);
        Wake::Time
    }

    /// Whether a block is free now, so that a collapse needs no compaction.
    fn has_free_block(&mut self) -> bool {
        let free = self.host.free_blocks();
        free.is_none_or(|free| free > self.settings.budget.free_blocks)
    }

    /// Why a promotion may not take a block of the NUMA node that it would be taken from, and how many blocks that node is below its floor.
    fn node_holds(&mut self, action: &Action) -> Option<(Deferred, Blocks)> {
        if action.kind != ActionKind::Promote {
            return None;
        }
        let node = self.host.node_memory(action.process, action.region)?;
        let budget = &self.settings.budget;
        let why = budget.holds_on(&node, self.total)?;
        let floor = budget.blocks_kept_on(&node, self.total);
        Some((why, Blocks(floor.0.saturating_sub(node.free_blocks.0))))
    }

    fn carry_out_one(&mut self, action: &Action) -> Outcome {
        let (how, how_after) = match action.expect {
            Expect::Zero(_) => (Look::Contents, Look::Tables),
            Expect::Kept(_) => (Look::Contents, Look::Contents),
            Expect::Anything | Expect::Populated(_) => (Look::Tables, Look::Tables),
        };
        let before = self.host.look(action.process, action.region, how);
        let (outcome, took, felt, returned) = match precheck(action, before.as_ref()) {
            Some(outcome) => (outcome, Duration::ZERO, None, BasePages::ZERO),
            None => {
                let call = self.host.act(action);
                let after = self.host.look(action.process, action.region, how_after);
                let outcome = judge(action, &call, after.as_ref());
                let returned = match (outcome, action.kind, before, after) {
                    (Outcome::Done, ActionKind::Demote, Some(before), Some(after)) => {
                        BasePages(before.mapped.less(after.populated()).0 + before.kept.less(after.kept).0)
                    }
                    _ => BasePages::ZERO,
                };
                (outcome, call.took, call.stall, returned)
            }
        };
        let now = self.account();
        let stall = felt.unwrap_or(took).min(took);
        if stall > Duration::ZERO {
            self.pacing.note(action.process, now, stall, self.settings.budget.stall);
        }
        self.back_off.note(action, outcome, now);
        self.status.stall += stall;
        match (outcome, action.kind) {
            (Outcome::Done, ActionKind::Promote) => {
                self.status.promoted += 1;
                self.others.promoted(action.process, action.region);
            }
            (Outcome::Done, ActionKind::Demote) => self.status.demoted += 1,
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
            stall_ns: felt.map(|_| nanos(stall)),
            returned_pages: returned.0,
            cpu_ns: nanos(self.status.cpu),
        };
        self.say_at(now, said);
        self.observer.status(&self.status);
        outcome
    }
}
