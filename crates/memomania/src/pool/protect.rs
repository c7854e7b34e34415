//! Protections, and the heap's memory made accessible by them.

use memomania_layout::map::{Page, Piece, READ_WRITE, SLOT_PAGES, USED};
use memomania_layout::page::Kind;
use memomania_layout::request::flag;

use super::Pool;
use crate::sys::{self, Result, EINVAL, ENOMEM};

impl Pool {
    /// As mprotect: protects up to the first page that is not in use.
    pub fn protect(&mut self, start: usize, end: usize, protection: i32) -> Result<()> {
        let new = Page::try_from(protection & flag::PROT_ALL).unwrap_or(0);
        let mut at = start;
        while at < end {
            let used = self.map.used_until(at, end);
            if used == at {
                if !self.commits {
                    return Err(ENOMEM);
                }
                let free = self.free_until(at, end);
                if new != 0 {
                    self.commit(at, free, new)?;
                }
                at = free;
                continue;
            }
            while at < used {
                let piece = self.map.piece(at, used);
                at = match piece.kind.is_hugetlb() {
                    true => self.protect_hugetlb(piece, protection, new)?,
                    false => {
                        sys::mprotect(
                            self.address(piece.start),
                            Self::bytes(piece.start, piece.end),
                            protection,
                        )?;
                        self.map.protect(piece.start, piece.end, new);
                        piece.end
                    }
                };
            }
        }
        Ok(())
    }

    /// Makes free memory of the heap accessible.
    fn commit(&mut self, start: usize, end: usize, protection: Page) -> Result<()> {
        if !self.map.range_suits(start, end, protection) {
            self.make_ordinary(start, end)?;
        }
        // A transparent huge page comes only where all of it is accessible.
        let widen = |page: usize, from: usize, to: usize| {
            let fits = to <= self.map.len() && self.map.kind(page) == Kind::Thp && self.map.is_free(from, to);
            fits && protection == READ_WRITE
        };
        let floor = start - start % SLOT_PAGES;
        let ceiling = end.next_multiple_of(SLOT_PAGES);
        let start = if widen(start, floor, start) { floor } else { start };
        let end = if widen(end - 1, end, ceiling) { ceiling } else { end };
        self.map(start, end, protection, 0)
    }

    pub(super) fn free_until(&self, start: usize, end: usize) -> usize {
        (start..end)
            .find(|page| self.map.page(*page) & USED != 0)
            .unwrap_or(end)
    }

    /// Answers up to where it got.
    fn protect_hugetlb(&mut self, piece: Piece, protection: i32, new: Page) -> Result<usize> {
        let Piece { start, end, .. } = piece;
        if protection & !flag::PROT_ALL & !0x8 != 0 {
            return Err(EINVAL);
        }
        if self.map.slot(start).live == USED | new {
            return Ok(end);
        }
        // As many whole granules as there are, wholly in use; else one is replaced.
        let (first, first_end) = self.map.granule(start);
        let mut whole = start;
        while first == start && whole < end {
            let (from, to) = self.map.granule(whole);
            if to > end || self.map.used(from, to) < to - from {
                break;
            }
            whole = to;
        }
        if whole > start {
            sys::mprotect(self.address(start), Self::bytes(start, whole), protection)?;
            self.map.set_live(start, whole, USED | new);
            self.map.protect(start, whole, new);
            return Ok(whole);
        }
        self.demote(first, first_end)?;
        Ok(start)
    }
}
