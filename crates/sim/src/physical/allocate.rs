//! Allocating and freeing frames, and their owners.

use mega_core::units::{BASE_PAGE_BYTES, REGION_PAGES};

use super::frames::{Class, State};
use super::owner::{self, OwnerKind};
use super::{cache, MigrateType, Physical};
use crate::unit::{Frame, Owner, BLOCK_ORDER, MAX_ORDER};

/// How far below the watermarks an allocation may go in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownTo {
    /// To the low watermark: below it kswapd is woken.
    Low,
    /// To the min watermark: below it the allocation has to reclaim.
    Min,
    /// To half of it: allocations that must not wait (GFP_ATOMIC).
    HalfMin,
    /// To the last page: allocations that free memory (PF_MEMALLOC).
    Nothing,
}

/// The kind of memory asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Its migrate type.
    pub migrate: MigrateType,
    /// The preferred node. An unknown node counts as the first.
    pub node: u8,
    /// How far down it may go.
    pub down_to: DownTo,
}

impl Ask {
    /// For a program or the page cache: movable, from node 0, down to the low watermark.
    pub const MOVABLE: Self = Self {
        migrate: MigrateType::Movable,
        node: 0,
        down_to: DownTo::Low,
    };
    /// For the kernel: unmovable, from node 0, down to the low watermark.
    pub const UNMOVABLE: Self = Self {
        migrate: MigrateType::Unmovable,
        ..Self::MOVABLE
    };

    /// The same on this node.
    #[must_use]
    pub const fn on(self, node: u8) -> Self {
        Self { node, ..self }
    }

    /// The same, down to this mark.
    #[must_use]
    pub const fn down_to(self, down_to: DownTo) -> Self {
        Self { down_to, ..self }
    }
}

impl Physical {
    /// A run of 2^`order` frames, aligned to its size, from the free lists only: no reclaim, no compaction. `owner` owns all of them; with
    /// [`Owner::Anonymous`] it names the first's page, and the others have the pages that follow. None: no free run that `ask` allows, or an order
    /// above 10.
    pub fn allocate(&mut self, order: u8, ask: Ask, owner: Owner) -> Option<Frame> {
        if order > MAX_ORDER {
            return None;
        }
        let mut run = self.take_listed(order, ask, DownTo::Low);
        if run.is_none() && ask.down_to != DownTo::Low {
            run = self.take_listed(order, ask, ask.down_to);
        }
        let run = run?;
        self.occupy(run, order, owner);
        Some(Frame(run))
    }

    /// The zones by preference, down to one mark (mm/page_alloc.c, `get_page_from_freelist`).
    fn take_listed(&mut self, order: u8, ask: Ask, down_to: DownTo) -> Option<u32> {
        // The node's lower zone is preferred to breaking up a block of another type in its higher one (`alloc_flags_nofragment`).
        let list = self.zonelist(ask.node);
        let node_of = |at: usize| list.get(at).map(|&zone| self.zones[usize::from(zone)].node);
        let node = node_of(0);
        let has_lower = node_of(1) == node;
        for no_fragment in [true, false] {
            if no_fragment && !has_lower {
                continue;
            }
            for i in 0..self.zonelist(ask.node).len() {
                let index = usize::from(self.zonelist(ask.node)[i]);
                let zone = &mut self.zones[index];
                if no_fragment && Some(zone.node) != node {
                    break;
                }
                let mark = match down_to {
                    DownTo::Low => zone.marks.low,
                    DownTo::Min => zone.marks.min,
                    DownTo::HalfMin => zone.marks.min / 2,
                    DownTo::Nothing => 0,
                };
                let kept = if down_to == DownTo::Nothing { 0 } else { zone.reserve };
                if !zone.watermark_ok(order, mark, kept) {
                    continue;
                }
                let run = zone.get(&mut self.frames, order, ask.migrate, no_fragment);
                if run.is_some() {
                    return run;
                }
            }
        }
        None
    }

    /// Makes an unowned run an allocation.
    pub(super) fn occupy(&mut self, run: u32, order: u8, owner: Owner) {
        self.frames.mark(run, order, State::used(order), State::TAIL);
        let kind = OwnerKind::from(owner);
        self.frames.count_used(run, order, Class::of(kind, order), true);
        if kind == OwnerKind::Cache {
            self.cache.push(&mut self.frames, run, order);
        } else {
            *self.frames.word_mut(run, order) = owner::pack(owner);
        }
    }

