//! Two plain programs that hold memory: `sparse` touches a scattered share of an area and sleeps, `dense` touches all of one
//! and keeps it hot.

use super::pattern::{self, sparse_pages};
use super::program::{after, check_mib, check_share, describe, map_area};
use super::{pace, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use serde::{Deserialize, Serialize};

/// Options of [`Sparse`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SparseOptions {
    /// Size of the area in MiB.
    pub mib: u64,
    /// Share of the base pages to touch.
    pub share: f64,
    /// How long to hold them, in ns; indefinitely when not given.
    pub time_ns: Option<u64>,
    /// MADV_HUGEPAGE on the area.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for SparseOptions {
    fn default() -> Self {
        Self {
            mib: 6144,
            share: 1.0 / 6.0,
            time_ns: None,
            advise: false,
            seed: 1,
        }
    }
}

/// An area of which a scattered share of base pages is used: the sparse part of `store` too.
#[derive(Debug)]
pub(super) struct SparseArea {
    base: u64,
    pages: Vec<u32>,
    touched: usize,
}

impl SparseArea {
    pub(super) fn new<M: Memory>(
        memory: &mut M,
        mib: u64,
        share: f64,
        advise: bool,
        seed: u64,
    ) -> Result<Self, ProgramError> {
        let bytes = mib.max(1) * MIB;
        let pages =
            u32::try_from(bytes / PAGE).map_err(|_| ProgramError::Usage(format!("{mib} MiB are too many pages")))?;
        let base = map_area(memory, bytes, advise)?;
        Ok(Self {
            base,
            pages: sparse_pages(pages, share, seed, &mut pattern::rng(seed)),
            touched: 0,
        })
    }

    /// Pages of the share: touched so far, and in all.
    pub(super) fn progress(&self) -> (usize, usize) {
        (self.touched, self.pages.len())
    }

    /// Writes the next page for the first time; returns how long the first store took, or none when there is no page left.
    pub(super) fn touch_next<M: Memory>(&mut self, memory: &mut M) -> Option<u64> {
        let page = *self.pages.get(self.touched)?;
        let start = memory.now_ns();
        memory.touch(self.base + u64::from(page) * PAGE, true);
        let ns = memory.now_ns() - start;
        memory.work(pace::FILL_PAGE + 2 * pace::CLOCK);
        self.touched += 1;
        Some(ns)
    }

    /// Reads one word of a page that was touched.
    pub(super) fn visit<M: Memory>(&self, memory: &mut M, random: u64) {
        if self.touched > 0 {
            let (at, index) = pattern::sparse_visit(random, self.touched as u64);
            memory.touch(self.base + u64::from(self.pages[at]) * PAGE + index as u64 * 8, false);
            memory.work(pace::VISIT);
        }
    }
}

/// The program that touches a scattered share and sleeps.
#[derive(Debug)]
pub struct Sparse {
    options: SparseOptions,
    area: Option<SparseArea>,
    /// When it wakes up.
    until_ns: Option<u64>,
    results: Results,
}

