//! An area of the storm: memory, and a model of each page's content and protection.

use super::history::{Done, History};
use crate::memory::content::{self, below, mix, Mismatch};
use crate::memory::{base_page_bytes, Mapping, MemoryError, Protection, MADV_COLLAPSE};
use rand_core::RngCore;
use std::ops::Range;

/// The model of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageModel {
    /// Seed of its content; 0 for zero.
    pub seed: u64,
    /// Freed by MADV_FREE and not written since: its content may have become zero.
    pub freed: bool,
    /// Its protection.
    pub protection: Protection,
}

const FRESH: PageModel = PageModel {
    seed: 0,
    freed: false,
    protection: Protection::ReadWrite,
};

/// Memory with its model.
#[derive(Debug)]
pub struct StormArea {
    memory: Mapping,
    pages: Vec<PageModel>,
    locked: bool,
    history: History,
}

/// Advice that changes no content.
pub const HARMLESS: &[(&str, i32)] = &[
    ("hugepage", libc::MADV_HUGEPAGE),
    ("nohugepage", libc::MADV_NOHUGEPAGE),
    ("cold", libc::MADV_COLD),
    ("pageout", libc::MADV_PAGEOUT),
    ("willneed", libc::MADV_WILLNEED),
    ("collapse", MADV_COLLAPSE),
];

/// A corrupt page.
#[derive(Debug, Clone)]
pub struct WrongPage {
    /// Index of the page in its area.
    pub page: usize,
    /// Address of the word.
    pub address: usize,
    /// What was found.
    pub mismatch: Mismatch,
    /// Its model.
    pub model: PageModel,
}

