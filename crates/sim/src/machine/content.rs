//! Contents of memory: one number per base page, to verify that nothing done to memory changes what a program reads.
//!
//! A store writes a new number. The model keeps it twice: by the page that the program wrote, and by the frame (or swap slot) where it lies. A
//! load compares the two.

use std::collections::BTreeMap;

use crate::unit::{Frame, Page, SpaceId};

/// What a program expects of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expected {
    version: u32,
    /// Given up with MADV_FREE: zero is valid too.
    lazy: bool,
}

/// The model.
#[derive(Debug, Default)]
pub struct Content {
    frames: Vec<u32>,
    expected: BTreeMap<SpaceId, BTreeMap<Page, Expected>>,
    last: u32,
    /// The first mismatch found.
    pub first_error: Option<String>,
}

impl Content {
    /// What a frame holds.
    #[must_use]
    pub fn of(&self, frame: Frame) -> u32 {
        self.frames.get(frame.0 as usize).copied().unwrap_or(u32::MAX)
    }

    /// Writes it.
    pub fn put(&mut self, frame: Frame, version: u32) {
        let i = frame.0 as usize;
        if i >= self.frames.len() {
            // A frame that was not written holds no zeroes: its mapper has to zero it.
            self.frames.resize(i + 1, u32::MAX);
        }
        self.frames[i] = version;
    }

    /// Copies a frame.
    pub fn copy(&mut self, from: Frame, to: Frame) {
        let version = self.of(from);
        self.put(to, version);
    }

    /// The program stores.
    pub fn store(&mut self, space: SpaceId, page: Page, frame: Frame) {
        self.last = self.last.wrapping_add(1).max(1);
        let version = self.last;
        self.put(frame, version);
        let of_space = self.expected.entry(space).or_default();
        of_space.insert(page, Expected { version, lazy: false });
    }

    /// The program loads what lies in this frame (none: the zero page). False: not what is expected.
    pub fn load(&mut self, space: SpaceId, page: Page, frame: Option<Frame>) -> bool {
        let found = frame.map_or(0, |frame| self.of(frame));
        self.compare(space, page, found)
    }

    /// Compares the content found with the expected one.
    pub fn compare(&mut self, space: SpaceId, page: Page, found: u32) -> bool {
        let of_space = self.expected.get_mut(&space);
        let wanted = of_space.and_then(|pages| pages.get_mut(&page));
        let ok = match wanted {
            None => found == 0,
            Some(wanted) => {
                if wanted.lazy && found == 0 {
                    wanted.version = 0;
                }
                found == wanted.version
            }
        };
        if !ok && self.first_error.is_none() {
            let wanted = self.expected.get(&space).and_then(|pages| pages.get(&page));
            self.first_error = Some(format!("{space:?} {page:?}: found {found}, expected {wanted:?}"));
        }
        ok
    }

    /// Whether the content found is the expected one, without side effects.
    #[must_use]
    pub fn agrees(&self, space: SpaceId, page: Page, found: u32) -> bool {
        let wanted = self.expected.get(&space).and_then(|pages| pages.get(&page));
        wanted.map_or(found == 0, |wanted| {
            found == wanted.version || (wanted.lazy && found == 0)
        })
    }

    /// Whether the page may be dropped.
    #[must_use]
    pub fn is_lazy(&self, space: SpaceId, page: Page) -> bool {
        let wanted = self.expected.get(&space).and_then(|pages| pages.get(&page));
        wanted.is_some_and(|wanted| wanted.lazy)
    }

    /// These pages are gone: they read as zero.
    pub fn forget(&mut self, space: SpaceId, from: Page, to: Page) {
        if let Some(pages) = self.expected.get_mut(&space) {
            let mut tail = pages.split_off(&from);
            let mut rest = tail.split_off(&to);
            pages.append(&mut rest);
        }
    }

    /// These pages may be dropped.
    pub fn free_lazily(&mut self, space: SpaceId, from: Page, to: Page) {
        if let Some(pages) = self.expected.get_mut(&space) {
            pages.range_mut(from..to).for_each(|(_, wanted)| wanted.lazy = true);
        }
    }

    /// These pages were moved (mremap).
    pub fn move_pages(&mut self, space: SpaceId, from: Page, to: Page, count: u64) {
        if let Some(pages) = self.expected.get_mut(&space) {
            let mut moved = pages.split_off(&from);
            let mut rest = moved.split_off(&Page(from.0 + count));
            pages.append(&mut rest);
            pages.extend(moved.into_iter().map(|(page, e)| (Page(page.0 - from.0 + to.0), e)));
        }
    }

    /// The child inherits the parent's contents.
    pub fn fork(&mut self, parent: SpaceId, child: SpaceId) {
        if let Some(pages) = self.expected.get(&parent).cloned() {
            self.expected.insert(child, pages);
        }
    }

    /// The process has ended.
    pub fn exit(&mut self, space: SpaceId) {
        self.expected.remove(&space);
    }

    /// Every page with an expected content.
    #[must_use]
    pub fn pages(&self) -> Vec<(SpaceId, Page)> {
        let all = self.expected.iter();
        all.flat_map(|(space, pages)| pages.keys().map(|page| (*space, *page)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;

    #[test]
    fn a_lost_store_is_noticed_and_a_given_up_one_is_not() {
        let (space, page) = (SpaceId(NonZeroU16::MIN), Page(5));
        let mut content = Content::default();
        content.put(Frame(1), 0);
        assert!(content.load(space, page, Some(Frame(1))));
        content.store(space, page, Frame(1));
        assert!(content.load(space, page, Some(Frame(1))));
        content.copy(Frame(1), Frame(2));
        assert!(content.load(space, page, Some(Frame(2))));
        content.free_lazily(space, Page(0), Page(9));
        assert!(content.load(space, page, Some(Frame(2))) && content.load(space, page, None));
        assert!(!content.load(space, page, Some(Frame(2))), "once gone, gone");
        assert!(
            !content.load(space, Page(6), Some(Frame(9))),
            "memory that was not zeroed"
        );
        assert!(content.first_error.is_some());
    }
}
