//! A key-value store: a hash table under reads, inserts and deletes of Zipf-distributed keys.

use super::pattern::{self, is_in_share, probe_step, Zipf, KV_DELETED};
use super::program::{after, check_mib, check_share, describe};
use super::sampled::weighed;
use super::table::ValueTable;
use super::{pace, Latency, Memory, Program, ProgramError, Progress, Results, BATCH, MIB};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Options of [`Kv`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KvOptions {
    /// Size of all values in MiB.
    pub mib: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// How long to serve, in ns.
    pub time_ns: u64,
    /// Share of reads; the rest are deletes and re-inserts.
    pub reads: f64,
    /// Exponent of the Zipf distribution of keys (0 is uniform; must be below 1).
    pub zipf: f64,
    /// Share of the keys deleted at random after the load.
    pub delete_share: f64,
    /// Do not return pages whose values were deleted after the load.
    pub keep_pages: bool,
    /// Words of a value that an operation checks.
    pub probe: u64,
    /// Served operations represented by each simulated one.
    pub weight: u64,
    /// MADV_HUGEPAGE on the memory.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            mib: 1024,
            value_bytes: 4096,
            time_ns: 10_000_000_000,
            reads: 0.9,
            zipf: 0.99,
            delete_share: 0.0,
            keep_pages: false,
            probe: 4,
            weight: 1,
            advise: false,
            seed: 1,
        }
    }
}

#[derive(Debug)]
enum State {
    Load,
    Delete {
        rank: u64,
    },
    GiveBack,
    Serve {
        zipf: Zipf,
        rng: Pcg64Mcg,
        away: u64,
        end_ns: u64,
    },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Kv {
    options: KvOptions,
    table: Option<ValueTable>,
    touches: Latency,
    /// A bit for each rank that is there.
    present: Vec<u64>,
    away: VecDeque<u64>,
    state: State,
    results: Results,
}

impl Kv {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// Invalid sizes or shares.
    pub fn new(options: KvOptions) -> Result<Self, ProgramError> {
        check_mib(options.mib)?;
        check_share("reads", options.reads)?;
        check_share("delete_share", options.delete_share)?;
        Ok(Self {
            options,
            table: None,
            touches: Latency::new(),
            present: Vec::new(),
            away: VecDeque::new(),
            state: State::Load,
            results: Results::default(),
        })
    }

