//! MEGA's Table 5: allocate memory, iterate over it, free it, many times.

use super::program::{describe, map_area};
use super::{pace, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use serde::{Deserialize, Serialize};

/// Options of [`Churn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChurnOptions {
    /// Size of the allocation in MiB.
    pub mib: u64,
    /// How many times.
    pub times: u32,
    /// Every word is written, not one word of each page: takes time, and touches the same pages.
    pub whole: bool,
    /// MADV_HUGEPAGE on the memory.
    pub advise: bool,
}

impl Default for ChurnOptions {
    fn default() -> Self {
        Self {
            mib: 8192,
            times: 10,
            whole: false,
            advise: false,
        }
    }
}

/// The program.
#[derive(Debug)]
pub struct Churn {
    options: ChurnOptions,
    rounds: u32,
    /// The area of this round, the next page of it, and whether it is written (or checked).
    area: Option<(u64, u64, bool)>,
    results: Results,
}

impl Churn {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// An area larger than an address space.
    pub fn new(options: ChurnOptions) -> Result<Self, ProgramError> {
        super::program::check_mib(options.mib)?;
        Ok(Self {
            options,
            rounds: 0,
            area: None,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Churn {
    describe!("churn");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let bytes = o.mib.max(1) * MIB;
        let pages = bytes / PAGE;
        loop {
            let Some((base, page, write)) = &mut self.area else {
                if self.rounds == o.times {
                    return Ok(Progress::Done);
                }
                self.rounds += 1;
                self.results.begin("touch", memory.now_ns());
                self.area = Some((map_area(memory, bytes, o.advise)?, 0, true));
                continue;
            };
            let work = match (o.whole, *write) {
                (false, _) => 1,
                (true, true) => pace::FILL_PAGE,
                (true, false) => pace::CHECK_PAGE,
            };
            while *page < pages {
                // Up to the next clock read.
                let to = (*page + 1).next_multiple_of(BATCH).min(pages);
                let mut batch = Batch::new(memory);
                for page in *page..to {
                    batch.touch(*base + page * PAGE, *write);
                    batch.work(work);
                }
                drop(batch);
                *page = to;
                if *page % BATCH == 0 && memory.now_ns() >= until_ns {
                    return Ok(Progress::Ran);
                }
            }
            let now = memory.now_ns();
            self.results.mark(now, pages);
            if *write {
                self.results.begin("iterate", now);
                (*page, *write) = (0, false);
                continue;
            }
            self.results.begin("free", now);
            memory.unmap(*base, bytes)?;
            self.results.mark(memory.now_ns(), pages);
            self.results.operations += pages;
            self.area = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn each_round_writes_reads_and_frees_every_page() {
        let o = ChurnOptions {
            mib: 2,
            times: 3,
            ..ChurnOptions::default()
        };
        let (m, _) = run(Churn::new(o).unwrap());
        assert_eq!(
            (m.writes, m.reads, m.mapped_pages(), m.calls),
            (3 * 512, 3 * 512, 0, [3, 3, 0, 0])
        );
        let whole = ChurnOptions { whole: true, ..o };
        let results = steps_do_not_matter(|| Churn::new(whole).unwrap());
        assert_eq!((results.operations, results.phases.len()), (3 * 512, 9));
    }
}
