//! Page rank on a generated scale-free graph: random reads of an array by edge, as graph programs do (GraphChi in LRBHPS).

use super::pattern::Rmat;
use super::program::{describe, map_area};
use super::{pace, Batch, Memory, Program, ProgramError, Progress, Results, BATCH, PAGE};
use serde::{Deserialize, Serialize};

/// Options of [`PageRank`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphOptions {
    /// The graph has 2 to this power vertices.
    pub scale: u32,
    /// Edges for each vertex.
    pub edge_factor: u32,
    /// Iterations of page rank.
    pub iterations: u32,
    /// MADV_HUGEPAGE on the memory.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self {
            scale: 22,
            edge_factor: 16,
            iterations: 20,
            advise: false,
            seed: 1,
        }
    }
}

/// What is done next, and to which edge, page or vertex.
#[derive(Debug, Clone, Copy)]
enum State {
    Count(u64),
    Sum(u64),
    Place(u64),
    Ranks(u64),
    Share(u64),
    Rank(u64),
    Done,
}

/// Addresses of the arrays, in the order in which they are mapped.
#[derive(Debug, Clone, Copy)]
struct Arrays {
    offsets: u64,
    sources: u64,
    out_degrees: u64,
    ranks: u64,
    shares: u64,
}

/// The program. Its own memory is 4 bytes for an edge and 4 for a vertex; ranks are not computed, for nothing depends on them.
#[derive(Debug)]
pub struct PageRank {
    options: GraphOptions,
    rmat: Rmat,
    arrays: Option<Arrays>,
    offsets: Vec<u32>,
    sources: Vec<u32>,
    state: State,
    iterations: u32,
    results: Results,
}

impl PageRank {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// More than 2^32 edges or 2^31 vertices, or none.
    pub fn new(options: GraphOptions) -> Result<Self, ProgramError> {
        let edges = u64::from(options.edge_factor) << options.scale.min(32);
        if !(1..=31).contains(&options.scale) || edges == 0 || edges > u64::from(u32::MAX) {
            let text = format!(
                "a graph of scale {} and {} edges for each vertex",
                options.scale, options.edge_factor
            );
            return Err(ProgramError::Usage(text));
        }
        Ok(Self {
            options,
            rmat: Rmat {
                scale: options.scale,
                edges,
                seed: options.seed,
            },
            arrays: None,
            offsets: Vec::new(),
            sources: Vec::new(),
            state: State::Count(0),
            iterations: 0,
            results: Results::default(),
        })
    }

    fn map<M: Memory>(&mut self, memory: &mut M) -> Result<Arrays, ProgramError> {
        let (vertices, advise) = (1u64 << self.rmat.scale, self.options.advise);
        let arrays = Arrays {
            offsets: map_area(memory, (vertices + 2) * 8, advise)?,
            sources: map_area(memory, self.rmat.edges * 8, advise)?,
            out_degrees: map_area(memory, vertices * 8, advise)?,
            ranks: map_area(memory, vertices * 8, advise)?,
            shares: map_area(memory, vertices * 8, advise)?,
        };
        self.offsets = vec![0; vertices as usize + 2];
        self.sources = vec![0; self.rmat.edges as usize];
        self.results.begin("build", memory.now_ns());
        Ok(arrays)
    }

    /// Steps of one kind: at most [`BATCH`] from `at` to `end`. Where to go on, or none at the end.
    fn batch<M: Memory>(memory: &mut M, at: u64, end: u64, mut one: impl FnMut(&mut Batch<M>, u64)) -> Option<u64> {
        let to = (at + BATCH).min(end);
        let mut batch = Batch::new(memory);
        (at..to).for_each(|i| one(&mut batch, i));
        (to < end).then_some(to)
    }
}

