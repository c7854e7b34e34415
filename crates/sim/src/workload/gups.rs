//! GUPS: random updates of a large table of 64-bit integers.

use super::pattern::GUPS_UPDATES;
use super::program::{after, describe, map_area};
use super::sampled::weighed;
use super::{pace, pattern, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Options of [`Gups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GupsOptions {
    /// Size of the table in MiB.
    pub mib: u64,
    /// How long to update, in ns.
    pub time_ns: u64,
    /// Number of updates, instead of a duration.
    pub updates: Option<u64>,
    /// Updates represented by each simulated one.
    pub weight: u64,
    /// MADV_HUGEPAGE on the table.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for GupsOptions {
    fn default() -> Self {
        Self {
            mib: 1024,
            time_ns: 10_000_000_000,
            updates: None,
            weight: 1,
            advise: false,
            seed: 1,
        }
    }
}

/// Updates between checks of the end of a step.
const PIECE: u64 = 1024;

#[derive(Debug)]
enum State {
    New,
    Fill { page: u64 },
    Update { rng: Pcg64Mcg, end_ns: u64 },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Gups {
    options: GupsOptions,
    base: u64,
    state: State,
    results: Results,
}

impl Gups {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// A table larger than an address space.
    pub fn new(options: GupsOptions) -> Result<Self, ProgramError> {
        super::program::check_mib(options.mib)?;
        Ok(Self {
            options,
            base: 0,
            state: State::New,
            results: Results::default(),
        })
    }

    fn bytes(&self) -> u64 {
        self.options.mib.max(1) * MIB
    }
}

impl<M: Memory> Program<M> for Gups {
    describe!("gups");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let bytes = self.bytes();
        loop {
            match &mut self.state {
                State::New => {
                    self.base = map_area(memory, bytes, self.options.advise)?;
                    self.results.begin("fill", memory.now_ns());
                    self.state = State::Fill { page: 0 };
                }
                State::Fill { page } => {
                    while *page < bytes / PAGE {
                        memory.touch(self.base + *page * PAGE, true);
                        memory.work(pace::FILL_PAGE);
                        *page += 1;
                        if *page % BATCH == 0 && memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    let now = memory.now_ns();
                    self.results.mark(now, bytes / PAGE);
                    self.results.begin("update", now);
                    let rng = pattern::rng(self.options.seed);
                    self.state = State::Update {
                        rng,
                        end_ns: after(now, self.options.time_ns),
                    };
                }
                State::Update { rng, end_ns } => loop {
                    let done = self.results.operations;
                    let (base, weight) = (self.base, self.options.weight.max(1));
                    let left = self.options.updates.map_or(u64::MAX, |n| n.saturating_sub(done));
                    let piece = left.div_ceil(weight).min(PIECE);
                    weighed(memory, weight, |memory| {
                        let mut batch = Batch::new(memory);
                        for (index, _) in pattern::updates(rng, bytes / 8).take(piece as usize) {
                            batch.touch(base + index * 8, true);
                        }
                        drop(batch);
                        memory.work(piece * pace::UPDATE);
                    });
                    let now = memory.now_ns();
                    let count = piece.saturating_mul(weight).min(left);
                    self.results.operations += count;
                    self.results.mark(now, count);
                    let over = match self.options.updates {
                        Some(_) => count == left,
                        None => (done + count) % GUPS_UPDATES == 0 && now >= *end_ns,
                    };
                    if over {
                        self.state = State::Done;
                        return Ok(Progress::Done);
                    }
                    if now >= until_ns {
                        return Ok(Progress::Ran);
                    }
                },
                State::Done => return Ok(Progress::Done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};
    use crate::workload::CountingMemory;

    #[test]
    fn every_page_is_written_once_and_then_updated_as_often_as_asked() {
        let o = GupsOptions {
            mib: 4,
            updates: Some(5000),
            ..GupsOptions::default()
        };
        let (m, p) = run(Gups::new(o).unwrap());
        assert_eq!(
            (m.reads, m.writes, m.stray, m.written_pages()),
            (0, 1024 + 5000, 0, 1024)
        );
        assert_eq!(Program::<CountingMemory>::results(&p).operations, 5000);
    }

    #[test]
    fn it_ends_in_time_and_steps_do_not_matter() {
        let o = GupsOptions {
            mib: 1,
            time_ns: 1_000_000,
            ..GupsOptions::default()
        };
        let results = steps_do_not_matter(|| Gups::new(o).unwrap());
        assert!(results.operations % GUPS_UPDATES == 0 && results.phase_ns("update") >= 1_000_000);
    }
}
