//! A pool: one reservation of address space, and what is done to parts of it.
//!
//! Free memory of a pool is mapped PROT_NONE, so that touching it ends as it would without the library. Base pages and THP are ordinary
//! mappings laid over that, with the kernel's semantics page by page. Hugetlb pages are there as long as any base page of theirs is in use:
//!
//! - they are always readable and writable, unless one protection was asked for all of a page that is wholly in use;
//! - what is unmapped of one stays readable until it is handed out again, as zeros, or the last part goes;
//! - what the kernel can do only to whole hugetlb pages, and the program wants for a part, is done after the page was replaced by base
//!   pages ([`crate::demote`]).
//!
//! A hugetlb page is reserved in the kernel when it is mapped, so that touching it never fails.

use memomania_layout::layout::Layout;
use memomania_layout::map::{Map, Page, Piece, Slot, DIRTY, FOREIGN, READ_WRITE, SLOT_PAGES, USED};
use memomania_layout::page::{Kind, BASE, GIGANTIC, HUGE};
use memomania_layout::request::flag;
use memomania_layout::settings::Fallback;

use crate::report::{self, Event};
use crate::sys::{self, Errno, Result, EINVAL, ENOMEM};

mod fork;
mod ordinary;

const ANONYMOUS: i32 = flag::MAP_PRIVATE | flag::MAP_ANONYMOUS;
const RESERVED: i32 = ANONYMOUS | flag::MAP_NORESERVE;
/// MADV_COLLAPSE: huge pages now.
const COLLAPSE: i32 = 25;
/// Log2 of the page's bytes, in the place where MAP_HUGETLB looks for it.
const HUGE_SHIFT: i32 = 21 << 26;
const GIGANTIC_SHIFT: i32 = 30 << 26;

/// One pool.
pub struct Pool {
    base: usize,
    pub map: Map<'static>,
    layout: Layout,
    fallback: Fallback,
    /// Memory that was never asked for becomes used when it is made accessible: the heap's, which mimalloc commits so.
    commits: bool,
    /// During a fork: where a copy of gigantic pages is, at the offsets that they have in the pool; else 0.
    shadow: usize,
}

/// How much is reserved and where. Does not change once there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: usize,
    pub end: usize,
}

impl Extent {
    /// Has anything to do with this range.
    pub fn meets(&self, start: usize, end: usize) -> bool {
        start < self.end && self.start < end
    }
}

/// Rounds up to base pages.
pub fn pages(bytes: usize) -> usize {
    bytes.div_ceil(BASE)
}

/// Linux before 5.14 does not know how to populate.
fn old_kernel(error: Errno) -> Result<usize> {
    match error {
        EINVAL => Ok(0),
        error => Err(error),
    }
}

impl Pool {
    /// Reserves address space and what is needed to keep account of it. `bytes` is a whole number of gigabytes.
    pub fn reserve(bytes: usize, layout: Layout, fallback: Fallback, commits: bool) -> Result<Self> {
        let room = sys::mmap(0, bytes + GIGANTIC, 0, RESERVED, -1, 0)?;
        let base = room.next_multiple_of(GIGANTIC);
        if base > room {
            sys::munmap(room, base - room)?;
        }
        if base + bytes < room + bytes + GIGANTIC {
            sys::munmap(base + bytes, room + GIGANTIC - base)?;
        }
        let slots = bytes / HUGE;
        let slot_bytes = slots * size_of::<Slot>();
        let account = sys::mmap(
            0,
            pages(bytes) + slot_bytes,
            flag::PROT_READ | flag::PROT_WRITE,
            RESERVED,
            -1,
            0,
        )?;
        // Huge pages for what is mostly never touched would be a waste.
        let _ = sys::madvise(account, pages(bytes) + slot_bytes, libc::MADV_NOHUGEPAGE);
        // SAFETY: freshly mapped for this alone, never unmapped, zeros, and aligned for both: slots come first.
        let (slot_map, page_map) = unsafe {
            (
                std::slice::from_raw_parts_mut(account as *mut Slot, slots),
                std::slice::from_raw_parts_mut((account + slot_bytes) as *mut Page, pages(bytes)),
            )
        };
        let mut map = Map::new(page_map, slot_map);
        for interval in layout.intervals() {
            let end = interval.end.min(bytes);
            let end = end - end % interval.kind.bytes();
            if interval.kind != Kind::Base && interval.start < end {
                map.set_kind(pages(interval.start), pages(end), interval.kind);
            }
        }
        Ok(Self {
            base,
            map,
            layout,
            fallback,
            commits,
            shadow: 0,
        })
    }

