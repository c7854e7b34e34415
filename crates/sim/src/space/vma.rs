//! Mappings of anonymous memory: sorted, split and merged by their flags.

use std::cell::Cell;
use std::collections::BTreeMap;

use mega_core::fault::HugeAdvice;

/// The flags of a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// The program's advice on huge pages.
    pub advice: HugeAdvice,
    /// `mlock`.
    pub locked: bool,
}

/// A mapping: pages from `start` (included) to `end` (excluded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vma {
    /// First page.
    pub start: u64,
    /// The page after the last one.
    pub end: u64,
    /// Its flags.
    pub flags: Flags,
}

impl Vma {
    /// Whether it contains all these pages.
    #[must_use]
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.start <= start && end <= self.end
    }
}

/// The mappings of a space, by first page. Neighbours with the same flags are one.
#[derive(Debug, Clone, Default)]
pub struct Vmas {
    by_start: BTreeMap<u64, (u64, Flags)>,
    /// The one found last: most faults hit the same mapping as the one before.
    found: Cell<Option<Vma>>,
    /// No gap begins below this page: where the search for room starts.
    full_below: u64,
}

impl Vmas {
    /// The mapping that contains this page.
    #[must_use]
    pub fn find(&self, page: u64) -> Option<Vma> {
        let before = self.found.get().filter(|vma| vma.covers(page, page + 1));
        before.or_else(|| {
            let found = self.look_up(page)?;
            self.found.set(Some(found));
            Some(found)
        })
    }

    fn look_up(&self, page: u64) -> Option<Vma> {
        let (&start, &(end, flags)) = self.by_start.range(..=page).next_back()?;
        (page < end).then_some(Vma { start, end, flags })
    }

    /// The first mapping with any of these pages.
    #[must_use]
    pub fn first_in(&self, start: u64, end: u64) -> Option<Vma> {
        self.find(start).or_else(|| {
            let (&start, &(vma_end, flags)) = self.by_start.range(start..end).next()?;
            Some(Vma {
                start,
                end: vma_end,
                flags,
            })
        })
    }

    /// All mappings by rising address.
    pub fn iter(&self) -> impl Iterator<Item = Vma> + '_ {
        self.by_start
            .iter()
            .map(|(&start, &(end, flags))| Vma { start, end, flags })
    }

    /// Pages mapped in all.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.iter().map(|vma| vma.end - vma.start).sum()
    }

    /// Adds a mapping; nothing is mapped there.
    pub fn add(&mut self, start: u64, end: u64, flags: Flags) {
        if start >= end {
            return;
        }
        self.found.set(None);
        let (mut start, mut end) = (start, end);
        let before = self.by_start.range(..start).next_back();
        if let Some((&s, _)) = before.filter(|(_, (e, f))| *e == start && *f == flags) {
            self.by_start.remove(&s);
            start = s;
        }
        if let Some(&(e, _)) = self.by_start.get(&end).filter(|(_, f)| *f == flags) {
            self.by_start.remove(&end);
            end = e;
        }
        self.by_start.insert(start, (end, flags));
    }

    /// Unmaps these pages; returns the parts that were mapped.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<Vma> {
        let mut removed = Vec::new();
        self.full_below = self.full_below.min(start);
        while let Some(vma) = self.first_in(start, end) {
            self.found.set(None);
            self.by_start.remove(&vma.start);
            if vma.start < start {
                self.by_start.insert(vma.start, (start, vma.flags));
            }
            if vma.end > end {
                self.by_start.insert(end, (vma.end, vma.flags));
            }
            removed.push(Vma {
                start: vma.start.max(start),
                end: vma.end.min(end),
                flags: vma.flags,
            });
        }
        removed
    }

    /// Changes the flags of the mapped part of these pages. False: there are holes (the rest is changed all the same, as on Linux).
    pub fn set(&mut self, start: u64, end: u64, change: impl Fn(&mut Flags)) -> bool {
        let parts = self.remove(start, end);
        let mapped: u64 = parts.iter().map(|vma| vma.end - vma.start).sum();
        for vma in parts {
            let mut flags = vma.flags;
            change(&mut flags);
            self.add(vma.start, vma.end, flags);
        }
        mapped == end - start
    }

    /// The lowest gap of so many pages in `from..to` that begins at a multiple of `align` pages.
    pub fn room(&mut self, pages: u64, align: u64, from: u64, to: u64) -> Option<u64> {
        let align = align.max(1);
        let round = |page: u64| page.div_ceil(align) * align;
        let mut at = from.max(self.full_below);
        if let Some(vma) = self.find(at) {
            at = vma.end;
        }
        let mut seen_gap = false;
        loop {
            let next = self.by_start.range(at..).next().map(|(&s, &(e, _))| (s, e));
            let limit = next.map_or(to, |(s, _)| s.min(to));
            if !seen_gap && at < limit {
                // Everything from `from` up to here is mapped.
                seen_gap = true;
                self.full_below = at;
            }
            let start = round(at);
            if start.checked_add(pages).is_some_and(|end| end <= limit) {
                return Some(start);
            }
            match next {
                Some((_, end)) if end < to => at = end,
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(n: u8) -> Flags {
        Flags {
            advice: [HugeAdvice::None, HugeAdvice::Huge, HugeAdvice::NoHuge][usize::from(n % 3)],
            locked: false,
        }
    }

    proptest::proptest! {
        #[test]
        fn mappings_are_as_a_page_by_page_model(steps in proptest::collection::vec((0u8..4, 0u64..100, 1u64..30, 0u8..3), 1..60)) {
            let mut vmas = Vmas::default();
            let mut model: Vec<Option<Flags>> = vec![None; 200];
            for (what, start, pages, f) in steps {
                let end = start + pages;
                match what {
                    0 => {
                        if let Some(at) = vmas.room(pages, 1, 0, 200) {
                            let first = (0..=200 - pages).find(|at| model[*at as usize..(at + pages) as usize].iter().all(Option::is_none));
                            proptest::prop_assert_eq!(Some(at), first);
                            vmas.add(at, at + pages, flags(f));
                            model[at as usize..(at + pages) as usize].fill(Some(flags(f)));
                        }
                    }
                    1 => {
                        vmas.remove(start, end);
                        model[start as usize..end as usize].fill(None);
                    }
                    _ => {
                        let whole = vmas.set(start, end, |was| *was = flags(f));
                        let part = &mut model[start as usize..end as usize];
                        proptest::prop_assert_eq!(whole, part.iter().all(Option::is_some));
                        part.iter_mut().flatten().for_each(|was| *was = flags(f));
                    }
                }
                for (page, wanted) in model.iter().enumerate() {
                    proptest::prop_assert_eq!(vmas.find(page as u64).map(|vma| vma.flags), *wanted);
                }
                let list: Vec<_> = vmas.iter().collect();
                for pair in list.windows(2) {
                    proptest::prop_assert!(pair[0].end < pair[1].start || (pair[0].end == pair[1].start && pair[0].flags != pair[1].flags));
                }
            }
        }
    }

    #[test]
    fn room_respects_alignment() {
        let mut vmas = Vmas::default();
        vmas.add(0, 100, Flags::default());
        assert_eq!(vmas.room(512, 512, 0, 10_000), Some(512));
        assert_eq!(vmas.room(10, 1, 0, 10_000), Some(100), "the gap before is still found");
        assert_eq!(vmas.room(20_000, 1, 0, 10_000), None);
    }
}
