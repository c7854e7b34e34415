//! Tests of physical memory as a whole: scenarios, and random sequences against a shadow that knows what each frame should hold.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use super::{Ask, Layout, Mover, Physical};
use crate::unit::{Frame, Owner, Page, SpaceId, MAX_ORDER};

mod allocation;
mod compaction;
mod planning;
mod random;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// A machine with so many bytes.
pub(super) fn machine(bytes: u64) -> Physical {
    Physical::new(&Layout::of_bytes(bytes), 7)
}

pub(super) fn anonymous(page: u64) -> Owner {
    Owner::Anonymous(SpaceId(NonZeroU16::new(1).unwrap()), Page(page))
}

/// What each frame should hold: its owner, and contents that only its first write gave it.
#[derive(Default)]
pub(super) struct Shadow {
    pub frames: BTreeMap<u32, (Owner, u64)>,
    pub pinned: BTreeSet<u32>,
    pub moves: u64,
    next: u64,
}

impl Mover for Shadow {
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool {
        assert!(
            !matches!(owner, Owner::Kernel | Owner::Reserved(..)),
            "{owner:?} cannot move"
        );
        if self.pinned.contains(&from.0) {
            return false;
        }
        let held = self.frames.remove(&from.0);
        let held = held.unwrap_or_else(|| panic!("{from:?} holds nothing"));
        assert_eq!(held.0, owner, "of {from:?}");
        assert_eq!(self.frames.insert(to.0, held), None, "{to:?} was not free");
        self.moves += 1;
        true
    }
}

impl Shadow {
    /// Allocates, and writes contents into each frame.
    pub fn allocate(&mut self, memory: &mut Physical, order: u8, ask: Ask, owner: Option<Owner>) -> Option<Frame> {
        self.next += 1 << MAX_ORDER;
        let owner = owner.unwrap_or_else(|| anonymous(self.next));
        let frame = memory.allocate(order, ask, owner)?;
        assert_eq!(frame.0 % (1 << order), 0);
        for nth in 0..1 << order {
            let own = match owner {
                Owner::Anonymous(space, page) => Owner::Anonymous(space, Page(page.0 + u64::from(nth))),
                other => other,
            };
            self.next += 1;
            let before = self.frames.insert(frame.0 + nth, (own, self.next));
            assert_eq!(before, None, "{frame:?}+{nth} was not free");
        }
        Some(frame)
    }

    /// Frees the allocation that this frame is part of.
    pub fn free(&mut self, memory: &mut Physical, frame: u32) {
        let (head, order) = head(memory, frame);
        for frame in head..head + (1 << order) {
            self.frames.remove(&frame);
            self.pinned.remove(&frame);
        }
        memory.free(Frame(head), order);
    }

    /// Every frame that should hold something does, with its owner, and no other frame does.
    pub fn agrees(&self, memory: &Physical) {
        for (&frame, (owner, _)) in &self.frames {
            assert_eq!(memory.owner(Frame(frame)), Some(*owner), "of frame {frame}");
        }
        let used = (memory.total_bytes() - memory.free_bytes()) / 4096;
        assert_eq!(used, self.frames.len() as u64);
    }
}

/// The allocation that a frame is part of.
pub(super) fn head(memory: &Physical, frame: u32) -> (u32, u8) {
    let of = |order: u8| {
        let first = frame >> order << order;
        memory
            .order(Frame(first))
            .filter(|&own| own >= order)
            .map(|own| (first, own))
    };
    (0..=MAX_ORDER)
        .find_map(of)
        .unwrap_or_else(|| panic!("{frame} is free"))
}
