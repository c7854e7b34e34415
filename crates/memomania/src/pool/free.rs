//! Memory freed: ordinary pages at once, hugetlb pages with the last part of them that is in use.

use memomania_layout::map::{Map, SLOT_PAGES};
use memomania_layout::page::{BASE, HUGE};

use super::Pool;
use crate::sys::Result;

impl Pool {
    /// Frees a range; what is free already stays so.
    pub fn unmap(&mut self, start: usize, end: usize) -> Result<()> {
        let mut at = start;
        while at < end {
            let piece = self.map.piece(at, end);
            if piece.kind.is_hugetlb() {
                if self.map.slot(at).live != 0 {
                    self.map.free(piece.start, piece.end, true);
                    self.give_back(piece.start, piece.end)?;
                }
            } else if !self.map.is_free(piece.start, piece.end) {
                self.clear(piece.start, piece.end)?;
                self.map.free(piece.start, piece.end, false);
                self.restore_kind(piece.start, piece.end);
            }
            at = piece.end;
        }
        Ok(())
    }

    /// Gives back hugetlb pages of which nothing is in use. The range is a piece.
    fn give_back(&mut self, start: usize, end: usize) -> Result<()> {
        let mut at = self.map.granule(start).0;
        while at < end {
            let from = at;
            while at < end && self.map.used(at, self.map.granule(at).1) == 0 {
                at = self.map.granule(at).1;
            }
            if from < at {
                self.clear(from, at)?;
                self.map.set_live(from, at, 0);
                self.map.clean(from, at);
            } else {
                at = self.map.granule(at).1;
            }
        }
        self.restore_kind(start, end);
        Ok(())
    }

    /// Granules that are wholly free are again what the layout says: pages may have become free meanwhile.
    fn restore_kind(&mut self, start: usize, end: usize) {
        let mut at = start - start % SLOT_PAGES;
        while at < end {
            let kind = self.layout.kind_at(at * BASE);
            let step = kind.bytes().max(HUGE) / BASE;
            let first = at - at % step;
            let last = first + step;
            if self.map.kind(at) != kind {
                let is_free = last <= self.map.len() && self.map.used(first, last) == 0;
                let is_bare = |map: &Map<'_>| (first..last).step_by(SLOT_PAGES).all(|page| map.slot(page).live == 0);
                if is_free && is_bare(&self.map) {
                    self.map.set_kind(first, last, kind);
                }
            }
            at = last;
        }
    }
}
