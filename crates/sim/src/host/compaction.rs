//! Compaction for the free-block target: the kernel's own, or of blocks selected by a planner.

use std::time::Duration;

use mega_core::compaction::block::Block;
use mega_core::compaction::planner::{Planner, PlannerInput};
use mega_core::compaction::target::{Compacted, Ended, Order};
use mega_core::units::{BasePages, Blocks, Bytes, Time};

use super::{Drive, SimHost};
use crate::physical::Compact;
use crate::space::{Entry, Pte};

/// How blocks are made free for the free-block target.
#[derive(Default)]
pub enum Compacting {
    /// Not at all.
    No,
    /// The kernel selects the blocks (compact_memory): all of memory, once.
    #[default]
    Kernel,
    /// This planner selects them, and each is evacuated separately, as mega.ko does.
    Chosen(Box<dyn Planner>),
}

impl Compacting {
    /// Selected by MEGA's planner with the paper's parameters.
    #[must_use]
    pub fn mega() -> Self {
        Self::Chosen(Box::<mega_core::compaction::planner::Mega>::default())
    }
}

impl<D: Drive> SimHost<D> {
    /// The blocks of physical memory, with mapped and accessed pages from the page tables.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = self.machine.physical().blocks();
        let mut seen = vec![(0u16, 0u16); blocks.len()];
        for space in self.machine.spaces() {
            for region in space.tables.all_used() {
                match space.tables.get(region) {
                    Entry::None => {}
                    Entry::Huge(at) => {
                        let huge = space.tables.huge(at);
                        if let Some(block) = seen.get_mut(huge.block.0 as usize) {
                            *block = (512, if huge.accessed { 512 } else { 0 });
                        }
                    }
                    Entry::Table(at) => {
                        for pte in &space.tables.table(at).ptes {
                            let block = pte.frame().and_then(|frame| seen.get_mut(frame.block().0 as usize));
                            if let Some((mapped, accessed)) = block {
                                // A shared frame counts once per mapper; what exceeds 512 is cut.
                                *mapped = mapped.saturating_add(1);
                                *accessed = accessed.saturating_add(u16::from(pte.has(Pte::ACCESSED)));
                            }
                        }
                    }
                }
            }
        }
        for (block, (mapped, accessed)) in blocks.iter_mut().zip(seen) {
            let pages = |n: u16| BasePages(n.into());
            *block = block.with_mapped(pages(mapped)).with_accessed(Some(pages(accessed)));
        }
        blocks
    }

    /// Updates the blocks' ages, where a planner needs them.
    pub(super) fn follow_blocks(&mut self) {
        if let Compacting::Chosen(_) = self.compacting {
            let mut blocks = self.blocks();
            self.history.update(Time(self.now_ns), &mut blocks);
        }
    }

    pub(super) fn begin_compaction(&mut self, order: &Order) -> bool {
        if self.under_way.is_some() || matches!(self.compacting, Compacting::No) {
            return false;
        }
        self.catch_up();
        self.machine.take_bill();
        let before = self.machine.physical().free_blocks();
        let moved = self.machine.counters().pgmigrate_success;
        let limit_ps = u64::try_from(order.time.as_nanos())
            .unwrap_or(u64::MAX)
            .saturating_mul(1000);
        let (way, ended) = if matches!(self.compacting, Compacting::Chosen(_)) {
            let ended = self.empty_chosen(order, limit_ps);
            self.history.moved(&self.blocks());
            ("chosen", ended)
        } else {
            self.machine.compact(Compact::Whole);
            let reached = self.machine.physical().free_blocks() >= before + order.blocks.0;
            ("compact_memory", if reached { Ended::Amount } else { Ended::Through })
        };
        let took = self.machine.take_bill() / 1000;
        self.cpu_ns += took;
        let done = Compacted {
            way,
            asked: order.blocks,
            before: Blocks(before),
            after: Blocks(self.machine.physical().free_blocks()),
            on_lists: Blocks(0),
            moved_pages: self.machine.counters().pgmigrate_success - moved,
            took: Duration::from_nanos(took),
            cpu: Duration::from_nanos(took),
            ended,
            chosen: None,
        };
        self.under_way = Some((self.now_ns + took, done));
        true
    }

    /// Evacuates the blocks that the planner names, in its order, until enough are free or the time is over.
    fn empty_chosen(&mut self, order: &Order, limit_ps: u64) -> Ended {
        let wanted = self.machine.physical().free_blocks() + order.blocks.0;
        let mut blocks = self.blocks();
        self.history.update(Time(self.now_ns), &mut blocks);
        let zones = self.machine.physical().zones();
        let seen = PlannerInput {
            blocks: &blocks,
            zones: &zones,
            total: Bytes(self.machine.physical().total_bytes()),
            asked: order.blocks,
        };
        let Compacting::Chosen(planner) = &mut self.compacting else {
            return Ended::Refused;
        };
        for choice in planner.plan(&seen) {
            if self.machine.physical().free_blocks() >= wanted {
                return Ended::Amount;
            }
            if self.machine.bill_ps >= limit_ps {
                return Ended::Time;
            }
            let done = self
                .machine
                .with_moves(|physical, mover| physical.empty_block(choice.hpfn, mover));
            let price = self.machine.prices.migrate * u64::from(done.moved());
            self.machine.charge(price);
        }
        let reached = self.machine.physical().free_blocks() >= wanted;
        if reached {
            Ended::Amount
        } else {
            Ended::Through
        }
    }
}
