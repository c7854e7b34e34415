//! A plain compute job: hashes a small area repeatedly. Huge pages do not help it.

use super::program::{after, describe, map_area};
use super::{pace, Memory, Program, ProgramError, Progress, Results, PAGE, PAGE_WORDS};
use serde::{Deserialize, Serialize};

/// Options of [`Compute`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComputeOptions {
    /// Size of the area in KiB.
    pub kib: u32,
    /// How long to compute, in ns.
    pub time_ns: u64,
    /// Number of passes, instead of a duration.
    pub passes: Option<u64>,
    /// MADV_HUGEPAGE on the area.
    pub advise: bool,
}

impl Default for ComputeOptions {
    fn default() -> Self {
        Self {
            kib: 256,
            time_ns: 10_000_000_000,
            passes: None,
            advise: false,
        }
    }
}

/// The program: one touch for each page of a pass.
#[derive(Debug)]
pub struct Compute {
    options: ComputeOptions,
    /// The area, and when the time is over, once it is filled and was hashed for the first time.
    area: Option<(u64, u64)>,
    passes: u64,
    results: Results,
}

impl Compute {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// None at present.
    pub fn new(options: ComputeOptions) -> Result<Self, ProgramError> {
        Ok(Self {
            options,
            area: None,
            passes: 0,
            results: Results::default(),
        })
    }
}

fn hash<M: Memory>(memory: &mut M, base: u64, pages: u64) {
    for page in 0..pages {
        memory.touch(base + page * PAGE, false);
        memory.work(PAGE_WORDS * pace::HASH_WORD);
    }
}

impl<M: Memory> Program<M> for Compute {
    describe!("compute");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let pages = (u64::from(o.kib.max(1)) << 10).div_ceil(PAGE);
        let (base, end_ns) = match self.area {
            Some(area) => area,
            None => {
                let base = map_area(memory, pages * PAGE, o.advise)?;
                self.results.begin("fill", memory.now_ns());
                for page in 0..pages {
                    memory.touch(base + page * PAGE, true);
                    memory.work(pace::FILL_PAGE);
                }
                hash(memory, base, pages);
                self.results.begin("compute", memory.now_ns());
                *self.area.insert((base, after(memory.now_ns(), o.time_ns)))
            }
        };
        loop {
            let now = memory.now_ns();
            // At least one pass, as in the live workload.
            if self.passes > 0 && o.passes.map_or(now >= end_ns, |n| self.passes >= n) {
                return Ok(Progress::Done);
            }
            if now >= until_ns {
                return Ok(Progress::Ran);
            }
            hash(memory, base, pages);
            self.passes += 1;
            self.results.operations += pages * PAGE_WORDS;
            self.results.mark(memory.now_ns(), pages * PAGE_WORDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn passes_read_every_page() {
        let o = ComputeOptions {
            kib: 64,
            passes: Some(5),
            ..ComputeOptions::default()
        };
        let (m, _) = run(Compute::new(o).unwrap());
        assert_eq!((m.writes, m.reads), (16, 6 * 16));
        let timed = ComputeOptions {
            passes: None,
            time_ns: 500_000,
            ..o
        };
        assert!(steps_do_not_matter(|| Compute::new(timed).unwrap()).operations > 0);
    }
}
