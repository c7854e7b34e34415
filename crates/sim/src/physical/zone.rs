//! A zone and its buddy allocator, with the fallback between migrate types that keeps unmovable pages together.
//!
//! The rules are those of mm/page_alloc.c since Linux 6.14 (`__rmqueue`, `__rmqueue_claim`, `__rmqueue_steal`, `__free_one_page`): a free run is always
//! on the list of its block's type. An allocation that finds nothing on its own type's lists claims a whole block of another type, from the largest
//! run down, if at least half of the block suits it; only then does it take the smallest run that fits out of a block that keeps another type.

use mega_core::compaction::block::ZoneKind;
use mega_core::units::REGION_PAGES;

use super::frames::{Frames, State};
use super::layout::{Span, Watermarks};
use super::list::List;
use super::pcp::Pcp;
use super::positions::Positions;
use super::MigrateType;
use crate::unit::{BLOCK_ORDER, MAX_ORDER};

/// Number of orders: 0 to 10.
pub(super) const ORDERS: usize = MAX_ORDER as usize + 1;

/// How an allocation fell back, for the counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fallbacks {
    pub claimed: u64,
    pub stolen: u64,
}

/// One zone of one node.
#[derive(Debug)]
pub(super) struct Zone {
    pub node: u8,
    pub kind: ZoneKind,
    pub start: u32,
    pub end: u32,
    /// Pages in the buddy allocator.
    pub free: u64,
    /// Free runs by order and migrate type.
    pub area: [[List; MigrateType::COUNT]; ORDERS],
    /// By migrate type: a bit for each order whose list is not empty.
    pub nonempty: [u16; MigrateType::COUNT],
    pub marks: Watermarks,
    /// Pages reserved against allocations that could use a higher zone of the node.
    pub reserve: u64,
    pub pcp: Pcp,
    pub positions: Positions,
    pub fallbacks: Fallbacks,
}

impl Zone {
    /// A zone without any free memory yet.
    pub fn new(span: &Span, marks: Watermarks, reserve: u64, cpus: u16) -> Self {
        let pages = u64::from(span.end - span.start);
        let lists = |order: usize| [List::new(order as u8); MigrateType::COUNT];
        Self {
            node: span.node,
            kind: span.kind,
            start: span.start,
            end: span.end,
            free: 0,
            area: std::array::from_fn(lists),
            nonempty: [0; MigrateType::COUNT],
            marks,
            reserve,
            pcp: Pcp::new(pages, marks.low, cpus),
            positions: Positions::new(span.start, span.end),
            fallbacks: Fallbacks::default(),
        }
    }

    /// Pages in it.
    pub fn pages(&self) -> u64 {
        u64::from(self.end - self.start)
    }

    /// Frees all of it, lowest addresses first in the lists, as at boot.
    pub fn fill(&mut self, frames: &mut Frames) {
        for frame in (self.start..self.end).step_by(1 << MAX_ORDER) {
            self.add(frames, frame, MAX_ORDER, MigrateType::Movable, true);
            frames.count_free(frame, MAX_ORDER, true);
        }
    }

    /// Whether an allocation of this order may be tried (mm/page_alloc.c, `__zone_watermark_ok`). `kept`: the pages reserved against it.
    pub fn watermark_ok(&self, order: u8, mark: u64, kept: u64) -> bool {
        // One less than the run: the kernel compares so.
        let left = (self.free + 1).saturating_sub(1 << order);
        left > mark + kept && (order == 0 || self.has_free(order))
    }

    /// Whether a run of this order or more is free.
    pub fn has_free(&self, order: u8) -> bool {
        self.nonempty.iter().any(|mask| mask >> order != 0)
    }

    /// Free runs of this order, of any type.
    pub fn runs(&self, order: u8) -> u64 {
        self.area[usize::from(order)]
            .iter()
            .map(|list| u64::from(list.len))
            .sum()
    }

