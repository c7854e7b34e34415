//! Compaction (mm/compaction.c of Linux 6.6): free blocks made by moving pages together.
//!
//! | file | subject |
//! | --- | --- |
//! | this one | who compacts what, and when it is put off |
//! | `pass` | one zone: the two scanners until they meet or it is done |
//! | `source` | the migrate scanner: pages to move, from the bottom |
//! | `target` | the free scanner: places to move them to, from the top |
//! | `hints` | blocks that are not worth a look |
//! | `empty` | one chosen block |
//!
//! Not modelled: contention, pages under writeback, the LRU lists. A page that its mover refuses counts as one that failed to migrate.

use super::frames::State;
use super::owner::Kind;
use super::{owner, Frames, MigrateType, Physical};
use crate::unit::{Frame, Owner, BLOCK_ORDER};

mod empty;
mod hints;
mod pass;
mod source;
mod target;

pub use empty::Emptied;

use pass::{Control, Ended, Mode};

/// Who has to know when a frame moves.
pub trait Mover {
    /// The contents and the owner of `from` move to `to`, which was free; `from` is free afterwards. False: it cannot move now (pinned), and nothing
    /// changes.
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool;
}

/// Compaction by whom and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compact {
    /// By who needs a run of this order, waiting for it: each zone until one is free (COMPACT_PRIO_SYNC_LIGHT).
    Direct {
        /// Its order.
        order: u8,
    },
    /// The same, but only what is quick: only in blocks for movable pages, and no 2^order frames of which one cannot be moved. It neither counts as a
    /// failure nor puts off the next (COMPACT_PRIO_ASYNC: what a huge page fault begins with, and all it does unless it is told to try hard).
    Async {
        /// Its order.
        order: u8,
    },
    /// In the background, each zone until a run of this order is free.
    Kcompactd {
        /// Its order.
        order: u8,
    },
    /// In the background, each zone of a node whose fragmentation score is over 110 less this, until it is 100 less this
    /// (vm.compaction_proactiveness, 20 by default).
    Proactive {
        /// In percent.
        proactiveness: u8,
    },
    /// Everything (/proc/sys/vm/compact_memory).
    Whole,
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Pages that the migrate scanner looked at.
    pub scanned_migrate: u64,
    /// Pages that the free scanner looked at.
    pub scanned_free: u64,
    /// Pages that either of them took aside.
    pub isolated: u64,
    /// Pages moved.
    pub migrated: u64,
    /// Pages that could not be moved.
    pub failed: u64,
    /// Zones passed over because the last compactions there failed.
    pub deferred: u32,
    /// Zones in which there was nothing to do, or too little free memory to do it with.
    pub skipped: u32,
    /// A run of the order is free now; of the others, the scanners met or the aim was reached in every zone.
    pub success: bool,
}

impl Compaction {
    fn add(&mut self, other: &Self) {
        self.scanned_migrate += other.scanned_migrate;
        self.scanned_free += other.scanned_free;
        self.isolated += other.isolated;
        self.migrated += other.migrated;
        self.failed += other.failed;
    }
}

/// The most that a shift puts compaction off: 64 times.
const MAX_DEFER_SHIFT: u8 = 6;

/// What a zone remembers from one compaction to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Positions {
    /// Where the migrate scanner goes on: asynchronous, and the others.
    cached_migrate: [u32; 2],
    /// Where the free scanner goes on.
    cached_free: u32,
    /// Where they began after the hints were last cleared.
    init_migrate: u32,
    init_free: u32,
    /// The scanners met in a direct compaction: the hints are out of date.
    flush_hints: bool,
    considered: u32,
    defer_shift: u8,
    /// The lowest order that failed.
    order_failed: u8,
}

impl Positions {
    pub fn new(start: u32, end: u32) -> Self {
        let mut new = Self {
            cached_migrate: [0; 2],
            cached_free: 0,
            init_migrate: 0,
            init_free: 0,
            flush_hints: false,
            considered: 0,
            defer_shift: 0,
            order_failed: 0,
        };
        new.reset(start, end);
        new
    }

