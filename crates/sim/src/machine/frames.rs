//! Allocating frames and blocks, and telling page tables when a frame moves.

use mega_core::compaction::block::Hpfn;
use mega_core::fault::Effort;
use mega_core::units::REGION_PAGES;

use super::content::Content;
use super::{Machine, Spaces};
use crate::physical::{Ask, Compact, Compaction, DownTo, Mover};
use crate::space::{Sharing, Table};
use crate::tlb::Tlb;
use crate::unit::{Frame, Owner, Page, SpaceId, BLOCK_ORDER};

/// Time from waking kcompactd to its start, in ps. A modelling choice: a scheduling delay.
const KCOMPACTD_DELAY_PS: u64 = 1_000_000_000;

/// Programs' memory: down to the min watermark, then direct reclaim (kswapd above it is not modelled).
const FOR_PROGRAMS: Ask = Ask::MOVABLE.down_to(DownTo::Min);

/// Page cache dropped for a block, in base pages: what compaction needs free (`compaction_suitable`: twice the block, besides the watermark).
const RECLAIMED_FOR_BLOCK: u64 = 2 * REGION_PAGES as u64;

/// Everything that knows where a frame is mapped.
pub(super) struct Moves<'a> {
    pub spaces: &'a mut Spaces,
    pub sharing: &'a Sharing,
    pub content: &'a mut Option<Content>,
    pub tlb: &'a mut Option<Tlb>,
}

/// The entry maps this frame and may map another: the frame is not part of a whole block.
fn movable(table: &Table, index: usize, from: Frame) -> bool {
    table.ptes[index].frame() == Some(from) && table.backing.block() != Some(from.block())
}

impl Moves<'_> {
    fn can(&self, space: SpaceId, page: Page, from: Frame) -> bool {
        let table = self.spaces.get(space).and_then(|s| s.tables.table_of(page.region()));
        table.is_some_and(|table| movable(table, page.index(), from))
    }

    fn remap(&mut self, space: SpaceId, page: Page, to: Frame) {
        let table = self
            .spaces
            .get_mut(space)
            .and_then(|s| s.tables.table_of_mut(page.region()));
        if let Some(table) = table {
            let pte = &mut table.ptes[page.index()];
            *pte = pte.moved_to(to);
        }
        if let Some(tlb) = self.tlb {
            tlb.flush_pages(space.0.get(), page.address(), 1);
        }
    }
}

impl Mover for Moves<'_> {
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool {
        match owner {
            Owner::Kernel | Owner::Reserved(..) => return false,
            Owner::Cache | Owner::Ballast => return true,
            Owner::Anonymous(space, page) => {
                if !self.can(space, page, from) {
                    return false;
                }
                self.remap(space, page, to);
            }
            Owner::Shared(key) => {
                let mappers = self.sharing.mappers(key);
                if mappers.is_empty() || !mappers.iter().all(|(space, page)| self.can(*space, *page, from)) {
                    return false;
                }
                for (space, page) in mappers {
                    self.remap(*space, *page, to);
                }
            }
        }
        if let Some(content) = self.content {
            content.copy(from, to);
        }
        true
    }
}

impl Machine {
    pub(crate) fn with_moves<R>(
        &mut self,
        work: impl FnOnce(&mut crate::physical::Physical, &mut dyn Mover) -> R,
    ) -> R {
        let mut moves = Moves {
            spaces: &mut self.spaces,
            sharing: &self.sharing,
            content: &mut self.content,
            tlb: &mut self.tlb,
        };
        work(&mut self.physical, &mut moves)
    }

    /// Compacts, and charges it.
    pub(crate) fn compact(&mut self, how: Compact) -> Compaction {
        self.compact_for(0, how)
    }

    /// The same; directly, for an allocation on this node.
    fn compact_for(&mut self, node: u8, how: Compact) -> Compaction {
        let done = self.with_moves(|physical, mover| physical.compact_for(node, how, mover));
        let scanned = done.scanned_migrate + done.scanned_free;
        self.charge(scanned * self.prices.compact_scan + done.migrated * self.prices.migrate);
        done
    }

    /// The node that a program's memory comes from: where it runs.
    fn near(&self, owner: Owner) -> Ask {
        let node = match owner {
            Owner::Anonymous(id, _) | Owner::Reserved(id, _) => self.spaces.get(id).map_or(0, |space| space.node),
            Owner::Kernel | Owner::Shared(_) | Owner::Cache | Owner::Ballast => 0,
        };
        FOR_PROGRAMS.on(node)
    }