    /// Puts a run on its list.
    pub fn add(&mut self, frames: &mut Frames, frame: u32, order: u8, migrate: MigrateType, tail: bool) {
        frames.set(frame, State::free(order));
        let list = &mut self.area[usize::from(order)][migrate as usize];
        if tail {
            list.push_back(frames, frame);
        } else {
            list.push_front(frames, frame);
        }
        self.nonempty[migrate as usize] |= 1 << order;
        self.free += 1 << order;
    }

    /// Takes a run off its list. It is then unowned: the caller marks it.
    pub fn remove(&mut self, frames: &mut Frames, frame: u32, order: u8, migrate: MigrateType) {
        let list = &mut self.area[usize::from(order)][migrate as usize];
        list.remove(frames, frame);
        if list.len == 0 {
            self.nonempty[migrate as usize] &= !(1 << order);
        }
        self.free -= 1 << order;
    }

    /// Takes a run of this order from the buddy allocator. With `no_fragment`, never a part of a block of another type.
    pub fn take(&mut self, frames: &mut Frames, order: u8, migrate: MigrateType, no_fragment: bool) -> Option<u32> {
        let own = self.smallest(frames, order, migrate);
        let run = own.or_else(|| self.fall_back(frames, order, migrate, no_fragment))?;
        frames.count_free(run, order, false);
        Some(run)
    }

    #[cold]
    fn fall_back(&mut self, frames: &mut Frames, order: u8, migrate: MigrateType, no_fragment: bool) -> Option<u32> {
        let claimed = self.claim(frames, order, migrate, no_fragment);
        claimed.or_else(|| {
            if no_fragment {
                None
            } else {
                self.steal(frames, order, migrate)
            }
        })
    }

    /// The first of the smallest runs that fit, of its own type.
    fn smallest(&mut self, frames: &mut Frames, order: u8, migrate: MigrateType) -> Option<u32> {
        let fitting = self.nonempty[migrate as usize] >> order;
        if fitting == 0 {
            return None;
        }
        let from = order + fitting.trailing_zeros() as u8;
        let run = self.area[usize::from(from)][migrate as usize].first()?;
        self.cut(frames, run, from, order, migrate);
        Some(run)
    }

    /// Takes a run of order `from` off its list, and puts what exceeds order `order` back.
    fn cut(&mut self, frames: &mut Frames, run: u32, from: u8, order: u8, migrate: MigrateType) {
        self.remove(frames, run, from, migrate);
        frames.set(run, State::FREE_TAIL);
        for half in (order..from).rev() {
            self.add(frames, run + (1 << half), half, migrate, false);
        }
    }

    /// The type that a run of exactly this order is to be taken from.
    fn fallback_at(&self, order: u8, migrate: MigrateType) -> Option<MigrateType> {
        let has = |other: &MigrateType| self.nonempty[*other as usize] & 1 << order != 0;
        migrate.fallbacks().into_iter().find(has)
    }

    /// Whether claiming the whole block of a run of this order makes sense (`should_try_claim_block`).
    pub fn claimable(order: u8, migrate: MigrateType) -> bool {
        order >= BLOCK_ORDER / 2 || migrate != MigrateType::Movable
    }

    fn claim(&mut self, frames: &mut Frames, order: u8, migrate: MigrateType, no_fragment: bool) -> Option<u32> {
        let least = if no_fragment { order.max(BLOCK_ORDER) } else { order };
        for from in (least..=MAX_ORDER).rev() {
            if !Self::claimable(from, migrate) {
                return None;
            }
            let Some(other) = self.fallback_at(from, migrate) else {
                continue;
            };
            let run = self.area[usize::from(from)][other as usize].first()?;
            if from >= BLOCK_ORDER {
                // Put on the new type's list and cut there, which is equivalent.
                self.remove(frames, run, from, other);
                set_type(frames, run, from, migrate);
                self.add(frames, run, from, migrate, false);
                self.cut(frames, run, from, order, migrate);
                self.fallbacks.claimed += u64::from(1u32 << (from - BLOCK_ORDER));
                return Some(run);
            }
            if self.claim_block(frames, run, other, migrate) {
                self.fallbacks.claimed += 1;
                return self.smallest(frames, order, migrate);
            }
        }
        None
    }