    /// Reverts [`Physical::occupy`]; the run is then unowned.
    pub(super) fn vacate(&mut self, run: u32, order: u8) {
        if self.frames.state(run).is_mixed() {
            for frame in run..run + (1 << order) {
                let kind = owner::kind(self.frames.words[frame as usize]);
                self.frames.block_of_mut(frame).count(Class::of(kind, order), -1);
            }
            return;
        }
        let kind = owner::kind(self.frames.word(run, order));
        self.frames.count_used(run, order, Class::of(kind, order), false);
        if kind == OwnerKind::Cache {
            self.cache.remove(&mut self.frames, run, order);
        }
    }

    /// Frees an allocation, whole, by its first frame. Ignores anything else, which is the caller's error.
    pub fn free(&mut self, frame: Frame, order: u8) {
        let state = self.frames.state(frame.0);
        if !state.is_used() || state.order() != order {
            debug_assert!(false, "{frame:?} is not the first of an allocation of order {order}");
            return;
        }
        self.vacate(frame.0, order);
        let zone = self.zone_of(frame.0);
        self.zones[zone].put(&mut self.frames, frame.0, order);
    }

    /// The order of the allocation that this frame is the first of. None: it is free, or within an allocation.
    #[must_use]
    pub fn order(&self, frame: Frame) -> Option<u8> {
        let state = self.frames.state(frame.0);
        state.is_used().then(|| state.order())
    }

    /// The owner of a frame. None: it is free, or no memory.
    #[must_use]
    pub fn owner(&self, frame: Frame) -> Option<Owner> {
        let (first, state) = self.frames.head(frame.0);
        if !state.is_used() {
            return None;
        }
        Some(if state.is_mixed() {
            owner::unpack(self.frames.words[frame.0 as usize], 0)
        } else {
            owner::unpack(self.frames.word(first, state.order()), frame.0 - first)
        })
    }

    /// Gives one frame another owner. A free frame stays free.
    pub fn set_owner(&mut self, frame: Frame, owner: Owner) {
        let (first, state) = self.frames.head(frame.0);
        if !state.is_used() {
            debug_assert!(false, "{frame:?} is free");
            return;
        }
        let order = state.order();
        if order == 0 {
            self.vacate(first, 0);
            self.occupy(first, 0, owner);
            return;
        }
        if !state.is_mixed() {
            if self.owner(frame) == Some(owner) {
                return;
            }
            self.write_owners(first, order);
            self.frames.set(first, State::mixed(order));
        }
        let word = &mut self.frames.words[frame.0 as usize];
        let old = owner::kind(*word);
        *word = if owner == Owner::Cache {
            cache::UNLISTED
        } else {
            owner::pack(owner)
        };
        let info = self.frames.block_of_mut(frame.0);
        info.count(Class::of(old, order), -1);
        info.count(Class::of(owner.into(), order), 1);
    }

    /// Gives a whole allocation, by its first frame, another owner, as [`Physical::allocate`] does. Cheaper than frame by frame.
    pub fn set_owner_of_all(&mut self, frame: Frame, owner: Owner) {
        let state = self.frames.state(frame.0);
        if !state.is_used() {
            debug_assert!(false, "{frame:?} is not the first of an allocation");
            return;
        }
        self.vacate(frame.0, state.order());
        self.occupy(frame.0, state.order(), owner);
    }

    /// Writes the owner of each frame of a run into its own word, and takes the run off the page cache's list.
    fn write_owners(&mut self, run: u32, order: u8) {
        let word = self.frames.word(run, order);
        if owner::kind(word) == OwnerKind::Cache {
            self.cache.remove(&mut self.frames, run, order);
            self.frames.words[run as usize..(run + (1 << order)) as usize].fill(cache::UNLISTED);
            return;
        }
        for (nth, word_of) in (0..1u32 << order).zip(&mut self.frames.words[run as usize..]) {
            *word_of = owner::pack(owner::unpack(word, nth));
        }
    }

