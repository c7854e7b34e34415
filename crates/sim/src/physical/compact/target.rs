//! The free scanner: places to migrate pages to, from the top of the zone (`isolate_freepages`, `fast_isolate_freepages`).

use mega_core::units::REGION_PAGES;

use super::pass::{Control, Mode};
use super::source::CLUSTER;
use super::Physical;
use crate::physical::frames::BlockInfo;
use crate::physical::zone::Zone;
use crate::physical::MigrateType;
use crate::unit::BLOCK_ORDER;

impl Control {
    /// Enough is taken aside for the pages of this batch.
    fn has_enough(&self) -> bool {
        self.targets.len() >= self.batch
    }

    /// The orders that a quick search looks at, one after the other and round (`next_search_order`).
    fn next_order(&mut self, order: u8, highest: u8) -> Option<u8> {
        let next = order.checked_sub(1).unwrap_or(highest);
        if next == self.search_order {
            self.search_order = self.search_order.checked_sub(1).unwrap_or(highest);
            return None;
        }
        Some(next)
    }
}

impl Physical {
    /// Isolates free pages for the pages to be migrated, and advances the scanner.
    pub(super) fn isolate_targets(&mut self, control: &mut Control) {
        self.search_lists(control);
        if !control.targets.is_empty() {
            return;
        }
        let step = i64::from(REGION_PAGES);
        let low = i64::from((control.migrate_at / REGION_PAGES + 1) * REGION_PAGES);
        let mut block = i64::from(control.free_at / REGION_PAGES * REGION_PAGES);
        let mut at = control.free_at;
        let mut stride = if control.mode == Mode::Async { CLUSTER } else { 1 };
        while block >= low {
            let first = block as u32;
            let end = first + REGION_PAGES;
            if self.is_target(control, first) {
                let isolated = self.isolate_from_block(control, &mut at, end, stride);
                if at == end {
                    self.frames.block_of_mut(first).skip = true;
                    let cached = &mut self.zones[control.zone].positions.cached_free;
                    *cached = (*cached).min(first.saturating_sub(REGION_PAGES));
                }
                if control.has_enough() {
                    if at >= end {
                        at = first.saturating_sub(REGION_PAGES);
                    }
                    break;
                }
                if at < end {
                    break;
                }
                stride = if isolated > 0 { 1 } else { (stride * 2).min(CLUSTER) };
            }
            block -= step;
            at = block.max(0) as u32;
        }
        control.free_at = at;
    }

    /// `suitable_migration_target`, and the block was not found without free pages lately.
    fn is_target(&self, control: &Control, block: u32) -> bool {
        let info = self.frames.block_of(block);
        let state = self.frames.state(block);
        let large = state.is_free() && state.order() >= BLOCK_ORDER;
        usize::from(info.zone) == control.zone
            && !large
            && info.migrate == MigrateType::Movable
            && (control.ignore_hints || !info.skip)
    }

    /// Isolates free runs of one block, from `at` on, until there are enough (`isolate_freepages_block`). Returns the number of pages.
    fn isolate_from_block(&mut self, control: &mut Control, at: &mut u32, end: u32, stride: u32) -> u32 {
        let (mut scanned, mut isolated) = (0u64, 0u32);
        let mut frame = *at;
        while frame < end {
            scanned += 1;
            let state = self.frames.state(frame);
            if state.is_free() {
                let order = state.order();
                let pages = 1 << order;
                if !self.zones[control.zone].isolate(&mut self.frames, frame, order) {
                    break;
                }
                control.targets.extend(frame..frame + pages);
                isolated += pages;
                scanned += u64::from(pages) - 1;
                frame += pages;
                if control.has_enough() {
                    break;
                }
                frame += stride - 1;
            } else if state.is_used() && state.order() > 0 {
                let pages = 1 << state.order();
                scanned += u64::from(pages) - 1;
                frame += pages - 1 + stride;
            } else {
                frame += stride;
            }
        }
        *at = frame.min(end);
        control.done.scanned_free += scanned;
        control.done.isolated += u64::from(isolated);
        isolated
    }

