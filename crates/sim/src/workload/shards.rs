//! A program whose data is on disk and is loaded in parts, each freed before the next is loaded: GraphChi's shards of a graph, and
//! BlockSVM's blocks of examples (LRBHPS, Tables 5 and 6). What is read from the disk passes through the page cache, and fills memory with it.

use super::pattern::{self, below};
use super::program::{check_mib, describe, map_area};
use super::sampled::weighed;
use super::{pace, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Options of [`Shards`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShardsOptions {
    /// Size of a part in memory in MiB.
    pub mib: u64,
    /// Number of parts.
    pub times: u32,
    /// Size of a part's file in MiB.
    pub file_mib: u64,
    /// The first so many parts are read from the disk, the others' files are in the page cache since. None: all of them, as files that do not fit it are.
    pub from_disk: Option<u32>,
    /// Size of the permanent memory in MiB.
    pub table_mib: u64,
    /// Visits of each part: each reads and writes a word of it at random …
    pub visits: u64,
    /// … and so many words of what stays.
    pub table_visits: u32,
    /// Visits represented by each simulated one.
    pub weight: u64,
    /// Time to read a base page from the disk in ns; 8,000 is 512 MB/s.
    pub read_ns: u64,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for ShardsOptions {
    fn default() -> Self {
        Self {
            mib: 1024,
            times: 10,
            file_mib: 512,
            from_disk: None,
            table_mib: 0,
            visits: 10_000_000,
            table_visits: 1,
            weight: 1,
            read_ns: 8_000,
            seed: 1,
        }
    }
}

/// What is done next; pages count from the area's beginning, visits from the part's.
#[derive(Debug, Clone, Copy)]
enum State {
    Table { page: u64 },
    Come,
    Load { page: u64 },
    Visit { done: u64 },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Shards {
    options: ShardsOptions,
    /// Where what stays lies, if there is any.
    table: Option<u64>,
    part: u64,
    parts: u32,
    rng: Pcg64Mcg,
    state: State,
    results: Results,
}

impl Shards {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// Areas larger than an address space.
    pub fn new(options: ShardsOptions) -> Result<Self, ProgramError> {
        check_mib(options.mib)?;
        check_mib(options.file_mib)?;
        check_mib(options.table_mib)?;
        Ok(Self {
            options,
            table: None,
            part: 0,
            parts: 0,
            rng: pattern::rng(options.seed),
            state: State::Table { page: 0 },
            results: Results::default(),
        })
    }

    fn part_bytes(&self) -> u64 {
        self.options.mib.max(1) * MIB
    }

    /// Fills pages of what stays, up to a batch of them.
    fn fill<M: Memory>(&mut self, memory: &mut M, page: u64) -> Result<State, ProgramError> {
        let bytes = self.options.table_mib * MIB;
        if bytes == 0 {
            return Ok(State::Come);
        }
        let table = match self.table {
            Some(table) => table,
            None => {
                self.results.begin("fill", memory.now_ns());
                *self.table.insert(map_area(memory, bytes, false)?)
            }
        };
        let end = (page + BATCH).min(bytes / PAGE);
        let mut batch = Batch::new(memory);
        (page..end).for_each(|page| batch.touch(table + page * PAGE, true));
        drop(batch);
        memory.work((end - page) * pace::FILL_PAGE);
        self.results.mark(memory.now_ns(), end - page);
        Ok(if end * PAGE < bytes {
            State::Table { page: end }
        } else {
            State::Come
        })
    }

    /// Reads the part of the file that belongs to some pages, and unpacks it there.
    fn load<M: Memory>(&mut self, memory: &mut M, page: u64) -> Result<State, ProgramError> {
        let pages = self.part_bytes() / PAGE;
        let end = (page + BATCH).min(pages);
        let is_read = self.options.from_disk.is_none_or(|parts| self.parts <= parts);
        let file_pages = if is_read { self.options.file_mib * MIB / PAGE } else { 0 };
        // The part of the file up to a page of the part.
        let file_until = |page: u64| (u128::from(page) * u128::from(file_pages) / u128::from(pages)) as u64;
        let read = file_until(end) - file_until(page);
        memory.read_file(read)?;
        memory.work(read.saturating_mul(self.options.read_ns));
        self.results.add("read_bytes", read * PAGE);
        let mut batch = Batch::new(memory);
        (page..end).for_each(|page| batch.touch(self.part + page * PAGE, true));
        drop(batch);
        memory.work((end - page) * pace::COPY_PAGE);
        self.results.mark(memory.now_ns(), end - page);
        if end < pages {
            return Ok(State::Load { page: end });
        }
        self.results.begin("visit", memory.now_ns());
        Ok(State::Visit { done: 0 })
    }

    /// A batch of visits; the part goes after the last.
    fn visit<M: Memory>(&mut self, memory: &mut M, done: u64) -> Result<State, ProgramError> {
        let weight = self.options.weight.max(1);
        let left = self.options.visits - done;
        let per_visit = self.options.table_visits;
        let piece = (BATCH / u64::from(per_visit.clamp(1, 64)))
            .max(1)
            .min(left.div_ceil(weight));
        let (part, words) = (self.part, self.part_bytes() / 8);
        let table = self.table.map(|at| (at, self.options.table_mib * MIB / 8));
        let rng = &mut self.rng;
        weighed(memory, weight, |memory| {
            let mut batch = Batch::new(memory);
            for _ in 0..piece {
                batch.update(part + below(rng.next_u64(), words) * 8);
                if let Some((at, words)) = table {
                    for _ in 0..per_visit {
                        batch.update(at + below(rng.next_u64(), words) * 8);
                    }
                }
            }
            drop(batch);
            memory.work(piece * (1 + u64::from(per_visit)) * pace::VISIT);
        });
        let did = (piece * weight).min(left);
        self.results.operations += did;
        self.results.mark(memory.now_ns(), did);
        if did < left {
            return Ok(State::Visit { done: done + did });
        }
        self.results.begin("free", memory.now_ns());
        memory.unmap(self.part, self.part_bytes())?;
        self.results.mark(memory.now_ns(), self.part_bytes() / PAGE);
        Ok(State::Come)
    }
}

impl<M: Memory> Program<M> for Shards {
    describe!("shards");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        loop {
            self.state = match self.state {
                State::Table { page } => self.fill(memory, page)?,
                State::Come if self.parts == self.options.times => State::Done,
                State::Come => {
                    self.parts += 1;
                    self.part = map_area(memory, self.part_bytes(), false)?;
                    self.results.begin("load", memory.now_ns());
                    State::Load { page: 0 }
                }
                State::Load { page } => self.load(memory, page)?,
                State::Visit { done } => self.visit(memory, done)?,
                State::Done => return Ok(Progress::Done),
            };
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
    fn each_part_comes_is_visited_and_goes_and_the_table_stays() {
        let o = ShardsOptions {
            mib: 2,
            times: 3,
            file_mib: 1,
            table_mib: 1,
            visits: 1000,
            ..ShardsOptions::default()
        };
        let (m, p) = run(Shards::new(o).unwrap());
        assert_eq!((m.resident_pages(), m.mapped_pages()), (256, 256), "the table");
        assert_eq!((m.calls[0], m.calls[1]), (4, 3));
        assert_eq!((m.reads, m.writes), (3 * 2000, 256 + 3 * (512 + 2000)));
        assert_eq!((p.results.operations, p.results.measure("read_bytes")), (3000, 3 << 20));
        steps_do_not_matter(|| Shards::new(o).unwrap());
        let bare = ShardsOptions {
            table_mib: 0,
            weight: 10,
            from_disk: Some(2),
            ..o
        };
        let (m, p) = run(Shards::new(bare).unwrap());
        assert_eq!((m.mapped_pages(), m.reads, p.results.operations), (0, 300, 3000));
        assert_eq!(p.results.measure("read_bytes"), 2 << 20);
        let often = ShardsOptions { table_visits: 5, ..o };
        assert_eq!(run(Shards::new(often).unwrap()).0.reads, 3 * 6000);
    }
}
