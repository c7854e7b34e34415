//! New memory: ordinary pages mapped, hugetlb pages brought, and what follows where those are short.

use memomania_layout::map::{Page, Piece, DIRTY, FOREIGN, READ_WRITE, USED};
use memomania_layout::page::{Kind, BASE, HUGE};
use memomania_layout::request::flag;
use memomania_layout::settings::Fallback;

use super::{Pool, ANONYMOUS};
use crate::demote;
use crate::report::{self, Event};
use crate::sys::{self, Errno, Result, EINVAL, ENOMEM};

/// Log2 of the page's bytes, in the place where MAP_HUGETLB looks for it.
const HUGE_SHIFT: i32 = 21 << 26;
const GIGANTIC_SHIFT: i32 = 30 << 26;

/// Linux before 5.14 does not know how to populate.
fn old_kernel(error: Errno) -> Result<usize> {
    match error {
        EINVAL => Ok(0),
        error => Err(error),
    }
}

impl Pool {
    /// New memory, all zeros, in a range that is free and suits its protection. On failure the range is free again.
    pub fn map(&mut self, start: usize, end: usize, protection: Page, flags: i32) -> Result<()> {
        let mut at = start;
        while at < end {
            let piece = self.map.piece(at, end);
            let done = match piece.kind.is_hugetlb() {
                true => self.map_hugetlb(piece),
                false => self.map_ordinary(piece, protection, flags),
            };
            match done {
                Ok(page) => at = page,
                Err(error) => {
                    let _ = self.unmap(start, at);
                    return Err(error);
                }
            }
        }
        if flags & flag::MAP_POPULATE != 0 {
            let write = protection as i32 & flag::PROT_WRITE != 0;
            let advice = if write {
                libc::MADV_POPULATE_WRITE
            } else {
                libc::MADV_POPULATE_READ
            };
            // MAP_POPULATE does not fail either when it cannot.
            let _ = sys::madvise(self.address(start), Self::bytes(start, end), advice);
        }
        Ok(())
    }

    fn map_ordinary(&mut self, piece: Piece, protection: Page, flags: i32) -> Result<usize> {
        let Piece { start, end, kind } = piece;
        let (address, bytes) = (self.address(start), Self::bytes(start, end));
        let flags = ANONYMOUS | flags & flag::MAP_NORESERVE;
        let new = sys::mmap(0, bytes, i32::from(protection), flags, -1, 0)?;
        self.place(new, start, end)?;
        Self::advise_kind(address, bytes, kind);
        self.map.take(start, end, protection);
        Ok(end)
    }

    /// Has the kernel use the pages that the kind says. A kernel without THP refuses both, and has base pages.
    pub fn advise_kind(address: usize, bytes: usize, kind: Kind) {
        let advice = match kind {
            Kind::Thp => libc::MADV_HUGEPAGE,
            _ => libc::MADV_NOHUGEPAGE,
        };
        let _ = sys::madvise(address, bytes, advice);
    }

    /// Answers up to where it got; the piece's kind may be another one after that.
    fn map_hugetlb(&mut self, piece: Piece) -> Result<usize> {
        let Piece { start, end, kind } = piece;
        if self.map.slot(start).live == 0 {
            let (first, first_end) = self.map.granule(start);
            let (_, last_end) = self.map.granule(end - 1);
            // All at once, for each call makes a mapping that merges with no other; else one, and we come again.
            let got = self.bring(first, last_end, kind).map(|()| end);
            let got = got.or_else(|_| self.bring(first, first_end, kind).map(|()| end.min(first_end)));
            match got {
                Ok(end) => self.map.take(start, end, READ_WRITE),
                Err(error) => {
                    self.fall_back(first, first_end, kind, error)?;
                    return Ok(start);
                }
            }
            return got;
        }
        let mut at = start;
        while at < end {
            let next = self.map.run(at, end);
            if self.map.page(at) & DIRTY != 0 {
                sys::zero(self.address(at), Self::bytes(at, next));
            }
            at = next;
        }
        self.map.take(start, end, READ_WRITE);
        Ok(end)
    }

    /// Hugetlb pages for whole granules. On failure nothing has changed.
    fn bring(&mut self, start: usize, end: usize, kind: Kind) -> Result<()> {
        let bytes = Self::bytes(start, end);
        let new = self.new_hugetlb(bytes, kind)?;
        self.place(new, start, end)?;
        self.settle_hugetlb(start, end, kind, USED | READ_WRITE)
    }

    /// Hugetlb pages somewhere outside of the pool.
    pub(super) fn new_hugetlb(&self, bytes: usize, kind: Kind) -> Result<usize> {
        let shift = if kind == Kind::Gigantic {
            GIGANTIC_SHIFT
        } else {
            HUGE_SHIFT
        };
        let flags = ANONYMOUS | flag::MAP_HUGETLB | shift;
        let new = sys::mmap(0, bytes, flag::PROT_READ | flag::PROT_WRITE, flags, -1, 0)?;
        // The kernel keeps as many pages for us, but may not let us have them (a limit of the control group, or of nodes): touching would kill.
        if self.map.usage().live_peak[kind as usize] == 0 {
            let populated = sys::madvise(new, HUGE, libc::MADV_POPULATE_WRITE).or_else(old_kernel);
            populated.inspect_err(|_| {
                let _ = sys::munmap(new, bytes);
            })?;
        }
        Ok(new)
    }

    /// Moves new memory over a range of the pool, which it was made outside of: a mapping made right there and refused, for want of pages,
    /// leaves a hole, which the kernel may give to another thread's mapping before we close it. A move is refused before anything is unmapped;
    /// should that not be so, the range is not used any more if it may be somebody else's.
    fn place(&mut self, new: usize, start: usize, end: usize) -> Result<()> {
        let bytes = Self::bytes(start, end);
        let placed = demote::place(new, bytes, self.address(start));
        placed.inspect_err(|_| {
            let _ = sys::munmap(new, bytes);
            if !self.seal(start, end) {
                self.map.take(start, end, FOREIGN);
            }
        })
    }

    /// Takes note of hugetlb pages that are there now, which are readable and writable.
    pub(super) fn settle_hugetlb(&mut self, start: usize, end: usize, kind: Kind, live: Page) -> Result<()> {
        let (address, bytes) = (self.address(start), Self::bytes(start, end));
        if kind == Kind::Gigantic {
            // Linux 6.18 may give a forked child zeros instead of its gigantic pages, or nothing: it takes page tables of their level for shared
            // ones. So no child has them: of one made by fork() we see to it that it has a copy, any other one ends when it touches them.
            let _ = sys::madvise(address, bytes, libc::MADV_DONTFORK);
        }
        if live != USED | READ_WRITE {
            sys::mprotect(address, bytes, i32::from(live) & flag::PROT_ALL)?;
        }
        self.map.set_live(start, end, live);
        Ok(())
    }

    /// Pages of this kind are short.
    fn fall_back(&mut self, start: usize, end: usize, kind: Kind, error: Errno) -> Result<()> {
        report::count(Event::short(kind));
        match (self.fallback, kind.smaller()) {
            (Fallback::Smaller, Some(smaller)) => {
                self.map.set_kind(start, end, smaller);
                Ok(())
            }
            _ => {
                if report::first(Event::short(kind)) {
                    sys::tell(format_args!(
                        "no {kind} page for offset {}M of a pool (error {}): out of memory from here on; \
                         reserve more, or use --fallback smaller",
                        start / (1024 * 1024 / BASE),
                        error.0
                    ));
                }
                Err(ENOMEM)
            }
        }
    }
}
