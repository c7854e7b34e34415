//! The hints that keep scanners away from blocks in which they recently found nothing (PB_migrate_skip), and how they are cleared.

use mega_core::units::REGION_PAGES;

use super::pass::COSTLY_ORDER;
use super::Physical;
use crate::physical::frames::{BlockInfo, State};
use crate::physical::MigrateType;
use crate::unit::BLOCK_ORDER;

impl Physical {
    /// Clears the hints of blocks where samples find something to migrate, or room (`__reset_isolation_suitable`).
    pub(super) fn clear_hints(&mut self, index: usize) {
        let zone = &self.zones[index];
        if !zone.positions.flush_hints {
            return;
        }
        let (start, end) = (zone.start, zone.end);
        let mut positions = zone.positions;
        positions.flush_hints = false;
        let (mut migrate, mut free) = (start, end - REGION_PAGES);
        let (mut lowest, mut highest) = (None, None);
        while migrate < free + REGION_PAGES {
            if self.clear_hint(migrate, true, lowest.is_some()) && lowest.is_none() {
                lowest = Some(migrate);
                positions.init_migrate = migrate;
                positions.cached_migrate = [migrate; 2];
            }
            if self.clear_hint(free, highest.is_some(), true) && highest.is_none() {
                highest = Some(free);
                positions.init_free = free;
                positions.cached_free = free;
            }
            migrate += REGION_PAGES;
            let Some(lower) = free.checked_sub(REGION_PAGES) else {
                break;
            };
            free = lower;
        }
        if lowest.unwrap_or(end) >= highest.unwrap_or(start) {
            positions.cached_migrate = [migrate; 2];
            positions.cached_free = free;
        }
        self.zones[index].positions = positions;
    }

    /// One block: it can serve as a source, or as a target.
    fn clear_hint(&mut self, block: u32, source: bool, target: bool) -> bool {
        let info = self.frames.block_of(block);
        if info.zone == BlockInfo::NO_ZONE || self.is_huge_used(block) {
            return false;
        }
        if source && target && !info.skip {
            return true;
        }
        if !source && target && info.migrate != MigrateType::Movable {
            return false;
        }
        let serves = |frame: u32| {
            source && Self::is_movable(&self.frames, frame) || target && self.frames.state(frame).is_free()
        };
        let found = (block..block + REGION_PAGES).step_by(1 << COSTLY_ORDER).any(serves);
        if found {
            self.frames.block_of_mut(block).skip = false;
        }
        found
    }

    /// The block is part of an allocation of a block or more.
    pub(super) fn is_huge_used(&self, block: u32) -> bool {
        let state = self.frames.state(block);
        state.is_used() && state.order() >= BLOCK_ORDER || state == State::TAIL
    }
}