impl Sparse {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// An area that is too large, or an invalid share.
    pub fn new(options: SparseOptions) -> Result<Self, ProgramError> {
        check_mib(options.mib)?;
        check_share("share", options.share)?;
        Ok(Self {
            options,
            area: None,
            until_ns: None,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Sparse {
    describe!("sparse");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let area = match &mut self.area {
            Some(area) => area,
            none => {
                self.results.begin("fill", memory.now_ns());
                none.insert(SparseArea::new(memory, o.mib, o.share, o.advise, o.seed)?)
            }
        };
        let wakes = match self.until_ns {
            Some(ns) => ns,
            None => {
                while let Some(ns) = area.touch_next(memory) {
                    self.results.record("touch", ns);
                    self.results.mark(memory.now_ns(), 1);
                    if memory.now_ns() >= until_ns {
                        return Ok(Progress::Ran);
                    }
                }
                let now = memory.now_ns();
                self.results.add("touched_bytes", area.progress().0 as u64 * PAGE);
                self.results.begin("hold", now);
                *self.until_ns.insert(o.time_ns.map_or(u64::MAX, |ns| after(now, ns)))
            }
        };
        let now = memory.now_ns();
        self.results.mark(now, 0);
        Ok(if now < wakes {
            Progress::Sleeps(wakes)
        } else {
            Progress::Done
        })
    }
}

/// Options of [`Dense`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DenseOptions {
    /// Size of the area in MiB.
    pub mib: u64,
    /// Time from the beginning of a sweep to the next in ns.
    pub hot_ns: u64,
    /// Write to each page in every sweep, not only read.
    pub write: bool,
    /// How long to keep it hot, in ns; indefinitely when not given.
    pub time_ns: Option<u64>,
    /// MADV_HUGEPAGE on the area.
    pub advise: bool,
}

impl Default for DenseOptions {
    fn default() -> Self {
        Self {
            mib: 1024,
            hot_ns: 100_000_000,
            write: false,
            time_ns: None,
            advise: false,
        }
    }
}

#[derive(Debug)]
enum DenseState {
    New,
    Fill { page: u64 },
    Sweep { page: u64, start_ns: u64 },
    Rest { until_ns: u64 },
    Done,
}

/// The program that keeps an area hot.
#[derive(Debug)]
pub struct Dense {
    options: DenseOptions,
    base: u64,
    end_ns: u64,
    state: DenseState,
    results: Results,
}

impl Dense {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// An area too large.
    pub fn new(options: DenseOptions) -> Result<Self, ProgramError> {
        check_mib(options.mib)?;
        Ok(Self {
            options,
            base: 0,
            end_ns: u64::MAX,
            state: DenseState::New,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Dense {
    describe!("dense");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let pages = o.mib.max(1) * MIB / PAGE;
        loop {
            match &mut self.state {
                DenseState::New => {
                    self.base = map_area(memory, pages * PAGE, o.advise)?;
                    self.results.begin("fill", memory.now_ns());
                    self.state = DenseState::Fill { page: 0 };
                }
                DenseState::Fill { page } => {
                    while *page < pages {
                        memory.touch(self.base + *page * PAGE, true);
                        memory.work(pace::FILL_PAGE);
                        *page += 1;
                        if *page % BATCH == 0 && memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    let now = memory.now_ns();
                    self.results.mark(now, pages);
                    self.results.begin("sweep", now);
                    self.end_ns = o.time_ns.map_or(u64::MAX, |ns| after(now, ns));
                    self.state = DenseState::Sweep { page: 0, start_ns: now };
                }
                DenseState::Sweep { page, start_ns } => {
                    while *page < pages {
                        // Up to the next clock read.
                        let to = (*page + 1).next_multiple_of(BATCH).min(pages);
                        let mut batch = Batch::new(memory);
                        for at in (*page..to).map(|page| self.base + page * PAGE) {
                            batch.touch(at, false);
                            if o.write {
                                batch.touch(at + PAGE - 8, true);
                            }
                            batch.work(pace::VISIT);
                        }
                        drop(batch);
                        *page = to;
                        if *page % BATCH == 0 && memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    let now = memory.now_ns();
                    self.results.operations += pages;
                    self.results.mark(now, pages);
                    let over = now >= self.end_ns;
                    let until_ns = after(*start_ns, o.hot_ns).min(self.end_ns);
                    self.state = if over {
                        DenseState::Done
                    } else {
                        DenseState::Rest { until_ns }
                    };
                }
                DenseState::Rest { until_ns } => {
                    let now = memory.now_ns();
                    if now < *until_ns {
                        return Ok(Progress::Sleeps(*until_ns));
                    }
                    let next = DenseState::Sweep { page: 0, start_ns: now };
                    self.state = if now >= self.end_ns { DenseState::Done } else { next };
                }
                DenseState::Done => return Ok(Progress::Done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn a_sixth_of_the_pages_is_written_and_held() {
        let o = SparseOptions {
            mib: 32,
            time_ns: Some(1_000_000),
            ..SparseOptions::default()
        };
        let (m, p) = run(Sparse::new(o).unwrap());
        let touched = p.results.measure("touched_bytes") / PAGE;
        assert!((1200..1530).contains(&touched) && m.written_pages() == touched && m.reads == 0);
        assert_eq!(p.results.phase_ns("hold"), 1_000_000);
        let small = SparseOptions { mib: 2, ..o };
        steps_do_not_matter(|| Sparse::new(small).unwrap());
        assert!(Sparse::new(SparseOptions { share: f64::NAN, ..o }).is_err());
    }

    #[test]
    fn a_dense_area_is_swept_again_and_again() {
        let o = DenseOptions {
            mib: 1,
            hot_ns: 100_000,
            time_ns: Some(1_000_000),
            write: true,
            advise: true,
        };
        let results = steps_do_not_matter(|| Dense::new(o).unwrap());
        assert!(results.operations / 256 >= 8, "{} sweeps", results.operations / 256);
    }
}
