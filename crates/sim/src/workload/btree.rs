//! A B-tree under random lookups and inserts: dependent loads all over it, as in a database's index.

use super::btree_nodes::Tree;
use super::pattern::{self, below, mix, BTREE_ABSENT};
use super::program::{after, check_mib, describe, map_area};
use super::{Memory, Program, ProgramError, Progress, Results, BATCH, MIB};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Options of [`Btree`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BtreeOptions {
    /// Capacity of the tree in MiB.
    pub mib: u64,
    /// Share of the capacity filled before it serves.
    pub load: f64,
    /// How long to serve, in ns.
    pub time_ns: u64,
    /// Share of inserts, until the tree is full.
    pub inserts: f64,
    /// MADV_HUGEPAGE on the memory.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for BtreeOptions {
    fn default() -> Self {
        Self {
            mib: 512,
            load: 0.75,
            time_ns: 10_000_000_000,
            inserts: 0.05,
            advise: false,
            seed: 1,
        }
    }
}

#[derive(Debug)]
enum State {
    Load,
    Serve { rng: Pcg64Mcg, end_ns: u64 },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Btree {
    options: BtreeOptions,
    tree: Option<Tree>,
    state: State,
    results: Results,
}

impl Btree {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// More memory than an address space has.
    pub fn new(options: BtreeOptions) -> Result<Self, ProgramError> {
        check_mib(options.mib)?;
        Ok(Self {
            options,
            tree: None,
            state: State::Load,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Btree {
    describe!("btree");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let seed = mix(o.seed);
        let key = |number: u64| mix(number ^ seed);
        let tree = match &mut self.tree {
            Some(tree) => tree,
            none => {
                let bytes = o.mib.max(1) * MIB;
                let base = map_area(memory, bytes, o.advise)?;
                self.results.begin("load", memory.now_ns());
                none.insert(Tree::new(memory, base, bytes))
            }
        };
        loop {
            let now = memory.now_ns();
            if now >= until_ns && !matches!(self.state, State::Done) {
                return Ok(Progress::Ran);
            }
            match &mut self.state {
                State::Load => {
                    if tree.used() < o.load && tree.insert(memory, key(tree.len())) {
                        self.results.mark(memory.now_ns(), 1);
                        continue;
                    }
                    self.results.add("keys", tree.len());
                    self.results.add("height", tree.height() as u64);
                    self.results.begin("serve", now);
                    self.state = State::Serve {
                        rng: pattern::rng(o.seed),
                        end_ns: after(now, o.time_ns),
                    };
                }
                State::Serve { rng, end_ns } => {
                    let insert_limit = (o.inserts.clamp(0.0, 1.0) * 1024.0) as u64;
                    for _ in 0..BATCH {
                        let random = rng.next_u64();
                        let start = memory.now_ns();
                        let what = if random & 1023 < insert_limit && tree.insert(memory, key(tree.len())) {
                            "insert"
                        } else {
                            let len = tree.len();
                            let absent = (random >> 10) % BTREE_ABSENT == 0;
                            tree.contains(memory, key(below(random, len.max(1)) + if absent { len } else { 0 }));
                            "lookup"
                        };
                        self.results.record(what, memory.now_ns() - start);
                    }
                    let now = memory.now_ns();
                    self.results.operations += BATCH;
                    self.results.mark(now, BATCH);
                    if now >= *end_ns {
                        self.state = State::Done;
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
    fn it_loads_to_its_share_and_serves_both_kinds() {
        let o = BtreeOptions {
            mib: 1,
            time_ns: 500_000,
            ..BtreeOptions::default()
        };
        let (m, p) = run(Btree::new(o).unwrap());
        assert!((190..=200).contains(&m.written_pages()), "{}", m.written_pages());
        assert!(p.results.latency("insert").is_some() && p.results.latency("lookup").is_some());
        steps_do_not_matter(|| Btree::new(o).unwrap());
    }
}