    /// Claims the block of this run for another type, if half of it suits (`try_to_claim_block`).
    fn claim_block(&mut self, frames: &mut Frames, run: u32, old: MigrateType, new: MigrateType) -> bool {
        let info = *frames.block_of(run);
        let alike = if new == MigrateType::Movable {
            info.movable
        } else if old == MigrateType::Movable {
            // What is not movable may be of either other type: unknown.
            (REGION_PAGES as u16).saturating_sub(info.free + info.movable)
        } else {
            0
        };
        if u32::from(info.free + alike) < REGION_PAGES / 2 {
            return false;
        }
        self.retype_block(frames, run, new);
        true
    }

    /// Moves the free runs of this frame's block to the lists of this type, and makes the block one of them. Only when the block is not part of
    /// a larger free run.
    pub fn retype_block(&mut self, frames: &mut Frames, frame: u32, new: MigrateType) {
        let first = frame / REGION_PAGES * REGION_PAGES;
        let old = frames.block_of(first).migrate;
        if old == new {
            return;
        }
        let mut at = first;
        while at < first + REGION_PAGES {
            let state = frames.state(at);
            if state.is_free() {
                self.remove(frames, at, state.order(), old);
                self.add(frames, at, state.order(), new, false);
                at += 1 << state.order();
            } else {
                at += 1;
            }
        }
        frames.block_of_mut(first).migrate = new;
    }

    fn steal(&mut self, frames: &mut Frames, order: u8, migrate: MigrateType) -> Option<u32> {
        let (from, other) = (order..=MAX_ORDER).find_map(|o| Some((o, self.fallback_at(o, migrate)?)))?;
        let run = self.area[usize::from(from)][other as usize].first()?;
        self.cut(frames, run, from, order, other);
        self.fallbacks.stolen += 1;
        Some(run)
    }

    /// Frees a run, merging it with its buddies. To the front of its list, or to the back if it is likely to be merged soon
    /// (`__free_one_page`, `buddy_merge_likely`).
    pub fn give(&mut self, frames: &mut Frames, frame: u32, order: u8) {
        frames.count_free(frame, order, true);
        let migrate = frames.block_of(frame).migrate;
        let (mut run, mut order) = (frame, order);
        frames.mark(run, order, State::FREE_TAIL, State::FREE_TAIL);
        while order < MAX_ORDER {
            let buddy = run ^ (1 << order);
            if frames.state(buddy) != State::free(order) {
                break;
            }
            let theirs = frames.block_of(buddy).migrate;
            self.remove(frames, buddy, order, theirs);
            frames.set(buddy, State::FREE_TAIL);
            if theirs != migrate {
                set_type(frames, buddy, order, migrate);
            }
            run &= buddy;
            order += 1;
        }
        let above = run & !(1 << order);
        let uncle = above ^ (1 << (order + 1));
        let soon = order + 1 < MAX_ORDER && frames.state(uncle) == State::free(order + 1);
        self.add(frames, run, order, migrate, soon);
    }

    /// Isolates a given free run, if that leaves more than the min watermark (`__isolate_free_page`).
    pub fn isolate(&mut self, frames: &mut Frames, run: u32, order: u8) -> bool {
        if !self.watermark_ok(0, self.marks.min + (1 << order), 0) {
            return false;
        }
        self.isolate_always(frames, run, order);
        if order + 1 >= BLOCK_ORDER {
            // Mostly free: it is for movable pages from now on.
            self.retype_block(frames, run, MigrateType::Movable);
        }
        true
    }

    /// The same, whatever it leaves, and without a change of type.
    pub fn isolate_always(&mut self, frames: &mut Frames, run: u32, order: u8) {
        let migrate = frames.block_of(run).migrate;
        self.remove(frames, run, order, migrate);
        frames.count_free(run, order, false);
        frames.mark(run, order, State::ISOLATED, State::ISOLATED);
    }
}

/// Sets the type of the blocks of a run of a block or more.
fn set_type(frames: &mut Frames, run: u32, order: u8, migrate: MigrateType) {
    for i in 0..1u32 << (order - BLOCK_ORDER) {
        frames.block_of_mut(run + i * REGION_PAGES).migrate = migrate;
    }
}
