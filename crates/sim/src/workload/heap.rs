//! A program whose heap grows while it builds its data, as canneal's does (LRBHPS, section 3.1 and Figure 1): a large array in a mapping of
//! its own, small objects in the heap, and visits that go from one to the other at random.

use super::pattern::{self, below};
use super::program::{check_mib, describe, map_area};
use super::sampled::weighed;
use super::{pace, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Options of [`Heap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeapOptions {
    /// Size of the heap at its end in MiB.
    pub mib: u64,
    /// Size of the array in MiB.
    pub array_mib: u64,
    /// Heap growth step in KiB: malloc's request size (M_TOP_PAD and a little).
    pub grow_kib: u64,
    /// Visits: each reads and writes a word of the array and one of the heap.
    pub visits: u64,
    /// Visits represented by each simulated one.
    pub weight: u64,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self {
            mib: 512,
            array_mib: 512,
            grow_kib: 132,
            visits: 10_000_000,
            weight: 1,
            seed: 1,
        }
    }
}

#[derive(Debug)]
enum State {
    New,
    Array { page: u64 },
    Grow,
    Visit { rng: Pcg64Mcg },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Heap {
    options: HeapOptions,
    array: u64,
    heap: u64,
    heap_bytes: u64,
    state: State,
    results: Results,
}

impl Heap {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// Areas larger than an address space; a heap that does not grow, or not by pages.
    pub fn new(options: HeapOptions) -> Result<Self, ProgramError> {
        check_mib(options.mib)?;
        check_mib(options.array_mib)?;
        if options.grow_kib == 0 || options.grow_kib % (PAGE / 1024) != 0 || options.grow_kib > 1 << 20 {
            let text = format!(
                "a heap that grows by {} KiB: expected pages, up to 1 GiB",
                options.grow_kib
            );
            return Err(ProgramError::Usage(text));
        }
        Ok(Self {
            options,
            array: 0,
            heap: 0,
            heap_bytes: 0,
            state: State::New,
            results: Results::default(),
        })
    }

    /// One growth of the heap, filled at once.
    fn grow<M: Memory>(&mut self, memory: &mut M) -> Result<(), ProgramError> {
        let step = self.options.grow_kib * 1024;
        if self.heap_bytes == 0 {
            self.heap = memory.map(step)?;
        } else {
            self.heap = memory.remap(self.heap, self.heap_bytes, self.heap_bytes + step)?;
        }
        for page in 0..step / PAGE {
            memory.touch(self.heap + self.heap_bytes + page * PAGE, true);
        }
        memory.work(step / PAGE * pace::FILL_PAGE);
        self.heap_bytes += step;
        Ok(())
    }
}

impl<M: Memory> Program<M> for Heap {
    describe!("heap");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let array_bytes = o.array_mib.max(1) * MIB;
        loop {
            match &mut self.state {
                State::New => {
                    self.array = map_area(memory, array_bytes, false)?;
                    self.results.begin("fill", memory.now_ns());
                    self.state = State::Array { page: 0 };
                }
                State::Array { page } => {
                    let end = (*page + BATCH).min(array_bytes / PAGE);
                    let mut batch = Batch::new(memory);
                    for page in *page..end {
                        batch.touch(self.array + page * PAGE, true);
                    }
                    drop(batch);
                    memory.work((end - *page) * pace::FILL_PAGE);
                    *page = end;
                    if end == array_bytes / PAGE {
                        self.state = State::Grow;
                    }
                }
                State::Grow => {
                    self.grow(memory)?;
                    if self.heap_bytes >= o.mib.max(1) * MIB {
                        let now = memory.now_ns();
                        self.results.mark(now, (array_bytes + self.heap_bytes) / PAGE);
                        self.results.begin("visit", now);
                        let rng = pattern::rng(o.seed);
                        self.state = State::Visit { rng };
                    }
                }
                State::Visit { rng } => {
                    let weight = o.weight.max(1);
                    let left = o.visits.saturating_sub(self.results.operations);
                    let piece = BATCH.min(left.div_ceil(weight));
                    let (array, heap) = (self.array, self.heap);
                    let words = (array_bytes / 8, self.heap_bytes / 8);
                    weighed(memory, weight, |memory| {
                        let mut batch = Batch::new(memory);
                        for _ in 0..piece {
                            batch.update(array + below(rng.next_u64(), words.0) * 8);
                            batch.update(heap + below(rng.next_u64(), words.1) * 8);
                        }
                        drop(batch);
                        memory.work(piece * pace::VISIT);
                    });
                    let done = (piece * weight).min(left);
                    self.results.operations += done;
                    self.results.mark(memory.now_ns(), done);
                    if done == left {
                        self.state = State::Done;
                    }
                }
                State::Done => return Ok(Progress::Done),
            }
            if memory.now_ns() >= until_ns && !matches!(self.state, State::Done) {
                return Ok(Progress::Ran);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn the_heap_grows_to_its_size_and_both_parts_are_visited() {
        let o = HeapOptions {
            mib: 2,
            array_mib: 1,
            visits: 1000,
            ..HeapOptions::default()
        };
        let (m, p) = run(Heap::new(o).unwrap());
        // 16 times 132 KB are the first multiple over 2 MB.
        assert_eq!((p.heap_bytes, m.calls[2]), ((16 * 132) << 10, 15));
        assert_eq!((m.resident_pages(), m.reads), (256 + 16 * 33, 2000));
        steps_do_not_matter(|| Heap::new(o).unwrap());
        let weighed = HeapOptions { weight: 10, ..o };
        let (m, p) = run(Heap::new(weighed).unwrap());
        assert_eq!((m.reads, p.results.operations), (200, 1000));
        assert!(Heap::new(HeapOptions { grow_kib: 0, ..o }).is_err());
    }
}
