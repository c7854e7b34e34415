//! Which pages of a pool are in use, with which protection, and where there is room.
//!
//! One byte for each base page, and for each slot of 2 MB how many pages are in use, what backs it and whether hugetlb pages are there now.
//! The memory for both is the caller's and begins as zeros, which means: everything free, on base pages. A gigantic page has 512 slots that
//! are always alike.

use crate::page::{Kind, BASE, GIGANTIC, HUGE};

/// Base pages of a slot.
pub const SLOT_PAGES: usize = HUGE / BASE;
/// Slots of a gigantic page.
pub const GIGANTIC_SLOTS: usize = GIGANTIC / HUGE;

/// What is known of one base page.
pub type Page = u8;
/// The page is in use; the lowest three bits are its protection.
pub const USED: Page = 0x80;
/// In use by something that the pool did not make, at an address that the program chose.
pub const FOREIGN: Page = 0x40;
/// Free, and with old content that must be cleared before it is used again.
pub const DIRTY: Page = 0x08;
/// The bits of the protection.
pub const PROTECTION: Page = 0x07;
/// Readable and writable.
pub const READ_WRITE: Page = 0x03;

/// What is known of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Slot {
    /// Pages in use.
    pub used: u16,
    /// A [`Kind`]'s number.
    pub kind: u8,
    /// 0, or [`USED`] and a protection while there are hugetlb pages here.
    pub live: u8,
    /// 0, or what `live` was and the kind's number at bit 3, while base pages stand in for hugetlb pages during a fork.
    lent: u8,
}

/// Where a [`Slot`] has the kind of what is lent.
const LENT_KIND: u8 = 3;

/// How much of a pool is in use, in base pages, by [`Kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Usage {
    /// Pages in use.
    pub used: [usize; 4],
    /// The most that were.
    pub peak: [usize; 4],
    /// Pages of hugetlb that are there, in use or not.
    pub live: [usize; 4],
    /// The most that were.
    pub live_peak: [usize; 4],
}

/// The map of a pool. Positions are numbers of base pages from its beginning.
#[derive(Debug)]
pub struct Map<'a> {
    pages: &'a mut [Page],
    slots: &'a mut [Slot],
    /// No page below is free.
    lowest: usize,
    usage: Usage,
}

/// Pages of one piece of a range that is dealt with as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First page.
    pub start: usize,
    /// Page after the last.
    pub end: usize,
    /// What backs it.
    pub kind: Kind,
}

impl<'a> Map<'a> {
    /// Over memory that is all zeros, or that a map was over before. There is a slot for each 512 pages.
    pub fn new(pages: &'a mut [Page], slots: &'a mut [Slot]) -> Self {
        let count = pages.len().min(slots.len() * SLOT_PAGES) / SLOT_PAGES;
        Self {
            pages: &mut pages[..count * SLOT_PAGES],
            slots: &mut slots[..count],
            lowest: 0,
            usage: Usage::default(),
        }
    }

    /// How much is in use.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Pages of the pool.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// There is no pool.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// What is known of a page.
    pub fn page(&self, page: usize) -> Page {
        self.pages[page]
    }

    /// What is known of the slot that a page is in.
    pub fn slot(&self, page: usize) -> Slot {
        self.slots[page / SLOT_PAGES]
    }

    /// What backs a page.
    pub fn kind(&self, page: usize) -> Kind {
        Kind::from_number(self.slot(page).kind)
    }

    /// The pages of the huge or gigantic page that this page is in; of a slot where it is in none.
    pub fn granule(&self, page: usize) -> (usize, usize) {
        let pages = match self.kind(page) {
            Kind::Gigantic => GIGANTIC / BASE,
            _ => SLOT_PAGES,
        };
        let start = page - page % pages;
        (start, start + pages)
    }