    /// Splits an allocation, by its first frame, into single frames that are freed separately. True: it was split.
    pub fn split(&mut self, block: Frame) -> bool {
        let state = self.frames.state(block.0);
        if !state.is_used() {
            debug_assert!(false, "{block:?} is not the first of an allocation");
            return false;
        }
        let order = state.order();
        if order == 0 {
            return true;
        }
        if !state.is_mixed() {
            self.write_owners(block.0, order);
        }
        for frame in block.0..block.0 + (1 << order) {
            let kind = owner::kind(self.frames.words[frame as usize]);
            let info = self.frames.block_of_mut(frame);
            info.count(Class::of(kind, order), -1);
            info.count(Class::of(kind, 0), 1);
            self.frames.set(frame, State::used(0));
            if kind == OwnerKind::Cache {
                self.cache.push(&mut self.frames, frame, 0);
            }
        }
        true
    }

    /// Joins the 512 single allocated frames of a block into one allocation: promotion in place. The owners stay. False: some frame is free or part
    /// of a larger allocation, and nothing was changed.
    pub fn join(&mut self, block: Frame) -> bool {
        let (first, end) = (block.0, block.0.saturating_add(REGION_PAGES));
        let single = |frame: u32| self.frames.state(frame) == State::used(0);
        if first % REGION_PAGES != 0 || !(first..end).all(single) {
            return false;
        }
        let kind_of = |this: &Self, frame: u32| owner::kind(this.frames.words[frame as usize]);
        let word = self.frames.words[first as usize];
        let follows = |frame: u32| {
            let expected = owner::pack(owner::unpack(word, frame - first));
            owner::kind(word) != OwnerKind::Cache && self.frames.words[frame as usize] == expected
        };
        let uniform = (first..end).all(follows);
        for frame in first..end {
            let kind = kind_of(self, frame);
            if kind == OwnerKind::Cache {
                self.cache.remove(&mut self.frames, frame, 0);
                self.frames.words[frame as usize] = cache::UNLISTED;
            }
            let info = self.frames.block_of_mut(frame);
            info.count(Class::of(kind, 0), -1);
            info.count(Class::of(kind, BLOCK_ORDER), 1);
        }
        let state = if uniform {
            State::used(BLOCK_ORDER)
        } else {
            State::mixed(BLOCK_ORDER)
        };
        self.frames.mark(first, BLOCK_ORDER, state, State::TAIL);
        if uniform {
            *self.frames.word_mut(first, BLOCK_ORDER) = word;
        }
        true
    }

    /// Drains the per-CPU lists, so that their pages can merge.
    pub fn drain(&mut self) {
        for zone in &mut self.zones {
            zone.drain(&mut self.frames);
        }
    }

    /// All memory, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.zones.iter().map(|zone| zone.pages() * BASE_PAGE_BYTES).sum()
    }

    /// Free memory, in bytes, per-CPU lists included.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let free = |zone: &super::Zone| (zone.free + zone.pcp.pages) * BASE_PAGE_BYTES;
        self.zones.iter().map(free).sum()
    }

    /// Free memory on per-CPU lists, in bytes: part of [`Physical::free_bytes`], unusable for anything larger until drained.
    #[must_use]
    pub fn listed_bytes(&self) -> u64 {
        self.zones.iter().map(|zone| zone.pcp.pages * BASE_PAGE_BYTES).sum()
    }

    /// What a new program could use without swapping, in bytes: free memory and page cache, less the kernel's reserves (MemAvailable: mm/show_mem.c,
    /// `si_mem_available`).
    #[must_use]
    pub fn available_bytes(&self) -> u64 {
        let kept = |zone: &super::Zone| (zone.marks.high + zone.reserve).min(zone.pages());
        let kept: u64 = self.zones.iter().map(kept).sum();
        let low: u64 = self.zones.iter().map(|zone| zone.marks.low).sum();
        let free: u64 = self.zones.iter().map(|zone| zone.free + zone.pcp.pages).sum();
        let cache = self.cache.pages();
        (free.saturating_sub(kept) + cache - low.min(cache / 2)) * BASE_PAGE_BYTES
    }

    /// Free blocks available as such at once, without those on per-CPU lists.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.zones.iter().map(super::Zone::free_blocks).sum()
    }
}

impl super::Zone {
    /// Free blocks in the buddy allocator.
    pub fn free_blocks(&self) -> u64 {
        self.runs(BLOCK_ORDER) + 2 * self.runs(MAX_ORDER)
    }
}