    /// To both ends of the zone.
    fn reset(&mut self, start: u32, end: u32) {
        self.cached_migrate = [start; 2];
        self.cached_free = end - (1 << BLOCK_ORDER);
    }

    /// A compaction for this order did not help.
    fn defer(&mut self, order: u8) {
        self.considered = 0;
        self.defer_shift = (self.defer_shift + 1).min(MAX_DEFER_SHIFT);
        self.order_failed = self.order_failed.min(order);
    }

    /// Whether to leave it this time.
    fn deferred(&mut self, order: u8) -> bool {
        if order < self.order_failed {
            return false;
        }
        let limit = 1 << self.defer_shift;
        self.considered = (self.considered + 1).min(limit);
        self.considered < limit
    }

    /// A compaction for this order helped; `allocated`: surely.
    fn defer_reset(&mut self, order: u8, allocated: bool) {
        if allocated {
            self.considered = 0;
            self.defer_shift = 0;
        }
        self.order_failed = self.order_failed.max(order + 1);
    }

    /// It is tried again after being put off for the longest time.
    fn restarting(&self, order: u8) -> bool {
        order >= self.order_failed && self.defer_shift == MAX_DEFER_SHIFT && self.considered >= 1 << MAX_DEFER_SHIFT
    }
}

/// Room for what the scanners took aside, kept from one compaction to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    migrate: Vec<u32>,
    free: Vec<u32>,
}

impl Physical {
    /// Compacts. Direct compaction is for node 0 and those that it falls back on, the background's for all nodes.
    pub fn compact(&mut self, how: Compact, mover: &mut dyn Mover) -> Compaction {
        self.compact_for(0, how, mover)
    }

    /// Compacts; directly, for an allocation on this node.
    pub fn compact_for(&mut self, node: u8, how: Compact, mover: &mut dyn Mover) -> Compaction {
        let total = match how {
            Compact::Direct { order } => self.compact_directly(node, order, Mode::SyncLight, mover),
            Compact::Async { order } => self.compact_directly(node, order, Mode::Async, mover),
            Compact::Kcompactd { order } => self.kcompactd(order, mover),
            Compact::Proactive { proactiveness } => self.compact_proactively(proactiveness, mover),
            Compact::Whole => {
                let mut total = Compaction::default();
                for zone in 0..self.zones.len() {
                    self.compact_zone(&mut Control::whole(zone), &mut total, mover);
                }
                total.success = true;
                total
            }
        };
        let counters = &mut self.counters;
        counters.compact_migrate_scanned += total.scanned_migrate;
        counters.compact_free_scanned += total.scanned_free;
        counters.compact_isolated += total.isolated;
        counters.pgmigrate_success += total.migrated;
        counters.pgmigrate_fail += total.failed;
        total
    }

    /// `try_to_compact_pages`, and what its caller makes of the result.
    fn compact_directly(&mut self, node: u8, order: u8, mode: Mode, mover: &mut dyn Mover) -> Compaction {
        let mut total = Compaction::default();
        let mut ran = false;
        for i in 0..self.zonelist(node).len() {
            let zone = usize::from(self.zonelist(node)[i]);
            if self.zones[zone].positions.deferred(order) {
                total.deferred += 1;
                continue;
            }
            let ended = self.compact_zone(&mut Control::direct(zone, order, mode), &mut total, mover);
            ran |= ended != Ended::Skipped;
            let positions = &mut self.zones[zone].positions;
            match ended {
                Ended::Success => {
                    // The allocation that comes next finds it: nobody else is there to take it.
                    positions.defer_reset(order, true);
                    total.success = true;
                    break;
                }
                Ended::Complete | Ended::Partial if mode != Mode::Async => positions.defer(order),
                Ended::Skipped => total.skipped += 1,
                Ended::Complete | Ended::Partial | Ended::NoMemory => {}
            }
        }
        if ran {
            self.counters.compact_stall += 1;
            if total.success {
                self.counters.compact_success += 1;
            } else {
                self.counters.compact_fail += 1;
            }
        }
        total
    }