    /// Sets what backs the slots from one page up to another.
    pub fn set_kind(&mut self, start: usize, end: usize, kind: Kind) {
        for slot in &mut self.slots[start / SLOT_PAGES..end / SLOT_PAGES] {
            let used = usize::from(slot.used);
            self.usage.used[Kind::from_number(slot.kind) as usize] -= used;
            self.usage.used[kind as usize] += used;
            slot.kind = kind as u8;
        }
        self.remember_peaks();
    }

    /// Sets whether there are hugetlb pages, and with which protection. Before the kind changes to one that is none, they must be gone.
    pub fn set_live(&mut self, start: usize, end: usize, live: u8) {
        for slot in &mut self.slots[start / SLOT_PAGES..end / SLOT_PAGES] {
            let count = &mut self.usage.live[Kind::from_number(slot.kind) as usize];
            match (slot.live != 0, live != 0) {
                (false, true) => *count += SLOT_PAGES,
                (true, false) => *count -= SLOT_PAGES,
                _ => {}
            }
            slot.live = live;
        }
        self.remember_peaks();
    }

    /// Says that base pages stand in for the hugetlb pages of a granule, which were of this kind and `live`; or, with `None`, that they do not
    /// any more.
    pub fn set_lent(&mut self, start: usize, end: usize, lent: Option<(Kind, u8)>) {
        for slot in &mut self.slots[start / SLOT_PAGES..end / SLOT_PAGES] {
            slot.lent = lent.map_or(0, |(kind, live)| live | (kind as u8) << LENT_KIND);
        }
    }

    /// The next granule from a page on for whose hugetlb pages base pages stand in, its kind and what `live` was.
    pub fn next_lent(&self, from: usize) -> Option<(usize, usize, Kind, u8)> {
        let first = from.div_ceil(SLOT_PAGES);
        let at = first + self.slots[first..].iter().position(|slot| slot.lent != 0)?;
        let lent = self.slots[at].lent;
        let kind = Kind::from_number(lent >> LENT_KIND & 0x3);
        let start = at * SLOT_PAGES;
        Some((start, start + kind.bytes() / BASE, kind, lent & (USED | PROTECTION)))
    }

    fn remember_peaks(&mut self) {
        for kind in Kind::ALL {
            let kind = kind as usize;
            self.usage.peak[kind] = self.usage.peak[kind].max(self.usage.used[kind]);
            self.usage.live_peak[kind] = self.usage.live_peak[kind].max(self.usage.live[kind]);
        }
    }

    /// Pages in use of the slots from one page up to another.
    pub fn used(&self, start: usize, end: usize) -> usize {
        let slots = &self.slots[start / SLOT_PAGES..end.div_ceil(SLOT_PAGES)];
        slots.iter().map(|slot| usize::from(slot.used)).sum()
    }

    /// Cuts a range where what backs it changes. Hugetlb granules that are there are not put together with those that are not.
    pub fn piece(&self, start: usize, end: usize) -> Piece {
        let key = |page: usize| {
            let slot = self.slot(page);
            (
                slot.kind,
                if Kind::from_number(slot.kind).is_hugetlb() {
                    slot.live
                } else {
                    0
                },
            )
        };
        let first = key(start);
        let mut cut = (start / SLOT_PAGES + 1) * SLOT_PAGES;
        while cut < end && key(cut) == first {
            cut += SLOT_PAGES;
        }
        Piece {
            start,
            end: cut.min(end),
            kind: Kind::from_number(first.0),
        }
    }

    /// The end of the run of pages that are alike, from `start` and up to `end` at most.
    pub fn run(&self, start: usize, end: usize) -> usize {
        let first = self.pages[start];
        let rest = &self.pages[start..end];
        start + rest.iter().position(|page| *page != first).unwrap_or(rest.len())
    }

    /// No page of the range is in use.
    pub fn is_free(&self, start: usize, end: usize) -> bool {
        self.pages[start..end].iter().all(|page| page & USED == 0)
    }

