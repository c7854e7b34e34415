//! One zone: the migrate scanner from the bottom, the free scanner from the top, until they meet or the goal is reached (`compact_zone`).

use mega_core::units::REGION_PAGES;

use super::{Compaction, Mover, Physical, Scratch, KCOMPACTD_TYPE};
use crate::physical::zone::Zone;
use crate::physical::MigrateType;
use crate::unit::{BLOCK_ORDER, MAX_ORDER};

/// Above this order, allocations are costly (PAGE_ALLOC_COSTLY_ORDER).
pub(super) const COSTLY_ORDER: u8 = 3;
/// Fragmentation index, in thousandths, up to which a failure counts as lack of memory (vm.extfrag_threshold).
const EXTFRAG_THRESHOLD: i64 = 500;

/// How hard it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Async,
    SyncLight,
    Sync,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing to do with so little free memory, or it would not help.
    Skipped,
    /// The scanners met, having started at the ends.
    Complete,
    /// The scanners met, having started in between.
    Partial,
    /// A run of the order is free, or the goal is reached.
    Success,
    /// No page is free to migrate another one to.
    NoMemory,
}

/// The goal and the state of a pass (struct compact_control).
#[derive(Debug)]
pub(super) struct Control {
    pub zone: usize,
    /// None: as much as can be.
    pub order: Option<u8>,
    pub mode: Mode,
    pub direct: bool,
    whole_zone: bool,
    pub ignore_hints: bool,
    /// The zone's fragmentation score, in percent, at which it is enough.
    until_score: Option<u64>,
    pub migrate: MigrateType,
    pub migrate_at: u32,
    pub free_at: u32,
    pub finish_block: bool,
    /// Lowest frame that the quick search found: where to fall back to once.
    pub fast_start: FastStart,
    pub search_order: u8,
    pub search_fails: u32,
    /// Pages taken aside to be moved, and their number at the beginning of a batch.
    pub sources: Vec<u32>,
    pub batch: usize,
    /// Pages taken aside to move others to; the last is used first.
    pub targets: Vec<u32>,
    pub done: Compaction,
}

/// Where the linear search begins once the quick one finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FastStart {
    Unset,
    At(u32),
    Used,
}

impl Control {
    fn new(zone: usize, order: Option<u8>, mode: Mode) -> Self {
        Self {
            zone,
            order,
            mode,
            direct: false,
            whole_zone: false,
            ignore_hints: false,
            until_score: None,
            migrate: KCOMPACTD_TYPE,
            migrate_at: 0,
            free_at: 0,
            finish_block: false,
            fast_start: FastStart::Unset,
            search_order: order.unwrap_or(0),
            search_fails: 0,
            sources: Vec::new(),
            batch: 0,
            targets: Vec::new(),
            done: Compaction::default(),
        }
    }

    pub fn direct(zone: usize, order: u8, mode: Mode) -> Self {
        Self {
            direct: true,
            migrate: MigrateType::Movable,
            ..Self::new(zone, Some(order), mode)
        }
    }

    pub fn background(zone: usize, order: u8) -> Self {
        Self::new(zone, Some(order), Mode::SyncLight)
    }

    pub fn proactive(zone: usize, until_score: u64) -> Self {
        Self {
            whole_zone: true,
            ignore_hints: true,
            until_score: Some(until_score),
            ..Self::new(zone, None, Mode::SyncLight)
        }
    }

    pub fn whole(zone: usize) -> Self {
        Self {
            whole_zone: true,
            ignore_hints: true,
            ..Self::new(zone, None, Mode::Sync)
        }
    }

    pub fn met(&self) -> bool {
        self.free_at / REGION_PAGES <= self.migrate_at / REGION_PAGES
    }

    fn sync(&self) -> usize {
        usize::from(self.mode != Mode::Async)
    }
}

impl Physical {
    /// Compacts one zone and adds what it did to `total`.
    pub(super) fn compact_zone(
        &mut self,
        control: &mut Control,
        total: &mut Compaction,
        mover: &mut dyn Mover,
    ) -> Ended {
        let Scratch { migrate, free } = std::mem::take(&mut self.scratch);
        (control.sources, control.targets) = (migrate, free);
        let ended = self.pass(control, mover);
        let sources = std::mem::take(&mut control.sources);
        self.scratch = Scratch {
            migrate: sources,
            free: std::mem::take(&mut control.targets),
        };
        total.add(&control.done);
        ended
    }

    fn pass(&mut self, control: &mut Control, mover: &mut dyn Mover) -> Ended {
        // The kernel drains as it goes; nothing else fills the lists meanwhile.
        self.zones[control.zone].drain(&mut self.frames);
        if let Some(order) = control.order {
            let zone = &self.zones[control.zone];
            let kept = if control.direct { zone.reserve } else { 0 };
            if zone.watermark_ok(order, zone.marks.min, kept) {
                return Ended::Success;
            }
            if order > MAX_ORDER || !suitable(zone, order, kept) {
                return Ended::Skipped;
            }
            if zone.positions.restarting(order) {
                self.clear_hints(control.zone);
            }
        }
        self.set_out(control);
        let ended = self.scan(control, mover);
        self.release_targets(control);
        ended
    }

