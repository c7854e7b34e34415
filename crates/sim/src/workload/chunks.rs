//! MEGA's Table 4: memory allocated in chunks of 32 MB, of which one sixth is used.

use super::pattern::{self, chunk_visited, chunk_word, CHUNK_VISITS};
use super::program::{after, describe, map_area};
use super::sampled::weighed;
use super::{pace, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Options of [`Chunks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChunksOptions {
    /// Size of all chunks in MiB.
    pub mib: u64,
    /// Size of a chunk in MiB.
    pub chunk_mib: u64,
    /// One chunk in this many is used.
    pub one_in: u32,
    /// How long to use them, in ns.
    pub time_ns: u64,
    /// Visits represented by each simulated one.
    pub weight: u64,
    /// MADV_HUGEPAGE on the chunks.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for ChunksOptions {
    fn default() -> Self {
        Self {
            mib: 6144,
            chunk_mib: 32,
            one_in: 6,
            time_ns: 60_000_000_000,
            weight: 1,
            advise: false,
            seed: 1,
        }
    }
}

#[derive(Debug)]
enum State {
    New,
    Fill { page: u64 },
    Visit { rng: Pcg64Mcg, end_ns: u64 },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Chunks {
    options: ChunksOptions,
    chunks: Vec<u64>,
    state: State,
    results: Results,
}

impl Chunks {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// A chunk larger than all of them, or than an address space.
    pub fn new(options: ChunksOptions) -> Result<Self, ProgramError> {
        super::program::check_mib(options.mib)?;
        let o = ChunksOptions {
            mib: options.mib.max(1),
            chunk_mib: options.chunk_mib.max(1),
            ..options
        };
        if o.chunk_mib > o.mib {
            let text = format!("a chunk of {} MiB is more than {} MiB", o.chunk_mib, o.mib);
            return Err(ProgramError::Usage(text));
        }
        Ok(Self {
            options: o,
            chunks: Vec::new(),
            state: State::New,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Chunks {
    describe!("chunks");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let chunk_bytes = o.chunk_mib * MIB;
        let (per_chunk, words) = (chunk_bytes / PAGE, chunk_bytes / 8);
        loop {
            match &mut self.state {
                State::New => {
                    for _ in 0..o.mib / o.chunk_mib {
                        self.chunks.push(map_area(memory, chunk_bytes, o.advise)?);
                    }
                    self.results.begin("fill", memory.now_ns());
                    self.state = State::Fill { page: 0 };
                }
                State::Fill { page } => {
                    let pages = per_chunk * self.chunks.len() as u64;
                    while *page < pages {
                        let start = memory.now_ns();
                        memory.touch(
                            self.chunks[(*page / per_chunk) as usize] + *page % per_chunk * PAGE,
                            true,
                        );
                        self.results.record("touch", memory.now_ns() - start);
                        memory.work(2 * pace::CLOCK + pace::FILL_PAGE);
                        *page += 1;
                        if *page % BATCH == 0 && memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    let now = memory.now_ns();
                    self.results.mark(now, pages);
                    let used = self.chunks.len().div_ceil(o.one_in.max(1) as usize) as u64;
                    self.results.add("used_bytes", used * chunk_bytes);
                    self.results.begin("use", now);
                    let rng = pattern::rng(o.seed);
                    self.state = State::Visit {
                        rng,
                        end_ns: after(now, o.time_ns),
                    };
                }
                State::Visit { rng, end_ns } => {
                    let one_in = o.one_in.max(1) as usize;
                    let used = self.chunks.len().div_ceil(one_in) as u64;
                    let chunks = &self.chunks;
                    weighed(memory, o.weight, |memory| {
                        let mut batch = Batch::new(memory);
                        for _ in 0..BATCH {
                            let random = rng.next_u64();
                            let (chunk, index) = (chunk_visited(random, used), chunk_word(random, words));
                            batch.update(chunks[chunk as usize * one_in] + index * 8);
                        }
                        drop(batch);
                        memory.work(BATCH * pace::VISIT);
                    });
                    let now = memory.now_ns();
                    let count = BATCH.saturating_mul(o.weight.max(1));
                    self.results.operations += count;
                    self.results.mark(now, count);
                    if (o.weight > 1 || self.results.operations % CHUNK_VISITS == 0) && now >= *end_ns {
                        self.state = State::Done;
                    } else if now >= until_ns {
                        return Ok(Progress::Ran);
                    }
                }
                State::Done => return Ok(Progress::Done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn all_is_written_and_only_every_sixth_chunk_is_used() {
        let o = ChunksOptions {
            mib: 14,
            chunk_mib: 2,
            time_ns: 1_000_000,
            ..ChunksOptions::default()
        };
        let (m, p) = run(Chunks::new(o).unwrap());
        assert_eq!((m.written_pages(), m.calls[0], m.stray), (7 * 512, 7, 0));
        // Chunks 0 and 6 are read.
        assert!(m.reads >= CHUNK_VISITS && m.reads % CHUNK_VISITS == 0);
        assert_eq!(p.chunks.len(), 7);
        steps_do_not_matter(|| Chunks::new(o).unwrap());
    }

    #[test]
    fn a_chunk_larger_than_all_is_wrong_usage() {
        assert!(Chunks::new(ChunksOptions {
            mib: 1,
            chunk_mib: 2,
            ..ChunksOptions::default()
        })
        .is_err());
        assert!(Chunks::new(ChunksOptions {
            mib: u64::MAX,
            ..ChunksOptions::default()
        })
        .is_err());
    }
}