    /// Searches the free lists for a run high up, and isolates it and what is around it.
    fn search_lists(&mut self, control: &mut Control) {
        let Some(highest_order) = control.order.and_then(|order| order.checked_sub(1)) else {
            return;
        };
        let zone = &mut self.zones[control.zone];
        let starting = control.free_at >= zone.positions.init_free;
        let mut limit = if starting {
            REGION_PAGES / 2
        } else {
            (control.search_limit() / 2).max(1)
        };
        let distance = control.free_at.saturating_sub(control.migrate_at);
        let block_of = |frame: u32| frame / REGION_PAGES * REGION_PAGES;
        let low = block_of(control.free_at - distance / 4);
        let min = block_of(control.free_at - distance / 2);
        control.search_order = control.search_order.min(highest_order);
        let (mut scanned, mut highest) = (0u64, 0u32);
        let mut page = None;
        let mut next = Some(control.search_order);
        while let Some(order) = next.filter(|_| page.is_none()) {
            let search = Search { low, min };
            if zone.area[usize::from(order)].iter().any(|list| list.len > 0) {
                let seen = search.list(zone, &mut self.frames, order, &mut limit);
                scanned += u64::from(seen.looked);
                highest = highest.max(seen.highest);
                if seen.preferred {
                    control.search_fails = 0;
                    control.search_order = order;
                }
                let mut refused = false;
                if let Some(run) = seen.run {
                    if zone.isolate(&mut self.frames, run, order) {
                        let pages = 1 << order;
                        control.targets.extend(run..run + pages);
                        control.done.isolated += u64::from(pages);
                        scanned += u64::from(pages) - 1;
                        page = Some(run);
                    } else {
                        refused = true;
                    }
                }
                // Enough, or too little memory is free to go on.
                if refused || control.has_enough() {
                    break;
                }
                if seen.looked >= limit {
                    limit = (limit / 2).max(1);
                }
            }
            next = control.next_order(order, highest_order);
        }
        if page.is_none() {
            control.search_fails += 1;
            if starting {
                if highest >= min {
                    page = Some(highest);
                    control.free_at = highest;
                } else if control.direct {
                    let in_zone = usize::from(self.frames.block_of(min).zone) == control.zone;
                    page = in_zone.then_some(min);
                    control.free_at = min;
                }
            }
        }
        if highest > 0 && highest >= zone.positions.cached_free {
            zone.positions.cached_free = highest.saturating_sub(REGION_PAGES);
        }
        control.done.scanned_free += scanned;
        if let Some(frame) = page {
            self.isolate_around(control, frame);
        }
    }

    /// `fast_isolate_around`.
    fn isolate_around(&mut self, control: &mut Control, frame: u32) {
        if control.has_enough() || control.direct && control.mode == Mode::Async {
            return;
        }
        let mut at = frame / REGION_PAGES * REGION_PAGES;
        let end = at + REGION_PAGES;
        if self.frames.block_of(at).zone == BlockInfo::NO_ZONE {
            return;
        }
        self.isolate_from_block(control, &mut at, end, 1);
        if at == end {
            self.frames.block_of_mut(frame).skip = true;
        }
    }
}

/// Where in the zone a quick search would like to find a run.
struct Search {
    /// At this frame or above, it takes the first.
    low: u32,
    /// At this or above, the highest of those that it looked at.
    min: u32,
}

/// What a search of one list saw.
struct SearchedList {
    looked: u32,
    /// The run to take.
    run: Option<u32>,
    /// It lies where it should.
    preferred: bool,
    /// The first frame of the highest block seen.
    highest: u32,
}

impl Search {
    fn list(&self, zone: &mut Zone, frames: &mut super::Frames, order: u8, limit: &mut u32) -> SearchedList {
        let start = zone.start;
        let list = &mut zone.area[usize::from(order)][MigrateType::Movable as usize];
        let mut seen = SearchedList {
            looked: 0,
            run: None,
            preferred: false,
            highest: 0,
        };
        let mut last = None;
        let mut next = list.last();
        while let Some(run) = next {
            seen.looked += 1;
            seen.highest = seen.highest.max((run / REGION_PAGES * REGION_PAGES).max(start));
            last = Some(run);
            if run >= self.low {
                (seen.run, seen.preferred) = (Some(run), true);
                break;
            }
            if run >= self.min && seen.run.is_none_or(|best| run > best) {
                seen.run = Some(run);
                *limit /= 2;
            }
            if seen.looked >= *limit {
                break;
            }
            next = list.before(frames, run);
        }
        // So that the next search sees others first.
        if let Some(run) = seen.run.or(last.filter(|_| next.is_some())) {
            list.rotate_to_front(frames, run);
        }
        seen
    }
}