    fn step_words(&self) -> u64 {
        probe_step(self.options.value_bytes, self.options.probe)
    }
}

fn is_present(present: &[u64], rank: u64) -> bool {
    present[(rank / 64) as usize] >> (rank % 64) & 1 == 1
}

fn flip(present: &mut [u64], rank: u64) {
    present[(rank / 64) as usize] ^= 1 << (rank % 64);
}

impl<M: Memory> Program<M> for Kv {
    describe!("kv");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let (o, step) = (self.options, self.step_words());
        let table = match &mut self.table {
            Some(table) => table,
            none => {
                let table = ValueTable::new(memory, o.mib.max(1) * MIB, o.value_bytes, o.advise, o.seed)?;
                self.results.begin("load", memory.now_ns());
                none.insert(table)
            }
        };
        loop {
            let now = memory.now_ns();
            if now >= until_ns && !matches!(self.state, State::Done) {
                return Ok(Progress::Ran);
            }
            match &mut self.state {
                State::Load => {
                    if table.fill_next(memory, &mut self.touches) {
                        self.results.mark(memory.now_ns(), 1);
                        continue;
                    }
                    self.results
                        .latencies
                        .push(("touch", std::mem::take(&mut self.touches)));
                    self.present = vec![0; table.count().div_ceil(64) as usize];
                    (0..table.count()).for_each(|rank| flip(&mut self.present, rank));
                    self.results.begin("delete", now);
                    self.state = State::Delete { rank: 0 };
                }
                State::Delete { rank } => {
                    if o.delete_share == 0.0 || *rank == table.count() {
                        self.state = State::GiveBack;
                        continue;
                    }
                    let this = *rank;
                    *rank += 1;
                    if is_in_share(o.seed, this, o.delete_share) {
                        table.remove(memory, this, step);
                        flip(&mut self.present, this);
                        self.away.push_back(this);
                        self.results.mark(memory.now_ns(), 1);
                    }
                }
                State::GiveBack => {
                    if o.delete_share > 0.0 && !o.keep_pages {
                        let given = table.give_back(memory)?;
                        self.results.add("given_back_bytes", given);
                    }
                    self.results.add("deleted", self.away.len() as u64);
                    let now = memory.now_ns();
                    self.results.begin("serve", now);
                    self.state = State::Serve {
                        zipf: Zipf::new(table.count(), o.zipf),
                        rng: pattern::rng(o.seed),
                        away: (self.away.len() as u64).max(KV_DELETED.min(table.count() / 2)),
                        end_ns: after(now, o.time_ns),
                    };
                }
                State::Serve {
                    zipf,
                    rng,
                    away,
                    end_ns,
                } => {
                    let read_limit = (o.reads * 1024.0) as u64;
                    weighed(memory, o.weight, |memory| {
                        for _ in 0..BATCH {
                            let random = rng.next_u64();
                            let rank = zipf.rank(random);
                            let start = memory.now_ns();
                            let there = is_present(&self.present, rank);
                            let read = random & 1023 < read_limit;
                            let what = if !read && self.away.len() as u64 > *away {
                                // The key deleted longest ago returns; each deleted key has left a free slot.
                                if let Some(back) = self.away.pop_front() {
                                    table.add(memory, back);
                                    flip(&mut self.present, back);
                                }
                                "insert"
                            } else if !read && there {
                                table.remove(memory, rank, step);
                                flip(&mut self.present, rank);
                                self.away.push_back(rank);
                                "delete"
                            } else {
                                if there {
                                    table.get(memory, rank, step);
                                } else {
                                    table.look(memory, rank);
                                }
                                "read"
                            };
                            self.results.record(what, memory.now_ns() - start);
                            memory.work(pace::ZIPF);
                        }
                    });
                    let now = memory.now_ns();
                    let count = BATCH.saturating_mul(o.weight.max(1));
                    self.results.operations += count;
                    self.results.mark(now, count);
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
    fn a_served_store_keeps_its_number_of_keys() {
        let o = KvOptions {
            mib: 8,
            value_bytes: 512,
            time_ns: 2_000_000,
            reads: 0.5,
            ..KvOptions::default()
        };
        let (_, p) = run(Kv::new(o).unwrap());
        let there: u32 = p.present.iter().map(|w| w.count_ones()).sum();
        assert_eq!(u64::from(there), 16_384 - p.away.len() as u64);
        assert!((1023..=1025).contains(&p.away.len()), "{}", p.away.len());
        for name in ["touch", "read", "insert", "delete"] {
            assert!(p.results.latency(name).is_some_and(|l| l.count() > 10), "{name}");
        }
        let small = KvOptions {
            mib: 1,
            time_ns: 100_000,
            delete_share: 0.3,
            ..o
        };
        steps_do_not_matter(|| Kv::new(small).unwrap());
    }

    #[test]
    fn deleting_seven_tenths_gives_their_pages_back() {
        let o = KvOptions {
            mib: 16,
            time_ns: 0,
            delete_share: 0.7,
            ..KvOptions::default()
        };
        let (m, p) = run(Kv::new(o).unwrap());
        let deleted = p.results.measure("deleted");
        assert!((2700..3030).contains(&deleted), "{deleted} of 4096");
        assert_eq!(p.results.measure("given_back_bytes"), deleted * 4096);
        // Values left, the index (32 pages), the stack of free places.
        assert!(m.resident_pages() - (4096 - deleted) <= 32 + 8 + 64);
        assert!(Kv::new(KvOptions { reads: 1.5, ..o }).is_err());
    }
}
