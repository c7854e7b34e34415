//! MEGA's Table 4: memory allocated in chunks of 32 MB, of which one sixth is used.
//!
//! The layout follows from the paper's numbers. All memory is mapped: Ingens, which promotes mapped regions, was expected to
//! make 6144 huge pages for two programs of 6 GB. The used memory fills whole regions: MEGA made 1024 huge pages, 1 GB for
//! each program. So every page is written once, and every sixth chunk is used from then on.

use super::stage::{rate, Meter};
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content;
use crate::memory::{base_page_bytes, rss_bytes, Mapping};
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use mega_sim::workload::pattern::{chunk_seed, chunk_visited, chunk_word, CHUNK_VISITS};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde_json::{json, Value};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Options of `chunks`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Fills chunks of memory, then uses one in six of them")]
pub struct Options {
    /// Size of all chunks in MiB
    #[arg(long, default_value_t = 6144)]
    pub mib: usize,
    /// Size of a chunk in MiB
    #[arg(long, default_value_t = 32)]
    pub chunk_mib: usize,
    /// One chunk in this many is used
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    pub one_in: u32,
    /// How long to use them
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::of(self.mib, self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// The chunks.
#[derive(Debug)]
pub struct Chunks {
    chunks: Vec<Mapping>,
    one_in: usize,
    seed: u64,
}

impl Chunks {
    /// Maps chunks of `chunk_bytes`, `bytes` in all, untouched.
    ///
    /// # Errors
    /// Chunks larger than all of them; memory.
    pub fn new(bytes: usize, chunk_bytes: usize, one_in: usize, common: &Common) -> Result<Self, WorkloadError> {
        if chunk_bytes > bytes {
            let text = format!("a chunk of {chunk_bytes} bytes is more than {bytes} bytes");
            return Err(WorkloadError::Usage(text));
        }
        let chunks = (0..bytes / chunk_bytes).map(|_| common.map(chunk_bytes));
        Ok(Self {
            chunks: chunks.collect::<Result<_, _>>()?,
            one_in: one_in.max(1),
            seed: common.seed,
        })
    }

    fn chunk_seed(&self, chunk: usize) -> u64 {
        chunk_seed(self.seed, chunk as u64)
    }

    /// Writes every page of every chunk in order, and returns the latencies of the first touches.
    #[must_use]
    pub fn fill(&self) -> Latency {
        let mut touches = Latency::new();
        for (i, chunk) in self.chunks.iter().enumerate() {
            let seed = self.chunk_seed(i);
            let words_per_page = base_page_bytes() / 8;
            for (page, words) in chunk.words().chunks(words_per_page).enumerate() {
                let start = now_ns();
                words[0].store(1, Relaxed);
                touches.record(now_ns() - start);
                for (j, w) in words.iter().enumerate() {
                    w.store(content::word(seed, (page * words_per_page + j) as u64), Relaxed);
                }
            }
        }
        touches
    }

    /// The chunks that are used, with their seeds.
    #[must_use]
    pub fn used(&self) -> Vec<(&[AtomicU64], u64)> {
        let all = self.chunks.iter().enumerate().step_by(self.one_in);
        all.map(|(i, c)| (c.words(), self.chunk_seed(i))).collect()
    }

    /// Checks every word of every chunk; returns the number of chunks.
    ///
    /// # Errors
    /// The first corrupt word.
    pub fn verify(&self) -> Result<usize, WorkloadError> {
        for (i, chunk) in self.chunks.iter().enumerate() {
            content::verify(chunk.words(), self.chunk_seed(i)).map_err(|m| {
                let at = chunk.start() + 8 * m.index;
                let text = format!("chunk {i}, word at {at:#x} is {:#x}, not {:#x}", m.found, m.expected);
                WorkloadError::Corrupt(text)
            })?;
        }
        Ok(self.chunks.len())
    }

    fn areas(&self) -> Vec<Value> {
        self.chunks.iter().map(|c| area_json("chunk", c)).collect()
    }
}

/// `count` visits of random words of `used`: reads, checks and writes back.
///
/// # Errors
/// The first corrupt word.
pub fn visit(used: &[(&[AtomicU64], u64)], rng: &mut Pcg64Mcg, count: u64) -> Result<(), WorkloadError> {
    for _ in 0..count {
        let random = rng.next_u64();
        let (words, seed) = used[chunk_visited(random, used.len() as u64) as usize];
        let index = chunk_word(random, words.len() as u64);
        let w = &words[index as usize];
        let (found, expected) = (w.load(Relaxed), content::word(seed, index));
        if found != expected {
            let at = std::ptr::from_ref(w) as usize;
            let text = format!("word of a used chunk at {at:#x} is {found:#x}, not {expected:#x}");
            return Err(WorkloadError::Corrupt(text));
        }
        w.store(found, Relaxed);
    }
    Ok(())
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let chunks = Chunks::new(mebibytes(o.mib)?, mebibytes(o.chunk_mib)?, o.one_in as usize, &o.common)?;
    let areas = chunks.areas();
    stage.start(&areas, json!({"seed": o.common.seed}));
    let start = now_ns();
    let touches = chunks.fill();
    let fill_ns = now_ns() - start;
    let used = chunks.used();
    let used_bytes = used.iter().map(|(words, _)| words.len() * 8).sum::<usize>();
    stage.ready(
        &areas,
        json!({"fill_ns": fill_ns, "touch": touches.summary(), "used_bytes": used_bytes, "rss_bytes": rss_bytes()}),
    );
    let mut rng = o.common.rng();
    let mut meter = Meter::new(stage, o.seconds);
    loop {
        visit(&used, &mut rng, CHUNK_VISITS)?;
        if !meter.goes_on(CHUNK_VISITS) {
            break;
        }
    }
    stage.result(
        json!({"ops": meter.operations(), "used_bytes": used_bytes, "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", rate(meter.operations(), meter.elapsed_ns())),
            ("elapsed_ns", meter.elapsed_ns() as f64),
            ("first_touch_ns", fill_ns as f64),
            ("used_bytes", used_bytes as f64),
        ],
        &[("touch", &touches)],
    );
    let result = chunks.verify();
    event("checked", json!({"ok": result.is_ok(), "chunks": result.as_ref().ok()}));
    result.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_touched_and_one_chunk_in_six_is_used() {
        let common = Common::of_seed(9);
        let c = Chunks::new(24 << 20, 2 << 20, 6, &common).unwrap();
        assert_eq!(c.fill().count(), 24 * 256);
        let used = c.used();
        assert_eq!(used.iter().map(|(w, _)| w.len() * 8).sum::<usize>(), 4 << 20);
        visit(&used, &mut common.rng(), 10_000).unwrap();
        assert_eq!(c.verify().unwrap(), 12);
        c.chunks[3].words()[0].store(0, Relaxed);
        assert_eq!(c.verify().unwrap_err().exit_code(), 3);
    }

    #[test]
    fn a_wrong_word_of_a_used_chunk_is_found_by_a_visit_and_one_of_the_others_is_not() {
        let common = Common::of_seed(9);
        let c = Chunks::new(2 << 20, 64 << 10, 6, &common).unwrap();
        let _ = c.fill();
        c.chunks[1].words().iter().for_each(|w| w.store(0, Relaxed));
        visit(&c.used(), &mut common.rng(), 10_000).unwrap();
        c.chunks[6].words().iter().for_each(|w| w.store(0, Relaxed));
        assert!(visit(&c.used(), &mut common.rng(), 10_000).is_err());
    }

    #[test]
    fn a_chunk_larger_than_everything_is_wrong_usage() {
        assert_eq!(
            Chunks::new(1 << 20, 2 << 20, 6, &Common::of_seed(1))
                .unwrap_err()
                .exit_code(),
            2
        );
    }
}
