//! The embedded store of `mega demo`: a dense part that benefits from huge pages and a sparse part that must not get them.

use super::hold::SparseArea;
use super::pattern::{self, probe_step, touches_due, Zipf};
use super::program::{after, check_mib, check_share, describe};
use super::table::ValueTable;
use super::{pace, Latency, Memory, Program, ProgramError, Progress, Results, MIB};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Options of [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreOptions {
    /// Size of the dense part's values in MiB.
    pub dense_mib: u64,
    /// Address space of the sparse part in MiB (0: none).
    pub sparse_mib: u64,
    /// Share of the sparse part's base pages that is used.
    pub share: f64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// How long to serve, in ns.
    pub time_ns: u64,
    /// Share of writes.
    pub writes: f64,
    /// Exponent of the Zipf distribution of keys (0 is uniform; must be below 1).
    pub zipf: f64,
    /// Fixed rate in operations per second (latency from the intended start); 0: closed loop.
    pub rate: u64,
    /// Sparse pages faulted in per second while serving instead of in the fill.
    pub grow: u64,
    /// One operation in this many reads the sparse part.
    pub sparse_every: u64,
    /// Words of a value that a read checks.
    pub probe: u64,
    /// MADV_HUGEPAGE on the memory.
    pub advise: bool,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            dense_mib: 2048,
            sparse_mib: 6144,
            share: 1.0 / 6.0,
            value_bytes: 1024,
            time_ns: 10_000_000_000,
            writes: 0.1,
            zipf: 0.0,
            rate: 0,
            grow: 0,
            sparse_every: 1000,
            probe: 4,
            advise: false,
            seed: 1,
        }
    }
}

#[derive(Debug)]
enum State {
    Fill,
    FillSparse { left: usize },
    Serve(Serve),
    Done,
}

#[derive(Debug)]
struct Serve {
    zipf: Zipf,
    rng: Pcg64Mcg,
    start_ns: u64,
    end_ns: u64,
    grown: u64,
}

/// The program.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    parts: Option<(ValueTable, Option<SparseArea>)>,
    touches: Latency,
    state: State,
    results: Results,
}

impl Store {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// Invalid sizes or shares.
    pub fn new(options: StoreOptions) -> Result<Self, ProgramError> {
        check_mib(options.dense_mib)?;
        check_mib(options.sparse_mib)?;
        check_share("share", options.share)?;
        Ok(Self {
            options,
            parts: None,
            touches: Latency::new(),
            state: State::Fill,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Store {
    describe!("store");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let (table, sparse) = match &mut self.parts {
            Some(parts) => parts,
            none => {
                let table = ValueTable::new(memory, o.dense_mib.max(1) * MIB, o.value_bytes, o.advise, o.seed)?;
                let sparse = match o.sparse_mib {
                    0 => None,
                    mib => Some(SparseArea::new(memory, mib, o.share, o.advise, o.seed)?),
                };
                self.results.begin("fill", memory.now_ns());
                none.insert((table, sparse))
            }
        };
        let step = probe_step(o.value_bytes, o.probe);
        let write_limit = (o.writes.clamp(0.0, 1.0) * 1024.0) as u64;
        let interval_ns = 1_000_000_000u64.checked_div(o.rate).unwrap_or(0);
        loop {
            let now = memory.now_ns();
            if now >= until_ns && !matches!(self.state, State::Done) {
                return Ok(Progress::Ran);
            }
            match &mut self.state {
                State::Fill => {
                    if !table.fill_next(memory, &mut self.touches) {
                        let reserve = touches_due(o.time_ns, o.grow);
                        let all = sparse.as_ref().map_or(0, |s| s.progress().1);
                        let left = all.saturating_sub(usize::try_from(reserve).unwrap_or(usize::MAX));
                        self.state = State::FillSparse { left };
                    }
                }
                State::FillSparse { left } => {
                    if let (Some(fewer), Some(s)) = (left.checked_sub(1), sparse.as_mut()) {
                        *left = fewer;
                        s.touch_next(memory).into_iter().for_each(|ns| self.touches.record(ns));
                        continue;
                    }
                    self.results.mark(now, self.touches.count());
                    self.results
                        .latencies
                        .push(("touch", std::mem::take(&mut self.touches)));
                    self.results.begin("serve", now);
                    self.state = State::Serve(Serve {
                        zipf: Zipf::new(table.count(), o.zipf),
                        rng: pattern::rng(o.seed),
                        start_ns: now,
                        end_ns: after(now, o.time_ns),
                        grown: 0,
                    });
                }
                State::Serve(s) => {
                    if now >= s.end_ns {
                        self.state = State::Done;
                        continue;
                    }
                    let mut began = now;
                    if interval_ns > 0 {
                        began = s
                            .start_ns
                            .saturating_add(self.results.operations.saturating_mul(interval_ns));
                        if now < began {
                            return Ok(Progress::Sleeps(began));
                        }
                    }
                    let random = s.rng.next_u64();
                    let rank = s.zipf.rank(random);
                    if random & 1023 < write_limit {
                        table.put(memory, rank);
                    } else {
                        table.get(memory, rank, step);
                    }
                    self.results.operations += 1;
                    if let Some(area) = sparse {
                        if o.sparse_every > 0 && self.results.operations % o.sparse_every == 0 {
                            area.visit(memory, s.rng.next_u64());
                        }
                    }
                    memory.work(pace::CLOCK + if o.zipf > 0.0 { pace::ZIPF } else { 0 });
                    let now = memory.now_ns();
                    self.results.record("op", now - began);
                    self.results.mark(now, 1);
                    if o.grow > 0 && s.grown < touches_due(now - s.start_ns, o.grow) {
                        if let Some(ns) = sparse.as_mut().and_then(|area| area.touch_next(memory)) {
                            self.results.record("grow", ns);
                        }
                        s.grown += 1;
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
    fn a_small_store_fills_serves_and_grows() {
        let o = StoreOptions {
            dense_mib: 1,
            sparse_mib: 4,
            time_ns: 20_000_000,
            grow: 5000,
            writes: 0.5,
            zipf: 0.9,
            sparse_every: 10,
            ..StoreOptions::default()
        };
        let (m, p) = run(Store::new(o).unwrap());
        let (touched, planned) = p.parts.as_ref().and_then(|(_, s)| s.as_ref()).unwrap().progress();
        let grown = p.results.latency("grow").map_or(0, Latency::count);
        assert!((95..=100).contains(&grown), "{grown}");
        assert_eq!(touched, planned - 100 + grown as usize);
        // The values and what is touched of the index, which has 2048 slots of 16 bytes.
        assert!(m.resident_pages() >= 256 + touched as u64 && m.resident_pages() <= 256 + 8 + touched as u64);
        let short = StoreOptions { time_ns: 200_000, ..o };
        steps_do_not_matter(|| Store::new(short).unwrap());
    }

    #[test]
    fn a_fixed_rate_is_kept_by_sleeping() {
        let o = StoreOptions {
            dense_mib: 1,
            sparse_mib: 0,
            time_ns: 100_000_000,
            rate: 10_000,
            ..StoreOptions::default()
        };
        let results = steps_do_not_matter(|| Store::new(o).unwrap());
        assert!((999..=1001).contains(&results.operations), "{}", results.operations);
    }
}