    /// Puts the scanners where they begin.
    fn set_out(&mut self, control: &mut Control) {
        let zone = &mut self.zones[control.zone];
        let (start, end) = (zone.start, zone.end);
        let last = end - REGION_PAGES;
        if control.whole_zone {
            (control.migrate_at, control.free_at) = (start, last);
            return;
        }
        let positions = &mut zone.positions;
        control.migrate_at = positions.cached_migrate[control.sync()];
        control.free_at = positions.cached_free;
        if !(start..end).contains(&control.free_at) {
            control.free_at = last;
            positions.cached_free = last;
        }
        if !(start..end).contains(&control.migrate_at) {
            control.migrate_at = start;
            positions.cached_migrate = [start; 2];
        }
        control.whole_zone = control.migrate_at <= positions.init_migrate;
    }

    fn scan(&mut self, control: &mut Control, mover: &mut dyn Mover) -> Ended {
        let cached = self.zones[control.zone].positions.cached_migrate;
        let mut follow = control.mode == Mode::Async && cached[0] == cached[1];
        let mut last_migrated = None;
        loop {
            if let Some(ended) = self.finished(control) {
                return ended;
            }
            let block = control.migrate_at / REGION_PAGES;
            control.finish_block = last_migrated == Some(block);
            // The second round finishes a block of which a page could not be moved.
            loop {
                if !self.isolate_sources(control) {
                    if follow {
                        let positions = &mut self.zones[control.zone].positions;
                        positions.cached_migrate[1] = positions.cached_migrate[0];
                    }
                    break;
                }
                follow = false;
                last_migrated = Some(control.migrate_at.saturating_sub(1) / REGION_PAGES);
                let moved = self.move_batch(control, mover);
                if moved == Batch::NoRoom && !control.met() {
                    return Ended::NoMemory;
                }
                let again = moved != Batch::All
                    && control.migrate_at % REGION_PAGES != 0
                    && !control.ignore_hints
                    && !control.finish_block
                    && control.mode != Mode::Sync;
                if !again {
                    break;
                }
                control.finish_block = true;
                if control.order == Some(BLOCK_ORDER) {
                    last_migrated = None;
                }
            }
            // Direct compaction gets the run that its last page completed (`compaction_capture`).
            if control.direct
                && control
                    .order
                    .is_some_and(|order| self.zones[control.zone].has_free(order))
            {
                return Ended::Success;
            }
            let behind = last_migrated.is_some_and(|block| block < control.migrate_at / REGION_PAGES);
            if control.order.is_some() && behind {
                last_migrated = None;
            }
        }
    }

    /// Whether it is over, and how (`compact_finished`).
    fn finished(&mut self, control: &Control) -> Option<Ended> {
        let zone = &mut self.zones[control.zone];
        if control.met() {
            zone.positions.reset(zone.start, zone.end);
            zone.positions.flush_hints |= control.direct;
            return Some(if control.whole_zone {
                Ended::Complete
            } else {
                Ended::Partial
            });
        }
        if let Some(score) = control.until_score {
            return (zone.score() <= score).then_some(Ended::Success);
        }
        let order = control.order?;
        if control.migrate_at % REGION_PAGES != 0 {
            return None;
        }
        let own = zone.nonempty[control.migrate as usize] >> order != 0;
        let others = (order..=MAX_ORDER).any(|o| {
            let has = |other: &MigrateType| zone.nonempty[*other as usize] & 1 << o != 0;
            Zone::claimable(o, control.migrate) && control.migrate.fallbacks().iter().any(has)
        });
        (own || others).then_some(Ended::Success)
    }

    /// Migrates what was isolated, the last isolated first.
    fn move_batch(&mut self, control: &mut Control, mover: &mut dyn Mover) -> Batch {
        let mut sources = std::mem::take(&mut control.sources);
        control.batch = sources.len();
        let mut result = Batch::All;
        while let Some(from) = sources.pop() {
            if control.targets.is_empty() {
                self.isolate_targets(control);
            }
            let Some(to) = control.targets.pop() else {
                control.done.failed += 1;
                result = Batch::NoRoom;
                break;
            };
            if self.relocate(from, to, mover) {
                control.done.migrated += 1;
                self.zones[control.zone].give(&mut self.frames, from, 0);
            } else {
                control.targets.push(to);
                control.done.failed += 1;
                result = Batch::Some;
            }
        }
        sources.clear();
        control.sources = sources;
        result
    }

    /// Frees the places that were not used; the free scanner continues no lower than there.
    fn release_targets(&mut self, control: &mut Control) {
        let zone = &mut self.zones[control.zone];
        let mut highest = None;
        for frame in control.targets.drain(..) {
            zone.give(&mut self.frames, frame, 0);
            highest = highest.max(Some(frame));
        }
        if let Some(frame) = highest {
            let block = frame / REGION_PAGES * REGION_PAGES;
            zone.positions.cached_free = zone.positions.cached_free.max(block);
        }
    }
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batch {
    All,
    /// Some of them were refused.
    Some,
    NoRoom,
}

/// Whether there is room to migrate pages to, and migrating would help (`compaction_suitable`).
fn suitable(zone: &Zone, order: u8, kept: u64) -> bool {
    let mark = if order > COSTLY_ORDER {
        zone.marks.low
    } else {
        zone.marks.min
    };
    if !zone.watermark_ok(0, mark + (2 << order), kept) {
        return false;
    }
    let index = zone.fragmentation_index(order);
    order <= COSTLY_ORDER || !(0..=EXTFRAG_THRESHOLD).contains(&index)
}