impl<M: Memory> Program<M> for PageRank {
    describe!("graph");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let a = match self.arrays {
            Some(arrays) => arrays,
            None => {
                let arrays = self.map(memory)?;
                *self.arrays.insert(arrays)
            }
        };
        let (rmat, vertices) = (self.rmat, 1u64 << self.rmat.scale);
        let (offsets, sources) = (&mut self.offsets, &mut self.sources);
        loop {
            self.state = match self.state {
                State::Count(i) => Self::batch(memory, i, rmat.edges, |memory, i| {
                    let (from, to) = rmat.edge(i);
                    memory.touch(a.out_degrees + from * 8, true);
                    memory.touch(a.offsets + (to + 2) * 8, true);
                    memory.work(pace::DRAW_EDGE);
                    offsets[to as usize + 2] += 1;
                })
                .map_or(State::Sum(0), State::Count),
                State::Sum(page) => {
                    // One page of words a step; each word is loaded and stored.
                    memory.update(a.offsets + page * PAGE);
                    memory.work(pace::FILL_PAGE / 2);
                    if (page + 1) * PAGE < (vertices + 2) * 8 {
                        State::Sum(page + 1)
                    } else {
                        let mut sum = 0;
                        offsets.iter_mut().for_each(|o| {
                            sum += *o;
                            *o = sum;
                        });
                        State::Place(0)
                    }
                }
                State::Place(i) => Self::batch(memory, i, rmat.edges, |memory, i| {
                    let (from, to) = rmat.edge(i);
                    memory.update(a.offsets + (to + 1) * 8);
                    let at = offsets[to as usize + 1];
                    offsets[to as usize + 1] += 1;
                    memory.touch(a.sources + u64::from(at) * 8, true);
                    memory.work(pace::DRAW_EDGE);
                    sources[at as usize] = from as u32;
                })
                .map_or(State::Ranks(0), State::Place),
                State::Ranks(page) => {
                    memory.touch(a.ranks + page * PAGE, true);
                    memory.work(pace::FILL_PAGE / 2);
                    if (page + 1) * PAGE < vertices * 8 {
                        State::Ranks(page + 1)
                    } else {
                        self.results.mark(memory.now_ns(), rmat.edges);
                        self.results.begin("iterate", memory.now_ns());
                        State::Share(0)
                    }
                }
                State::Share(v) => Self::batch(memory, v, vertices, |memory, v| {
                    memory.touch(a.out_degrees + v * 8, false);
                    memory.touch(a.ranks + v * 8, false);
                    memory.touch(a.shares + v * 8, true);
                    memory.work(pace::EDGE);
                })
                .map_or(State::Rank(0), State::Share),
                State::Rank(v) => {
                    let mut edges = 0;
                    let next = Self::batch(memory, v, vertices, |memory, to| {
                        memory.touch(a.offsets + to * 8, false);
                        memory.touch(a.offsets + (to + 1) * 8, false);
                        let (from, end) = (offsets[to as usize], offsets[to as usize + 1]);
                        for at in from..end {
                            memory.touch(a.sources + u64::from(at) * 8, false);
                            memory.touch(a.shares + u64::from(sources[at as usize]) * 8, false);
                        }
                        edges += u64::from(end - from);
                        memory.touch(a.ranks + to * 8, true);
                    });
                    memory.work(edges * pace::EDGE);
                    let now = memory.now_ns();
                    self.results.operations += edges;
                    self.results.mark(now, edges);
                    next.map(State::Rank).unwrap_or_else(|| {
                        self.iterations += 1;
                        if self.iterations >= self.options.iterations.max(1) {
                            return State::Done;
                        }
                        self.results.begin("iterate", now);
                        State::Share(0)
                    })
                }
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
    fn every_edge_is_placed_once_and_read_once_an_iteration() {
        let o = GraphOptions {
            scale: 10,
            edge_factor: 8,
            iterations: 3,
            ..GraphOptions::default()
        };
        let (m, p) = run(PageRank::new(o).unwrap());
        assert_eq!((p.results.operations, m.stray), (3 * 8192, 0));
        // Behind the counting and placing, word v is where the sources of v begin.
        assert_eq!((p.offsets[0], p.offsets[1024]), (0, 8192));
        let mut sources = vec![0u32; 1024];
        (0..8192).for_each(|i| sources[p.rmat.edge(i).0 as usize] += 1);
        p.sources.iter().for_each(|s| sources[*s as usize] -= 1);
        assert!(sources.iter().all(|n| *n == 0));
        steps_do_not_matter(|| PageRank::new(o).unwrap());
    }

    #[test]
    fn graphs_that_cannot_be_are_refused() {
        for (scale, edge_factor) in [(0, 1), (32, 1), (31, 16), (5, 0)] {
            assert!(PageRank::new(GraphOptions {
                scale,
                edge_factor,
                ..GraphOptions::default()
            })
            .is_err());
        }
    }
}
