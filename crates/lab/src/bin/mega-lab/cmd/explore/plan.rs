//! Which layouts are tried: the pools are cut into windows, and a layout is the set of windows that have large pages.
//!
//! Tried are none and all, each window alone (a sliding window), the first few (a growing one), and all but one. So each window's effect is
//! seen alone and among others, and a model of one number per window is overdetermined about three times.

use memomania_layout::layout::{Interval, Layout};
use memomania_layout::page::Kind;

/// The most windows that there can be.
pub const MOST: usize = 16;

/// The pools that are explored, in this order.
pub const POOLS: [&str; 2] = ["heap", "anon"];

/// A part of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Index in [`POOLS`].
    pub pool: usize,
    /// First byte.
    pub start: usize,
    /// Bytes that were in use at most.
    pub bytes: usize,
    /// It extends to the pool's end.
    pub is_last: bool,
}

/// The windows of a layout that have large pages, one bit each.
pub type Set = u32;

/// What is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The large pages.
    pub kind: Kind,
    /// In ascending order, pool by pool.
    pub windows: Vec<Window>,
    /// Layouts; the first has base pages only, the second large pages only.
    pub sets: Vec<Set>,
}

impl Plan {
    /// Cuts pools of which so many bytes were in use into `count` windows, at most [`MOST`]; larger pools have more of them. `None` where nothing
    /// has room for a page.
    pub fn new(kind: Kind, in_use: [usize; 2], count: usize) -> Option<Self> {
        let page = kind.bytes();
        let total: usize = in_use.iter().sum();
        let mut windows = Vec::new();
        for (pool, bytes) in in_use.into_iter().enumerate() {
            // What is less than a twentieth of it all will hardly show.
            if bytes < page || bytes < total / 20 {
                continue;
            }
            let share = (count.clamp(1, MOST) as f64 * bytes as f64 / total as f64).round() as usize;
            let parts = share.clamp(1, bytes.div_ceil(page));
            let step = bytes.div_ceil(parts).next_multiple_of(page);
            let starts: Vec<usize> = (0..bytes).step_by(step).collect();
            windows.extend(starts.iter().map(|start| Window {
                pool,
                start: *start,
                bytes: step.min(bytes - start),
                is_last: start + step >= bytes,
            }));
        }
        windows.truncate(MOST);
        let sets = sets(windows.len());
        (!windows.is_empty()).then_some(Self { kind, windows, sets })
    }

    /// All windows.
    pub fn all(&self) -> Set {
        (1 << self.windows.len()) - 1
    }

    /// The windows of a set, as zeros and ones.
    pub fn indicators(&self, set: Set) -> Vec<f64> {
        (0..self.windows.len()).map(|n| f64::from(set >> n & 1)).collect()
    }

    /// Bytes on large pages, of those that were in use.
    pub fn large_bytes(&self, set: Set) -> usize {
        let with = self.windows.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
        with.map(|(_, window)| window.bytes).sum()
    }

    /// The layouts of both pools. Neighbours are one interval.
    pub fn layouts(&self, set: Set) -> [Layout; 2] {
        let mut intervals: [Vec<Interval>; 2] = [Vec::new(), Vec::new()];
        for (n, window) in self.windows.iter().enumerate() {
            if set >> n & 1 == 0 {
                continue;
            }
            let end = match (window.is_last, self.windows.get(n + 1)) {
                (false, Some(next)) => next.start,
                _ => usize::MAX,
            };
            let own = &mut intervals[window.pool];
            match own.last_mut().filter(|last| last.end == window.start) {
                Some(last) => last.end = end,
                None => own.push(Interval {
                    kind: self.kind,
                    start: window.start,
                    end,
                }),
            }
        }
        intervals.map(|intervals| {
            let mut layout = Layout::BASE;
            for interval in intervals {
                // They are aligned, ascending, and fewer than a layout holds.
                let _ = layout.push(interval);
            }
            layout
        })
    }

    /// A set in words: the windows' numbers.
    pub fn name(&self, set: Set) -> String {
        match set {
            0 => "none".to_owned(),
            set if set == self.all() => "all".to_owned(),
            _ => {
                let numbers = (0..self.windows.len()).filter(|n| set >> n & 1 == 1);
                numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(",")
            }
        }
    }
}

fn sets(count: usize) -> Vec<Set> {
    let all: Set = (1 << count) - 1;
    let single = (0..count).map(|n| 1 << n);
    let growing = (1..=count).map(|n| (1 << n) - 1);
    let without = (0..count).map(|n| all & !(1 << n));
    let mut sets = vec![0, all];
    for set in single.chain(growing).chain(without) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    #[test]
    fn windows_are_whole_pages_and_the_larger_pool_has_more() {
        let plan = Plan::new(Kind::Thp, [33 * MB, 11 * MB], 8).unwrap();
        let of = |pool| -> Vec<_> { plan.windows.iter().filter(|w| w.pool == pool).collect() };
        assert_eq!((of(0).len(), of(1).len()), (6, 2));
        assert!(plan.windows.iter().all(|w| w.start % (2 * MB) == 0));
        assert_eq!(plan.large_bytes(plan.all()), 44 * MB);
        assert!(of(0)[5].is_last && of(1)[1].is_last && !of(0)[0].is_last);
        // A small pool is left out, and so is one without room for a page.
        let plan = Plan::new(Kind::Thp, [1000 * MB, 3 * MB], 4).unwrap();
        assert_eq!(plan.windows.iter().map(|w| w.pool).max(), Some(0));
        assert_eq!(Plan::new(Kind::Gigantic, [900 * MB, 0], 4), None);
        assert_eq!(Plan::new(Kind::Huge, [0, 0], 4), None);
        // Never more than one bit each has room for.
        assert!(Plan::new(Kind::Huge, [64 << 30, 64 << 30], 1000).unwrap().windows.len() <= MOST);
    }

    #[test]
    fn layouts_are_what_the_sets_say() {
        let plan = Plan::new(Kind::Thp, [32 * MB, 8 * MB], 5).unwrap();
        assert_eq!(plan.windows.len(), 5);
        let written = |set| plan.layouts(set).map(|layout| layout.to_string());
        assert_eq!(written(0), ["4K", "4K"]);
        assert_eq!(written(plan.all()), ["2M:thp@0", "2M:thp@0"]);
        assert_eq!(written(0b00010), ["2M:thp@8M+8M", "4K"]);
        assert_eq!(written(0b11011), ["2M:thp@0+16M,2M:thp@24M", "2M:thp@0"]);
        assert_eq!(
            (plan.name(0), plan.name(0b11011), plan.name(31)),
            ("none".into(), "0,1,3,4".into(), "all".into())
        );
    }

    #[test]
    fn each_window_is_seen_alone_and_among_others() {
        for count in 1..=MOST {
            let sets = sets(count);
            let all = (1 << count) - 1;
            assert_eq!(sets[..2], [0, all]);
            for n in 0..count {
                assert!(sets.contains(&(1 << n)) && sets.contains(&(all & !(1 << n))));
            }
            let mut unique = sets.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), sets.len());
        }
    }
}