    pub fn extent(&self) -> Extent {
        Extent {
            start: self.base,
            end: self.base + self.map.len() * BASE,
        }
    }

    pub fn address(&self, page: usize) -> usize {
        self.base + page * BASE
    }

    /// The pages of a range of addresses that is in the pool.
    pub fn range(&self, start: usize, end: usize) -> (usize, usize) {
        ((start - self.base) / BASE, pages(end - self.base))
    }

    fn bytes(start: usize, end: usize) -> usize {
        (end - start) * BASE
    }

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
        let flags = ANONYMOUS | flag::MAP_FIXED | flags & flag::MAP_NORESERVE;
        if let Err(error) = sys::mmap(address, bytes, i32::from(protection), flags, -1, 0) {
            self.seal(start, end);
            return Err(error);
        }
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

    /// Hugetlb pages for whole granules.
    fn bring(&mut self, start: usize, end: usize, kind: Kind) -> Result<()> {
        let shift = if kind == Kind::Gigantic {
            GIGANTIC_SHIFT
        } else {
            HUGE_SHIFT
        };
        let flags = ANONYMOUS | flag::MAP_FIXED | flag::MAP_HUGETLB | shift;
        let (address, bytes) = (self.address(start), Self::bytes(start, end));
        if let Err(error) = sys::mmap(address, bytes, flag::PROT_READ | flag::PROT_WRITE, flags, -1, 0) {
            self.seal(start, end);
            return Err(error);
        }
        // The kernel keeps as many pages for us, but may not let us have them (a limit of the control group, or of nodes): touching would kill.
        if self.map.usage().live_peak[kind as usize] == 0 {
            if let Err(error) = sys::madvise(address, HUGE, libc::MADV_POPULATE_WRITE).or_else(old_kernel) {
                self.clear(start, end)?;
                return Err(error);
            }
        }
        if kind == Kind::Gigantic {
            // Linux 6.18 may give a forked child zeros instead of its gigantic pages, or nothing: it takes page tables of their level for shared
            // ones. So no child has them: of one made by fork() we see to it that it has a copy, any other one ends when it touches them.
            let _ = sys::madvise(address, bytes, libc::MADV_DONTFORK);
        }
        self.map.set_live(start, end, USED | READ_WRITE);
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

    /// Makes a range that the kernel may have unmapped the pool's again. What is mapped there stays.
    pub fn seal(&mut self, start: usize, end: usize) {
        let flags = RESERVED | flag::MAP_FIXED_NOREPLACE;
        let sealed = sys::mmap(self.address(start), Self::bytes(start, end), 0, flags, -1, 0);
        // A kernel that does not know the flag (before 4.17) takes the address as a hint.
        if let Some(elsewhere) = sealed.ok().filter(|address| *address != self.address(start)) {
            let _ = sys::munmap(elsewhere, Self::bytes(start, end));
        }
    }

    /// Reserves anew what is there.
    fn clear(&self, start: usize, end: usize) -> Result<()> {
        sys::mmap(
            self.address(start),
            Self::bytes(start, end),
            0,
            RESERVED | flag::MAP_FIXED,
            -1,
            0,
        )
        .map(|_| ())
    }

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

    fn free_until(&self, start: usize, end: usize) -> usize {
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

    /// Says that a range, all of which is on ordinary pages, is now what the program put there at an address of its choice.
    pub fn take_foreign(&mut self, start: usize, end: usize, protection: i32) {
        let page = Page::try_from(protection & flag::PROT_ALL).unwrap_or(0);
        self.map.take(start, end, FOREIGN | page);
    }

    /// Hugetlb pages of this kind that are there, in bytes.
    pub fn hugetlb_bytes(&self, kind: Kind) -> usize {
        self.map.usage().live[kind as usize] * BASE
    }
}
