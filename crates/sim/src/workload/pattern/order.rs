//! Orders in which memory is traversed.

use super::scatter;

/// The pages of an area, each once: in their order, or scattered so that neighbours in time are far apart in space.
#[derive(Debug, Clone)]
pub struct PageOrder {
    page: usize,
    stride: usize,
    pages: usize,
    left: usize,
}

impl PageOrder {
    /// Of `pages` pages.
    #[must_use]
    pub fn new(pages: usize, scattered: bool) -> Self {
        let stride = if scattered {
            scatter(pages as u64) as usize % pages.max(1)
        } else {
            1
        };
        Self {
            page: 0,
            stride,
            pages,
            left: pages,
        }
    }
}

impl Iterator for PageOrder {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let page = self.page;
        self.page += self.stride;
        if self.page >= self.pages {
            self.page -= self.pages;
        }
        Some(page)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The indices of [`strides`].
#[derive(Debug, Clone)]
pub struct Strides {
    next: usize,
    words: usize,
    step: usize,
    shift: usize,
    shifts: usize,
}

/// The indices of `words` words in steps of `step`, then the same shifted by one, `shifts` times (`step` times at most: then each
/// word was visited once). MEGA, Table 6. The live workload keeps its nested loops, which are faster there; a test below holds both
/// against each other.
#[must_use]
pub fn strides(words: usize, step: usize, shifts: usize) -> Strides {
    Strides {
        next: 0,
        words,
        step: step.max(1),
        shift: 0,
        shifts: shifts.min(step),
    }
}

impl Iterator for Strides {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.next >= self.words {
            if self.shift + 1 >= self.shifts {
                return None;
            }
            self.shift += 1;
            self.next = self.shift;
            if self.shift >= self.words {
                return None;
            }
        }
        if self.shifts == 0 {
            return None;
        }
        let index = self.next;
        self.next = index.saturating_add(self.step);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_once_each_in_either_order() {
        for pages in [0usize, 1, 2, 3, 100, 512] {
            assert!(PageOrder::new(pages, false).eq(0..pages));
            let mut seen: Vec<usize> = PageOrder::new(pages, true).collect();
            assert!(pages < 100 || seen[1] > 1);
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..pages));
        }
    }

    proptest::proptest! {
        #[test]
        fn strides_are_what_nested_loops_give(words in 0usize..300, step in 1usize..50, shifts in 0usize..60) {
            let mut expected = Vec::new();
            for shift in 0..shifts.min(step) {
                expected.extend((shift..words).step_by(step));
            }
            let found: Vec<usize> = strides(words, step, shifts).collect();
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
