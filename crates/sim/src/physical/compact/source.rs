//! The migrate scanner: pages to migrate, from the bottom of the zone (`isolate_migratepages`, `fast_find_migrateblock`).

use mega_core::units::REGION_PAGES;

use super::pass::{Control, FastStart, Mode, COSTLY_ORDER};
use super::Physical;
use crate::physical::MigrateType;

/// Pages isolated at once (COMPACT_CLUSTER_MAX).
pub(super) const CLUSTER: u32 = 32;

impl Control {
    /// Runs that a quick search looks at.
    pub(super) fn search_limit(&self) -> u32 {
        (CLUSTER >> self.search_fails.min(31)) + 1
    }

    /// Where the linear search begins: where the quick search was lowest, the first time.
    fn restart(&mut self) -> u32 {
        if let FastStart::At(frame) = self.fast_start {
            self.fast_start = FastStart::Used;
            self.migrate_at = frame;
        }
        self.migrate_at
    }
}

/// The end of the 2^`order` frames that this one lies in.
fn run_end(frame: u32, order: u8) -> u32 {
    ((frame >> order) + 1) << order
}

impl Physical {
    /// Isolates pages from the next block that has any. False: none, this time.
    pub(super) fn isolate_sources(&mut self, control: &mut Control) -> bool {
        let zone_start = self.zones[control.zone].start;
        let mut low = self.find_block(control);
        let mut found = low != control.migrate_at && control.search_fails == 0;
        let mut end = run_end(low, 9);
        while end <= control.free_at {
            let info = *self.frames.block_of(end - 1);
            let whole = low % REGION_PAGES == 0 || low == zone_start;
            let hinted = whole && !found && !control.ignore_hints && info.skip;
            if usize::from(info.zone) == control.zone && !hinted {
                if self.is_source(control, end - REGION_PAGES, info.migrate) {
                    self.isolate_in_block(control, low, end);
                    break;
                }
                self.move_cached(control, end);
            }
            found = false;
            (control.migrate_at, low) = (end, end);
            end += REGION_PAGES;
        }
        !control.sources.is_empty()
    }

    /// `suitable_migration_source`.
    fn is_source(&self, control: &Control, block: u32, migrate: MigrateType) -> bool {
        if self.is_huge_used(block) {
            return false;
        }
        control.mode != Mode::Async || !control.direct || migrate == control.migrate
    }

    /// `update_cached_migrate`.
    fn move_cached(&mut self, control: &Control, frame: u32) {
        let after = run_end(frame, 9);
        let cached = &mut self.zones[control.zone].positions.cached_migrate;
        cached[0] = cached[0].max(after);
        if control.mode != Mode::Async {
            cached[1] = cached[1].max(after);
        }
    }

    /// Scans one block from `low` on and isolates what can be migrated (`isolate_migratepages_block`).
    fn isolate_in_block(&mut self, control: &mut Control, mut low: u32, end: u32) {
        // Of a run of which one page stays, no page has to move.
        let quick = (control.direct && control.mode == Mode::Async)
            .then_some(control.order)
            .flatten();
        let mut run = quick.map_or(0, |order| run_end(low, order));
        let whole = low % REGION_PAGES == 0;
        let mut hint_set = false;
        let (mut scanned, mut isolated) = (0u64, 0u32);
        while low < end {
            if let Some(order) = quick.filter(|_| low >= run) {
                if isolated > 0 {
                    break;
                }
                run = run_end(low, order);
            }
            scanned += 1;
            let state = self.frames.state(low);
            if state.is_free() {
                let pages = 1 << state.order();
                scanned += u64::from(pages) - 1;
                low += pages;
                continue;
            }
            // Within a run that the last batch's pages merged into, the scanner goes on frame by frame: nothing there says how far.
            let mut stays = true;
            if state.is_used() && state.order() > 0 {
                let pages = 1 << state.order();
                scanned += u64::from(pages) - 1;
                low += pages - 1;
            } else if Self::is_movable(&self.frames, low) {
                stays = false;
            }
            if !stays {
                if whole && !hint_set && !control.ignore_hints {
                    hint_set = true;
                    self.frames.block_of_mut(low).skip = true;
                }
                control.sources.push(low);
                isolated += 1;
                low += 1;
                if control.sources.len() as u32 >= CLUSTER && !control.finish_block {
                    break;
                }
                continue;
            }
            if let Some(order) = quick {
                control.sources.clear();
                isolated = 0;
                if low < run {
                    low = run - 1;
                    run += 1 << order;
                }
            }
            low += 1;
        }
        low = low.min(end);
        if low == end && (isolated == 0 || control.finish_block) {
            if whole && !hint_set {
                self.frames.block_of_mut(end - 1).skip = true;
            }
            self.move_cached(control, low);
        }
        control.done.scanned_migrate += scanned;
        control.done.isolated += u64::from(isolated);
        control.migrate_at = low;
    }

    /// Searches the free lists for a block that has free pages already, so that fewer have to be migrated.
    fn find_block(&mut self, control: &mut Control) -> u32 {
        let here = control.migrate_at;
        let start = self.zones[control.zone].start;
        let order = control.order.unwrap_or(0);
        let inside = here != start && here % REGION_PAGES != 0;
        if control.ignore_hints || control.finish_block || inside || order <= COSTLY_ORDER {
            return here;
        }
        if control.direct && control.migrate != MigrateType::Movable {
            return here;
        }
        let mut distance = control.free_at.saturating_sub(here) / 2;
        if here != start {
            distance /= 4;
        }
        let high = (here + distance) / REGION_PAGES * REGION_PAGES;
        let limit = control.search_limit();
        let mut looked = 0;
        let mut found = None;
        for order in (COSTLY_ORDER..order).rev() {
            if found.is_some() || looked >= limit {
                break;
            }
            let list = &mut self.zones[control.zone].area[usize::from(order)][MigrateType::Movable as usize];
            let mut next = list.first();
            while let Some(run) = next {
                looked += 1;
                if looked > limit {
                    list.rotate_to_back(&mut self.frames, run);
                    break;
                }
                if run < high && !self.frames.block_of(run).skip {
                    list.rotate_to_back(&mut self.frames, run);
                    found = Some(run);
                    break;
                }
                next = list.after(&self.frames, run);
            }
        }
        control.done.scanned_migrate += u64::from(looked);
        let Some(run) = found else {
            control.search_fails += 1;
            return control.restart();
        };
        control.fast_start = match control.fast_start {
            FastStart::Unset => FastStart::At(run),
            FastStart::At(frame) => FastStart::At(frame.min(run)),
            FastStart::Used => FastStart::Used,
        };
        control.search_fails = 0;
        (run / REGION_PAGES * REGION_PAGES).max(start)
    }
}