    /// A frame for this owner, zeroed unless it is to be overwritten. Reclaims and kills if it must; none: even that did not help.
    pub(crate) fn frame(&mut self, owner: Owner, zeroed: bool) -> Option<Frame> {
        let mut tries = 0;
        let ask = self.near(owner);
        let frame = loop {
            if let Some(frame) = self.physical.allocate(0, ask, owner) {
                break frame;
            }
            self.counters.allocstall += 1;
            tries += 1;
            if tries > 64 || !self.reclaim(32) {
                return None;
            }
        };
        if zeroed {
            self.zero(frame);
        }
        Some(frame)
    }

    /// Zeroes a frame, and charges it unless it is prezeroed.
    pub(crate) fn zero(&mut self, frame: Frame) {
        if self.prezeroed > 0 {
            self.prezeroed -= 1;
        } else {
            self.charge(self.prices.zero_base);
        }
        if let Some(content) = &mut self.content {
            content.put(frame, 0);
        }
    }

    /// Zeroes a block, and charges it unless it is prezeroed.
    pub(crate) fn zero_block(&mut self, block: Hpfn) {
        if self.prezeroed >= u64::from(REGION_PAGES) {
            self.prezeroed -= u64::from(REGION_PAGES);
        } else {
            self.charge(self.prices.zero_huge);
        }
        if let Some(content) = &mut self.content {
            let first = Frame::first_of(block).0;
            (first..first + REGION_PAGES).for_each(|frame| content.put(Frame(frame), 0));
        }
    }

    /// A contiguous GB, not zeroed, near this process; `owner` gives each block's owner by its number.
    pub(crate) fn giant_block(&mut self, near: Owner, owner: impl Fn(u32) -> Owner) -> Option<Hpfn> {
        self.charge(self.prices.take_block);
        let ask = self.near(near);
        self.physical.allocate_giant(ask, owner).map(Frame::block)
    }

    /// A block for this owner, not zeroed.
    pub(crate) fn free_block(&mut self, effort: Effort, owner: Owner) -> Option<Hpfn> {
        self.charge(self.prices.take_block);
        let ask = self.near(owner);
        if let Some(frame) = self.physical.allocate(BLOCK_ORDER, ask, owner) {
            return Some(frame.block());
        }
        match effort {
            Effort::Free => return None,
            Effort::Wake => {
                let due = self.now_ps.saturating_add(KCOMPACTD_DELAY_PS);
                self.kcompactd_due_ps.get_or_insert(due);
                self.next_event_ps = self.next_event_ps.min(due);
                return None;
            }
            Effort::Direct | Effort::Hard => {}
        }
        if let Some(idle) = self.policy.moves_idle() {
            if let Some(block) = self.evacuate_idle(idle, owner) {
                return Some(block);
            }
        }
        let order = BLOCK_ORDER;
        self.compact_for(ask.node, Compact::Async { order });
        let mut frame = self.physical.allocate(order, ask, owner);
        if frame.is_none() && effort == Effort::Hard {
            self.compact_for(ask.node, Compact::Direct { order });
            frame = self.physical.allocate(order, ask, owner);
        }
        if frame.is_none() && effort == Effort::Hard && self.drop_cache(RECLAIMED_FOR_BLOCK) {
            self.compact_for(ask.node, Compact::Direct { order });
            frame = self.physical.allocate(order, ask, owner);
        }
        frame.map(Frame::block)
    }

    /// Direct compaction that migrates the pages of reservations idle for so long first (LRBHPS), which avoids the scan. The block of one of
    /// them.
    fn evacuate_idle(&mut self, idle: std::time::Duration, owner: Owner) -> Option<Hpfn> {
        let now_ns = self.now_ps / 1000;
        let idle_ns = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        let ask = self.near(owner);
        for _ in 0..4 {
            let (changed, id, region) = *self.reservations.first()?;
            if now_ns.saturating_sub(changed) < idle_ns {
                return None;
            }
            self.compact_reservation(id, region);
            if let Some(frame) = self.physical.allocate(BLOCK_ORDER, ask, owner) {
                self.physical.compacted_directly();
                return Some(frame.block());
            }
        }
        None
    }

    /// Assigns a block that is allocated as a whole to this owner; of an anonymous one, the pages follow the first.
    pub(super) fn own_block(&mut self, block: Hpfn, owner: Owner) {
        self.physical.set_owner_of_all(Frame::first_of(block), owner);
    }
}