    /// The end of the run of pages in use from `start`, up to `end` at most.
    pub fn used_until(&self, start: usize, end: usize) -> usize {
        let rest = &self.pages[start..end];
        start + rest.iter().position(|page| page & USED == 0).unwrap_or(rest.len())
    }

    /// A slot in which new memory can be: hugetlb pages only if `readable_writable`, and if those that are there are so, too.
    fn suits(slot: Slot, readable_writable: bool) -> bool {
        let plain = !Kind::from_number(slot.kind).is_hugetlb();
        plain || (readable_writable && (slot.live == 0 || slot.live == USED | READ_WRITE))
    }

    /// New memory with this protection can be in all of the range.
    pub fn range_suits(&self, start: usize, end: usize, protection: Page) -> bool {
        let slots = &self.slots[start / SLOT_PAGES..end.div_ceil(SLOT_PAGES)];
        slots.iter().all(|slot| Self::suits(*slot, protection == READ_WRITE))
    }

    /// The lowest free range of so many pages in which memory with this protection can be.
    pub fn find(&self, pages: usize, protection: Page) -> Option<usize> {
        let readable_writable = protection == READ_WRITE;
        let mut begin = self.lowest;
        let mut at = self.lowest;
        while at < self.pages.len() {
            let slot = self.slots[at / SLOT_PAGES];
            let next = (at / SLOT_PAGES + 1) * SLOT_PAGES;
            if usize::from(slot.used) == SLOT_PAGES || !Self::suits(slot, readable_writable) {
                begin = next;
            } else if slot.used > 0 {
                for (page, known) in self.pages[at..next].iter().enumerate() {
                    if known & USED != 0 {
                        begin = at + page + 1;
                    } else if at + page + 1 - begin >= pages {
                        return Some(begin);
                    }
                }
            }
            if next > begin && next - begin >= pages {
                return Some(begin);
            }
            at = next;
        }
        None
    }

    /// Says what the pages of a range are. Counts what is in use.
    fn set(&mut self, start: usize, end: usize, page: impl Fn(Page) -> Page) {
        let mut at = start;
        while at < end {
            let cut = ((at / SLOT_PAGES + 1) * SLOT_PAGES).min(end);
            let slot = &mut self.slots[at / SLOT_PAGES];
            let before = usize::from(slot.used);
            for known in &mut self.pages[at..cut] {
                let old = *known;
                *known = page(old);
                match (old & USED != 0, *known & USED != 0) {
                    (false, true) => slot.used += 1,
                    (true, false) => slot.used -= 1,
                    _ => {}
                }
            }
            let used = &mut self.usage.used[Kind::from_number(slot.kind) as usize];
            *used = *used + usize::from(slot.used) - before;
            at = cut;
        }
        self.remember_peaks();
    }

    /// Pages become used, with this protection and these marks.
    pub fn take(&mut self, start: usize, end: usize, page: Page) {
        self.set(start, end, |_| USED | page);
        if start <= self.lowest {
            self.lowest = self.lowest.max(end);
        }
    }

    /// Pages in use get another protection.
    pub fn protect(&mut self, start: usize, end: usize, protection: Page) {
        self.set(start, end, |old| match old & USED {
            0 => old,
            _ => (old & !PROTECTION) | (protection & PROTECTION),
        });
    }

    /// Pages become free; those that were in use keep their content if `dirty`.
    pub fn free(&mut self, start: usize, end: usize, dirty: bool) {
        self.set(start, end, |old| match (dirty, old & USED != 0) {
            (true, true) => DIRTY,
            (true, false) => old,
            (false, _) => 0,
        });
        self.lowest = self.lowest.min(start);
    }

    /// Free pages of the range have no old content.
    pub fn clean(&mut self, start: usize, end: usize) {
        self.set(start, end, |old| old & !DIRTY);
    }
}

#[cfg(test)]
mod tests;