    /// `kcompactd_do_work` of every node.
    fn kcompactd(&mut self, order: u8, mover: &mut dyn Mover) -> Compaction {
        let mut total = Compaction::default();
        self.counters.compact_daemon_wake += 1;
        for index in 0..self.zones.len() {
            let zone = &mut self.zones[index];
            if zone.positions.deferred(order) {
                total.deferred += 1;
                continue;
            }
            if zone.watermark_ok(order, zone.marks.min, 0) {
                total.success = true;
                continue;
            }
            match self.compact_zone(&mut Control::background(index, order), &mut total, mover) {
                Ended::Success => {
                    self.zones[index].positions.defer_reset(order, false);
                    total.success = true;
                }
                Ended::Complete | Ended::Partial => self.zones[index].positions.defer(order),
                Ended::Skipped => total.skipped += 1,
                Ended::NoMemory => {}
            }
        }
        total
    }

    /// `proactive_compact_node` of every node that needs it.
    fn compact_proactively(&mut self, proactiveness: u8, mover: &mut dyn Mover) -> Compaction {
        let mut total = Compaction {
            success: true,
            ..Compaction::default()
        };
        let low = 100u64.saturating_sub(proactiveness.into()).max(5);
        for node in 0..self.layout.nodes {
            if proactiveness == 0 || self.fragmentation_score(node) <= (low + 10).min(100) {
                total.skipped += 1;
                continue;
            }
            for zone in (0..self.zones.len())
                .filter(|&z| self.zones[z].node == node)
                .collect::<Vec<_>>()
            {
                let ended = self.compact_zone(&mut Control::proactive(zone, low), &mut total, mover);
                total.success &= ended != Ended::NoMemory;
            }
        }
        total
    }

    /// kswapd has nothing more to do and goes to sleep: hints that a direct compaction left behind are cleared (`reset_isolation_suitable`).
    pub fn kswapd_sleeps(&mut self) {
        for zone in 0..self.zones.len() {
            if self.zones[zone].positions.flush_hints {
                self.clear_hints(zone);
            }
        }
    }

    /// Moves one frame to another that was taken aside. `from` is nobody's afterwards. False: its mover refused, and nothing changed.
    fn relocate(&mut self, from: u32, to: u32, mover: &mut dyn Mover) -> bool {
        let word = self.frames.words[from as usize];
        if !mover.moved(owner::unpack(word, 0), Frame(from), Frame(to)) {
            return false;
        }
        let kind = owner::kind(word);
        let class = super::frames::Class::of(kind, 0);
        self.frames.set(to, State::used(0));
        if kind == Kind::Cache {
            self.cache.replace(&mut self.frames, from, to);
        } else {
            self.frames.words[to as usize] = word;
        }
        self.frames.count_used(from, 0, class, false);
        self.frames.count_used(to, 0, class, true);
        true
    }

    /// A single frame that can be moved, by its state and its owner.
    fn is_movable(frames: &Frames, frame: u32) -> bool {
        frames.state(frame) == State::used(0) && owner::kind(frames.words[frame as usize]).moves()
    }
}

/// The type of pages that a compaction is for.
const KCOMPACTD_TYPE: MigrateType = MigrateType::Unmovable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_attempts_that_are_left_out_up_to_64() {
        let mut positions = Positions::new(0, 1024);
        for shift in [1, 2, 3, 4, 5, 6, 6, 6] {
            positions.defer(9);
            let skipped = (0..).take_while(|_| positions.deferred(9)).count();
            assert_eq!(skipped, (1 << shift) - 1);
            assert_eq!(positions.restarting(9), shift == 6);
        }
        assert!(!positions.deferred(8), "a lower order did not fail");
        positions.defer_reset(9, true);
        assert!(!positions.deferred(9) && !positions.deferred(10));
    }
}
