//! Compaction (mm/compaction.c of Linux 6.6): free blocks made by migrating pages together.
//!
//! | file | subject |
//! | --- | --- |
//! | this one | who compacts what, and when it is deferred |
//! | `pass` | one zone: the two scanners until they meet or the goal is reached |
//! | `source` | the migrate scanner: pages to migrate, from the bottom |
//! | `target` | the free scanner: places to migrate them to, from the top |
//! | `hints` | blocks that are not worth scanning |
//! | `empty` | evacuating one selected block |
//!
//! Not modelled: contention, pages under writeback, the LRU lists. A page that its mover refuses counts as one that failed to migrate.

use super::frames::State;
use super::owner::OwnerKind;
use super::{owner, Frames, MigrateType, Physical};
use crate::unit::{Frame, Owner};

mod empty;
mod hints;
mod pass;
mod source;
mod target;

pub use empty::Emptied;

use pass::{Control, Ended, Mode};

/// Is told when a frame is migrated.
pub trait Mover {
    /// The contents and the owner of `from` move to `to`, which was free; `from` is free afterwards. False: it cannot move now (pinned), and nothing
    /// changes.
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool;
}

/// A kind of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compact {
    /// Direct compaction for a run of this order: each zone until one is free (COMPACT_PRIO_SYNC_LIGHT).
    Direct {
        /// Its order.
        order: u8,
    },
    /// The same, asynchronous: only in blocks for movable pages, and in no 2^order frames of which one cannot be migrated. It neither counts as a failure
    /// nor defers the next (COMPACT_PRIO_ASYNC: how a huge page fault begins, and all it does unless it is told to try hard).
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

/// The result of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Pages scanned by the migrate scanner.
    pub scanned_migrate: u64,
    /// Pages scanned by the free scanner.
    pub scanned_free: u64,
    /// Pages isolated by either scanner.
    pub isolated: u64,
    /// Pages migrated.
    pub migrated: u64,
    /// Pages that could not be migrated.
    pub failed: u64,
    /// Zones skipped because compaction is deferred there.
    pub deferred: u32,
    /// Zones with nothing to do, or too little free memory to work with.
    pub skipped: u32,
    /// A run of the order is free now; for the other kinds, the scanners met or the goal was reached in every zone.
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

/// Space for what the scanners isolate, kept between compactions.
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
                    // The allocation that comes next finds it: nothing else runs in between.
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

    /// Migrates one frame to another, isolated one. `from` is unowned afterwards. False: its mover refused, and nothing changed.
    fn relocate(&mut self, from: u32, to: u32, mover: &mut dyn Mover) -> bool {
        let word = self.frames.words[from as usize];
        if !mover.moved(owner::unpack(word, 0), Frame(from), Frame(to)) {
            return false;
        }
        let kind = owner::kind(word);
        let class = super::frames::Class::of(kind, 0);
        self.frames.set(to, State::used(0));
        if kind == OwnerKind::Cache {
            self.cache.replace(&mut self.frames, from, to);
        } else {
            self.frames.words[to as usize] = word;
        }
        self.frames.count_used(from, 0, class, false);
        self.frames.count_used(to, 0, class, true);
        true
    }

    /// Whether it is a single movable frame, by its state and its owner.
    fn is_movable(frames: &Frames, frame: u32) -> bool {
        frames.state(frame) == State::used(0) && owner::kind(frames.words[frame as usize]).moves()
    }
}

/// The type of pages that a compaction is for.
const KCOMPACTD_TYPE: MigrateType = MigrateType::Unmovable;
