//! Evacuating one selected block: all of its pages are migrated and it becomes free as a whole (as `alloc_contig_range` does, then freeing it).
//!
//! Pages go where an allocation would put them, into the smallest free runs, but never into a free block: that would use up one to gain another.

use mega_core::compaction::block::Hpfn;
use mega_core::units::REGION_PAGES;

use super::{Mover, Physical};
use crate::physical::frames::State;
use crate::physical::MigrateType;
use crate::unit::{Frame, BLOCK_ORDER};

/// The result of evacuating a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emptied {
    /// It is free as a whole.
    Freed {
        /// Pages migrated.
        moved: u32,
    },
    /// It was free.
    AlreadyFree,
    /// It holds kernel or reserved pages, or is no memory. Nothing was migrated.
    Unmovable,
    /// It is a huge page, or part of one. Nothing was migrated.
    Huge,
    /// Too little is free outside free blocks.
    NoRoom {
        /// Pages migrated before that was found.
        moved: u32,
    },
    /// A page was refused by its mover.
    Pinned {
        /// Pages migrated before.
        moved: u32,
    },
}

impl Emptied {
    /// Its word in output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Freed { .. } => "freed",
            Self::AlreadyFree => "already-free",
            Self::Unmovable => "unmovable",
            Self::Huge => "huge",
            Self::NoRoom { .. } => "no-room",
            Self::Pinned { .. } => "pinned",
        }
    }

    /// Pages migrated.
    #[must_use]
    pub fn moved(self) -> u32 {
        match self {
            Self::Freed { moved } | Self::NoRoom { moved } | Self::Pinned { moved } => moved,
            Self::AlreadyFree | Self::Unmovable | Self::Huge => 0,
        }
    }
}

impl Physical {
    /// Migrates a block's pages, so that it becomes free as a whole. All of it is checked first.
    pub fn empty_block(&mut self, block: Hpfn, mover: &mut dyn Mover) -> Emptied {
        let result = self.move_away(block, mover);
        if !matches!(
            result,
            Emptied::AlreadyFree | Emptied::Unmovable | Emptied::Huge | Emptied::NoRoom { moved: 0 }
        ) {
            self.counters.compact_migrate_scanned += u64::from(REGION_PAGES);
        }
        result
    }

    /// Part of direct compaction that needs no scan: migrates the pages that a broken reservation left in this block. Each of them is scanned, and a
    /// free page for it. Once the wanted block is free: [`Physical::compacted_directly`].
    pub fn compact_reserved(&mut self, block: Hpfn, mover: &mut dyn Mover) -> Emptied {
        let result = self.move_away(block, mover);
        let moved = u64::from(result.moved());
        let done = &mut self.counters;
        done.compact_migrate_scanned += moved;
        done.compact_free_scanned += moved;
        result
    }

    /// Counts a successful direct compaction that was not made by [`Physical::compact_for`].
    pub fn compacted_directly(&mut self) {
        self.counters.compact_stall += 1;
        self.counters.compact_success += 1;
    }

    fn move_away(&mut self, block: Hpfn, mover: &mut dyn Mover) -> Emptied {
        let Some(info) = self.frames.blocks.get(block.0 as usize).copied() else {
            return Emptied::Unmovable;
        };
        let zone = usize::from(info.zone);
        if zone >= self.zones.len() || info.unmovable > 0 {
            return Emptied::Unmovable;
        }
        if info.huge > 0 {
            return Emptied::Huge;
        }
        self.drain();
        let first = Frame::first_of(block).0;
        let (free, used) = self.count(first);
        if free == REGION_PAGES {
            return Emptied::AlreadyFree;
        }
        if self.room_outside(zone, first) < u64::from(used) {
            return Emptied::NoRoom { moved: 0 };
        }
        let result = self.empty(zone, first, mover);
        if let Emptied::Freed { .. } = result {
            self.zones[zone].give(&mut self.frames, first, BLOCK_ORDER);
        } else {
            for frame in first..first + REGION_PAGES {
                if self.frames.state(frame) == State::ISOLATED {
                    self.zones[zone].give(&mut self.frames, frame, 0);
                }
            }
        }
        let done = &mut self.counters;
        done.compact_isolated += u64::from(used);
        done.pgmigrate_success += u64::from(result.moved());
        done.pgmigrate_fail += u64::from(matches!(result, Emptied::NoRoom { .. } | Emptied::Pinned { .. }));
        result
    }

