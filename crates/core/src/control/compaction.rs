//! The loop's part in the free-block target: when to look, what compaction may cost, what came of it.

use super::{nanos, Control};
use crate::action::{ActionKind, Deferred};
use crate::compaction::planner::PlannerInput;
use crate::compaction::target::{ChosenBlocks, Compacted, Order};
use crate::host::Host;
use crate::journal::Event;
use crate::observe::Machine;
use crate::policy::Decision;
use crate::units::Blocks;

/// Divisor: the part of the processor budget that compaction may take.
const COMPACTION_PART: u32 = 2;

impl<H: Host> Control<'_, H> {
    /// Orders a compaction if free blocks are short. Does not wait for it.
    pub(super) fn keep_free_blocks(&mut self, machine: &Machine, decision: &Decision) {
        let Some(mut target) = self.target.take() else { return };
        self.status.free_blocks = Some(machine.free_blocks);
        let now = self.host.now();
        if now >= target.due() {
            if let Some(seen) = self.host.contiguity() {
                let promotions = decision.actions.iter().filter(|action| {
                    action.kind == ActionKind::Promote && self.back_off.holds(action, now) != Some(Deferred::Flapping)
                });
                let asked = target.asked(self.status.promoted, promotions.count() as u64, seen.huge_faults);
                let pass = target.pass(
                    now,
                    &PlannerInput {
                        blocks: &[],
                        zones: &seen.zones,
                        total: machine.total_bytes,
                        asked,
                    },
                );
                // Planners go by all nodes together; one of them may lack some while there are enough.
                let wanted = pass.wanted.max(self.lacking_on_nodes);
                if wanted > Blocks(0) {
                    let order = Order {
                        blocks: wanted,
                        time: target.planner().interval().mul_f64(self.settings.budget.cpu.fraction())
                            / COMPACTION_PART,
                    };
                    let why = self.order(&order, pass.held, machine);
                    self.say(Event::Stock {
                        asked_blocks: pass.asked.0,
                        free_blocks: machine.free_blocks.0,
                        wanted_blocks: wanted.0,
                        why,
                    });
                }
            }
        }
        self.target = Some(target);
    }

    /// Places the order, or returns why it is deferred.
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

    pub(super) fn note_compacted(&mut self, done: &Compacted) -> Event {
        let now = self.host.now();
        if let Some(target) = &mut self.target {
            target.note(now, done);
            self.status.free_blocks = Some(done.after);
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
            outcomes: done.chosen.as_ref().map(ChosenBlocks::to_text),
            seen_free_blocks: done.chosen.as_ref().map(|chosen| chosen.seen_free.0),
        }
    }
}