impl StormArea {
    /// A fresh area of `pages` pages.
    pub fn new(pages: usize) -> Result<Self, MemoryError> {
        Ok(Self {
            memory: Mapping::new(pages * base_page_bytes())?,
            pages: vec![FRESH; pages],
            locked: false,
            history: History::default().with(Done::New(pages)),
        })
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Its addresses.
    pub fn addresses(&self) -> Range<usize> {
        self.memory.range()
    }

    /// What was done to it, as a test of this name.
    pub fn source(&self, name: &str) -> String {
        self.history.source(name)
    }

    /// Takes note of a child that has it, too.
    pub fn forked(&mut self) {
        self.history.add(Done::Forked);
    }

    /// A random range of pages, from one page to all of them.
    pub fn draw(&self, rng: &mut impl RngCore) -> Range<usize> {
        let n = self.pages.len() as u64;
        let from = below(rng.next_u64(), n);
        // Mostly short ranges, now and then everything up to the end.
        let room = n - from;
        let most = if rng.next_u64() % 4 == 0 { room } else { room.min(64) };
        let len = 1 + below(rng.next_u64(), most);
        from as usize..(from + len) as usize
    }

    fn bytes(range: &Range<usize>) -> Range<usize> {
        range.start * base_page_bytes()..range.end * base_page_bytes()
    }

    /// Writes new content to the writable pages of `range`.
    pub fn write(&mut self, range: Range<usize>, seed: u64) {
        self.history.add(Done::Write(range.clone(), seed));
        for i in range {
            if self.pages[i].protection == Protection::ReadWrite {
                let seed = mix(seed ^ i as u64) | 1;
                content::fill(self.memory.page_words(i), seed);
                self.pages[i].seed = seed;
                self.pages[i].freed = false;
            }
        }
    }

    /// Checks the readable pages of `range`; returns their number.
    pub fn verify(&self, range: Range<usize>) -> Result<u64, WrongPage> {
        let mut checked = 0;
        for page in range {
            let model = self.pages[page];
            if model.protection == Protection::None {
                continue;
            }
            let words = self.memory.page_words(page);
            let result = match (model.seed, model.freed) {
                (0, _) => content::verify_zero(words),
                (seed, false) => content::verify(words, seed),
                (seed, true) => content::verify_freed(words, seed),
            };
            result.map_err(|mismatch| {
                let address = self.memory.start() + page * base_page_bytes() + mismatch.index * 8;
                WrongPage {
                    page,
                    address,
                    mismatch,
                    model,
                }
            })?;
            checked += 1;
        }
        Ok(checked)
    }

    /// Changes protection.
    pub fn protect(&mut self, range: Range<usize>, protection: Protection) -> Result<(), MemoryError> {
        self.history.add(Done::Protect(range.clone(), protection));
        self.memory.protect(Self::bytes(&range), protection)?;
        self.pages[range].iter_mut().for_each(|p| p.protection = protection);
        Ok(())
    }

    /// Applies advice that changes no content, by its place among [`HARMLESS`].
    pub fn advise(&mut self, range: Range<usize>, which: usize) -> Result<(), MemoryError> {
        self.history.add(Done::Advise(range.clone(), which));
        self.memory.advise(Self::bytes(&range), HARMLESS[which].1)
    }

    /// Unlocks before a call that would fail midway on locked pages.
    fn unlock(&mut self) -> Result<(), MemoryError> {
        if self.locked {
            self.set_lock(false)?;
        }
        Ok(())
    }

    /// MADV_DONTNEED: the pages become zero.
    pub fn dontneed(&mut self, range: Range<usize>) -> Result<(), MemoryError> {
        self.history.add(Done::DontNeed(range.clone()));
        self.unlock()?;
        self.memory.advise(Self::bytes(&range), libc::MADV_DONTNEED)?;
        for p in &mut self.pages[range] {
            (p.seed, p.freed) = (0, false);
        }
        Ok(())
    }

    /// MADV_FREE: the pages may become zero until they are written.
    pub fn free(&mut self, range: Range<usize>) -> Result<(), MemoryError> {
        self.history.add(Done::Free(range.clone()));
        self.unlock()?;
        let result = self.memory.advise(Self::bytes(&range), libc::MADV_FREE);
        self.pages[range].iter_mut().for_each(|p| p.freed = true);
        result
    }

    /// Locks or unlocks all of it.
    pub fn lock(&mut self, locked: bool) -> Result<(), MemoryError> {
        self.history.add(Done::Lock(locked));
        self.set_lock(locked)
    }

    fn set_lock(&mut self, locked: bool) -> Result<(), MemoryError> {
        // A failed lock (inaccessible page) may have locked a part.
        self.locked = true;
        self.memory.lock(0..self.memory.len_bytes(), locked)?;
        self.locked = locked;
        Ok(())
    }

    /// Grows by `more` zero pages.
    pub fn grow(&mut self, more: usize) -> Result<(), MemoryError> {
        self.memory.grow((self.pages.len() + more) * base_page_bytes())?;
        self.history.add(Done::Grow(more));
        let protection = self.pages.last().map_or(Protection::ReadWrite, |p| p.protection);
        self.pages
            .resize(self.pages.len() + more, PageModel { protection, ..FRESH });
        Ok(())
    }

    /// Moves it by mremap, unless it has several protections: the kernel moves one VMA at a time.
    pub fn relocate(&mut self) -> Result<bool, MemoryError> {
        if self.pages.windows(2).any(|w| w[0].protection != w[1].protection) {
            return Ok(false);
        }
        self.history.add(Done::Relocate);
        self.memory.relocate()?;
        Ok(true)
    }

    /// Unmaps a range and returns what is left.
    pub fn unmap(self, range: Range<usize>) -> impl Iterator<Item = Self> {
        let Self {
            memory,
            pages,
            locked,
            history,
        } = self;
        let (before, after) = memory.unmap_part(Self::bytes(&range));
        let left = before.map(|memory| Self {
            memory,
            pages: pages[..range.start].to_vec(),
            locked,
            history: history.with(Done::Before(range.clone())),
        });
        let right = after.map(|memory| Self {
            memory,
            pages: pages[range.end..].to_vec(),
            locked,
            history: history.with(Done::Behind(range.clone())),
        });
        left.into_iter().chain(right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn the_model_follows_every_change() {
        let mut a = StormArea::new(1024).unwrap();
        a.write(0..1024, 1);
        a.protect(10..20, Protection::None).unwrap();
        a.protect(20..30, Protection::Read).unwrap();
        a.write(0..1024, 2);
        assert_eq!(a.verify(0..1024).unwrap(), 1014);
        assert!(!a.relocate().unwrap());
        a.protect(0..1024, Protection::ReadWrite).unwrap();
        a.relocate().unwrap();
        a.grow(100).unwrap();
        a.lock(true).unwrap();
        a.dontneed(5..9).unwrap();
        a.free(100..700).unwrap();
        for which in 0..HARMLESS.len() {
            let _ = a.advise(0..1124, which);
        }
        assert_eq!(a.verify(0..1124).unwrap(), 1124);
        let rest: Vec<StormArea> = a.unmap(3..600).collect();
        assert_eq!(rest.iter().map(StormArea::len).collect::<Vec<_>>(), [3, 524]);
        rest.iter()
            .for_each(|r| assert_eq!(r.verify(0..r.len()).unwrap(), r.len() as u64));
    }

    #[test]
    fn a_flipped_bit_is_located() {
        let mut a = StormArea::new(16).unwrap();
        a.write(0..16, 1);
        a.memory.page_words(7)[3].fetch_xor(1, Relaxed);
        let wrong = a.verify(0..16).unwrap_err();
        assert_eq!((wrong.page, wrong.mismatch.index), (7, 3));
        assert_eq!(wrong.address, a.addresses().start + 7 * 4096 + 24);
    }

    /// As a storm prints it, and as it is pasted.
    #[test]
    #[allow(unused_mut)]
    fn storm_seed_7_thread_2() {
        let mut a = StormArea::new(64).unwrap();
        a.write(0..64, 0x5);
        a.grow(16).unwrap();
        let _ = a.protect(8..16, Protection::None);
        let _ = a.advise(0..64, 5);
        let _ = a.dontneed(20..30);
        let _ = a.free(40..50);
        let _ = a.lock(true);
        let _ = a.lock(false);
        // A child by fork looks at it, and writes to its copy.
        let mut a = a.unmap(4..18).last().unwrap();
        let _ = a.relocate();
        a.write(0..62, 0x9);
        let mut a = a.unmap(30..40).next().unwrap();
        a.verify(0..a.len()).unwrap();
    }

    #[test]
    fn what_was_done_to_an_area_is_a_test_that_can_be_pasted_here() {
        let mut a = StormArea::new(64).unwrap();
        a.write(0..64, 5);
        a.grow(16).unwrap();
        let _ = a.protect(8..16, Protection::None);
        let _ = a.advise(0..64, 5);
        let _ = a.dontneed(20..30);
        let _ = a.free(40..50);
        let _ = (a.lock(true), a.lock(false));
        a.forked();
        let mut a = a.unmap(4..18).last().unwrap();
        let _ = a.relocate();
        a.write(0..62, 9);
        let a = a.unmap(30..40).next().unwrap();
        let source = a.source("storm_seed_7_thread_2");
        assert!(include_str!("area.rs").contains(&source), "{source}");
    }
}