    /// Free and allocated frames of a block.
    fn count(&self, first: u32) -> (u32, u32) {
        let info = self.frames.block_of(first);
        (info.free.into(), info.movable.into())
    }

    /// Free pages in movable runs smaller than a block, outside this one, in the zone or in those that the node falls back on.
    fn room_outside(&self, zone: usize, first: u32) -> u64 {
        let node = self.zones[zone].node;
        let in_zone = |&index: &u8| {
            let zone = &self.zones[usize::from(index)];
            let runs = |order: u8| u64::from(zone.area[usize::from(order)][MigrateType::Movable as usize].len);
            let pages: u64 = (0..BLOCK_ORDER).map(|order| runs(order) << order).sum();
            pages.min(zone.free.saturating_sub(zone.marks.min))
        };
        let all: u64 = self.zonelist(node).iter().map(in_zone).sum();
        let info = self.frames.block_of(first);
        let own = if info.migrate == MigrateType::Movable {
            info.free
        } else {
            0
        };
        all.saturating_sub(own.into())
    }

    fn empty(&mut self, zone: usize, first: u32, mover: &mut dyn Mover) -> Emptied {
        let node = self.zones[zone].node;
        // Its free pages first, so that nothing is migrated into it.
        let mut at = first;
        while at < first + REGION_PAGES {
            let state = self.frames.state(at);
            if state.is_free() {
                self.zones[zone].isolate_always(&mut self.frames, at, state.order());
                at += 1 << state.order();
            } else {
                at += 1;
            }
        }
        // Its frames are about to be unowned; what is freed of it is for movable pages.
        self.frames.block_of_mut(first).migrate = MigrateType::Movable;
        let mut moved = 0;
        let mut at = first;
        while at < first + REGION_PAGES {
            let state = self.frames.state(at);
            if state == State::ISOLATED {
                at += 1;
                continue;
            }
            // A run of several pages is migrated page by page: it is split, as the kernel does where there is no run to migrate it to.
            if state.is_used() && state.order() > 0 {
                self.split(Frame(at));
            }
            let Some(to) = self.room_for(zone, node) else {
                return Emptied::NoRoom { moved };
            };
            if !self.relocate(at, to, mover) {
                let home = self.zone_of(to);
                self.zones[home].give(&mut self.frames, to, 0);
                return Emptied::Pinned { moved };
            }
            self.frames.set(at, State::ISOLATED);
            moved += 1;
            at += 1;
        }
        Emptied::Freed { moved }
    }

    /// Isolates a single frame to migrate a page to: of the same zone where it has any, otherwise where the node falls back on.
    fn room_for(&mut self, zone: usize, node: u8) -> Option<u32> {
        self.room_in(zone).or_else(|| {
            let others = 0..self.zonelist(node).len();
            others
                .map(|i| usize::from(self.zonelist(node)[i]))
                .filter(|&index| index != zone)
                .collect::<Vec<_>>()
                .into_iter()
                .find_map(|index| self.room_in(index))
        })
    }

    /// The same in one zone, down to its min watermark.
    fn room_in(&mut self, index: usize) -> Option<u32> {
        let zone = &mut self.zones[index];
        let fitting = zone.nonempty[MigrateType::Movable as usize] & ((1 << BLOCK_ORDER) - 1);
        if fitting == 0 || !zone.watermark_ok(0, zone.marks.min, 0) {
            return None;
        }
        let run = zone.take(&mut self.frames, 0, MigrateType::Movable, true)?;
        self.frames.set(run, State::ISOLATED);
        Some(run)
    }
}
