//! MEGA's Figure 2 and Table 7: half of the memory is freed in chunks of 1 MB, the rest is iterated over.

use super::pattern::hole_goes;
use super::program::{after, describe, map_area};
use super::sampled::weighed;
use super::{pace, Advice, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use serde::{Deserialize, Serialize};

/// Options of [`Holes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HolesOptions {
    /// Size of all memory in MiB.
    pub mib: u64,
    /// Time to iterate over what is left in ns.
    pub time_ns: u64,
    /// Free random chunks instead of every second one.
    pub random: bool,
    /// Free by MADV_DONTNEED instead of munmap.
    pub dontneed: bool,
    /// Chunk visits represented by each simulated one.
    pub weight: u64,
    /// MADV_HUGEPAGE on the memory.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for HolesOptions {
    fn default() -> Self {
        Self {
            mib: 12_288,
            time_ns: 120_000_000_000,
            random: false,
            dontneed: false,
            weight: 1,
            advise: false,
            seed: 1,
        }
    }
}

/// Pages of a chunk of 1 MB.
const CHUNK: u64 = MIB / PAGE;

#[derive(Debug)]
enum State {
    New,
    /// The next page; whether it is written for the first time, or checked.
    Fill {
        page: u64,
        first: bool,
    },
    Free,
    /// Which of the chunks left is next, and the end of the time.
    Iterate {
        at: usize,
        end_ns: u64,
    },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Holes {
    options: HolesOptions,
    base: u64,
    kept: Vec<u64>,
    state: State,
    results: Results,
}

impl Holes {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// An area larger than an address space.
    pub fn new(options: HolesOptions) -> Result<Self, ProgramError> {
        super::program::check_mib(options.mib)?;
        Ok(Self {
            options,
            base: 0,
            kept: Vec::new(),
            state: State::New,
            results: Results::default(),
        })
    }

    fn free_half<M: Memory>(&mut self, memory: &mut M) -> Result<(), ProgramError> {
        let o = self.options;
        let (gone, kept) = (0..o.mib.max(1)).partition::<Vec<u64>, _>(|c| hole_goes(o.seed, *c, o.random));
        for chunk in &gone {
            let at = self.base + chunk * MIB;
            if o.dontneed {
                memory.advise(at, MIB, Advice::DontNeed)?;
            } else {
                memory.unmap(at, MIB)?;
            }
        }
        self.results.add("freed_bytes", gone.len() as u64 * MIB);
        self.kept = kept;
        Ok(())
    }
}

impl<M: Memory> Program<M> for Holes {
    describe!("holes");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let pages = o.mib.max(1) * CHUNK;
        loop {
            match &mut self.state {
                State::New => {
                    self.base = map_area(memory, pages * PAGE, o.advise)?;
                    self.results.begin("fill", memory.now_ns());
                    self.state = State::Fill { page: 0, first: true };
                }
                State::Fill { page, first } => {
                    while *page < pages {
                        let at = self.base + *page * PAGE;
                        if *first {
                            let start = memory.now_ns();
                            memory.touch(at, true);
                            memory.work(pace::CLOCK);
                            self.results.record("touch", memory.now_ns() - start);
                        } else {
                            memory.update(at);
                            memory.work(pace::VISIT);
                        }
                        *page += 1;
                        if *page % BATCH == 0 && memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    let (now, was_first) = (memory.now_ns(), *first);
                    self.results.mark(now, pages);
                    self.results.begin(if was_first { "check" } else { "free" }, now);
                    self.state = if was_first {
                        State::Fill { page: 0, first: false }
                    } else {
                        State::Free
                    };
                }
                State::Free => {
                    self.free_half(memory)?;
                    let now = memory.now_ns();
                    self.results.begin("iterate", now);
                    self.state = State::Iterate {
                        at: 0,
                        end_ns: after(now, o.time_ns),
                    };
                }
                State::Iterate { at, end_ns } => {
                    let Some(chunk) = self.kept.get(*at) else {
                        self.state = State::Done;
                        continue;
                    };
                    let first = self.base + chunk * MIB;
                    weighed(memory, o.weight, |memory| {
                        let mut batch = Batch::new(memory);
                        for page in 0..CHUNK {
                            batch.update(first + page * PAGE);
                        }
                        drop(batch);
                        memory.work(CHUNK * pace::VISIT);
                    });
                    *at = (*at + 1) % self.kept.len();
                    let now = memory.now_ns();
                    let count = CHUNK.saturating_mul(o.weight.max(1));
                    self.results.operations += count;
                    self.results.mark(now, count);
                    if now >= *end_ns {
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
    fn half_goes_by_either_way_and_the_rest_is_used() {
        for (random, dontneed) in [(false, false), (true, true), (true, false)] {
            let o = HolesOptions {
                mib: 16,
                time_ns: 100_000,
                random,
                dontneed,
                ..HolesOptions::default()
            };
            let (m, p) = run(Holes::new(o).unwrap());
            assert_eq!(m.stray, 0);
            assert_eq!(m.resident_pages(), p.kept.len() as u64 * 256);
            assert!((4..=12).contains(&p.kept.len()));
            assert_eq!(m.mapped_pages(), if dontneed { 4096 } else { m.resident_pages() });
            steps_do_not_matter(|| Holes::new(o).unwrap());
        }
    }
}
