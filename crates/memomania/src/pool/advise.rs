//! Advice: which of it holds on a pool's pages.

use memomania_layout::map::{Piece, FOREIGN, READ_WRITE, SLOT_PAGES};
use memomania_layout::page::Kind;

use super::Pool;
use crate::sys::{self, Result, EINVAL, ENOMEM};

/// MADV_COLLAPSE: huge pages now.
const COLLAPSE: i32 = 25;

impl Pool {
    /// As madvise: goes on after pages that are not in use, and says so in the end.
    pub fn advise(&mut self, start: usize, end: usize, advice: i32) -> Result<()> {
        let mut result = Ok(());
        let mut at = start;
        while at < end {
            let used = self.map.used_until(at, end);
            if used == at {
                result = Err(ENOMEM);
                at = self.free_until(at, end);
                continue;
            }
            while at < used {
                let piece = self.map.piece(at, used);
                at = match piece.kind.is_hugetlb() {
                    true => self.advise_hugetlb(piece, advice)?,
                    false => self.advise_ordinary(piece, advice)?,
                };
            }
        }
        result
    }

    fn advise_ordinary(&mut self, piece: Piece, advice: i32) -> Result<usize> {
        let end = self.map.run(piece.start, piece.end);
        let is_ours = self.map.page(piece.start) & FOREIGN == 0;
        // Which pages it has is what the layout says.
        let is_about_size = matches!(advice, libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE);
        if is_ours && is_about_size {
            return Ok(end);
        }
        if is_ours && advice == COLLAPSE && piece.kind == Kind::Base {
            return Err(EINVAL);
        }
        if self.commits && piece.kind == Kind::Thp && advice == libc::MADV_DONTNEED && is_ours {
            let is_writable = self.map.page(piece.start) & READ_WRITE == READ_WRITE;
            // The allocator gives back what it does not need for now. Parts of huge pages would split them: those are cleared.
            let first = piece.start.next_multiple_of(SLOT_PAGES).min(end);
            let last = (end - end % SLOT_PAGES).max(first);
            if is_writable {
                sys::zero(self.address(piece.start), Self::bytes(piece.start, first));
                sys::zero(self.address(last), Self::bytes(last, end));
                if first < last {
                    sys::madvise(self.address(first), Self::bytes(first, last), advice)?;
                }
                return Ok(end);
            }
        }
        sys::madvise(self.address(piece.start), Self::bytes(piece.start, end), advice)?;
        Ok(end)
    }

    fn advise_hugetlb(&mut self, piece: Piece, advice: i32) -> Result<usize> {
        let Piece { start, end, .. } = piece;
        let (address, bytes) = (self.address(start), Self::bytes(start, end));
        let is_writable = self.map.slot(start).live & READ_WRITE == READ_WRITE;
        match advice {
            // The kernel would give the pages away, and touching them later could fail.
            libc::MADV_DONTNEED | 24 if is_writable => sys::zero(address, bytes),
            libc::MADV_DONTNEED | 24 | libc::MADV_DONTFORK | libc::MADV_WIPEONFORK => {
                let (first, first_end) = self.map.granule(start);
                self.demote(first, first_end)?;
                return Ok(start);
            }
            // Hints, which may be ignored.
            libc::MADV_NORMAL
            | libc::MADV_RANDOM
            | libc::MADV_SEQUENTIAL
            | libc::MADV_WILLNEED
            | libc::MADV_FREE
            | libc::MADV_DOFORK
            | libc::MADV_MERGEABLE
            | libc::MADV_UNMERGEABLE
            | libc::MADV_HUGEPAGE
            | libc::MADV_NOHUGEPAGE
            | libc::MADV_DONTDUMP
            | libc::MADV_DODUMP
            | libc::MADV_KEEPONFORK
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT => {}
            _ => {
                sys::madvise(address, bytes, advice)?;
            }
        }
        Ok(end)
    }
}
